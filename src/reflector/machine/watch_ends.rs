//! What follows when a watch, or a watch-list, does not go on (W3–W7, WL8–WL12).

use std::time::{Duration, Instant};

use super::{Machine, Next, Phase, SLACK};
use crate::error::Error;
use crate::object::Object;
use crate::reflector::watching::{BOOKMARK_INTERVAL, Broken, PATIENCE, QUIET, Watching};

/// A watch that ends within this time and without an event is no healthy one (W5).
const VERY_SHORT: Duration = Duration::from_secs(1);

/// So many very short watches in a row are opened again at once; the next ones a second after each other.
const SHORT_WATCHES: u32 = 5;

/// So many watch-lists in a row that end before their objects are complete are enough (WL9).
const WATCH_LIST_TRIES: u32 = 3;

/// How long a server that can't do a watch-list is not asked for one again.
const WATCH_LIST_PAUSE: Duration = Duration::from_secs(600);

impl<T: Object> Machine<'_, T> {
    pub(super) fn watch_refused(&mut self, error: Error) {
        self.doubt_history(&error);
        let retry_after = error.retry_after();
        if is_waited_out(&error) {
            self.report(error, false);
            return self.wait(retry_after, Next::Watch);
        }
        self.suspect_version(&error);
        self.report(error, true);
        self.end_cycle(retry_after);
    }

    /// Has the most recent state listed next if the version may be what the server does not take.
    fn suspect_version(&mut self, error: &Error) {
        self.version_unavailable |= self.is_at_a_version() && error.is_unacceptable_request();
    }

    fn is_at_a_version(&self) -> bool {
        !matches!(self.version.as_str(), "" | "0")
    }

    pub(super) fn watch_broken(&mut self, broken: Broken, watching: &Watching<T>, now: Instant) {
        self.note_health(watching);
        match broken {
            Broken::Refused(error) => {
                self.report(error, true);
                self.end_cycle(None);
            }
            Broken::Event(error) if watching.initial.is_some() => {
                self.watch_list_failed(error, now)
            }
            Broken::Frame(error) if watching.initial.is_some() => {
                self.history_is_known = false;
                self.report(error, false);
                self.begin_list();
            }
            Broken::Event(error) => {
                self.doubt_history(&error);
                let retry_after = error.retry_after();
                let again = error.is_internal_error() && self.internal_errors.retry(now);
                let wait = error.is_too_many_requests();
                self.suspect_version(&error);
                self.report(error, false);
                match () {
                    () if again => self.reopen_watch(watching, now),
                    () if wait => self.wait(retry_after, Next::Watch),
                    () => self.end_cycle(retry_after),
                }
            }
            Broken::Frame(error) => {
                self.history_is_known = false;
                self.report(error, false);
                if self.broken_at.as_ref() == Some(&self.version) {
                    self.broken_at = None;
                    return self.end_cycle(None);
                }
                self.broken_at = Some(self.version.clone());
                self.reopen_watch(watching, now);
            }
        }
    }

    pub(super) fn watch_silent(&mut self, watching: Watching<T>, now: Instant) {
        self.history_is_known = false;
        let silent = watching.silent.as_secs();
        if watching.initial.is_none() {
            // Half-dead, as an end without a word.
            self.report(
                Error::timeout(format!("nothing came for {silent} s")),
                false,
            );
            self.note_health(&watching);
            return self.watch_again(&watching, now);
        }
        let what = "nothing came, and no bookmark that ends the initial events";
        self.report(Error::timeout(format!("{what}, for {silent} s")), false);
        if watching.silent < PATIENCE {
            self.phase = Phase::WatchBody(watching);
            return;
        }
        self.pause_watch_list(now);
        self.begin_list();
    }

    /// Opens the watch again, unless too many in a row were silent: then the connection is not the reason. A
    /// restored server has no event for a version that is yet to come, and a list shows that. Where nothing
    /// just changes, each list that shows nothing doubles the time to the next one.
    fn watch_again(&mut self, watching: &Watching<T>, now: Instant) {
        self.quiet += now.saturating_duration_since(watching.heard);
        let limit = match self.settings.watch_idle_timeout {
            Some(timeout) => timeout.max(BOOKMARK_INTERVAL),
            None if self.bookmarks_come => QUIET,
            // The longest that a watch may be silent.
            None => self
                .settings
                .min_watch_timeout
                .saturating_mul(2)
                .saturating_add(SLACK),
        };
        if self.quiet
            < limit
                .saturating_mul(2)
                .saturating_mul(1 << self.silent_lists.min(31))
        {
            return self.reopen_watch(watching, now);
        }
        (self.quiet, self.bookmarks_come) = (Duration::ZERO, false);
        self.silent_lists += 1;
        self.history_is_known = false;
        self.end_cycle(None);
    }

    pub(super) fn watch_ended(
        &mut self,
        watching: &Watching<T>,
        result: Result<(), Error>,
        now: Instant,
    ) {
        self.history_is_known &= result.is_ok() && watching.is_due(now);
        // A connection that broke is an end like any other: the watch goes on from the last version.
        if let Err(error) = result {
            self.report(error, false);
        }
        let very_short = watching.events == 0 && now.duration_since(watching.started) < VERY_SHORT;
        if very_short {
            self.report(
                Error::connection(
                    "very short watch: it ended within a second and without an event",
                ),
                false,
            );
        }
        match (&watching.initial, very_short) {
            (Some(_), true) => self.begin_list(),
            (Some(_), false) => self.watch_list_unfinished(now),
            (None, true) => self.end_cycle(None),
            (None, false) => {
                self.backoff.reset();
                self.watch_again(watching, now);
            }
        }
    }

    /// The watch goes on from the last version.
    fn reopen_watch(&mut self, watching: &Watching<T>, now: Instant) {
        let left = VERY_SHORT.saturating_sub(now.saturating_duration_since(watching.started));
        self.short_watches = if left.is_zero() {
            0
        } else {
            self.short_watches.saturating_add(1)
        };
        self.phase = match self.short_watches > SHORT_WATCHES {
            true => Phase::Wait(left, Next::Watch),
            false => Phase::Watch,
        };
    }

    /// A watch that has had an event works: what fails next is another failure (L3). The objects with which a
    /// watch-list begins don't count, they may never be complete.
    fn note_health(&mut self, watching: &Watching<T>) {
        if watching.initial.is_none() && watching.events > 0 {
            self.backoff.reset();
        }
    }

    /// The server refuses a watch-list, or breaks it off with an error (WL8).
    pub(super) fn watch_list_failed(&mut self, error: Error, now: Instant) {
        self.doubt_history(&error);
        let retry_after = error.retry_after();
        if is_waited_out(&error) {
            // Where nobody is, or too many are, a list fares no better. What breaks may break a watch-list
            // only.
            self.unfinished += u32::from(error.is_connection() && !error.is_connection_refused());
            self.report(error, false);
            return match self.unfinished < WATCH_LIST_TRIES {
                true => self.wait(retry_after, Next::WatchList),
                false => self.begin_list(),
            };
        }
        let refused = error.is_invalid() || error.is_bad_request();
        // What is refused as bad or invalid is mostly the watch-list. If it is the version, a list tells.
        let unacceptable = !refused && self.is_at_a_version() && error.is_unacceptable_request();
        let unavailable = error.is_gone() || error.is_too_large_resource_version() || unacceptable;
        self.report(error, false);
        if unavailable && !self.version_unavailable {
            self.version_unavailable = true;
            self.phase = Phase::WatchList;
            return;
        }
        if refused {
            self.pause_watch_list(now);
        }
        // In this cycle a list has to do.
        match retry_after {
            Some(_) => self.wait(retry_after, Next::List),
            None => self.begin_list(),
        }
    }

    /// A watch-list has ended before its objects were complete (WL9).
    fn watch_list_unfinished(&mut self, now: Instant) {
        let what = "the watch-list ended before the bookmark that ends its initial events";
        self.report(Error::connection(what), false);
        self.unfinished += 1;
        if self.unfinished < WATCH_LIST_TRIES {
            return self.wait(None, Next::WatchList);
        }
        self.pause_watch_list(now);
        self.begin_list();
    }

    fn pause_watch_list(&mut self, now: Instant) {
        self.watch_list_from = now.checked_add(WATCH_LIST_PAUSE);
    }
}

/// The server is not there, or overloaded: a list would only make it worse (W3).
fn is_waited_out(error: &Error) -> bool {
    error.is_connection() && !error.is_tls() || error.is_too_many_requests()
}
