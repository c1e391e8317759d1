mod changes;
mod initial;

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::initial::unchanged;
use super::{Consumer, Reflector};
use crate::base::adaptive_buffer::ReadBuffer;
use crate::base::panic;
use crate::entry::{Delta, Staging};
use crate::error::Error;
use crate::json::Peek;
use crate::log;
use crate::object::Object;
use crate::reflector::initial_list::InitialList;
use crate::reflector::protocol::{Output, Protocol, ReportKind, WatchEnd};
use crate::reflector::reclaim::ReclaimGuard;
use crate::reflector::{Body, ReflectorOptions, ReflectorState, ReflectorStatus};
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::wire::{
    BadFrame, Decode, DecodeOptions, Decoded, Decoder, EventKind, ListOptions, lacks_type_meta,
};

/// The duration of the first read after an interrupt.
const SHORT: Duration = Duration::from_millis(10);

/// One run of a reflector. It performs what the [`Protocol`] requests, decodes objects, and writes
/// them to the store.
pub(super) struct Session<'r, T> {
    pub(super) protocol: Protocol,
    reflector: &'r Reflector<T>,
    store: &'r dyn Staging<T>,
    decoder: Decoder<T>,
    body: Option<Body>,
    /// Interrupts the open watch, or the wait.
    interrupt: Stop,
    /// Whether the next read is the first one after an interrupt. It is short and can't be
    /// interrupted, so that frequent interrupts do not prevent progress.
    was_interrupted: bool,
    consumer: Option<&'r dyn Consumer>,
    /// When the current list or watch-list began, if it is a consistent read.
    consistent_since: Option<Instant>,
    buffer: ReadBuffer,
    /// The list or watch-list that is being received.
    pub(super) initial: InitialList<T>,
    /// Changes that the store does not have yet. Empty before each read.
    changes: Vec<Delta<T>>,
}

impl<'r, T: Object> Session<'r, T> {
    pub(super) fn new(
        reflector: &'r Reflector<T>,
        store: &'r dyn Staging<T>,
        decode: Decode<T>,
        watch_list: bool,
        consumer: Option<&'r dyn Consumer>,
    ) -> Self {
        let options = &reflector.options;
        Self {
            protocol: Protocol::new(
                options,
                watch_list,
                Arc::clone(&reflector.missing),
                // The clock is user code, and this is not within a step.
                reflector.now().unwrap_or_else(Instant::now),
            ),
            reflector,
            store,
            decoder: Decoder::new(decode, decode_options(options)),
            body: None,
            interrupt: Stop::new(),
            was_interrupted: false,
            consumer,
            consistent_since: None,
            buffer: read_buffer(),
            initial: InitialList::default(),
            changes: Vec::new(),
        }
    }

