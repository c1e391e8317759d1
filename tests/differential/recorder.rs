//! A handler that folds its events into a view and records each event that contradicts the view.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use k8s_informer::Deleted;
use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::object::meta_namespace_key;
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
}

impl<T> Clone for Recorder<T> {
    fn clone(&self) -> Self {
        let Self {
            known,
            gate,
            changed,
        } = self;
        Self {
            known: Arc::clone(known),
            gate: gate.clone(),
            changed: changed.clone(),
        }
    }
}

impl<T: CacheForm> Recorder<T> {
    /// Creates a handler that passes `gate` before each event.
    pub(crate) fn new(gate: Gate, changed: Signal) -> Self {
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
        }
    }

    pub(crate) fn known(&self) -> &Mutex<Known<T>> {
        &self.known
    }

    /// Records an event. `apply` changes the view and returns the contradiction, if any.
    fn note(
        &self,
        event: String,
        apply: impl FnOnce(&mut BTreeMap<String, Arc<T>>) -> Option<&'static str>,
    ) {
        self.gate.pass();
        {
            let mut known = self.known.lock();
            known.count += 1;
            if known.events.len() == SHOWN {
                known.events.pop_front();
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
        self.note(format!("added {}{initial}", label(&**object)), |objects| {
            let before = objects.insert(
                meta_namespace_key(&**object).to_string(),
                Arc::clone(object),
            );
            before.is_some().then_some("the object already exists")
        });
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let event = format!("updated {} to {}", label(&**old), label(&**new));
        self.note(event, |objects| {
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
            |objects| {
                let unknown =
                    objects.remove(&*gone.key()).is_none() && !is_excluded("unknown deletions");
                unknown.then_some("the object does not exist")
            },
        );
    }
}
