//! The first half of a pipeline: from the server to the queue.

mod changes;
mod initial;
mod interrupt;
mod outcome;
mod reading;

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::initial::unchanged;
use self::interrupt::Interrupt;
use self::outcome::Outcome;
use self::reading::{Silence, Wake, decode_options, extend_heap, read_buffer};
use super::Reflector;
use crate::base::adaptive_buffer::ReadBuffer;
use crate::base::panic;
use crate::entry::Delta;
use crate::error::Error;
use crate::json::Peek;
use crate::log;
use crate::object::Object;
use crate::reflector::initial_list::InitialList;
use crate::reflector::protocol::{Output, Protocol, ReportKind, WatchEnd};
use crate::reflector::reclaim::Decoding;
use crate::reflector::{Body, ListerWatcher, ReflectorState};
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::wire::{BadFrame, Decoded, Decoder, EventKind, ListOptions, lacks_type_meta};

/// Performs what the [`Protocol`] requests, decodes objects, and writes them to the store or queue.
///
/// Its owner repeats four calls: [`step`](Self::step) receives and decodes, [`flush`](Self::flush)
/// writes the events that were decoded (a step itself writes lists, resyncs, and the events before an
/// unreadable object), [`publish`](Self::publish) updates the status, and [`report`](Self::report)
/// calls loggers and callbacks. The owner processes what the queue has before the last call, so nothing
/// of users delays it.
///
/// The steps are here. `reading` has the reads, `initial` the objects of lists, `changes` the events of
/// watches, and `outcome` the status and the reports.
pub(crate) struct Feed<T> {
    reflector: Reflector<T>,
    protocol: Protocol,
    decoder: Decoder<T>,
    body: Option<Body>,
    interrupt: Interrupt,
    request: NextRequest,
    /// When the current list or watch-list began, if it is a consistent read.
    consistent_since: Option<Instant>,
    buffer: ReadBuffer,
    /// The list or watch-list that is being received.
    initial: InitialList<T>,
    /// Decoded changes that the store does not have yet. Empty before each step.
    changes: Vec<Delta<T>>,
    /// Until when silence and waits have been counted.
    counted_until: Instant,
    outcome: Outcome,
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedProgress {
    /// The next step sends a request, which may take long.
    Requesting,
    /// A response, bytes, a resync, or a wait or request that has ended.
    Progressed,
    /// Nothing happened within the limit.
    Idle,
    /// Another thread needs the owner of the feed before the next wait.
    Interrupted,
}

/// Whether the owner was notified of the next request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextRequest {
    Unannounced,
    Announced,
}

impl<T: Object> Feed<T> {
    pub(crate) fn new(reflector: &Reflector<T>) -> Self {
        let reflector = reflector.handle();
        let core = &reflector.core;
        let watch_list = panic::catch(|| core.lister_watcher.supports_watch_list());
        let watch_list = watch_list.unwrap_or_else(|panic| {
            let name = reflector.name();
            log::error!("{name}: supports_watch_list of the lister-watcher {panic}");
            false
        });
        // The clock is user code, and this is not within a step.
        let now = reflector.now().unwrap_or_else(Instant::now);
        let missing = Arc::clone(&core.missing);
        Self {
            protocol: Protocol::new(&core.options, watch_list, missing, now),
            decoder: Decoder::new(core.decode, decode_options(&core.options)),
            body: None,
            interrupt: Interrupt::new(),
            request: NextRequest::Unannounced,
            consistent_since: None,
            buffer: read_buffer(),
            initial: InitialList::default(),
            changes: Vec::new(),
            counted_until: now,
            outcome: Outcome::default(),
            reflector,
        }
    }

    /// Performs one step: a resync, a request, a wait, or one read and the decoding of its bytes.
    /// Waits, and reads of a watch, end after `limit` at the latest. A request and the reads of a list
    /// have their own limits. If `stop` is stopped meanwhile, the result of the step is ignored.
    pub(crate) fn step(&mut self, limit: Option<Duration>, stop: &Stop) -> FeedProgress {
        // User code runs in a step: decoding, accessors, the clock.
        match panic::catch(|| self.try_step(limit, stop)) {
            Ok(progress) => progress,
            Err(panic) => {
                self.abort_cycle(Error::other(format!("a reflector step {panic}")));
                FeedProgress::Progressed
            }
        }
    }

