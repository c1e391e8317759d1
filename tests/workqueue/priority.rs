//! The priority queue. The replay of recorded traces covers its order in full.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::workqueue::{
    AddOptions, AnyWorkQueue, ItemExponentialFailureRateLimiter, PriorityQueue, WorkQueue,
    WorkQueueBuilder,
};
use k8s_informer_testing::FakeClock;

use super::support::*;

type Item = &'static str;

/// Its limiter returns 10 ms, 20 ms and so on.
fn build(builder: WorkQueueBuilder<Item>) -> (PriorityQueue<Item>, FakeClock) {
    let (clock, limiter) = (
        FakeClock::new(),
        ItemExponentialFailureRateLimiter::new(millis(10)..=millis(1000)),
    );
    let builder = builder.clock(Arc::new(clock.clone()));
    (builder.build_priority(limiter).unwrap(), clock)
}

fn queue() -> (PriorityQueue<Item>, FakeClock) {
    build(WorkQueue::builder())
}

fn priority(priority: i32) -> AddOptions {
    AddOptions::new().priority(priority)
}

/// Takes and finishes all ready items.
fn take_all(queue: &PriorityQueue<Item>) -> Vec<Item> {
    std::iter::from_fn(|| (!queue.is_empty()).then(|| *queue.take().unwrap())).collect()
}

#[test]
fn pq1_higher_priority_first_then_arrival() {
    let (queue, _) = queue();
    for (item, of) in [("a", 0), ("b", -100), ("c", 5), ("d", 0), ("e", i32::MIN)] {
        queue.add_with(item, priority(of));
    }
    assert_eq!(take_all(&queue), ["c", "a", "d", "b", "e"]);
}

#[test]
fn pq2_readded_item_keeps_the_highest_priority() {
    let (queue, _) = queue();
    queue.add_with("a", priority(-100));
    queue.add("b");
    queue.add("a");
    queue.add_with("b", priority(-100));
    assert_eq!(queue.get_with_priority(), Some(("b", 0)));
    assert_eq!(queue.get_with_priority(), Some(("a", 0)));
    assert_eq!(queue.len(), 0);
}

#[test]
fn pq3_readded_item_in_processing_has_its_new_priority() {
    let (queue, _) = queue();
    queue.add("a");
    let item = queue.take().unwrap();
    queue.add_with("a", priority(-100));
    queue.add_with("a", priority(-5));
    assert_eq!((item.priority(), queue.len()), (0, 1));
    drop(item);
    assert_eq!(queue.take().unwrap().priority(), -5);
}

#[test]
fn pq4_delayed_item_that_is_added_is_taken_once() {
    let (queue, clock) = queue();
    queue.add_with("a", priority(-100).after(millis(50)));
    queue.add("a");
    let item = queue.take().unwrap();
    assert_eq!((*item, item.priority()), ("a", 0));
    // During the processing, the delay belongs to the next one.
    queue.add_with("a", AddOptions::new().after(millis(50)));
    queue.add("a");
    drop(item);
    assert_eq!(take_all(&queue), ["a"]);
    clock.advance(millis(100));
    assert_eq!(queue.len(), 0);
}

#[test]
fn pq6_shorter_of_delay_and_limit_counts() {
    let (queue, clock) = queue();
    queue.add_with("a", AddOptions::new().after(millis(5)).rate_limited(true));
    queue.add_with("b", AddOptions::new().after(millis(50)).rate_limited(true));
    clock.advance(millis(5));
    assert_eq!(take_all(&queue), ["a"]);
    clock.advance(millis(5));
    assert_eq!(take_all(&queue), ["b"]);
    queue.add("a");
    queue.add_with("a", AddOptions::new().rate_limited(true));
    assert_eq!(queue.requeues(&"a"), 2, "a ready item counts as well");
    queue.forget(&"a");
    assert_eq!((queue.requeues(&"a"), queue.len()), (0, 1));
}

