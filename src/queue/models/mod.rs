//! Models of interleavings of the queues: what holds of each of them, and what holds of one.

use std::sync::Arc;

use super::{DeltaFifo, Fifo, PopError, Queue, RealFifo, RealFifoMode, Requeue};
use crate::object::{Accessor, KeyError};
use crate::store::ReflectorStore;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, any, check, join_all, thread};

/// The version of an object, by its key.
type Item = (&'static str, usize);

/// A queue as the models see it.
trait Subject: Send + Sync + 'static {
    fn add(&self, item: Item);

    /// Pops once and hands over what came, oldest first; false once the queue is closed and empty.
    fn pop(&self, process: &mut dyn FnMut(&[Item])) -> bool;

    fn close(&self);
}

/// Not a [`Queue`]: it hands out objects.
impl Subject for Fifo<Item> {
    fn add(&self, item: Item) {
        ReflectorStore::add(self, Arc::new(item)).unwrap();
    }

    fn pop(&self, process: &mut dyn FnMut(&[Item])) -> bool {
        answer(self.pop(&mut |item, _| {
            process(&[**item]);
            Ok(())
        }))
    }

    fn close(&self) {
        self.close();
    }
}

/// A callback of the models does not fail: an error is a panic of it.
fn answer<P>(popped: Result<P, PopError<P>>) -> bool {
    match popped {
        Ok(_) => true,
        Err(PopError::Closed) => false,
        Err(error) => panic!("{error}"),
    }
}

fn fifo() -> Arc<Fifo<Item>> {
    Arc::new(Fifo::new(accessor()))
}

impl<Q: Queue<Item> + 'static> Subject for Q {
    fn add(&self, item: Item) {
        ReflectorStore::add(self, Arc::new(item)).unwrap();
    }

    fn pop(&self, process: &mut dyn FnMut(&[Item])) -> bool {
        answer(Queue::pop(self, &mut |deltas, _| {
            let items: Vec<Item> = deltas.iter().filter_map(|delta| Some(**delta.object()?)).collect();
            process(&items);
            Ok(())
        }))
    }

    fn close(&self) {
        Queue::close(self);
    }
}

fn delta_fifo() -> Arc<DeltaFifo<Item>> {
    Arc::new(DeltaFifo::new(accessor()))
}

fn real_fifo() -> Arc<RealFifo<Item>> {
    Arc::new(match any(2) {
        0 => RealFifo::atomic(accessor()),
        _ => {
            let mode = RealFifoMode::Atomic { unlock_while_processing: false, bookmarks: false };
            RealFifo::builder(accessor(), mode).build()
        }
    })
}

fn accessor() -> Accessor<Item> {
    Accessor::new(|item: &Item| Ok::<_, KeyError>(item.0.into()))
}

/// What two producers add, each in its order.
const ADDED: [&[Item]; 2] = [&[("a", 1), ("b", 1), ("a", 2)], &[("c", 1), ("d", 1), ("c", 2)]];

/// What has been popped, in order.
#[derive(Default)]
struct Popped {
    items: Mutex<Vec<Item>>,
    /// Waits for `items`; woken by each pop.
    more: Condvar,
    processing: AtomicBool,
    overlaps: AtomicUsize,
}

impl Popped {
    fn pop(&self, queue: &dyn Subject) -> bool {
        queue.pop(&mut |items| {
            if self.processing.swap(true, Ordering::SeqCst) {
                self.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            self.items.lock().extend(items);
            self.more.notify_all();
            self.processing.store(false, Ordering::SeqCst);
        })
    }

    /// Pops until the queue is closed and empty.
    fn pop_all(&self, queue: &dyn Subject) {
        while self.pop(queue) {}
    }

    fn wait_for(&self, enough: impl Fn(&[Item]) -> bool) {
        let mut items = self.items.lock();
        while !enough(&items) {
            self.more.wait(&mut items);
        }
    }

    /// Each of these came, those of one key in their order, and nothing else; and nothing was processed while
    /// something else was. A queue that keeps only the `newest` may have left out an older version.
    fn assert_is(&self, added: impl IntoIterator<Item = Item>, newest: bool) {
        let mut popped = self.items.lock().clone();
        let mut added: Vec<Item> = added.into_iter().collect();
        // Stable: the order within a key stays.
        popped.sort_by_key(|item| item.0);
        added.sort_by_key(|item| item.0);
        if newest {
            let last: Vec<Item> = added.iter().filter(|item| is_last(&added, item)).copied().collect();
            assert!(popped.iter().filter(|item| is_last(&added, item)).eq(&last), "{popped:?}");
            assert!(popped.is_sorted() && popped.iter().all(|item| added.contains(item)), "{popped:?}");
        } else {
            assert_eq!(popped, added);
        }
        assert_eq!(self.overlaps.load(Ordering::SeqCst), 0, "processed at the same time");
    }
}

fn is_last(added: &[Item], item: &Item) -> bool {
    added.iter().all(|other| other.0 != item.0 || other.1 <= item.1)
}

fn produce<Q: Subject>(queue: &Arc<Q>) -> [thread::JoinHandle<()>; 2] {
    ADDED.map(|items| {
        let queue = Arc::clone(queue);
        thread::spawn(move || items.iter().for_each(|item| queue.add(*item)))
    })
}

fn consume<Q: Subject>(queue: &Arc<Q>, popped: &Arc<Popped>) -> [thread::JoinHandle<()>; 2] {
    [(); 2].map(|()| {
        let (queue, popped) = (Arc::clone(queue), Arc::clone(popped));
        thread::spawn(move || popped.pop_all(&*queue))
    })
}

/// Two producers and two consumers of a queue that is closed when everything has been popped: that happens
/// although nothing but the producers wakes the consumers, and then every pop ends.
fn every_item_wakes_a_pop<Q: Subject>(queue: Arc<Q>, newest: bool) {
    let popped = Arc::new(Popped::default());
    let consumers = consume(&queue, &popped);
    let producers = produce(&queue);
    let last = |items: &[Item]| ADDED.iter().flat_map(|added| &added[1..]).all(|item| items.contains(item));
    popped.wait_for(last);
    queue.close();
    join_all(producers.into_iter().chain(consumers));
    popped.assert_is(ADDED.concat(), newest);
}

/// Two producers and two consumers of a queue that is closed at any point: every pop ends, and what has not
/// been popped then is still there.
fn a_close_at_any_point_loses_nothing<Q: Subject>(queue: Arc<Q>, newest: bool) {
    let popped = Arc::new(Popped::default());
    let consumers = consume(&queue, &popped);
    let producers = produce(&queue);
    queue.close();
    join_all(producers.into_iter().chain(consumers));
    popped.pop_all(&*queue);
    popped.assert_is(ADDED.concat(), newest);
}

/// As many pops as there are items, each on a thread of its own that does not come back: all of them end.
fn every_pop_gets_an_item<Q: Subject>(queue: Arc<Q>) {
    let popped = Arc::new(Popped::default());
    let keys = ["a", "b", "c"];
    let consumers = keys.map(|_| {
        let (queue, popped) = (Arc::clone(&queue), Arc::clone(&popped));
        thread::spawn(move || assert!(popped.pop(&*queue)))
    });
    let producers = keys.map(|key| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.add((key, 1)))
    });
    join_all(producers.into_iter().chain(consumers));
    popped.assert_is(keys.map(|key| (key, 1)), false);
}

