//! Tests of [`RealFifo`](crate::queue::RealFifo): the order across objects, and blocked writers.
//! The batch size is two here, so four remaining changes have the effect of 2000.

use std::sync::Arc;

use super::Guarantee::InOrder;
use super::{is_popped, real_fifo};
use crate::base::sync::{any, check, join_all, thread};
use crate::object::Deleted;
use crate::queue::Queue;
use crate::resource_version::ResourceVersion;
use crate::store::ReflectorStore;

#[test]
fn every_pop_gets_an_item() {
    check(|| super::every_pop_gets_an_item(real_fifo(), false, InOrder));
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
fn requeued_items_keep_the_guarantee() {
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
        let queue = real_fifo();
        for key in ["a", "b", "c", "d", "e"] {
            queue.add(Arc::new((key, 1))).unwrap();
        }
        let writers = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match any(5) {
                0 => queue
                    .replace(vec![Arc::new(("a", 2))], ResourceVersion::new("2"))
                    .unwrap(),
                1 => queue.delete(Deleted::Final(Arc::new(("a", 2)))).unwrap(),
                2 => queue.bookmark(ResourceVersion::new("2")).unwrap(),
                3 => queue.resync().unwrap(),
                _ => queue.update(Arc::new(("a", 2))).unwrap(),
            })
        });
        for popped_before in 0..3 {
            // After the first pop four changes remain, so writers wait.
            let popped = Queue::pop(&*queue, &mut |_, _| {
                let left = queue.len();
                for _ in 0..2 {
                    thread::yield_now();
                    assert!(queue.len() == left || popped_before > 0);
                }
                Ok(())
            });
            assert!(is_popped(popped));
        }
        join_all(writers);
    });
}
