//! A handler of a shared informer, and the routes to it.

mod buffer;
mod coalescing;
mod resync;
mod ring_growing;
mod routes;
mod runner;
mod stats;
mod sync_tracker;

use std::fmt;
use std::sync::Arc;

use self::routes::Route;
use self::runner::Runner;
use self::stats::Counters;
use self::sync_tracker::SyncTracker;
use super::delivery::Delivery;
use super::handler::{KeyedNotification, ResourceEventHandler};
use crate::base::sync::Mutex;
use crate::base::threads::{LateOwner, Owner, StackSizes, Threads};
use crate::entry::Entry;
use crate::reflector::ReclaimQueue;
use crate::stop::{Done, DoneSetter, Stopper};
use crate::time::Clock;

pub use buffer::HandlerBuffer;
pub(super) use resync::Resync;
pub(super) use routes::{Further, Inline, Replay, Threaded};
pub use stats::HandlerStats;

/// The events that go to a handler together.
type Batch<T> = Vec<KeyedNotification<T>>;

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

/// A handler, and what its route needs to call it.
pub(super) struct Callee<T> {
    pub(super) handler: Box<dyn ResourceEventHandler<T>>,
    pub(super) buffer: HandlerBuffer,
    pub(super) stacks: StackSizes,
    pub(super) clock: Arc<dyn Clock>,
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

/// The state that a listener, the threads that call its handler, and its registration share.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) name: Arc<str>,
    /// The name of the informer, for the log.
    informer: Arc<str>,
    tracker: SyncTracker,
    counters: Counters,
    /// Set when the listener is dropped. With an inline delivery, also by the stop of the informer.
    removed: Stopper,
    /// Set after the last call of the handler.
    pub(super) ended: DoneSetter,
    /// An owner of the thread that calls the handler, while it does. The informer is a second owner
    /// of this thread.
    pub(super) owner: Owner,
}

impl Handler {
    /// `inline` gets the owner of the informer's threads if they call the handler.
    pub(super) fn new(name: Arc<str>, informer: Arc<str>, inline: &LateOwner) -> Self {
        let owner = Owner::new();
        Self {
            // With threads, the process loop may set it during a call.
            tracker: SyncTracker::new(DoneSetter::set_by_late(inline, &*name)),
            counters: Counters::default(),
            removed: Stopper::new(),
            // Not set during a call. Inline, not even during a call of another handler.
            ended: DoneSetter::set_by_either(owner, inline, &*name),
            owner,
            name,
            informer,
        }
    }

    /// Returns the signal that is set when the handler has processed its whole initial list. It
    /// stays set (SP11).
    pub(super) fn synced(&self) -> &Done {
        self.tracker.synced()
    }

    /// Records that the whole initial list has been added.
    pub(super) fn set_upstream_synced(&self) {
        self.tracker.set_upstream_synced();
    }

    /// Ends the calls of the handler, and its waits.
    pub(super) fn remove(&self) {
        self.removed.stop();
    }

    pub(super) fn stats(&self) -> HandlerStats {
        self.counters.read()
    }
}

/// The name in log messages.
impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: handler {:?}", self.informer, self.name)
    }
}
