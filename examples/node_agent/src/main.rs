//! An agent that runs on every node and watches the Pods on that node, like log collectors, CNI
//! plugins and security agents. `daemonset.yaml` contains everything that the agent needs on the
//! cluster, with minimal permissions.
//!
//! ```text
//! cargo run -p node_agent              on an API server inside this program; ends on its own
//! cargo run -p node_agent -- --live    on your kubeconfig's cluster, or in a Pod as its service account,
//!                                      until SIGINT or SIGTERM
//!     --node NAME                      the node; default: $NODE_NAME
//!     --health-port PORT               where /healthz and /readyz are served; default: 8080
//! ```

mod agent;
mod health;

use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use env_logger::Env;
use k8s_informer::{Client, Config, Stop, Stopper};
use k8s_informer_testing::ApiServer;
use serde_json::json;

use self::health::Health;

const USAGE: &str = "usage: node_agent [--live] [--node NAME] [--health-port PORT]";

/// Much longer than any handler call of this agent: the handlers only print.
const STUCK_AFTER: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    // The informer logs to standard error; set `RUST_LOG=k8s_informer=debug` for more.
    env_logger::Builder::from_env(Env::default().default_filter_or("k8s_informer=info")).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("node_agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    use lexopt::prelude::*;

    let (mut is_live, mut node, mut port) = (false, None, 8080);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("live") => is_live = true,
            Long("node") => node = Some(agent::node_name("--node", &arguments.value()?.string()?)?),
            Long("health-port") => port = arguments.value()?.parse()?,
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    if !is_live {
        return demo();
    }
    let node = match (node, env::var_os("NODE_NAME")) {
        (Some(node), _) => node,
        (None, Some(name)) => agent::node_name("$NODE_NAME", &name.to_string_lossy())?,
        (None, None) => return Err("no node name was given; use --node or set $NODE_NAME".into()),
    };
    live(&node, port)
}

/// Runs until SIGINT or SIGTERM. Kubernetes sends SIGTERM to end a container.
fn live(node: &str, port: u16) -> Result<(), Box<dyn Error>> {
    let stop = Stop::on_signals()?;
    let listener = health::listen(port)
        .map_err(|error| format!("can't listen on --health-port {port}: {error}"))?;
    let client = Client::try_default()?;
    println!("Watching the Pods on node {node} of {}", client.server());
    let pods = agent::watch_node(client, node, |line| println!("{line}"))?;
    let lister = pods.lister();
    let _synced = pods
        .synced()
        .on_done(move || println!("Synced: {} Pods", lister.list().len()));

    let health = Health::new(STUCK_AFTER);
    health::serve(&listener, &stop, |path| health.reply(path, &pods))?;
    println!("Stopping: {}", pods.status());
    Ok(())
}

/// Runs the agent on the first of two nodes.
fn demo() -> Result<(), Box<dyn Error>> {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let server = ApiServer::start()?;
    let pod = |name: &str, node: &str, phase: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox"}]},
            "status": {"phase": phase},
        })
    };
    for (name, node) in [
        ("web-0", "worker-1"),
        ("web-1", "worker-2"),
        ("db-0", "worker-1"),
    ] {
        server.create(PODS, pod(name, node, "Running"))?;
    }

    let (sender, lines) = mpsc::channel();
    let report = move |line| {
        // The receiver is dropped at the end of the demo.
        let _ = sender.send(line);
    };
    let pods = agent::watch_node(Client::new(Config::new(server.url()))?, "worker-1", report)?;
    pods.wait_for_sync(None, &Stop::never())?;
    println!("{} of 3 Pods are on worker-1", pods.lister().list().len());
    server.create(PODS, pod("job-x", "worker-2", "Running"))?;
    server.create(PODS, pod("job-y", "worker-1", "Running"))?;
    server.delete(&format!("{PODS}/web-0"))?;
    for line in lines.iter().take(4) {
        println!("{line}");
    }

    // Send the request of a kubelet probe.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (address, health, stop) = (
        listener.local_addr()?,
        Health::new(STUCK_AFTER),
        Stopper::new(),
    );
    let reply = thread::scope(|scope| {
        scope.spawn(|| health::serve(&listener, &stop, |path| health.reply(path, &pods)));
        let reply = health::get(address, "/readyz");
        stop.stop();
        reply
    })?;
    println!("GET /readyz: {reply}");
    Ok(())
}
