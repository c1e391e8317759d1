//! The list-watch protocol without I/O: client-go's `reflector.go` as a state machine.
//!
//! Each phase is a struct with its data and its transitions, which consume it. [`Phase`] shows how
//! they follow one another. [`Cycle`] is what outlives a phase.

mod cycle;
mod initial_events;
mod list;
mod listing;
mod output;
mod phase;
mod repair;
mod requests;
mod stream;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod waits;
mod watching;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::cycle::Cycle;
use self::initial_events::InitialEvents;
use self::listing::ListBody;
pub(super) use self::output::{Output, Report, ReportKind};
use self::phase::Phase;
pub(super) use self::repair::Completeness;
use self::requests::{AfterWait, Next, Request};
pub(super) use self::stream::WatchEnd;
use self::watching::Watching;
use super::catch_up::Target;
use super::{Missing, ReflectorOptions};
use crate::error::Error;
use crate::object::Key;
use crate::resource_version::ResourceVersion;
use crate::wire::{EventKind, Piece};

/// Decides what a reflector requests, how long it waits, and what follows a failure. It has no
/// thread, socket, clock, store or object type.
///
/// Drive it in a loop. Call [`poll`](Self::poll) and perform the [`Output`]:
///
/// - After a request, call [`opened`](Self::opened). After a wait, call [`waited`](Self::waited).
/// - On [`Output::Read`], read from the body and call [`read`](Self::read). Then call `poll` with
///   the bytes until it returns another [`Output::Read`]. After a timeout, call
///   [`read_timed_out`](Self::read_timed_out). At the end of the body, call [`ended`](Self::ended).
/// - On [`Output::Item`], store the item, and on [`Output::LargeItem`], record it as missing.
/// - On [`Output::Page`], call [`page_end`](Self::page_end) or [`list_failed`](Self::list_failed).
/// - On [`Output::Frame`] and [`Output::LargeFrame`], decode the frame. Call [`event`](Self::event),
///   [`bookmark`](Self::bookmark) or [`several_events`](Self::several_events). For an ERROR event
///   or a malformed frame, call [`watch_ended`](Self::watch_ended).
/// - On [`Output::Replace`], replace the objects of the store. Call [`replaced`](Self::replaced) or
///   [`not_replaced`](Self::not_replaced).
///
/// Each of these methods may end the request. If the next output does not belong to its body, drop
/// the body and the remaining bytes. These methods panic if they do not answer the last output.
/// Call [`abort_cycle`](Self::abort_cycle) if a step could not be performed, and the other methods
/// at any time.
pub(super) struct Protocol {
    phase: Phase,
    cycle: Cycle,
    /// The number of lists that have reached the store.
    pub(super) lists: u64,
    /// When a read or a wait ends for the next resync. `None` if none is scheduled.
    pub(super) resync_at: Option<Instant>,
}

impl Protocol {
    /// `watch_list` is whether the lister-watcher supports watch-lists.
    pub(super) fn new(
        options: &ReflectorOptions,
        watch_list: bool,
        missing: Arc<Missing>,
        now: Instant,
    ) -> Self {
        let mut options = options.clone();
        options.watch_list &= watch_list;
        // Treat zero as unset: a zero timeout would end each watch immediately.
        options.watch_idle_timeout = options
            .watch_idle_timeout
            .filter(|timeout| !timeout.is_zero());
        let mut cycle = Cycle::new(options, missing, now);
        Self {
            phase: Phase::Requesting(Request::relist(&mut cycle)),
            cycle,
            lists: 0,
            resync_at: None,
        }
    }

