//! Contains panics of user callbacks.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use crate::base::sync::catch_unwind;

/// Runs a user callback. A panic is returned as its message.
///
/// `AssertUnwindSafe` is correct here: callers modify their own state only after the callback
/// returns, and a panic does not poison the locks that some of them hold.
pub fn catch<R>(callback: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(callback)).map_err(|payload| {
        let message = message(&*payload);
        // The payload is a user's value, so its destructor can panic as well.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        message
    })
}

/// Returns the message of a panic, worded as the end of a sentence.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    match text {
        Some(text) => format!("panicked: {text}"),
        None => "panicked".to_owned(),
    }
}
