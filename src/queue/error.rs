use std::error::Error;
use std::fmt;

use crate::store::StoreError;

/// What a consumer's callback failed with.
///
/// [`Requeue`] is the one kind that a queue understands; any other ends the matter.
pub type ProcessError = Box<dyn Error + Send + Sync>;

/// What a consumer's callback answers to get the same item again. client-go's `ErrRequeue`, which it had
/// until 1.32.
///
/// The item goes back into the queue, as the queue's own documentation says, and is still waiting as far as
/// [`has_synced`](super::Queue::has_synced) is concerned.
///
/// ```
/// use k8s_informer::{Accessor, Fifo, KeyError, ReflectorStore, Requeue};
/// use std::sync::Arc;
///
/// let queue = Fifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into())));
/// queue.add(Arc::new("a".to_owned()))?;
/// queue.pop(&mut |_, _| Err(Requeue::new().into()))?;
/// assert!(queue.pop(&mut |_, _| Err(Requeue::because("not today").into())).is_err());
/// assert_eq!(queue.list_keys(), ["a".into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Requeue {
    error: Option<ProcessError>,
}

impl Requeue {
    /// Again, and the pop that this ends has not failed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Again, and the pop fails with this.
    pub fn because(error: impl Into<ProcessError>) -> Self {
        Self {
            error: Some(error.into()),
        }
    }
}

impl fmt::Display for Requeue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "to be queued again: {error}"),
            None => f.write_str("to be queued again"),
        }
    }
}

impl Error for Requeue {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.as_deref().map(|error| error as _)
    }
}

/// How a callback ended, as a queue sees it.
pub(super) struct Processed {
    /// Whether the callback wants the item again.
    pub(super) again: bool,
    pub(super) result: Result<(), ProcessError>,
}

impl Processed {
    /// From what the callback answered, or the message of its panic.
    pub(super) fn from(caught: Result<Result<(), ProcessError>, String>) -> Self {
        let error = match caught {
            Ok(Ok(())) => {
                return Self {
                    again: false,
                    result: Ok(()),
                };
            }
            Ok(Err(error)) => error,
            Err(message) => message.into(),
        };
        match error.downcast::<Requeue>() {
            Ok(requeue) => Self {
                again: true,
                result: requeue.error.map_or(Ok(()), Err),
            },
            Err(error) => Self {
                again: false,
                result: Err(error),
            },
        }
    }

    /// What the pop answers.
    pub(super) fn answer<P>(self, popped: P) -> Result<P, PopError<P>> {
        match self.result {
            Ok(()) => Ok(popped),
            Err(error) => Err(PopError::Process { popped, error }),
        }
    }
}

/// Why a pop gave nothing, or what it gave was not processed.
///
/// What the callback failed with is the [`source`](Error::source), too.
///
/// ```
/// use k8s_informer::{Accessor, Fifo, KeyError, PopError, ReflectorStore};
/// use std::sync::Arc;
///
/// let queue = Fifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into())));
/// queue.add(Arc::new("a".to_owned()))?;
/// match queue.pop(&mut |_, _| Err("not today".into())) {
///     Err(PopError::Process { popped, error }) => {
///         assert_eq!((popped.as_str(), error.to_string().as_str()), ("a", "not today"));
///     }
///     other => panic!("{other:?}"),
/// }
/// queue.close();
/// assert!(matches!(queue.pop(&mut |_, _| Ok(())), Err(PopError::Closed)));
/// # Ok::<(), k8s_informer::StoreError>(())
/// ```
pub enum PopError<P> {
    /// The queue is closed, and empty. client-go's `ErrFIFOClosed`.
    Closed,
    /// The callback failed, or it panicked. What was popped is given back; it is not in the queue any more,
    /// unless the callback asked for that with [`Requeue`].
    Process {
        /// What was handed to the callback.
        popped: P,
        /// What it failed with.
        error: ProcessError,
    },
}

impl<P> fmt::Debug for PopError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("Closed"),
            Self::Process { error, .. } => f
                .debug_struct("Process")
                .field("error", error)
                .finish_non_exhaustive(),
        }
    }
}

impl<P> fmt::Display for PopError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the queue is closed"),
            Self::Process { error, .. } => write!(f, "processing: {error}"),
        }
    }
}

impl<P> Error for PopError<P> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Closed => None,
            Self::Process { error, .. } => Some(&**error),
        }
    }
}

/// What a queue did not take, given back, and why.
///
/// The writes of [`ReflectorStore`](crate::ReflectorStore) don't give back what they refuse: it is a shared
/// `Arc`, of which the caller keeps a clone if he needs it.
///
/// ```
/// use k8s_informer::{Accessor, Heap, KeyError, StoreError};
/// use std::sync::Arc;
///
/// let accessor = Accessor::new(|number: &u32| Ok::<_, KeyError>(number.to_string().into()));
/// let heap = Heap::new(accessor, u32::cmp);
/// heap.close();
/// let refused = heap.add(Arc::new(7)).unwrap_err();
/// assert!(*refused.value == 7 && matches!(refused.reason, StoreError::Closed));
/// ```
pub struct Refused<V> {
    /// What was not taken.
    pub value: V,
    /// Why not.
    pub reason: StoreError,
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<V> Error for Refused<V> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}
