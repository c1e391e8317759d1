//! Interleaving tests of the queues. Tests of several queues are here, those of a single queue in
//! its file.

mod delta_fifo;
mod fifo;
mod real_fifo;
mod reservation;
mod watermark;

use std::cell::RefCell;
use std::sync::Arc;

use super::{DeltaFifo, Deltas, Fifo, PopError, ProcessError, Queue, RealFifo, Requeue};
use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Condvar, Mutex, any, join_all, thread};
use crate::object::{Accessor, KeyError};
use crate::resource_version::ResourceVersion;
use crate::store::ReflectorStore;

/// A key and a version.
type Item = (&'static str, usize);

type Process<'a> = dyn FnMut(&[Item]) -> Result<(), ProcessError> + 'a;

/// The common interface of the queues under test.
trait Subject: Send + Sync + 'static {
    fn add(&self, item: Item);

    /// Adds items with different keys to an empty queue, all at once.
    fn add_all(&self, items: &[Item]);

    /// Pops once and passes the items to `process`, oldest first. Returns false once the queue is
    /// closed and empty.
    fn pop(&self, process: &mut Process<'_>) -> bool;

    /// Pops one item or a batch.
    fn pop_some(&self, process: &mut Process<'_>) -> bool {
        self.pop(process)
    }

    fn close(&self);
}

/// A `Fifo` is not a [`Queue`], because it pops objects instead of deltas.
impl Subject for Fifo<Item> {
    fn add(&self, item: Item) {
        ReflectorStore::add(self, Arc::new(item)).unwrap();
    }

    fn add_all(&self, items: &[Item]) {
        self.replace(arcs(items), ResourceVersion::new("1"))
            .unwrap();
    }

    fn pop(&self, process: &mut Process<'_>) -> bool {
        is_popped(self.pop(&mut |item, _| process(&[**item])))
    }

    fn close(&self) {
        self.close();
    }
}

impl<Q: Queue<Item> + 'static> Subject for Q {
    fn add(&self, item: Item) {
        ReflectorStore::add(self, Arc::new(item)).unwrap();
    }

    fn add_all(&self, items: &[Item]) {
        self.replace(arcs(items), ResourceVersion::new("1"))
            .unwrap();
    }

    fn pop(&self, process: &mut Process<'_>) -> bool {
        is_popped(Queue::pop(self, &mut |deltas, _| {
            process(&items_of(deltas))
        }))
    }

    fn pop_some(&self, process: &mut Process<'_>) -> bool {
        if any(2) == 0 {
            return Subject::pop(self, process);
        }
        let process = RefCell::new(process);
        is_popped(self.pop_batch(
            &mut |batch, _| {
                (process.borrow_mut())(&batch.iter().flat_map(items_of).collect::<Vec<_>>())
            },
            &mut |deltas, _| (process.borrow_mut())(&items_of(deltas)),
        ))
    }

    fn close(&self) {
        Queue::close(self);
    }
}

fn arcs(items: &[Item]) -> Vec<Arc<Item>> {
    items.iter().copied().map(Arc::new).collect()
}

fn items_of(deltas: &Deltas<Item>) -> Vec<Item> {
    deltas
        .iter()
        .filter_map(|delta| Some(**delta.object()?))
        .collect()
}

/// The callbacks of the tests return no error but [`Requeue`].
fn is_popped<R, P>(popped: Result<R, PopError<P>>) -> bool {
    match popped {
        Ok(_) => true,
        Err(PopError::Closed) => false,
        Err(error) => panic!("{error}"),
    }
}

fn fifo() -> Arc<Fifo<Item>> {
    Arc::new(Fifo::new(accessor()))
}

fn delta_fifo() -> Arc<DeltaFifo<Item>> {
    Arc::new(DeltaFifo::new(accessor()))
}

fn real_fifo() -> Arc<RealFifo<Item>> {
    Arc::new(RealFifo::new(accessor()))
}

