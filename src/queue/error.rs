use std::fmt;

use super::Deltas;

/// What a consumer's callback failed with.
pub type ProcessError = Box<dyn std::error::Error + Send + Sync>;

/// Why a pop gave nothing, or what it gave was not processed.
pub enum PopError<T> {
    /// The queue is closed, and empty. client-go's `ErrFIFOClosed`.
    Closed,
    /// The callback failed, or it panicked. The deltas are given back; they are not in the queue any more.
    Process {
        /// What was handed to the callback.
        deltas: Deltas<T>,
        /// What it failed with.
        error: ProcessError,
    },
}

impl<T> fmt::Debug for PopError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("Closed"),
            Self::Process { error, .. } => {
                f.debug_struct("Process").field("error", error).finish_non_exhaustive()
            }
        }
    }
}

impl<T> fmt::Display for PopError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the queue is closed"),
            Self::Process { error, .. } => write!(f, "processing: {error}"),
        }
    }
}

impl<T> std::error::Error for PopError<T> {}
