//! The list-watch protocol without I/O: client-go's `reflector.go` as a state machine.

mod list;
mod output;
mod repair;
mod waits;
mod watch;
mod watch_ends;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::list::{ListRequest, Listed};
pub(super) use self::output::{Output, Report, ReportKind};
pub(super) use self::repair::Completeness;
use self::repair::Repair;
use self::waits::Waits;
use self::watch::{Stage, WatchStream};
use self::watch_ends::Silence;
pub(super) use self::watch_ends::WatchEnd;
use super::catch_up::Target;
use super::{Missing, ReflectorOptions};
use crate::error::{Error, MAX_RETRY_AFTER};
use crate::object::Key;
use crate::resource_version::ResourceVersion;
use crate::time::{Backoff, Random};
use crate::wire::{
    FrameSplitter, ListMeta, ListOptions, ListSplitter, Piece, ResourceVersionMatch, Shard,
    SplitError, WATCH_SLACK,
};

/// The minimum duration of a watch (W1).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// The duration of a watch that must tell the version of the server, in seconds. kube-apiserver
/// sends a bookmark two seconds before a watch ends, but not in shorter watches.
const BOOKMARK_SECONDS: u32 = 3;

/// Decides what a reflector requests, how long it waits, and what follows a failure. It has no
/// thread, socket, clock, store or object type.
///
/// Drive it in a loop. Call [`poll`](Self::poll) and perform the [`Output`]:
///
/// - After a request, call [`opened`](Self::opened). After a wait, call [`waited`](Self::waited).
/// - On [`Output::Read`], read from the body and call [`read`](Self::read). Then call `poll` with
///   the bytes until it returns another [`Output::Read`]. After a timeout, call
///   [`read_timed_out`](Self::read_timed_out). At the end of the body, call [`ended`](Self::ended).
/// - On [`Output::Item`], store the item, and on [`Output::LargeItem`], record it as missing. On [`Output::Page`], call [`page_end`](Self::page_end).
/// - On [`Output::Frame`] and [`Output::LargeFrame`], decode the frame. Call [`event`](Self::event),
///   [`bookmark`](Self::bookmark) or [`several_events`](Self::several_events). For an ERROR event
///   or a malformed frame, call [`watch_ended`](Self::watch_ended).
/// - On [`Output::Replace`], replace the objects of the store. Call [`replaced`](Self::replaced) or
///   [`not_replaced`](Self::not_replaced).
///
/// Each of these methods may end the request. If the next output does not belong to its body, drop
/// the body and the remaining bytes.
pub(super) struct Protocol {
    options: ReflectorOptions,
    phase: Phase,
    /// The version of the last list, or the newest one of the events and bookmarks since then.
    /// `None` before the first list, and if the server sends no versions. client-go's
    /// `lastSyncResourceVersion`.
    pub(super) version: Option<ResourceVersion>,
    /// The number of lists that have reached the store.
    pub(super) lists: u64,
    /// Whether the last version cannot be listed. The next list then requests the most recent one
    /// (L8, L11).
    version_unavailable: bool,
    /// Whether a list at "0" had several pages. The server then has no watch cache, so all lists
    /// request pages (L10).
    paginated: bool,
    /// The time before which no watch-list is requested.
    watch_list_paused_until: Option<Instant>,
    /// The number of consecutive watches in this cycle that ended within a second.
    short_watches: u32,
    silence: Silence,
    /// The last frame that could not be decoded. If there is another one at the same version,
    /// resuming the watch does not help.
    broken_frame: Option<BrokenFrame>,
    backoff: Backoff,
    random: Random,
    repair: Repair,
    waits: Waits,
    /// The time that was passed to the last method call.
    now: Instant,
    reports: Vec<Report>,
    /// When a read or a wait ends for the next resync. `None` if resyncs have a thread.
    pub(super) resync_at: Option<Instant>,
}

