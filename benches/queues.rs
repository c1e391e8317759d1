//! The cost of the queues, compared with the minimum that moves an object between threads: a
//! `Mutex<VecDeque>` and a `Condvar`, without keys.
//!
//! ```text
//! cargo bench --bench queues
//! ```

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use common::{Named, next_version, objects};
use divan::{Bencher, black_box};
use k8s_informer::Indexer;
use k8s_informer::object::{Accessor, Key, KeyError, ResourceVersion};
use k8s_informer::queue::{DeltaFifo, DeltaFifoOptions, Fifo, Queue, RealFifo};
use k8s_informer::store::{Indexers, KnownObjects, ReflectorStore};
use parking_lot::{Condvar, Mutex};

/// A debug build, as in CI, only checks that the benchmarks run.
const OBJECTS: usize = if cfg!(debug_assertions) {
    1_000
} else {
    100_000
};

fn main() {
    divan::main();
}

/// A queue under test. To add a queue, implement this trait and add the type to `types`.
trait BenchQueue: Send + Sync {
    /// Creates an empty queue. `known` is the store of its consumer.
    fn new(known: Option<Arc<Indexer<Named>>>) -> Self;
    fn add(&self, object: &Arc<Named>);
    fn replace(&self, objects: &[Arc<Named>]);
    fn pop(&self);
}

impl BenchQueue for DeltaFifo<Named> {
    fn new(known: Option<Arc<Indexer<Named>>>) -> Self {
        let mut options = DeltaFifoOptions::new().emit_replaced(true);
        if let Some(known) = known {
            options = options.known_objects(known as Arc<dyn KnownObjects<Named>>);
        }
        Self::with_options(accessor(), options)
    }

    fn add(&self, object: &Arc<Named>) {
        ReflectorStore::add(self, Arc::clone(object)).expect("the object has a key");
    }

    fn replace(&self, objects: &[Arc<Named>]) {
        ReflectorStore::replace(self, objects.to_vec(), ResourceVersion::new("1"))
            .expect("the objects have keys");
    }

    fn pop(&self) {
        black_box(Queue::pop(self, &mut |_, _| Ok(())).expect("the queue is not empty"));
    }
}

impl BenchQueue for RealFifo<Named> {
    fn new(_: Option<Arc<Indexer<Named>>>) -> Self {
        Self::new(accessor())
    }

    fn add(&self, object: &Arc<Named>) {
        ReflectorStore::add(self, Arc::clone(object)).expect("the object has a key");
    }

    fn replace(&self, objects: &[Arc<Named>]) {
        ReflectorStore::replace(self, objects.to_vec(), ResourceVersion::new("1"))
            .expect("the objects have keys");
    }

    fn pop(&self) {
        black_box(Queue::pop(self, &mut |_, _| Ok(())).expect("the queue is not empty"));
    }
}

impl BenchQueue for Fifo<Named> {
    fn new(_: Option<Arc<Indexer<Named>>>) -> Self {
        Self::new(accessor())
    }

    fn add(&self, object: &Arc<Named>) {
        ReflectorStore::add(self, Arc::clone(object)).expect("the object has a key");
    }

    fn replace(&self, objects: &[Arc<Named>]) {
        ReflectorStore::replace(self, objects.to_vec(), ResourceVersion::new("1"))
            .expect("the objects have keys");
    }

    fn pop(&self) {
        black_box(
            self.pop(&mut |_, _| Ok(()))
                .expect("the queue is not empty"),
        );
    }
}

/// The baseline: the minimum that moves objects between threads.
#[derive(Default)]
struct Channel {
    waiting: Mutex<VecDeque<Arc<Named>>>,
    changed: Condvar,
}

impl BenchQueue for Channel {
    fn new(_: Option<Arc<Indexer<Named>>>) -> Self {
        Self::default()
    }

    fn add(&self, object: &Arc<Named>) {
        self.waiting.lock().push_back(Arc::clone(object));
        self.changed.notify_one();
    }

    fn replace(&self, objects: &[Arc<Named>]) {
        self.waiting.lock().extend(objects.iter().map(Arc::clone));
        self.changed.notify_all();
    }

    fn pop(&self) {
        let mut waiting = self.waiting.lock();
        while waiting.is_empty() {
            self.changed.wait(&mut waiting);
        }
        black_box(waiting.pop_front());
    }
}

fn accessor() -> Accessor<Named> {
    Accessor::new(|object: &Named| Ok::<_, KeyError>(Key::clone(&object.key)))
}

/// Adds and pops one object.
#[divan::bench(types = [DeltaFifo<Named>, RealFifo<Named>, Fifo<Named>, Channel])]
fn add_pop<Q: BenchQueue>(bencher: Bencher) {
    let (queue, objects) = (Q::new(None), objects(1));
    bencher.bench_local(|| {
        queue.add(&objects[0]);
        queue.pop();
    });
}

/// Adds all objects, then pops all.
#[divan::bench(types = [DeltaFifo<Named>, RealFifo<Named>, Fifo<Named>, Channel], sample_count = 20)]
fn add_100k_pop_100k<Q: BenchQueue>(bencher: Bencher) {
    let objects = objects(OBJECTS);
    bencher
        .with_inputs(|| Q::new(None))
        .bench_local_refs(|queue| {
            objects.iter().for_each(|object| queue.add(object));
            objects.iter().for_each(|_| queue.pop());
        });
}

/// Adds on one thread and pops on the other.
#[divan::bench(types = [DeltaFifo<Named>, RealFifo<Named>, Fifo<Named>, Channel], sample_count = 20)]
fn hand_off_100k<Q: BenchQueue>(bencher: Bencher) {
    let objects = objects(OBJECTS);
    bencher
        .with_inputs(|| Q::new(None))
        .bench_local_refs(|queue| {
            thread::scope(|scope| {
                scope.spawn(|| objects.iter().for_each(|object| queue.add(object)));
                objects.iter().for_each(|_| queue.pop());
            });
        });
}

/// The first list.
#[divan::bench(types = [DeltaFifo<Named>, RealFifo<Named>, Fifo<Named>, Channel], sample_count = 20)]
fn replace_100k<Q: BenchQueue>(bencher: Bencher) {
    let objects = objects(OBJECTS);
    bencher
        .with_inputs(|| Q::new(None))
        .bench_local_refs(|queue| queue.replace(&objects));
}

/// A relist in which one object in a hundred has changed, until everything is popped. A `RealFifo`
/// queues a list as one change.
#[divan::bench(types = [DeltaFifo<Named>, Fifo<Named>, Channel], sample_count = 20)]
fn relist_100k_pop_100k<Q: BenchQueue>(bencher: Bencher) {
    let mut objects = objects(OBJECTS);
    let known = Arc::new(Indexer::new(accessor(), Indexers::new()));
    known
        .replace(objects.clone(), ResourceVersion::new("1"))
        .expect("the objects have keys");
    objects
        .iter_mut()
        .step_by(100)
        .for_each(|object| *object = next_version(object));
    let queue = Q::new(Some(known));
    bencher.bench_local(|| {
        queue.replace(&objects);
        objects.iter().for_each(|_| queue.pop());
    });
}
