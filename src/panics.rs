//! A user's callback may panic; nothing of ours goes down with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback; a panic becomes its message.
///
/// Unwind safety is asserted because callers run it without a lock and drop, or do not look again at, what the callback had its
/// hands on.
pub(crate) fn catch<R>(callback: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(callback)).map_err(|payload| message(&*payload))
}

/// What a panic said: the text of `panic!`, if it was one.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
