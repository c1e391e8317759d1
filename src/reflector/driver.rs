use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::failures::{Failures, named};
use super::machine::{ListOutcome, Machine, Report, Step, View};
use super::read_buffer::ReadBuffer;
use super::recycle::{Recycle, Recycling};
use super::{Body, Decode, ListerWatcher, ReflectorOptions, ReflectorState, ReflectorStatus};
use crate::error::Error;
use crate::object::Object;
use crate::panic;
use crate::stop::Stop;
use crate::store::{ReflectorStore, StoreError};
use crate::sync::Mutex;
use crate::sync::thread::{self, Scope, ScopedJoinHandle};
use crate::threads::{self, Owners, StackSizes};
use crate::wire;

/// While much comes, what so many reads bring without a wait is handed over together ...
const AT_ONCE: u32 = 16;

/// ... but no more is read once that has taken so long: nobody waits much longer for the first of it.
const SHORT: Duration = Duration::from_millis(2);

/// A list or a watch-list that takes longer is logged (L17).
const LONG: Duration = Duration::from_secs(10);

/// Keeps a store equal to the server: lists, watches from there on, and begins again where that breaks.
/// client-go's `Reflector`.
///
/// [`run`](Self::run) does the work on the caller's thread. The rules are those of client-go: the first list
/// asks for resourceVersion "0", a later one for the last that was seen; a watch that ends is opened again
/// from where it was; an expired one lists again; every failure waits with growing back-off (L1–L18, W1–W15
/// of the reference, and DEVIATIONS).
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{Body, DynamicObject, Indexer, ListOptions, ListWatch, Reflector, ReflectorOptions, Stop};
///
/// let stop = Stop::new();
/// let enough = stop.clone();
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(
///         r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#,
///     )),
///     move |options: &ListOptions, _: &Stop| {
///         assert_eq!(options.resource_version.as_deref(), Some("7"));
///         enough.stop(); // Enough seen for an example.
///         Ok(Body::from(""))
///     },
/// );
/// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
/// Reflector::new(Arc::new(pods), store.clone(), ReflectorOptions::default()).run(&stop);
/// assert_eq!(store.list().len(), 1);
/// ```
pub struct Reflector<T> {
    lister_watcher: Arc<dyn ListerWatcher>,
    store: Arc<dyn ReflectorStore<T>>,
    decode: Decode<T>,
    options: ReflectorOptions,
    recycle: Option<Arc<dyn Recycle>>,
    /// What `status` answers. Innermost: nothing is called under it.
    status: Mutex<ReflectorStatus>,
    /// What has been logged. Only the thread of the run takes it; innermost but for the log.
    logged: Mutex<Failures>,
}

impl<T: Object + DeserializeOwned> Reflector<T> {
    /// Nothing happens before [`run`](Self::run).
    pub fn new(
        lister_watcher: Arc<dyn ListerWatcher>,
        store: Arc<dyn ReflectorStore<T>>,
        options: ReflectorOptions,
    ) -> Self {
        Self {
            lister_watcher,
            store,
            decode: wire::from_slice,
            options,
            recycle: None,
            status: Mutex::default(),
            logged: Mutex::default(),
        }
    }
}

impl<T: Object> Reflector<T> {
    /// Drops what comes back.
    pub(crate) fn recycling(self, recycle: Option<Arc<dyn Recycle>>) -> Self {
        Self { recycle, ..self }
    }

    /// How it stands.
    pub fn status(&self) -> ReflectorStatus {
        self.status.lock().clone()
    }

    /// The resourceVersion of the last list, event or bookmark, empty before the first. The store may be
    /// behind it where a queue is in between.
    pub fn last_sync_resource_version(&self) -> String {
        self.status.lock().resource_version.clone()
    }

    pub(crate) fn stack_sizes(&self) -> StackSizes {
        self.options.stack_sizes
    }

    /// Lists and watches until `stop` is given. Blocks; the resyncs run on a thread of their own while it
    /// watches.
    pub fn run(&self, stop: &Stop) {
        let Self { options, .. } = self;
        let watch_list = panic::catch(|| self.lister_watcher.supports_watch_list());
        let watch_list = watch_list.unwrap_or_else(|panic| {
            log::error!(
                "{}: the lister-watcher, asked for watch-lists, {panic}",
                self.name()
            );
            false
        });
        let announce =
            |machine: &Machine<'_, T>, outcome: &ListOutcome<'_>| self.announce(machine, outcome);
        let mut machine = Machine::new(self.decode, options, watch_list, options.clock.now());
        machine.before_replace(&announce);
        machine.recycle(self.recycle.clone());
        thread::scope(|scope| {
            let mut buffer = ReadBuffer::default();
            let mut body = None;
            let mut listing = None;
            let mut resync: Option<Resync<'_>> = None;
            // The first answer may be long in coming.
            self.publish(&mut machine);
            while !stop.is_stopped() {
                if !machine.is_streaming()
                    && let Some(resync) = resync.take()
                {
                    resync.end();
                }
                if machine.is_streaming() {
                    let resync = resync.get_or_insert_with(|| Resync::new(stop));
                    if machine.is_watching()
                        && let Err(error) = self.start_resync(resync, scope)
                    {
                        machine.given_up(resync_failed(&error));
                        // Before the wait that follows.
                        self.publish(&mut machine);
                        continue;
                    }
                }
                let phase_stop = resync.as_ref().map_or(stop, |resync| &resync.stop);
                // Everything that is not the crate's own runs in there: the type's decoding and accessors,
                // the store, the clock.
                let step = || {
                    self.log_if_long(&machine, &mut listing);
                    self.carry_out(&mut machine, &mut body, &mut buffer, phase_stop);
                };
                if let Err(panic) = panic::catch(step) {
                    body = None;
                    machine.given_up(Error::other(format!("a step of the reflector {panic}")));
                }
                if let Some(phase) = resync.take_if(|resync| resync.stop.is_stopped()) {
                    // Asked in this order: the phase is stopped by a stop from outside, too.
                    if !stop.is_stopped() {
                        machine.given_up(resync_failed(&phase.failure()));
                    }
                    phase.end();
                }
                // Also after a stop: what has reached the store is known.
                self.publish(&mut machine);
            }
            if let Some(resync) = resync {
                resync.end();
            }
        });
        self.status.lock().state = ReflectorState::Stopped;
    }

    /// Logs the time that a list or a watch-list took which is over now, if it took long: `listing` is the
    /// one of the step before, and when it began (L17).
    fn log_if_long(&self, machine: &Machine<'_, T>, listing: &mut Option<(&'static str, Instant)>) {
        let what = machine.listing();
        if listing.map(|(what, _)| what) == what {
            return;
        }
        let now = self.options.clock.now();
        if let Some((what, began)) = listing.take() {
            let took = now.duration_since(began);
            if took > LONG {
                log::info!("{}: the {what} took {} s", self.name(), took.as_secs());
            }
        }
        *listing = what.map(|what| (what, now));
    }

    /// Carries out one step. After a stop what came of it counts no more.
    fn carry_out(
        &self,
        machine: &mut Machine<'_, T>,
        body: &mut Option<Body>,
        buffer: &mut ReadBuffer,
        stop: &Stop,
    ) {
        let clock = &self.options.clock;
        let step = machine.step();
        if !matches!(step, Step::Read(_)) {
            *body = None;
        }
        match step {
            Step::List(ref options) | Step::Watch(ref options) => {
                let started = clock.now();
                let opened = self.open(&step, stop);
                if stop.is_stopped() {
                    return;
                }
                let now = clock.now();
                if opened
                    .as_ref()
                    .map_or_else(|error| error.status().is_some(), |_| true)
                {
                    self.status.lock().last_contact = Some(now);
                }
                machine.opened(
                    opened.map(|opened| {
                        *body = Some(opened);
                        *buffer = ReadBuffer::default();
                    }),
                    options.timeout_seconds,
                    started,
                    now,
                );
            }
            Step::Read(patience) => {
                let read = match body {
                    Some(body) => read(body, buffer.room(), patience),
                    None => Come::Bytes(0),
                };
                if stop.is_stopped() {
                    return;
                }
                let read = match (read, body) {
                    (Come::Bytes(length), Some(body)) if length > 0 => {
                        self.receive(machine, body, buffer, length, patience)
                    }
                    (read, _) => Some(read),
                };
                if stop.is_stopped() {
                    return;
                }
                match read {
                    None => {}
                    Some(Come::Bytes(_)) => machine.ended(Ok(()), &*self.store, clock.now()),
                    Some(Come::Nothing) => machine.silent(clock.now()),
                    Some(Come::Failure(error)) => {
                        machine.ended(Err(error), &*self.store, clock.now())
                    }
                }
            }
            Step::Wait(duration) => {
                self.status.lock().state = ReflectorState::BackingOff;
                if clock.wait(duration, stop) {
                    machine.waited(clock.now());
                }
            }
        }
    }

    /// Hands over what has been read, and, if that is much, what is there behind it. Answers what comes after
    /// that, if it is not bytes.
    fn receive(
        &self,
        machine: &mut Machine<'_, T>,
        body: &mut Body,
        buffer: &mut ReadBuffer,
        length: usize,
        patience: Option<Duration>,
    ) -> Option<Come> {
        let clock = &self.options.clock;
        let began = clock.now();
        let was_watching = machine.is_watching();
        let (mut length, mut after) = (Some(length), None);
        let _recycling = Recycling::begin(self.recycle.as_deref());
        let mut write = || {
            for reads in 1.. {
                let Some(received) = length.take() else {
                    return;
                };
                let now = clock.now();
                self.status.lock().last_contact = Some(now);
                machine.received(buffer.received(received), &*self.store, now);
                let goes_on = buffer.is_flooded()
                    && reads < AT_ONCE
                    && now.saturating_duration_since(began) < SHORT
                    && patience.is_some()
                    && matches!(machine.step(), Step::Read(_))
                    && body.glances();
                if !goes_on {
                    return;
                }
                match read(body, buffer.room(), Some(Duration::ZERO)) {
                    Come::Bytes(0) => after = Some(Come::Bytes(0)),
                    Come::Bytes(more) => length = Some(more),
                    Come::Nothing => {}
                    failure @ Come::Failure(_) => after = Some(failure),
                }
            }
        };
        self.store.write_together(&mut write);
        // If the store has not: nothing is lost.
        write();
        // What follows the objects of a watch-list comes bit by bit.
        if machine.is_watching() && !was_watching {
            *buffer = ReadBuffer::default();
        }
        after
    }

    fn open(&self, step: &Step, stop: &Stop) -> Result<Body, Error> {
        let opened = panic::catch(|| match step {
            Step::List(options) => self.lister_watcher.list(options, stop),
            Step::Watch(options) => self.lister_watcher.watch(options, stop),
            Step::Read(_) | Step::Wait(_) => Err(Error::stopped()),
        });
        let mut status = self.status.lock();
        match step {
            Step::List(_) => status.lists += 1,
            _ => status.watches += 1,
        }
        opened.unwrap_or_else(|panic| Err(Error::other(format!("the lister-watcher {panic}"))))
    }

    /// Publishes the outcome of a list before the store has the list: a program that waits for the sync may
    /// read the status right after it. If the store refuses the list, [`publish`](Self::publish) takes it back.
    fn announce(&self, machine: &Machine<'_, T>, outcome: &ListOutcome<'_>) {
        let error = machine.last_report().map(|report| self.in_context(report));
        let at = error
            .as_ref()
            .and_then(|_| panic::catch(|| self.options.clock.now()).ok());
        let ListOutcome {
            version,
            received,
            complete,
            undecodable,
        } = *outcome;
        let mut status = self.status.lock();
        version.clone_into(&mut status.resource_version);
        (status.listed, status.received, status.complete) = (true, received, complete);
        status.undecodable = undecodable.cloned();
        status.unreadable = machine.view().unreadable;
        status.relists = machine.replaced();
        if error.is_some() {
            (status.last_error, status.last_error_at) = (error, at);
        }
    }

    /// With what was being read, where the error does not say it.
    fn in_context(&self, report: &Report) -> Error {
        let error = report.error.clone();
        match report.reading {
            Some(reading) => error.context(format!("{reading} {}", self.description())),
            None => error,
        }
    }

    /// Makes public what a step has changed, and tells what went wrong.
    fn publish(&self, machine: &mut Machine<'_, T>) {
        let mut reports = machine.reports();
        for report in &mut reports {
            report.error = self.in_context(report);
        }
        // A clock is user code: not under the lock.
        let failed_at = reports
            .last()
            .and_then(|_| panic::catch(|| self.options.clock.now()).ok());
        {
            let mut status = self.status.lock();
            if status.resource_version != machine.version() {
                machine.version().clone_into(&mut status.resource_version);
            }
            if let Some((received, expected)) = machine.list_progress() {
                status.state = ReflectorState::Listing;
                (status.received, status.expected) = (received, expected);
            } else if machine.has_open_watch() {
                status.state = ReflectorState::Watching;
                // The last objects of a watch-list come with the bookmark that ends them.
                status.received = machine.received_objects();
            }
            status.listed = machine.has_listed();
            status.shard_applied = machine.shard_applied();
            let View {
                complete,
                unreadable,
            } = machine.view();
            (status.complete, status.unreadable) = (complete, unreadable);
            if status.undecodable.is_some() != machine.undecodable().is_some() {
                status.undecodable = machine.undecodable().cloned();
            }
            status.relists = machine.replaced().saturating_sub(1);
            if machine.is_well() {
                status.failures = 0;
            }
            if let Some(report) = reports.last() {
                status.last_error = Some(report.error.clone());
                status.last_error_at = failed_at;
                status.failures +=
                    reports.iter().filter(|report| !report.unreadable).count() as u64;
            }
        }
        self.tell(machine, &reports);
    }

    /// Hands what went wrong to the handler, or logs it.
    fn tell(&self, machine: &Machine<'_, T>, reports: &[Report]) {
        // Loggers are user code: not under the lock.
        let recovered = {
            let mut logged = self.logged.lock();
            if machine.view().complete {
                logged.complete();
            }
            machine.is_well().then(|| logged.well()).flatten()
        };
        if let Some(failures) = recovered {
            log::info!("{}: well again after {failures}", self.name());
        }
        for report in reports {
            let handler = self
                .options
                .watch_error_handler
                .as_ref()
                .filter(|_| report.to_handler);
            let error = report.error.to_string();
            let level = self.logged.lock().failed(report, &error);
            if handler.is_none() {
                log::log!(level, "{}", named(&self.name(), &error));
            }
            if let Some(Err(panic)) = handler.map(|handler| panic::catch(|| handler(&report.error)))
            {
                log::error!("{}: the watch error handler {panic}", self.name());
            }
        }
    }

    fn name(&self) -> String {
        match self.options.name.as_str() {
            "" => self.description(),
            name => name.to_owned(),
        }
    }

    fn description(&self) -> String {
        let description = panic::catch(|| self.lister_watcher.description());
        description.unwrap_or_else(|panic| format!("objects whose description {panic}"))
    }

    /// Starts the thread, unless it runs already or there is no period.
    fn start_resync<'scope>(
        &'scope self,
        resync: &mut Resync<'scope>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<(), StoreError> {
        let period = self.options.resync_period;
        if period.is_zero() || resync.thread.is_some() {
            return Ok(());
        }
        let (stop, failed) = (resync.stop.clone(), Arc::clone(&resync.failed));
        let thread = threads::named(
            format!("{} resync", self.name()),
            self.options.stack_sizes.others,
        );
        let owners = Owners::current();
        let thread = thread.spawn_scoped(scope, move || {
            let resyncs = owners.adopt(|| panic::catch(|| self.resync_until(period, &stop)));
            if let Err(error) = resyncs.unwrap_or_else(|panic| Err(StoreError::other(panic))) {
                *failed.lock() = Some(error);
                stop.stop();
            }
        });
        let thread = thread.map_err(|error| {
            StoreError::other(format!("can't start the resync thread: {error}"))
        })?;
        resync.thread = Some(thread);
        Ok(())
    }

    /// The resync thread: at each tick, unless nobody wants one, the store tells everything once more.
    fn resync_until(&self, period: Duration, stop: &Stop) -> Result<(), StoreError> {
        while self.options.clock.wait(period, stop) {
            if self
                .options
                .should_resync
                .as_ref()
                .is_none_or(|should_resync| should_resync())
            {
                self.store.resync()?;
            }
        }
        Ok(())
    }
}

