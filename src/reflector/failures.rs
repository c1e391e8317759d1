use std::collections::{BTreeMap, HashSet};

use super::machine::Report;

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
    /// Something went wrong; it is logged, unless the user's own handler is told.
    pub(super) fn failed(&mut self, name: &str, report: &Report, is_handled: bool) {
        let error = report.error.to_string();
        let is_new = if report.error.is_gone() {
            // Nothing to worry about: everything is listed anew.
            false
        } else if report.unreadable {
            self.unreadable.len() < UNREADABLE && self.unreadable.insert(error.clone())
        } else {
            let is_known = self.since_well.contains_key(&error);
            let has_room = self.since_well.len() < DIFFERENT;
            if is_known || has_room {
                *self.since_well.entry(error.clone()).or_default() += 1;
            }
            has_room && !is_known
        };
        match is_new {
            _ if is_handled => {}
            true => log::warn!("{}", named(name, &error)),
            false => log::debug!("{}", named(name, &error)),
        }
    }

    /// It works: what went wrong before is over.
    pub(super) fn well(&mut self, name: impl FnOnce() -> String) {
        if self.since_well.is_empty() {
            return;
        }
        let failures = std::mem::take(&mut self.since_well);
        let list = failures.iter().map(|(error, times)| format!("{times} × {error}")).collect::<Vec<_>>();
        log::info!("{}: well again after {}", name(), list.join("; "));
    }

    /// Every object could be read.
    pub(super) fn complete(&mut self) {
        self.unreadable.clear();
    }
}

/// An error with the name of whom it concerns, once: that of a request says what was listed or watched, which
/// is what a reflector is called that was not given a name.
fn named(name: &str, error: &str) -> String {
    let what = error.strip_prefix("list ").or_else(|| error.strip_prefix("watch "));
    match what.and_then(|what| what.strip_prefix(name)) {
        Some(rest) if rest.starts_with(": ") => error.to_owned(),
        _ => format!("{name}: {error}"),
    }
}