fn accessor() -> Accessor<Item> {
    Accessor::new(|item: &Item| Ok::<_, KeyError>(item.0.into()))
}

/// The guarantee of a queue for its items.
#[derive(Clone, Copy, PartialEq)]
enum Guarantee {
    /// Each item is popped after all items that the same thread added before it.
    InOrder,
    /// Each item is popped after the older items of its key.
    InOrderPerKey,
    /// The newest item of each key is popped. Older ones may be popped before it.
    Newest,
}

/// The items that two producers add, each in this order.
const ADDED: [&[Item]; 2] = [
    &[("a", 1), ("b", 1), ("a", 2)],
    &[("c", 1), ("d", 1), ("c", 2)],
];

/// The popped items, in order.
#[derive(Default)]
struct Popped {
    items: Mutex<Vec<Item>>,
    /// Notified when `items` grows.
    more: Condvar,
    /// Whether some of the popped items are requested again.
    requeues: bool,
    processing: AtomicBool,
    overlaps: AtomicUsize,
}

impl Popped {
    fn process(&self, items: &[Item]) -> Result<(), ProcessError> {
        if self.processing.swap(true, Ordering::SeqCst) {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        let requeues = self.requeues && any(3) == 0;
        if !requeues {
            self.items.lock().extend(items);
            self.more.notify_all();
        }
        self.processing.store(false, Ordering::SeqCst);
        match requeues {
            true => Err(Requeue::new().into()),
            false => Ok(()),
        }
    }

    /// Pops until the queue is closed and empty.
    fn pop_all(&self, queue: &dyn Subject) {
        while queue.pop_some(&mut |items| self.process(items)) {}
    }

    fn wait_for(&self, enough: impl Fn(&[Item]) -> bool) {
        let mut items = self.items.lock();
        while !enough(&items) {
            self.more.wait(&mut items);
        }
    }

    /// Asserts that the popped items fulfil `guarantee` for the added items.
    fn assert_is<L: AsRef<[Item]>>(&self, threads: &[L], guarantee: Guarantee) {
        let mut popped = self.items.lock().clone();
        let mut added: Vec<Item> = threads
            .iter()
            .flat_map(|items| items.as_ref())
            .copied()
            .collect();
        if guarantee == Guarantee::InOrder {
            for items in threads.iter().map(AsRef::as_ref) {
                assert!(
                    popped.iter().filter(|item| items.contains(item)).eq(items),
                    "{popped:?}"
                );
            }
        }
        // The sort is stable, so it keeps the order within a key.
        popped.sort_by_key(|item| item.0);
        added.sort_by_key(|item| item.0);
        if let Guarantee::InOrder | Guarantee::InOrderPerKey = guarantee {
            assert_eq!(popped, added);
        } else {
            let last: Vec<Item> = added
                .iter()
                .filter(|item| is_last(&added, item))
                .copied()
                .collect();
            assert!(
                popped.iter().filter(|item| is_last(&added, item)).eq(&last),
                "{popped:?}"
            );
            assert!(popped.is_sorted_by(|a, b| a < b), "{popped:?}");
            assert!(popped.iter().all(|item| added.contains(item)), "{popped:?}");
        }
        assert_eq!(
            self.overlaps.load(Ordering::SeqCst),
            0,
            "items were processed at the same time"
        );
    }
}

fn is_last(added: &[Item], item: &Item) -> bool {
    added
        .iter()
        .all(|other| other.0 != item.0 || other.1 <= item.1)
}

/// Starts the producers.
fn produce<Q: Subject>(queue: &Arc<Q>) -> [thread::JoinHandle<()>; 2] {
    ADDED.map(|items| {
        let queue = Arc::clone(queue);
        thread::spawn(move || items.iter().for_each(|item| queue.add(*item)))
    })
}

fn consume<const N: usize, Q: Subject>(
    queue: &Arc<Q>,
    popped: &Arc<Popped>,
) -> [thread::JoinHandle<()>; N] {
    [(); N].map(|()| {
        let (queue, popped) = (Arc::clone(queue), Arc::clone(popped));
        thread::spawn(move || popped.pop_all(&*queue))
    })
}

/// Two producers, two consumers. The queue is closed only after everything has been popped, so only
/// the producers can wake the consumers until then.
fn every_item_wakes_a_pop<Q: Subject>(queue: Arc<Q>, guarantee: Guarantee) {
    let popped = Arc::new(Popped::default());
    let consumers = consume::<2, _>(&queue, &popped);
    let producers = produce(&queue);
    let last = |items: &[Item]| {
        ADDED
            .iter()
            .flat_map(|added| &added[1..])
            .all(|item| items.contains(item))
    };
    popped.wait_for(last);
    queue.close();
    join_all(producers);
    join_all(consumers);
    popped.assert_is(&ADDED, guarantee);
}

/// Two producers, three consumers. After a close at any point every pop ends, and items that have
/// not been popped are still in the queue.
fn close_at_any_point_loses_no_item<Q: Subject>(queue: Arc<Q>, guarantee: Guarantee) {
    let popped = Arc::new(Popped::default());
    let consumers = consume::<3, _>(&queue, &popped);
    let producers = produce(&queue);
    queue.close();
    join_all(producers);
    join_all(consumers);
    popped.pop_all(&*queue);
    popped.assert_is(&ADDED, guarantee);
}

/// There are as many pops as items. Each pop is called once, on its own thread.
fn every_pop_gets_an_item<Q: Subject>(queue: Arc<Q>, at_once: bool, guarantee: Guarantee) {
    const ITEMS: [Item; 3] = [("a", 1), ("b", 1), ("c", 1)];
    let popped = Arc::new(Popped::default());
    let consumers = ITEMS.map(|_| {
        let (queue, popped) = (Arc::clone(&queue), Arc::clone(&popped));
        thread::spawn(move || assert!(queue.pop(&mut |items| popped.process(items))))
    });
    if at_once {
        queue.add_all(&ITEMS);
    } else {
        join_all(ITEMS.map(|item| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.add(item))
        }));
    }
    join_all(consumers);
    popped.assert_is(&ITEMS.map(|item| [item]), guarantee);
}

