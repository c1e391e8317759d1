//! Replays recorded results of the real client-go, and of controller-runtime for the priority queue,
//! from every `*.jsonl` file in `tests/traces`.
//!
//! The file name starts with the name of its suite: `store.jsonl`, `store-seed7.jsonl`. A trace is
//! replayed up to the first step whose quirks include a rule of DEVIATIONS.md.

mod delta_fifo;
mod deltas;
#[cfg(feature = "client")]
mod events_recorder;
mod expiration_cache;
mod fifo;
mod filtering_handler;
mod informer;
mod keys;
mod known;
mod leader_election;
mod object;
mod priority_queue;
mod rate_limiter;
mod real_fifo;
mod reflector_wire;
mod store;
mod thread_safe_store;
mod workqueue;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A structure under test, built from the config of a trace.
trait Replay {
    /// Receives all steps of the trace, for subjects that cannot run step by step.
    fn begin(&mut self, _steps: &[Value], _deviations: &BTreeSet<String>) {}

    /// Returns a rule of DEVIATIONS.md that this step depends on but the trace does not name.
    fn deviates(&self, _step: &Value) -> Option<&'static str> {
        None
    }

    /// Performs a step and returns the results that the trace compares.
    fn step(&mut self, op: &str, step: &Value) -> Value;

    /// Returns the part of `want` that is compared. It may include fields of [`info`](Suite::info).
    fn checked(&self, want: &Value) -> Value {
        want.clone()
    }
}

struct Suite {
    name: &'static str,
    build: fn(config: &Value) -> Box<dyn Replay>,
    /// Fields that are not compared.
    info: &'static [&'static str],
    /// The minimum percentage of the suite's steps that must be replayed.
    floor: f64,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "delta_fifo",
        build: delta_fifo::build,
        info: &["done_during"],
        floor: 100.0,
    },
    #[cfg(feature = "client")]
    Suite {
        name: "events_recorder",
        build: events_recorder::build,
        info: &[],
        floor: 85.0,
    },
    Suite {
        name: "expiration_cache",
        build: expiration_cache::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "fifo",
        build: fifo::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "filtering_handler",
        build: filtering_handler::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "informer",
        build: informer::build,
        info: &[],
        floor: 80.0,
    },
    Suite {
        name: "keys",
        build: keys::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "leader_election",
        build: leader_election::build,
        info: &[],
        floor: 60.0,
    },
    Suite {
        name: "priority_queue",
        build: priority_queue::build,
        info: &[],
        floor: 93.0,
    },
    Suite {
        name: "rate_limiter",
        build: rate_limiter::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "real_fifo",
        build: real_fifo::build,
        info: &["locked_during"],
        floor: 95.0,
    },
    Suite {
        name: "reflector_wire",
        build: reflector_wire::build,
        info: &[],
        floor: 55.0,
    },
    Suite {
        name: "store",
        build: store::build,
        info: &[],
        floor: 90.0,
    },
    Suite {
        name: "thread_safe_store",
        build: thread_safe_store::build,
        info: &[],
        floor: 99.0,
    },
    Suite {
        name: "workqueue",
        build: workqueue::build,
        info: &[],
        floor: 95.0,
    },
];

#[derive(Default)]
struct Tally {
    traces: usize,
    steps: usize,
    replayed: usize,
    cut: BTreeMap<String, usize>,
    failed: Vec<String>,
}