    fn try_step(&mut self, limit: Option<Duration>, stop: &Stop) -> FeedProgress {
        self.log_if_long();
        // A resync is a step of its own, so the owner processes it before the next read.
        if self.resync_if_due() {
            return FeedProgress::Progressed;
        }
        // Other threads may have begun to wait since the last step, or may have ended it.
        self.take_requests(stop);
        // The protocol decides. If it does not read on, the body has ended.
        let (_, output) = self.protocol.poll(&[]);
        if !matches!(output, Output::Read(_)) {
            self.body = None;
        }
        // Another thread that needs the owner ends a wait below, or is answered by `Interrupted` before it.
        let progress = match output {
            // The owner may process, or choose its moment, before a step that may take long.
            Output::List(_) | Output::Watch(_) if self.request == NextRequest::Unannounced => {
                self.request = NextRequest::Announced;
                FeedProgress::Requesting
            }
            Output::List(options) => self.list(&options, stop),
            Output::Watch(options) => self.watch(&options, stop),
            Output::Wait(left) => self.wait(left, limit, stop),
            Output::Read(timeout) => self.read(timeout, limit, stop),
            Output::Item { .. }
            | Output::LargeItem(_)
            | Output::Page(_)
            | Output::Frame(_)
            | Output::LargeFrame(_)
            | Output::Replace { .. } => {
                self.consume(&[]);
                FeedProgress::Progressed
            }
        };
        // Before the owner delivers the list: a program may advance its clock as soon as it has that.
        self.schedule_resync();
        // Each attempt begins empty here: no object of a list that was given up reaches the store.
        if !self.protocol.is_receiving_list() {
            self.initial = InitialList::new(self.reflector.core.missing.recorded());
        }
        progress
    }

    /// Whether decoded changes wait for [`flush`](Self::flush).
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Writes the decoded changes to the store or queue.
    pub(crate) fn flush(&mut self) {
        // A custom store is user code.
        if let Err(panic) = panic::catch(|| self.write_changes()) {
            self.abort_cycle(Error::other(format!("a reflector step {panic}")));
        }
    }

    /// Begins a new cycle after a back-off. Called when a step panicked or cannot be performed.
    fn abort_cycle(&mut self, error: Error) {
        // Drop the pending changes: the next list contains them. Destructors are user code.
        let (body, initial) = (self.body.take(), std::mem::take(&mut self.initial));
        let changes = std::mem::take(&mut self.changes);
        for dropped in [
            panic::catch(|| drop(body)),
            panic::catch(|| drop(changes)),
            panic::catch(|| drop(initial)),
        ] {
            if let Err(panic) = dropped {
                let name = self.reflector.name();
                log::error!("{name}: the destructor of a body or an object {panic}");
            }
        }
        self.request = NextRequest::Unannounced;
        self.counted_until = self.reflector.now().unwrap_or(self.counted_until);
        self.protocol.abort_cycle(error);
    }

    /// Resyncs if it is time for it. Returns whether a resync was due.
    fn resync_if_due(&mut self) -> bool {
        let options = &self.reflector.core.options;
        let Some(at) = self
            .protocol
            .resync_at
            .filter(|_| self.protocol.is_watching())
        else {
            return false;
        };
        let now = options.clock.now();
        if now < at {
            return false;
        }
        self.protocol.resync_at = now.checked_add(options.resync_period);
        if let Err(error) = self.reflector.resync() {
            self.abort_cycle(Error::other(format!("resync failed: {error}")));
        }
        true
    }

    /// Begins the resync period with the first watch after a list, and ends it with a list (W13). Reads
    /// and waits end when a resync is due.
    fn schedule_resync(&mut self) {
        let options = &self.reflector.core.options;
        if options.resync_period.is_zero() {
            return;
        }
        if !self.protocol.is_streaming() {
            self.protocol.resync_at = None;
        } else if self.protocol.is_watching() && self.protocol.resync_at.is_none() {
            let now = options.clock.now();
            self.protocol.resync_at = now.checked_add(options.resync_period);
        }
    }

