//! The phase in which a watch is open, and what follows it (W3–W11).

use std::time::{Duration, Instant};

use super::cycle::{BrokenFrame, Cycle, MIN_WATCH_TIMEOUT, Relist};
use super::output::ReportKind;
use super::requests::{AfterWait, Next, Request, SHORT_WATCH, WatchRequest};
use super::stream::{Due, Lasted, READING, Stream, VERY_SHORT, WatchEnd};
use crate::error::Error;
use crate::resource_version::ResourceVersion;
use crate::wire::{EventKind, WATCH_SLACK};

/// The maximum silence of a watch if the server is known to send bookmarks. API servers send one
/// about once a minute. The server is known to send them once two have come within this time.
const BOOKMARK_SILENCE: Duration = Duration::from_secs(180);

/// The interval at which an API server sends bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of consecutive short watches that are opened again at once. Later ones start
/// at least a second apart.
const MAX_SHORT_WATCHES: u32 = 5;

/// A watch is open. The store has a list, and the events change it one by one.
pub(super) struct Watching {
    pub(super) stream: Stream,
    /// Whether the versions of ADDED events count. They do not at the start of a watch without a
    /// version, where these events are unordered (W10).
    pub(super) tracks_versions: bool,
    last_bookmark: Option<Instant>,
}

impl Watching {
    /// The server answers the request, which had this timeout and was sent at `started`.
    pub(super) fn opened(timeout: Duration, started: Instant, cycle: &mut Cycle) -> Self {
        cycle.waits.watch_opened(started + SHORT_WATCH);
        Self {
            stream: Stream::new(timeout, started, cycle),
            tracks_versions: cycle.version.is_specific(),
            last_bookmark: None,
        }
    }

    /// The stream of a watch-list whose initial events the store has.
    pub(super) fn after_initial_events(stream: Stream) -> Self {
        Self {
            stream,
            tracks_versions: true,
            last_bookmark: None,
        }
    }

    /// Returns what ends the watch now, although the driver reported nothing. Call it when there is
    /// no further frame.
    pub(super) fn take_due(&mut self, cycle: &mut Cycle) -> Option<Due> {
        if let Some(result) = self.stream.take_end() {
            return Some(Due::BodyEnd(result));
        }
        if let Some(relist) = cycle.take_due_relist() {
            return Some(Due::Relist(relist));
        }
        // A short watch is opened for waits, unless the open one is short and serves others.
        cycle.waits.needs_watch().then_some(Due::ShortWatch)
    }

    /// The time to wait for bytes. It ends at the latest when a relist is due, or when it is time to
    /// look at what the consumer of the store's queue has rejected.
    pub(super) fn read_timeout(&self, cycle: &Cycle) -> Duration {
        let silence = self.stream.silence;
        let left = self.max_silence(cycle).saturating_sub(silence);
        // Zero is not a valid read timeout.
        let left = left.max(Duration::from_millis(1));
        let repair = cycle.repair.time_left(silence, cycle.now);
        let list_at = cycle.waits.list_at(cycle.now);
        let list = list_at.map(|list_at| cycle.time_left(list_at));
        [repair, list]
            .into_iter()
            .flatten()
            .fold(left, Duration::min)
    }

    /// The silence after which the watch is considered dead. A server that is known to send
    /// bookmarks is silent for less, but if the user configured the idle timeout, only that counts.
    fn max_silence(&self, cycle: &Cycle) -> Duration {
        let timeout = self.stream.idle_timeout;
        let expects_bookmarks =
            cycle.server.sends_bookmarks && cycle.options.watch_idle_timeout.is_none();
        match expects_bookmarks {
            true => timeout.min(BOOKMARK_SILENCE),
            false => timeout,
        }
    }

    /// No bytes have arrived for this time. Returns whether the watch is considered dead, so that
    /// [`ended`](Self::ended) must handle it.
    pub(super) fn add_silence(&mut self, waited: Duration, cycle: &Cycle) -> bool {
        self.stream.silence += waited;
        self.stream.silence >= self.max_silence(cycle)
    }

    /// An event or a bookmark.
    ///
    /// The last version never goes back, and an event without a version keeps it. Otherwise the
    /// next watch would repeat events, for example after a deletion with the version of the last
    /// state. In client-go, every event replaces the last version (W10).
    pub(super) fn event(
        &mut self,
        kind: EventKind,
        version: Option<ResourceVersion>,
        cycle: &mut Cycle,
    ) {
        self.stream.count_event(cycle);
        cycle.watches.silent_lists = 0;
        self.tracks_versions |= kind != EventKind::Added;
        if let Some(version) = version
            && self.tracks_versions
        {
            version.advance(&mut cycle.version.seen);
            cycle.waits.reached(cycle.version.seen.as_ref());
        }
    }

