//! The bodies of the fuzz targets. Each body reads operations from bytes and compares the crate
//! with a model that is small and obviously correct. A body that returns has passed. No other test
//! has a model of a queue or a store.
//!
//! The files in `fuzz_targets` pass the bodies to libfuzzer. The test `tests/fuzz_corpus.rs` of the
//! crate runs the same bodies with a stable compiler, on the corpus and on random bytes. A new
//! target needs a file here, a row in [`TARGETS`], three lines in `fuzz_targets`, a `[[bin]]` in
//! Cargo.toml and a folder in `corpus`. The test reports which of them is missing.
//!
//! A corpus has about 30 inputs of less than 1 kB. Let libfuzzer run for minutes. From its inputs,
//! repeatedly take the one that adds the most features: `-set_cover_merge=1 -merge_control_file=F`
//! writes the features of each input to F. Then break lines of the crate on purpose, one at a time,
//! and add inputs that reveal the defect.

mod delta_fifo_model;
mod item;
mod probe;
mod processing;
mod real_fifo_model;
mod reflector_model;
mod scripted;
mod serving;
mod store_model;

pub mod delta_fifo;
pub mod dynamic_object;
#[cfg(feature = "kubeconfig")]
pub mod exec_credential;
pub mod expiration_cache;
pub mod fifo;
pub mod indexer;
pub mod keys;
#[cfg(feature = "kubeconfig")]
pub mod kubeconfig;
pub mod list_splitter;
pub mod priority_queue;
pub mod real_fifo;
pub mod reflector;
pub mod selector;
pub mod status;
pub mod thread_safe_store;
pub mod watch_frames;
pub mod workqueue;

/// In tests of the crate without a client, the targets `exec_credential` and `kubeconfig` are
/// empty.
#[cfg(not(feature = "kubeconfig"))]
pub mod exec_credential {
    pub fn run(_: &[u8]) {}
}

#[cfg(not(feature = "kubeconfig"))]
pub mod kubeconfig {
    pub fn run(_: &[u8]) {}
}

/// The body of a target.
pub type Body = fn(&[u8]);

/// The name and the body of every target.
pub const TARGETS: &[(&str, Body)] = &[
    ("delta_fifo", delta_fifo::run),
    ("dynamic_object", dynamic_object::run),
    ("exec_credential", exec_credential::run),
    ("expiration_cache", expiration_cache::run),
    ("fifo", fifo::run),
    ("indexer", indexer::run),
    ("keys", keys::run),
    ("kubeconfig", kubeconfig::run),
    ("list_splitter", list_splitter::run),
    ("priority_queue", priority_queue::run),
    ("real_fifo", real_fifo::run),
    ("reflector", reflector::run),
    ("selector", selector::run),
    ("status", status::run),
    ("thread_safe_store", thread_safe_store::run),
    ("watch_frames", watch_frames::run),
    ("workqueue", workqueue::run),
];
