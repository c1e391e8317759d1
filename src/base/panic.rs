//! Contains panics of user callbacks.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use crate::base::sync::catch_unwind;

/// A panic of one of your functions. Its text is the end of a sentence: "panicked: " and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// `None` if the payload of the panic is not a text.
    message: Option<Arc<str>>,
}

impl Panicked {
    /// Reads the message of a panic.
    pub(crate) fn of(payload: &(dyn Any + Send)) -> Self {
        // The payload of `panic!` is one of these two types.
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = text.map(Arc::from);
        Self { message }
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "panicked: {message}"),
            None => f.write_str("panicked"),
        }
    }
}

impl Error for Panicked {}

/// Runs a user callback.
///
/// `AssertUnwindSafe` is correct here: callers modify their own state only after the callback
/// returns, and a panic does not poison the locks that some of them hold.
///
/// # Errors
///
/// Returns the panic of the callback.
pub fn catch<R>(callback: impl FnOnce() -> R) -> Result<R, Panicked> {
    catch_unwind(AssertUnwindSafe(callback)).map_err(|payload| {
        let panicked = Panicked::of(&*payload);
        // The payload is a user's value, so its destructor can panic as well.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        panicked
    })
}
