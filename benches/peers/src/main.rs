//! The cost of an informer of Pods with kube-rs and with this crate. Each case runs in its own
//! process, in turn, against one server that sends the same bytes.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml
//! ```

mod case;
mod chart;
mod peer;
mod run;
mod structs;
mod table;

/// Shared with the benches of the crate. Not everything is used here.
#[allow(dead_code)]
#[path = "../../common"]
mod common {
    pub(crate) mod bare;
    pub(crate) mod pods;
    pub(crate) mod replay;
}

/// Shared with the example `measure`.
#[allow(dead_code)]
#[path = "../../../examples/measure/src"]
mod measure {
    pub(crate) mod count;
    pub(crate) mod custom;
    pub(crate) mod latency;
    pub(crate) mod meter;
    pub(crate) mod report;
    pub(crate) mod run;
    pub(crate) mod types;
}

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use case::{Case, ListMethod, ManagedFields, Program, SYNCED, Task};
use common::replay::{self, Replay};
use lexopt::prelude::*;
use measure::report::Report;

const USAGE: &str = "\
usage: peers [options]
  --part PART       table, paced, handlers, large or hot; repeat it for several parts [all]
  --only TEXT       only cases whose names contain TEXT, and kube-rs in the same configurations
  --pods N          the number of objects in the first list [20000]
  --events N        the number of events, sent at full speed [50000]
  --rate N          events a second in the part `paced`; repeat it for several rates [10, 100, 1000]
  --runs N          the number of runs; figures are medians, and the cases run in turn [3]
  --quick           2000 Pods, 5000 events, one run
  --charts FOLDER   the folder in which the part `table` writes cpu.svg and memory.svg
  --list            print the names of the cases";

/// The duration of each rate of the part `paced`.
const PACED_SECONDS: usize = 5;

struct Settings {
    parts: Vec<String>,
    only: String,
    /// The events per second in the part `paced`.
    rates: Vec<usize>,
    pods: usize,
    events: usize,
    runs: usize,
    charts: Option<PathBuf>,
}

fn main() -> ExitCode {
    if replay::serve_if_child() {
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
        parts: Vec::new(),
        only: String::new(),
        rates: Vec::new(),
        pods: 20_000,
        events: 50_000,
        runs: 3,
        charts: None,
    };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            // A child process. The values are the case, the URL of the server, the numbers of
            // events and handlers, and whether handlers read the send time of events.
            Long("case") => {
                let name = arguments.value()?.string()?;
                let case = Case::all()
                    .into_iter()
                    .find(|case| case.to_string() == name);
                let url = arguments.value()?.string()?;
                let report = case.ok_or("unknown case")?.run(Task {
                    url: &url,
                    events: arguments.value()?.parse()?,
                    handlers: arguments.value()?.parse()?,
                    latency: arguments.value()?.parse()?,
                })?;
                println!("{}", serde_json::to_string(&report)?);
                return Ok(());
            }
            Long("part") => settings.parts.push(arguments.value()?.string()?),
            Long("only") => settings.only = arguments.value()?.string()?,
            Long("rate") => settings.rates.push(arguments.value()?.parse()?),
            Long("pods") => settings.pods = arguments.value()?.parse()?,
            Long("events") => settings.events = arguments.value()?.parse()?,
            Long("runs") => settings.runs = arguments.value()?.parse::<usize>()?.max(1),
            Long("charts") => settings.charts = Some(arguments.value()?.into()),
            Long("quick") => {
                settings = Settings {
                    pods: 2000,
                    events: 5000,
                    runs: 1,
                    ..settings
                };
            }
            Long("list") => {
                Case::all().iter().for_each(|case| println!("{case}"));
                return Ok(());
            }
            Short('h') | Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            // `cargo bench` passes this argument.
            Long("bench") => {}
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    compare(&settings)
}

