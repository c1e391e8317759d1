//! Everything between a server and a cache, in two halves: a [`Feed`] that fills a queue, and a
//! [`Drain`] that empties it.

use std::sync::Arc;
use std::time::Duration;

use super::delivery::Delivery;
use super::drain::{Drain, Drained, Items, Outlet};
use super::error::InformerError;
use crate::base::panic::Panicked;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::thread;
use crate::base::threads::{self, Owners};
use crate::log;
use crate::object::Object;
use crate::queue::Queue;
use crate::reflector::{Feed, FeedProgress, Reflector, ReflectorState};
use crate::stop::{Stop, Subscription};

/// The pause of the process loop after a panic in the queue.
const PAUSE: Duration = Duration::from_secs(1);

/// What other threads read of a pipeline, also after it has ended.
pub(super) struct PipelineState<T> {
    pub(super) name: Arc<str>,
    pub(super) queue: Arc<dyn Queue<T>>,
    pub(super) reflector: Reflector<T>,
    /// Whether the process loop is running; only for messages.
    processing: AtomicBool,
}

/// The way from a server to a cache, before its run. A run begins with the [`Feed`].
pub(super) struct Pipeline<T> {
    pub(super) state: Arc<PipelineState<T>>,
    drain: Drain<T>,
    shortcut: Shortcut,
}

/// Whether the reflector's thread may step the drain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortcut {
    /// Never: a callback may be slow.
    Never,
    /// After a read, if the process thread sleeps and nothing waits in the queue. To wake the process
    /// thread would cost more than the work. Without this shortcut and that of the handlers
    /// (`Threaded::send`), an event takes 1.86 instead of 1.54 times the CPU time of kube-rs, at 1,000
    /// events a second (`benches/peers`).
    IfIdle,
}

impl<T: Object> Pipeline<T> {
    pub(super) fn new(
        name: Arc<str>,
        queue: Arc<dyn Queue<T>>,
        reflector: Reflector<T>,
        items: Items,
        shortcut: Shortcut,
        outlet: Box<dyn Outlet<T>>,
    ) -> Self {
        let handle = reflector.handle();
        let drain = Drain::new(Arc::clone(&name), Arc::clone(&queue), handle, items, outlet);
        Self {
            drain,
            shortcut,
            state: Arc::new(PipelineState {
                name,
                queue,
                reflector,
                processing: AtomicBool::new(false),
            }),
        }
    }

    /// Steps the halves on client-go's two threads: the feed on a new one, which sleeps in its reads,
    /// and the drain on the current one, which sleeps in the pop. Blocks until `stop` is set and both
    /// have ended. Items that are still in the queue are not processed.
    pub(super) fn run_threads(self, stop: &Stop) -> Result<(), InformerError> {
        let Self {
            state,
            drain,
            shortcut,
        } = self;
        let name = &state.name;
        let _closes_queue = state.close_queue_on(stop);
        log::debug!("{name}: starting");
        let result = thread::scope(|scope| {
            let (state, drain, owners) = (&state, &drain, Owners::current());
            let stack = state.reflector.stack_sizes().of_reflector();
            let reflector = threads::named(format!("{name} reflector"), Some(stack));
            let fill = move || fill(Feed::new(&state.reflector), drain, shortcut, stop);
            let reflector = reflector.spawn_scoped(scope, move || owners.adopt(fill));
            let reflector = reflector.map_err(|error| InformerError::thread(name, error))?;
            state.processing.store(true, Ordering::Relaxed);
            empty(drain, stop);
            state.processing.store(false, Ordering::Relaxed);
            if let Err(panic) = reflector.join() {
                log::error!("{name}: the reflector {}", Panicked::of(&*panic));
            }
            Ok(())
        });
        drain.end();
        log::debug!("{name}: stopped");
        result
    }

