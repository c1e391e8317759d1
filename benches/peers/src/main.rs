//! What an informer of Pods costs with kube-rs and with this crate: each case in a process of its own, in turn,
//! against the same server that sends the same bytes.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml
//! ```

mod cases;
mod peer;
mod table;

/// What is shared with the parent's benches. Not everything is used here.
#[allow(dead_code)]
#[path = "../../common"]
mod common {
    pub(crate) mod bare;
    pub(crate) mod pods;
    pub(crate) mod replay;
}

/// What is shared with the example of that name.
#[allow(dead_code)]
#[path = "../../../examples/measure/src"]
mod measure {
    pub(crate) mod count;
    pub(crate) mod latency;
    pub(crate) mod meter;
    pub(crate) mod own;
    pub(crate) mod report;
    pub(crate) mod run;
    pub(crate) mod types;
}

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use cases::{CASES, Case, Task};
use common::replay::{self, Replay};
use lexopt::prelude::*;
use measure::report::Report;
use table::Figures;

const USAGE: &str = "\
usage: peers [options]
  --only TEXT       cases whose names contain it; kube-rs typed always runs, for the ratios
  --pods N          objects of the first list [20000]
  --events N        events as fast as they are read [50000]
  --paced N         events at a thousand a second, for latencies [10000]
  --runs N          figures are medians of so many runs, the cases in turn [3]
  --quick           2000 Pods, 5000 events, 1000 paced, one run
  --list            the names of the cases";

/// Events a second, where latencies are measured.
const RATE: usize = 1000;

struct Settings {
    only: String,
    pods: usize,
    events: usize,
    paced: usize,
    runs: usize,
}

fn main() -> ExitCode {
    if replay::serve_if_asked() {
        return ExitCode::SUCCESS;
    }
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), Box<dyn Error>> {
    let mut settings = Settings {
        only: String::new(),
        pods: 20_000,
        events: 50_000,
        paced: 10_000,
        runs: 3,
    };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            // A child: the name of its case, the server, how many events it waits for, and whether it looks when
            // they were sent.
            Long("case") => {
                let case = case(&arguments.value()?.string()?)?;
                let url = arguments.value()?.string()?;
                let (events, latency) = (arguments.value()?.parse()?, arguments.value()?.parse()?);
                let report = (case.run)(Task {
                    url: &url,
                    events,
                    latency,
                })?;
                println!("{}", serde_json::to_string(&report)?);
                return Ok(());
            }
            Long("only") => settings.only = arguments.value()?.string()?,
            Long("pods") => settings.pods = arguments.value()?.parse()?,
            Long("events") => settings.events = arguments.value()?.parse()?,
            Long("paced") => settings.paced = arguments.value()?.parse()?,
            Long("runs") => settings.runs = arguments.value()?.parse::<usize>()?.max(1),
            Long("quick") => {
                settings = Settings {
                    pods: 2000,
                    events: 5000,
                    paced: 1000,
                    runs: 1,
                    ..settings
                };
            }
            Long("list") => {
                CASES.iter().for_each(|case| println!("{}", case.name));
                return Ok(());
            }
            Short('h') | Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            // What `cargo bench` would pass on.
            Long("bench") => {}
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    compare(&settings)
}

fn case(name: &str) -> Result<&'static Case, String> {
    CASES
        .iter()
        .find(|case| case.name == name)
        .ok_or_else(|| format!("no such case: {name}"))
}

fn compare(settings: &Settings) -> Result<(), Box<dyn Error>> {
    let chosen = |case: &&Case| case.name == CASES[0].name || case.name.contains(&settings.only);
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    let mut server = Replay::spawn(settings.pods);
    let mut reports: Vec<Vec<(Report, Option<Report>)>> =
        cases.iter().map(|_| Vec::new()).collect();
    for run in 1..=settings.runs {
        for (case, reports) in cases.iter().zip(&mut reports) {
            eprintln!("run {run} of {}: {}", settings.runs, case.name);
            let saturated = child(case, &mut server, settings.events, 0)?;
            // A loop has no latency of its own: nothing comes between it and the socket.
            let paced = match case.bare {
                true => None,
                false => Some(child(case, &mut server, settings.paced, RATE)?),
            };
            reports.push((saturated, paced));
        }
    }
    let figures = cases
        .iter()
        .zip(&reports)
        .map(|(case, reports)| Figures::new(case.name, case.bare, reports));
    table::print(&figures.collect::<Vec<_>>());
    Ok(())
}

/// Runs one case in a process of its own: once it says that it has synced, events follow.
fn child(
    case: &Case,
    server: &mut Replay,
    events: usize,
    rate: usize,
) -> Result<Report, Box<dyn Error>> {
    server.reset();
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "--case",
            case.name,
            &server.url,
            &events.to_string(),
            &(rate > 0).to_string(),
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    if lines.next().transpose()?.as_deref() == Some(SYNCED) {
        server.go(events, rate);
    }
    let report = lines.next().transpose()?;
    if !child.wait()?.success() {
        return Err(format!("{} failed", case.name).into());
    }
    Ok(serde_json::from_str(&report.ok_or("it has not reported")?)?)
}

/// What a child says when the events may come.
const SYNCED: &str = "synced";