/// Two producers, two consumers that request some items again. Every item is processed in the end, or
/// a newer one of its key.
fn requeued_items_keep_the_guarantee<Q: Subject>(queue: Arc<Q>, guarantee: Guarantee) {
    let popped = Arc::new(Popped {
        requeues: true,
        ..Popped::default()
    });
    let consumers = consume::<2, _>(&queue, &popped);
    join_all(produce(&queue));
    queue.close();
    join_all(consumers);
    popped.assert_is(&ADDED, guarantee);
}

/// Callbacks add items while other threads add, pop and close.
fn callback_can_add_items<Q: Subject>(queue: Arc<Q>, guarantee: Guarantee) {
    let popped = Arc::new(Popped::default());
    let consumers = [(); 2].map(|()| {
        let (queue, popped) = (Arc::clone(&queue), Arc::clone(&popped));
        thread::spawn(move || {
            while queue.pop_some(&mut |items| {
                for (_, version) in items
                    .iter()
                    .filter(|(key, version)| *key == "a" && *version < 3)
                {
                    queue.add(("a", version + 1));
                }
                popped.process(items)
            }) {}
        })
    });
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.add(("b", 1))
    });
    queue.add(("a", 1));
    if any(2) == 0 {
        popped.wait_for(|items| items.contains(&("a", 3)));
    }
    queue.close();
    producer.join().unwrap();
    join_all(consumers);
    popped.pop_all(&*queue);
    popped.assert_is(
        &[&[("a", 1), ("a", 2), ("a", 3)][..], &[("b", 1)]],
        guarantee,
    );
}
