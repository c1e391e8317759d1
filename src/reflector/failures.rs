use std::collections::{BTreeMap, HashSet};

use log::Level;

use super::protocol::ReportKind;
use crate::error::Error;

/// The maximum number of different failures that are counted between two recoveries. If there are
/// more, the server probably sends a new message each time.
const MAX_FAILURES: usize = 32;

/// The maximum number of unreadable objects that are remembered.
const MAX_UNREADABLE: usize = 1000;

/// Chooses the log level of failures, so that repeated failures do not flood the log.
///
/// A new failure is logged as a warning. Its repetitions are debug messages, and their number is
/// logged after the recovery. An unreadable object is logged as a warning once, and again only
/// after a complete list. Expired versions and rejected watch-lists are debug messages, because a
/// list follows. Failures beyond the limits above are debug messages as well.
#[derive(Default)]
pub(super) struct Failures {
    /// The failures since the last recovery, by their text.
    since_recovery: BTreeMap<String, u64>,
    unreadable: HashSet<String>,
}

impl Failures {
    /// Records a failure with this text, and returns its log level.
    pub(super) fn record(&mut self, kind: ReportKind, error: &Error, text: &str) -> Level {
        let is_new = if error.is_gone() || kind == ReportKind::Preliminary {
            // Log no warning: a list follows. If that list fails, it has its own report.
            false
        } else if kind == ReportKind::Object {
            self.unreadable.len() < MAX_UNREADABLE && self.unreadable.insert(text.to_owned())
        } else {
            let is_known = self.since_recovery.contains_key(text);
            let has_room = self.since_recovery.len() < MAX_FAILURES;
            if is_known || has_room {
                *self.since_recovery.entry(text.to_owned()).or_default() += 1;
            }
            has_room && !is_known
        };
        if is_new { Level::Warn } else { Level::Debug }
    }

    /// Forgets the failures after a recovery. Returns a summary if there were any.
    pub(super) fn take_summary(&mut self) -> Option<String> {
        let failures = std::mem::take(&mut self.since_recovery);
        let list = failures
            .iter()
            .map(|(error, times)| format!("{times} × {error}"))
            .collect::<Vec<_>>();
        (!list.is_empty()).then(|| list.join("; "))
    }

    /// Forgets the unreadable objects, after a list in which every object could be read.
    pub(super) fn forget_unreadable(&mut self) {
        self.unreadable.clear();
    }
}

/// Returns the text of an error with the name of the reflector in front, unless the text already
/// contains the name.
///
/// The error of a request contains the description of the listed or watched objects. A reflector
/// without a configured name uses the same description.
pub(super) fn named(name: &str, error: &str) -> String {
    let what = error
        .strip_prefix("list ")
        .or_else(|| error.strip_prefix("watch "));
    match what.and_then(|what| what.strip_prefix(name)) {
        Some(rest) if rest.starts_with(": ") => error.to_owned(),
        _ => format!("{name}: {error}"),
    }
}
