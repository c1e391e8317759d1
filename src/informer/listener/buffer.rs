use super::coalescing::{Coalescing, Merged};
use super::ring_growing::RingGrowing;
use crate::informer::handler::KeyedNotification;

/// The initial capacity of the ring, in notifications.
const INITIAL_RING: usize = 1024;

/// How notifications wait for a slow handler.
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
    /// Every notification waits, in order and without a limit. The handler receives all of them, as
    /// in client-go.
    #[default]
    Unbounded,
    /// The notifications of one object are merged. At most two of them wait for each object. The
    /// handler receives the current state of each object, without every step to it:
    ///
    /// | waiting | arrives | then waiting |
    /// |---|---|---|
    /// | added a | modified a to b | added b |
    /// | added | deleted | nothing: the handler never received the object |
    /// | modified a to b | modified b to c | modified a to c |
    /// | modified a to b | deleted | deleted, with a as the [state delivered last](crate::Notification::Deleted) |
    /// | deleted | added | deleted, added |
    /// | deleted, added | deleted | deleted, the first one |
    ///
    /// A merged notification keeps its position in the buffer. An add of the initial list remains
    /// an add of the initial list when it is merged. If it is canceled, it counts as delivered, so
    /// the handler still becomes synced.
    ///
    /// A handler that depends only on the last state of each object reaches the same result with
    /// `Unbounded` and `Coalescing`. With `Coalescing`, a handler must not count events. Neither
    /// the handler nor code that it triggers may read the cache: the cache is ahead, so it can
    /// contain an object whose add and deletion are then canceled. No notification would report
    /// that the object is gone.
    ///
    /// Handlers of a controller, which add keys to a
    /// [queue](crate::workqueue#writing-a-controller), need every event. They do not need this
    /// buffer: they are fast, and the queue holds each key only once.
    Coalescing,
}

/// The notifications that wait for a handler. Only its pop thread uses the buffer.
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

    pub(super) fn write(&mut self, notification: KeyedNotification<T>) -> Option<Merged<T>> {
        match self {
            Self::Ring(ring) => {
                ring.write(notification);
                None
            }
            Self::Coalescing(coalescing) => coalescing.write(notification),
        }
    }

    /// Removes and returns the oldest notifications, at most `most`. A coalescing buffer returns
    /// one at a time, so that the rest can still be merged.
    pub(super) fn read(&mut self, most: usize) -> Vec<KeyedNotification<T>> {
        match self {
            Self::Ring(ring) => std::iter::from_fn(|| ring.read()).take(most).collect(),
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