    /// Takes what other threads require since the last step, and offers them to end this one.
    fn take_requests(&mut self, stop: &Stop) {
        let core = &self.reflector.core;
        // Each wait has a signal of its own. A watch has one since its request.
        if self.protocol.is_waiting() {
            self.interrupt.renew(stop);
        }
        // A watch that serves other waits goes on: a new one must not delay them.
        let may_reopen = self.can_interrupt() && !self.protocol.serves_waits();
        let interrupt = may_reopen.then(|| self.interrupt.stop().clone());
        if let Some(target) = core.catch_up.take_wanted(interrupt) {
            self.protocol.want(target, core.options.clock.now());
        }
        // Another thread has ended the watch: it is opened again at its version.
        if self.interrupt.is_stopped() && self.protocol.has_open_watch() {
            self.protocol.reopen();
            self.interrupt.use_up();
        }
    }

    /// Whether other threads may end the next step early.
    fn can_interrupt(&self) -> bool {
        self.protocol.is_waiting() || (self.protocol.has_open_watch() && self.interrupt.is_armed())
    }

    /// Requests a page of a list.
    fn list(&mut self, options: &ListOptions, stop: &Stop) -> FeedProgress {
        if self.reflector.core.availability.set_busy() {
            return FeedProgress::Interrupted;
        }
        if options.continue_token.is_none() {
            self.begin_initial(options);
        }
        self.outcome.status.lists += 1;
        let list = |source: &dyn ListerWatcher| source.list(options, stop);
        self.request(list, None, stop)
    }

    /// Opens a watch or a watch-list.
    fn watch(&mut self, options: &ListOptions, stop: &Stop) -> FeedProgress {
        if self.reflector.core.availability.set_busy() {
            return FeedProgress::Interrupted;
        }
        if options.send_initial_events {
            self.begin_initial(options);
        }
        self.outcome.status.watches += 1;
        self.interrupt.renew(stop);
        let interrupt = self.interrupt.stop().clone();
        let watch = |source: &dyn ListerWatcher| source.watch(options, &interrupt);
        self.request(watch, options.timeout_seconds, stop)
    }

    /// Records when a consistent list or watch-list begins.
    fn begin_initial(&mut self, options: &ListOptions) {
        let is_consistent = options.resource_version.is_none();
        self.consistent_since = is_consistent.then(Instant::now);
        if self.protocol.lists == 0 {
            // Others can see the first list in the cache before `replace` ends.
            self.reflector.core.catch_up.state.lock().listed = self.consistent_since;
        }
    }

    fn request(
        &mut self,
        open: impl FnOnce(&dyn ListerWatcher) -> Result<Body, Error>,
        timeout: Option<u32>,
        stop: &Stop,
    ) -> FeedProgress {
        self.request = NextRequest::Unannounced;
        let core = &self.reflector.core;
        let started = core.options.clock.now();
        let opened = panic::catch(|| open(&*core.lister_watcher))
            .unwrap_or_else(|panic| Err(Error::other(format!("the lister-watcher {panic}"))));
        core.availability.set_working();
        if stop.is_stopped() {
            return FeedProgress::Progressed;
        }
        let now = core.options.clock.now();
        // The server has answered, if only with an error.
        if !matches!(&opened, Err(error) if error.status().is_none()) {
            self.outcome.status.last_contact = Some(now);
        }
        let opened = opened.map(|body| {
            self.body = Some(body);
            self.buffer = read_buffer();
        });
        self.counted_until = now;
        self.protocol.opened(opened, timeout, started, now);
        FeedProgress::Progressed
    }

