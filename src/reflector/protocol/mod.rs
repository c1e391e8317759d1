//! The list-watch protocol without I/O: client-go's `reflector.go` as a state machine.

mod list;
mod output;
mod repair;
mod watch;
mod watch_ends;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::list::{ListRequest, Retry};
pub(super) use self::output::{Output, Report, ReportKind};
use self::repair::Repair;
use self::watch::{RetryWindow, WatchStream};
pub(super) use self::watch_ends::WatchEnd;
use super::{Missing, ReflectorOptions};
use crate::error::{Error, MAX_RETRY_AFTER};
use crate::object::Key;
use crate::time::{Backoff, Random};
use crate::wire::{ListOptions, Piece, ResourceVersionMatch, Shard, SplitError, WATCH_SLACK};

/// How soon after the last change of a watch the reflector looks at what the consumer of the store's
/// queue has rejected.
const REJECTION_CHECK: Duration = Duration::from_secs(1);

/// Decides what a reflector requests, how long it waits, and what follows a failure. It has no
/// thread, socket, clock, store or object type.
///
/// Drive it in a loop. Call [`poll`](Self::poll) and perform the [`Output`]:
///
/// - After a request, call [`opened`](Self::opened). After a wait, call [`waited`](Self::waited).
/// - On [`Output::Read`], read from the body and call [`read`](Self::read). Then call `poll` with
///   the bytes until it returns another [`Output::Read`]. After a timeout, call
///   [`read_timed_out`](Self::read_timed_out). At the end of the body, call [`ended`](Self::ended).
/// - On [`Output::Item`], store the item. On [`Output::Page`], call [`page_end`](Self::page_end).
/// - On [`Output::Frame`], decode the frame. Call [`event`](Self::event),
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
    /// Empty before the first list. client-go's `lastSyncResourceVersion`.
    version: String,
    /// The number of lists that have reached the store.
    replaced: u64,
    /// Whether the last version cannot be listed. The next list then requests the most recent one
    /// (L8, L11).
    version_unavailable: bool,
    /// Whether a list at "0" had several pages. The server then has no watch cache, so all lists
    /// request pages (L10).
    paginated: bool,
    /// The number of watch-lists in this cycle that ended before they were complete.
    unfinished_watch_lists: u32,
    /// The time before which no watch-list is requested.
    watch_list_paused_until: Option<Instant>,
    /// The number of consecutive watches in this cycle that ended within a second.
    short_watches: u32,
    /// Whether the server is known to send bookmarks regularly.
    server_sends_bookmarks: bool,
    /// How long watches have been silent since the last event or list.
    total_silence: Duration,
    /// The number of lists since the last event that were caused by silence.
    lists_for_silence: u32,
    /// The version at which a frame could not be decoded. If this happens again at the same
    /// version, resuming the watch does not help.
    broken_at: Option<String>,
    internal_errors: RetryWindow,
    backoff: Backoff,
    random: Random,
    repair: Repair,
    /// Whether the consumer of the store's queue may still reject something.
    is_unprocessed: bool,
    /// Whether the last step was a wait.
    has_waited: bool,
    /// The time that was passed to the last method call.
    now: Instant,
    reports: Vec<Report>,
}

enum Phase {
    List(ListRequest),
    ListBody(ListRequest),
    /// The last page is complete.
    ListEnd(ListRequest),
    Watch,
    WatchList,
    WatchBody(WatchStream),
    Wait(Duration, AfterWait),
}

/// What follows a wait.
#[derive(Clone, Copy, PartialEq)]
enum AfterWait {
    /// A watch-list or a list.
    Relist,
    List,
    Watch,
    WatchList,
}

