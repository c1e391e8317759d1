//! An agent that runs on every node and knows the Pods of its own, as log collectors, CNI plugins and
//! security agents do. `daemonset.yaml` is what it needs on the cluster, no right more.
//!
//! ```text
//! cargo run --example node_agent              on an API server inside of this program; ends by itself
//! cargo run --example node_agent -- --live    on your cluster, as kubectl would reach it, or as its own service
//!                                             account in a Pod, until it is told to end
//!     --node NAME                             whose Pods; $NODE_NAME unless given
//! ```

mod agent;

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;

use k8s_informer::testing::ApiServer;
use k8s_informer::{Client, Config, Stop};
use serde_json::json;

const USAGE: &str = "usage: node_agent [--live] [--node NAME]";

fn main() -> ExitCode {
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

    let (mut is_live, mut node) = (false, std::env::var("NODE_NAME").ok());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("live") => is_live = true,
            Long("node") => node = Some(arguments.value()?.parse()?),
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
    live(&node.ok_or("which node? neither --node nor $NODE_NAME says so")?)
}

/// Until SIGINT or SIGTERM, which is how Kubernetes ends a container.
fn live(node: &str) -> Result<(), Box<dyn Error>> {
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    println!("the Pods of node {node} of {}", client.server());
    let pods = agent::watch_node(client, node, |line| println!("{line}"))?;
    pods.wait_for_sync(&stop, None)?;
    println!("{} Pods are here", pods.lister().list().len());
    stop.wait();
    Ok(())
}

/// Two nodes, of which one is this one.
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

    let (told, lines) = mpsc::channel();
    let tell = move |line| {
        // Nobody listens any more at the end.
        let _ = told.send(line);
    };
    let pods = agent::watch_node(Client::new(Config::new(server.url()))?, "worker-1", tell)?;
    pods.wait_for_sync(&Stop::new(), None)?;
    println!("{} of 3 Pods are on worker-1", pods.lister().list().len());
    server.create(PODS, pod("job-x", "worker-2", "Running"))?;
    server.create(PODS, pod("job-y", "worker-1", "Running"))?;
    server.delete(&format!("{PODS}/web-0"))?;
    for line in lines.iter().take(4) {
        println!("{line}");
    }
    Ok(())
}
