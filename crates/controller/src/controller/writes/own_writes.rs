//! The own writes that the caches may lack, and the keys that wait for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ::log::Level;
use parking_lot::Mutex;
use serde::Serialize;

use super::applied::AppliedObjects;
use super::postponed::{Postponed, PostponedKeys};
use super::record::{CacheChange, CachedStates, PROVE_AFTER, Settled, Times, Write, WriteRecord};
use crate::controller::call::calls::{Call, Calls};
use crate::controller::call::core::Core;
use crate::controller::call::failure_log::Topic;
use crate::controller::sources::catch_up::CatchUps;
use crate::log;
use crate::serve::json;
use crate::timers::{TimerId, Timers};
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

/// The own writes of a controller: those that its caches may lack, with the keys that wait for them,
/// and the answers to its applies.
///
/// One lock guards the record and the waiting keys, so that no write arrives between the check of a
/// key and its wait.
pub(crate) struct OwnWrites {
    core: Arc<Core>,
    calls: Arc<Calls>,
    /// Gets the keys that need not wait any longer.
    queue: Arc<PriorityQueue<Key>>,
    timers: Arc<Timers>,
    catch_ups: Arc<CatchUps>,
    /// How long a write with an unknown outcome is awaited.
    timeout: Duration,
    pub(crate) applied: AppliedObjects,
    /// No other lock is taken and no user code runs while this one is held.
    state: Mutex<State>,
}

/// Its collections are trees, which give memory back after a peak.
#[derive(Default)]
struct State {
    record: WriteRecord,
    postponed: PostponedKeys,
    /// Whether a timer will check the own writes of all keys.
    has_sweep: bool,
    /// The sources whose caches were made current, because their watches may not deliver a write.
    proofs: BTreeMap<usize, Reading>,
}

/// A consistent read of a source, after which all keys are checked.
enum Reading {
    Running,
    /// It ended at this time.
    Ended(Instant),
}

/// A write that a key waits for.
///
/// Its JSON has whole seconds, as `/status` shows them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AwaitedWrite {
    /// The key that waits.
    #[serde(serialize_with = "json::text")]
    pub key: Key,
    /// The name of the informer whose cache lacks the write.
    pub informer: String,
    /// The key of the written object. Empty if its name is unknown because the server generates it.
    #[serde(serialize_with = "json::text")]
    pub object: Key,
    /// What the cache lacks: `version 71`, `its deletion`, or `a change` after a write whose result
    /// is unknown.
    pub change: String,
    /// The time since the write.
    #[serde(rename = "seconds", serialize_with = "json::whole_seconds")]
    pub since: Duration,
}

impl OwnWrites {
    pub(crate) fn new(
        calls: Arc<Calls>,
        queue: Arc<PriorityQueue<Key>>,
        timers: Arc<Timers>,
        catch_ups: Arc<CatchUps>,
        timeout: Duration,
    ) -> Self {
        Self {
            core: Arc::clone(calls.core()),
            calls,
            queue,
            timers,
            catch_ups,
            timeout: timeout.min(YEAR),
            applied: AppliedObjects::default(),
            state: Mutex::default(),
        }
    }

    /// Returns whether the caches contain the own writes of a key. Otherwise the key is put aside
    /// until they do.
    ///
    /// The lock is never held while caches are read, timers set or lines logged. So the check of a
    /// key is a round with the lock to get its writes, one without it to read the caches, and one with
    /// it to settle. What happens in between is found by the last round, or by `resumptions`.
    pub(crate) fn is_ready(self: &Arc<Self>, call: &Call, priority: i32) -> bool {
        let key = &call.key;
        let now = self.core.clock.now();
        let (resumptions, rechecked) = {
            let postponed = &mut self.state.lock().postponed;
            (postponed.resumptions(), postponed.take_rechecked(key))
        };
        // Check and put aside in one step: the event of the last write finds the key either in the
        // record or among the waiting keys.
        let settled = self.settle(key, |state, settled| {
            let earlier = state.postponed.remove(key);
            if settled.check_at.is_some() {
                let since = rechecked.unwrap_or(now);
                let postponed = &mut state.postponed;
                postponed.put_aside(key, priority, since, earlier.as_ref());
            }
            (settled, earlier)
        });
        let Some((settled, earlier)) = settled else {
            self.measure(rechecked);
            return true;
        };
        // Loggers, timers and reads follow without the lock.
        let since = earlier.as_ref().map(|earlier| earlier.since);
        self.cancel(earlier.and_then(|earlier| earlier.timer));
        self.report(call, &settled);
        let unproven = settled.unproven.iter();
        unproven.for_each(|source| self.prove(*source));
        let Some(check_at) = settled.check_at else {
            self.measure(since.or(rechecked));
            return true;
        };
        self.set_timer(key, check_at, resumptions);
        false
    }

