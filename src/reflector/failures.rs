use std::collections::{BTreeMap, HashSet};

use log::Level;

use super::protocol::{Report, ReportKind};

/// How many different failures are told apart between two recoveries. More are a server that says something
/// new each time.
const DIFFERENT: usize = 32;

/// How many unreadable objects are told apart.
const UNREADABLE: usize = 1000;

/// What goes wrong, and how much of it is said: a failure that repeats is logged when it first comes, and its
/// number when it is over; an object that can't be read is logged once, until a list comes that is complete.
/// Everything else is for the level `debug`.
#[derive(Default)]
pub(super) struct Failures {
    /// Since the reflector was well, by their text.
    since_well: BTreeMap<String, u64>,
    unreadable: HashSet<String>,
}

impl Failures {
    /// Records a failure, whose text is `error`, and returns the level at which to log it.
    pub(super) fn failed(&mut self, report: &Report, error: &str) -> Level {
        let is_new = if report.error.is_gone() || report.kind == ReportKind::Preliminary {
            // A list repairs it, and fails with a report of its own if it can't.
            false
        } else if report.kind == ReportKind::Object {
            self.unreadable.len() < UNREADABLE && self.unreadable.insert(error.to_owned())
        } else {
            let is_known = self.since_well.contains_key(error);
            let has_room = self.since_well.len() < DIFFERENT;
            if is_known || has_room {
                *self.since_well.entry(error.to_owned()).or_default() += 1;
            }
            has_room && !is_known
        };
        if is_new { Level::Warn } else { Level::Debug }
    }

    /// Forgets the failures when the reflector has recovered, and returns their list if there were any.
    pub(super) fn well(&mut self) -> Option<String> {
        let failures = std::mem::take(&mut self.since_well);
        let list = failures
            .iter()
            .map(|(error, times)| format!("{times} × {error}"))
            .collect::<Vec<_>>();
        (!list.is_empty()).then(|| list.join("; "))
    }

    /// Every object could be read.
    pub(super) fn complete(&mut self) {
        self.unreadable.clear();
    }
}

/// An error with the name of whom it concerns, once: that of a request says what was listed or watched, which
/// is what a reflector is called that was not given a name.
pub(super) fn named(name: &str, error: &str) -> String {
    let what = error
        .strip_prefix("list ")
        .or_else(|| error.strip_prefix("watch "));
    match what.and_then(|what| what.strip_prefix(name)) {
        Some(rest) if rest.starts_with(": ") => error.to_owned(),
        _ => format!("{name}: {error}"),
    }
}
