//! What must be true of the informer.

use std::collections::BTreeMap;
use std::sync::Arc;

use simulation::error::{WaitCause, WaitError};
use simulation::object::ResourceVersion;
use simulation::reflector::ReflectorState;
use simulation::{Object, Stopper};

use crate::plan::Fault;
use crate::run::{Informer, Run, Wait};
use crate::server::{Change, State};
use crate::thing::{INDEX, KEYS, Spoiled, Thing, group, object};
use crate::world::{Phase, World};

const SECOND: u64 = 1_000_000;

/// How long the informer may take to settle. A silent connection is noticed after up to ten minutes,
/// and a restore after a silence of 21 minutes, which doubles with each list that it causes.
const SETTLES_WITHIN: u64 = 6 * 3600 * SECOND;

/// How long a wait for a version may last that a restore has undone: until a list.
const UNDONE_WITHIN: u64 = 60 * SECOND;

type Cached = BTreeMap<usize, Arc<Thing>>;

impl Run {
    /// Checks what must be true at any time. `is_idle` is whether the informer waits for the server:
    /// nothing is queued then.
    pub fn look(&self, is_idle: bool) {
        let Some(informer) = self.informer() else {
            return;
        };
        let wrong = {
            let world = &mut *self.world();
            let is_idle = is_idle && world.in_callback == 0;
            world.check(&informer, is_idle)
        };
        if let Err(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// Moves on to the next phase if everything is as it must be in the end.
    pub fn settle(&self) {
        let Some(informer) = self.informer() else {
            return;
        };
        let (phase, now) = (self.world().phase, self.time.now());
        if !matches!(phase, Phase::Settling | Phase::Epilogue(0)) {
            return;
        }
        let begun = self.world().phase_since;
        let settled = self.world().is_settled(&informer, now);
        match (settled, phase) {
            (Err(why), _) if now > begun + SETTLES_WITHIN => {
                self.fail(format!("did not settle: {why}"));
            }
            (Ok(()), Phase::Settling) => {
                let stored = number(informer.store_resource_version().as_ref()).unwrap_or(0);
                let is_undone = |wait: &Wait| wait.version > stored;
                if now < begun + UNDONE_WITHIN && self.world().waits.iter().any(is_undone) {
                    return self.trace(|| "unsettled: a wait for an undone version".to_owned());
                }
                self.join_waits(u64::MAX);
                let world = &mut *self.world();
                match world.plan.waits {
                    0 => world.begin_epilogue(now),
                    _ => world.begin_waits(now),
                }
            }
            (Ok(()), _) => {
                self.world().phase = Phase::Done;
                self.trace(|| "settled".to_owned());
                self.stop.stop();
            }
            (Err(why), _) => self.trace(|| format!("unsettled: {why}")),
        }
    }

    /// Checks the waits, which do not block on the thread of the informer.
    pub fn check_waits(&self) {
        let Some(informer) = self.informer() else {
            return;
        };
        let (state, version) = {
            let world = &mut *self.world();
            world.count(Fault::Wait);
            let state = world.rng.below(world.server.writes.len());
            let state = world.server.writes.get(state).map(|it| it.state.clone());
            (state, world.server.version.to_string())
        };
        let stop = Stopper::new();
        let reached = informer.store_resource_version();
        let version = ResourceVersion::new(&version).expect("a number is not empty");
        let waited = informer.wait_for_resource_version(&version, None, &stop);
        let reached_number = number(reached.as_ref());
        let is_reached = reached_number >= number(Some(&version));
        let is_processed = informer.has_processed("ns", &version);
        // A namespace may be ahead of the other one.
        let is_right = is_processed == is_reached || self.world().plan.has_namespaces;
        if waited.is_ok() != is_reached || !is_right {
            self.fail(format!("the wait for {version} at {reached:?}: {waited:?}"));
        }
        if informer
            .wait_for_current_state(std::time::Instant::now(), None, &stop)
            .is_ok()
        {
            self.fail("wait_for_current_state on the own thread".to_owned());
        }
        let Some(state) = state else { return };
        let json = object(
            &State {
                flaw: crate::server::Flaw::None,
                ..state.clone()
            },
            state.version,
            true,
            Spoiled::No,
        );
        let Ok(thing) = serde_json::from_str::<Thing>(&json) else {
            return self.fail(format!("not an object: {json}"));
        };
        let waited = informer.wait_for_object(&thing, None, &stop);
        let cached = informer.lister().get_by_key(KEYS[state.key]);
        let cached = cached.and_then(|it| it.resource_version().parse::<u64>().ok());
        let is_complete = informer.status().complete;
        let is_true = match waited.as_ref().map_err(WaitError::cause) {
            Ok(()) => cached.is_none_or(|cached| cached >= state.version),
            Err(WaitCause::NotStored { .. }) => {
                cached.is_none_or(|cached| cached < state.version)
                    && (!is_complete || cached.is_some())
            }
            Err(WaitCause::OwnThread) => reached_number.is_none_or(|it| it < state.version),
            Err(_) => false,
        };
        if !is_true {
            self.fail(format!(
                "the wait for {state:?} at {reached:?}, cached {cached:?}: {waited:?}"
            ));
        }
    }

    /// Checks a cache that must have everything that the servers had at an earlier time.
    pub fn is_current(
        &self,
        informer: &Informer,
        entries: usize,
        epoch: u32,
        at: u64,
    ) -> Option<String> {
        let world = self.world();
        if world.server.epoch != epoch || world.has_nameless {
            return None;
        }
        for (key, state) in world.server.state_at(entries) {
            let cached = informer.lister().get_by_key(KEYS[key]);
            let is_newer = |cached: Arc<Thing>| {
                world.server.position(cached.write) >= world.server.position(state.write)
            };
            let was_deleted = || world.server.was_absent[state.uid as usize];
            if !cached.map_or_else(was_deleted, is_newer) && !world.has_hidden(key) {
                return Some(format!(
                    "wait_for_current_state at {at} returned without {state:?}"
                ));
            }
        }
        None
    }

    /// Checks the end of the run.
    pub fn ended(&self, is_ok: bool) {
        self.join_waits(u64::MAX);
        let Some(informer) = self.informer() else {
            return;
        };
        let views = self.world().views.clone();
        let phase = self.world().phase;
        let is_stopped = informer.is_stopped() && informer.ended().is_done();
        let is_stopped = is_stopped && informer.status().state == ReflectorState::Stopped;
        let mut handlers = views.iter().map(|view| view.lock().registration.clone());
        let all_ended = handlers.all(|it| it.is_some_and(|it| it.ended().is_done()));
        if !is_ok || !is_stopped || !all_ended {
            self.fail("the run did not end on stop".to_owned());
        } else if phase != Phase::Done {
            self.fail(format!("the run ended in {phase:?}"));
        }
    }
}

fn number(version: Option<&ResourceVersion>) -> Option<u64> {
    version?.to_string().parse().ok()
}

impl World {
    fn check(&mut self, informer: &Informer, is_idle: bool) -> Result<(), String> {
        let status = informer.status();
        let reached = number(informer.store_resource_version().as_ref());
        let seen = number(status.resource_version.as_ref());
        if let (Some(old), Some(reached), Some(seen)) = (self.abandoned, reached, seen) {
            let is_new = |version: u64| match self.server.compacted > old {
                true => version >= self.server.compacted,
                false => version <= self.server.version,
            };
            // Both versions are those of a list that the cache has, or neither is.
            if is_idle && is_new(reached) && is_new(seen) {
                self.abandoned = None;
            }
        }
        let cached = cached(informer)?;
        if self.abandoned.is_none()
            && let Some(reached) = reached
        {
            // The status of a list is published before its objects are in the cache.
            self.check_version(&cached, reached, status.complete && is_idle)?;
        }
        if !is_idle {
            return Ok(());
        }
        let requests = (status.lists, status.watches);
        if requests != self.requests {
            return Err(format!(
                "status has {requests:?} requests of {:?}",
                self.requests
            ));
        }
        for view in &self.views {
            let view = view.lock();
            let Some(registration) = &view.registration else {
                continue;
            };
            let stats = registration.stats();
            let is_counted = (stats.delivered, stats.panics) == (view.delivered, view.panics);
            if is_counted && !view.replay.is_empty() {
                // A callback of the last delivery has added the handler.
                continue;
            }
            if !is_counted || stats.received != stats.delivered || stats.waiting > 0 {
                return Err(format!(
                    "handler {}: {stats:?}, delivered {}",
                    view.number, view.delivered
                ));
            }
            if registration.has_synced() != informer.has_synced() {
                return Err(format!(
                    "handler {} is synced: {}",
                    view.number,
                    registration.has_synced()
                ));
            }
            let same = |(key, thing): (&usize, &Arc<Thing>)| {
                view.seen
                    .get(key)
                    .is_some_and(|seen| seen.write == thing.write)
            };
            if view.seen.len() != cached.len() || !cached.iter().all(same) {
                let seen = &view.seen;
                return Err(format!(
                    "handler {} has {seen:?}, the cache {cached:?}",
                    view.number
                ));
            }
        }
        Ok(())
    }

    /// Checks that the cache has everything up to the version that it has reached.
    fn check_version(
        &self,
        cached: &Cached,
        reached: u64,
        is_complete: bool,
    ) -> Result<(), String> {
        let timeline = &self.server.timeline;
        let entries = timeline.partition_point(|entry| entry.version <= reached);
        let mut newest: [Option<usize>; KEYS.len()] = [None; KEYS.len()];
        for (at, entry) in timeline[..entries].iter().enumerate() {
            if let Some(state) = entry.change.state() {
                newest[state.key] = Some(at);
            }
        }
        for (key, at) in newest.iter().enumerate() {
            let Some(at) = *at else {
                let is_kept = !is_complete && (self.has_hidden(key) || self.has_nameless);
                let position = cached.get(&key).map(|it| self.server.position(it.write));
                if position == Some(None) && !is_kept {
                    return Err(format!("{} is in no history, at {reached}", KEYS[key]));
                }
                continue;
            };
            let change = &timeline[at].change;
            let position = cached.get(&key).map(|it| self.server.position(it.write));
            let is_hidden = change
                .state()
                .is_some_and(|it| self.server.writes[it.write as usize].is_hidden);
            let is_there = match (change, position) {
                (Change::Deleted(_), None) => true,
                (_, Some(position)) => position.is_some_and(|position| position >= at),
                // A later deletion may have been processed already.
                (_, None) => timeline[at..]
                    .iter()
                    .any(|it| matches!(&it.change, Change::Deleted(gone) if gone.key == key)),
            };
            // An object without a readable name may be any.
            let may_lack = is_hidden || (self.has_nameless && !is_complete);
            // This namespace may be ahead of the version that both have reached, at a later state that
            // was hidden.
            let may_lack = may_lack || (self.plan.has_namespaces && self.has_hidden(key));
            if !is_there && !may_lack {
                return Err(format!("the cache at {reached} lacks {:?}", timeline[at]));
            }
        }
        Ok(())
    }

    /// Whether a state of this object was hidden from the informer.
    pub fn has_hidden(&self, key: usize) -> bool {
        self.server
            .writes
            .iter()
            .any(|it| it.state.key == key && it.is_hidden)
    }

    fn is_settled(&self, informer: &Informer, now: u64) -> Result<(), String> {
        let status = informer.status();
        let reached = number(status.resource_version.as_ref()).ok_or("no version")?;
        if !informer.has_synced() || status.state != ReflectorState::Watching {
            return Err(format!(
                "{:?}, synced: {}",
                status.state,
                informer.has_synced()
            ));
        }
        if self.abandoned.is_some() || reached > self.server.version {
            return Err(format!("version {reached} of an abandoned history"));
        }
        let stored: u64 = number(informer.store_resource_version().as_ref()).unwrap_or(0);
        let is_reached = |wait: &Wait| wait.version <= stored || wait.epoch != self.server.epoch;
        if !self.waits.iter().all(is_reached) {
            return Err("a wait for a version".to_owned());
        }
        let cached = cached(informer)?;
        let current = self.server.current();
        if let Some(wrong) = cached.keys().find(|key| !current.contains_key(key)) {
            return Err(format!("{} is cached", KEYS[*wrong]));
        }
        let mut is_complete = true;
        for (key, state) in current {
            let cached = cached.get(key);
            if state.is_acceptable(now) {
                if cached.is_none_or(|cached| cached.write != state.write) {
                    return Err(format!("{state:?} is cached as {cached:?}"));
                }
            } else {
                is_complete = false;
                if cached.is_some_and(|cached| cached.write == state.write) {
                    return Err(format!("{state:?} is cached"));
                }
            }
        }
        if status.complete != is_complete {
            return Err(format!("complete is {}", status.complete));
        }
        // The other namespace has the version of the last write only with a bookmark.
        if self.phase == Phase::Epilogue(0) && !self.plan.has_namespaces {
            let last = self
                .server
                .timeline
                .iter()
                .rfind(|it| it.change.state().is_some());
            if last.is_some_and(|last| last.version > reached) && !self.plan.old_version_of_deletion
            {
                return Err(format!("version {reached}"));
            }
        }
        Ok(())
    }
}

/// Returns the content of the cache. Each object must be in its index, or unindexed because the
/// index function failed for it.
fn cached(informer: &Informer) -> Result<Cached, String> {
    let mut cached = BTreeMap::new();
    let all = informer.lister().list();
    for thing in &all {
        let key = format!("{}/{}", thing.namespace(), thing.name());
        let key = crate::thing::key_index(&key).ok_or("an unknown key")?;
        cached.insert(key, Arc::clone(thing));
    }
    let mut indexed = 0;
    for value in 0..3 {
        let things = informer.lister().by_index(INDEX, &group(value));
        let things = things.map_err(|error| error.to_string())?;
        if let Some(wrong) = things
            .iter()
            .find(|it| it.write % 3 != value || !all.iter().any(|at| Arc::ptr_eq(at, it)))
        {
            return Err(format!("{wrong:?} is indexed as {value}"));
        }
        indexed += things.len();
    }
    let unindexed = informer.lister().unindexed(INDEX);
    let unindexed = unindexed.map_err(|error| error.to_string())?;
    for key in &unindexed {
        let key = crate::thing::key_index(key).ok_or("an unknown key")?;
        match cached.get(&key) {
            None => return Err(format!("{} is unindexed, but not cached", KEYS[key])),
            Some(thing) if !thing.fails_in_index(0) => {
                return Err(format!("{thing:?} is unindexed"));
            }
            Some(_) => {}
        }
    }
    if informer.status().unindexed != unindexed.len() {
        return Err(format!("the status does not count {unindexed:?}"));
    }
    match indexed + unindexed.len() == cached.len() {
        true => Ok(cached),
        false => Err(format!(
            "{indexed} of {} objects are indexed, unindexed are {unindexed:?}",
            cached.len()
        )),
    }
}
