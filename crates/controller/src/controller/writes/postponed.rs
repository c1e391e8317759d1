//! The keys that wait until the caches of a controller contain its own writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ::log::Level;
use parking_lot::Mutex;

use super::own_writes::{CachedStates, Observed, OwnWrites, PROVE_AFTER, Settled, Times, Write};
use crate::controller::call::calls::{Call, Calls};
use crate::controller::call::failure_log::Topic;
use crate::controller::call::status::AwaitedWrite;
use crate::controller::call::timers::{TimerId, Timers};
use crate::controller::sources::catch_up::CatchUps;
use crate::log;
use k8s_informer::client::api::{WriteObserver, WriteOutcome};
use k8s_informer::object::{GroupVersionResource, Key, ObjectName};
use k8s_informer::workqueue::{AddOptions, AnyWorkQueue, PriorityQueue};

/// The time between two checks of a write that the watch has not delivered is at least this long.
const MIN_CHECK: Duration = Duration::from_secs(1);

/// The own writes of all keys are checked after this multiple of the time between two checks of a
/// key that waits.
const SWEEP_RETRIES: u32 = 10;

/// The maximum number of awaited writes in a status.
const MAX_AWAITED: usize = 20;

/// Replaces timeouts that exceed the range of `Instant`.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The own writes that the caches may lack, and the keys that wait for them.
pub(crate) struct PostponedKeys {
    calls: Arc<Calls>,
    /// Gets the keys that need not wait any longer.
    queue: Arc<PriorityQueue<Key>>,
    timers: Arc<Timers>,
    catch_ups: Arc<CatchUps>,
    /// How long a write with an unknown outcome is awaited.
    timeout: Duration,
    /// No other lock is taken and no user code runs while this one is held.
    state: Mutex<State>,
}

/// Its collections are trees, which give memory back after a peak.
#[derive(Default)]
struct State {
    own_writes: OwnWrites,
    /// Whether a timer will check the own writes of all keys.
    has_sweep: bool,
    keys: BTreeMap<Key, Postponed>,
    /// When keys that are queued for another check began to wait.
    rechecked: BTreeMap<Key, Instant>,
    /// The number of calls of [`PostponedKeys::check_all_again`].
    rejections: u64,
    /// The sources whose caches were made current, because their watches may not deliver a write.
    proofs: BTreeMap<usize, Reading>,
}

/// A consistent read of a source, after which all keys are checked.
enum Reading {
    Running,
    /// It ended at this time.
    Ended(Instant),
}

struct Postponed {
    /// The priority with which the key continues.
    priority: i32,
    /// The timer of the next check.
    timer: Option<TimerId>,
    /// When the key began to wait.
    since: Instant,
}

impl PostponedKeys {
    pub(crate) fn new(
        calls: Arc<Calls>,
        queue: Arc<PriorityQueue<Key>>,
        timers: Arc<Timers>,
        catch_ups: Arc<CatchUps>,
        timeout: Duration,
    ) -> Self {
        Self {
            calls,
            queue,
            timers,
            catch_ups,
            timeout: timeout.min(YEAR),
            state: Mutex::default(),
        }
    }