fn compare(settings: &Settings) -> Result<(), Box<dyn Error>> {
    let all = Case::all();
    let is_named = |case: &Case| case.to_string().contains(&settings.only);
    let is_reference = |case: &Case| {
        all.iter()
            .any(|other| is_named(other) && other.reference() == *case)
    };
    let cases: Vec<Case> = all
        .iter()
        .copied()
        .filter(|case| is_named(case) || is_reference(case))
        .collect();
    // After the initial list, all list methods behave the same, so the cases of one method are
    // enough.
    let few: Vec<Case> = cases
        .iter()
        .copied()
        .filter(|case| {
            matches!(
                case.program,
                Program::KubeRs | Program::Ours | Program::OursOneThread
            ) && case.listing == ListMethod::WatchList
                && case.managed_fields == ManagedFields::Dropped
        })
        .collect();
    // A case with one thread has only one handler.
    let shared: Vec<Case> = few
        .iter()
        .copied()
        .filter(|case| case.program != Program::OursOneThread)
        .collect();
    let is_selected = |part: &str| {
        settings.parts.is_empty() || settings.parts.iter().any(|selected| selected == part)
    };
    describe_machine(settings);
    let mut bench = Bench {
        server: Replay::spawn(settings.pods),
        runs: settings.runs,
    };
    let saturated = Load {
        events: settings.events,
        rate: 0,
        handlers: 1,
        is_hot: false,
    };
    if is_selected("table") {
        let reports = bench.measure(&cases, saturated)?;
        table::print_all(&reports);
        if let Some(folder) = &settings.charts {
            let some: Vec<_> = reports
                .into_iter()
                .filter(|(case, _)| shared.contains(case))
                .collect();
            chart::write(folder, &some)?;
        }
    }
    if is_selected("paced") {
        let rates = match &settings.rates[..] {
            [] => &[10, 100, 1000],
            rates => rates,
        };
        for &rate in rates {
            let paced = Load {
                events: rate * PACED_SECONDS,
                rate,
                ..saturated
            };
            table::print_events(
                &format!("{rate} events a second"),
                &bench.measure(&few, paced)?,
            );
        }
    }
    if is_selected("handlers") {
        let load = Load {
            handlers: 16,
            ..saturated
        };
        table::print_events(
            "16 handlers (kube-rs: 16 calls per object of the stream)",
            &bench.measure(&shared, load)?,
        );
    }
    if is_selected("hot") {
        let load = Load {
            is_hot: true,
            ..saturated
        };
        table::print_events("all events of one object", &bench.measure(&few, load)?);
    }
    if is_selected("large") {
        let pods = 5 * settings.pods;
        bench.server = Replay::spawn(pods);
        println!("\n{pods} Pods");
        table::print_all(&bench.measure(&few, saturated)?);
    }
    Ok(())
}

fn describe_machine(settings: &Settings) {
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!(
        "{} Pods, {} events, medians of {} runs; {processors} CPUs ({}), {} of memory, Linux {}, load {}",
        settings.pods,
        settings.events,
        settings.runs,
        line("/proc/cpuinfo", "model name"),
        line("/proc/meminfo", "MemTotal"),
        kernel.trim(),
        load.trim(),
    );
}

/// The load after the first list.
#[derive(Clone, Copy)]
struct Load {
    events: usize,
    /// The events per second. 0 means as fast as they are read.
    rate: usize,
    handlers: usize,
    /// Whether all events are of one object.
    is_hot: bool,
}

struct Bench {
    server: Replay,
    runs: usize,
}

/// One report of each run, per case.
type CaseReports = Vec<(Case, Vec<Report>)>;

impl Bench {
    /// Runs the cases in turn, so that changes of the machine affect all of them.
    fn measure(&mut self, cases: &[Case], load: Load) -> Result<CaseReports, Box<dyn Error>> {
        let mut reports: CaseReports = cases.iter().map(|case| (*case, Vec::new())).collect();
        for run in 1..=self.runs {
            for (case, reports) in &mut reports {
                eprintln!("run {run} of {}: {case}", self.runs);
                reports.push(self.once(*case, load)?);
            }
        }
        Ok(reports)
    }

    /// Runs one case in its own process. The events start after the sync.
    fn once(&mut self, case: Case, load: Load) -> Result<Report, Box<dyn Error>> {
        let Load {
            events,
            rate,
            handlers,
            is_hot,
        } = load;
        self.server.reset();
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "--case",
                &case.to_string(),
                &self.server.url,
                &events.to_string(),
                &handlers.to_string(),
                &(rate > 0).to_string(),
            ])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        if lines.next().transpose()?.as_deref() == Some(SYNCED) {
            if is_hot {
                self.server.send_hot_events(events);
            } else {
                self.server.send_events(events, rate);
            }
        }
        let report = lines.next().transpose()?;
        if !child.wait()?.success() {
            return Err(format!("{case} failed").into());
        }
        Ok(serde_json::from_str(
            &report.ok_or("the process printed no report")?,
        )?)
    }
}