    /// Waits for the next attempt, at most until `limit` has passed.
    fn wait(&mut self, left: Duration, limit: Option<Duration>, stop: &Stop) -> FeedProgress {
        let core = &self.reflector.core;
        let clock = &core.options.clock;
        // The owner may have done other things since the last step.
        let since = clock.now().saturating_duration_since(self.counted_until);
        let rest = left.saturating_sub(since);
        // A wait that is over needs no return, so many requests can't make it longer.
        let interrupt = self.interrupt.stop().clone();
        if !rest.is_zero() && core.availability.set_waiting(interrupt) {
            return FeedProgress::Interrupted;
        }
        self.outcome.status.state = ReflectorState::BackingOff;
        core.status.lock().state = ReflectorState::BackingOff;
        let slice = limit.map_or(rest, |limit| limit.min(rest));
        let is_over = slice.is_zero() || clock.wait(slice, self.interrupt.stop());
        core.availability.set_working();
        if stop.is_stopped() {
            return FeedProgress::Progressed;
        }
        let now = clock.now();
        let waited = match is_over {
            true => since + slice,
            false => now.saturating_duration_since(self.counted_until),
        };
        self.counted_until = now;
        self.protocol.waited(waited, now);
        match self.protocol.is_waiting() {
            true => FeedProgress::Idle,
            false => FeedProgress::Progressed,
        }
    }

    /// Reads once from the body, and decodes.
    fn read(
        &mut self,
        timeout: Option<Duration>,
        limit: Option<Duration>,
        stop: &Stop,
    ) -> FeedProgress {
        // An armed read of a watch can be interrupted. The first read after an interrupt cannot, but is
        // short. A list has no timeout: the limits of its connection count.
        let is_needed = match self.can_interrupt() {
            true => {
                let interrupt = self.interrupt.stop().clone();
                self.reflector.core.availability.set_waiting(interrupt)
            }
            // The feed works on: the read takes `SHORT` at most.
            false if timeout.is_some() && !self.interrupt.is_armed() => false,
            false => self.reflector.core.availability.set_busy(),
        };
        if is_needed {
            return FeedProgress::Interrupted;
        }
        let began = self.reflector.core.options.clock.now();
        let wake = self.wait_for_bytes(timeout, limit, stop);
        let now = self.reflector.core.options.clock.now();
        match wake {
            // The run ends, and its result is ignored.
            Wake::Stopped => return FeedProgress::Progressed,
            // The next step opens the watch again at its version.
            Wake::Interrupted => return FeedProgress::Progressed,
            Wake::Data(length) => {
                self.counted_until = now;
                self.received(length, now);
                return FeedProgress::Progressed;
            }
            Wake::End => self.ended(Ok(()), began, now),
            Wake::Failed(error) => self.ended(Err(error), began, now),
            Wake::Silence(waited) => {
                let waited = match waited {
                    Silence::WholeTimeout(timeout) => timeout,
                    // The owner may have done other things since the last step.
                    Silence::PartOfTimeout => now.saturating_duration_since(self.counted_until),
                };
                self.counted_until = now;
                let is_unprocessed = !self.reflector.staging().is_settled();
                self.protocol.read_timed_out(waited, is_unprocessed, now);
                self.consume(&[]);
                return FeedProgress::Idle;
            }
        }
        FeedProgress::Progressed
    }

    /// Handles the end of a body, which the read since `began` found.
    fn ended(&mut self, result: Result<(), Error>, began: Instant, now: Instant) {
        // The owner may have done other things since the last step.
        let unread = began.saturating_duration_since(self.counted_until);
        self.counted_until = now;
        self.protocol.ended(result, unread, now);
        // A last frame without a line break may be left.
        self.consume(&[]);
    }

    /// Handles bytes that were read.
    fn received(&mut self, length: NonZero<usize>, now: Instant) {
        self.outcome.status.last_contact = Some(now);
        self.protocol.read(now);
        let was_watching = self.protocol.is_watching();
        let mut buffer = std::mem::replace(&mut self.buffer, read_buffer());
        buffer.received(length.get());
        self.consume(&buffer);
        buffer.consume(length.get());
        // After the objects of a watch-list, reads are small: use a new, small buffer.
        if was_watching || !self.protocol.is_watching() {
            self.buffer = buffer;
        }
    }

