//! The sizes of a connection's buffers.

/// The largest head of an answer, and the longest header line of a request: 32 KiB. A long token has 10 KiB.
pub(in crate::client) const BUFFER: usize = 32 * 1024;

/// How much one read takes at first.
pub(super) const SMALL_INPUT: usize = 8 * 1024;

/// How much one write sends under TLS: one record with its header and tag.
pub(super) const RECORD_BUFFER: usize = 17 * 1024;

/// How much one read takes at first under TLS: as much as rustls accepts.
pub(super) const RECORD_INPUT: usize = 4 * 1024;
