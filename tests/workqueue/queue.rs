use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::Stopper;
use k8s_informer::error::ShutdownError;
use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue};

use super::support::*;

/// Takes all waiting items without marking them as done.
fn all(queue: &WorkQueue<&'static str>) -> Vec<&'static str> {
    (0..queue.len()).map(|_| queue.get().unwrap()).collect()
}

#[test]
fn q1_item_is_not_queued_while_being_processed() {
    let queue = WorkQueue::new();
    queue.add("a");
    assert_eq!(queue.len(), 1);
    let item = queue.take().unwrap();
    queue.add("a");
    assert!(queue.is_empty());
    item.done();
    assert_eq!(all(&queue), ["a"]);
}

#[test]
fn q2_duplicate_add_keeps_place_and_new_item_wakes_worker() {
    with_timeout(|| {
        let queue = Arc::new(WorkQueue::new());
        ["b", "a", "b", "c", "a"]
            .into_iter()
            .for_each(|item| queue.add(item));
        assert_eq!(all(&queue), ["b", "a", "c"]);
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.get()
        });
        queue.add("d");
        assert_eq!(worker.join().unwrap(), Some("d"));
    });
}

#[test]
fn q2_adds_after_stop_are_ignored() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.stop();
    queue.add("b");
    assert!(queue.is_stopped());
    assert_eq!(all(&queue), ["a"]);
    queue.add("a");
    queue.done(&"a");
    assert_eq!(
        queue.get(),
        None,
        "an add during processing is also ignored"
    );
}

#[test]
fn q3_stop_wakes_waiting_workers() {
    with_timeout(|| {
        let queue = Arc::new(WorkQueue::<u32>::new());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.get())
            })
            .collect();
        queue.stop();
        for worker in workers {
            assert_eq!(worker.join().unwrap(), None);
        }
    });
}

#[test]
fn q4_item_added_during_processing_moves_to_the_end() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let item = queue.take().unwrap();
    queue.add("a");
    queue.add("c");
    drop(item);
    assert_eq!(all(&queue), ["b", "c", "a"]);
}

#[test]
fn q4_done_for_a_queued_item_is_ignored() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.done(&"a");
    queue.done(&"never seen");
    assert_eq!(all(&queue), ["a"]);
    queue.done(&"a");
    queue.done(&"a");
    queue.add("a");
    assert_eq!(all(&queue), ["a"]);
}

#[test]
fn q4_stale_guard_does_not_mark_the_item_done() {
    let queue = WorkQueue::new();
    queue.add("a");
    let first = queue.take().unwrap();
    queue.done(&"a");
    queue.add("a");
    let second = queue.take().unwrap();
    queue.add("a");
    drop(first);
    assert!(
        queue.is_empty(),
        "the second processing is still in progress"
    );
    drop(second);
    assert_eq!(all(&queue), ["a"]);
}

#[test]
fn q5_adds_before_and_during_processing_are_deduplicated() {
    let queue = WorkQueue::new();
    (0..100).for_each(|_| queue.add("a"));
    let item = queue.take().unwrap();
    assert!(queue.is_empty());
    (0..100).for_each(|_| queue.add("a"));
    drop(item);
    drop(queue.take());
    assert!(queue.is_empty());
    queue.stop();
    assert_eq!(queue.get(), None);
}

#[test]
fn q6_stopped_queue_still_returns_queued_and_dirty_items() {
    let queue = WorkQueue::new();
    ["a", "b"].into_iter().for_each(|item| queue.add(item));
    let item = queue.take().unwrap();
    queue.add("a");
    queue.stop();
    assert!(queue.is_empty() || queue.len() == 1);
    item.done();
    assert_eq!(all(&queue), ["b", "a"]);
    assert_eq!(queue.get(), None);
}

/// Starts to drain the queue on another thread, and waits until the shutdown has begun.
fn drain(queue: &Arc<WorkQueue<&'static str>>) -> mpsc::Receiver<Result<(), ShutdownError>> {
    let (sender, drained) = mpsc::channel();
    let draining = Arc::clone(queue);
    thread::spawn(move || sender.send(draining.shut_down(None)));
    while !queue.is_stopped() {
        thread::yield_now();
    }
    drained
}

#[test]
fn q7_drain_waits_for_processing_and_readded_items() {
    let queue = Arc::new(WorkQueue::new());
    queue.add("a");
    let item = queue.take().unwrap();
    queue.add("a");
    let drained = drain(&queue);
    drop(item);
    let second = queue.take().unwrap();
    assert!(drained.try_recv().is_err());
    drop(second);
    assert_eq!(drained.recv_timeout(TIMEOUT), Ok(Ok(())));
}

#[test]
fn q7_drain_waits_for_queued_items() {
    let queue = Arc::new(WorkQueue::new());
    ["a", "b"].into_iter().for_each(|item| queue.add(item));
    let drained = drain(&queue);
    let (a, b) = (queue.take().unwrap(), queue.take().unwrap());
    drop(a);
    assert!(drained.try_recv().is_err());
    drop(b);
    assert_eq!(drained.recv_timeout(TIMEOUT), Ok(Ok(())));
    let again = queue.shut_down(None);
    assert_eq!(again, Ok(()), "an idle queue drains immediately");
}

