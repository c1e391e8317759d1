//! The log of a test process. A process has only one logger, so all tests of a binary share it.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The logger panics on a line that contains this text.
pub(crate) const LOGGER_PANICS: &str = "the logger panics";

/// The longest wait for a line.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    targets: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer")
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = format!("{} {}", record.level(), record.args());
        assert!(
            !line.contains(LOGGER_PANICS),
            "logger failure requested by a test"
        );
        self.targets.lock().insert(record.target().to_owned());
        self.lines.lock().push(line);
        self.changed.notify_all();
    }

    fn flush(&self) {}
}

fn log() -> &'static Log {
    static LOG: OnceLock<&'static Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log: &'static Log = Box::leak(Box::default());
        log::set_logger(log).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        log
    })
}

fn has(line: &str, parts: &[&str]) -> bool {
    parts.iter().all(|part| line.contains(part))
}

/// Starts to collect the crate's log lines. Later calls do nothing.
pub(crate) fn start() {
    log();
}

/// Returns the lines so far that contain all of `parts`, each as `LEVEL message`.
pub(crate) fn lines_with(parts: &[&str]) -> Vec<String> {
    let lines = log().lines.lock();
    lines
        .iter()
        .filter(|line| has(line, parts))
        .cloned()
        .collect()
}

/// Returns the targets of all lines so far.
#[allow(dead_code, reason = "unused in some test binaries")]
pub(crate) fn targets() -> BTreeSet<String> {
    log().targets.lock().clone()
}

/// Waits for a line that contains all of `parts`, and returns the first one.
#[allow(dead_code, reason = "unused in some test binaries")]
#[track_caller]
pub(crate) fn wait_for(parts: &[&str]) -> String {
    let deadline = Instant::now() + WAIT_LIMIT;
    let log = log();
    let mut lines = log.lines.lock();
    let mut seen = 0;
    loop {
        if let Some(line) = lines[seen..].iter().find(|line| has(line, parts)) {
            return line.clone();
        }
        seen = lines.len();
        let result = log.changed.wait_until(&mut lines, deadline);
        assert!(!result.timed_out(), "{parts:?} not in {lines:#?}");
    }
}
