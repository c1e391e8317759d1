//! What follows a watch or watch-list that cannot continue (W3–W7, WL8–WL12).

use std::time::Duration;

use super::watch::{BOOKMARK_INTERVAL, BOOKMARK_SILENCE, Stage, VERY_SHORT, WATCH_LIST_SILENCE};
use super::{AfterWait, BrokenFrame, MIN_WATCH_TIMEOUT, Phase, Protocol, ReportKind, WATCH};
use crate::error::Error;
use crate::wire::WATCH_SLACK;

/// The maximum number of consecutive short watches that are opened again at once. Later ones start
/// at least a second apart.
const MAX_SHORT_WATCHES: u32 = 5;

/// A list is requested after this number of watch-lists have ended early (WL9).
const WATCH_LIST_TRIES: u32 = 3;

/// If a watch-list ends early after this time, a list is requested at once: a longer one is not to be
/// expected.
const LONG_TRY: Duration = MIN_WATCH_TIMEOUT;

/// The time without watch-list requests to a server that does not support them.
const WATCH_LIST_PAUSE: Duration = Duration::from_secs(600);

/// How long watches at one version have been silent.
#[derive(Default)]
pub(super) struct Silence {
    /// Whether the server is known to send bookmarks regularly.
    pub(super) sends_bookmarks: bool,
    /// The time since the last event or list.
    pub(super) total: Duration,
    /// The number of lists since the last event that were caused by silence.
    pub(super) lists: u32,
}

/// How an open watch or watch-list ended.
pub(crate) enum WatchEnd {
    /// The body ended, or the connection broke.
    Body(Result<(), Error>),
    /// No data arrived for too long.
    Silence,
    /// The server sent an ERROR event.
    Error(Error),
    /// A frame could not be decoded.
    Malformed(Error),
}

impl Protocol {
    /// Decides what follows a failed watch request.
    pub(super) fn watch_request_failed(&mut self, error: Error) {
        if is_server_unavailable(&error) {
            return self.fail(error, ReportKind::Other, AfterWait::Watch);
        }
        self.suspect_version(&error);
        self.fail(error, ReportKind::Request, AfterWait::Relist);
    }

    /// Makes the next list request the most recent state, if the server may have rejected the
    /// version.
    fn suspect_version(&mut self, error: &Error) {
        self.version_unavailable |= self.is_at_a_version() && error.is_unacceptable_request();
    }

    pub(super) fn is_at_a_version(&self) -> bool {
        self.version
            .as_ref()
            .is_some_and(|version| !version.is_any())
    }