    /// A bookmark (W10). Two of them in a short time show that the server sends them regularly.
    pub(super) fn bookmark(&mut self, version: Option<ResourceVersion>, cycle: &mut Cycle) {
        self.event(EventKind::Bookmark, version, cycle);
        if let Some(last) = self.last_bookmark.replace(cycle.now) {
            let interval = cycle.now.duration_since(last);
            cycle.server.sends_bookmarks |= interval <= BOOKMARK_SILENCE;
        }
    }

    /// Ends the watch to open another one from its version.
    pub(super) fn reopen(self, cycle: &mut Cycle) -> Next {
        self.reset_backoff_after_events(cycle);
        Request::Watch(WatchRequest::AtOnce).into()
    }

    /// Ends the watch, because a relist is due.
    pub(super) fn relist(self, relist: Relist, cycle: &mut Cycle) -> Next {
        self.reset_backoff_after_events(cycle);
        Request::due_relist(relist, cycle).into()
    }

    /// The watch cannot continue (W3–W7). It resumes from the last version, at once or after a
    /// back-off, or the reflector relists after a back-off.
    pub(super) fn ended(self, end: WatchEnd, cycle: &mut Cycle) -> Next {
        self.reset_backoff_after_events(cycle);
        match end {
            WatchEnd::Body(result) => match self.stream.report_end(result, cycle) {
                Lasted::VeryShort => Next::wait(cycle.back_off(None), AfterWait::Relist),
                Lasted::Longer => {
                    cycle.backoff.reset();
                    self.resume_unless_silent(cycle)
                }
            },
            WatchEnd::Silence => {
                let seconds = self.stream.silence.as_secs();
                let error = Error::timeout(format!("no data arrived for {seconds} s"));
                cycle.report(error, ReportKind::Other, READING);
                self.resume_unless_silent(cycle)
            }
            WatchEnd::Error(error) => {
                // Other errors, such as 410 Gone, lead to a relist.
                let next = match error.is_too_many_requests() {
                    true => AfterWait::Watch,
                    false => AfterWait::Relist,
                };
                cycle.version.suspect(&error);
                Next::wait(cycle.fail(error, ReportKind::Other, READING), next)
            }
            WatchEnd::Malformed(error) => self.malformed(error, cycle),
        }
    }

    /// Starts the back-off over if the watch has had an event (L3). A silent watch that the reflector
    /// ends proves nothing: the connection may be dead.
    fn reset_backoff_after_events(&self, cycle: &mut Cycle) {
        if self.stream.events > 0 {
            cycle.backoff.reset();
        }
    }

    /// A frame could not be decoded. The watch resumes once from the last good version. A second such
    /// frame at this version leads to a relist (W15).
    fn malformed(self, error: Error, cycle: &mut Cycle) -> Next {
        let before = cycle.watches.broken_frame.take();
        if before.is_some_and(|before| before.after == cycle.version.seen) {
            let wait = cycle.fail(error, ReportKind::Other, READING);
            return Next::wait(wait, AfterWait::Relist);
        }
        cycle.report(error, ReportKind::Other, READING);
        cycle.watches.broken_frame = Some(BrokenFrame {
            after: cycle.version.seen.clone(),
        });
        self.resume(cycle)
    }

    /// Resumes the watch, or relists if watches have been silent for too long in total. Such a
    /// silence can mean that etcd was restored: the server then has no events for a version in its
    /// future, and only a list detects this. Each such list without a following event doubles the
    /// time until the next one.
    fn resume_unless_silent(self, cycle: &mut Cycle) -> Next {
        let limit = match cycle.options.watch_idle_timeout {
            Some(timeout) => timeout.max(BOOKMARK_INTERVAL),
            None if cycle.server.sends_bookmarks => BOOKMARK_SILENCE,
            // The longest possible silence of one watch: its maximum duration and the slack.
            None => MIN_WATCH_TIMEOUT * 2 + WATCH_SLACK,
        };
        let watches = &mut cycle.watches;
        watches.silence += cycle.now.saturating_duration_since(self.stream.last_event);
        let lists = watches.silent_lists;
        if watches.silence < limit.saturating_mul(2).saturating_mul(1 << lists.min(31)) {
            return self.resume(cycle);
        }
        // Whether bookmarks are expected must not change, or the next list would be due after seven
        // times the time.
        (watches.silence, watches.silent_lists) = (Duration::ZERO, lists + 1);
        Next::wait(cycle.back_off(None), AfterWait::Relist)
    }

    /// Opens the watch again from the last version. After too many short watches, it waits for the
    /// rest of the second (W4).
    fn resume(self, cycle: &mut Cycle) -> Next {
        cycle.waits.watch_ended(cycle.now);
        let lasted = cycle.now.saturating_duration_since(self.stream.started);
        let left = VERY_SHORT.saturating_sub(lasted);
        cycle.watches.short = match left.is_zero() {
            true => 0,
            false => cycle.watches.short.saturating_add(1),
        };
        match cycle.watches.short > MAX_SHORT_WATCHES {
            true => Next::wait(left, AfterWait::Watch),
            false => Request::Watch(WatchRequest::AtOnce).into(),
        }
    }
}
