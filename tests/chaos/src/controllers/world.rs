//! The concurrent writer: changes, deletes and recreates primary objects, and deletes children.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::{Client, Error};
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::site::{NAMESPACES, SITES, Spec, TEAM, definition};
use crate::counts::Counts;
use crate::random::Random;
use crate::server::{self, post};

const WRITERS: usize = 3;

/// Writes to the server without a proxy.
pub(crate) struct World {
    client: Client,
    random: Random,
    ledger: Arc<Ledger>,
    slots: Vec<Mutex<Slot>>,
    over: AtomicBool,
    pub(crate) counts: Counts,
}

/// A name, and the primary object that has it.
pub(crate) struct Slot {
    pub(crate) namespace: &'static str,
    pub(crate) name: String,
    /// `None` after its deletion was requested.
    pub(crate) site: Option<Wanted>,
}

/// A primary object as it was written last.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) uid: String,
    pub(crate) spec: Spec,
    pub(crate) team: String,
}

impl Slot {
    fn collection(&self) -> String {
        format!("{SITES}/namespaces/{}/sites", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl World {
    /// Creates the definition and the namespaces.
    pub(crate) fn new(client: Client, random: Random, ledger: &Arc<Ledger>, sites: usize) -> Self {
        let busy = &NAMESPACES[..NAMESPACES.len() - 1];
        let slot = |number: usize| {
            Mutex::new(Slot {
                namespace: busy[number % busy.len()],
                name: format!("site-{number}"),
                site: None,
            })
        };
        let world = Self {
            client,
            random,
            ledger: Arc::clone(ledger),
            slots: (0..sites).map(slot).collect(),
            over: AtomicBool::new(false),
            counts: Counts::default(),
        };
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        world
            .send(&post(definitions, &definition()))
            .expect("a CRD");
        for name in NAMESPACES {
            let body = json!({ "metadata": { "name": name } });
            world
                .send(&post("/api/v1/namespaces", &body))
                .expect("a namespace");
        }
        // A new resource is not served at once.
        while world.list(&format!("{SITES}/sites")).is_err() {
            thread::sleep(Duration::from_millis(100));
        }
        world
    }

    pub(crate) fn slot(&self, number: usize) -> MutexGuard<'_, Slot> {
        self.slots[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slot of a key.
    pub(crate) fn slot_of(&self, key: &str) -> Option<MutexGuard<'_, Slot>> {
        let number = key.rsplit_once("/site-")?.1.parse().ok()?;
        (number < self.slots.len()).then(|| self.slot(number))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Starts the writers. They first create all objects.
    pub(crate) fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let writer = |number: usize| {
            let world = Arc::clone(self);
            thread::spawn(move || {
                for number in (number..world.len()).step_by(WRITERS) {
                    world.create(&mut world.slot(number));
                }
                while !world.over.load(SeqCst) {
                    let number = world.random.below(world.len());
                    world.act(&mut world.slot(number));
                    thread::sleep(Duration::from_millis(world.random.below(40) as u64));
                }
            })
        };
        (0..WRITERS).map(writer).collect()
    }

    /// Lets the writers end.
    pub(crate) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    fn act(&self, slot: &mut Slot) {
        if slot.site.is_none() {
            return self.create(slot);
        }
        match self.random.below(10) {
            0..3 => self.change_children(slot),
            3..5 => self.change_colour(slot),
            5 => self.change_team(slot),
            6..8 => self.delete_child(slot),
            8 => self.delete(slot),
            _ => {
                self.delete(slot);
                self.create(slot);
            }
        }
    }

    /// Creates the object, unless the last one of the name still exists.
    pub(crate) fn create(&self, slot: &mut Slot) {
        let spec = Spec {
            children: 1 + self.random.below(2),
            colour: self.colour(),
        };
        let team = self.team();
        let nonce = format!("n{}", self.random.next());
        let body = json!({
            "apiVersion": "chaos.example.com/v1",
            "kind": "Site",
            "metadata": { "name": slot.name, "labels": { TEAM: team, "nonce": nonce } },
            "spec": spec,
        });
        let created = match self.send(&post(&slot.collection(), &body)) {
            // It may be the result of an attempt without a response.
            Err(error) if error.is_already_exists() => self.send(&Request::get(slot.path())),
            created => created,
        };
        let Ok(site) = created else {
            return;
        };
        if site["metadata"]["labels"]["nonce"] != nonce {
            return;
        }
        self.counts.add("create");
        let uid = site["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.ledger.allow(&uid, spec.children, "site created");
        slot.site = Some(Wanted { uid, spec, team });
    }

    /// Deletes the object. The controller removes the finalizer later.
    ///
    /// Half of the deletions have no resource version, so that the API server can remove an object
    /// whose finalizer was added meanwhile, although it has accepted the finalizer
    /// (kubernetes/kubernetes#77988).
    pub(crate) fn delete(&self, slot: &mut Slot) {
        let Some(site) = slot.site.take() else {
            return;
        };
        let is_plain = self.random.one_in(2);
        self.ledger.deleted(&site.uid, is_plain);
        while let Ok(found) = self.send(&Request::get(slot.path())) {
            let metadata = &found["metadata"];
            if metadata["uid"] != site.uid || !metadata["deletionTimestamp"].is_null() {
                break;
            }
            let preconditions = match is_plain {
                true => json!({ "uid": site.uid }),
                false => json!({ "uid": site.uid, "resourceVersion": metadata["resourceVersion"] }),
            };
            let request = Request::delete(slot.path());
            let request = request.json(&json!({ "preconditions": preconditions }));
            match self.send(&request.expect("a request")) {
                Err(error) if error.is_conflict() => {}
                _ => break,
            }
        }
        self.counts.add("delete");
    }

    pub(crate) fn change_children(&self, slot: &mut Slot) {
        self.change(slot, |site| site.spec.children = 3 - site.spec.children);
    }

    fn change_colour(&self, slot: &mut Slot) {
        let colour = self.colour();
        self.change(slot, |site| site.spec.colour = colour);
    }

    pub(crate) fn change_team(&self, slot: &mut Slot) {
        let team = self.team();
        self.change(slot, |site| site.team = team);
    }

    fn change(&self, slot: &mut Slot, change: impl FnOnce(&mut Wanted)) {
        let path = slot.path();
        let Some(site) = &mut slot.site else {
            return;
        };
        let before = site.spec.children;
        change(site);
        let more = site.spec.children.saturating_sub(before);
        self.ledger.allow(&site.uid, more, "site changed");
        let body = json!({
            "metadata": { "uid": site.uid, "labels": { TEAM: site.team } },
            "spec": site.spec,
        });
        let request = Request::patch(path).json(&body).expect("a request");
        let request = request.content_type("application/merge-patch+json");
        self.send(&request)
            .expect("only this program deletes sites");
        self.counts.add("update");
    }

    /// Deletes one of the children in the status.
    fn delete_child(&self, slot: &Slot) {
        let Some(site) = &slot.site else {
            return;
        };
        let Ok(found) = self.send(&Request::get(slot.path())) else {
            return;
        };
        let names = found["status"]["names"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if names.is_empty() {
            return;
        }
        let name = names[self.random.below(names.len())]
            .as_str()
            .unwrap_or_default();
        self.ledger.allow(&site.uid, 1, "child deleted");
        self.ledger.deleting(name);
        let path = format!("/api/v1/namespaces/{}/configmaps/{name}", slot.namespace);
        let _ = self.send(&Request::delete(path));
        self.counts.add("delete of a child");
    }

    fn colour(&self) -> String {
        format!("colour-{}", self.random.below(1000))
    }

    fn team(&self) -> String {
        format!("team-{}", self.random.below(1_000_000))
    }

    /// Returns the status of an object.
    pub(crate) fn status(&self, slot: &Slot) -> Value {
        let found = self.send(&Request::get(slot.path()));
        found.map_or(Value::Null, |found| found["status"].clone())
    }

    /// Returns the UIDs of all sites on the server.
    pub(crate) fn uids(&self) -> BTreeSet<String> {
        let sites = self.list(&format!("{SITES}/sites")).unwrap_or_default();
        let uid = |site: &Value| site["metadata"]["uid"].as_str().map(str::to_owned);
        sites.iter().filter_map(uid).collect()
    }

    /// Returns all objects of a collection.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Value>, Error> {
        let mut list = self.send(&Request::get(path))?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    fn send(&self, request: &Request) -> Result<Value, Error> {
        server::send(&self.client, request)
    }
}