/// The resyncs of one watch phase (W13), which begin when its objects are in the store.
struct Resync<'scope> {
    /// Ends the phase: the thread, and the watch when a resync failed.
    stop: Stop,
    /// What a resync failed with. Innermost; written before `stop` is given.
    failed: Arc<Mutex<Option<StoreError>>>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl Resync<'_> {
    fn new(stop: &Stop) -> Self {
        Self {
            stop: stop.child(),
            failed: Arc::default(),
            thread: None,
        }
    }

    /// Why the phase was stopped, if not from outside: a resync failed, or a lister-watcher gave the stop
    /// that it was given.
    fn failure(&self) -> StoreError {
        let failed = self.failed.lock().take();
        failed.unwrap_or_else(|| StoreError::other("the watch was stopped from within"))
    }

    fn end(self) {
        self.stop.stop();
        if let Some(Err(panic)) = self.thread.map(ScopedJoinHandle::join) {
            log::error!("a resync {}", panic::message(&*panic));
        }
    }
}

fn resync_failed(error: &StoreError) -> Error {
    Error::other(format!("resync: {error}"))
}

/// What has come of a read.
enum Come {
    /// So many bytes; none at the end.
    Bytes(usize),
    /// Nothing, in the time that there was.
    Nothing,
    Failure(Error),
}

fn read(body: &mut Body, buffer: &mut [u8], patience: Option<Duration>) -> Come {
    let reads = panic::catch(|| {
        let limited = patience.is_some_and(|patience| body.set_read_timeout(patience));
        loop {
            match body.read(buffer) {
                Ok(length) => return Come::Bytes(length),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut && limited => {
                    return Come::Nothing;
                }
                Err(error) => return Come::Failure(Error::from(error)),
            }
        }
    });
    reads.unwrap_or_else(|panic| {
        Come::Failure(Error::other(format!("the reader of the body {panic}")))
    })
}

impl<T> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("status", &*self.status.lock())
            .finish_non_exhaustive()
    }
}