    /// Returns how many bytes of `input` were consumed, and what to do next. `input` contains the
    /// bytes read from the body.
    pub(super) fn poll<'a>(&'a mut self, input: &'a [u8]) -> (usize, Output<'a>) {
        let mut consumed = 0;
        // The next piece of the body and its offset in `input`. `output` turns them into bytes,
        // because the borrow checker rejects a slice of `self` that leaves this loop.
        let piece = loop {
            match self.phase.next(&input[consumed..]) {
                Ok((length, piece)) => {
                    let offset = consumed;
                    consumed += length;
                    if let Some(piece) = piece {
                        break Some((offset, piece));
                    }
                }
                Err(error) => {
                    self.change(|phase, cycle| phase.split_failed(error, cycle));
                    continue;
                }
            }
            // The body has no data left for now, so the phase may end.
            let Some(due) = self.phase.take_due(&mut self.cycle) else {
                break None;
            };
            self.change(|phase, cycle| phase.end(due, cycle));
        };
        (consumed, self.output(input, piece))
    }

    /// Returns what to do in this phase. `piece` is the item or frame that the body has for it.
    fn output<'a>(&'a mut self, input: &'a [u8], piece: Option<(usize, Piece)>) -> Output<'a> {
        match &self.phase {
            Phase::Requesting(request) => request.output(&mut self.cycle),
            Phase::ListBody(body) => match piece {
                Some((offset, piece)) => body.item(&input[offset..], piece),
                // The reflector sets no read timeout for a list (L18).
                None => Output::Read(None),
            },
            Phase::ListPage(page) => Output::Page(&page.page),
            Phase::ListEnd(list) => Output::Replace {
                version: list.version(),
            },
            Phase::InitialEvents(initial) => match piece {
                Some((offset, piece)) => initial.stream.frame(&input[offset..], piece),
                // Resyncs begin with the watch (W13), so they do not shorten the read.
                None => Output::Read(Some(initial.read_timeout(&self.cycle))),
            },
            Phase::InitialEnd(initial) => Output::Replace {
                version: Some(&initial.version),
            },
            Phase::Watching(watch) => match piece {
                Some((offset, piece)) => watch.stream.frame(&input[offset..], piece),
                None => {
                    let timeout = watch.read_timeout(&self.cycle);
                    Output::Read(Some(self.before_resync(timeout)))
                }
            },
            Phase::Waiting(waiting) => Output::Wait(self.before_resync(waiting.left)),
        }
    }

    /// Shortens a read or a wait that ends after the next resync.
    fn before_resync(&self, time: Duration) -> Duration {
        let resync = self.resync_at.map(|due| self.cycle.time_left(due));
        resync.map_or(time, |resync| resync.min(time))
    }

    /// Replaces the phase by the one that follows it.
    fn change(&mut self, transition: impl FnOnce(Phase, &mut Cycle) -> Phase) {
        // This phase remains only if the transition panics. It begins a new cycle.
        let interrupted = Next::wait(Duration::ZERO, AfterWait::Relist);
        let phase = std::mem::replace(&mut self.phase, interrupted.into());
        self.phase = transition(phase, &mut self.cycle);
    }

    /// Reports that the request was answered or failed. `timeout` is the timeout of the request in
    /// seconds.
    pub(super) fn opened(
        &mut self,
        result: Result<(), Error>,
        timeout: Option<u32>,
        started: Instant,
        now: Instant,
    ) {
        self.cycle.now = now;
        let timeout = Duration::from_secs(timeout.unwrap_or_default().into());
        self.change(|phase, cycle| {
            let Phase::Requesting(request) = phase else {
                unreachable!("no request was the last output")
            };
            match (request, result) {
                (request, Err(error)) => request.failed(error, cycle).into(),
                (Request::List(list), Ok(())) => Phase::ListBody(ListBody::opened(list, cycle)),
                (Request::WatchList(request), Ok(())) => {
                    let initial = InitialEvents::opened(request, timeout, started, cycle);
                    Phase::InitialEvents(initial)
                }
                (Request::Watch(_), Ok(())) => {
                    Phase::Watching(Watching::opened(timeout, started, cycle))
                }
            }
        });
    }

    /// Reports that bytes of the body were read.
    pub(super) fn read(&mut self, now: Instant) {
        self.cycle.now = now;
        match &mut self.phase {
            // The read of a list has no timeout, so no silence is measured.
            Phase::ListBody(_) => {}
            Phase::InitialEvents(initial) => initial.stream.read(),
            Phase::Watching(watch) => watch.stream.read(),
            _ => unreachable!("no read was the last output"),
        }
    }

    /// Reports that no bytes arrived within the timeout of [`Output::Read`], which is `waited`.
    /// `is_unprocessed` is whether the consumer of the store's queue has yet to process the last
    /// list.
    pub(super) fn read_timed_out(&mut self, waited: Duration, is_unprocessed: bool, now: Instant) {
        self.cycle.now = now;
        self.cycle.repair.is_unprocessed &= is_unprocessed;
        let is_silent = match &mut self.phase {
            Phase::InitialEvents(initial) => initial.add_silence(waited),
            Phase::Watching(watch) => watch.add_silence(waited, &self.cycle),
            _ => unreachable!("no read with a timeout was the last output"),
        };
        if is_silent {
            self.watch_ended(WatchEnd::Silence);
        }
    }

    /// Reports that the body ended or the connection broke. Nothing was read for `unread` before the
    /// read that found it.
    pub(super) fn ended(&mut self, result: Result<(), Error>, unread: Duration, now: Instant) {
        self.cycle.now = now;
        // The remaining frames of a watch come before its end.
        if let Some(stream) = self.phase.stream_mut() {
            return stream.ended(result, unread);
        }
        self.change(|phase, cycle| match phase {
            Phase::ListBody(body) => Phase::follow(body.ended(result, cycle), Phase::ListPage),
            _ => unreachable!("no read was the last output"),
        });
    }

    /// Reports how much of the wait is over.
    pub(super) fn waited(&mut self, time: Duration, now: Instant) {
        self.cycle.now = now;
        self.change(|phase, cycle| match phase {
            Phase::Waiting(waiting) => waiting.waited(time, cycle).into(),
            _ => unreachable!("no wait was the last output"),
        });
    }

    /// Reports that the page has been stored. `received` is the number of different objects of the
    /// list so far, readable or not.
    pub(super) fn page_end(&mut self, received: usize) {
        self.change(|phase, cycle| match phase {
            Phase::ListPage(page) => Phase::follow(page.stored(received, cycle), Phase::ListEnd),
            _ => unreachable!("no page was the last output"),
        });
    }

    /// Reports that the page cannot be used. For example, it is not one of the requested list.
    pub(super) fn list_failed(&mut self, error: Error) {
        self.change(|phase, cycle| match phase {
            Phase::ListPage(page) => page.failed(error, cycle).into(),
            _ => unreachable!("no page was the last output"),
        });
    }

    /// Reports that the store has the objects of [`Output::Replace`].
    pub(super) fn replaced(&mut self, completeness: Completeness) {
        self.lists += 1;
        self.change(|phase, cycle| match phase {
            Phase::ListEnd(list) => list.replaced(completeness, cycle).into(),
            Phase::InitialEnd(initial) => {
                Phase::follow(initial.replaced(completeness, cycle), Phase::Watching)
            }
            _ => unreachable!("no list was the last output"),
        });
    }

    /// Reports that the store rejected the objects of [`Output::Replace`].
    pub(super) fn not_replaced(&mut self, error: Error) {
        self.change(|phase, cycle| match phase {
            Phase::ListEnd(list) => list.not_replaced(error, cycle).into(),
            Phase::InitialEnd(initial) => initial.not_replaced(error, cycle).into(),
            _ => unreachable!("no list was the last output"),
        });
    }

    /// Reports a decoded event. `version` is the version of its object.
    pub(super) fn event(&mut self, kind: EventKind, version: Option<ResourceVersion>) {
        match &mut self.phase {
            Phase::InitialEvents(initial) => initial.event(kind, version, &mut self.cycle),
            Phase::Watching(watch) => watch.event(kind, version, &mut self.cycle),
            _ => unreachable!("no frame was the last output"),
        }
    }

    /// Reports a bookmark (W10, WL6).
    pub(super) fn bookmark(&mut self, version: Option<ResourceVersion>, initial_events_end: bool) {
        match &mut self.phase {
            // There are no initial events, whatever the server sends.
            Phase::Watching(watch) => watch.bookmark(version, &mut self.cycle),
            Phase::InitialEvents(_) if initial_events_end => {
                self.change(|phase, cycle| match phase {
                    Phase::InitialEvents(initial) => {
                        Phase::follow(initial.complete(version, cycle), Phase::InitialEnd)
                    }
                    _ => unreachable!("the phase has just been matched"),
                });
            }
            Phase::InitialEvents(initial) => {
                initial.event(EventKind::Bookmark, version, &mut self.cycle);
            }
            _ => unreachable!("no frame was the last output"),
        }
    }

    /// Reports that the frame of [`Output::Frame`] contains several events. The frame is then split.
    pub(super) fn several_events(&mut self) {
        match self.phase.stream_mut() {
            Some(stream) => stream.split_frame(),
            None => unreachable!("no frame was the last output"),
        }
    }

    /// Reports that the server sent an ERROR event, or that a frame is malformed.
    pub(super) fn watch_ended(&mut self, end: WatchEnd) {
        self.change(|phase, cycle| phase.watch_ended(end, cycle));
    }

    /// Begins a new cycle after a back-off, because a step could not be performed.
    ///
    /// Every phase allows it: a step may panic anywhere, also in a transition.
    pub(super) fn abort_cycle(&mut self, error: Error) {
        let reading = self.phase.reading();
        let wait = self.cycle.fail(error, ReportKind::Other, reading);
        self.phase = Next::wait(wait, AfterWait::Relist).into();
    }

    /// Ends the open watch. The next one continues from its version.
    pub(super) fn reopen(&mut self) {
        self.change(|phase, cycle| match phase {
            Phase::Watching(watch) => watch.reopen(cycle).into(),
            _ => unreachable!("no watch is open"),
        });
    }

    /// Requests that the store receives a version or a consistent list. An open watch that already
    /// serves other waits stays open.
    pub(super) fn want(&mut self, target: Target, now: Instant) {
        self.cycle.now = now;
        self.cycle.waits.add(target);
        let version = self.cycle.version.seen.as_ref();
        self.cycle.waits.reached(version);
    }

    /// Whether the open watch serves waits, so that a later one must not end it.
    pub(super) fn serves_waits(&self) -> bool {
        self.cycle.waits.is_served()
    }

    /// Reports that an object, or a change to an object, could not be decoded or stored.
    pub(super) fn missed(&mut self, key: Option<Key>, error: Error) {
        self.cycle.repair.missed(key, self.cycle.now);
        self.report(error, ReportKind::Object);
    }

    /// Reports the deletion of an object whose key could not be read. The store keeps the object
    /// until the next list.
    pub(super) fn lost_deletion(&mut self) {
        self.cycle.repair.lost_deletion(self.cycle.now);
    }

    /// Reports that the store rejected a change.
    pub(super) fn refused(&mut self, error: Error) {
        self.cycle.repair.refused();
        self.report(error, ReportKind::Object);
    }

    /// Reports that the store has an object without values in an index. Nothing is missing.
    pub(super) fn unindexed(&mut self, error: Error) {
        self.report(error, ReportKind::Object);
    }

    /// Reports that a later state of a missing object was stored, or that the object was deleted.
    pub(super) fn recovered(&mut self, key: &Key, is_deleted: bool) {
        self.cycle.repair.recovered(key, is_deleted, self.cycle.now);
    }

    /// Reports that the store's queue has something that its consumer may reject.
    pub(super) fn queued(&mut self) {
        self.cycle.repair.is_unprocessed = true;
    }

    /// Adds a report. The phase determines what was being read. The store may reject changes after
    /// their stream has ended, so any phase is possible.
    pub(super) fn report(&mut self, error: Error, kind: ReportKind) {
        let reading = self.phase.reading();
        self.cycle.report(error, kind, reading);
    }

    /// Returns the failures since the last call.
    pub(super) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.cycle.reports)
    }

    /// The version of the last list, or the newest one of the events and bookmarks since then.
    /// `None` before the first list, and if the server sends no versions.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.cycle.version.seen.as_ref()
    }

    /// Whether every object in the last list and in the events since then could be read.
    pub(super) fn is_complete(&self) -> bool {
        self.cycle.repair.is_complete
    }

    /// The total number of objects that could not be read or stored.
    pub(super) fn unreadable(&self) -> u64 {
        self.cycle.repair.unreadable
    }

    /// Whether a watch is open and has had an event.
    pub(super) fn is_healthy(&self) -> bool {
        matches!(&self.phase, Phase::Watching(watch) if watch.stream.events > 0)
    }

    /// Whether a watch is open or is the next request. Resyncs run in this state
    /// (W13).
    pub(super) fn is_watching(&self) -> bool {
        self.phase.is_watching()
    }

    /// Whether the current or next request is a watch, or a watch-list that can become one.
    pub(super) fn is_streaming(&self) -> bool {
        self.phase.is_streaming()
    }

    /// Whether a watch is open.
    pub(super) fn has_open_watch(&self) -> bool {
        matches!(self.phase, Phase::Watching(_))
    }

    /// Whether the next step is a wait.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_))
    }

    /// "list" or "watch-list" while one is requested or received.
    pub(super) fn listing(&self) -> Option<&'static str> {
        self.phase.listing()
    }

    /// Whether objects of the current list or watch-list may have been received.
    pub(super) fn is_receiving_list(&self) -> bool {
        self.phase.is_receiving_list()
    }

    /// The number of objects on further pages, if the server reported it.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.phase.list()?.pages.remaining
    }

    /// Whether the server confirmed on each page of the list that it selected the objects of the
    /// shard. `None` for a watch-list, or without a shard.
    pub(super) fn list_shard_confirmed(&self) -> Option<bool> {
        self.cycle.options.shard.as_ref()?;
        let list = self.phase.list()?;
        Some(!list.pages.has_unconfirmed)
    }

    /// Whether the version of an ADDED event counts now.
    pub(super) fn tracks_versions(&self) -> bool {
        matches!(&self.phase, Phase::Watching(watch) if watch.tracks_versions)
    }

    /// The position of the next event in the watch, for messages.
    pub(super) fn event_position(&self) -> String {
        match self.phase.stream() {
            Some(stream) => stream.event_position(self.version()),
            None => unreachable!("no frame was the last output"),
        }
    }
}