    /// Sets the timer of the next check of a key that was put aside.
    fn set_timer(self: &Arc<Self>, key: &Key, check_at: Instant, resumptions: u64) {
        let now = self.core.clock.now();
        // All keys were resumed since the check began, for example because a cache has rejected an
        // object. This key was not among them, so it is checked again at once.
        let delay = match self.state.lock().postponed.resumptions() == resumptions {
            true => check_at.saturating_duration_since(now),
            false => Duration::ZERO,
        };
        let (this, waiting) = (Arc::downgrade(self), Key::clone(key));
        let timer = self
            .timers
            .after(delay, move || Self::check_again(&this, &waiting));
        // The last write may have arrived in the meantime, so that the timer is not needed.
        let unused = self.state.lock().postponed.set_timer(key, timer);
        self.cancel(unused);
    }

    /// Lets the cache of a source become current, and then checks all keys that wait. A write that a
    /// selector excludes from the source has no event that would end the wait.
    fn prove(self: &Arc<Self>, source: usize) {
        let core = &self.core;
        let now = core.clock.now();
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
                let ended = Reading::Ended(this.core.clock.now());
                this.state.lock().proofs.insert(source, ended);
                this.resume_all();
            }
        };
        // After all writes that wait for it.
        let since = Instant::now();
        let informer = &core.sources[source];
        if let Err(error) = self.catch_ups.start(&core.name, informer, since, then) {
            let ended = Reading::Ended(now);
            self.state.lock().proofs.insert(source, ended);
            log::error!(
                "controller {:?}: keys wait for the next bookmark of {}: can't start a thread: {error}",
                core.name,
                informer.name()
            );
        }
    }

    fn report(&self, call: &Call, settled: &Settled) {
        let cache = |source: usize| self.core.sources[source].name();
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
        let writes: Vec<_> = self.state.lock().record.of(key).cloned().collect();
        if writes.is_empty() {
            return None;
        }
        // Reads of the caches take their locks, so they come before ours. An event that removes one
        // of these writes meanwhile wins: the record ignores the check of a write that it lacks.
        let now = self.core.clock.now();
        let check = |write: Write| (write.id, write.check(&self.core.sources, now));
        let checks = writes.into_iter().map(check).collect();
        let state = &mut *self.state.lock();
        let settled = state.record.settle(key, &checks, now, self.retry());
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
            let keys = state.record.keys();
            state.has_sweep = !keys.is_empty();
            keys
        };
        if keys.is_empty() {
            return;
        }
        keys.retain(|key| !this.state.lock().postponed.contains(key));
        for key in &keys {
            let ready = this.settle(key, |state, settled| match settled.check_at {
                Some(_) => None,
                // Put aside in the meantime.
                None => state.postponed.remove(key),
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
        let postponed = this.state.lock().postponed.remove_for_check(key);
        this.requeue(Key::clone(key), postponed);
    }

    /// Checks the keys that wait again after a failure of a source. If its cache has rejected an
    /// object that they wait for, no event ends the wait.
    pub(crate) fn source_failed(&self, source: usize) {
        if !self.core.sources[source].status().complete {
            self.resume_all();
        }
    }

    /// Checks all keys again that wait.
    pub(crate) fn resume_all(&self) {
        let postponed = self.state.lock().postponed.remove_all_for_check();
        for (key, postponed) in postponed {
            self.requeue(key, Some(postponed));
        }
    }

    /// Whether the caches may lack own writes.
    pub(crate) fn awaits_writes(&self) -> bool {
        !self.state.lock().record.is_empty()
    }

    /// Reports a change in the cache of a source, so that keys continue that wait for it, and the
    /// answers to applies of an object that is gone are forgotten.
    pub(crate) fn observed(&self, source: usize, object: &Key, change: CacheChange<'_>) {
        if let CacheChange::Gone { uid, .. } = change {
            let id = (source, Key::clone(object));
            self.applied.forget(&id, uid);
        }
        let ready: Vec<_> = {
            let state = &mut *self.state.lock();
            let arrived = state.record.observed(source, object, &change);
            let take = |key: Key| (state.postponed.remove(&key), key);
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
            let core = &self.core;
            let waited = core.clock.now().saturating_duration_since(since);
            core.meter
                .event(|metrics| metrics.waited_for_own_writes(waited));
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
            let record = &mut state.record;
            writes.into_iter().for_each(|write| record.add(key, write));
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
    pub(crate) fn postponed(&self) -> usize {
        self.state.lock().postponed.len()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn keys_with_writes(&self) -> usize {
        self.state.lock().record.keys().len()
    }

    /// Returns one write that each key waits for, for the first keys.
    pub(crate) fn awaited(&self) -> Vec<AwaitedWrite> {
        let awaited: Vec<_> = {
            let State {
                record, postponed, ..
            } = &*self.state.lock();
            let first = |key| Some((Key::clone(key), record.of(key).next()?.clone()));
            let keys = postponed.keys().take(MAX_AWAITED);
            keys.filter_map(first).collect()
        };
        let core = &self.core;
        let now = core.clock.now();
        let awaited = awaited.into_iter().map(|(key, write)| {
            let (source, object) = &write.object;
            AwaitedWrite {
                key,
                informer: core.sources[*source].name().to_owned(),
                object: Key::clone(object),
                change: write.result.to_string(),
                since: now.saturating_duration_since(write.times.written),
            }
        });
        awaited.collect()
    }
}

/// Records the writes of one key.
pub(crate) struct KeyWrites {
    /// Weak, because a program can keep an [`Api`](k8s_informer::client::api::Api).
    own_writes: Weak<OwnWrites>,
    key: Key,
}

impl KeyWrites {
    pub(crate) fn new(own_writes: &Arc<OwnWrites>, key: &Key) -> Self {
        Self {
            own_writes: Arc::downgrade(own_writes),
            key: Key::clone(key),
        }
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn own_writes(&self) -> Option<Arc<OwnWrites>> {
        self.own_writes.upgrade()
    }

    /// Records a write of the object `target`, whose states before the write are unknown.
    pub(crate) fn record(
        &self,
        resource: &GroupVersionResource,
        target: ObjectName,
        outcome: &WriteOutcome<'_>,
    ) {
        self.record_with(resource, target, outcome, CachedStates::default());
    }

    fn record_with(
        &self,
        resource: &GroupVersionResource,
        target: ObjectName,
        outcome: &WriteOutcome<'_>,
        before: CachedStates,
    ) {
        let Some(own_writes) = self.own_writes.upgrade() else {
            return;
        };
        let core = &own_writes.core;
        let times = Times::new(core.clock.now(), own_writes.timeout, own_writes.retry());
        let writes = Write::of_outcome(&core.sources, resource, target, outcome, before, times);
        own_writes.record(&self.key, writes);
    }
}

impl WriteObserver for KeyWrites {
    fn before_write<'a>(
        &'a self,
        resource: &GroupVersionResource,
        object: &ObjectName,
    ) -> Box<dyn FnOnce(WriteOutcome<'_>) + 'a> {
        let own_writes = self.own_writes.upgrade();
        let before = own_writes.map(|of| Write::before(&of.core.sources, resource, object));
        let before = before.unwrap_or_default();
        let (resource, object) = (resource.clone(), object.clone());
        Box::new(move |outcome| self.record_with(&resource, object, &outcome, before))
    }
}
