//! Reads from the body, and what can end a read.

use std::hint::black_box;
use std::io;
use std::num::NonZero;
use std::time::Duration;

use super::Feed;
use crate::base::adaptive_buffer::ReadBuffer;
use crate::base::panic;
use crate::error::Error;
use crate::object::Object;
use crate::reflector::{Body, ReflectorOptions};
use crate::stop::Stop;
use crate::wire::DecodeOptions;

/// The duration of the first read after an interrupt.
const SHORT: Duration = Duration::from_millis(10);

/// The shortest read. Zero is no valid timeout of a socket.
const SHORTEST: Duration = Duration::from_millis(1);

/// What ended a read.
pub(super) enum Wake {
    /// Bytes are in the buffer.
    Data(NonZero<usize>),
    /// The end of the body.
    End,
    /// The connection broke, or the reader panicked.
    Failed(Error),
    Silence(Silence),
    /// Another thread has interrupted the watch.
    Interrupted,
    Stopped,
}

/// For how long no bytes came.
pub(super) enum Silence {
    /// The timeout that the protocol requested.
    WholeTimeout(Duration),
    /// A part of it: until the step had to end, or after an interrupt.
    PartOfTimeout,
}

impl<T: Object> Feed<T> {
    /// Reads once, at most for `timeout`. A read with a timeout also ends after `limit`.
    pub(super) fn wait_for_bytes(
        &mut self,
        timeout: Option<Duration>,
        limit: Option<Duration>,
        stop: &Stop,
    ) -> Wake {
        // The first read after an interrupt is short, because it can't be interrupted.
        let short = self.interrupt.arm().then_some(SHORT);
        let limit = limit.into_iter().chain(short).min();
        let read_for = timeout.map(|timeout| match limit {
            Some(limit) if limit < timeout => limit.max(SHORTEST),
            _ => timeout,
        });
        let wake = match &mut self.body {
            Some(body) => read_some(body, self.buffer.free(), read_for),
            None => Wake::End,
        };
        self.reflector.core.availability.set_working();
        if stop.is_stopped() {
            return Wake::Stopped;
        }
        // An interrupt ends the read of a watch early, as an error, an end or a timeout. The server did
        // not cause it. Bytes that came before it count.
        let is_interrupted = self.protocol.has_open_watch() && self.interrupt.is_stopped();
        match wake {
            Wake::Data(length) => Wake::Data(length),
            _ if is_interrupted => Wake::Interrupted,
            Wake::Silence(_) if read_for != timeout => Wake::Silence(Silence::PartOfTimeout),
            wake => wake,
        }
    }
}

/// Reads from the body.
fn read_some(body: &mut Body, buffer: &mut [u8], timeout: Option<Duration>) -> Wake {
    let read = panic::catch(|| {
        loop {
            match body.read_within(buffer, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    });
    match (read, timeout) {
        (Ok(Ok(length)), _) => NonZero::new(length).map_or(Wake::End, Wake::Data),
        (Ok(Err(error)), Some(timeout)) if error.kind() == io::ErrorKind::TimedOut => {
            Wake::Silence(Silence::WholeTimeout(timeout))
        }
        (Ok(Err(error)), _) => Wake::Failed(error.into()),
        (Err(panic), _) => Wake::Failed(Error::other(format!("the body reader {panic}"))),
    }
}

/// Returns a buffer for a body. It is small for a silent watch and grows for a list, because each
/// read of a list wakes up this thread.
pub(super) fn read_buffer() -> ReadBuffer {
    ReadBuffer::new(4 << 10, 128 << 10)
}

/// Extends the heap of this thread for the next objects of a list. Otherwise glibc extends it by a
/// few pages at a time, each with a system call. In `benches/peers`, the first list of k8s-openapi
/// Pods takes 15 to 20 % less CPU time.
pub(super) fn extend_heap() {
    if cfg!(target_env = "gnu") {
        // From 128 KiB on, glibc would use a separate mapping. The bytes are not written, so they
        // take no memory.
        drop(black_box(Vec::<u8>::with_capacity(120 << 10)));
    }
}

/// Returns what the decoder needs of the options.
pub(super) fn decode_options(options: &ReflectorOptions) -> DecodeOptions {
    DecodeOptions {
        skip: options.skip.clone(),
        limits: options.limits,
        show_custom_errors: options.show_custom_decode_errors,
        expected_kind: options.expected_kind.clone(),
        shard: options.shard.clone(),
        small_stack: false,
    }
}
