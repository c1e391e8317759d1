use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};

use crate::log;
use crate::stop::Stop;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, catch_unwind, thread};

/// Runs `work` for the numbers from 0 to `pieces - 1` on at most `workers` threads, until all
/// pieces are done or `stop` is triggered. client-go's `ParallelizeUntil` with `WithChunkSize`.
///
/// A worker takes `chunk_size` pieces at a time, or one piece if `chunk_size` is 0. Larger chunks
/// are better for many small pieces. Workers check `stop` before each piece and finish a piece that
/// has begun. If `workers` is 0, nothing is done.
///
/// Blocks until all workers have ended. The calling thread is one of the workers. If the system
/// cannot start more threads, there are fewer workers, but the work is still done.
///
/// # Panics
///
/// Panics if `work` panics. No piece begins after that. When the running pieces have ended, the
/// panic continues on the calling thread.
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
                log::warn!("can't start another worker: {error}");
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
    /// The next piece to take. Past the last piece, its value does not matter.
    next: AtomicUsize,
    /// The payload of the first panic. No other lock is taken while this one is held.
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

    /// Returns the first piece of the next chunk.
    fn take(&self) -> Option<usize> {
        let after =
            |first: usize| (first < self.pieces).then(|| first.saturating_add(self.chunk_size));
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after)
            .ok()
    }
}
