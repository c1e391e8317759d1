//! A handler that checks what it is called with.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use simulation::handler::{HandlerRegistration, ResourceEventHandler};
use simulation::{Deleted, Object};

use crate::plan::Fault;
use crate::run::Run;
use crate::thing::{KEYS, Thing, key_index};
use crate::world::World;

/// What a handler has received.
#[derive(Default)]
pub struct View {
    pub number: usize,
    /// The state of each object.
    pub seen: BTreeMap<usize, Seen>,
    /// For a late handler: the initial list that it has not received.
    pub replay: BTreeMap<usize, u64>,
    pub delivered: u64,
    pub panics: u64,
    pub is_removed: bool,
    /// Set after the handler was added.
    pub registration: Option<HandlerRegistration>,
}

/// A delivered state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub write: u64,
    pub version: u64,
    /// The number of complete lists when it was delivered.
    lists: u64,
}

#[derive(Clone, Default)]
pub struct SharedView(Arc<Mutex<View>>);

impl SharedView {
    pub fn lock(&self) -> MutexGuard<'_, View> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Observer {
    pub run: Arc<Run>,
    pub view: SharedView,
}

enum Event<'a> {
    Add(&'a Thing, bool),
    Update(&'a Thing, &'a Thing),
    Delete(Option<&'a Thing>, &'a Deleted<Thing>),
}

impl ResourceEventHandler<Thing> for Observer {
    fn on_add(&mut self, object: &Arc<Thing>, is_in_initial_list: bool) {
        self.handle(&Event::Add(object, is_in_initial_list));
    }

    fn on_update(&mut self, old: &Arc<Thing>, new: &Arc<Thing>) {
        self.handle(&Event::Update(old, new));
    }

    fn on_delete(&mut self, object: &Deleted<Thing>) {
        self.handle(&Event::Delete(None, object));
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<Thing>, object: &Deleted<Thing>) {
        self.handle(&Event::Delete(Some(last_delivered), object));
    }
}

impl Observer {
    fn handle(&self, event: &Event<'_>) {
        let run = &self.run;
        let checked = {
            let (view, world) = (&mut *self.view.lock(), &mut *run.world());
            view.delivered += 1;
            run.trace_in(world, || format!("handler {}: {event}", view.number));
            view.check(event, world)
        };
        if let Err(wrong) = checked.and_then(|()| self.check_cache(event)) {
            let number = self.view.lock().number;
            run.fail(format!("handler {number}: {wrong}; event: {event}"));
        }
        run.look(false);
        self.misbehave();
    }

    /// Checks that the cache has the change of the event, and no later one.
    fn check_cache(&self, event: &Event<'_>) -> Result<(), String> {
        let run = &self.run;
        let (key, new) = match *event {
            // The initial list of a late handler is older than the cache.
            Event::Add(_, true) => return Ok(()),
            Event::Add(new, false) | Event::Update(_, new) => {
                (format!("{}/{}", new.namespace(), new.name()), Some(new))
            }
            Event::Delete(_, gone) => (gone.key().to_string(), None),
        };
        let is_in_step = {
            let plan = &run.world().plan;
            // Such a deletion belongs to a cached object with another UID.
            let is_recreation = new.is_none() && plan.recreation_as_delete_and_add;
            plan.delta_fifo && !is_recreation
        };
        let Some(informer) = run.informer().filter(|_| is_in_step) else {
            return Ok(());
        };
        let cached = informer.lister().get_by_key(&key);
        match cached.as_ref().map(|cached| cached.write) == new.map(|new| new.write) {
            true => Ok(()),
            false => Err(format!("the cache has {cached:?}")),
        }
    }

    /// Does what handlers may do, and what they should not.
    fn misbehave(&self) {
        let run = &self.run;
        let (slow, late, removes, panics) = {
            let world = &mut *run.world();
            (
                world.handler_fault(Fault::HandlerIsSlow, 15),
                world.handler_fault(Fault::LateInCallback, 6),
                world.handler_fault(Fault::RemovedInCallback, 4),
                world.handler_fault(Fault::HandlerPanics, 15),
            )
        };
        if slow {
            let until = run.time.now() + run.world().rng.between(1_000, 30_000_000);
            run.pass_time(until);
        }
        if late {
            run.add_handler();
        }
        if removes {
            run.remove_handler(&self.view);
        }
        if panics {
            self.view.lock().panics += 1;
            resume_unwind(Box::new("a simulated callback"));
        }
    }
}