    /// Decides what follows the end of an open watch (W3–W7). The watch resumes from the last
    /// version, at once or after a back-off, or the reflector relists after a back-off.
    pub(crate) fn watch_ended(&mut self, end: WatchEnd) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        if let Stage::Initial { unfinished, .. } = watch.stage {
            return self.watch_list_ended(unfinished, end);
        }
        let is_very_short = watch.is_very_short(self.now);
        let silence = watch.silence;
        // A watch that has had an event worked, so the next failure starts a new back-off (L3).
        if watch.events > 0 {
            self.backoff.reset();
        }
        match end {
            WatchEnd::Body(result) => {
                self.body_ended(result, is_very_short);
                if is_very_short {
                    return self.wait(None, AfterWait::Relist);
                }
                self.backoff.reset();
                self.resume_unless_silent();
            }
            WatchEnd::Silence => {
                let seconds = silence.as_secs();
                let error = Error::timeout(format!("no data arrived for {seconds} s"));
                self.report(error, ReportKind::Other);
                self.resume_unless_silent();
            }
            WatchEnd::Error(error) => {
                // Other errors, such as 410 Gone, lead to a relist.
                let next = match error.is_too_many_requests() {
                    true => AfterWait::Watch,
                    false => AfterWait::Relist,
                };
                self.suspect_version(&error);
                self.fail(error, ReportKind::Other, next);
            }
            WatchEnd::Malformed(error) => {
                let before = self.broken_frame.take();
                if before.is_some_and(|before| before.after == self.version) {
                    return self.fail(error, ReportKind::Other, AfterWait::Relist);
                }
                self.report(error, ReportKind::Other);
                self.broken_frame = Some(BrokenFrame {
                    after: self.version.clone(),
                });
                self.resume_watch();
            }
        }
    }

    /// Decides what follows a watch-list whose initial events are incomplete (WL8–WL12). A silence
    /// shorter than [`WATCH_LIST_SILENCE`] is only reported.
    fn watch_list_ended(&mut self, unfinished: u32, end: WatchEnd) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        let is_very_short = watch.is_very_short(self.now);
        let is_long = self.now.saturating_duration_since(watch.started) >= LONG_TRY;
        let silence = watch.silence;
        match end {
            WatchEnd::Body(result) => {
                self.body_ended(result, is_very_short);
                if is_very_short {
                    return self.begin_list();
                }
                self.watch_list_unfinished(match is_long {
                    true => WATCH_LIST_TRIES,
                    false => unfinished + 1,
                });
            }
            WatchEnd::Silence => {
                let what = "the bookmark that ends the initial events is still missing";
                let seconds = silence.as_secs();
                let error = Error::timeout(format!("no data arrived for {seconds} s; {what}"));
                match silence >= WATCH_LIST_SILENCE {
                    true => self.abandon_watch_list(error),
                    false => self.report(error, ReportKind::Other),
                }
            }
            WatchEnd::Error(error) => self.watch_list_failed(unfinished, error),
            WatchEnd::Malformed(error) => self.reject_initial_events(error),
        }
    }

    /// Records the end of a body. A broken connection is reported, and then handled like a normal
    /// end.
    fn body_ended(&mut self, result: Result<(), Error>, is_very_short: bool) {
        if let Err(error) = result {
            self.report(error, ReportKind::Other);
        }
        if is_very_short {
            let what = "very short watch: it ended within a second and without an event";
            self.report(Error::connection(what), ReportKind::Other);
        }
    }

    /// Resumes the watch, or relists if watches have been silent for too long in total. Such a
    /// silence can mean that etcd was restored: the server then has no events for a version in its
    /// future, and only a list detects this. Each such list without a following event doubles the
    /// time until the next one.
    fn resume_unless_silent(&mut self) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        self.silence.total += self.now.saturating_duration_since(watch.last_event);
        let limit = match self.options.watch_idle_timeout {
            Some(timeout) => timeout.max(BOOKMARK_INTERVAL),
            None if self.silence.sends_bookmarks => BOOKMARK_SILENCE,
            // The longest possible silence of one watch: its maximum duration and the slack.
            None => MIN_WATCH_TIMEOUT * 2 + WATCH_SLACK,
        };
        let lists = self.silence.lists;
        if self.silence.total < limit.saturating_mul(2).saturating_mul(1 << lists.min(31)) {
            return self.resume_watch();
        }
        // Whether bookmarks are expected must not change, or the next list would be due after seven
        // times the time.
        (self.silence.total, self.silence.lists) = (Duration::ZERO, lists + 1);
        self.wait(None, AfterWait::Relist);
    }

    /// Opens the watch again from the last version.
    fn resume_watch(&mut self) {
        let Phase::WatchBody(watch) = &self.phase else {
            return;
        };
        self.waits.watch_ended(self.now);
        let left = VERY_SHORT.saturating_sub(self.now.saturating_duration_since(watch.started));
        self.short_watches = match left.is_zero() {
            true => 0,
            false => self.short_watches.saturating_add(1),
        };
        self.phase = match self.short_watches > MAX_SHORT_WATCHES {
            true => Phase::Wait(left, AfterWait::Watch),
            false => WATCH,
        };
    }

    /// Decides what follows a watch-list request that failed, or a watch-list that the server ended
    /// with an error (WL8).
    pub(super) fn watch_list_failed(&mut self, mut unfinished: u32, error: Error) {
        let retry_after = error.retry_after();
        if is_server_unavailable(&error) {
            // Try the watch-list again, because a list would fail as well. A list helps only if
            // just the watch-lists break the connection, so count these errors.
            unfinished += u32::from(error.is_connection() && !error.is_connection_refused());
            if unfinished < WATCH_LIST_TRIES {
                return self.fail(
                    error,
                    ReportKind::Other,
                    AfterWait::WatchList { unfinished },
                );
            }
            self.report(error, ReportKind::Other);
            return self.begin_list();
        }
        let refused = error.is_invalid() || error.is_bad_request();
        // A server usually rejects a request as bad or invalid because it does not support
        // watch-lists. If the version is the reason, the list fails as well.
        let unacceptable = !refused && self.is_at_a_version() && error.is_unacceptable_request();
        let unavailable = error.is_gone() || error.is_too_large_resource_version() || unacceptable;
        let kind = match retry_after {
            Some(_) => ReportKind::Other,
            None => ReportKind::Preliminary,
        };
        self.report(error, kind);
        if unavailable && !self.version_unavailable {
            self.version_unavailable = true;
            self.phase = Phase::WatchList { unfinished };
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

    /// Decides what follows a watch-list that ended before its objects were complete (WL9).
    fn watch_list_unfinished(&mut self, unfinished: u32) {
        let what = "the watch-list ended before the bookmark that ends its initial events";
        let error = Error::connection(what);
        if unfinished < WATCH_LIST_TRIES {
            self.report(error, ReportKind::Other);
            return self.wait(None, AfterWait::WatchList { unfinished });
        }
        self.abandon_watch_list(error);
    }

    /// Lists instead of waiting for the end of the initial events (WL9, WL12).
    pub(super) fn abandon_watch_list(&mut self, error: Error) {
        self.report(error, ReportKind::Other);
        self.pause_watch_list();
        self.begin_list();
    }

    fn pause_watch_list(&mut self) {
        self.watch_list_paused_until = self.now.checked_add(WATCH_LIST_PAUSE);
    }
}

/// Whether the server is down or overloaded. The reflector waits, because a list would add load
/// (W3).
fn is_server_unavailable(error: &Error) -> bool {
    error.is_connection() && !error.is_tls() || error.is_too_many_requests()
}
