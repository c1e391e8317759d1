//! Tests of [`RealFifo`](crate::queue::RealFifo): the order across objects, and blocked writers.
//! The batch size is two here, so four remaining changes have the effect of 2000.

use std::sync::{Arc, OnceLock, Weak};

use super::Guarantee::InOrder;
use super::{Item, accessor, is_popped, real_fifo, real_fifo_in_order};
use crate::object::{Deleted, Key};
use crate::queue::{Queue, RealFifo, RealFifoMode};
use crate::store::{KnownObjects, ReflectorStore, StoreError};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{any, check, join_all, thread};

#[test]
fn every_pop_gets_an_item() {
    check(|| super::every_pop_gets_an_item(real_fifo(), false, InOrder));
}

#[test]
fn every_pop_gets_an_item_of_a_list() {
    check(|| super::every_pop_gets_an_item(real_fifo_in_order(), true, InOrder));
}

#[test]
fn every_item_wakes_a_pop() {
    check(|| super::every_item_wakes_a_pop(real_fifo(), InOrder));
}

#[test]
fn close_at_any_point_loses_no_item() {
    check(|| super::close_at_any_point_loses_no_item(real_fifo(), InOrder));
}

#[test]
fn requeued_items_meet_the_order_guarantee() {
    check(|| super::requeued_items_keep_the_guarantee(real_fifo(), InOrder));
}

#[test]
fn process_callback_can_add_items() {
    check(|| super::callback_can_add_items(real_fifo(), InOrder));
}

/// Writers wait while an exclusive pop processes. Its end wakes all of them: no later pop is
/// needed.
#[test]
fn r19_writers_block_during_processing() {
    check(|| {
        let (queue, unlocked) = match any(3) {
            0 => (real_fifo_in_order(), false),
            kind => {
                let unlocked = kind == 1;
                let mode = RealFifoMode::Atomic {
                    unlock_while_processing: unlocked,
                    bookmarks: true,
                };
                (
                    Arc::new(RealFifo::builder(accessor(), mode).build()),
                    unlocked,
                )
            }
        };
        for key in ["a", "b", "c", "d", "e"] {
            queue.add(Arc::new((key, 1))).unwrap();
        }
        let writers = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match any(5) {
                0 => queue.replace(vec![Arc::new(("a", 2))], "2").unwrap(),
                1 => queue.delete(Deleted::Final(Arc::new(("a", 2)))).unwrap(),
                2 => queue.bookmark("2").unwrap(),
                3 => queue.resync().unwrap(),
                _ => queue.update(Arc::new(("a", 2))).unwrap(),
            })
        });
        for popped_before in 0..3 {
            // After the first pop four changes remain, so writers wait even in unlocked mode.
            let exclusive = !unlocked || popped_before == 0;
            let popped = Queue::pop(&*queue, &mut |_, _| {
                let left = queue.len();
                for _ in 0..2 {
                    thread::yield_now();
                    assert!(queue.len() == left || !exclusive);
                }
                Ok(())
            });
            assert!(is_popped(popped));
        }
        join_all(writers);
    });
}

/// Known objects that assert that the queue does not change while they are called.
#[derive(Default)]
struct ExclusiveKnownObjects {
    queue: OnceLock<Weak<RealFifo<Item>>>,
    in_call: AtomicBool,
}

impl KnownObjects<Item> for ExclusiveKnownObjects {
    fn list_keys(&self) -> Vec<Key> {
        assert!(
            !self.in_call.swap(true, Ordering::SeqCst),
            "two calls at the same time"
        );
        let queue = self.queue.get().and_then(Weak::upgrade).unwrap();
        let before = queue.len();
        thread::yield_now();
        assert_eq!(queue.len(), before);
        self.in_call.store(false, Ordering::SeqCst);
        vec!["a".into()]
    }

    fn lookup(&self, _: &str) -> Result<Option<Arc<Item>>, StoreError> {
        thread::yield_now();
        assert!(
            !self.in_call.load(Ordering::SeqCst),
            "two calls at the same time"
        );
        Ok(Some(Arc::new(("a", 1))))
    }
}

#[test]
fn r5_r9_queue_is_unchanged_during_known_objects_calls() {
    check(|| {
        let known = Arc::new(ExclusiveKnownObjects::default());
        let mode = RealFifoMode::InOrder(Arc::clone(&known) as _);
        let queue = Arc::new(RealFifo::builder(accessor(), mode).build());
        known.queue.set(Arc::downgrade(&queue)).unwrap();
        let popper = thread::spawn({
            let queue = Arc::clone(&queue);
            move || while is_popped(Queue::pop(&*queue, &mut |_, _| Ok(()))) {}
        });
        let callers = [0, 1].map(|kind| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match kind {
                0 => queue.resync().unwrap(),
                _ => queue.replace(vec![Arc::new(("b", 2))], "2").unwrap(),
            })
        });
        queue.add(Arc::new(("b", 1))).unwrap();
        join_all(callers);
        queue.close();
        popper.join().unwrap();
        assert!(queue.is_empty());
    });
}
