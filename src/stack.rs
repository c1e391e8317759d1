//! Room for objects that are nested deeply: decoding them recurses, whichever thread asks for it.

use std::{io, panic, thread};

use crate::json::nesting;

/// How many levels any thread has room for. Without optimization a level of the types that take most takes
/// 17 KiB: together a quarter of a thread's usual 2 MiB.
pub(crate) const SHALLOW: usize = 32;

/// Room for all levels that serde_json decodes, several times.
const STACK: usize = 8 << 20;

/// Runs `work`, which recurses for each level of `json`: on a thread with room for that, if there are more than
/// `levels`. Hardly any object of a cluster has so many.
pub(crate) fn with_room<R: Send>(
    json: &[u8],
    levels: usize,
    work: impl FnOnce() -> R + Send,
) -> io::Result<R> {
    // A level is two bytes at least.
    if json.len() <= 2 * levels || nesting(json) <= levels {
        Ok(work())
    } else {
        roomy(work)
    }
}

/// Runs `work` on a thread with room for any object.
pub(crate) fn roomy<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("k8s-informer decode".to_owned())
            .stack_size(STACK);
        thread
            .spawn_scoped(scope, work)?
            .join()
            .or_else(|payload| panic::resume_unwind(payload))
    })
}

/// As [`with_room`], for what serde_json decodes.
pub(crate) fn decoded<R: Send>(
    json: &[u8],
    decode: impl FnOnce() -> Result<R, serde_json::Error> + Send,
) -> Result<R, serde_json::Error> {
    with_room(json, SHALLOW, decode).unwrap_or_else(|error| Err(no_thread(&error)))
}

/// Says that a deeply nested object has no thread to be decoded on.
pub(crate) fn no_thread(error: &io::Error) -> serde_json::Error {
    serde::de::Error::custom(no_thread_text(error))
}

/// The same as a text.
pub(crate) fn no_thread_text(error: &io::Error) -> String {
    format!("it is nested deeply, and there is no thread to decode it on: {error}")
}
