use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};

use crate::stop::Stop;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, catch_unwind, thread};

/// Does `pieces` pieces of work, by their numbers, with at most `workers` at a time, until all are done or
/// `stop` is given. client-go's `ParallelizeUntil`, with its `WithChunkSize`.
///
/// A worker takes `chunk_size` pieces at a time, or one if that is 0: more are better where there are many
/// small ones. Before each piece it looks whether to stop; a piece that has begun is finished. Without a
/// worker nothing is done.
///
/// Blocks until all workers have ended. The calling thread is one of them, so that work is done even if the
/// system has no more threads; then there are fewer workers.
///
/// # Panics
///
/// If a piece panics: no piece is begun after that, and when those that have begun are over the panic goes on
/// here (Q19).
///
/// ```
/// use k8s_informer::Stop;
/// use k8s_informer::workqueue::parallelize_until;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let sum = AtomicUsize::new(0);
/// parallelize_until(&Stop::new(), 4, 101, 10, |piece| {
///     sum.fetch_add(piece, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 5050);
/// ```
#[doc(alias = "ParallelizeUntil")]
pub fn parallelize_until(
    stop: &Stop,
    workers: usize,
    pieces: usize,
    chunk_size: usize,
    work: impl Fn(usize) + Sync,
) {
    let chunk_size = chunk_size.max(1);
    let chunks = pieces.div_ceil(chunk_size);
    let workers = workers.min(chunks);
    if workers == 0 {
        return;
    }
    let job = Job {
        stop,
        work,
        pieces,
        chunk_size,
        next: AtomicUsize::new(0),
        panic: Mutex::new(None),
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            let started = thread::Builder::new().spawn_scoped(scope, || job.work());
            if let Err(error) = started {
                log::warn!("no more workers: {error}");
                break;
            }
        }
        job.work();
    });
    let panic = job.panic.lock().take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

struct Job<'a, W> {
    stop: &'a Stop,
    work: W,
    pieces: usize,
    chunk_size: usize,
    /// The first piece that nobody has taken, or any number beyond the last one.
    next: AtomicUsize,
    /// What the first piece that panicked panicked with. Nothing else is locked under it.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<W: Fn(usize) + Sync> Job<'_, W> {
    fn work(&self) {
        while let Some(first) = self.take() {
            for piece in first..first.saturating_add(self.chunk_size).min(self.pieces) {
                if self.stop.is_stopped() || self.panic.lock().is_some() {
                    return;
                }
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.work)(piece))) {
                    self.panic.lock().get_or_insert(panic);
                    return;
                }
            }
        }
    }

    /// The first piece of the next chunk.
    fn take(&self) -> Option<usize> {
        let after =
            |first: usize| (first < self.pieces).then(|| first.saturating_add(self.chunk_size));
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after)
            .ok()
    }
}
