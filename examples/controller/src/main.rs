//! A controller, with only this crate: every Namespace of a team gets a ConfigMap with the team's
//! name.
//!
//! ```text
//! cargo run -p controller              on an API server inside this program; ends on its own
//! cargo run -p controller -- --live    on the cluster of your kubeconfig, until Ctrl-C
//!     --workers N                      the number of Namespaces reconciled at the same time; default: 2
//! ```
//!
//! On a cluster, `kubectl label namespace NAME example.com/team=sky` creates work for the
//! controller. It touches only ConfigMaps with the name `team` that it created. Start reading in
//! `controller.rs`.

mod controller;
mod demo;

use std::error::Error;
use std::process::ExitCode;

use env_logger::Env;
use k8s_informer::{Client, Stop};

use crate::controller::{Action, Options, Outcome, TeamController};

const USAGE: &str = "usage: controller [--live] [--workers N]";

fn main() -> ExitCode {
    // The informer logs to standard error; set `RUST_LOG=k8s_informer=debug` for more.
    env_logger::Builder::from_env(Env::default().default_filter_or("k8s_informer=info")).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("controller: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    use lexopt::prelude::*;

    let (mut is_live, mut options) = (false, Options::default());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("live") => is_live = true,
            Long("workers") => options.workers = arguments.value()?.parse()?,
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    if is_live {
        live(options)
    } else {
        demo::run(options)
    }
}

/// Runs on the cluster of your kubeconfig until Ctrl-C.
fn live(options: Options) -> Result<(), Box<dyn Error>> {
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    println!(
        "Watching Namespaces of {} with the label {}; press Ctrl-C to stop",
        client.server(),
        controller::TEAM
    );
    TeamController::new(client, options, print)?.run(&stop)?;
    println!("stopped");
    Ok(())
}

/// Prints the outcome of a key as one line.
fn print(namespace: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Done(Action::Nothing) => {}
        Outcome::Done(action) => println!("  {namespace}: {action:?}"),
        Outcome::Retry(error) => println!("  {namespace}: will retry: {error}"),
        Outcome::GivenUp(error) => println!("  {namespace}: gave up: {error}"),
    }
}
