//! Writes objects to the server and reads back its state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{Client, Error, Stop};
use serde_json::{Value, json};

use crate::counts::Counts;
use crate::follower::{State, View};
use crate::random::Random;

pub(crate) const NAMESPACES: [&str; 3] = ["chaos-a", "chaos-b", "chaos-c"];

/// ConfigMaps that change all the time and are never deleted.
const BEATS: [&str; 3] = ["beat-0", "beat-1", "beat-2"];

/// Objects written while the informers settle, so that no watch is silent. They are not compared.
const MARKERS: [&str; 2] = ["marker-0", "marker-1"];

pub(crate) fn is_marker(key: &str) -> bool {
    key.contains("/marker-")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Maps,
    Widgets,
}

impl Resource {
    pub(crate) fn group_version_resource(self) -> GroupVersionResource {
        match self {
            Self::Maps => GroupVersionResource::new("", "v1", "configmaps"),
            Self::Widgets => GroupVersionResource::new("chaos.example.com", "v1", "widgets"),
        }
    }

    fn path(self, namespace: Option<&str>) -> String {
        self.group_version_resource()
            .path(namespace)
            .expect("a path")
    }

    /// Returns an object that also serves as a merge patch.
    fn body(self, name: &str, token: u64, colour: &str, size: usize) -> Value {
        let metadata =
            json!({ "name": name, "labels": { "token": format!("t{token}"), "colour": colour } });
        let payload = json!({ "payload": "x".repeat(size) });
        match self {
            Self::Maps => json!({ "metadata": metadata, "data": payload }),
            Self::Widgets => json!({
                "apiVersion": "chaos.example.com/v1",
                "kind": "Widget",
                "metadata": metadata,
                "spec": payload,
            }),
        }
    }
}

/// The objects on the server, from a fresh LIST.
pub(crate) struct Truth {
    maps: View,
    widgets: View,
}

