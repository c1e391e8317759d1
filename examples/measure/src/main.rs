//! Measures the cost of an informer for one resource: time, CPU and memory until it has synced, and
//! for each event afterwards. Use the figures to plan the requests and limits of a controller. It
//! runs only on Linux, because it reads `/proc`.
//!
//! ```text
//! cargo run --release -p measure                                Pods of your cluster, until Ctrl-C
//! cargo run --release -p measure -- --type custom --seconds 60     the same as a struct with few fields
//! cargo run --release -p measure -- deploy --type dynamic       any resource by its name
//!     --help                                                    everything else
//! ```
//!
//! The figures include everything that this process uses. The output is a table and one line of
//! JSON. Debug builds cost many times as much.

mod arguments;
mod count;
mod custom;
mod latency;
mod meter;
mod report;
mod run;
mod table;
mod types;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use env_logger::Env;
use indicatif::{ProgressBar, ProgressStyle};
use k8s_informer::Stop;
use k8s_informer::reflector::ReflectorStatus;

use self::arguments::Arguments;
use self::report::Report;
use self::run::{ProgressObserver, Run};
use self::table::Table;

fn main() -> ExitCode {
    // The informer logs to standard error; set `RUST_LOG=k8s_informer=debug` for more.
    env_logger::Builder::from_env(Env::default().default_filter_or("k8s_informer=info")).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let Some(Arguments {
        config,
        resource,
        r#type,
        settings,
        json,
    }) = Arguments::parse(lexopt::Parser::from_env())?
    else {
        return Ok(());
    };
    let stop = Stop::on_signals()?;
    let mut screen = Screen {
        json,
        bar: ProgressBar::hidden(),
    };
    if !json && io::stderr().is_terminal() {
        screen.bar = ProgressBar::no_length().with_style(style("{spinner} {pos} objects {msg}"));
    }
    let run = Run {
        config,
        settings: &settings,
        stop: &stop,
        observer: &mut screen,
    };
    let report = types::measure(&r#type, &resource, run);
    screen.bar.finish_and_clear();
    let report = report?;
    let mut out = io::stdout().lock();
    if !json {
        writeln!(out, "{}", Table(&report))?;
    }
    writeln!(out, "{}", serde_json::to_string(&report)?)?;
    Ok(())
}

/// Displays progress on standard error.
struct Screen {
    json: bool,
    bar: ProgressBar,
}

impl ProgressObserver for Screen {
    fn progress(&mut self, status: &ReflectorStatus) {
        if let Some(expected) = status.expected {
            self.bar.set_length(expected as u64);
            self.bar.set_style(style("{wide_bar} {pos}/{len} {msg}"));
        }
        self.bar.set_position(status.received as u64);
        self.bar.set_message(
            status
                .last_error
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        );
    }

    fn synced(&mut self, report: &Report) {
        self.bar.finish_and_clear();
        if self.json {
            println!("synced");
        } else {
            eprintln!(
                "synced: {} objects; press Ctrl-C to stop early",
                report.objects
            );
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
