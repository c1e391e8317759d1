//! The sizes of a connection's buffers.

/// The maximum size of a response head and of a header line of a request: 32 KiB. A long token has
/// 10 KiB.
pub(in crate::client) const BUFFER: usize = 32 * 1024;

/// The size of the output buffer for a short request. The allocator keeps the memory of a larger
/// one: in `benches/idle`, an informer takes 31 kB less, and 41 kB less on one thread.
pub(in crate::client) const SMALL_OUTPUT: usize = 4 * 1024;

/// The initial size of the input buffer for HTTP: plain bytes, or decrypted bytes under TLS.
pub(super) const SMALL_INPUT: usize = 8 * 1024;

/// The size of a write under TLS: one record with its header and tag.
pub(super) const RECORD_BUFFER: usize = 17 * 1024;

/// The initial size of the input buffer for encrypted bytes, which is the size that rustls reads at
/// once.
pub(super) const RECORD_INPUT: usize = 4 * 1024;