    /// Returns whether the caches contain the own writes of a key. Otherwise the key is put aside
    /// until they do.
    pub(crate) fn is_ready(self: &Arc<Self>, call: &Call, priority: i32) -> bool {
        let key = &call.key;
        let now = self.calls.clock.now();
        let (rejections, rechecked) = {
            let state = &mut *self.state.lock();
            (state.rejections, state.rechecked.remove(key))
        };
        let settled = self.settle(key, |state, settled| {
            let postponed = state.keys.remove(key);
            if settled.check_at.is_some() {
                let earlier = postponed.as_ref();
                let waiting = Postponed {
                    priority: earlier.map_or(priority, |earlier| earlier.priority.max(priority)),
                    timer: None,
                    since: earlier
                        .map(|earlier| earlier.since)
                        .or(rechecked)
                        .unwrap_or(now),
                };
                state.keys.insert(Key::clone(key), waiting);
            }
            (settled, postponed)
        });
        let Some((settled, postponed)) = settled else {
            self.measure(rechecked);
            return true;
        };
        let since = postponed.as_ref().map(|postponed| postponed.since);
        self.cancel(postponed.and_then(|postponed| postponed.timer));
        self.report(call, &settled);
        settled
            .unproven
            .iter()
            .for_each(|source| self.prove(*source));
        let Some(check_at) = settled.check_at else {
            self.measure(since.or(rechecked));
            return true;
        };
        let now = self.calls.clock.now();
        // A cache that has rejected an object meanwhile may have been checked before.
        let delay = match self.state.lock().rejections == rejections {
            true => check_at.saturating_duration_since(now),
            false => Duration::ZERO,
        };
        let (this, waiting) = (Arc::downgrade(self), Key::clone(key));
        let timer = self
            .timers
            .after(delay, move || Self::check_again(&this, &waiting));
        let unused = match self.state.lock().keys.get_mut(key) {
            Some(postponed) => std::mem::replace(&mut postponed.timer, timer),
            // The last write has arrived in the meantime.
            None => timer,
        };
        self.cancel(unused);
        false
    }

    /// Lets the cache of a source become current, and then checks all keys that wait. A write that a
    /// selector excludes from the source has no event that would end the wait.
    fn prove(self: &Arc<Self>, source: usize) {
        let now = self.calls.clock.now();
        {
            let proofs = &mut self.state.lock().proofs;
            let is_early = proofs.get(&source).is_some_and(|reading| match reading {
                // It may have begun before the write. The keys are checked again at its end.
                Reading::Running => true,
                // The key is checked again after this time. A server without usable versions would
                // otherwise get one read after the other.
                Reading::Ended(at) => now.saturating_duration_since(*at) < PROVE_AFTER,
            });
            if is_early {
                return;
            }
            proofs.insert(source, Reading::Running);
        }
        let this = Arc::downgrade(self);
        let then = move || {
            if let Some(this) = this.upgrade() {
                let ended = Reading::Ended(this.calls.clock.now());
                this.state.lock().proofs.insert(source, ended);
                this.resume_all();
            }
        };
        let (of, controller) = (&self.calls.sources[source], &self.calls.controller);
        // After all writes that wait for it.
        let since = Instant::now();
        if let Err(error) = self.catch_ups.start(controller, of, since, then) {
            let ended = Reading::Ended(now);
            self.state.lock().proofs.insert(source, ended);
            log::error!(
                "controller {controller:?}: keys wait for the next bookmark of {}: can't start a thread: {error}",
                of.name()
            );
        }
    }

    fn report(&self, call: &Call, settled: &Settled) {
        let cache = |source: usize| self.calls.sources[source].name();
        let report = |problem| call.report(Level::Warn, Topic::OwnWrites, true, problem);
        for &source in &settled.late {
            report(format!(
                "the cache of {} still lacks a write of this controller; the key waits for it",
                cache(source)
            ));
        }
        if let Some((source, object)) = settled.given_up.first() {
            report(format!(
                "objects that this controller has deleted remain, such as {object:?} in the cache of {} ({} in all); the \
                 key does not wait any longer: find out what holds them",
                cache(*source),
                settled.given_up.len()
            ));
        }
    }

    /// Forgets the own writes of a key that the caches have.
    pub(crate) fn forget_arrived(&self, key: &Key) {
        self.settle(key, |_, _| ());
    }

    /// Checks the own writes of a key, and forgets those that the caches have. Calls `then` under
    /// the lock, unless there are no writes.
    fn settle<R>(&self, key: &Key, then: impl FnOnce(&mut State, Settled) -> R) -> Option<R> {
        let writes: Vec<_> = self.state.lock().own_writes.of(key).cloned().collect();
        if writes.is_empty() {
            return None;
        }
        let now = self.calls.clock.now();
        let check = |write: Write| (write.id, write.check(&self.calls.sources, now));
        let checks = writes.into_iter().map(check).collect();
        let state = &mut *self.state.lock();
        let settled = state.own_writes.settle(key, &checks, now, self.retry());
        Some(then(state, settled))
    }

