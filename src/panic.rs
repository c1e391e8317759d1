//! Keeps a panic of a user's callback from taking more with it than that one call.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use crate::sync::catch_unwind;

/// Runs a user's callback; a panic becomes its message.
///
/// The assertion of unwind safety holds because callers change nothing of theirs before it returns, and because the
/// locks that some hold meanwhile are not poisoned by a panic.
pub(crate) fn catch<R>(callback: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(callback)).map_err(|payload| {
        let message = message(&*payload);
        // What it carries may be the user's, and panic as it goes.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        message
    })
}

/// What a panic said, as the end of a sentence.
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