    /// Handles the bytes that were read. Any bytes that the protocol does not consume belong to a
    /// body that has ended.
    fn consume(&mut self, mut input: &[u8]) {
        // Delivered objects return to this thread until the guard is dropped.
        let reflector = self.reflector.handle();
        let decoding = reflector.reclaim().map(|queue| queue.begin());
        let free_one = || decoding.iter().for_each(Decoding::free_one);
        let store = reflector.staging();
        let unchanged = |identity: &Peek<'_>, digest| unchanged(identity, digest, store);
        // The first list finds nothing.
        let unchanged = (self.protocol.lists > 0).then_some(&unchanged as _);
        loop {
            // Before `poll`, which may end the initial events: what it returns was sent before that.
            // Also true for the body of a list, whose outputs do not need it.
            let is_initial = !self.protocol.has_open_watch();
            let (consumed, output) = self.protocol.poll(input);
            match output {
                Output::Item { bytes, head } => {
                    free_one();
                    extend_heap();
                    let lacks_kind = head.api_version_and_kind().1.is_empty();
                    let waits_for_kind = lacks_kind && lacks_type_meta(bytes);
                    let decoded = self.decoder.list_item(bytes, head, unchanged);
                    self.item(decoded, waits_for_kind);
                }
                Output::LargeItem(head) => {
                    let decoded = self.decoder.large_item(head);
                    self.item(decoded, false);
                }
                Output::Frame(bytes) => {
                    free_one();
                    if is_initial {
                        extend_heap();
                    }
                    let unchanged = unchanged.filter(|_| is_initial);
                    let decoded = self.decoder.event(bytes, unchanged);
                    self.frame(decoded, is_initial);
                }
                Output::LargeFrame(head) => {
                    let decoded = self.decoder.large_event(head);
                    self.frame(decoded, is_initial);
                }
                Output::Page(page) => {
                    let (api_version, kind) = page.api_version_and_kind();
                    match self.decoder.check_list(api_version, kind) {
                        Err(error) => self.protocol.list_failed(error),
                        Ok(()) => {
                            let (decoder, door) = (&self.decoder, store.door());
                            let unreadable = self.initial.set_kinds(page, decoder, door);
                            for (item, unreadable) in unreadable {
                                self.unreadable_item(item, &unreadable);
                            }
                            self.protocol.page_end(self.initial.distinct_objects());
                        }
                    }
                }
                Output::Replace { version } => {
                    let version = version.cloned();
                    self.replace(version);
                }
                _ => break,
            }
            input = &input[consumed..];
        }
    }

    fn frame(&mut self, decoded: Result<Decoded<T>, BadFrame>, is_initial: bool) {
        match decoded {
            Ok(decoded) => self.event(decoded, is_initial),
            Err(BadFrame::Several) => self.protocol.several_events(),
            Err(BadFrame::Malformed(error)) => {
                let error = error.context(self.protocol.event_position());
                self.protocol.watch_ended(WatchEnd::Malformed(error));
            }
        }
    }

    /// Handles a watch event. `is_initial` is whether it is one of the initial events of a
    /// watch-list.
    fn event(&mut self, decoded: Decoded<T>, is_initial: bool) {
        match decoded {
            Decoded::Change(kind, object) if is_initial => self.initial_event(kind, object),
            Decoded::Change(kind, object) => self.change(kind, object),
            Decoded::Bookmark {
                resource_version: version,
                initial_events_end,
            } => {
                let version = ResourceVersion::new(&version);
                self.protocol.bookmark(version.clone(), initial_events_end);
                if !is_initial && version.is_some() {
                    self.changes.push(Delta::Bookmark(version));
                }
            }
            // An initial object of another kind counts as unreadable: if it were skipped, the cached
            // object would be deleted.
            Decoded::OtherKind(kind, other) if is_initial && kind != EventKind::Bookmark => {
                self.unreadable_initial_event(EventKind::Modified, &other);
            }
            // Any other object of another kind is reported but not counted, and its version does not
            // count (W9).
            Decoded::OtherKind(_, other) => {
                let error = other.error.context(self.protocol.event_position());
                self.protocol.report(error, ReportKind::Other);
            }
            Decoded::Error(error) => self.protocol.watch_ended(WatchEnd::Error(error)),
        }
    }

    /// Records that the server sent an object of another shard.
    fn other_shard(&mut self, kind: EventKind, version: &str) {
        self.outcome.status.shard_applied = Some(false);
        self.protocol.event(kind, ResourceVersion::new(version));
    }
}

/// The run of the reflector has ended.
impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.reflector.core.status.lock().state = ReflectorState::Stopped;
    }
}