impl Protocol {
    /// `watch_list` is whether the lister-watcher supports watch-lists.
    pub(super) fn new(
        options: &ReflectorOptions,
        watch_list: bool,
        missing: Arc<Missing>,
        now: Instant,
    ) -> Self {
        let mut protocol = Self {
            options: normalized(options, watch_list),
            phase: Phase::Watch,
            version: String::new(),
            replaced: 0,
            version_unavailable: false,
            paginated: false,
            unfinished_watch_lists: 0,
            watch_list_paused_until: None,
            short_watches: 0,
            server_sends_bookmarks: false,
            total_silence: Duration::ZERO,
            lists_for_silence: 0,
            broken_at: None,
            internal_errors: RetryWindow::new(options.internal_error_retry),
            backoff: options.backoff.clone(),
            random: Random::new(),
            repair: Repair::new(missing, options.backoff.clone()),
            is_unprocessed: false,
            has_waited: false,
            now,
            reports: Vec::new(),
        };
        match options.start_jitter {
            Duration::ZERO => protocol.relist(),
            most => {
                let jitter = most.mul_f64(protocol.random.unit());
                protocol.phase = Phase::Wait(jitter, AfterWait::Relist);
            }
        }
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
                Phase::ListBody(list) if list.is_page_complete() => Ok((0, None)),
                Phase::ListBody(list) => list.next(&input[consumed..]),
                Phase::WatchBody(watch) if watch.initial_events_ended => Ok((0, None)),
                Phase::WatchBody(watch) => watch.next(&input[consumed..]),
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
            && !watch.initial_events_ended
            && let Some(result) = watch.ended.take()
        {
            self.watch_ended(WatchEnd::Body(result));
            return true;
        }
        self.relist_if_due()
    }

    fn output<'a>(&'a mut self, input: &'a [u8], piece: Option<(usize, Piece)>) -> Output<'a> {
        let timeout = match &self.phase {
            Phase::WatchBody(watch) => Some(self.read_timeout(watch)),
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
            Phase::ListBody(list) => match (&list.page, piece) {
                (Some(page), _) => Output::Page(page),
                (None, Some((offset, piece))) => Output::Item {
                    bytes: list.splitter.piece(&input[offset..], piece),
                    head: list.splitter.head(),
                },
                (None, None) => Output::Read(None),
            },
            Phase::ListEnd(list) => Output::Replace {
                version: list.version(),
            },
            Phase::WatchBody(watch) => match piece {
                _ if watch.initial_events_ended => Output::Replace {
                    version: &watch.initial_version,
                },
                Some((offset, piece)) => Output::Frame(watch.frames.piece(&input[offset..], piece)),
                None => Output::Read(timeout),
            },
            Phase::Wait(duration, _) => Output::Wait(*duration),
            Phase::Watch => Output::Watch(ListOptions {
                resource_version: Some(self.version.clone()),
                ..watch_options(options, random)
            }),
            // The objects must not be older than a version seen before. Before the first version,
            // or if the last version is unavailable, the request is a consistent read (WL2).
            Phase::WatchList => Output::Watch(ListOptions {
                resource_version: (!self.version_unavailable).then(|| self.version.clone()),
                resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
                send_initial_events: true,
                ..watch_options(options, random)
            }),
        }
    }

    /// The version from which the next watch resumes.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The number of lists that have reached the store.
    pub(super) fn lists_replaced(&self) -> u64 {
        self.replaced
    }

