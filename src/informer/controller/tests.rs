use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::entry::{Applied, Delta, Door, Entry, Gaps, Staging};
use crate::error::Error;
use crate::object::{Accessor, Deleted, DynamicObject};
use crate::queue::sealed::Sealed;
use crate::queue::{DeltaFifo, PopError, RealFifo, Watermark};
use crate::reflector::{Body, ListOptions, ListWatch};
use crate::resource_version::ResourceVersion;
use crate::stop::{DoneSetter, Stopper};
use crate::store::{ReflectorStore, StoreError};

const SOON: Duration = Duration::from_secs(60);

type Item = Deltas<DynamicObject>;

/// A queue whose `replace_entries` returns only after the status has been read.
struct HeldQueue {
    queue: Arc<dyn Queue<DynamicObject>>,
    is_read: Done,
}

impl HeldQueue {
    fn inner(&self) -> &dyn Staging<DynamicObject> {
        self.queue.staging().unwrap()
    }
}

impl ReflectorStore<DynamicObject> for HeldQueue {
    fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.queue.add(object)
    }

    fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.queue.update(object)
    }

    fn delete(&self, gone: Deleted<DynamicObject>) -> Result<(), StoreError> {
        self.queue.delete(gone)
    }

    fn replace(
        &self,
        objects: Vec<Arc<DynamicObject>>,
        version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        self.queue.replace(objects, version)
    }

    fn staging(&self) -> Option<&dyn Staging<DynamicObject>> {
        Some(self)
    }
}

impl Staging<DynamicObject> for HeldQueue {
    fn door(&self) -> &Door<DynamicObject> {
        self.inner().door()
    }

    fn known(&self, key: &str) -> Option<Entry<DynamicObject>> {
        self.inner().known(key)
    }

    fn is_settled(&self) -> bool {
        self.inner().is_settled()
    }

    fn apply_entries(&self, changes: &mut Vec<Delta<DynamicObject>>) -> Applied {
        self.inner().apply_entries(changes)
    }

    fn replace_entries(
        &self,
        entries: Vec<Entry<DynamicObject>>,
        gaps: Gaps,
        version: Option<ResourceVersion>,
    ) -> Result<Applied, StoreError> {
        let applied = self.inner().replace_entries(entries, gaps, version)?;
        assert!(self.is_read.wait_timeout(SOON), "the status was not read");
        Ok(applied)
    }
}

impl Sealed for HeldQueue {
    fn reserve_if_empty(&self) -> bool {
        self.queue.reserve_if_empty()
    }

    fn reserve_next(&self) -> bool {
        self.queue.reserve_next()
    }
}

impl Queue<DynamicObject> for HeldQueue {
    fn pop(
        &self,
        process: &mut dyn FnMut(&Item, Origin) -> Result<(), ProcessError>,
    ) -> Result<Item, PopError<Item>> {
        self.queue.pop(process)
    }

    fn pop_batch(
        &self,
        process_batch: &mut dyn FnMut(&[Item], Origin) -> Result<(), ProcessError>,
        process: &mut dyn FnMut(&Item, Origin) -> Result<(), ProcessError>,
    ) -> Result<Vec<Item>, PopError<Vec<Item>>> {
        self.queue.pop_batch(process_batch, process)
    }

    fn synced(&self) -> Done {
        self.queue.synced()
    }

    fn processed(&self) -> Watermark {
        self.queue.processed()
    }

    fn close(&self) {
        self.queue.close();
    }

    fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

/// How the server sends the first list.
#[derive(Clone, Copy, Debug)]
enum First {
    List,
    WatchList,
}

/// A source with these objects, whose watches have no events.
fn source(first: First, items: &[Value]) -> Arc<dyn ListerWatcher> {
    let list = json!({"kind": "List", "metadata": {"resourceVersion": "10"}, "items": items});
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": "10", "annotations": annotations});
    let end = json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
    let added = items
        .iter()
        .map(|item| json!({"type": "ADDED", "object": item}));
    let watch_list: String = added
        .chain([end])
        .map(|event| format!("{event}\n"))
        .collect();
    let source = ListWatch::new(
        move |_: &ListOptions, _: &Stop| Ok(Body::from(list.to_string())),
        move |options: &ListOptions, stop: &Stop| {
            if options.send_initial_events {
                return Ok(Body::from(watch_list.as_str()));
            }
            stop.wait();
            Err(Error::stopped())
        },
    );
    match first {
        First::List => Arc::new(source),
        First::WatchList => Arc::new(source.with_watch_list()),
    }
}

/// Returns the status at the moment when the controller syncs. The reflector has queued the list,
/// and has not returned from that.
fn status_at_sync(
    queue: Arc<dyn Queue<DynamicObject>>,
    source: Arc<dyn ListerWatcher>,
) -> ReflectorStatus {
    let is_read = DoneSetter::new("the status is read");
    let held = HeldQueue {
        queue,
        is_read: is_read.signal(),
    };
    let config = ControllerConfig::new(Arc::new(held), source, |_, _| Ok(()));
    let controller = Arc::new(Controller::new(config));
    let status = Arc::new(OnceLock::new());
    let (reads, read) = (Arc::clone(&controller), Arc::clone(&status));
    let _synced = controller.synced().on_done(move || {
        read.set(reads.status()).unwrap();
        is_read.set();
    });
    let stop = Stopper::new();
    thread::scope(|scope| {
        let running = scope.spawn(|| controller.run(&stop));
        let has_synced = controller.synced().wait_timeout(SOON);
        stop.stop();
        running.join().unwrap().unwrap();
        assert!(has_synced, "{:?}", controller.status());
    });
    status.get().unwrap().clone()
}

#[test]
fn status_at_sync_has_the_outcome_of_the_list() {
    let named =
        |name: &str| json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}});
    let accessor = Accessor::<DynamicObject>::object;
    let lists = [
        (vec![named("a")], true),
        (vec![], true),
        (vec![named("a"), named("")], false),
    ];
    for (items, complete) in lists {
        for first in [First::List, First::WatchList] {
            let queues: [Arc<dyn Queue<DynamicObject>>; 2] = [
                Arc::new(DeltaFifo::new(accessor())),
                Arc::new(RealFifo::new(accessor())),
            ];
            for queue in queues {
                let status = status_at_sync(queue, source(first, &items));
                let context = format!("{first:?}: {status:?}");
                assert!(status.listed, "{context}");
                assert_eq!(status.complete, complete, "{context}");
                assert_eq!(status.unreadable, u64::from(!complete), "{context}");
                assert_eq!(status.last_error.is_some(), !complete, "{context}");
                assert_eq!(
                    status.resource_version,
                    ResourceVersion::new("10"),
                    "{context}"
                );
            }
        }
    }
}