#[test]
fn delta_fifo_every_pop_gets_an_item() {
    check(|| every_pop_gets_an_item(delta_fifo()));
}

#[test]
fn delta_fifo_every_item_wakes_a_pop() {
    check(|| every_item_wakes_a_pop(delta_fifo(), false));
}

#[test]
fn delta_fifo_a_close_at_any_point_loses_nothing() {
    check(|| a_close_at_any_point_loses_nothing(delta_fifo(), false));
}

#[test]
fn fifo_every_pop_gets_an_item() {
    check(|| every_pop_gets_an_item(fifo()));
}

#[test]
fn fifo_every_item_wakes_a_pop() {
    check(|| every_item_wakes_a_pop(fifo(), true));
}

#[test]
fn fifo_a_close_at_any_point_loses_nothing() {
    check(|| a_close_at_any_point_loses_nothing(fifo(), true));
}

/// What is put back does not come in the way of what has been written meanwhile.
#[test]
fn fifo_what_is_put_back_is_not_older() {
    check(|| {
        let (queue, popped) = (fifo(), Arc::new(Popped::default()));
        let producers = produce(&queue);
        let consumer = thread::spawn({
            let (queue, popped) = (Arc::clone(&queue), Arc::clone(&popped));
            move || {
                let mut again = 3;
                while answer(queue.pop(&mut |item, _| {
                    if again > 0 && any(2) == 0 {
                        again -= 1;
                        return Err(Requeue::new().into());
                    }
                    popped.items.lock().push(**item);
                    Ok(())
                })) {}
            }
        });
        join_all(producers);
        queue.close();
        consumer.join().unwrap();
        popped.assert_is(ADDED.concat(), true);
    });
}

#[test]
fn real_fifo_every_pop_gets_an_item() {
    check(|| every_pop_gets_an_item(real_fifo()));
}

#[test]
fn real_fifo_every_item_wakes_a_pop() {
    check(|| every_item_wakes_a_pop(real_fifo(), false));
}

#[test]
fn real_fifo_a_close_at_any_point_loses_nothing() {
    check(|| a_close_at_any_point_loses_nothing(real_fifo(), false));
}

/// A callback adds to its queue while others add, pop and close: what it adds is popped too.
fn a_callback_may_add<Q: Subject>(queue: Arc<Q>) {
    let popped = Arc::new(Popped::default());
    let consumers = [(); 2].map(|()| {
        let (queue, popped) = (Arc::clone(&queue), Arc::clone(&popped));
        thread::spawn(move || {
            while Subject::pop(&*queue, &mut |items| {
                for (_, version) in items.iter().filter(|(key, version)| *key == "a" && *version < 3) {
                    Subject::add(&*queue, ("a", version + 1));
                }
                popped.items.lock().extend(items);
                popped.more.notify_all();
            }) {}
        })
    });
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || Subject::add(&*queue, ("b", 1))
    });
    Subject::add(&*queue, ("a", 1));
    if any(2) == 0 {
        popped.wait_for(|items| items.contains(&("a", 3)));
    }
    Subject::close(&*queue);
    producer.join().unwrap();
    join_all(consumers);
    popped.pop_all(&*queue);
    popped.assert_is([("a", 1), ("a", 2), ("a", 3), ("b", 1)], false);
}

#[test]
fn delta_fifo_a_callback_may_add() {
    check(|| a_callback_may_add(delta_fifo()));
}

#[test]
fn fifo_a_callback_may_add() {
    check(|| a_callback_may_add(fifo()));
}

#[test]
fn real_fifo_a_callback_may_add() {
    check(|| a_callback_may_add(real_fifo()));
}