#[test]
fn pq7_waiting_worker_gets_what_becomes_ready() {
    with_timeout(|| {
        let (queue, clock) = queue();
        let queue = Arc::new(queue);
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || [queue.get(), queue.get()].map(Option::unwrap)
        });
        queue.add_with("a", AddOptions::new().after(millis(20)));
        clock.wait_for_waits(1, TIMEOUT).unwrap();
        queue.add_with("b", AddOptions::new().after(millis(5)));
        clock.wait_for_waits(2, TIMEOUT).unwrap();
        queue.add("a");
        clock.advance(millis(5));
        let mut got = worker.join().unwrap();
        got.sort_unstable();
        assert_eq!(got, ["a", "b"]);
    });
}

#[test]
fn pq8_shutdown_returns_ready_items_and_can_be_repeated() {
    let (queue, clock) = queue();
    queue.add("a");
    queue.add_with("b", AddOptions::new().after(millis(5)));
    queue.stop();
    queue.stop();
    clock.advance(millis(5));
    queue.add_with("c", priority(1));
    assert_eq!((queue.get(), queue.get()), (Some("a"), None));
}

#[test]
fn pq8_drain_waits_for_ready_items() {
    with_timeout(|| {
        let (queue, _) = queue();
        queue.add("a");
        queue.add_with("b", priority(-100));
        let stuck = queue.shut_down(Duration::ZERO).unwrap_err().to_string();
        assert!(
            stuck.ends_with("workqueue: 0 items in process, 2 waiting"),
            "{stuck}"
        );
        assert_eq!(take_all(&queue), ["a", "b"]);
        queue.shut_down(None).unwrap();
    });
}

#[test]
fn pq9_low_priority_starves_without_a_limit() {
    let (queue, _) = queue();
    queue.add_with("low", priority(-100));
    for _ in 0..1000 {
        queue.add("high");
        assert_eq!(queue.take().as_deref(), Some(&"high"));
    }
    assert_eq!(queue.take().as_deref(), Some(&"low"));
}

#[test]
fn pq9_limit_bounds_the_items_before_a_lower_one() {
    let (queue, _) = build(WorkQueue::builder().starvation_limit(3));
    queue.add_with("low", priority(-100));
    queue.add_with("later", priority(-100));
    let order: Vec<Item> = (0..8)
        .map(|_| {
            queue.add("high");
            *queue.take().unwrap()
        })
        .collect();
    let turn = ["high", "high", "high"];
    assert_eq!(order[..3], turn);
    assert_eq!(order[3], "low");
    assert_eq!(order[4..7], turn);
    assert_eq!(order[7], "later");
}

#[test]
fn pq9_lower_item_that_is_ready_longest_has_its_turn() {
    let (queue, _) = build(WorkQueue::builder().starvation_limit(1));
    for (item, of) in [
        ("a", -1),
        ("b", -2),
        ("c", -1),
        ("x", 0),
        ("y", 0),
        ("z", 0),
    ] {
        queue.add_with(item, priority(of));
    }
    queue.add_with("a", priority(-1));
    assert_eq!(take_all(&queue), ["x", "a", "y", "b", "z", "c"]);
}

#[test]
fn pq9_items_of_one_priority_do_not_count_as_overtaking() {
    let (queue, _) = build(WorkQueue::builder().starvation_limit(0));
    for item in ["a", "b", "c"] {
        queue.add(item);
    }
    assert_eq!(queue.get(), Some("a"));
    queue.add_with("low", priority(-1));
    // The minimum of the limit is 1.
    assert_eq!(take_all(&queue), ["b", "low", "c"]);
}

#[test]
fn custom_order_replaces_the_order_by_priority() {
    let (order, touches) = recording();
    let (queue, _) = build(WorkQueue::builder().order(order));
    queue.add_with("a", priority(-100));
    queue.add("b");
    queue.add_with("a", priority(5));
    assert_eq!(*touches.lock().unwrap(), ["a"]);
    assert_eq!(queue.get_with_priority(), Some(("a", 5)));
    assert_eq!(queue.get_with_priority(), Some(("b", 0)));
}
