//! Stores and queues alone.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::object::Accessor;
use k8s_informer::queue::{DeltaFifo, Queue};
use k8s_informer::store::{Indexers, ReflectorStore};
use k8s_informer::workqueue::{
    AddOptions, AnyWorkQueue, WorkQueue, default_controller_rate_limiter,
};
use k8s_informer::{Indexer, ObjectMeta};

use super::{Item, cpu_of};

/// A hundred namespaces.
fn items(count: usize) -> Vec<Arc<Item>> {
    let item = |n| {
        let mut metadata = ObjectMeta::default();
        metadata.name = format!("item-{n}");
        metadata.namespace = format!("team-{}", n % 100);
        Arc::new(Item { metadata })
    };
    (0..count).map(item).collect()
}

pub(crate) fn store(n: usize) -> Duration {
    let items = items(n);
    let indexer = Indexer::new(Accessor::object(), Indexers::new().with_namespace());
    cpu_of(|| {
        items
            .into_iter()
            .for_each(|item| indexer.add(item).unwrap());
        assert_eq!(black_box(indexer.list()).len(), n);
    })
}

pub(crate) fn delta_fifo(n: usize) -> Duration {
    let items = items(n);
    let queue = DeltaFifo::new(Accessor::object());
    cpu_of(|| {
        items.into_iter().for_each(|item| queue.add(item).unwrap());
        for _ in 0..n {
            black_box(queue.pop(&mut |_, _| Ok(())).unwrap());
        }
    })
}

pub(crate) fn work_queue(n: usize) -> Duration {
    let queue = WorkQueue::new();
    cpu_of(|| {
        (0..n).for_each(|item| queue.add(item));
        (0..n).for_each(|_| queue.take().unwrap().done());
    })
}

/// Each item has its own priority.
pub(crate) fn priorities(n: usize) -> Duration {
    let limiter = default_controller_rate_limiter();
    let builder = WorkQueue::builder().starvation_limit(10);
    let queue = builder.build_priority(limiter).unwrap();
    cpu_of(|| {
        for item in 0..n {
            queue.add_with(item, AddOptions::new().priority(item as i32));
        }
        (0..n).for_each(|_| queue.take().unwrap().done());
    })
}