    /// Performs one step: a request, a wait, or one read and the handling of the bytes. If `stop`
    /// is stopped meanwhile, the result of the step is ignored. A list outlives the phase of `stop`,
    /// so only `stop_run` ends it.
    pub(super) fn step(&mut self, stop: &Stop, stop_run: &Stop) {
        let reflector = self.reflector;
        let clock = &reflector.options.clock;
        if self.protocol.is_waiting() {
            self.interrupt = stop.child();
        }
        let can_interrupt =
            self.protocol.is_waiting() || (self.protocol.has_open_watch() && !self.was_interrupted);
        // A watch that serves other waits goes on: a new one must not delay them.
        let may_reopen = can_interrupt && !self.protocol.serves_waits();
        let interrupt = may_reopen.then(|| self.interrupt.clone());
        if let Some(target) = reflector.catch_up.take_wanted(interrupt) {
            self.protocol.want(target, clock.now());
        }
        if self.interrupt.is_stopped() && self.protocol.has_open_watch() {
            self.protocol.reopen();
            self.was_interrupted = true;
        }
        // After `take_wanted`, so that a later interrupt ends the step.
        let availability = &reflector.availability;
        availability.set_working();
        if let Some(consumer) = self.consumer {
            consumer.process();
        }
        let (_, output) = self.protocol.poll(&[]);
        if !matches!(output, Output::Read(_)) {
            self.body = None;
        }
        // Another thread may need the consumer since it was called. From here on, such a thread ends
        // the wait, or does not rely on this thread.
        let is_needed = match output {
            Output::Wait(_) => availability.set_waiting(self.interrupt.clone()),
            Output::Read(_) if can_interrupt => availability.set_waiting(self.interrupt.clone()),
            Output::List(_) | Output::Watch(_) => availability.set_busy(),
            // It takes `SHORT` at most. The next step calls the consumer.
            Output::Read(Some(_)) if self.was_interrupted => false,
            Output::Read(_) => availability.set_busy(),
            _ => false,
        };
        if let Some(consumer) = self.consumer.filter(|_| is_needed) {
            consumer.process();
        }
        match output {
            Output::List(options) => {
                if options.continue_token.is_none() {
                    self.begin_initial(&options);
                }
                let open = || reflector.lister_watcher.list(&options, stop_run);
                self.request(open, |status| status.lists += 1, None, stop_run);
            }
            Output::Watch(options) => {
                if options.send_initial_events {
                    self.begin_initial(&options);
                }
                self.interrupt = stop.child();
                let interrupt = self.interrupt.clone();
                let open = || reflector.lister_watcher.watch(&options, &interrupt);
                let timeout = options.timeout_seconds;
                self.request(open, |status| status.watches += 1, timeout, stop);
            }
            Output::Wait(duration) => {
                reflector.status.lock().state = ReflectorState::BackingOff;
                let began = clock.now();
                let is_over = clock.wait(duration, &self.interrupt);
                availability.set_working();
                if !stop.is_stopped() {
                    let now = clock.now();
                    let waited = if is_over {
                        duration
                    } else {
                        now.duration_since(began)
                    };
                    self.protocol.waited(waited, now);
                }
            }
            Output::Read(timeout) => self.read(timeout, stop),
            Output::Item { .. }
            | Output::LargeItem(_)
            | Output::Page(_)
            | Output::Frame(_)
            | Output::LargeFrame(_)
            | Output::Replace { .. } => self.consume(&[]),
        }
        if !self.protocol.is_receiving_list() {
            self.initial = InitialList::new(reflector.missing.recorded());
        }
    }

    /// Begins a new cycle after a back-off. Called when a step panicked or cannot be performed.
    pub(super) fn abort_cycle(&mut self, error: Error) {
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
        self.protocol.abort_cycle(error);
    }

