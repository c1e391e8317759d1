//! Waiting for the first list: what the status says when it is over, and when the wait is an error.

use std::sync::{Arc, OnceLock};

use k8s_informer::testing::{Answer, ScriptedListerWatcher};
use k8s_informer::{
    Deleted, Deltas, Done, DynamicObject, InformerQueue, Key, PopError, Process, Queue, ReflectorStatus,
    ReflectorStore, SharedIndexInformer, SharedIndexInformerOptions, StagedList, Staging, StoreError,
};
use serde_json::{Value, json};

use crate::support::{SOON, until};
use crate::versions::{QUEUES, run};

/// A queue whose lists return only once the consumer has read the status.
struct Held {
    queue: Arc<dyn Queue<DynamicObject>>,
    status: Arc<OnceLock<ReflectorStatus>>,
}

impl ReflectorStore<DynamicObject> for Held {
    fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.queue.add(object)
    }
    fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.queue.update(object)
    }
    fn delete(&self, gone: Deleted<DynamicObject>) -> Result<(), StoreError> {
        self.queue.delete(gone)
    }
    fn replace(&self, objects: Vec<Arc<DynamicObject>>, version: &str) -> Result<(), StoreError> {
        self.queue.replace(objects, version)
    }
    fn staging(&self) -> Option<&dyn Staging<DynamicObject>> {
        Some(self)
    }
}

impl Staging<DynamicObject> for Held {
    fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key> {
        self.queue.staging()?.key_of_name(namespace, name)
    }
    fn prepare(&self, object: Arc<DynamicObject>) -> Result<(Key, Arc<DynamicObject>), StoreError> {
        self.queue.staging().unwrap().prepare(object)
    }
    fn cached(&self, key: &str) -> Option<Arc<DynamicObject>> {
        self.queue.staging()?.cached(key)
    }
    fn replace_staged(&self, list: StagedList<DynamicObject>) -> Result<(), StoreError> {
        self.queue.staging().unwrap().replace_staged(list)?;
        until("the consumer has read the status", || self.status.get().is_some());
        Ok(())
    }
}

impl Queue<DynamicObject> for Held {
    fn pop(
        &self,
        process: &mut Process<'_, DynamicObject>,
    ) -> Result<Deltas<DynamicObject>, PopError<Deltas<DynamicObject>>> {
        self.queue.pop(process)
    }
    fn synced(&self) -> Done {
        self.queue.synced()
    }
    fn close(&self) {
        self.queue.close();
    }
    fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

fn list(items: &[Value]) -> Answer {
    let list = json!({"kind": "List", "metadata": {"resourceVersion": "10"}, "items": items});
    Answer::body(list.to_string())
}

fn watch_list(items: &[Value]) -> Answer {
    let added = items.iter().map(|item| json!({"type": "ADDED", "object": item}));
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": "10", "annotations": annotations});
    let end = json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
    Answer::open(added.chain([end]).map(|event| format!("{event}\n")).collect::<String>())
}

fn answer(items: &[Value], is_watch_list: bool) -> ScriptedListerWatcher {
    match is_watch_list {
        true => ScriptedListerWatcher::new([watch_list(items)]).with_watch_list(),
        false => ScriptedListerWatcher::new([list(items), Answer::open("")]),
    }
}

fn named(name: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}})
}

/// What the status says at the moment at which the informer has synced.
fn status_at_sync(script: ScriptedListerWatcher, queue: InformerQueue) -> ReflectorStatus {
    let status = Arc::new(OnceLock::new());
    let held = Arc::clone(&status);
    let options = SharedIndexInformerOptions {
        queue,
        wrap_queue: Some(Arc::new(move |queue| Arc::new(Held { queue, status: Arc::clone(&held) }))),
        ..SharedIndexInformerOptions::default()
    };
    let informer = SharedIndexInformer::new(Arc::new(script), options);
    let (reads, read) = (informer.clone(), Arc::clone(&status));
    let _synced = informer.synced().on_done(move || read.set(reads.status()).unwrap());
    run(&informer, |stop| {
        informer.wait_for_sync(stop, SOON).unwrap();
        until("read", || status.get().is_some());
    });
    status.get().unwrap().clone()
}

#[test]
fn status_at_sync_has_the_outcome_of_the_list() {
    for (queue, is_watch_list) in QUEUES.into_iter().flat_map(|queue| [(queue, false), (queue, true)]) {
        for (items, complete) in [(&[named("a")][..], true), (&[], true), (&[named("a"), named("")], false)] {
            let status = status_at_sync(answer(items, is_watch_list), queue);
            let (error, context) = (status.last_error.is_some(), format!("{queue:?}: {status:?}"));
            assert_eq!((status.listed, status.complete), (true, complete), "{context}");
            assert_eq!((status.unreadable, error), (u64::from(!complete), !complete), "{context}");
            assert_eq!(status.resource_version, "10", "{context}");
        }
    }
}