#[test]
fn client_go_traces_replay_up_to_listed_deviations() {
    let deviations = deviations();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for (suite, path) in files() {
        let tally = tallies.entry(suite.name).or_default();
        for trace in traces(&path) {
            replay_trace(suite, &trace, &deviations, tally);
        }
    }
    let mut bad = Vec::new();
    for (name, tally) in &tallies {
        let share = 100.0 * tally.replayed as f64 / tally.steps as f64;
        let cut: Vec<String> = tally
            .cut
            .iter()
            .map(|(rule, times)| format!("{rule} {times}"))
            .collect();
        println!(
            "{name}: {} traces, {} of {} steps replayed ({share:.1} %), ended early: {}",
            tally.traces,
            tally.replayed,
            tally.steps,
            if cut.is_empty() {
                "none".to_owned()
            } else {
                cut.join(", ")
            }
        );
        bad.extend(tally.failed.iter().take(5).cloned());
        if tally.failed.len() > 5 {
            bad.push(format!(
                "{name}: {} traces failed in total",
                tally.failed.len()
            ));
        }
        let floor = SUITES
            .iter()
            .find(|suite| suite.name == *name)
            .unwrap()
            .floor;
        if share < floor {
            bad.push(format!(
                "{name}: only {share:.1} % replayed, the minimum is {floor} %"
            ));
        }
    }
    assert!(!tallies.is_empty(), "no traces");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all files, each with its suite.
fn files() -> Vec<(&'static Suite, PathBuf)> {
    let mut files: Vec<_> = fs::read_dir(root().join("tests/traces"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .filter(|path| cfg!(feature = "client") || !path.ends_with("events_recorder.jsonl"))
        .collect();
    files.sort();
    let suite = |path: &Path| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        suite_of(stem).unwrap_or_else(|| panic!("{stem}: unknown suite"))
    };
    files.into_iter().map(|path| (suite(&path), path)).collect()
}

fn traces(path: &Path) -> Vec<Value> {
    let file = fs::read_to_string(path).unwrap();
    let lines = file.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn replay_trace(suite: &Suite, trace: &Value, deviations: &BTreeSet<String>, tally: &mut Tally) {
    let id = trace["id"].as_str().unwrap();
    let steps = trace["steps"].as_array().unwrap();
    tally.traces += 1;
    tally.steps += steps.len();
    let mut subject = (suite.build)(&trace["config"]);
    subject.begin(steps, deviations);
    for (number, step) in steps.iter().enumerate() {
        let quirks = step["quirks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        if let Some(rule) = subject
            .deviates(step)
            .into_iter()
            .chain(quirks)
            .find(|rule| deviations.contains(*rule))
        {
            *tally.cut.entry(rule.to_owned()).or_default() += 1;
            return;
        }
        let got = subject.step(step["op"].as_str().unwrap(), step);
        let want = subject.checked(&step["want"]);
        let (got, want) = (without(&got, suite.info), without(&want, suite.info));
        if got != want {
            tally
                .failed
                .push(format!("{id}, step {number}: {step}\n  got {got}"));
            return;
        }
        tally.replayed += 1;
    }
}

fn without(value: &Value, fields: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.retain(|field, _| !fields.contains(&field.as_str()));
    }
    value
}

fn suite_of(stem: &str) -> Option<&'static Suite> {
    let belongs = |suite: &&Suite| match stem.strip_prefix(suite.name).map(str::as_bytes) {
        Some([] | [b'-' | b'.', ..]) => true,
        Some([b'_', digit, ..]) => digit.is_ascii_digit(),
        _ => false,
    };
    SUITES.iter().find(belongs)
}

/// Returns the ids in the first column of the table in DEVIATIONS.md.
fn deviations() -> BTreeSet<String> {
    let document = fs::read_to_string(root().join("DEVIATIONS.md")).unwrap();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| "));
    let ids = rows.filter_map(|row| row.split(" |").next());
    ids.filter(|id| id.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(str::to_owned)
        .collect()
}

#[test]
fn file_name_prefix_selects_the_suite() {
    let name = |stem| suite_of(stem).map(|suite| suite.name);
    assert_eq!(name("store"), Some("store"));
    assert_eq!(name("thread_safe_store-seed2"), Some("thread_safe_store"));
    assert_eq!(name("delta_fifo_3"), Some("delta_fifo"));
    assert_eq!(name("store_of_things"), None);
}
