//! Stack space for deeply nested objects. Decoding recurses once per level, on whichever thread
//! decodes.

use std::{io, panic, thread};

use super::nesting;

/// The nesting depth that is safe on any thread. In unoptimized builds, a level of the most
/// expensive types takes 17 KiB of stack. All levels together take a quarter of a thread's usual 2
/// MiB.
pub(crate) const SAFE_NESTING: usize = 32;

/// The stack size of a decoding thread, in bytes: several times what the deepest JSON that
/// serde_json accepts takes.
const STACK_SIZE: usize = 8 << 20;

/// Runs `work`, which recurses for each level of `json`. If `json` has more than `levels` levels,
/// `work` runs on a thread with a large stack. Hardly any object in a cluster is nested that
/// deeply.
pub(crate) fn with_stack_for<R: Send>(
    json: &[u8],
    levels: usize,
    work: impl FnOnce() -> R + Send,
) -> io::Result<R> {
    // A level takes at least two bytes.
    if json.len() <= 2 * levels || nesting(json) <= levels {
        return Ok(work());
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("k8s-informer decode".to_owned())
            .stack_size(STACK_SIZE);
        thread
            .spawn_scoped(scope, work)?
            .join()
            .or_else(|payload| panic::resume_unwind(payload))
    })
}

/// Runs a serde_json decoder like [`with_stack_for`], with the default number of levels.
pub(crate) fn decoded<R: Send>(
    json: &[u8],
    decode: impl FnOnce() -> Result<R, serde_json::Error> + Send,
) -> Result<R, serde_json::Error> {
    with_stack_for(json, SAFE_NESTING, decode).unwrap_or_else(|error| Err(spawn_error(&error)))
}

/// Returns the error for a deeply nested object when no thread could be started to decode it.
pub(crate) fn spawn_error(error: &io::Error) -> serde_json::Error {
    serde::de::Error::custom(format!(
        "nested too deeply for this thread, and a thread with a larger stack could not be started: {error}"
    ))
}
