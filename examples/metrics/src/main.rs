//! Publishes metrics of an informer and its client for Prometheus, with only this crate and the
//! standard library.
//!
//! ```text
//! cargo run -p metrics                    on an API server inside this program: creates, changes and
//!                                         deletes Pods, scrapes itself once, and prints the metrics
//! cargo run -p metrics -- --port 9090     serves http://127.0.0.1:9090/metrics until Ctrl-C
//!     --live                              on your kubeconfig's cluster, without changing its Pods
//!     --once                              scrapes itself once and ends, even with --port
//! ```

mod http;
mod prometheus;
mod rest_client;

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use env_logger::Env;
use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
use k8s_informer_testing::ApiServer;
use serde_json::json;

use self::prometheus::Exporter;
use self::rest_client::RestClient;

const USAGE: &str = "usage: metrics [--live] [--port PORT] [--once]";

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The label `name` of all metrics of the informer.
const NAME: &str = "metrics-example";

/// The longest wait for the first list.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between changes, so that each scrape shows something new.
const PACE: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    // The informer logs to standard error; set `RUST_LOG=k8s_informer=debug` for more.
    env_logger::Builder::from_env(Env::default().default_filter_or("k8s_informer=info")).init();
    match Options::from_arguments().and_then(|options| options.map_or(Ok(()), run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("metrics: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    live: bool,
    once: bool,
    /// 0 means any free port.
    port: u16,
}

impl Options {
    /// Returns `None` after printing the help.
    fn from_arguments() -> Result<Option<Self>, Box<dyn Error>> {
        let (mut live, mut once, mut port) = (false, false, None);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--live" => live = true,
                "--once" => once = true,
                "--port" => port = Some(arguments.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?),
                "--help" | "-h" => {
                    println!("{USAGE}");
                    return Ok(None);
                }
                _ => return Err(USAGE.into()),
            }
        }
        Ok(Some(Self {
            live,
            once: once || port.is_none(),
            port: port.unwrap_or(0),
        }))
    }
}

fn run(options: Options) -> Result<(), Box<dyn Error>> {
    // A child, because the demo ends on its own.
    let stop = Stop::on_signals()?.child();
    let server = if options.live {
        None
    } else {
        Some(ApiServer::start()?)
    };
    let config = match &server {
        Some(server) => Config::new(server.url()),
        None => Config::try_default()?,
    };
    // Receives the metrics of each request.
    let rest_client = Arc::new(RestClient::default());
    let client = Client::new(config.metrics(rest_client.clone()))?;

    // Receives the metrics of the queue and the cache of each informer.
    let exporter = Arc::new(Exporter::default());
    let with_metrics = FactoryOptions::new().metrics(NAME, exporter.clone());
    let factory = SharedInformerFactory::with_options(client, with_metrics);
    let resource = GroupVersionResource::new("", "v1", "pods");
    let pods = factory.informer_for(Source::dynamic(resource.clone()));
    let (sender, changes) = mpsc::channel();
    let handler = pods.add_event_handler(|handler| {
        let count = move || {
            // The receiver is dropped when the demo ends.
            let _ = sender.send(());
        };
        let (added, updated, deleted) = (count.clone(), count.clone(), count);
        handler
            .on_add(move |_, _| added())
            .on_update(move |_, _| updated())
            .on_delete(move |_| deleted())
    })?;
    // The metrics of reflectors and handlers are read at each scrape.
    exporter.read_reflector(&resource, NAME, {
        let pods = pods.clone();
        move || pods.status()
    });
    exporter.read_handler(&resource, NAME, handler);

    factory.start(&stop)?;
    match factory.wait_for_cache_sync(PATIENCE, &stop) {
        Err(error) if error.is_stopped() => return Ok(()),
        synced => synced?,
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
    let address = listener.local_addr()?;
    let serving = thread::Builder::new().name("metrics".to_owned()).spawn({
        let stop = stop.signal();
        move || http::serve(&listener, &stop, || exporter.text() + &rest_client.text())
    })?;

    if options.once {
        if let Some(server) = &server {
            churn(server, || changes.recv().is_ok())?;
        }
        print!("{}", http::get(address, "/metrics")?);
        stop.stop();
    } else {
        println!("Serving http://{address}/metrics; press Ctrl-C to stop");
        match &server {
            Some(server) => {
                while !stop.is_stopped() {
                    churn(server, || !stop.wait_timeout(PACE))?;
                }
            }
            None => stop.wait(),
        }
    }
    factory.shut_down(None)?;
    serving.join().map_err(|_| "the metrics server panicked")?;
    Ok(())
}

/// Creates, changes and deletes Pods. Calls `go_on` after each change; it waits and returns whether
/// to continue.
fn churn(server: &ApiServer, go_on: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
    for n in 0..4 {
        let pod = format!("{PODS}/web-{n}");
        let changes: [&dyn Fn() -> _; 3] = [
            &|| server.create(PODS, json!({"metadata": {"name": format!("web-{n}")}})),
            &|| server.patch(&pod, json!({"metadata": {"labels": {"app": "web"}}})),
            &|| server.delete(&pod),
        ];
        for change in changes {
            change()?;
            if !go_on() {
                return Ok(());
            }
        }
    }
    Ok(())
}
