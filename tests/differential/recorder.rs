//! A handler that folds its events into a view and records each event that contradicts the view.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::object::meta_namespace_key;
use k8s_informer::{Deleted, SharedIndexInformer};
use parking_lot::Mutex;

use crate::differential::config::is_excluded;
use crate::differential::form::CacheForm;
use crate::differential::gate::{Gate, Signal};

/// The number of events kept for the report.
const SHOWN: usize = 40;

/// The view of a handler. The handler and the test share it.
pub(crate) struct Known<T> {
    pub(crate) objects: BTreeMap<String, Arc<T>>,
    /// Events that contradict earlier events, with the reason.
    pub(crate) wrong: Vec<String>,
    pub(crate) count: u64,
    events: VecDeque<String>,
}

impl<T> Known<T> {
    pub(crate) fn last_events(&self) -> String {
        self.events
            .iter()
            .cloned()
            .collect::<Vec<_>>()
            .join("\n    ")
    }
}

pub(crate) struct Recorder<T> {
    known: Arc<Mutex<Known<T>>>,
    gate: Gate,
    changed: Signal,
    /// The informer, if its cache must not be ahead of the calls.
    in_step: Option<SharedIndexInformer<T>>,
}

impl<T> Clone for Recorder<T> {
    fn clone(&self) -> Self {
        let Self {
            known,
            gate,
            changed,
            in_step,
        } = self;
        Self {
            known: Arc::clone(known),
            gate: gate.clone(),
            changed: changed.clone(),
            in_step: in_step.clone(),
        }
    }
}

impl<T: CacheForm> Recorder<T> {
    /// Creates a handler that passes `gate` before each event. `in_step` is the informer, if its
    /// cache must not be ahead of the calls.
    pub(crate) fn new(
        gate: Gate,
        changed: Signal,
        in_step: Option<SharedIndexInformer<T>>,
    ) -> Self {
        let known = Known {
            objects: BTreeMap::new(),
            wrong: Vec::new(),
            count: 0,
            events: VecDeque::new(),
        };
        Self {
            known: Arc::new(Mutex::new(known)),
            gate,
            changed,
            in_step,
        }
    }

    pub(crate) fn known(&self) -> &Mutex<Known<T>> {
        &self.known
    }

    /// Records an event. `new` is the state that the cache must have. `apply` changes the view and
    /// returns the contradiction, if any.
    fn note(
        &self,
        event: String,
        new: Option<&Arc<T>>,
        apply: impl FnOnce(&mut BTreeMap<String, Arc<T>>) -> Option<&'static str>,
    ) {
        self.gate.pass();
        let is_cached = |informer: &SharedIndexInformer<T>, new: &Arc<T>| {
            let cached = informer.lister().get_by_key(&meta_namespace_key(&**new));
            cached.is_some_and(|cached| Arc::ptr_eq(&cached, new))
        };
        // After a slow call as well: the gate may have been closed for long.
        let is_ahead = match (&self.in_step, new) {
            (Some(informer), Some(new)) => !is_cached(informer, new),
            _ => false,
        };
        {
            let mut known = self.known.lock();
            known.count += 1;
            if known.events.len() == SHOWN {
                known.events.pop_front();
            }
            if is_ahead {
                known.wrong.push(format!("{event}: the cache is ahead"));
            }
            if let Some(why) = apply(&mut known.objects) {
                known.wrong.push(format!("{event}: {why}"));
            }
            known.events.push_back(event);
        }
        self.changed.raise();
    }
}

fn label<T: CacheForm>(object: &T) -> String {
    let tier = object.label("tier").unwrap_or("-");
    format!(
        "{}@{} tier={tier}",
        meta_namespace_key(object),
        object.resource_version()
    )
}

impl<T: CacheForm> ResourceEventHandler<T> for Recorder<T> {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        let initial = if is_in_initial_list { " (initial)" } else { "" };
        let event = format!("added {}{initial}", label(&**object));
        // The initial list of a late handler is older than the cache.
        let new = Some(object).filter(|_| !is_in_initial_list);
        self.note(event, new, |objects| {
            let before = objects.insert(
                meta_namespace_key(&**object).to_string(),
                Arc::clone(object),
            );
            before.is_some().then_some("the object already exists")
        });
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let event = format!("updated {} to {}", label(&**old), label(&**new));
        self.note(event, Some(new), |objects| {
            let before = objects.insert(meta_namespace_key(&**new).to_string(), Arc::clone(new));
            match before {
                None => Some("the object does not exist"),
                Some(before) if Arc::ptr_eq(&before, old) || before.show() == old.show() => None,
                Some(_) => Some("the old object differs from the last one"),
            }
        });
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        let last = gone
            .object()
            .map(|object| label(&**object))
            .unwrap_or_default();
        let unseen = if gone.is_final_state_unknown() {
            " (unseen)"
        } else {
            ""
        };
        self.note(
            format!("deleted {} {last}{unseen}", gone.key()),
            None,
            |objects| {
                let unknown =
                    objects.remove(&*gone.key()).is_none() && !is_excluded("unknown deletions");
                unknown.then_some("the object does not exist")
            },
        );
    }
}