    /// Returns the consumer of the store's queue.
    pub(super) fn consumer(&self) -> Option<&'r dyn Consumer> {
        self.consumer
    }

    /// Records when a consistent list or watch-list begins.
    fn begin_initial(&mut self, options: &ListOptions) {
        let is_consistent = options.resource_version.is_none();
        self.consistent_since = is_consistent.then(Instant::now);
        if self.protocol.lists == 0 {
            // Others can see the first list in the cache before `replace` ends.
            self.reflector.catch_up.state.lock().listed = self.consistent_since;
        }
    }

    fn request(
        &mut self,
        open: impl FnOnce() -> Result<Body, Error>,
        count: impl FnOnce(&mut ReflectorStatus),
        timeout: Option<u32>,
        stop: &Stop,
    ) {
        let Reflector {
            options, status, ..
        } = self.reflector;
        let started = options.clock.now();
        let opened = panic::catch(open)
            .unwrap_or_else(|panic| Err(Error::other(format!("the lister-watcher {panic}"))));
        self.reflector.availability.set_working();
        count(&mut status.lock());
        if stop.is_stopped() {
            return;
        }
        let now = options.clock.now();
        if !matches!(&opened, Err(error) if error.status().is_none()) {
            status.lock().last_contact = Some(now);
        }
        let opened = opened.map(|body| {
            self.body = Some(body);
            self.buffer = read_buffer();
        });
        self.protocol.opened(opened, timeout, started, now);
    }

    fn read(&mut self, timeout: Option<Duration>, stop: &Stop) {
        let clock = &self.reflector.options.clock;
        let is_short = std::mem::take(&mut self.was_interrupted);
        let limit = timeout.map(|left| if is_short { left.min(SHORT) } else { left });
        let read = match &mut self.body {
            Some(body) => read_some(body, self.buffer.free(), limit),
            None => ReadOutcome::Ended(Ok(())),
        };
        self.reflector.availability.set_working();
        if stop.is_stopped() {
            return;
        }
        // An interrupt ends the read of a watch early, as an error, an end or a timeout. The server did
        // not cause it. Bytes that came before it count.
        let is_interrupted = self.protocol.has_open_watch() && self.interrupt.is_stopped();
        let now = clock.now();
        match read {
            ReadOutcome::Ended(_) | ReadOutcome::TimedOut if is_interrupted => return,
            ReadOutcome::TimedOut if is_short => return,
            ReadOutcome::Ended(result) => self.protocol.ended(result, now),
            ReadOutcome::TimedOut => {
                let Some(waited) = timeout else {
                    unreachable!("a read without a timeout cannot time out");
                };
                let is_unprocessed = !self.store.is_settled();
                self.protocol.read_timed_out(waited, is_unprocessed, now);
            }
            ReadOutcome::Bytes(length) => {
                self.reflector.status.lock().last_contact = Some(now);
                self.protocol.read(now);
                let was_watching = self.protocol.is_watching();
                let mut buffer = std::mem::replace(&mut self.buffer, read_buffer());
                buffer.received(length);
                self.consume(&buffer);
                buffer.consume(length);
                // After the objects of a watch-list, reads are small: use a new, small buffer.
                if was_watching || !self.protocol.is_watching() {
                    self.buffer = buffer;
                }
                return;
            }
        }
        self.consume(&[]);
    }

    /// Handles the bytes that were read. Any bytes that the protocol does not consume belong to a
    /// body that has ended.
    fn consume(&mut self, mut input: &[u8]) {
        let reclaim = self.reflector.reclaim.as_deref();
        let _reclaim_guard = ReclaimGuard::begin(reclaim);
        let store = self.store;
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
                    reclaim.inspect(|reclaim| reclaim.free_one());
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
                    reclaim.inspect(|reclaim| reclaim.free_one());
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
                            let (decoder, door) = (&self.decoder, self.store.door());
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
        self.flush();
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
        self.reflector.status.lock().shard_applied = Some(false);
        self.protocol.event(kind, ResourceVersion::new(version));
    }
}

/// Returns a buffer for a body. It is small for a silent watch and grows for a list, because each
/// read of a list wakes up this thread.
fn read_buffer() -> ReadBuffer {
    ReadBuffer::new(4 << 10, 128 << 10)
}

/// Extends the heap of this thread for the next objects of a list. Otherwise glibc extends it by a
/// few pages at a time, each with a system call. In `benches/peers`, the first list of k8s-openapi
/// Pods takes 15 to 20 % less CPU time.
fn extend_heap() {
    if cfg!(target_env = "gnu") {
        // From 128 KiB on, glibc would use a separate mapping. The bytes are not written, so they
        // take no memory.
        drop(black_box(Vec::<u8>::with_capacity(120 << 10)));
    }
}

/// The outcome of a read.
enum ReadOutcome {
    /// This number of bytes, at least one.
    Bytes(usize),
    /// No bytes within the timeout.
    TimedOut,
    /// The end of the body, or an error.
    Ended(Result<(), Error>),
}

/// Reads from the body.
fn read_some(body: &mut Body, buffer: &mut [u8], timeout: Option<Duration>) -> ReadOutcome {
    let read = panic::catch(|| {
        loop {
            match body.read_within(buffer, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    });
    match read {
        Ok(Ok(0)) => ReadOutcome::Ended(Ok(())),
        Ok(Ok(length)) => ReadOutcome::Bytes(length),
        Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut && timeout.is_some() => {
            ReadOutcome::TimedOut
        }
        Ok(Err(error)) => ReadOutcome::Ended(Err(error.into())),
        Err(panic) => ReadOutcome::Ended(Err(Error::other(format!("the body reader {panic}")))),
    }
}

fn decode_options(options: &ReflectorOptions) -> DecodeOptions {
    DecodeOptions {
        skip: options.skip.clone(),
        limits: options.limits,
        show_custom_errors: options.show_custom_decode_errors,
        expected_kind: options.expected_kind.clone(),
        shard: options.shard.clone(),
        small_stack: false,
    }
}
