use std::time::{Duration, Instant};

use super::{Phase, Protocol};
use crate::error::Error;
use crate::resource_version::advance;
use crate::wire::{EscapedName, EventKind, FrameSplitter, Piece, SplitError};

/// A watch that ends within this time is followed by a list if it had no event (W5). Otherwise it
/// counts as a short watch (W4).
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);

/// The maximum silence of the server before the initial events of a watch-list are complete (WL10).
pub(super) const WATCH_LIST_SILENCE: Duration = Duration::from_secs(30);
/// The interval of the warnings while a watch-list is silent.
pub(super) const SILENCE_WARNING: Duration = Duration::from_secs(10);

/// The maximum silence of a watch if the server is known to send bookmarks. API servers send one
/// about once a minute. The server is known to send them once two have come within this time.
pub(super) const BOOKMARK_SILENCE: Duration = Duration::from_secs(180);

/// The interval at which an API server sends bookmarks.
pub(super) const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// An open watch.
pub(super) struct WatchStream {
    pub(super) frames: FrameSplitter,
    /// The time of the request (W2), or of the end of the initial events.
    pub(super) started: Instant,
    /// The time of the last event, or of the request.
    pub(super) last_event: Instant,
    /// The number of events since `started`.
    pub(super) events: u64,
    /// Whether the versions of ADDED events count. They do not at the start of a watch without a
    /// version, where these events are unordered (W10).
    pub(super) tracks_versions: bool,
    /// The silence after which the watch is considered dead.
    idle_timeout: Duration,
    /// The time since the last bytes.
    pub(super) silence: Duration,
    last_bookmark: Option<Instant>,
    /// Whether this is a watch-list whose initial events are not in the store yet (WL3, WL7).
    pub(super) is_initial: bool,
    /// Whether the initial events are complete.
    pub(super) initial_events_ended: bool,
    /// The newest version of the initial events that were not ADDED, and finally that of the
    /// bookmark (WL5).
    pub(super) initial_version: String,
    /// How the body ended. Kept until the remaining frames have been handled.
    pub(super) ended: Option<Result<(), Error>>,
}

impl WatchStream {
    pub(super) fn new(limit: usize, started: Instant, idle_timeout: Duration) -> Self {
        Self {
            frames: FrameSplitter::new(limit),
            started,
            last_event: started,
            events: 0,
            tracks_versions: false,
            idle_timeout,
            silence: Duration::ZERO,
            last_bookmark: None,
            is_initial: false,
            initial_events_ended: false,
            initial_version: String::new(),
            ended: None,
        }
    }

    /// Returns the next frame of the input. At the end of the body, returns the remaining frames.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        match self.ended {
            None => self.frames.next(input),
            Some(_) => self.frames.next_at_end().map(|piece| (0, piece)),
        }
    }

    /// Whether the watch ended within a second and without an event (W5).
    pub(super) fn is_very_short(&self, now: Instant) -> bool {
        self.events == 0 && now.duration_since(self.started) < VERY_SHORT
    }

    /// The time to wait for bytes. `expects_bookmarks` is whether the server is known to send
    /// bookmarks.
    pub(super) fn read_timeout(&self, expects_bookmarks: bool) -> Duration {
        match (self.is_initial, expects_bookmarks) {
            (true, _) => SILENCE_WARNING,
            (false, true) => self.idle_timeout.min(BOOKMARK_SILENCE),
            (false, false) => self.idle_timeout,
        }
    }

    /// Ends the initial events and returns their version. The following events are changes (WL6).
    pub(super) fn end_initial_events(&mut self, now: Instant) -> String {
        (self.is_initial, self.initial_events_ended) = (false, false);
        (self.started, self.events, self.tracks_versions) = (now, 0, true);
        std::mem::take(&mut self.initial_version)
    }
}

