//! Tests of [`Fifo`](crate::queue::Fifo).

use std::sync::Arc;

use super::Guarantee::Newest;
use super::{fifo, is_popped};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{any, check, join_all, thread};
use crate::object::Deleted;
use crate::queue::Requeue;
use crate::resource_version::ResourceVersion;
use crate::store::ReflectorStore;

#[test]
fn every_pop_gets_an_item() {
    check(|| super::every_pop_gets_an_item(fifo(), false, Newest));
}

#[test]
fn every_pop_gets_an_item_of_a_list() {
    check(|| super::every_pop_gets_an_item(fifo(), true, Newest));
}

#[test]
fn every_item_wakes_a_pop() {
    check(|| super::every_item_wakes_a_pop(fifo(), Newest));
}

#[test]
fn close_at_any_point_loses_no_item() {
    check(|| super::close_at_any_point_loses_no_item(fifo(), Newest));
}

#[test]
fn requeued_items_keep_the_guarantee() {
    check(|| super::requeued_items_keep_the_guarantee(fifo(), Newest));
}

#[test]
fn process_callback_can_add_items() {
    check(|| super::callback_can_add_items(fifo(), Newest));
}

/// A callback may receive the deleted object once more if the object went back before the deletion.
#[test]
fn deleted_item_does_not_go_back() {
    check(|| {
        let queue = fifo();
        queue.add(Arc::new(("a", 1))).unwrap();
        let deleted = Arc::new(AtomicBool::new(false));
        let consumer = thread::spawn({
            let (queue, deleted) = (Arc::clone(&queue), Arc::clone(&deleted));
            move || {
                let mut was_deleted = false;
                while is_popped(queue.pop(&mut |_, _| {
                    assert!(!was_deleted, "popped again after the deletion");
                    was_deleted = deleted.load(Ordering::SeqCst);
                    Err(Requeue::new().into())
                })) {}
            }
        });
        match any(2) {
            0 => queue.delete(Deleted::Final(Arc::new(("a", 2)))).unwrap(),
            _ => queue
                .replace(Vec::new(), ResourceVersion::new("2"))
                .unwrap(),
        }
        deleted.store(true, Ordering::SeqCst);
        queue.close();
        consumer.join().unwrap();
        assert!(queue.is_empty());
    });
}

/// If the objects of the initial list are deleted, the queue becomes synced without another write.
#[test]
fn f5_f8_synced_although_items_were_deleted() {
    check(|| {
        let queue = fifo();
        let consumers = [false, true].map(|pops_again| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || while is_popped(queue.pop(&mut |_, _| Ok(()))) && pops_again {})
        });
        queue
            .replace(
                [("a", 1), ("b", 1)].map(Arc::new).to_vec(),
                ResourceVersion::new("1"),
            )
            .unwrap();
        let deletions = ["a", "b"].map(|key| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.delete(Deleted::Final(Arc::new((key, 2)))).unwrap())
        });
        queue.synced().wait();
        assert!(queue.is_empty());
        join_all(deletions);
        queue.close();
        join_all(consumers);
    });
}
