//! Keeps the last log lines of each informer, or prints all lines of a process.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use log::{LevelFilter, Log, Metadata, Record};

/// The number of lines kept for each informer.
const KEPT: usize = 40;

struct Logs {
    start: Instant,
    lines: Mutex<BTreeMap<String, VecDeque<String>>>,
}

static LOGS: OnceLock<Logs> = OnceLock::new();

pub(crate) fn install(start: Instant) {
    let logs = LOGS.get_or_init(|| Logs {
        start,
        lines: Mutex::default(),
    });
    log::set_logger(logs).expect("the first logger");
    log::set_max_level(LevelFilter::Debug);
}

/// Prints all log lines of this process.
pub(crate) fn print(level: LevelFilter) {
    log::set_logger(&Printer).expect("the first logger");
    log::set_max_level(level);
}

/// Returns the last lines of the informer `name`.
pub(crate) fn of(name: &str) -> Vec<String> {
    let Some(logs) = LOGS.get() else {
        return Vec::new();
    };
    let lines = logs.lines.lock().unwrap_or_else(PoisonError::into_inner);
    lines.get(name).into_iter().flatten().cloned().collect()
}

pub(crate) fn forget(name: &str) {
    if let Some(logs) = LOGS.get() {
        logs.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

impl Log for Logs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let message = record.args().to_string();
        let Some(name) = message
            .find("informer-")
            .and_then(|at| message.get(at..at + 12))
        else {
            return;
        };
        let at = self.start.elapsed().as_secs_f64();
        let line = format!("{at:9.3} {} {message}", record.level());
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines.entry(name.to_owned()).or_default();
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn flush(&self) {}
}

/// Writes log lines to the standard output.
struct Printer;

impl Log for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer") || metadata.target().starts_with("chaos")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let mut output = std::io::stdout().lock();
            let _ = writeln!(output, "{} {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}
