use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use k8s_informer::Stop;
use k8s_informer::workqueue::parallelize_until;

use super::support::with_timeout;

/// Returns how often each piece was processed.
fn counts(workers: usize, pieces: usize, chunk_size: usize) -> Vec<usize> {
    let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
    parallelize_until(&Stop::new(), workers, pieces, chunk_size, |piece| {
        counts[piece].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn q19_each_piece_is_processed_once() {
    for (workers, pieces, chunk_size) in [
        (1, 10, 0),
        (10, 1000, 1),
        (10, 1000, 10),
        (10, 999, 13),
        (100, 3, 1),
        (2, 5, usize::MAX),
        (3, 0, 1),
    ] {
        let counts = counts(workers, pieces, chunk_size);
        assert_eq!(
            counts,
            vec![1; pieces],
            "{workers} workers, {chunk_size} at a time"
        );
    }
    assert_eq!(counts(0, 2, 1), [0, 0], "without a worker");
}

#[test]
fn q19_threads_do_not_exceed_chunks() {
    let threads = Mutex::new(Vec::new());
    parallelize_until(&Stop::new(), 100, 100, 50, |_| {
        threads.lock().unwrap().push(std::thread::current().id());
    });
    let mut threads = threads.into_inner().unwrap();
    threads.dedup();
    threads.sort_by_key(|id| format!("{id:?}"));
    threads.dedup();
    assert!(threads.len() <= 2, "{threads:?}");
}

#[test]
fn q19_workers_run_concurrently() {
    with_timeout(|| {
        let all = Barrier::new(4);
        parallelize_until(&Stop::new(), 4, 4, 1, |_| {
            all.wait();
        });
    });
}

#[test]
fn q19_stop_is_checked_before_each_piece() {
    let (stop, done) = (Stop::new(), AtomicUsize::new(0));
    parallelize_until(&stop, 1, 100, 100, |piece| {
        done.fetch_add(1, Ordering::Relaxed);
        if piece == 4 {
            stop.stop();
        }
    });
    assert_eq!(done.into_inner(), 5);
    parallelize_until(&stop, 3, 100, 1, |_| {
        panic!("no piece may run after the stop")
    });
}

#[test]
fn q19_panic_ends_the_work_and_reaches_the_caller() {
    let done = AtomicUsize::new(0);
    let work = |piece| {
        if piece == 3 {
            resume_unwind(Box::new("boom"));
        }
        done.fetch_add(1, Ordering::Relaxed);
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        parallelize_until(&Stop::new(), 1, 100, 1, work);
    }));
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"boom"));
    assert_eq!(done.load(Ordering::Relaxed), 3);
    let result = catch_unwind(AssertUnwindSafe(|| {
        parallelize_until(&Stop::new(), 4, 100, 7, work);
    }));
    assert!(result.is_err());
}
