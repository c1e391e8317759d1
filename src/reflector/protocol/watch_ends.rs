//! What follows when a watch, or a watch-list, can't go on (W3–W7, WL8–WL12).

use std::time::Duration;

use super::watch::{BOOKMARK_INTERVAL, PATIENCE, QUIET};
use super::{Next, Phase, Protocol, ReportKind};
use crate::error::Error;
use crate::wire::WATCH_SLACK;

/// A watch that ends within this time and without an event is not healthy (W5).
const VERY_SHORT: Duration = Duration::from_secs(1);

/// This many consecutive short watches are opened again at once, and the next ones a second after each other.
const SHORT_WATCHES: u32 = 5;

/// After this many watch-lists that ended before their objects were complete, a list is requested (WL9).
const WATCH_LIST_TRIES: u32 = 3;

/// How long no watch-list is requested from a server that can't serve one.
const WATCH_LIST_PAUSE: Duration = Duration::from_secs(600);

impl Protocol {
    pub(super) fn watch_refused(&mut self, error: Error) {
        self.doubt_history(&error);
        let retry_after = error.retry_after();
        if is_waited_out(&error) {
            self.report(error, ReportKind::Other);
            return self.wait(retry_after, Next::Watch);
        }
        self.suspect_version(&error);
        self.report(error, ReportKind::Request);
        self.wait(retry_after, Next::Cycle);
    }

    /// Lists the most recent state next if the server may have rejected the version.
    pub(super) fn suspect_version(&mut self, error: &Error) {
        self.version_unavailable |= self.is_at_a_version() && error.is_unacceptable_request();
    }

    fn is_at_a_version(&self) -> bool {
        !matches!(self.version.as_str(), "" | "0")
    }

    pub(super) fn watch_silent(&mut self) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        let (is_initial, silent) = (watch.is_initial, watch.silent);
        self.history_is_known = false;
        let seconds = silent.as_secs();
        if !is_initial {
            // The connection is half dead; treated as an end without an error.
            let error = Error::timeout(format!("nothing came for {seconds} s"));
            self.report(error, ReportKind::Other);
            self.note_health();
            return self.watch_again();
        }
        let what = "nothing came, and no bookmark that ends the initial events";
        self.report(
            Error::timeout(format!("{what}, for {seconds} s")),
            ReportKind::Other,
        );
        if silent >= PATIENCE {
            self.pause_watch_list();
            self.begin_list();
        }
    }

    /// Opens the watch again, unless too many in a row were silent: then the connection is not the reason. A restored
    /// server has no events for a version in its future; a list shows that. Where nothing changes, each list that
    /// shows nothing doubles the time until the next one.
    fn watch_again(&mut self) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        self.quiet += self.now.saturating_duration_since(watch.heard);
        let limit = match self.settings.watch_idle_timeout {
            Some(timeout) => timeout.max(BOOKMARK_INTERVAL),
            None if self.bookmarks_come => QUIET,
            // The longest that a watch may be silent.
            None => self
                .settings
                .min_watch_timeout
                .saturating_mul(2)
                .saturating_add(WATCH_SLACK),
        };
        if self.quiet
            < limit
                .saturating_mul(2)
                .saturating_mul(1 << self.silent_lists.min(31))
        {
            return self.reopen_watch();
        }
        (self.quiet, self.bookmarks_come) = (Duration::ZERO, false);
        self.silent_lists += 1;
        self.history_is_known = false;
        self.wait(None, Next::Cycle);
    }

    pub(super) fn watch_ended(&mut self, result: Result<(), Error>) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        let (is_initial, now) = (watch.is_initial, self.now);
        let very_short = watch.events == 0 && now.duration_since(watch.started) < VERY_SHORT;
        self.history_is_known &= result.is_ok() && watch.is_due(now);
        // A broken connection is an end like any other: the watch goes on from the last version.
        if let Err(error) = result {
            self.report(error, ReportKind::Other);
        }
        if very_short {
            let what = "very short watch: it ended within a second and without an event";
            self.report(Error::connection(what), ReportKind::Other);
        }
        match (is_initial, very_short) {
            (true, true) => self.begin_list(),
            (true, false) => self.watch_list_unfinished(),
            (false, true) => self.wait(None, Next::Cycle),
            (false, false) => {
                self.backoff.reset();
                self.watch_again();
            }
        }
    }

    /// The watch goes on from the last version.
    pub(super) fn reopen_watch(&mut self) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        let left = VERY_SHORT.saturating_sub(self.now.saturating_duration_since(watch.started));
        self.short_watches = match left.is_zero() {
            true => 0,
            false => self.short_watches.saturating_add(1),
        };
        self.phase = match self.short_watches > SHORT_WATCHES {
            true => Phase::Wait(left, Next::Watch),
            false => Phase::Watch,
        };
    }

    /// A watch that has had an event works: the next failure is another one (L3). Initial events do not count, they
    /// may never be complete.
    pub(super) fn note_health(&mut self) {
        if self.is_healthy() {
            self.backoff.reset();
        }
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
                true => self.wait(retry_after, Next::WatchList),
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
            Some(_) => self.wait(retry_after, Next::List),
            None => self.begin_list(),
        }
    }

    /// A watch-list ended before its objects were complete (WL9).
    fn watch_list_unfinished(&mut self) {
        let what = "the watch-list ended before the bookmark that ends its initial events";
        self.report(Error::connection(what), ReportKind::Other);
        self.unfinished += 1;
        if self.unfinished < WATCH_LIST_TRIES {
            return self.wait(None, Next::WatchList);
        }
        self.pause_watch_list();
        self.begin_list();
    }

    fn pause_watch_list(&mut self) {
        self.watch_list_from = self.now.checked_add(WATCH_LIST_PAUSE);
    }
}

/// Whether the server is down or overloaded: a list would only make it worse (W3).
fn is_waited_out(error: &Error) -> bool {
    error.is_connection() && !error.is_tls() || error.is_too_many_requests()
}
