//! A port of [Kubernetes' sample-controller](https://github.com/kubernetes/sample-controller): each
//! Foo gets a Deployment.
//!
//! ```text
//! kubectl apply -f examples/sample_controller/crd.json
//! cargo run -p sample_controller       on the cluster of your kubeconfig, until Ctrl-C
//!     --leader-elect                   several replicas can run; one at a time works
//!     --health ADDRESS                 the address of /healthz, /readyz, /metrics and /status
//! kubectl apply -f examples/sample_controller/foo.json
//! ```
//!
//! Start reading in `controller.rs`. The tests in `tests.rs` need no cluster:
//! `cargo test -p sample_controller`.

mod controller;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::process::ExitCode;

use env_logger::Env;
use k8s_informer::{Client, Stop};
use k8s_informer_controller::Manager;

const USAGE: &str = "usage: sample_controller [--leader-elect] [--health ADDRESS]";

fn main() -> ExitCode {
    // The controller logs to standard error; set `RUST_LOG=k8s_informer=debug` for more.
    env_logger::Builder::from_env(Env::default().default_filter_or("k8s_informer=info")).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sample_controller: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    use lexopt::prelude::*;

    let (mut leader_elect, mut health) = (false, "127.0.0.1:8080".to_owned());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("leader-elect") => leader_elect = true,
            Long("health") => health = arguments.value()?.string()?,
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    let mut builder = Manager::builder(client.clone()).health(health);
    if leader_elect {
        builder = builder.leader_election(client.default_namespace(), controller::NAME);
    }
    let manager = builder.build()?;
    controller::build(manager.reconcile(controller::NAME))?;
    println!(
        "Watching the Foos of {}; press Ctrl-C to stop",
        client.server()
    );
    Ok(manager.run(&stop)?)
}