/// A frame that could not be decoded.
struct BrokenFrame {
    /// The last version before it.
    after: Option<ResourceVersion>,
}

enum Phase {
    /// Request a page.
    List(ListRequest),
    ListBody(ListRequest, ListSplitter),
    /// A page is complete.
    ListPage(ListRequest, ListMeta),
    /// The last page is complete.
    ListEnd(ListRequest),
    /// `has_waited` is whether the last step was a wait.
    Watch {
        has_waited: bool,
    },
    WatchList {
        /// The number of watch-lists in this cycle that ended before they were complete.
        unfinished: u32,
    },
    WatchBody(WatchStream),
    Wait(Duration, AfterWait),
}

const WATCH: Phase = Phase::Watch { has_waited: false };

/// What follows a wait.
#[derive(Clone, Copy)]
enum AfterWait {
    /// A watch-list or a list.
    Relist,
    List,
    Watch,
    WatchList {
        unfinished: u32,
    },
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
        let mut protocol = Self {
            phase: WATCH,
            version: None,
            lists: 0,
            version_unavailable: false,
            paginated: false,
            watch_list_paused_until: None,
            short_watches: 0,
            silence: Silence::default(),
            broken_frame: None,
            backoff: options.backoff.clone(),
            random: Random::new(),
            waits: Waits::default(),
            repair: Repair::new(missing, options.backoff.clone()),
            options,
            now,
            reports: Vec::new(),
            resync_at: None,
        };
        protocol.relist();
        protocol
    }

    /// Returns how many bytes of `input` were consumed, and what to do next. `input` contains the
    /// bytes read from the body.
    pub(super) fn poll<'a>(&'a mut self, input: &'a [u8]) -> (usize, Output<'a>) {
        let mut consumed = 0;
        // The next piece of the body and its offset in `input`. `output` turns them into bytes,
        // because the borrow checker rejects a slice of `self` that leaves this loop.
        let piece = loop {
            let split = match &mut self.phase {
                Phase::ListBody(_, splitter) => splitter.next(&input[consumed..]),
                Phase::WatchBody(watch) if watch.initial_version().is_none() => {
                    watch.next(&input[consumed..])
                }
                _ => Ok((0, None)),
            };
            match split {
                Ok((more, piece)) => {
                    let offset = consumed;
                    consumed += more;
                    if piece.is_none() && self.take_step() {
                        continue;
                    }
                    break piece.map(|piece| (offset, piece));
                }
                Err(error) => self.split_failed(error),
            }
        };
        (consumed, self.output(input, piece))
    }

    /// Changes the phase if the body has no data left or a relist is due. Returns whether the phase
    /// changed.
    fn take_step(&mut self) -> bool {
        if let Phase::WatchBody(watch) = &mut self.phase
            && watch.initial_version().is_none()
            && let Some(result) = watch.ended.take()
        {
            self.watch_ended(WatchEnd::Body(result));
            return true;
        }
        if let Phase::WatchBody(watch) = &self.phase
            && let Some((deadline, what)) = watch.initial_deadline()
            && deadline <= self.now
        {
            self.abandon_watch_list(Error::timeout(what));
            return true;
        }
        if self.relist_if_due() {
            return true;
        }
        // A short watch is opened for waits, unless the open one is short and serves others.
        let needs_watch = self.has_open_watch() && self.waits.needs_watch();
        if needs_watch {
            self.reopen();
        }
        needs_watch
    }

    fn output<'a>(&'a mut self, input: &'a [u8], piece: Option<(usize, Piece)>) -> Output<'a> {
        let timeout = match &self.phase {
            Phase::WatchBody(watch) => Some(self.read_timeout(watch)),
            Phase::Wait(left, _) => Some(
                self.time_left(self.resync_at)
                    .map_or(*left, |due| due.min(*left)),
            ),
            _ => None,
        };
        let Self {
            options, random, ..
        } = self;
        match &self.phase {
            Phase::List(list) => Output::List(ListOptions {
                shard_selector: shard_selector(options),
                ..list.options()
            }),
            Phase::ListBody(_, splitter) => match piece {
                Some((offset, piece @ Piece::Head)) => {
                    Output::LargeItem(splitter.piece(&input[offset..], piece))
                }
                Some((offset, piece)) => Output::Item {
                    bytes: splitter.piece(&input[offset..], piece),
                    head: splitter.head(),
                },
                None => Output::Read(None),
            },
            Phase::ListPage(_, page) => Output::Page(page),
            Phase::ListEnd(list) => Output::Replace {
                version: list.pages.version.as_ref(),
            },
            Phase::WatchBody(watch) => match (watch.initial_version(), piece) {
                (Some(version), _) => Output::Replace {
                    version: Some(version),
                },
                (None, Some((offset, piece @ Piece::Head))) => {
                    Output::LargeFrame(watch.frames.piece(&input[offset..], piece))
                }
                (None, Some((offset, piece))) => {
                    Output::Frame(watch.frames.piece(&input[offset..], piece))
                }
                (None, None) => Output::Read(timeout),
            },
            Phase::Wait(..) => Output::Wait(timeout.unwrap_or_default()),
            Phase::Watch { .. } => {
                let mut watch = watch_options(options, random);
                if !self.waits.is_empty() {
                    watch.timeout_seconds = Some(BOOKMARK_SECONDS);
                }
                watch.resource_version = self.version.as_ref().map(ToString::to_string);
                Output::Watch(watch)
            }
            // The objects must not be older than a version seen before. Before the first version,
            // or if the last version is unavailable, the request is a consistent read (WL2).
            Phase::WatchList { .. } => Output::Watch(ListOptions {
                resource_version: match (self.version_unavailable, &self.version) {
                    (false, Some(version)) => Listed::AtLeast(version.clone()),
                    (true, _) | (false, None) => Listed::Consistent,
                }
                .resource_version(),
                resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
                send_initial_events: true,
                ..watch_options(options, random)
            }),
        }
    }

    /// Whether every object in the last list and in the events since then could be read.
    pub(super) fn is_complete(&self) -> bool {
        self.repair.is_complete
    }

    /// The total number of objects that could not be read or stored.
    pub(super) fn unreadable(&self) -> u64 {
        self.repair.unreadable
    }

    /// Whether a watch is open and has had an event.
    pub(super) fn is_healthy(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watch) if !watch.is_initial() && watch.events > 0)
    }

    /// Whether a watch is open or is the next request. The resync thread starts in this state
    /// (W13).
    pub(super) fn is_watching(&self) -> bool {
        let is_next = matches!(
            self.phase,
            Phase::Watch { .. } | Phase::Wait(_, AfterWait::Watch)
        );
        is_next || self.has_open_watch()
    }

    /// Whether the current or next request is a watch, or a watch-list that can become one.
    pub(super) fn is_streaming(&self) -> bool {
        let is_stream = matches!(self.phase, Phase::WatchList { .. } | Phase::WatchBody(_));
        is_stream || self.is_watching()
    }

    /// Whether a watch is open.
    pub(super) fn has_open_watch(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watch) if !watch.is_initial())
    }

    /// Requests that the store receives a version or a consistent list. An open watch that already
    /// serves other waits stays open.
    pub(super) fn want(&mut self, target: Target, now: Instant) {
        self.now = now;
        self.waits.add(target);
        self.waits.reached(self.version.as_ref());
    }

    /// Whether the open watch serves waits, so that a later one must not end it.
    pub(super) fn serves_waits(&self) -> bool {
        self.waits.is_served()
    }

    /// Ends the open watch, if there is one. The next one continues from its version.
    pub(super) fn reopen(&mut self) {
        if self.has_open_watch() {
            self.phase = WATCH;
        }
    }

    /// Whether the next step is a wait.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Wait(..))
    }

    fn list(&self) -> Option<&ListRequest> {
        match &self.phase {
            Phase::List(list)
            | Phase::ListBody(list, _)
            | Phase::ListPage(list, _)
            | Phase::ListEnd(list) => Some(list),
            _ => None,
        }
    }

    /// "list" or "watch-list" while one is requested or received.
    pub(super) fn listing(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::WatchList { .. } => Some("watch-list"),
            Phase::WatchBody(watch) => watch.is_initial().then_some("watch-list"),
            _ => self.list().map(|_| "list"),
        }
    }

    /// Whether objects of the current list or watch-list may have been received.
    pub(super) fn is_receiving_list(&self) -> bool {
        match &self.phase {
            Phase::List(list) => list.pages.count > 0,
            Phase::WatchBody(watch) => watch.is_initial(),
            _ => self.list().is_some(),
        }
    }

    /// The number of objects on further pages, if the server reported it.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.list()?.pages.remaining
    }

    /// Whether the server confirmed on each page of the list that it selected the objects of the
    /// shard. `None` for a watch-list, or without a shard.
    pub(super) fn list_shard_confirmed(&self) -> Option<bool> {
        self.options.shard.as_ref()?;
        self.list().map(|list| !list.pages.has_unconfirmed)
    }

    /// The position of the next event in the watch, for messages.
    pub(super) fn event_position(&self) -> String {
        let events = match &self.phase {
            Phase::WatchBody(watch) => watch.events,
            _ => 0,
        };
        watch::event_position(events + 1, self.version.as_ref())
    }

    /// Returns the failures since the last call.
    pub(super) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
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
        self.now = now;
        match (self.take_phase(), result) {
            (Phase::List(list), Ok(())) => {
                let splitter = ListSplitter::new(self.options.limits.object_bytes);
                self.phase = Phase::ListBody(list, splitter);
            }
            (Phase::List(list), Err(error)) => {
                self.phase = Phase::List(list);
                self.list_failed(error);
            }
            (Phase::Watch { .. }, Ok(())) => {
                let changes = Stage::Changes {
                    tracks_versions: self.is_at_a_version(),
                    last_bookmark: None,
                };
                self.begin_watch(changes, timeout, started);
                let list_at = started + Duration::from_secs(BOOKMARK_SECONDS.into());
                self.waits.watch_opened(list_at);
            }
            (Phase::Watch { .. }, Err(error)) => self.watch_request_failed(error),
            (Phase::WatchList { unfinished }, Ok(())) => {
                let initial = Stage::Initial {
                    newest: None,
                    complete_at: None,
                    unfinished,
                    ends_at: started + requested_time(timeout) + WATCH_SLACK,
                    changes_since: None,
                };
                self.begin_watch(initial, timeout, started);
            }
            (Phase::WatchList { unfinished }, Err(error)) => {
                self.watch_list_failed(unfinished, error);
            }
            (phase, _) => self.phase = phase,
        }
    }

    fn begin_watch(&mut self, stage: Stage, timeout: Option<u32>, started: Instant) {
        let timeout = requested_time(timeout);
        let idle_timeout = self.options.watch_idle_timeout;
        self.phase = Phase::WatchBody(WatchStream {
            stage,
            frames: FrameSplitter::new(self.options.limits.object_bytes),
            started,
            last_event: started,
            events: 0,
            idle_timeout: idle_timeout.unwrap_or(timeout + WATCH_SLACK),
            silence: Duration::ZERO,
            ended: None,
        });
    }

    /// Takes the phase to change it. The caller must set the phase again.
    fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, WATCH)
    }

    /// Reports that bytes of the body were read.
    pub(super) fn read(&mut self, now: Instant) {
        self.now = now;
        if let Phase::WatchBody(watch) = &mut self.phase {
            watch.silence = Duration::ZERO;
        }
    }

    /// Reports that the store's queue has something that its consumer may reject.
    pub(super) fn queued(&mut self) {
        self.repair.is_unprocessed = true;
    }

    /// Reports that no bytes arrived within the timeout of [`Output::Read`]. `is_unprocessed` is
    /// whether the consumer of the store's queue has yet to process the last list.
    pub(super) fn read_timed_out(&mut self, is_unprocessed: bool, now: Instant) {
        if let Phase::WatchBody(watch) = &self.phase {
            let timeout = self.read_timeout(watch);
            let longest = watch.read_timeout(self.expects_bookmarks());
            self.repair.is_unprocessed &= is_unprocessed;
            let Phase::WatchBody(watch) = &mut self.phase else {
                return;
            };
            watch.silence += timeout;
            self.now = now;
            if watch.silence >= longest {
                self.watch_ended(WatchEnd::Silence);
            }
        }
    }

    /// Reports that the body ended or the connection broke.
    pub(super) fn ended(&mut self, result: Result<(), Error>, now: Instant) {
        self.now = now;
        match (&mut self.phase, result) {
            (Phase::ListBody(_, splitter), Ok(())) => match splitter.finish() {
                Ok(page) => {
                    if let Phase::ListBody(list, _) = self.take_phase() {
                        self.phase = Phase::ListPage(list, page);
                    }
                }
                Err(error) => self.list_failed(error.into()),
            },
            (Phase::ListBody(..), Err(error)) => self.list_failed(error),
            (Phase::WatchBody(watch), result) => watch.ended = Some(result),
            _ => {}
        }
    }

    /// Reports how much of the wait is over.
    pub(super) fn waited(&mut self, time: Duration, now: Instant) {
        self.now = now;
        if let Phase::Wait(left, next) = &mut self.phase {
            *left = left.saturating_sub(time);
            if !left.is_zero() {
                return;
            }
            match *next {
                AfterWait::Relist => self.relist(),
                AfterWait::List => self.begin_list(),
                AfterWait::Watch => self.phase = Phase::Watch { has_waited: true },
                AfterWait::WatchList { unfinished } => self.phase = Phase::WatchList { unfinished },
            }
        }
    }

    /// Begins a new cycle after a back-off, because a step could not be performed.
    pub(super) fn abort_cycle(&mut self, error: Error) {
        self.fail(error, ReportKind::Other, AfterWait::Relist);
    }

    /// "list" or "watch" while a body is read.
    fn reading(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::ListBody(..) | Phase::ListPage(..) | Phase::ListEnd(_) => Some("list"),
            Phase::WatchBody(_) => Some("watch"),
            _ => None,
        }
    }

    /// Reports that the page has been stored. `received` is the number of different objects of the
    /// list so far, readable or not.
    pub(super) fn page_end(&mut self, received: usize) {
        let selector = shard_selector(&self.options);
        match self.take_phase() {
            Phase::ListPage(mut list, page) => match list.page_end(&page, received, &selector) {
                Ok(true) => self.phase = Phase::List(list),
                Ok(false) => self.phase = Phase::ListEnd(list),
                Err(error) => {
                    self.phase = Phase::ListPage(list, page);
                    self.list_failed(error);
                }
            },
            phase => self.phase = phase,
        }
    }

    /// Reports that the list failed. For example, the body is not the requested list.
    pub(super) fn list_failed(&mut self, error: Error) {
        let retries = match &mut self.phase {
            Phase::List(list) | Phase::ListBody(list, _) | Phase::ListPage(list, _) => {
                list.retry(&error)
            }
            _ => false,
        };
        match self.take_phase() {
            Phase::List(list) | Phase::ListBody(list, _) | Phase::ListPage(list, _) if retries => {
                self.version_unavailable |= list.retried;
                self.phase = Phase::List(list);
            }
            phase => {
                self.phase = phase;
                self.fail(error, ReportKind::Request, AfterWait::Relist);
            }
        }
    }

    /// Reports that the store has the objects of [`Output::Replace`].
    pub(super) fn replaced(&mut self, completeness: Completeness) {
        self.version = self.take_list_version();
        self.waits.listed();
        self.waits.reached(self.version.as_ref());
        self.silence.total = Duration::ZERO;
        self.lists += 1;
        self.broken_frame = None;
        self.repair.listed(completeness, self.now);
        // The rest of a watch-list may stay silent, so a short watch follows while there are waits.
        if matches!(self.phase, Phase::ListEnd(_)) || !self.waits.is_empty() {
            self.phase = WATCH;
        }
    }

    /// Reports that the store rejected the objects of [`Output::Replace`].
    pub(super) fn not_replaced(&mut self, error: Error) {
        self.take_list_version();
        self.fail(error, ReportKind::Request, AfterWait::Relist);
    }

    fn take_list_version(&mut self) -> Option<ResourceVersion> {
        self.version_unavailable = false;
        match &mut self.phase {
            Phase::ListEnd(list) => {
                self.paginated |= list.was_paginated_at_zero();
                list.pages.version.clone()
            }
            Phase::WatchBody(watch) => watch.end_initial_events(self.now),
            _ => None,
        }
    }

    /// Discards the initial events of the watch-list and lists instead.
    pub(super) fn reject_initial_events(&mut self, error: Error) {
        self.report(error, ReportKind::Other);
        self.begin_list();
    }

    /// Reports that an object, or a change to an object, could not be decoded or stored.
    pub(super) fn missed(&mut self, key: Option<Key>, error: Error) {
        self.repair.missed(key, self.now);
        self.report(error, ReportKind::Object);
    }

    /// Reports the deletion of an object whose key could not be read. The store keeps the object
    /// until the next list.
    pub(super) fn lost_deletion(&mut self) {
        self.repair.lost_deletion(self.now);
    }

    /// Reports that the store rejected a change.
    pub(super) fn refused(&mut self, error: Error) {
        self.repair.refused();
        self.report(error, ReportKind::Object);
    }

    /// Reports that the store has an object without values in an index. Nothing is missing.
    pub(super) fn unindexed(&mut self, error: Error) {
        self.report(error, ReportKind::Object);
    }

    /// Reports that a later state of a missing object was stored, or that the object was deleted.
    pub(super) fn recovered(&mut self, key: &Key, is_deleted: bool) {
        self.repair.recovered(key, is_deleted, self.now);
    }

    /// Begins a new cycle: a watch-list or a list for the objects, and then a watch (L6).
    fn relist(&mut self) {
        self.short_watches = 0;
        let may_watch_list = self
            .watch_list_paused_until
            .is_none_or(|until| self.now >= until);
        if self.options.watch_list && may_watch_list {
            self.phase = Phase::WatchList { unfinished: 0 };
        } else {
            self.begin_list();
        }
    }

    fn begin_list(&mut self) {
        // The list must not be older than a version seen before, unless that version is unavailable
        // (L8). The first list of a shard is consistent, because another process may have worked on
        // its objects before.
        let listed = if self.version_unavailable {
            Listed::Consistent
        } else {
            match &self.version {
                Some(version) if version.is_any() => Listed::AnyVersion,
                Some(version) => Listed::AtLeast(version.clone()),
                None if self.options.shard.is_some() => Listed::Consistent,
                None => Listed::AnyVersion,
            }
        };
        self.phase = Phase::List(ListRequest::new(
            listed,
            self.options.page_size,
            self.paginated,
        ));
    }

    fn split_failed(&mut self, error: SplitError) {
        match &self.phase {
            Phase::ListBody(..) => self.list_failed(error.into()),
            _ => self.watch_ended(WatchEnd::Malformed(error.into())),
        }
    }

    /// The time to wait for bytes of a watch. A wait ends at the latest when a relist is due, or
    /// when it is time to look at what the consumer of the store's queue has rejected.
    fn read_timeout(&self, watch: &WatchStream) -> Duration {
        let timeout = watch.read_timeout(self.expects_bookmarks());
        if watch.is_initial() {
            let deadline = watch.initial_deadline().map(|(deadline, _)| deadline);
            return self
                .time_left(deadline)
                .map_or(timeout, |left| left.min(timeout));
        }
        let left = timeout.saturating_sub(watch.silence);
        let left = left.max(Duration::from_millis(1));
        let sooner = self.repair.time_left(watch.silence, self.now);
        let list_at = self.waits.list_at(self.now);
        let (list_in, resync_in) = (self.time_left(list_at), self.time_left(self.resync_at));
        [Some(left), sooner, list_in, resync_in]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(left)
    }

    fn time_left(&self, at: Option<Instant>) -> Option<Duration> {
        let left = at?.saturating_duration_since(self.now);
        Some(left.max(Duration::from_millis(1)))
    }

    /// Relists instead of watching if an object is missing and a relist is due.
    fn relist_if_due(&mut self) -> bool {
        let events = match &self.phase {
            // After a wait, open the watch first, even if a relist is due.
            Phase::Watch { has_waited: false } => 0,
            Phase::WatchBody(watch) if !watch.is_initial() => watch.events,
            _ => return false,
        };
        // The watch has not brought what waits require: only a consistent list will do.
        if self
            .waits
            .list_at(self.now)
            .is_some_and(|at| at <= self.now)
        {
            self.waits.list_begins();
            self.version_unavailable = true;
            self.relist();
            return true;
        }
        self.repair.update(self.now);
        if !self.repair.take_due(self.now) {
            return false;
        }
        if events > 0 {
            self.backoff.reset();
        }
        self.relist();
        true
    }

    /// Whether a silence without bookmarks indicates a failure. If the user configured the idle
    /// timeout, only that timeout counts.
    fn expects_bookmarks(&self) -> bool {
        self.silence.sends_bookmarks && self.options.watch_idle_timeout.is_none()
    }

    /// Begins a wait (L1): the next back-off, or `at_least` if that is longer. `at_least` counts
    /// only up to [`MAX_RETRY_AFTER`].
    fn wait(&mut self, at_least: Option<Duration>, next: AfterWait) {
        let wait = self
            .backoff
            .step()
            .max(at_least.unwrap_or_default().min(MAX_RETRY_AFTER));
        self.phase = Phase::Wait(wait, next);
    }

    /// Reports a failure, and begins the wait after it.
    fn fail(&mut self, error: Error, kind: ReportKind, next: AfterWait) {
        let retry_after = error.retry_after();
        self.report(error, kind);
        self.wait(retry_after, next);
    }

    /// Adds a report. Call this before changing the phase, because the phase determines what was
    /// being read.
    pub(super) fn report(&mut self, error: Error, kind: ReportKind) {
        let reading = self.reading();
        self.reports.push(Report {
            error,
            kind,
            reading,
        });
    }
}

fn requested_time(timeout: Option<u32>) -> Duration {
    Duration::from_secs(timeout.unwrap_or_default().into())
}

fn shard_selector(options: &ReflectorOptions) -> String {
    let shard = options.shard.as_ref();
    shard.map(Shard::selector).unwrap_or_default()
}

/// Returns the options that watches and watch-lists share. The timeout is between one and two
/// times the minimum, so that watches do not end at the same time.
fn watch_options(options: &ReflectorOptions, random: &mut Random) -> ListOptions {
    let seconds = MIN_WATCH_TIMEOUT.as_secs_f64() * (1.0 + random.unit());
    ListOptions {
        allow_watch_bookmarks: true,
        timeout_seconds: Some(seconds as u32),
        shard_selector: shard_selector(options),
        ..ListOptions::default()
    }
}
