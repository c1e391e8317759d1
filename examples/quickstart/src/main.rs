//! A first informer, with only this crate.
//!
//! ```text
//! cargo run -p quickstart              on an API server inside this program; ends on its own
//! cargo run -p quickstart -- --live    on your kubeconfig's cluster, until Ctrl-C
//!     --namespace NAME                 only the Pods in that namespace
//! ```

mod demo;
mod live;
mod pod;
mod screen;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use env_logger::Env;

const USAGE: &str = "usage: quickstart [--live [--namespace NAME]]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    use lexopt::prelude::*;

    let (mut live, mut namespace) = (false, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("live") => live = true,
            Long("namespace") | Short('n') => namespace = Some(arguments.value()?.string()?),
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    // The informer logs to standard error; set `RUST_LOG=k8s_informer=debug` for more. With
    // `--live` on a terminal, log lines would appear in the middle of the table. The table shows
    // the state and the last error, so the log is off.
    let is_drawn_over = live && live::has_screen() && io::stderr().is_terminal();
    let filter = if is_drawn_over {
        "off"
    } else {
        "k8s_informer=info"
    };
    env_logger::Builder::from_env(Env::default().default_filter_or(filter)).init();
    if live {
        live::run(namespace)
    } else {
        demo::run()
    }
}