impl View {
    fn check(&mut self, event: &Event<'_>, world: &mut World) -> Result<(), String> {
        if self.is_removed {
            return Err("called after its removal".to_owned());
        }
        match *event {
            Event::Add(new, is_initial) => {
                let (key, mut seen) = world.seen(new)?;
                let is_synced = self.registration.as_ref().is_some_and(|it| it.has_synced());
                // The initial list of a namespace may end before that of the other one.
                let is_wrong = match world.plan.has_namespaces {
                    true => is_initial && is_synced,
                    false => is_initial == is_synced,
                };
                if is_wrong {
                    return Err(format!("is_in_initial_list when synced is {is_synced}"));
                }
                if self
                    .replay
                    .remove(&key)
                    .is_some_and(|write| write != seen.write)
                {
                    return Err("another state than that of the initial list".to_owned());
                }
                if is_initial {
                    // The cache may still lack objects of a list.
                    seen.lists = u64::MAX;
                }
                match self.seen.insert(key, seen) {
                    Some(seen) => Err(format!("an add after {seen:?}")),
                    None => Ok(()),
                }
            }
            _ if !self.replay.is_empty() => {
                Err(format!("before initial adds of {:?}", self.replay))
            }
            Event::Update(old, new) => {
                let (key, now) = world.seen(new)?;
                let Some(before) = self.seen.insert(key, now.clone()) else {
                    return Err("an update before an add".to_owned());
                };
                if old.write != before.write {
                    return Err(format!("old is not {before:?}"));
                }
                if world.plan.recreation_as_delete_and_add && old.uid() != new.uid() {
                    return Err("an update to another UID".to_owned());
                }
                if now.write == before.write {
                    // A list may have skipped states since.
                    self.seen.insert(key, before);
                    world.count(Fault::Resync);
                    return Ok(());
                }
                world.check_order(key, &before, &now)
            }
            Event::Delete(last_delivered, gone) => self.check_deletion(last_delivered, gone, world),
        }
    }

    fn check_deletion(
        &mut self,
        last_delivered: Option<&Thing>,
        gone: &Deleted<Thing>,
        world: &World,
    ) -> Result<(), String> {
        let key = match gone {
            Deleted::Final(object) => format!("{}/{}", object.namespace(), object.name()),
            Deleted::FinalStateUnknown { key, .. } => key.to_string(),
        };
        let key = key_index(&key).ok_or("a deletion of an unknown key")?;
        let Some(seen) = self.seen.remove(&key) else {
            // The queue knew an object that no handler saw. A RealFifo delivers every deletion (P3),
            // also one that comes twice.
            let twice = !world.plan.delta_fifo && world.plan.old_version_of_deletion;
            return match twice || world.has_hidden(key) {
                true => Ok(()),
                false => Err("a deletion before an add".to_owned()),
            };
        };
        let state = &world.server.writes[seen.write as usize].state;
        if !world.server.was_absent[state.uid as usize] {
            return Err(format!("{seen:?} was never deleted"));
        }
        let last = last_delivered.or_else(|| gone.object().map(|object| &**object));
        match last {
            None => Err("a deletion without a state".to_owned()),
            Some(last) if last.write == seen.write => {
                let Deleted::Final(gone) = gone else {
                    return Ok(());
                };
                let is_hidden = world.server.writes[gone.write as usize].is_hidden;
                let is_listed = seen.lists != world.lists_delivered;
                match gone.write == seen.write || is_hidden || is_listed {
                    true => Ok(()),
                    false => Err(format!("missed the last state after {seen:?}")),
                }
            }
            Some(_) => Err(format!("the last delivered state is not {seen:?}")),
        }
    }
}

impl World {
    /// Returns the key and the state of an object, if it is one that a server has had.
    fn seen(&self, object: &Thing) -> Result<(usize, Seen), String> {
        let written = self.server.writes.get(object.write as usize);
        let state = &written.ok_or("an object that was never written")?.state;
        let is_same = object.resource_version() == state.version.to_string()
            && object.uid() == format!("u{}", state.uid)
            && format!("{}/{}", object.namespace(), object.name()) == KEYS[state.key];
        if !is_same {
            return Err(format!("not the written {state:?}"));
        }
        let seen = Seen {
            write: state.write,
            version: state.version,
            lists: self.lists_delivered,
        };
        Ok((state.key, seen))
    }

    /// Checks two states that follow each other at a handler.
    fn check_order(&self, key: usize, before: &Seen, now: &Seen) -> Result<(), String> {
        let server = &self.server;
        if server.was_restored_since(before.write) {
            return Ok(());
        }
        let (Some(from), Some(to)) = (server.position(before.write), server.position(now.write))
        else {
            return Err("a state of no history".to_owned());
        };
        if to < from {
            return Err(format!("back from {before:?}"));
        }
        if before.lists != now.lists {
            return Ok(());
        }
        // Without a list, each state between the two was in the watch.
        let between = server.timeline[from + 1..to].iter();
        let mut missed = between.filter_map(|entry| entry.change.state());
        match missed.find(|it| it.key == key && !server.writes[it.write as usize].is_hidden) {
            Some(missed) => Err(format!("missed {missed:?} after {before:?}")),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |object: &Thing| {
            let (namespace, name) = (object.namespace(), object.name());
            format!(
                "{namespace}/{name}@{}#{}",
                object.resource_version(),
                object.write
            )
        };
        match *self {
            Self::Add(new, is_initial) => write!(f, "add {} {is_initial}", name(new)),
            Self::Update(old, new) => write!(f, "update {} {}", name(old), name(new)),
            Self::Delete(last, gone) => {
                let kind = if gone.is_final_state_unknown() {
                    "unknown"
                } else {
                    "final"
                };
                let gone = gone.object().map(|object| name(object));
                write!(f, "delete {kind} {gone:?} after {:?}", last.map(name))
            }
        }
    }
}
