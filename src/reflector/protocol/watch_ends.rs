//! What follows when a watch, or a watch-list, can't go on (W3–W7, WL8–WL12).

use std::time::Duration;

use super::watch::{BOOKMARK_INTERVAL, BOOKMARK_SILENCE, WATCH_LIST_SILENCE};
use super::{AfterWait, Phase, Protocol, ReportKind};
use crate::error::Error;
use crate::wire::WATCH_SLACK;

/// A watch that ends within this time is followed by a list if it had no event (W5), and else counts as short (W4).
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);

/// This many consecutive short watches are opened again at once, and the next ones a second after each other.
const SHORT_WATCHES: u32 = 5;

/// After this many watch-lists that ended before their objects were complete, a list is requested (WL9).
const WATCH_LIST_TRIES: u32 = 3;

/// How long no watch-list is requested from a server that can't serve one.
const WATCH_LIST_PAUSE: Duration = Duration::from_secs(600);

/// How an open watch, or watch-list, came to its end.
pub(in crate::reflector) enum WatchEnd {
    /// The body ended, or the connection broke.
    Body(Result<(), Error>),
    /// Nothing came for too long.
    Silence,
    /// The server sent an ERROR event.
    Error(Error),
    /// A frame can't be decoded.
    Malformed(Error),
}

impl Protocol {
    /// The request for a watch failed.
    pub(super) fn watch_refused(&mut self, error: Error) {
        self.doubt_history(&error);
        let retry_after = error.retry_after();
        if is_waited_out(&error) {
            self.report(error, ReportKind::Other);
            return self.wait(retry_after, AfterWait::Watch);
        }
        self.suspect_version(&error);
        self.report(error, ReportKind::Request);
        self.wait(retry_after, AfterWait::Relist);
    }

    /// Lists the most recent state next if the server may have rejected the version.
    pub(super) fn suspect_version(&mut self, error: &Error) {
        self.version_unavailable |= self.is_at_a_version() && error.is_unacceptable_request();
    }

    fn is_at_a_version(&self) -> bool {
        !matches!(self.version.as_str(), "" | "0")
    }