    /// Returns the time between two checks of own writes.
    fn retry(&self) -> Duration {
        self.timeout.max(MIN_CHECK)
    }

    /// Checks the own writes of all keys, because no event or call may follow that would remove
    /// them. A key that waits has its own timer, which also reports delays.
    fn sweep(this: &Weak<Self>) {
        let Some(this) = this.upgrade() else { return };
        let mut keys = {
            let state = &mut *this.state.lock();
            let keys = state.own_writes.keys();
            state.has_sweep = !keys.is_empty();
            keys
        };
        if keys.is_empty() {
            return;
        }
        keys.retain(|key| !this.state.lock().keys.contains_key(key));
        for key in &keys {
            let ready = this.settle(key, |state, settled| match settled.check_at {
                Some(_) => None,
                // Put aside in the meantime.
                None => state.keys.remove(key),
            });
            this.resume(Key::clone(key), ready.flatten());
        }
        this.sweep_later();
    }

    fn sweep_later(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        // Rarely, because an event or the check after the call ends most writes.
        let delay = SWEEP_RETRIES * self.retry();
        self.timers.after(delay, move || Self::sweep(&this));
    }

    fn check_again(this: &Weak<Self>, key: &Key) {
        let Some(this) = this.upgrade() else { return };
        let postponed = {
            let state = &mut *this.state.lock();
            let postponed = state.keys.remove(key);
            state.recheck(key, postponed.as_ref());
            postponed
        };
        this.requeue(Key::clone(key), postponed);
    }

    /// Checks the keys that wait again after a failure of a source. If its cache has rejected an
    /// object that they wait for, no event ends the wait.
    pub(crate) fn check_all_again(&self, source: usize) {
        if !self.calls.sources[source].status().complete {
            self.resume_all();
        }
    }

    /// Checks all keys again that wait.
    pub(crate) fn resume_all(&self) {
        let postponed = {
            let state = &mut *self.state.lock();
            state.rejections += 1;
            let keys = std::mem::take(&mut state.keys);
            for (key, postponed) in &keys {
                state.recheck(key, Some(postponed));
            }
            keys
        };
        for (key, postponed) in postponed {
            self.requeue(key, Some(postponed));
        }
    }

    /// Whether the caches may lack own writes.
    pub(crate) fn awaits_writes(&self) -> bool {
        !self.state.lock().own_writes.is_empty()
    }

    /// Reports a change in the cache of a source, so that keys continue that wait for it.
    pub(crate) fn observed(&self, source: usize, object: &Key, change: Observed<'_>) {
        if let Observed::Gone { uid, .. } = change {
            let id = (source, Key::clone(object));
            self.calls.applied.forget(&id, uid);
        }
        let ready: Vec<_> = {
            let state = &mut *self.state.lock();
            let arrived = state.own_writes.observed(source, object, &change);
            let take = |key: Key| (state.keys.remove(&key), key);
            arrived.into_iter().map(take).collect()
        };
        for (postponed, key) in ready {
            self.resume(key, postponed);
        }
    }

    /// Queues a key whose last own write has arrived, if it was put aside.
    fn resume(&self, key: Key, postponed: Option<Postponed>) {
        self.measure(postponed.as_ref().map(|postponed| postponed.since));
        self.requeue(key, postponed);
    }

    /// Reports the time that a key has waited since then.
    fn measure(&self, since: Option<Instant>) {
        if let Some(since) = since {
            let waited = self.calls.clock.now().saturating_duration_since(since);
            let meter = &self.calls.meter;
            meter.event(|metrics| metrics.waited_for_own_writes(waited));
        }
    }

