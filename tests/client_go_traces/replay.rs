//! Replays traces: recorded results of the Go libraries.
//!
//! The file name starts with the name of its suite: `store.jsonl`, `store-seed7.jsonl`. A trace is
//! replayed up to the first step whose quirks include a rule of `tests/data/deviations.tsv`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A structure under test, built from the config of a trace.
pub(crate) trait Replay {
    /// Receives all steps of the trace, for subjects that cannot run step by step.
    fn begin(&mut self, _steps: &[Value], _deviations: &BTreeSet<String>) {}

    /// Returns a listed deviation that this step depends on but the trace does not name.
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

pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) build: fn(config: &Value) -> Box<dyn Replay>,
    /// Fields that are not compared.
    pub(crate) info: &'static [&'static str],
    /// The minimum percentage of the suite's steps that must be replayed.
    pub(crate) floor: f64,
}

#[derive(Default)]
struct Tally {
    traces: usize,
    steps: usize,
    replayed: usize,
    cut: BTreeMap<String, usize>,
    failed: Vec<String>,
}

/// Replays all traces in a folder. `root` is that of the repository.
pub(crate) fn replay(root: &str, folder: &str, suites: &[Suite]) {
    let root = Path::new(root);
    let deviations = deviations(root);
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for (suite, path) in files(&root.join(folder), suites) {
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
        let floor = suites
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

/// Returns all files, each with its suite.
pub(crate) fn files<'a>(folder: &Path, suites: &'a [Suite]) -> Vec<(&'a Suite, PathBuf)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    files.sort();
    let suite = |path: &Path| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        suite_of(suites, stem).unwrap_or_else(|| panic!("{stem}: unknown suite"))
    };
    files.into_iter().map(|path| (suite(&path), path)).collect()
}

pub(crate) fn traces(path: &Path) -> Vec<Value> {
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

pub(crate) fn suite_of<'a>(suites: &'a [Suite], stem: &str) -> Option<&'a Suite> {
    let belongs = |suite: &&Suite| match stem.strip_prefix(suite.name).map(str::as_bytes) {
        Some([] | [b'-' | b'.', ..]) => true,
        Some([b'_', digit, ..]) => digit.is_ascii_digit(),
        _ => false,
    };
    suites.iter().find(belongs)
}

/// Returns the rules from which this crate differs.
pub(crate) fn deviations(root: &Path) -> BTreeSet<String> {
    let table = fs::read_to_string(root.join("tests/data/deviations.tsv")).unwrap();
    let rows = table.lines().filter_map(|row| row.split_once('\t'));
    rows.map(|(rule, _)| rule.to_owned()).collect()
}
