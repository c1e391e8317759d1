//! An operator: a `Website` gets a Deployment, a Service, a ConfigMap with its pages, and its host in
//! an external service, here a folder.
//!
//! ```text
//! cargo run -p website -- FOLDER       on the cluster of your kubeconfig, until Ctrl-C
//! kubectl apply -f examples/website/website.yaml
//! ```
//!
//! Several replicas can run; one at a time works. `manifest.yaml` runs them in a cluster. Start reading
//! in `api.rs` and `controller.rs`. `cargo test -p website` needs no cluster.

mod api;
mod controller;
mod hosts;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use env_logger::Env;
use k8s_informer::client::crds::InstallOptions;
use k8s_informer::{Client, Stop};
use k8s_informer_controller::Manager;
use kube::CustomResourceExt;

use crate::api::Website;
use crate::controller::{NAME, build};
use crate::hosts::Folder;

const USAGE: &str = "usage: website FOLDER-OF-THE-HOSTS [ADDRESS-OF-PROBES-AND-METRICS]";

fn main() -> ExitCode {
    // The controller logs to standard error; set `RUST_LOG=k8s_informer=debug` for more.
    env_logger::Builder::from_env(Env::default().default_filter_or("k8s_informer=info")).init();
    if let Err(error) = run() {
        eprintln!("website: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or(USAGE)?;
    let address = arguments.next().unwrap_or(":8080".to_owned());
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    client.install_crds([Website::crd()], &InstallOptions::new(NAME), &stop)?;
    let hosts = Arc::new(Folder(folder.clone().into()));
    let manager = Manager::builder(client.clone())
        .leader_election(client.default_namespace(), NAME)
        .health(address)
        .ready_check("hosts", move || fs::metadata(&folder).map(drop))
        .build()?;
    build(manager.reconcile("website"), hosts, manager.metrics())?;
    Ok(manager.run(&stop)?)
}