    /// Steps both halves in turn on the current thread, until `stop` is set.
    pub(super) fn run_inline(self, stop: &Stop) {
        let name = Arc::clone(&self.state.name);
        log::debug!("{name}: starting");
        let mut inline = self.begin_inline(stop);
        while !stop.is_stopped() {
            inline.step(None, stop);
        }
        inline.end();
        log::debug!("{name}: stopped");
    }

    /// Begins the run of a pipeline whose halves are stepped in turn. The caller holds no lock: the
    /// clock and the lister-watcher are called.
    pub(super) fn begin_inline(self, stop: &Stop) -> InlinePipeline<T> {
        InlinePipeline {
            feed: Feed::new(&self.state.reflector),
            drain: self.drain,
            _closes_queue: self.state.close_queue_on(stop),
        }
    }
}

/// A pipeline whose halves are stepped in turn.
pub(super) struct InlinePipeline<T> {
    feed: Feed<T>,
    drain: Drain<T>,
    _closes_queue: Subscription,
}

impl<T: Object> InlinePipeline<T> {
    /// Steps both halves once. Waits, and reads of a watch, end after `limit`.
    pub(super) fn step(&mut self, limit: Option<Duration>, stop: &Stop) -> FeedProgress {
        let progress = self.feed.step(limit, stop);
        self.feed.flush();
        // The handlers see a status that is not older than the cache.
        self.feed.publish();
        if self.drain.process_waiting(stop) == Drained::Failed {
            stop.wait_timeout(PAUSE);
        }
        // Everything that was read has been delivered, as loggers and callbacks may expect.
        self.feed.report();
        progress
    }

    /// Ends both halves.
    pub(super) fn end(self) {
        drop(self.feed);
        self.drain.end();
    }
}

/// The reflector's thread: steps the feed, and the drain if this saves to wake the process thread.
fn fill<T: Object>(mut feed: Feed<T>, drain: &Drain<T>, shortcut: Shortcut, stop: &Stop) {
    while !stop.is_stopped() {
        // Read and decode. This may block, so the drain is not taken yet.
        feed.step(None, stop);
        // Queue and process. The process thread takes everything that comes while it is not idle, so
        // the order is the same.
        let reserved = match shortcut {
            Shortcut::IfIdle if feed.has_changes() => drain.try_reserve(stop),
            Shortcut::IfIdle | Shortcut::Never => None,
        };
        feed.flush();
        // Steps the drain, up to the threads of the handlers.
        drop(reserved);
        // Also after a stop, so that the status shows what has reached the queue. It follows the drain,
        // unlike inline: a handler has a thread of its own, and may see a status older than the cache.
        feed.publish();
        // Loggers and callbacks may block, and nothing waits for this thread now.
        feed.report();
    }
}

/// The process loop: steps the drain, which sleeps in the pop.
fn empty<T: Object>(drain: &Drain<T>, stop: &Stop) {
    while !stop.is_stopped() {
        match drain.step(stop) {
            Drained::Processed => {}
            // Closed by user code: there will be no more items, but the reflector continues.
            Drained::Closed => stop.wait(),
            Drained::Failed => drop(stop.wait_timeout(PAUSE)),
        }
    }
}

impl<T: Object> PipelineState<T> {
    /// Closes the queue when the run is stopped, which ends the pop of the process thread.
    fn close_queue_on(&self, stop: &Stop) -> Subscription {
        let queue = Arc::clone(&self.queue);
        stop.on_stop(move || queue.close())
    }

    /// Returns the names of the threads that have not ended. `run` is the name of the thread that
    /// called the run, without the word "process".
    pub(super) fn running_threads(&self, run: &str, delivery: Delivery) -> Vec<String> {
        let mut threads = Vec::new();
        if self.processing.load(Ordering::Relaxed) {
            threads.push(format!("{run} process"));
        }
        if self.reflector.status().state != ReflectorState::Stopped {
            threads.push(match delivery {
                Delivery::Threads => format!("{} reflector", self.name),
                Delivery::Inline => run.to_owned(),
            });
        }
        threads
    }
}
