//! Leader election, with only this crate: of several processes, one at a time does the work.
//!
//! ```text
//! cargo run -p leader              on an API server inside this program; ends on its own
//! cargo run -p leader -- --live    one candidate on the cluster of your kubeconfig, until Ctrl-C
//!     --namespace NAME             the namespace of the Lease; default: that of the kubeconfig
//!     --lease NAME                 the name of the Lease; default: leader-example
//! ```
//!
//! On a cluster, run it in two terminals. If you end the leader with Ctrl-C, the other candidate
//! takes over at once. If you end it with `kill -9`, that takes up to 15 seconds. Start reading in
//! `candidate.rs`.

mod candidate;
mod demo;

use std::error::Error;
use std::process::ExitCode;

use env_logger::Env;
use k8s_informer::{Client, Stop};
use k8s_informer_controller::leader_election::LeaseLock;

use crate::candidate::Speed;

const USAGE: &str = "usage: leader [--live [--namespace NAME] [--lease NAME]]";

/// The name of the Lease.
const LEASE: &str = "leader-example";

fn main() -> ExitCode {
    // The elector logs to standard error; set `RUST_LOG=k8s_informer=debug` for more.
    env_logger::Builder::from_env(Env::default().default_filter_or("k8s_informer=warn")).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    use lexopt::prelude::*;

    let (mut is_live, mut namespace, mut lease) = (false, None, LEASE.to_owned());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("live") => is_live = true,
            Long("namespace") | Short('n') => namespace = Some(arguments.value()?.string()?),
            Long("lease") => lease = arguments.value()?.string()?,
            // The demo starts this program again with this option.
            Long("candidate") => {
                let identity = arguments.value()?.string()?;
                let server = arguments.value()?.string()?;
                return demo::candidate(&identity, &server);
            }
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    if is_live {
        live(namespace, &lease)
    } else {
        demo::run()
    }
}

/// Runs a candidate on the cluster of your kubeconfig until Ctrl-C.
fn live(namespace: Option<String>, lease: &str) -> Result<(), Box<dyn Error>> {
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    println!(
        "Election for the Lease {namespace}/{lease} of {}; press Ctrl-C to stop",
        client.server()
    );
    // The default identity is unique: the name of the host and a random number.
    let lock = LeaseLock::new(&client, &namespace, lease);
    candidate::run(lock, Speed::Default, &stop)
}