    /// Whether a watch is open and has had an event.
    pub(super) fn is_healthy(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watch) if !watch.is_initial && watch.events > 0)
    }

    /// Whether a watch is open or is the next request. The resync thread starts in this state
    /// (W13).
    pub(super) fn is_watching(&self) -> bool {
        match &self.phase {
            Phase::Watch | Phase::Wait(_, AfterWait::Watch) => true,
            Phase::WatchBody(watch) => !watch.is_initial,
            _ => false,
        }
    }

    /// Whether the current or next request is a watch, or a watch-list that can become one.
    pub(super) fn is_streaming(&self) -> bool {
        self.is_watching() || matches!(self.phase, Phase::WatchList | Phase::WatchBody(_))
    }

    /// Whether a watch is open.
    pub(super) fn has_open_watch(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watch) if !watch.is_initial)
    }

    /// "list" or "watch-list" while one is requested or received.
    pub(super) fn listing(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::List(_) | Phase::ListBody(_) | Phase::ListEnd(_) => Some("list"),
            Phase::WatchList => Some("watch-list"),
            Phase::WatchBody(watch) => watch.is_initial.then_some("watch-list"),
            Phase::Watch | Phase::Wait(..) => None,
        }
    }

    /// Whether objects of the current list or watch-list may have been received.
    pub(super) fn is_receiving_list(&self) -> bool {
        match &self.phase {
            Phase::List(list) => list.has_pages(),
            Phase::ListBody(_) | Phase::ListEnd(_) => true,
            Phase::WatchBody(watch) => watch.is_initial,
            _ => false,
        }
    }

    /// The number of objects on further pages, if the server reported it.
    pub(super) fn remaining(&self) -> Option<u64> {
        match &self.phase {
            Phase::List(list) | Phase::ListBody(list) | Phase::ListEnd(list) => list.remaining,
            _ => None,
        }
    }

    /// Whether the server confirmed on each page of the list that it selected the objects of the
    /// shard. `None` for a watch-list, or without a shard.
    pub(super) fn list_shard_confirmed(&self) -> Option<bool> {
        match &self.phase {
            Phase::ListEnd(list) if self.options.shard.is_some() => Some(list.shard_confirmed),
            _ => None,
        }
    }

    /// The position of the next event in the watch, for messages.
    pub(super) fn event_position(&self) -> String {
        let events = match &self.phase {
            Phase::WatchBody(watch) => watch.events,
            _ => 0,
        };
        watch::event_position(events + 1, &self.version)
    }

    /// The last report that [`take_reports`](Self::take_reports) has not returned yet.
    pub(super) fn last_report(&self) -> Option<&Report> {
        self.reports.last()
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
        (self.now, self.has_waited) = (now, false);
        match (std::mem::replace(&mut self.phase, Phase::Watch), result) {
            (Phase::List(list), Ok(())) => self.phase = Phase::ListBody(list),
            (Phase::List(list), Err(error)) => {
                self.phase = Phase::List(list);
                self.list_failed(error);
            }
            (Phase::Watch, Ok(())) => {
                let mut watch = self.watch_stream(timeout, started);
                watch.tracks_versions = !matches!(self.version.as_str(), "" | "0");
                self.phase = Phase::WatchBody(watch);
            }
            (Phase::Watch, Err(error)) => self.watch_request_failed(error),
            (Phase::WatchList, Ok(())) => {
                let mut watch = self.watch_stream(timeout, started);
                watch.is_initial = true;
                self.phase = Phase::WatchBody(watch);
            }
            (Phase::WatchList, Err(error)) => self.watch_list_failed(error),
            (phase, _) => self.phase = phase,
        }
    }

    fn watch_stream(&self, timeout: Option<u32>, started: Instant) -> WatchStream {
        let timeout = Duration::from_secs(timeout.unwrap_or_default().into());
        let limit = self.options.limits.object_bytes;
        let idle_timeout = self.options.watch_idle_timeout;
        let idle_timeout = idle_timeout.unwrap_or(timeout + WATCH_SLACK);
        WatchStream::new(limit, started, idle_timeout)
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
        self.is_unprocessed = true;
    }

    /// Reports that no bytes arrived within the timeout of [`Output::Read`]. `is_unprocessed` is
    /// whether the consumer of the store's queue has yet to process the last list.
    pub(super) fn read_timed_out(&mut self, is_unprocessed: bool, now: Instant) {
        if let Phase::WatchBody(watch) = &self.phase {
            let timeout = self.read_timeout(watch);
            let longest = watch.read_timeout(self.expects_bookmarks());
            self.is_unprocessed &= is_unprocessed;
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
            (Phase::ListBody(list), Ok(())) => {
                if let Err(error) = list.body_end() {
                    self.list_failed(error);
                }
            }
            (Phase::ListBody(_), Err(error)) => self.list_failed(error),
            (Phase::WatchBody(watch), result) => watch.ended = Some(result),
            _ => {}
        }
    }

    /// Reports that the wait is over.
    pub(super) fn waited(&mut self, now: Instant) {
        (self.now, self.has_waited) = (now, true);
        if let Phase::Wait(_, next) = self.phase {
            match next {
                AfterWait::Relist => self.relist(),
                AfterWait::List => self.begin_list(),
                AfterWait::Watch => self.phase = Phase::Watch,
                AfterWait::WatchList => self.phase = Phase::WatchList,
            }
        }
    }

    /// Begins a new cycle after a back-off, because a step could not be performed. `reading` is
    /// "list" or "watch" if the step failed while reading a body.
    pub(super) fn abort_cycle(&mut self, error: Error, reading: Option<&'static str>) {
        let kind = ReportKind::Other;
        self.reports.push(Report {
            error,
            kind,
            reading,
        });
        self.wait(None, AfterWait::Relist);
    }

    /// "list" or "watch" while a body is read.
    pub(super) fn reading(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::ListBody(_) | Phase::ListEnd(_) => Some("list"),
            Phase::WatchBody(_) => Some("watch"),
            _ => None,
        }
    }

    /// Reports that the page has been stored. `received` is the number of different objects of the
    /// list so far, readable or not.
    pub(super) fn page_end(&mut self, received: usize) {
        match std::mem::replace(&mut self.phase, Phase::Watch) {
            Phase::ListBody(mut list) => match list.page_end(received) {
                Ok(true) => self.phase = Phase::List(list),
                Ok(false) => self.phase = Phase::ListEnd(list),
                Err(error) => {
                    self.phase = Phase::ListBody(list);
                    self.list_failed(error);
                }
            },
            phase => self.phase = phase,
        }
    }

    /// Reports that the list failed. For example, the body is not the requested list.
    pub(super) fn list_failed(&mut self, error: Error) {
        let retry = match &mut self.phase {
            Phase::List(list) | Phase::ListBody(list) => list.retry(&error),
            _ => Retry::No,
        };
        if retry == Retry::No {
            let retry_after = error.retry_after();
            self.report(error, ReportKind::Request);
            return self.wait(retry_after, AfterWait::Relist);
        }
        self.version_unavailable |= retry == Retry::MostRecent;
        self.phase = match std::mem::replace(&mut self.phase, Phase::Watch) {
            Phase::ListBody(list) => Phase::List(list),
            phase => phase,
        };
    }

    /// Reports that the store has the objects of [`Output::Replace`]. `complete` is whether each of
    /// them was read in its last state.
    pub(super) fn replaced(&mut self, complete: bool) {
        self.version = self.take_list_version();
        self.total_silence = Duration::ZERO;
        self.replaced += 1;
        self.broken_at = None;
        self.repair.listed(complete, self.now);
        if matches!(self.phase, Phase::ListEnd(_)) {
            self.phase = Phase::Watch;
        }
    }

    /// Reports that the store rejected the objects of [`Output::Replace`].
    pub(super) fn not_replaced(&mut self, error: Error) {
        self.take_list_version();
        self.report(error, ReportKind::Request);
        self.wait(None, AfterWait::Relist);
    }

    fn take_list_version(&mut self) -> String {
        self.version_unavailable = false;
        match &mut self.phase {
            Phase::ListEnd(list) => {
                self.paginated |= list.was_paginated_at_zero();
                list.take_version()
            }
            Phase::WatchBody(watch) => watch.end_initial_events(self.now),
            _ => String::new(),
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

    /// Reports that a later state of a missing object was stored, or that the object was deleted.
    pub(super) fn recovered(&mut self, key: &Key, is_deleted: bool) {
        self.repair.recovered(key, is_deleted, self.now);
    }

    /// Begins a new cycle: a watch-list or a list for the objects, and then a watch (L6).
    fn relist(&mut self) {
        self.internal_errors.forget();
        (self.unfinished_watch_lists, self.short_watches) = (0, 0);
        let may_watch_list = self
            .watch_list_paused_until
            .is_none_or(|until| self.now >= until);
        if self.options.watch_list && may_watch_list {
            self.phase = Phase::WatchList;
        } else {
            self.begin_list();
        }
    }

    fn begin_list(&mut self) {
        // The list must not be older than a version seen before, unless that version is unavailable
        // (L8).
        let version = match self.version.as_str() {
            _ if self.version_unavailable => None,
            "" => Some("0".to_owned()),
            version => Some(version.to_owned()),
        };
        self.phase = Phase::List(ListRequest::new(
            version,
            self.options.page_size,
            self.paginated,
            self.options.limits,
            shard_selector(&self.options),
        ));
    }

    fn split_failed(&mut self, error: SplitError) {
        match &self.phase {
            Phase::ListBody(_) => self.list_failed(error.into()),
            _ => self.watch_ended(WatchEnd::Malformed(error.into())),
        }
    }

    /// The time to wait for bytes of a watch. A wait ends at the latest when a relist is due, or
    /// when it is time to look at what the consumer of the store's queue has rejected.
    fn read_timeout(&self, watch: &WatchStream) -> Duration {
        let timeout = watch.read_timeout(self.expects_bookmarks());
        if watch.is_initial {
            return timeout;
        }
        let left = timeout.saturating_sub(watch.silence);
        let left = left.max(Duration::from_millis(1));
        // The intervals of the checks grow, because a list may stay unprocessed for long.
        let check = self
            .is_unprocessed
            .then(|| watch.silence.max(REJECTION_CHECK));
        let sooner = self.repair.time_left(self.now).into_iter().chain(check);
        sooner.fold(left, Duration::min)
    }

    /// Relists instead of watching if an object is missing and a relist is due.
    fn relist_if_due(&mut self) -> bool {
        let events = match &self.phase {
            // After a wait, open the watch first, even if a relist is due.
            Phase::Watch if self.has_waited => return false,
            Phase::Watch => 0,
            Phase::WatchBody(watch) if !watch.is_initial => watch.events,
            _ => return false,
        };
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
        self.server_sends_bookmarks && self.options.watch_idle_timeout.is_none()
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

/// Returns the options with corrected timeouts, and with the support of the lister-watcher for
/// watch-lists.
fn normalized(options: &ReflectorOptions, watch_list: bool) -> ReflectorOptions {
    let mut options = options.clone();
    options.watch_list &= watch_list;
    options.min_watch_timeout = options
        .min_watch_timeout
        .max(ReflectorOptions::MIN_WATCH_TIMEOUT);
    // Treat zero as unset: a zero timeout would end each watch immediately.
    options.watch_idle_timeout = options
        .watch_idle_timeout
        .filter(|timeout| !timeout.is_zero());
    options
}

fn shard_selector(options: &ReflectorOptions) -> String {
    let shard = options.shard.as_ref();
    shard.map(Shard::selector).unwrap_or_default()
}

/// Returns the options that watches and watch-lists share. The timeout is between one and two
/// times the minimum, so that watches do not end at the same time.
fn watch_options(options: &ReflectorOptions, random: &mut Random) -> ListOptions {
    let seconds = options.min_watch_timeout.as_secs_f64() * (1.0 + random.unit());
    ListOptions {
        allow_watch_bookmarks: true,
        timeout_seconds: Some(seconds as u32),
        shard_selector: shard_selector(options),
        ..ListOptions::default()
    }
}
