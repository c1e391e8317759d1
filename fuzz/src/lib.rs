//! The bodies of the fuzz targets: each takes some bytes, reads operations from them, and holds what the
//! crate does against a model that is small and obviously right. A body that returns is content.
//!
//! `fuzz_targets` gives them to libfuzzer; `tests/fuzz_corpus.rs` of the crate runs the same bodies on the
//! corpus, and on random bytes, with a stable compiler. A new target is a file here, a row below, three lines
//! in `fuzz_targets`, a `[[bin]]` in Cargo.toml and a folder in `corpus`; the test says which of them is
//! missing.

mod delta_fifo_model;
mod item;
mod probe;
mod processing;
mod store_model;

pub mod delta_fifo;
pub mod fifo;
pub mod heap;
pub mod indexer;
pub mod keys;
pub mod reflector;
pub mod selector;
pub mod thread_safe_store;

/// The body of a target.
pub type Body = fn(&[u8]);

/// Every target: its name, and its body.
pub const TARGETS: &[(&str, Body)] = &[
    ("delta_fifo", delta_fifo::run),
    ("fifo", fifo::run),
    ("heap", heap::run),
    ("indexer", indexer::run),
    ("keys", keys::run),
    ("reflector", reflector::run),
    ("selector", selector::run),
    ("thread_safe_store", thread_safe_store::run),
];
