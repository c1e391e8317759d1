//! Reserved pops: a writer pops what it has written, beside threads whose pops wait.

use std::sync::Arc;

use super::Guarantee::{InOrder, InOrderPerKey};
use super::{ADDED, Guarantee, Item, Popped, Subject, accessor, consume, delta_fifo, real_fifo};
use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Mutex, any, check, join_all, thread};
use crate::metrics::InformerMetrics;
use crate::queue::{DeltaFifo, DeltaFifoOptions, Queue, RealFifo, RealFifoOptions, Sealed};

/// Writes items in groups of at most two. Pops after each group for which a pop could be reserved.
/// If `is_only_writer`, the reserved pop returns the group's first item.
fn write_and_pop<Q: Queue<Item> + 'static>(queue: &Q, popped: &Popped, is_only_writer: bool) {
    let mut items = ADDED[0];
    while !items.is_empty() {
        let (group, rest) = items.split_at(any(3).min(items.len()));
        items = rest;
        let reserves = any(4) > 0 && queue.reserve_if_empty();
        group.iter().for_each(|item| Subject::add(queue, *item));
        if !reserves {
            continue;
        }
        let mut first = None;
        let has_popped = queue.pop_some(&mut |items| {
            first = items.first().copied();
            popped.process(items)
        });
        // In a closed queue, the reservation does not count.
        let is_closed = Queue::is_closed(queue);
        assert!(has_popped || group.is_empty() || is_closed);
        assert!(!is_only_writer || first.as_ref() == group.first() || is_closed);
    }
}

fn writer<Q: Queue<Item> + 'static>(
    queue: &Arc<Q>,
    popped: &Arc<Popped>,
    is_only_writer: bool,
) -> thread::JoinHandle<()> {
    let (queue, popped) = (Arc::clone(queue), Arc::clone(popped));
    thread::spawn(move || write_and_pop(&*queue, &popped, is_only_writer))
}

fn other_writer<Q: Queue<Item> + 'static>(queue: &Arc<Q>) -> thread::JoinHandle<()> {
    let queue = Arc::clone(queue);
    thread::spawn(move || {
        ADDED[1]
            .iter()
            .for_each(|item| Subject::add(&*queue, *item))
    })
}

/// Items that wait at the end of a reserved pop wake a waiting pop: the queue is closed only after
/// all of them have been popped.
fn rest_wakes_a_pop<Q: Queue<Item> + 'static>(queue: Arc<Q>, guarantee: Guarantee) {
    let popped = Arc::new(Popped::default());
    let consumers = consume::<2, _>(&queue, &popped);
    let has_other = any(2) == 0;
    let writers = [
        Some(writer(&queue, &popped, !has_other)),
        has_other.then(|| other_writer(&queue)),
    ];
    let added = &ADDED[..if has_other { 2 } else { 1 }];
    popped.wait_for(|items| {
        let mut last = added.iter().flat_map(|added| &added[1..]);
        last.all(|item| items.contains(item))
    });
    queue.close();
    join_all(writers.into_iter().flatten());
    join_all(consumers);
    popped.assert_is(added, guarantee);
}

/// After a close at any point, also during a reservation, every pop ends and no item is lost.
fn close_loses_no_item<Q: Queue<Item> + 'static>(queue: Arc<Q>, guarantee: Guarantee) {
    let popped = Arc::new(Popped::default());
    let consumers = consume::<2, _>(&queue, &popped);
    let writers = [writer(&queue, &popped, false), other_writer(&queue)];
    queue.close();
    join_all(writers);
    join_all(consumers);
    popped.pop_all(&*queue);
    popped.assert_is(&ADDED, guarantee);
}

/// Without other pops, two writers pop everything. At most one of them at a time has a reservation.
fn writers_pop_everything<Q: Queue<Item> + 'static>(queue: Arc<Q>, guarantee: Guarantee) {
    let popped = Arc::new(Popped::default());
    let writers = ADDED.map(|items| {
        let (queue, popped) = (Arc::clone(&queue), Arc::clone(&popped));
        thread::spawn(move || {
            for item in items {
                Subject::add(&*queue, *item);
                while queue.reserve_next() {
                    queue.pop_some(&mut |items| popped.process(items));
                }
            }
        })
    });
    join_all(writers);
    // A writer that gets no reservation leaves its items to the other one, which may have ended.
    while queue.reserve_next() {
        assert!(queue.pop_some(&mut |items| popped.process(items)));
    }
    popped.assert_is(&ADDED, guarantee);
}

#[test]
fn rest_after_a_reserved_pop_wakes_a_pop() {
    check(|| match any(2) {
        0 => rest_wakes_a_pop(delta_fifo(), InOrderPerKey),
        _ => rest_wakes_a_pop(real_fifo(), InOrder),
    });
}

#[test]
fn close_during_a_reservation_loses_no_item() {
    check(|| match any(2) {
        0 => close_loses_no_item(delta_fifo(), InOrderPerKey),
        _ => close_loses_no_item(real_fifo(), InOrder),
    });
}

#[test]
fn reserved_pops_of_two_threads_do_not_overlap() {
    check(|| match any(2) {
        0 => writers_pop_everything(delta_fifo(), InOrderPerKey),
        _ => writers_pop_everything(real_fifo(), InOrder),
    });
}

