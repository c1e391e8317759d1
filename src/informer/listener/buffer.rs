use super::coalescing::{Coalescing, Merged};
use super::ring_growing::RingGrowing;
use crate::informer::handler::KeyedNotification;

/// How many notifications the ring has room for before it grows.
const INITIAL_RING: usize = 1024;

/// What becomes of the events that wait for a slow handler.
///
/// ```
/// use k8s_informer::handler::{HandlerBuffer, HandlerOptions};
///
/// let mut options = HandlerOptions::default();
/// assert_eq!(options.buffer, HandlerBuffer::Unbounded);
/// options.buffer = HandlerBuffer::Coalescing;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerBuffer {
    /// All of them wait, in order, however many: the handler is told everything, as in client-go.
    #[default]
    Unbounded,
    /// Those of one object become one, so that no more wait than twice as many as there are objects, and the
    /// handler is told how things stand, not how they came to be:
    ///
    /// | waits | comes | waits then |
    /// |---|---|---|
    /// | added a | modified a to b | added b |
    /// | added | deleted | nothing: the handler never heard of it |
    /// | modified a to b | modified b to c | modified a to c |
    /// | modified a to b | deleted | deleted, with a as the [state delivered last](crate::Notification::Deleted) |
    /// | deleted | added | both |
    /// | deleted, added | deleted | deleted, as it was first |
    ///
    /// What comes takes the place of what waits. An add of the initial list stays one when it is merged, and
    /// one that comes to nothing counts as told: the handler is synced all the same.
    ///
    /// Whatever the handler makes of the events comes to the same with this and without, as long as it goes
    /// by the last state of each object. It must not count events; and it must not look into the cache, or
    /// have others look: the cache is ahead, so they may see an object there that came and went, and nobody
    /// would tell them that it went. A controller's handlers, which put keys into a
    /// [queue](crate::workqueue#writing-a-controller), need every event; they are quick, and the queue has
    /// each key once.
    Coalescing,
}

/// What waits for a handler: on its pop thread alone.
pub(super) enum Buffer<T> {
    Ring(RingGrowing<KeyedNotification<T>>),
    Coalescing(Coalescing<T>),
}

impl<T> Buffer<T> {
    pub(super) fn new(policy: HandlerBuffer) -> Self {
        match policy {
            HandlerBuffer::Unbounded => Self::Ring(RingGrowing::new(INITIAL_RING)),
            HandlerBuffer::Coalescing => Self::Coalescing(Coalescing::default()),
        }
    }

    pub(super) fn write(&mut self, notification: KeyedNotification<T>) -> Merged<T> {
        match self {
            Self::Ring(ring) => {
                ring.write(notification);
                Merged::default()
            }
            Self::Coalescing(coalescing) => coalescing.write(notification),
        }
    }

    /// Takes out so many at most, those that have waited longest: one by one what can still be merged.
    pub(super) fn read(&mut self, most: usize) -> Vec<KeyedNotification<T>> {
        match self {
            Self::Ring(ring) => {
                let mut events = Vec::with_capacity(most.min(ring.len()));
                while events.len() < most
                    && let Some(notification) = ring.read()
                {
                    events.push(notification);
                }
                events
            }
            Self::Coalescing(coalescing) => coalescing.read().into_iter().collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Ring(ring) => ring.len(),
            Self::Coalescing(coalescing) => coalescing.len(),
        }
    }
}
