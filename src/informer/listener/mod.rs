//! A handler of a shared informer, and the routes to it.

mod buffer;
mod callee;
mod coalescing;
mod resync;
mod ring_growing;
mod routes;
mod runner;
mod stats;
mod sync_tracker;

use std::sync::Arc;

use self::routes::Route;
use self::runner::Runner;
use super::delivery::Delivery;
use super::handler::KeyedNotification;
use crate::base::sync::Mutex;
use crate::base::threads::Threads;
use crate::entry::Entry;
use crate::reflector::ReclaimQueue;

pub use buffer::HandlerBuffer;
pub(super) use callee::{Callee, Handler};
pub(super) use resync::Resync;
pub(super) use routes::{Further, Inline, Replay, Threaded};
pub use stats::HandlerStats;

/// A handler of a shared informer, and the route to it. client-go's `processorListener`.
///
/// Dropping the listener removes the handler. Its waiting events are dropped (SP12). A running call
/// continues.
pub(super) struct ProcessorListener<T> {
    pub(super) handler: Arc<Handler>,
    pub(super) resync: Resync,
    stage: Stage<T>,
}

enum Stage<T> {
    /// The informer has not started. Nothing is added, and the delivery is not known. The lock is
    /// never taken: it is here because a handler need not be `Sync`.
    New(Mutex<Callee<T>>),
    Started(Route<T>),
    /// The threads could not be started, or the listener is being dropped. Nothing is added.
    Ended,
}

impl<T: Send + Sync + 'static> ProcessorListener<T> {
    pub(super) fn new(handler: Arc<Handler>, resync: Resync, callee: Callee<T>) -> Self {
        Self {
            handler,
            resync,
            stage: Stage::New(Mutex::new(callee)),
        }
    }

    /// Creates the route to the handler, and starts its threads if it has any. Call this once, before
    /// anything is added.
    pub(super) fn start(
        &mut self,
        delivery: Delivery,
        threads: &Threads,
        reclaim: &Arc<ReclaimQueue<T>>,
    ) -> std::io::Result<()> {
        // If the start fails, the stage remains `Ended`, because the route has dropped the handler.
        let Stage::New(callee) = std::mem::replace(&mut self.stage, Stage::Ended) else {
            unreachable!("an informer starts once, and each listener with it or later");
        };
        let runner = Runner::new(
            callee.into_inner(),
            Arc::clone(&self.handler),
            Arc::clone(reclaim),
        );
        self.stage = Stage::Started(Route::start(delivery, runner, threads)?);
        Ok(())
    }

    /// Begins the delivery of an initial list. Events that are added from now on follow after it. With
    /// threads, the caller must send the returned replay. An inline handler has none: its initial
    /// list waits for the next delivery.
    pub(super) fn replay(&self, initial: Vec<Entry<T>>) -> Option<Replay<T>> {
        // Count the adds before the first one can be processed: the handler is not synced in between.
        self.handler.tracker.start(initial.len());
        match self.route() {
            Route::Threaded(route) => Some(route.replay(initial)),
            Route::Inline(route) => {
                route.add_initial(initial);
                None
            }
        }
    }

    /// Adds a notification. With threads, it is sent with the next batch, at the latest by
    /// [`flush`](Self::flush). Inline, it waits for the next delivery.
    pub(super) fn add(&self, notification: KeyedNotification<T>) {
        // Count it before it can be processed.
        if notification.event.is_in_initial_list() {
            self.handler.tracker.start(1);
        }
        self.handler.counters.received(1);
        match self.route() {
            Route::Threaded(route) => route.add(notification),
            Route::Inline(route) => route.add(notification),
        }
    }

    /// Sends the added notifications to the handler's threads, if it has any.
    pub(super) fn flush(&self) {
        match self.route() {
            Route::Threaded(route) => route.flush(),
            Route::Inline(_) => {}
        }
    }

    /// Returns the route to the threads of the handler, if it has any.
    pub(super) fn threaded(&self) -> Option<&Arc<Threaded<T>>> {
        match &self.stage {
            Stage::Started(Route::Threaded(route)) => Some(route),
            Stage::Started(Route::Inline(_)) | Stage::New(_) | Stage::Ended => None,
        }
    }

    fn route(&self) -> &Route<T> {
        match &self.stage {
            Stage::Started(route) => route,
            Stage::New(_) => unreachable!("the processor starts before the first notification"),
            Stage::Ended => unreachable!("a processor that could not start distributes nothing"),
        }
    }

    /// Returns the route of an inline handler.
    pub(super) fn inline(&self) -> Option<&Arc<Inline<T>>> {
        match &self.stage {
            Stage::Started(Route::Inline(route)) => Some(route),
            Stage::Started(Route::Threaded(_)) | Stage::New(_) | Stage::Ended => None,
        }
    }
}

impl<T> Drop for ProcessorListener<T> {
    fn drop(&mut self) {
        // First, so that a thread in the handler ends with its current call, and drops the handler if
        // the route does not have it.
        self.handler.remove();
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            // The handler never ran. Its destructor runs on the current thread.
            Stage::New(callee) => runner::end(callee.into_inner(), &self.handler),
            Stage::Started(Route::Threaded(route)) => route.end(),
            Stage::Started(Route::Inline(route)) => route.end(),
            Stage::Ended => {}
        }
    }
}