impl Truth {
    pub(crate) fn of(&self, resource: Resource) -> &View {
        match resource {
            Resource::Maps => &self.maps,
            Resource::Widgets => &self.widgets,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.maps.len() + self.widgets.len()
    }
}

/// Writes to the server and reads from it without a proxy. Clones share their state.
#[derive(Clone)]
pub(crate) struct World {
    client: Client,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Writes that the server confirmed, by kind.
    counts: Counts,
    written: AtomicU64,
    /// Makes each write differ from all others.
    token: AtomicU64,
    gate: Mutex<Gate>,
    /// Notified when the gate opens or closes and when a write ends.
    changed: Condvar,
    over: AtomicBool,
    /// Whether the writers write beats only.
    quiet: AtomicBool,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    writing: usize,
}

impl World {
    /// Creates the CustomResourceDefinition and the namespaces.
    pub(crate) fn create(client: Client) -> Self {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "widgets.chaos.example.com" },
            "spec": {
                "group": "chaos.example.com",
                "scope": "Namespaced",
                "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    } },
                }],
            },
        });
        let world = Self {
            client,
            shared: Arc::default(),
        };
        world
            .send(
                Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").json(&crd),
            )
            .expect("a CRD");
        for name in NAMESPACES {
            let body = json!({ "metadata": { "name": name } });
            world
                .send(Request::post("/api/v1/namespaces").json(&body))
                .expect("a namespace");
        }
        // A new CustomResource is not served at once.
        while world.try_list(Resource::Widgets).is_err() {
            thread::sleep(Duration::from_millis(100));
        }
        world.gate(true);
        world
    }

    fn send(&self, request: Result<Request, Error>) -> Result<Value, Error> {
        self.client
            .request(&request?.retries(0), &Stop::never())?
            .json()
    }

    /// Starts threads that write while the gate is open.
    pub(crate) fn start_writers(&self, count: usize, random: &Random) {
        for _ in 0..count {
            let (world, random) = (self.clone(), random.fork());
            thread::spawn(move || {
                while world.enter() {
                    let result = world.write(&random);
                    world.leave();
                    if result.is_err() {
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            });
        }
    }

    fn enter(&self) -> bool {
        let mut gate = self
            .shared
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while gate.closed {
            if self.shared.over.load(SeqCst) {
                return false;
            }
            gate = self
                .shared
                .changed
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
        gate.writing += 1;
        true
    }

    fn leave(&self) {
        self.shared
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .writing -= 1;
        self.shared.changed.notify_all();
    }

    /// Opens the gate, or closes it and blocks until no write is in flight.
    pub(crate) fn gate(&self, closed: bool) {
        let mut gate = self
            .shared
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        gate.closed = closed;
        self.shared.changed.notify_all();
        while closed && gate.writing > 0 {
            gate = self
                .shared
                .changed
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stops the writers.
    pub(crate) fn end(&self) {
        self.shared.over.store(true, SeqCst);
        self.gate(true);
    }

    /// Restricts the writers to beats, or lifts the restriction. If only beats are written around a
    /// restore, the two histories often give the same version to two states of one object.
    pub(crate) fn quiet(&self, quiet: bool) {
        self.shared.quiet.store(quiet, SeqCst);
    }

    /// Writes a beat even if the gate is closed.
    pub(crate) fn beat(&self, random: &Random) {
        let (quiet, _) = (self.shared.quiet.swap(true, SeqCst), self.write(random));
        self.shared.quiet.store(quiet, SeqCst);
    }

    /// Returns the number of writes that the server confirmed.
    pub(crate) fn written(&self) -> u64 {
        self.shared.written.load(SeqCst)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    fn token(&self) -> u64 {
        self.shared.token.fetch_add(1, SeqCst)
    }

    /// Changes one random object. Creates the object if it does not exist yet.
    fn write(&self, random: &Random) -> Result<(), Error> {
        let beats = random.one_in(if self.shared.quiet.load(SeqCst) { 1 } else { 6 });
        let resource = if !beats && random.one_in(4) {
            Resource::Widgets
        } else {
            Resource::Maps
        };
        let collection = resource.path(Some(if beats {
            NAMESPACES[0]
        } else {
            random.pick(&NAMESPACES)
        }));
        // A mix of objects that change all the time and objects that rarely change.
        let name = if beats {
            random.pick(&BEATS).to_owned()
        } else {
            format!("{:02}", random.size(5))
        };
        let colour = random.pick(&["red", "green", "blue"]);
        let size = if random.one_in(50) {
            30_000
        } else {
            random.size(12)
        };
        let body = || resource.body(&name, self.token(), colour, size);
        let path = format!("{collection}/{name}");
        let create = || self.count("create", Request::post(&collection).json(&body()));
        let update = || self.count("update", merge_patch(&path, &body()));
        let delete = || self.count("delete", Ok(Request::delete(&path)));
        match if beats { 9 } else { random.below(10) } {
            0 | 1 => delete().or_else(|error| {
                if error.is_not_found() {
                    create()
                } else {
                    Err(error)
                }
            }),
            2 => {
                delete().or_else(|error| {
                    if error.is_not_found() {
                        Ok(())
                    } else {
                        Err(error)
                    }
                })?;
                create()
            }
            3 => create().or_else(|error| {
                if error.is_already_exists() {
                    update()
                } else {
                    Err(error)
                }
            }),
            _ => update().or_else(|error| {
                if error.is_not_found() {
                    create()
                } else {
                    Err(error)
                }
            }),
        }
    }

    fn count(&self, kind: &'static str, request: Result<Request, Error>) -> Result<(), Error> {
        self.send(request)?;
        self.shared.counts.add(kind);
        self.shared.written.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Writes the markers in every namespace.
    pub(crate) fn mark(&self) {
        for resource in [Resource::Maps, Resource::Widgets] {
            for collection in NAMESPACES.map(|namespace| resource.path(Some(namespace))) {
                for name in MARKERS {
                    let body = resource.body(name, self.token(), "red", 0);
                    let patched = self.send(merge_patch(&format!("{collection}/{name}"), &body));
                    if patched.is_err_and(|error| error.is_not_found()) {
                        let _ = self.send(Request::post(&collection).json(&body));
                    }
                }
            }
        }
    }

    /// Returns a fresh LIST of everything, directly from the server.
    pub(crate) fn truth(&self) -> Truth {
        loop {
            if let (Ok(maps), Ok(widgets)) = (
                self.try_list(Resource::Maps),
                self.try_list(Resource::Widgets),
            ) {
                return Truth { maps, widgets };
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn try_list(&self, resource: Resource) -> Result<View, Error> {
        let list = self.send(Ok(Request::get(resource.path(None))))?;
        let items = list["items"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entry = |item: &Value| {
            let metadata = &item["metadata"];
            let state = State {
                uid: text(&metadata["uid"]),
                version: text(&metadata["resourceVersion"]),
                token: text(&metadata["labels"]["token"]),
                colour: text(&metadata["labels"]["colour"]),
            };
            (
                format!(
                    "{}/{}",
                    text(&metadata["namespace"]),
                    text(&metadata["name"])
                ),
                state,
            )
        };
        Ok(items.map(entry).collect())
    }
}

fn merge_patch(path: &str, body: &Value) -> Result<Request, Error> {
    Ok(Request::patch(path)
        .json(body)?
        .content_type("application/merge-patch+json"))
}