impl Protocol {
    /// Reports a decoded event. `version` is the version of its object, or empty if it has no
    /// usable version.
    ///
    /// The last version never goes back, and an event without a version keeps it. Otherwise the
    /// next watch would repeat events, for example after a deletion with the version of the last
    /// state. In client-go, every event replaces the last version (W10).
    pub(crate) fn event(&mut self, kind: EventKind, version: &str) {
        let Phase::WatchBody(watch) = &mut self.phase else {
            return;
        };
        watch.events += 1;
        watch.last_event = self.now;
        self.total_silence = Duration::ZERO;
        if !watch.is_initial {
            self.lists_for_silence = 0;
        }
        watch.tracks_versions |= kind != EventKind::Added;
        if version.is_empty() {
            return;
        }
        match watch.is_initial {
            true if kind != EventKind::Added => advance(&mut watch.initial_version, version),
            false if watch.tracks_versions => advance(&mut self.version, version),
            _ => {}
        }
    }

    /// Whether the version of an ADDED event counts now.
    pub(crate) fn tracks_versions(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watch) if watch.tracks_versions)
    }

    /// Reports a bookmark (W10, WL6).
    pub(crate) fn bookmark(&mut self, version: &str, initial_events_end: bool) {
        let Phase::WatchBody(watch) = &mut self.phase else {
            return;
        };
        let is_initial = watch.is_initial;
        if !is_initial {
            let last = watch.last_bookmark.replace(self.now);
            let is_regular =
                last.is_some_and(|last| self.now.duration_since(last) <= BOOKMARK_SILENCE);
            self.server_sends_bookmarks |= is_regular;
        } else if initial_events_end && !version.is_empty() {
            // This version is that of the list: it may be older, as after a restore of etcd.
            watch.initial_version.clear();
        }
        self.event(EventKind::Bookmark, version);
        if !initial_events_end || !is_initial {
            return;
        }
        let Phase::WatchBody(watch) = &mut self.phase else {
            return;
        };
        watch.initial_events_ended = true;
        if watch.initial_version.is_empty() {
            let what = "the bookmark that ends the initial events has no resourceVersion";
            self.reject_initial_events(Error::invalid(what));
        }
    }

    /// Reports that the frame of [`Output::Frame`](super::Output::Frame) contains several events.
    /// The frame is then split.
    pub(crate) fn several_events(&mut self) {
        if let Phase::WatchBody(watch) = &mut self.phase {
            watch.frames.split_line();
        }
    }
}

/// Returns the position of an event in the stream, for messages.
pub(super) fn event_position(number: u64, version: &str) -> String {
    match version {
        "" => format!("event {number} (no version yet)"),
        version => format!("event {number} (last version {})", EscapedName(version)),
    }
}

/// Decides whether a watch that ended with an internal error is opened again at once (W7).
/// client-go's `RetryWithDeadline`.
#[derive(Debug)]
pub(super) struct RetryWindow {
    length: Duration,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl RetryWindow {
    /// If two errors are at least this far apart, they are unrelated and the window begins again.
    const MAX_GAP: Duration = Duration::from_secs(60);

    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            first: None,
            last: None,
        }
    }

    /// Records an error and returns whether to retry.
    pub(super) fn retry(&mut self, now: Instant) -> bool {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) >= Self::MAX_GAP)
        {
            self.first = None;
        }
        let first = *self.first.get_or_insert(now);
        self.last = Some(now);
        let retry = !self.length.is_zero() && now.duration_since(first) <= self.length;
        if !retry {
            self.forget();
        }
        retry
    }

    pub(super) fn forget(&mut self) {
        (self.first, self.last) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w7_errors_are_retried_until_the_window_ends() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut never = RetryWindow::new(Duration::ZERO);
        assert!(!never.retry(at(0)) && !never.retry(at(1)));

        let mut window = RetryWindow::new(Duration::from_secs(90));
        assert!(
            [0, 30, 60, 90]
                .into_iter()
                .all(|second| window.retry(at(second)))
        );
        assert!(!window.retry(at(91)), "the window has ended");
        assert!(window.retry(at(92)), "a new window begins");
        assert!(
            window.retry(at(153)) && window.retry(at(153 + 89)),
            "an error a minute later begins a new window"
        );
    }
}
