use std::time::{Duration, Instant};

use super::watch_ends::VERY_SHORT;
use super::{Phase, Protocol};
use crate::error::Error;
use crate::wire::{EventKind, FrameSplitter, Piece, Shown, SplitError};

/// How long the server may be silent before the initial events of a watch-list are complete, and how often a warning
/// is reported before (WL10).
pub(super) const WATCH_LIST_SILENCE: Duration = Duration::from_secs(30);
pub(super) const SILENCE_WARNING: Duration = Duration::from_secs(10);

/// API servers send a bookmark about once a minute. Once two came within this time, none for so long means trouble.
pub(super) const BOOKMARK_SILENCE: Duration = Duration::from_secs(180);

/// How often an API server sends a bookmark.
pub(super) const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// How much earlier than requested a server may end a watch by its own clock.
const EARLY: Duration = Duration::from_secs(1);

/// An open watch.
pub(super) struct WatchStream {
    pub(super) frames: FrameSplitter,
    /// When it was requested (W2), or its initial events were complete.
    pub(super) started: Instant,
    /// When the last event came, or it was requested.
    pub(super) last_event: Instant,
    /// When the server was asked to end it.
    due: Instant,
    /// The number of events since `started`.
    pub(super) events: u64,
    /// Whether the versions of ADDED events count: not at the beginning of a watch without a version, where they are
    /// unordered (W10).
    pub(super) versions_count: bool,
    /// The silence after which it is taken for dead.
    idle_timeout: Duration,
    /// How long no bytes have come.
    pub(super) silence: Duration,
    last_bookmark: Option<Instant>,
    /// Whether it is a watch-list whose initial events are not in the store yet (WL3, WL7).
    pub(super) is_initial: bool,
    /// Whether the initial events are complete.
    pub(super) initial_events_ended: bool,
    /// The last version of an initial event that was not ADDED, and then of the bookmark (WL5).
    pub(super) initial_version: String,
    /// Whether a cached object in the version of an initial event is the same object.
    pub(super) may_reuse: bool,
    /// The end of the body, while frames before it are left.
    pub(super) ended: Option<Result<(), Error>>,
}

impl WatchStream {
    pub(super) fn new(
        limit: usize,
        started: Instant,
        timeout: Duration,
        idle_timeout: Duration,
    ) -> Self {
        Self {
            frames: FrameSplitter::new(limit),
            started,
            last_event: started,
            due: started + timeout,
            events: 0,
            versions_count: false,
            idle_timeout,
            silence: Duration::ZERO,
            last_bookmark: None,
            is_initial: false,
            initial_events_ended: false,
            initial_version: String::new(),
            may_reuse: false,
            ended: None,
        }
    }

    /// The next frame of the input, or of what is left at the end.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        match self.ended {
            None => self.frames.next(input),
            Some(_) => self.frames.next_at_end().map(|piece| (0, piece)),
        }
    }

    /// Whether the server has given it the requested time. An earlier end can mean that the server shuts down.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now + EARLY >= self.due
    }

    /// Whether it has ended within a second and without an event (W5).
    pub(super) fn is_very_short(&self, now: Instant) -> bool {
        self.events == 0 && now.duration_since(self.started) < VERY_SHORT
    }

    /// How long to wait for bytes. `bookmarks_come`: the server is known to send bookmarks.
    pub(super) fn read_timeout(&self, bookmarks_come: bool) -> Duration {
        match (self.is_initial, bookmarks_come) {
            (true, _) => SILENCE_WARNING,
            (false, true) => self.idle_timeout.min(BOOKMARK_SILENCE),
            (false, false) => self.idle_timeout,
        }
    }

    /// The following events are changes (WL6). Returns the version of the initial events.
    pub(super) fn end_initial_events(&mut self, now: Instant) -> String {
        (self.is_initial, self.initial_events_ended) = (false, false);
        (self.started, self.events, self.versions_count) = (now, 0, true);
        std::mem::take(&mut self.initial_version)
    }
}

impl Protocol {
    /// An event was decoded; `version` is that of its object, empty if it does not count.
    ///
    /// An event without a version leaves the last one as it is; client-go would lose it (W10).
    pub(in crate::reflector) fn event(&mut self, kind: EventKind, version: &str) {
        let Phase::WatchBody(watch) = &mut self.phase else {
            return;
        };
        watch.events += 1;
        watch.last_event = self.now;
        self.total_silence = Duration::ZERO;
        if !watch.is_initial {
            self.lists_for_silence = 0;
        }
        watch.versions_count |= kind != EventKind::Added;
        if version.is_empty() {
            return;
        }
        match watch.is_initial {
            true if kind != EventKind::Added => version.clone_into(&mut watch.initial_version),
            false if watch.versions_count => version.clone_into(&mut self.version),
            _ => {}
        }
    }

    /// Whether the version of an ADDED event counts now.
    pub(in crate::reflector) fn versions_count(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watch) if watch.versions_count)
    }

    /// A bookmark came (W10, WL6).
    pub(in crate::reflector) fn bookmark(&mut self, version: &str, initial_events_end: bool) {
        let Phase::WatchBody(watch) = &mut self.phase else {
            return;
        };
        let is_initial = watch.is_initial;
        if !is_initial {
            let last = watch.last_bookmark.replace(self.now);
            let is_regular =
                last.is_some_and(|last| self.now.duration_since(last) <= BOOKMARK_SILENCE);
            self.bookmarks_come |= is_regular;
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
            self.reject_initial_events(Error::decode(what));
        }
    }

    /// The frame that [`Output::Frame`](super::Output::Frame) returned has several events: it is split.
    pub(in crate::reflector) fn several_events(&mut self) {
        if let Phase::WatchBody(watch) = &mut self.phase {
            watch.frames.several();
        }
    }
}

/// The place of an event in the stream.
pub(super) fn place(number: u64, version: &str) -> String {
    match version {
        "" => format!("event {number} at the start of the watch"),
        version => format!("event {number} after version {}", Shown(version)),
    }
}

/// Decides whether a watch that ended with an internal error is opened again at once (W7). client-go's
/// `RetryWithDeadline`.
#[derive(Debug)]
pub(super) struct RetryWindow {
    length: Duration,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl RetryWindow {
    /// Errors that are further apart have nothing to do with each other.
    const APART: Duration = Duration::from_secs(60);

    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            first: None,
            last: None,
        }
    }

    /// There was another error: whether to try again.
    pub(super) fn retry(&mut self, now: Instant) -> bool {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) >= Self::APART)
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
    fn w7_retry_window() {
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
        assert!(!window.retry(at(91)), "the window is over");
        assert!(window.retry(at(92)), "and begins again");
        assert!(
            window.retry(at(153)) && window.retry(at(153 + 89)),
            "a minute apart: it begins again"
        );
    }
}