    /// Queues a key again if it was put aside.
    fn requeue(&self, key: Key, postponed: Option<Postponed>) {
        if let Some(Postponed {
            priority, timer, ..
        }) = postponed
        {
            self.cancel(timer);
            self.queue
                .add_with(key, AddOptions::new().priority(priority));
        }
    }

    fn cancel(&self, timer: Option<TimerId>) {
        timer.inspect(|timer| self.timers.cancel(*timer));
    }

    /// Records writes of a key.
    fn record(self: &Arc<Self>, key: &Key, writes: Vec<Write>) {
        // After the end of the controller, nothing would remove the record.
        if writes.is_empty() || self.queue.is_stopped() {
            return;
        }
        let has_sweep = {
            let state = &mut *self.state.lock();
            writes
                .into_iter()
                .for_each(|write| state.own_writes.add(key, write));
            std::mem::replace(&mut state.has_sweep, true)
        };
        if !has_sweep {
            self.sweep_later();
        }
        // A write after the end of the call, by another thread. No event of the key may follow.
        //
        // The lock of the calls is taken after this one was released, never under it. A call that
        // ends in between loses no key: only a call puts its key aside, and under the lock that
        // protects the record, which the next call finds. If this write came after the check at the
        // end of the call, and its event has arrived already, the sweep removes the record.
        if !self.calls.is_running(key) {
            self.queue.add(Key::clone(key));
        }
    }

    /// The number of keys that wait.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().keys.len()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn keys_with_writes(&self) -> usize {
        self.state.lock().own_writes.keys().len()
    }

    /// Returns one write that each key waits for, for the first keys.
    pub(crate) fn awaited(&self) -> Vec<AwaitedWrite> {
        let awaited: Vec<_> = {
            let State {
                own_writes, keys, ..
            } = &*self.state.lock();
            let first = |key| Some((Key::clone(key), own_writes.of(key).next()?.clone()));
            keys.keys().take(MAX_AWAITED).filter_map(first).collect()
        };
        let now = self.calls.clock.now();
        let awaited = awaited.into_iter().map(|(key, write)| {
            let (source, object) = &write.object;
            AwaitedWrite {
                key,
                informer: self.calls.sources[*source].name().to_owned(),
                object: Key::clone(object),
                change: write.result.to_string(),
                since: now.saturating_duration_since(write.times.written),
            }
        });
        awaited.collect()
    }
}

impl State {
    /// Remembers when a key began to wait, until the next check.
    fn recheck(&mut self, key: &Key, postponed: Option<&Postponed>) {
        let since = postponed.map(|postponed| postponed.since);
        self.rechecked
            .extend(since.map(|since| (Key::clone(key), since)));
    }
}

/// Records the writes of one key.
pub(crate) struct KeyWrites {
    /// Weak, because a program can keep an [`Api`](k8s_informer::client::api::Api).
    pub(crate) postponed: Weak<PostponedKeys>,
    pub(crate) key: Key,
}

impl KeyWrites {
    /// Records a write of the object `target`, whose states `before` the write may be unknown.
    pub(crate) fn record(
        &self,
        resource: &GroupVersionResource,
        target: ObjectName,
        outcome: &WriteOutcome<'_>,
        before: CachedStates,
    ) {
        let Some(of) = self.postponed.upgrade() else {
            return;
        };
        let times = Times::new(of.calls.clock.now(), of.timeout, of.retry());
        let sources = &of.calls.sources;
        let writes = Write::of_outcome(sources, resource, target, outcome, before, times);
        of.record(&self.key, writes);
    }
}

impl WriteObserver for KeyWrites {
    fn before_write<'a>(
        &'a self,
        resource: &GroupVersionResource,
        object: &ObjectName,
    ) -> Box<dyn FnOnce(WriteOutcome<'_>) + 'a> {
        let of = self.postponed.upgrade();
        let before = of.map(|of| Write::before(&of.calls.sources, resource, object));
        let before = before.unwrap_or_default();
        let (resource, object) = (resource.clone(), object.clone());
        Box::new(move |outcome| self.record(&resource, object, &outcome, before))
    }
}
