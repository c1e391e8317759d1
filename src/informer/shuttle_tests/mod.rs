//! Interleaving tests of the path from a queue to the handlers.

mod listener;
mod one_thread;
mod process;
mod shared_informer;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::handler::{Notification, ResourceEventHandler};
use crate::base::sync::{Condvar, Mutex};
use crate::object::{Deleted, Object};

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(rename = "resourceVersion")]
    version: String,
}

impl Thing {
    fn new(name: &str, version: usize) -> Arc<Self> {
        Arc::new(Self {
            metadata: Metadata {
                namespace: String::new(),
                name: name.to_owned(),
                version: version.to_string(),
            },
        })
    }

    fn version(&self) -> usize {
        self.metadata.version.parse().unwrap()
    }
}

impl Object for Thing {
    fn name(&self) -> &str {
        &self.metadata.name
    }
    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }
    fn uid(&self) -> &str {
        ""
    }
    fn resource_version(&self) -> &str {
        &self.metadata.version
    }
    fn label(&self, _: &str) -> Option<&str> {
        None
    }
}

/// The state that a handler derives from its events: names and versions. Its methods panic at an
/// event that contradicts the state.
#[derive(Debug, Default)]
struct View {
    objects: BTreeMap<String, usize>,
    /// The names added as part of the initial list.
    initial: Vec<String>,
    calls: usize,
}

impl View {
    fn add(&mut self, new: &Thing, is_in_initial_list: bool) {
        self.calls += 1;
        assert_eq!(
            self.objects.insert(new.name().to_owned(), new.version()),
            None,
            "duplicate add of {new:?}: {self:?}"
        );
        if is_in_initial_list {
            self.initial.push(new.name().to_owned());
        }
    }

    fn update(&mut self, old: &Thing, new: &Thing) {
        self.calls += 1;
        let known = self.objects.insert(new.name().to_owned(), new.version());
        assert_eq!(
            known,
            Some(old.version()),
            "unexpected update to {new:?}: {self:?}"
        );
        assert!(
            new.version() >= old.version(),
            "update to the older {new:?}"
        );
    }

    fn delete(&mut self, gone: &Deleted<Thing>) {
        self.calls += 1;
        assert!(
            self.objects.remove(gone.name()).is_some(),
            "deletion of unknown {}: {self:?}",
            gone.name()
        );
    }

    fn apply(&mut self, event: &Notification<Thing>) {
        match event {
            Notification::Added {
                object,
                is_in_initial_list,
            } => self.add(object, *is_in_initial_list),
            Notification::Modified { old, new } => self.update(old, new),
            Notification::Deleted { gone, .. } => self.delete(gone),
        }
    }
}

/// A handler that records its events in a [`View`]. Clones share the same view.
#[derive(Clone, Default)]
struct Recorder {
    shared: Arc<Recorded>,
}

#[derive(Default)]
struct Recorded {
    view: Mutex<View>,
    /// Notified after each call; waiters wait for a state of `view`.
    changed: Condvar,
}

impl Recorder {
    fn new() -> Self {
        Self::default()
    }

    fn note(&self, note: impl FnOnce(&mut View)) {
        note(&mut self.shared.view.lock());
        self.shared.changed.notify_all();
    }

    fn read<R>(&self, read: impl FnOnce(&View) -> R) -> R {
        read(&self.shared.view.lock())
    }

    fn wait_for(&self, enough: impl Fn(&View) -> bool) {
        let mut view = self.shared.view.lock();
        while !enough(&view) {
            self.shared.changed.wait(&mut view);
        }
    }
}

impl ResourceEventHandler<Thing> for Recorder {
    fn on_add(&mut self, object: &Arc<Thing>, is_in_initial_list: bool) {
        self.note(|view| view.add(object, is_in_initial_list));
    }

    fn on_update(&mut self, old: &Arc<Thing>, new: &Arc<Thing>) {
        self.note(|view| view.update(old, new));
    }

    fn on_delete(&mut self, gone: &Deleted<Thing>) {
        self.note(|view| view.delete(gone));
    }
}