/// The close of an empty queue is visible to waiting pops only after the reservation has ended. Its
/// end wakes all of them.
#[test]
fn end_of_an_unused_reservation_wakes_all_pops() {
    check(|| {
        let (queue, popped) = (delta_fifo(), Arc::new(Popped::default()));
        assert!(queue.reserve_if_empty());
        let consumers = consume::<2, _>(&queue, &popped);
        let closer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || Queue::close(&*queue)
        });
        if any(2) == 0 {
            thread::yield_now();
        }
        assert!(!queue.pop_some(&mut |_| Ok(())));
        closer.join().unwrap();
        join_all(consumers);
    });
}

/// The queue is synced after the last item of the initial list, whichever thread pops it.
#[test]
fn d10_synced_after_reserved_pops_of_the_initial_list() {
    check(|| {
        let (queue, processed) = (delta_fifo(), Arc::new(Mutex::new(Vec::new())));
        let pop = {
            let (queue, processed) = (Arc::clone(&queue), Arc::clone(&processed));
            move || {
                queue.pop_some(&mut |items| {
                    processed.lock().extend(items);
                    Ok(())
                })
            }
        };
        let waiter = thread::spawn({
            let (queue, processed) = (Arc::clone(&queue), Arc::clone(&processed));
            move || {
                queue.synced().wait();
                let processed = processed.lock();
                assert!(
                    [("a", 1), ("b", 1)]
                        .iter()
                        .all(|item| processed.contains(item))
                );
            }
        });
        let consumer = thread::spawn({
            let pop = pop.clone();
            move || while pop() {}
        });
        let reserves = any(3) > 0 && queue.reserve_if_empty();
        Subject::add_all(&*queue, &[("a", 1), ("b", 1)]);
        if any(2) == 0 {
            Subject::add(&*queue, ("c", 2));
        }
        if reserves {
            assert!(pop());
        }
        // The consumer pops the rest: no later event wakes the waiter.
        waiter.join().unwrap();
        Queue::close(&*queue);
        consumer.join().unwrap();
    });
}

/// A thread that ends with its reservation, for example because a logger has panicked, holds up the
/// pops of others only until the close.
fn close_ends_pops_beside_a_dead_owner<Q: Queue<Item> + 'static>(queue: &Arc<Q>) {
    let popped = Arc::new(Popped::default());
    let consumers = consume::<2, _>(queue, &popped);
    let has_written = any(2) == 0;
    let owner = thread::spawn({
        let queue = Arc::clone(queue);
        move || {
            let reserves = queue.reserve_if_empty();
            if has_written {
                Subject::add(&*queue, ("a", 1));
            }
            assert!(reserves);
        }
    });
    owner.join().unwrap();
    Queue::close(&**queue);
    join_all(consumers);
    let expected: &[Item] = if has_written { &[("a", 1)] } else { &[] };
    assert_eq!(*popped.items.lock(), expected);
}

#[test]
fn close_ends_pops_beside_an_owner_that_has_ended() {
    check(|| match any(2) {
        0 => close_ends_pops_beside_a_dead_owner(&delta_fifo()),
        _ => close_ends_pops_beside_a_dead_owner(&real_fifo()),
    });
}

/// Metrics are user code, so they must not be called while a pop is reserved.
#[derive(Default)]
struct CheckingMetrics {
    is_reserved: AtomicBool,
    calls: AtomicUsize,
}

impl InformerMetrics for CheckingMetrics {
    fn queued_items(&self, _: usize) {
        assert!(!self.is_reserved.load(Ordering::SeqCst), "reserved");
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

/// The depth, and the signal of the sync, are reported by the reserved pop, not by the write before
/// it.
#[test]
fn write_before_a_reserved_pop_calls_no_user_code() {
    check(|| {
        let metrics = Arc::new(CheckingMetrics::default());
        let queue: Arc<dyn Queue<Item>> = match any(2) {
            0 => Arc::new(DeltaFifo::with_options(
                accessor(),
                DeltaFifoOptions::new().metrics(Arc::clone(&metrics) as _),
            )),
            _ => Arc::new(RealFifo::with_options(
                accessor(),
                RealFifoOptions::new().metrics(Arc::clone(&metrics) as _),
            )),
        };
        let is_reserved = {
            let metrics = Arc::clone(&metrics);
            move || metrics.is_reserved.load(Ordering::SeqCst)
        };
        let _synced = queue
            .synced()
            .on_done(move || assert!(!is_reserved(), "reserved"));
        let waiter = thread::spawn({
            let synced = queue.synced();
            move || synced.wait()
        });
        assert!(queue.reserve_if_empty());
        metrics.is_reserved.store(true, Ordering::SeqCst);
        queue.add(Arc::new(("a", 1))).unwrap();
        assert!(!queue.has_synced());
        metrics.is_reserved.store(false, Ordering::SeqCst);
        queue.pop(&mut |_, _| Ok(())).unwrap();
        assert!(queue.has_synced() && metrics.calls.load(Ordering::SeqCst) > 0);
        waiter.join().unwrap();
    });
}
