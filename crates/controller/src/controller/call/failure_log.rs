//! Which failures of a controller are lines in the log.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_informer::object::Key;

/// The maximum number of lines in one [`PERIOD`].
const MAX_LINES: usize = 32;

const PERIOD: Duration = Duration::from_secs(10 * 60);

/// The time between the first two lines about one key. It doubles with each line.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Limits the lines about failures, so that an outage does not flood the log.
///
/// The first failure of a key is a line, and so are later ones at growing intervals, until the key
/// recovers. If many keys fail, only the first lines of each period are written. A later line has
/// the number of the others.
///
/// This is plain data for use under a lock: no method blocks or calls user code.
#[derive(Default)]
pub(crate) struct FailureLog {
    /// The failing keys that have a line about this topic.
    keys: BTreeMap<(Key, Topic), Repeat>,
    /// `None` before the first line.
    period_end: Option<Instant>,
    /// The number of lines in this period.
    lines: usize,
    /// The number of failures that should have been lines, and that no line has reported.
    hidden: u64,
    /// Whether a recovery in this period has reported hidden failures.
    has_reported: bool,
}

/// What a line is about. A line about one topic does not delay the first one about another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Calls,
    OwnWrites,
}

struct Repeat {
    next: Instant,
    pause: Duration,
}

/// The end of a line.
pub(crate) struct Note {
    hidden: u64,
    is_last: bool,
}

/// What the log should have about the success of a key.
#[derive(Default)]
pub(crate) struct Recovery {
    /// Whether the log has a failure of the key.
    pub(crate) is_logged: bool,
    /// The number of hidden failures, if this is the line that reports them.
    pub(crate) hidden: u64,
}

impl FailureLog {
    /// Returns the end of the line if a failure of a key is one. A failure that is not retried is
    /// one without regard to the intervals.
    pub(crate) fn failed(
        &mut self,
        key: &Key,
        topic: Topic,
        is_retried: bool,
        now: Instant,
    ) -> Option<Note> {
        let id = (Key::clone(key), topic);
        let note = self.line(&id, is_retried, now)?;
        let pause = match self.keys.get(&id) {
            Some(last) => (last.pause * 2).min(MAX_PAUSE),
            None => FIRST_PAUSE,
        };
        let next = now.checked_add(pause).unwrap_or(now);
        self.keys.insert(id, Repeat { next, pause });
        Some(note)
    }

    /// Like [`failed`](Self::failed), for a failure that another one of the same call follows.
    pub(crate) fn line(
        &mut self,
        id: &(Key, Topic),
        is_retried: bool,
        now: Instant,
    ) -> Option<Note> {
        if is_retried && self.keys.get(id).is_some_and(|last| now < last.next) {
            return None;
        }
        if self.period_end.is_none_or(|end| end <= now) {
            self.period_end = now.checked_add(PERIOD);
            self.lines = 0;
            self.has_reported = false;
        }
        if self.lines == MAX_LINES {
            self.hidden += 1;
            return None;
        }
        self.lines += 1;
        Some(Note {
            hidden: std::mem::take(&mut self.hidden),
            is_last: self.lines == MAX_LINES,
        })
    }

    /// Forgets the failures of a key. `is_last` is true if no other key fails.
    pub(crate) fn recovered(&mut self, key: &Key, is_last: bool) -> Recovery {
        let topics = [Topic::Calls, Topic::OwnWrites];
        let removed = topics.map(|topic| self.keys.remove(&(Key::clone(key), topic)));
        let is_logged = removed.iter().any(Option::is_some);
        let reports = is_last && self.hidden > 0 && !self.has_reported;
        self.has_reported |= reports;
        Recovery {
            is_logged,
            hidden: if reports {
                std::mem::take(&mut self.hidden)
            } else {
                0
            },
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.hidden > 0 {
            write!(f, "; earlier failures at level debug: {}", self.hidden)?;
        }
        if self.is_last {
            let minutes = PERIOD.as_secs() / 60;
            write!(
                f,
                "; for up to {minutes} minutes, further failures of this controller are at level debug"
            )?;
        }
        Ok(())
    }
}
