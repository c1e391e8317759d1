//! Handlers that record their notifications and can be blocked.

use std::sync::Arc;

use k8s_informer::handler::{FilteringHandler, ResourceEventHandler};
use k8s_informer::stop::Subscription;
use k8s_informer::{Deleted, Object, Stop};
use serde_json::{Value, json};

use super::source::{Fillers, Item};
use super::world::{State, World};
use crate::client_go_traces::object::text;

/// Creates the handler that a trace configures.
pub(super) fn handler(world: &World, config: &Value) -> impl ResourceEventHandler<Item> + use<> {
    let id = text(&config["id"]).to_owned();
    let recorder = Recorder {
        world: world.clone(),
        id: id.clone(),
    };
    let handler: Box<dyn ResourceEventHandler<Item>> = match config["filter"].as_str() {
        None => Box::new(recorder),
        Some(filter) => {
            let (label, value) = filter.split_once('=').unwrap();
            let (label, value) = (label.to_owned(), value.to_owned());
            Box::new(FilteringHandler::new(
                move |item: &Item| item.label(&label) == Some(&value),
                recorder,
            ))
        }
    };
    Counted {
        world: world.clone(),
        id,
        handler,
        watches_removal: None,
    }
}

struct Recorder {
    world: World,
    id: String,
}

impl Recorder {
    fn note(&self, event: Value) {
        let is_blocked = self.world.change(|state| {
            let handler = state.handlers.get_mut(&self.id).unwrap();
            handler.events.push(event);
            handler.hangs = handler.blocked;
            handler.blocked
        });
        if is_blocked {
            let is_free = |state: &State| !state.handlers[&self.id].blocked;
            self.world.wait_until(&Stop::never(), is_free, |state| {
                state.handlers.get_mut(&self.id).unwrap().hangs = false;
            });
        }
    }
}

impl ResourceEventHandler<Item> for Recorder {
    fn on_add(&mut self, item: &Arc<Item>, is_in_initial_list: bool) {
        if Fillers::has(item) {
            return;
        }
        self.note(json!({"type": "add", "obj": item.0, "initial": is_in_initial_list}));
    }

    fn on_update(&mut self, old: &Arc<Item>, new: &Arc<Item>) {
        if Fillers::has(new) {
            return;
        }
        self.note(json!({"type": "update", "old": old.0, "new": new.0}));
    }

    fn on_delete(&mut self, gone: &Deleted<Item>) {
        if Fillers::has_key(&gone.key()) {
            return;
        }
        self.note(match gone {
            Deleted::Final(item) => json!({"type": "delete", "obj": item.0}),
            Deleted::FinalStateUnknown { key, last_known } => {
                let object = last_known.as_ref().map(|item| &item.0);
                json!({"type": "delete", "tombstone": {"key": &**key, "obj": object}})
            }
        });
    }
}

/// A handler that counts the calls that have returned, including calls for objects that its filter
/// rejects.
struct Counted<H> {
    world: World,
    id: String,
    handler: H,
    watches_removal: Option<Subscription>,
}

impl<H> Counted<H> {
    fn counted(&mut self, call: impl FnOnce(&mut H)) {
        call(&mut self.handler);
        self.world
            .change(|state| state.handlers.get_mut(&self.id).unwrap().returned += 1);
    }
}

impl<H: ResourceEventHandler<Item>> ResourceEventHandler<Item> for Counted<H> {
    fn begin(&mut self, removed: &Stop) {
        let (world, id) = (self.world.clone(), self.id.clone());
        self.watches_removal = Some(removed.on_stop(move || {
            world.change(|state| state.handlers.get_mut(&id).unwrap().removed = true);
        }));
    }

    fn on_add(&mut self, item: &Arc<Item>, is_in_initial_list: bool) {
        self.counted(|handler| handler.on_add(item, is_in_initial_list));
    }

    fn on_update(&mut self, old: &Arc<Item>, new: &Arc<Item>) {
        self.counted(|handler| handler.on_update(old, new));
    }

    fn on_delete(&mut self, gone: &Deleted<Item>) {
        self.counted(|handler| handler.on_delete(gone));
    }
}

/// Sorts events whose order client-go leaves open: adjacent tombstones, the initial adds of a late
/// handler, and the updates of a resync.
pub(super) fn sorted(mut events: Vec<Value>, late: bool, resyncs: bool) -> Vec<Value> {
    let kind = |event: &Value| match () {
        () if event["tombstone"].is_object() => Some("tombstone"),
        () if late && event["type"] == "add" && event["initial"] == true => Some("initial"),
        () if resyncs && event["type"] == "update" && event["old"] == event["new"] => {
            Some("resync")
        }
        () => None,
    };
    let key = |event: &Value| {
        let object = event.get("obj").unwrap_or(&event["new"]);
        let part = |part: &str| object[part].as_str().unwrap_or_default();
        match (event["tombstone"]["key"].as_str(), part("ns")) {
            (Some(key), _) => key.to_owned(),
            (None, "") => part("name").to_owned(),
            (None, namespace) => format!("{namespace}/{}", part("name")),
        }
    };
    for run in events.chunk_by_mut(|one, next| kind(one).is_some() && kind(one) == kind(next)) {
        run.sort_by_key(key);
    }
    events
}
