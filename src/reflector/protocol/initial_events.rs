//! The phases in which the initial events of a watch-list are received (WL3–WL12).

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::cycle::{Cycle, MIN_WATCH_TIMEOUT};
use super::output::ReportKind;
use super::repair::Completeness;
use super::requests::{AfterWait, Next, Request, WatchListRequest, WatchRequest};
use super::stream::{Due, Lasted, READING, Stream, WatchEnd};
use super::watching::Watching;
use crate::error::Error;
use crate::resource_version::ResourceVersion;
use crate::wire::{EventKind, WATCH_SLACK};

/// The maximum silence of the server before the initial events of a watch-list are complete (WL10).
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// The interval of the warnings while a watch-list is silent.
const SILENCE_WARNING: Duration = Duration::from_secs(10);

/// How long a server may send changes before the bookmark that ends the initial events (WL12).
///
/// Since 1.32, kube-apiserver sends the bookmark before the first change. Older versions send it up
/// to 1.25 s later, with changes in between: a change does not prove that none will come. A list too
/// many costs little.
const MARK_DELAY: Duration = Duration::from_secs(5);

/// If a watch-list ends early after this time, a list is requested at once: a longer one is not to be
/// expected.
const LONG_TRY: Duration = MIN_WATCH_TIMEOUT;

/// The initial events of a watch-list arrive. They are not in the store yet (WL3, WL7).
pub(super) struct InitialEvents {
    pub(super) stream: Stream,
    request: WatchListRequest,
    /// The newest version of the events that were not ADDED (WL5).
    newest: Option<ResourceVersion>,
    /// When the server should have ended the watch: after the requested time.
    ends_at: Instant,
    /// When the first event came that is not an initial one: a change, a deletion, or a bookmark
    /// that does not end the initial events. All later events are no initial ones either.
    changes_since: Option<Instant>,
}

impl InitialEvents {
    /// The server answers the request, which had this timeout and was sent at `started`.
    pub(super) fn opened(
        request: WatchListRequest,
        timeout: Duration,
        started: Instant,
        cycle: &Cycle,
    ) -> Self {
        Self {
            request,
            newest: None,
            ends_at: started + timeout + WATCH_SLACK,
            changes_since: None,
            stream: Stream::new(timeout, started, cycle),
        }
    }

    /// Returns what ends the phase now, although the driver reported nothing. Call it when there is
    /// no further frame.
    pub(super) fn take_due(&mut self, cycle: &Cycle) -> Option<Due> {
        if let Some(result) = self.stream.take_end() {
            return Some(Due::BodyEnd(result));
        }
        let (deadline, what) = self.deadline();
        (deadline <= cycle.now).then_some(Due::Late(what))
    }

    /// Returns when the initial events must be complete, and what is wrong if they are not.
    fn deadline(&self) -> (Instant, &'static str) {
        let ends = (self.ends_at, "the watch-list lasts longer than requested");
        let Some(since) = self.changes_since else {
            return ends;
        };
        let what = "the server has sent changes for 5 s, but not the bookmark that ends the initial events";
        ends.min((since + MARK_DELAY, what))
    }

    /// The time to wait for bytes.
    pub(super) fn read_timeout(&self, cycle: &Cycle) -> Duration {
        let (deadline, _) = self.deadline();
        cycle.time_left(deadline).min(SILENCE_WARNING)
    }

    /// No bytes have arrived for this time. Returns whether [`ended`](Self::ended) must
    /// handle the silence: once for each [`SILENCE_WARNING`].
    pub(super) fn add_silence(&mut self, waited: Duration) -> bool {
        let warnings = |silence: Duration| silence.as_secs() / SILENCE_WARNING.as_secs();
        let before = warnings(self.stream.silence);
        self.stream.silence += waited;
        warnings(self.stream.silence) > before
    }

    /// An event, or a bookmark that does not end the initial events.
    pub(super) fn event(
        &mut self,
        kind: EventKind,
        version: Option<ResourceVersion>,
        cycle: &mut Cycle,
    ) {
        self.stream.count_event(cycle);
        // The versions of ADDED events are unordered.
        if kind == EventKind::Added {
            return;
        }
        self.changes_since.get_or_insert(cycle.now);
        if let Some(version) = version {
            version.advance(&mut self.newest);
        }
    }

