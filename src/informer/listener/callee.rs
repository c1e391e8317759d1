//! What the routes to a handler share.

use std::fmt;
use std::sync::Arc;

use super::buffer::HandlerBuffer;
use super::stats::{Counters, HandlerStats};
use super::sync_tracker::SyncTracker;
use crate::base::threads::{LateOwner, Owner, StackSizes};
use crate::informer::handler::{KeyedNotification, ResourceEventHandler};
use crate::stop::{Done, DoneSetter, Stopper};
use crate::time::Clock;

/// The events that go to a handler together.
pub(super) type Batch<T> = Vec<KeyedNotification<T>>;

/// A handler, and what its route needs to call it.
pub(in crate::informer) struct Callee<T> {
    pub(in crate::informer) handler: Box<dyn ResourceEventHandler<T>>,
    pub(in crate::informer) buffer: HandlerBuffer,
    pub(in crate::informer) stacks: StackSizes,
    pub(in crate::informer) clock: Arc<dyn Clock>,
}

/// The state that a listener, the threads that call its handler, and its registration share.
#[derive(Debug)]
pub(in crate::informer) struct Handler {
    pub(in crate::informer) name: Arc<str>,
    /// The name of the informer, for the log.
    informer: Arc<str>,
    pub(super) tracker: SyncTracker,
    pub(super) counters: Counters,
    /// Set when the listener is dropped. With an inline delivery, also by the stop of the informer.
    pub(super) removed: Stopper,
    /// Set after the last call of the handler.
    pub(in crate::informer) ended: DoneSetter,
    /// An owner of the thread that calls the handler, while it does. The informer is a second owner
    /// of this thread.
    pub(in crate::informer) owner: Owner,
}

impl Handler {
    /// `inline` gets the owner of the informer's threads if they call the handler.
    pub(in crate::informer) fn new(name: Arc<str>, informer: Arc<str>, inline: &LateOwner) -> Self {
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
    pub(in crate::informer) fn synced(&self) -> &Done {
        self.tracker.synced()
    }

    /// Records that the whole initial list has been added.
    pub(in crate::informer) fn set_upstream_synced(&self) {
        self.tracker.set_upstream_synced();
    }

    /// Ends the calls of the handler, and its waits.
    pub(in crate::informer) fn remove(&self) {
        self.removed.stop();
    }

    pub(in crate::informer) fn stats(&self) -> HandlerStats {
        self.counters.read()
    }
}

/// The name in log messages.
impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: handler {:?}", self.informer, self.name)
    }
}
