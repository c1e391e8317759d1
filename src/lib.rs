//! client-go's `tools/cache` for synchronous Rust.
#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
pub mod testing;
