//! The cost of an informer with other allocators and compiler profiles. The program is built once
//! for each variant. The variants run in turn against the same server. It runs only on Linux.
//!
//! ```text
//! cargo run --release --manifest-path benches/tuning/Cargo.toml                # builds all variants; 25 minutes
//! cargo run --release --manifest-path benches/tuning/Cargo.toml -- 3 mimalloc  # 3 runs of one variant and of the first
//! ```

/// Shared with the benches of the crate. Not everything is used here.
#[allow(dead_code)]
#[path = "../../common"]
mod common {
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
}

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::replay::{self, Replay};
use k8s_informer::informer::Source;
use k8s_informer::reflector::ReflectorStatus;
use k8s_informer::{Config, Stop};
use k8s_openapi::api::core::v1::Pod;
use measure::custom;
use measure::report::Report;
use measure::run::{ProgressObserver, Run, Settings};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "tikv-jemallocator")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 10_000;
const EVENTS: u64 = 30_000;
const TYPES: [&str; 2] = ["k8s-openapi", "custom"];

/// The line that a child prints when it waits for events.
const SYNCED: &str = "synced";

struct Variant {
    name: &'static str,
    /// The arguments of `cargo build`.
    build: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const VARIANTS: [Variant; 9] = [
    Variant {
        name: "release",
        build: &["--release"],
        environment: &[],
    },
    Variant {
        name: "one arena",
        build: &["--release"],
        environment: &[("MALLOC_ARENA_MAX", "1")],
    },
    Variant {
        name: "one arena, thresholds",
        build: &["--release"],
        environment: &[
            ("MALLOC_ARENA_MAX", "1"),
            ("MALLOC_MMAP_THRESHOLD_", "65536"),
            ("MALLOC_TRIM_THRESHOLD_", "65536"),
        ],
    },
    Variant {
        name: "jemalloc",
        build: &["--release", "--features", "tikv-jemallocator"],
        environment: &[],
    },
    Variant {
        name: "mimalloc",
        build: &["--release", "--features", "mimalloc"],
        environment: &[],
    },
    Variant {
        name: "fat LTO",
        build: &["--profile", "lto"],
        environment: &[],
    },
    Variant {
        name: "panic = abort",
        build: &["--profile", "abort"],
        environment: &[],
    },
    Variant {
        name: "opt-level = s",
        build: &["--profile", "size"],
        environment: &[],
    },
    Variant {
        name: "all three",
        build: &["--profile", "smallest"],
        environment: &[],
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    if replay::serve_if_child() {
        return Ok(());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--case", object, url] = words[..] {
        return case(object, url);
    }
    let runs = words.first().map_or(Ok(10), |runs| runs.parse())?;
    let names = words.get(1..).unwrap_or_default();
    let is_named = |(at, variant): &(usize, &Variant)| {
        *at == 0 || names.is_empty() || names.contains(&variant.name)
    };
    // Start the server before a build overwrites this program, because the server runs the same
    // program.
    let mut server = Replay::spawn(PODS);
    let mut programs: Vec<(&Variant, PathBuf)> = Vec::new();
    for (_, variant) in VARIANTS.iter().enumerate().filter(is_named) {
        eprintln!("building {}", variant.name);
        let built = programs
            .iter()
            .find(|(other, _)| other.build == variant.build);
        let program = match built {
            Some((_, program)) => program.clone(),
            None => build(variant)?,
        };
        programs.push((variant, program));
    }
    for object in TYPES {
        compare(object, &programs, &mut server, runs)?;
    }
    Ok(())
}

/// Builds a variant. Returns a copy of the program that the next build does not overwrite.
fn build(variant: &Variant) -> Result<PathBuf, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cargo")
        .args([
            "build",
            "--quiet",
            "--message-format",
            "json",
            "--manifest-path",
        ])
        .arg(folder.join("Cargo.toml"))
        .args(variant.build)
        .stderr(Stdio::inherit())
        .output()?;
    let output = String::from_utf8(output.stdout)?;
    let messages = output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let program = messages
        .filter_map(|message: serde_json::Value| message["executable"].as_str().map(str::to_owned))
        .next_back()
        .ok_or_else(|| format!("cannot build {}", variant.name))?;
    let name = format!("tuning-{}", variant.name.replace([' ', ',', '='], "-"));
    let copy = folder.join("target").join(name);
    fs::copy(program, &copy)?;
    Ok(copy)
}

/// Runs the variants in turn, so that changes of the machine affect all of them. Prints a Markdown
/// table.
fn compare(
    object: &str,
    programs: &[(&Variant, PathBuf)],
    server: &mut Replay,
    runs: usize,
) -> Result<(), Box<dyn Error>> {
    let mut reports = vec![Vec::new(); programs.len()];
    for run in 1..=runs {
        for ((variant, program), reports) in programs.iter().zip(&mut reports) {
            eprintln!("{object}, run {run} of {runs}: {}", variant.name);
            reports.push(once(object, variant, program, server)?);
        }
    }
    println!(
        "\n| {object}, {PODS} Pods, {EVENTS} events, medians of {runs} runs | CPU us a Pod | CPU us an event | MiB synced | \
         MiB at the end | peak | binary MB |\n|---|--:|--:|--:|--:|--:|--:|"
    );
    for ((variant, program), reports) in programs.iter().zip(&reports) {
        let mib = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
        println!(
            "| {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} |",
            variant.name,
            median(reports, |report| report.sync_cpu_seconds * 1e6
                / PODS as f64),
            median(reports, |report| report.events_cpu_seconds * 1e6
                / EVENTS as f64),
            median(reports, |report| mib(report.resident_bytes)),
            median(reports, |report| mib(report.resident_after_bytes)),
            median(reports, |report| mib(report.peak_after_bytes)),
            fs::metadata(program)?.len() as f64 / 1e6,
        );
    }
    Ok(())
}

fn once(
    object: &str,
    variant: &Variant,
    program: &Path,
    server: &mut Replay,
) -> Result<Report, Box<dyn Error>> {
    server.reset();
    let mut child = Command::new(program)
        .args(["--case", object, &server.url])
        .envs(variant.environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("stdout is not piped")?;
    let mut lines = BufReader::new(output).lines();
    if lines.next().transpose()?.as_deref() == Some(SYNCED) {
        server.send_events(EVENTS as usize, 0);
    }
    let report = lines.next().transpose()?;
    if !child.wait()?.success() {
        return Err(format!("{} failed", variant.name).into());
    }
    Ok(serde_json::from_str(
        &report.ok_or("the process printed no report")?,
    )?)
}

fn median(reports: &[Report], figure: impl Fn(&Report) -> f64) -> f64 {
    let mut figures: Vec<f64> = reports.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Measures one informer in this child process.
fn case(object: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let settings = Settings {
        events: Some(EVENTS),
        latency: false,
        ..Settings::default()
    };
    let run = Run {
        config: Config::new(url),
        settings: &settings,
        stop: &Stop::never(),
        observer: &mut Parent,
    };
    let report = match object {
        "k8s-openapi" => run.measure::<Pod>(|_| Ok(Source::of()), |_| 0),
        _ => run.measure::<custom::Pod>(|_| Ok(Source::of()), |_| 0),
    }?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

struct Parent;

impl ProgressObserver for Parent {
    fn progress(&mut self, _: &ReflectorStatus) {}

    fn synced(&mut self, _: &Report) {
        println!("{SYNCED}");
    }
}
