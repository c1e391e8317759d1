//! Tests of the stores through their public API. They port the essence of client-go's tests, and
//! test what this crate adds.

mod expiration_cache;
mod indexer;
mod indexer_user_code;
mod things;
