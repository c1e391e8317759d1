//! Tests of [`Fifo`](crate::queue::Fifo).

use std::sync::Arc;

use super::Guarantee::Newest;
use super::{fifo, is_popped};
use crate::base::sync::{check, join_all, thread};
use crate::object::Deleted;
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
fn process_callback_can_add_items() {
    check(|| super::callback_can_add_items(fifo(), Newest));
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
            .replace([("a", 1), ("b", 1)].map(Arc::new).to_vec(), "1")
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