    /// The bookmark that ends the initial events has come (WL6).
    pub(super) fn complete(
        mut self,
        version: Option<ResourceVersion>,
        cycle: &mut Cycle,
    ) -> ControlFlow<Next, InitialEnd> {
        self.event(EventKind::Bookmark, version.clone(), cycle);
        // The version of the bookmark is that of the list. It may be older than those of the events,
        // as after a restore of etcd.
        match version.or(self.newest.take()) {
            Some(version) => ControlFlow::Continue(InitialEnd {
                stream: self.stream,
                version,
            }),
            None => {
                let what = "the bookmark that ends the initial events has no resourceVersion";
                ControlFlow::Break(self.reject(Error::invalid(what), cycle))
            }
        }
    }

    /// The watch-list cannot continue (WL8–WL12). After a silence shorter than [`MAX_SILENCE`], it
    /// does, and the silence is only reported.
    pub(super) fn ended(self, end: WatchEnd, cycle: &mut Cycle) -> ControlFlow<Next, Self> {
        ControlFlow::Break(match end {
            WatchEnd::Body(result) => self.body_ended(result, cycle),
            WatchEnd::Silence => return self.silent(cycle),
            WatchEnd::Error(error) => self.request.failed(error, READING, cycle),
            WatchEnd::Malformed(error) => self.reject(error, cycle),
        })
    }

    fn silent(self, cycle: &mut Cycle) -> ControlFlow<Next, Self> {
        let what = "the bookmark that ends the initial events is still missing";
        let seconds = self.stream.silence.as_secs();
        let error = Error::timeout(format!("no data arrived for {seconds} s; {what}"));
        if self.stream.silence >= MAX_SILENCE {
            return ControlFlow::Break(self.abandon(error, cycle));
        }
        cycle.report(error, ReportKind::Other, READING);
        ControlFlow::Continue(self)
    }

    /// The watch-list ended before its objects were complete (WL9). It is requested again, or a list
    /// after the last try.
    fn body_ended(self, result: Result<(), Error>, cycle: &mut Cycle) -> Next {
        if let Lasted::VeryShort = self.stream.report_end(result, cycle) {
            return Request::list(cycle).into();
        }
        let what = "the watch-list ended before the bookmark that ends its initial events";
        let error = Error::connection(what);
        let lasted = cycle.now.saturating_duration_since(self.stream.started);
        if lasted >= LONG_TRY {
            return self.abandon(error, cycle);
        }
        match self.request.next_try() {
            Some(request) => {
                cycle.report(error, ReportKind::Other, READING);
                Next::wait(cycle.back_off(None), AfterWait::WatchList(request))
            }
            None => self.abandon(error, cycle),
        }
    }

    /// Lists instead of waiting for the end of the initial events (WL9, WL10, WL12).
    pub(super) fn abandon(self, error: Error, cycle: &mut Cycle) -> Next {
        cycle.report(error, ReportKind::Other, READING);
        cycle.pause_watch_lists();
        Request::list(cycle).into()
    }

    /// Discards the initial events and lists instead.
    fn reject(self, error: Error, cycle: &mut Cycle) -> Next {
        cycle.report(error, ReportKind::Other, READING);
        Request::list(cycle).into()
    }
}

/// The initial events are complete. The next step is to replace the objects of the store. The stream
/// is not read meanwhile.
pub(super) struct InitialEnd {
    stream: Stream,
    /// The version of the list.
    pub(super) version: ResourceVersion,
}

impl InitialEnd {
    /// The store has the list. The following events are changes (WL6), and count as those of a watch
    /// from a real version (W11).
    pub(super) fn replaced(
        mut self,
        completeness: Completeness,
        cycle: &mut Cycle,
    ) -> ControlFlow<Next, Watching> {
        cycle.listed(Some(self.version), completeness);
        // The rest of a watch-list may stay silent, so a short watch follows while there are waits.
        if !cycle.waits.is_empty() {
            return ControlFlow::Break(Request::Watch(WatchRequest::AtOnce).into());
        }
        (self.stream.started, self.stream.events) = (cycle.now, 0);
        ControlFlow::Continue(Watching::after_initial_events(self.stream))
    }

    /// The store rejected the list. The server has a list at the version, so the mark of L11 ends
    /// (L15).
    pub(super) fn not_replaced(self, error: Error, cycle: &mut Cycle) -> Next {
        cycle.version.is_unavailable = false;
        let wait = cycle.fail(error, ReportKind::Request, READING);
        Next::wait(wait, AfterWait::Relist)
    }
}
