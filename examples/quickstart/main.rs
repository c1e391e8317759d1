//! A first informer, with nothing but this crate.
//!
//! ```text
//! cargo run --example quickstart              on an API server inside of this program; ends by itself
//! cargo run --example quickstart -- --live    on the cluster of your kubeconfig, until Ctrl-C
//!     --namespace NAME                        only Pods of that namespace
//! ```

mod demo;
mod live;
mod pod;

use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "usage: quickstart [--live [--namespace NAME]]";

fn main() -> ExitCode {
    // Warnings and errors of the crate go to standard error; a real program brings a logger of its own.
    let _ = log::set_logger(&Logger).map(|()| log::set_max_level(log::LevelFilter::Warn));
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
    if live {
        live::run(namespace)
    } else {
        demo::run()
    }
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!(
                "{}: {}",
                record.level().as_str().to_lowercase(),
                record.args()
            );
        }
    }

    fn flush(&self) {}
}
