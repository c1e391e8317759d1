//! The cost of a controller with kube-rs and with this crate: the CPU time of calls that do nothing,
//! the memory of keys that wait, and the context switches of an idle process. Each program runs in
//! its own process, in turn, against one server that sends the same bytes.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml --bin controllers -- cpu idle
//! cargo run --release --manifest-path benches/peers/Cargo.toml --bin controllers --features peak_alloc -- waiting
//! ```
//!
//! Without the feature, the part `waiting` has no figures of the allocator. The feature makes each
//! allocation more expensive, so leave it out for the other parts.

#[path = "../../../../controllers/bench.rs"]
mod bench;
mod kube_rs;
#[path = "../../../../controllers/ours.rs"]
mod ours;

/// Shared with the benches of the crate. Not everything is used here.
#[allow(dead_code)]
#[path = "../../../../common"]
mod common {
    pub(crate) mod pods;
    pub(crate) mod replay;
}

/// Shared with the example `measure`.
#[allow(dead_code)]
#[path = "../../../../../examples/measure/src/meter.rs"]
mod meter;

#[cfg(feature = "peak_alloc")]
#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

fn main() {
    #[cfg(feature = "peak_alloc")]
    let heap: Option<fn() -> u64> = Some(|| ALLOCATOR.current_usage() as u64);
    #[cfg(not(feature = "peak_alloc"))]
    let heap = None;
    let programs: Vec<_> = ours::PROGRAMS
        .into_iter()
        .chain(kube_rs::PROGRAMS)
        .collect();
    bench::main(&programs, heap);
}