    /// Decides what follows the end of an open watch: it resumes from the last version, at once or after a back-off, or
    /// the reflector lists again after a back-off (W3–W7).
    pub(in crate::reflector) fn watch_ended(&mut self, end: WatchEnd) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        if watch.is_initial {
            return self.watch_list_ended(end);
        }
        let is_very_short = watch.is_very_short(self.now);
        let is_due = watch.is_due(self.now);
        let silence = watch.silence;
        // A watch that has had an event works: the next failure is another one (L3).
        if watch.events > 0 {
            self.backoff.reset();
        }
        match end {
            WatchEnd::Body(result) => {
                self.body_ended(result, is_due, is_very_short);
                if is_very_short {
                    return self.wait(None, AfterWait::Relist);
                }
                self.backoff.reset();
                self.resume_unless_silent();
            }
            WatchEnd::Silence => {
                // The connection is half dead.
                self.history_is_known = false;
                let seconds = silence.as_secs();
                let error = Error::timeout(format!("nothing came for {seconds} s"));
                self.report(error, ReportKind::Other);
                self.resume_unless_silent();
            }
            WatchEnd::Error(error) => {
                self.doubt_history(&error);
                let retry_after = error.retry_after();
                let resume = error.is_internal_error() && self.internal_errors.retry(self.now);
                let wait = error.is_too_many_requests();
                self.suspect_version(&error);
                // 410 Gone among others: relists.
                self.report(error, ReportKind::Other);
                if resume {
                    self.resume_watch();
                } else if wait {
                    self.wait(retry_after, AfterWait::Watch);
                } else {
                    self.wait(retry_after, AfterWait::Relist);
                }
            }
            WatchEnd::Malformed(error) => {
                self.history_is_known = false;
                self.report(error, ReportKind::Other);
                if self.broken_at.as_ref() == Some(&self.version) {
                    self.broken_at = None;
                    return self.wait(None, AfterWait::Relist);
                }
                self.broken_at = Some(self.version.clone());
                self.resume_watch();
            }
        }
    }

    /// Decides what follows a watch-list whose initial events are not complete (WL8–WL12). Nothing does if it has been
    /// silent for a shorter time than [`WATCH_LIST_SILENCE`].
    fn watch_list_ended(&mut self, end: WatchEnd) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        let is_very_short = watch.is_very_short(self.now);
        let is_due = watch.is_due(self.now);
        let silence = watch.silence;
        match end {
            WatchEnd::Body(result) => {
                self.body_ended(result, is_due, is_very_short);
                if is_very_short {
                    return self.begin_list();
                }
                self.watch_list_unfinished();
            }
            WatchEnd::Silence => {
                self.history_is_known = false;
                let what = "nothing came, and no bookmark that ends the initial events";
                let seconds = silence.as_secs();
                let error = Error::timeout(format!("{what}, for {seconds} s"));
                self.report(error, ReportKind::Other);
                if silence >= WATCH_LIST_SILENCE {
                    self.pause_watch_list();
                    self.begin_list();
                }
            }
            WatchEnd::Error(error) => self.watch_list_failed(error),
            WatchEnd::Malformed(error) => self.reject_initial_events(error),
        }
    }

    /// Records the end of a body. A broken connection is an end like any other.
    fn body_ended(&mut self, result: Result<(), Error>, is_due: bool, is_very_short: bool) {
        self.history_is_known &= result.is_ok() && is_due;
        if let Err(error) = result {
            self.report(error, ReportKind::Other);
        }
        if is_very_short {
            self.report(very_short_watch(), ReportKind::Other);
        }
    }

    /// Resumes the watch, unless too many in a row were silent: then the connection is not the reason. A restored
    /// server has no events for a version in its future; a list shows that. Where nothing changes, each list that
    /// shows nothing doubles the time until the next one.
    fn resume_unless_silent(&mut self) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        self.total_silence += self.now.saturating_duration_since(watch.last_event);
        let limit = match self.settings.watch_idle_timeout {
            Some(timeout) => timeout.max(BOOKMARK_INTERVAL),
            None if self.bookmarks_come => BOOKMARK_SILENCE,
            // The longest that a watch may be silent.
            None => self
                .settings
                .min_watch_timeout
                .saturating_mul(2)
                .saturating_add(WATCH_SLACK),
        };
        if self.total_silence
            < limit
                .saturating_mul(2)
                .saturating_mul(1 << self.lists_for_silence.min(31))
        {
            return self.resume_watch();
        }
        (self.total_silence, self.bookmarks_come) = (Duration::ZERO, false);
        self.lists_for_silence += 1;
        self.history_is_known = false;
        self.wait(None, AfterWait::Relist);
    }

    /// Opens the watch again from the last version.
    pub(super) fn resume_watch(&mut self) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        let left = VERY_SHORT.saturating_sub(self.now.saturating_duration_since(watch.started));
        self.short_watches = match left.is_zero() {
            true => 0,
            false => self.short_watches.saturating_add(1),
        };
        self.phase = match self.short_watches > SHORT_WATCHES {
            true => Phase::Wait(left, AfterWait::Watch),
            false => Phase::Watch,
        };
    }

    /// The server rejected a watch-list, or ended it with an error (WL8).
    pub(super) fn watch_list_failed(&mut self, error: Error) {
        self.doubt_history(&error);
        let retry_after = error.retry_after();
        if is_waited_out(&error) {
            // A list would not succeed either, unless only watch-lists break the connection.
            self.unfinished += u32::from(error.is_connection() && !error.is_connection_refused());
            self.report(error, ReportKind::Other);
            return match self.unfinished < WATCH_LIST_TRIES {
                true => self.wait(retry_after, AfterWait::WatchList),
                false => self.begin_list(),
            };
        }
        let refused = error.is_invalid() || error.is_bad_request();
        // A request rejected as bad or invalid is mostly rejected for being a watch-list. If it is for its version, the
        // list fails, too.
        let unacceptable = !refused && self.is_at_a_version() && error.is_unacceptable_request();
        let unavailable = error.is_gone() || error.is_too_large_resource_version() || unacceptable;
        match retry_after {
            Some(_) => self.report(error, ReportKind::Other),
            None => self.report(error, ReportKind::Preliminary),
        }
        if unavailable && !self.version_unavailable {
            self.version_unavailable = true;
            self.phase = Phase::WatchList;
            return;
        }
        if refused {
            self.pause_watch_list();
        }
        match retry_after {
            Some(_) => self.wait(retry_after, AfterWait::List),
            None => self.begin_list(),
        }
    }

    /// A watch-list ended before its objects were complete (WL9).
    fn watch_list_unfinished(&mut self) {
        let what = "the watch-list ended before the bookmark that ends its initial events";
        self.report(Error::connection(what), ReportKind::Other);
        self.unfinished += 1;
        if self.unfinished < WATCH_LIST_TRIES {
            return self.wait(None, AfterWait::WatchList);
        }
        self.pause_watch_list();
        self.begin_list();
    }

    fn pause_watch_list(&mut self) {
        self.watch_list_from = self.now.checked_add(WATCH_LIST_PAUSE);
    }
}

fn very_short_watch() -> Error {
    Error::connection("very short watch: it ended within a second and without an event")
}

/// Whether the server is down or overloaded: a list would only make it worse (W3).
fn is_waited_out(error: &Error) -> bool {
    error.is_connection() && !error.is_tls() || error.is_too_many_requests()
}
