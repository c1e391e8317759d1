use std::time::{Duration, Instant};

use super::{Phase, Protocol};
use crate::error::Error;
use crate::resource_version::ResourceVersion;
use crate::wire::{EscapedName, EventKind, FrameSplitter, Piece, SplitError};

/// A watch that ends within this time is followed by a list if it had no event (W5). Otherwise it
/// counts as a short watch (W4).
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);

/// The maximum silence of the server before the initial events of a watch-list are complete (WL10).
pub(super) const WATCH_LIST_SILENCE: Duration = Duration::from_secs(30);
/// How long a server may send changes before the bookmark that ends the initial events (WL12).
///
/// Since 1.32, kube-apiserver sends the bookmark before the first change. Older versions send it up
/// to 1.25 s later, with changes in between: a change does not prove that none will come. A list too
/// many costs little.
const MARK_DELAY: Duration = Duration::from_secs(5);

/// The interval of the warnings while a watch-list is silent.
pub(super) const SILENCE_WARNING: Duration = Duration::from_secs(10);

/// The maximum silence of a watch if the server is known to send bookmarks. API servers send one
/// about once a minute. The server is known to send them once two have come within this time.
pub(super) const BOOKMARK_SILENCE: Duration = Duration::from_secs(180);

/// The interval at which an API server sends bookmarks.
pub(super) const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// An open watch.
pub(super) struct WatchStream {
    pub(super) stage: Stage,
    pub(super) frames: FrameSplitter,
    /// The time of the request (W2), or of the end of the initial events.
    pub(super) started: Instant,
    /// The time of the last event, or of the request.
    pub(super) last_event: Instant,
    /// The number of events and bookmarks since `started`.
    pub(super) events: u64,
    /// The silence after which the watch is considered dead.
    pub(super) idle_timeout: Duration,
    /// The time since the last bytes.
    pub(super) silence: Duration,
    /// How the body ended. Kept until the remaining frames have been handled.
    pub(super) ended: Option<Result<(), Error>>,
}

/// What the events of a watch are.
pub(super) enum Stage {
    /// The initial events of a watch-list, which are not in the store yet (WL3, WL7).
    Initial {
        /// The newest version of the events that were not ADDED (WL5).
        newest: Option<ResourceVersion>,
        /// The version of the list. Set by the bookmark that ends the initial events.
        complete_at: Option<ResourceVersion>,
        /// The number of watch-lists in this cycle that ended before they were complete.
        unfinished: u32,
        /// When the server should have ended the watch: after the requested time.
        ends_at: Instant,
        /// When the first event came that is not an initial one: a change, a deletion, or a bookmark
        /// that does not end the initial events. All later events are no initial ones either.
        changes_since: Option<Instant>,
    },
    Changes {
        /// Whether the versions of ADDED events count. They do not at the start of a watch without
        /// a version, where these events are unordered (W10).
        tracks_versions: bool,
        last_bookmark: Option<Instant>,
    },
}

impl WatchStream {
    pub(super) fn is_initial(&self) -> bool {
        matches!(self.stage, Stage::Initial { .. })
    }

    /// Returns the version of the initial events if they are complete.
    pub(super) fn initial_version(&self) -> Option<&ResourceVersion> {
        match &self.stage {
            Stage::Initial { complete_at, .. } => complete_at.as_ref(),
            Stage::Changes { .. } => None,
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

    /// Returns when the initial events must be complete, and what is wrong if they are not.
    pub(super) fn initial_deadline(&self) -> Option<(Instant, &'static str)> {
        let Stage::Initial {
            complete_at: None,
            ends_at,
            changes_since,
            ..
        } = self.stage
        else {
            return None;
        };
        let changes = changes_since.map(|since| {
            let what = "the server has sent changes for 5 s, but not the bookmark that ends the initial events";
            (since + MARK_DELAY, what)
        });
        let ends = (ends_at, "the watch-list lasts longer than requested");
        changes.into_iter().chain([ends]).min()
    }

    /// The time to wait for bytes. `expects_bookmarks` is whether the server is known to send
    /// bookmarks.
    pub(super) fn read_timeout(&self, expects_bookmarks: bool) -> Duration {
        match (&self.stage, expects_bookmarks) {
            (Stage::Initial { .. }, _) => SILENCE_WARNING,
            (_, true) => self.idle_timeout.min(BOOKMARK_SILENCE),
            (_, false) => self.idle_timeout,
        }
    }

    /// Ends the initial events and returns their version. The following events are changes (WL6).
    pub(super) fn end_initial_events(&mut self, now: Instant) -> Option<ResourceVersion> {
        (self.started, self.events) = (now, 0);
        let changes = Stage::Changes {
            tracks_versions: true,
            last_bookmark: None,
        };
        match std::mem::replace(&mut self.stage, changes) {
            Stage::Initial { complete_at, .. } => complete_at,
            Stage::Changes { .. } => None,
        }
    }
}

impl Protocol {
    /// Reports a decoded event. `version` is the version of its object.
    ///
    /// The last version never goes back, and an event without a version keeps it. Otherwise the
    /// next watch would repeat events, for example after a deletion with the version of the last
    /// state. In client-go, every event replaces the last version (W10).
    pub(crate) fn event(&mut self, kind: EventKind, version: Option<ResourceVersion>) {
        let Phase::WatchBody(watch) = &mut self.phase else {
            return;
        };
        watch.events += 1;
        watch.last_event = self.now;
        self.silence.total = Duration::ZERO;
        let current = match &mut watch.stage {
            Stage::Initial {
                newest,
                changes_since,
                ..
            } => {
                let is_change = kind != EventKind::Added;
                if is_change {
                    changes_since.get_or_insert(self.now);
                }
                is_change.then_some(newest)
            }
            Stage::Changes {
                tracks_versions, ..
            } => {
                self.silence.lists = 0;
                *tracks_versions |= kind != EventKind::Added;
                tracks_versions.then_some(&mut self.version)
            }
        };
        if let (Some(current), Some(version)) = (current, version) {
            version.advance(current);
            self.waits.reached(self.version.as_ref());
        }
    }

    /// Whether the version of an ADDED event counts now.
    pub(crate) fn tracks_versions(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watch)
            if matches!(watch.stage, Stage::Changes { tracks_versions: true, .. }))
    }

    /// Reports a bookmark (W10, WL6).
    pub(crate) fn bookmark(&mut self, version: Option<ResourceVersion>, initial_events_end: bool) {
        self.event(EventKind::Bookmark, version.clone());
        let Phase::WatchBody(watch) = &mut self.phase else {
            return;
        };
        match &mut watch.stage {
            Stage::Initial {
                newest,
                complete_at,
                ..
            } if initial_events_end => {
                // The version of the bookmark is that of the list. It may be older than those of the
                // events, as after a restore of etcd.
                *complete_at = version.or(newest.take());
                if complete_at.is_none() {
                    let what = "the bookmark that ends the initial events has no resourceVersion";
                    self.reject_initial_events(Error::invalid(what));
                }
            }
            Stage::Initial { .. } => {}
            Stage::Changes { last_bookmark, .. } => {
                let last = last_bookmark.replace(self.now);
                self.silence.sends_bookmarks |=
                    last.is_some_and(|last| self.now.duration_since(last) <= BOOKMARK_SILENCE);
            }
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
pub(super) fn event_position(number: u64, version: Option<&ResourceVersion>) -> String {
    match version {
        None => format!("event {number} (no version yet)"),
        Some(version) => {
            let version = version.to_string();
            format!("event {number} (last version {})", EscapedName(&version))
        }
    }
}
