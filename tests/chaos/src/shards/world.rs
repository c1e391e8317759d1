//! Creates and changes the reconciled objects, without a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::object::FullMetadata;
use k8s_informer::reflector::{ListOptions, Shard};
use k8s_informer::{Client, Resource, Stop};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::fleet::Feed;
use super::protocol::{LABEL, Listed, NAMESPACE, RUDE, labelled};
use crate::random::Random;
use crate::server::{post, send};
use crate::timing::now;

const WRITERS: usize = 3;

/// The number of namespaces. It is a multiple of both numbers of shards.
const NAMESPACES: u32 = 20;

/// The size of an object, in bytes.
const PAYLOAD: usize = 1000;

pub(crate) struct World {
    client: Client,
    random: Random,
    feed: Arc<Feed>,
    namespaces: Vec<String>,
    /// The number of objects that the writers create, and that they have created.
    target: AtomicUsize,
    created: AtomicUsize,
    over: AtomicBool,
}

impl World {
    pub(crate) fn new(client: Client, random: Random, feed: &Arc<Feed>) -> Self {
        let namespaces: Vec<_> = (0..NAMESPACES).map(namespace).collect();
        for name in &namespaces {
            let body = json!({ "metadata": { "name": name } });
            send(&client, &post("/api/v1/namespaces", &body)).expect("a namespace");
        }
        let rude = json!({ "metadata": { "name": RUDE } });
        let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        send(&client, &post(&collection, &rude)).expect("an object");
        Self {
            client,
            random,
            feed: Arc::clone(feed),
            namespaces,
            target: AtomicUsize::new(0),
            created: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Starts the writers, which first create all objects that are missing.
    pub(crate) fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let writer = |first: usize| {
            let world = Arc::clone(self);
            thread::spawn(move || {
                let mut next = first;
                while !world.over.load(SeqCst) {
                    if next < world.target.load(SeqCst) {
                        world.create(next);
                        world.created.fetch_add(1, SeqCst);
                        next += WRITERS;
                        continue;
                    }
                    let own = next / WRITERS;
                    if own > 0 {
                        world.change(first + world.random.below(own) * WRITERS);
                    }
                    thread::sleep(Duration::from_millis(world.random.below(40) as u64));
                }
            })
        };
        (0..WRITERS).map(writer).collect()
    }

    /// Lets the writers create objects up to this number.
    pub(crate) fn grow(&self, target: usize) {
        self.target.fetch_max(target, SeqCst);
    }

    /// Whether the writers have created as many objects as they should.
    pub(crate) fn is_complete(&self) -> bool {
        self.created.load(SeqCst) >= self.target.load(SeqCst)
    }

    /// Whether the server accepts requests.
    pub(crate) fn is_up(&self) -> bool {
        let request = Request::get("/api/v1/namespaces/default").retries(0);
        self.client.request(&request, &Stop::never()).is_ok()
    }

    /// Lets the writers end.
    pub(crate) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    fn collection(&self, number: usize) -> String {
        let namespace = &self.namespaces[number % self.namespaces.len()];
        format!("/api/v1/namespaces/{namespace}/configmaps")
    }

    fn create(&self, number: usize) {
        let collection = self.collection(number);
        let body = json!({
            "metadata": { "name": format!("map-{number}"), "labels": { LABEL: "" } },
            "data": { "payload": "x".repeat(PAYLOAD) },
        });
        let created = match send(&self.client, &post(&collection, &body)) {
            // It is the result of an attempt without a response.
            Err(error) if error.is_already_exists() => send(
                &self.client,
                &Request::get(format!("{collection}/map-{number}")),
            ),
            created => created,
        };
        self.record(&created.expect("a new object"));
    }

    fn change(&self, number: usize) {
        let body = json!({ "data": { "counter": self.random.next().to_string() } });
        let path = format!("{}/map-{number}", self.collection(number));
        let request = Request::patch(path).json(&body).expect("a request");
        let request = request.content_type("application/merge-patch+json");
        self.record(&send(&self.client, &request).expect("no program deletes objects"));
    }

    /// Records a change that the server has confirmed.
    fn record(&self, object: &Value) {
        let metadata = &object["metadata"];
        let [uid, revision] = ["uid", "resourceVersion"].map(|name| metadata[name].as_str());
        let revision = revision.and_then(|text| text.parse().ok());
        let (uid, revision) = (uid.expect("a UID"), revision.expect("a version"));
        self.feed.lock().history.change(uid, revision, now());
    }

    /// Lists all objects of a kind. `None` if the server does not respond.
    pub(crate) fn list<T: Resource + FullMetadata + DeserializeOwned>(
        &self,
        is_labelled: bool,
    ) -> Option<Vec<Listed>> {
        let options = match is_labelled {
            true => labelled().list_options(),
            false => ListOptions::default(),
        };
        let list = self.client.api::<T>(None).list(&options, &Stop::never());
        Some(list.ok()?.items.iter().map(Listed::new).collect())
    }
}

/// Returns the name of a namespace in one of [`NAMESPACES`] equal shards.
fn namespace(index: u32) -> String {
    let shard = Shard::new(index, NAMESPACES).expect("a shard");
    let shard = shard.by_namespace();
    let mut names = (0..).map(|number| format!("{number}-chaos"));
    let name = names.find(|name| shard.contains(name));
    name.expect("infinitely many names")
}