#[test]
fn q7_all_concurrent_drains_return() {
    let queue = Arc::new(WorkQueue::new());
    queue.add("a");
    let item = queue.take().unwrap();
    let drains = [drain(&queue), drain(&queue), drain(&queue)];
    drop(item);
    assert_eq!(
        drains.map(|drained| drained.recv_timeout(TIMEOUT)),
        [Ok(Ok(())), Ok(Ok(())), Ok(Ok(()))]
    );
}

#[test]
fn q7_stop_ends_every_drain() {
    let queue = Arc::new(WorkQueue::new());
    ["a", "b"].into_iter().for_each(|item| queue.add(item));
    let item = queue.take().unwrap();
    let drains = [drain(&queue), drain(&queue)];
    // The drains may not have begun to wait yet. Stop again until each drain has ended.
    let ended = drains.map(|drained| {
        loop {
            queue.stop();
            if let Ok(drained) = drained.recv_timeout(millis(1)) {
                break drained;
            }
        }
    });
    let stuck = vec!["workqueue: 1 item in process, 1 waiting".to_owned()];
    let interrupted = Err(ShutdownError::Interrupted { stuck });
    assert_eq!(ended, [interrupted.clone(), interrupted]);
    drop(item);
    assert_eq!(all(&queue), ["b"]);
}

#[test]
fn q7_drain_timeout_leaves_workers_running() {
    let queue = WorkQueue::new();
    ["a", "b"].into_iter().for_each(|item| queue.add(item));
    let item = queue.take().unwrap();
    let stuck = vec!["workqueue: 1 item in process, 1 waiting".to_owned()];
    let timed_out = ShutdownError::TimedOut {
        after: millis(1),
        stuck,
    };
    assert_eq!(queue.shut_down(millis(1)), Err(timed_out));
    queue.add("c");
    drop(item);
    assert_eq!(all(&queue), ["b"]);
    queue.done(&"b");
    let drained = queue.shut_down(TIMEOUT);
    assert_eq!(drained, Ok(()), "an idle queue drains immediately");
    assert_eq!(queue.shut_down(Duration::MAX), Ok(()));
}

#[test]
fn q8_length_counts_queued_items() {
    let queue = WorkQueue::new();
    ["a", "b", "a"].into_iter().for_each(|item| queue.add(item));
    assert_eq!((queue.len(), queue.is_empty()), (2, false));
    let item = queue.take().unwrap();
    queue.add("a");
    assert_eq!(queue.len(), 1);
    drop(item);
    assert_eq!(queue.len(), 2);
}

#[test]
fn q8_done_items_are_dropped() {
    let queue = WorkQueue::new();
    let item = Arc::new(1);
    queue.add(Arc::clone(&item));
    queue.add(Arc::clone(&item));
    let taken = queue.take().unwrap();
    queue.add(Arc::clone(&item));
    drop(taken);
    drop(queue.take());
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn q9_order_is_touched_only_when_a_queued_item_is_readded() {
    let (order, touches) = recording();
    let queue = WorkQueue::builder().order(order).build().unwrap();
    queue.add("a");
    assert_eq!(touches.lock().unwrap().len(), 0);
    queue.add("a");
    let item = queue.take().unwrap();
    queue.add("a");
    queue.add("a");
    assert_eq!(*touches.lock().unwrap(), ["a"]);
    drop(item);
    queue.add("a");
    queue.stop();
    queue.add("a");
    assert_eq!(*touches.lock().unwrap(), ["a", "a"]);
}

#[test]
fn stop_ends_the_wait_of_one_worker_only() {
    with_timeout(|| {
        let (queue, stop) = (Arc::new(WorkQueue::new()), Stopper::new());
        queue.add("a");
        assert_eq!(queue.take_or_stop(&stop).as_deref(), Some(&"a"));
        let worker = thread::spawn({
            let (queue, stop) = (Arc::clone(&queue), stop.clone());
            move || queue.take_or_stop(&stop).is_none()
        });
        stop.stop();
        assert!(worker.join().unwrap());
        queue.add("b");
        assert!(queue.take_or_stop(&stop).is_none());
        assert!(!queue.is_stopped());
        assert_eq!(all(&queue), ["b"]);
    });
}

#[test]
fn debug_output_has_counts_and_state() {
    let queue = WorkQueue::builder().name("pods").build().unwrap();
    ["a", "b", "c"].into_iter().for_each(|item| queue.add(item));
    let item = queue.take().unwrap();
    let shown = format!("{queue:?}, {item:?}");
    let expected = "WorkQueue { name: Some(\"pods\"), len: 2, processing: 1, delayed: 0, is_stopped: false, .. }";
    assert_eq!(shown, format!("{expected}, WorkItem(\"a\")"));
    assert_eq!(
        (queue.name(), WorkQueue::<u8>::new().name()),
        (Some("pods"), None)
    );
}
