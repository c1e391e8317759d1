//! The cost of a controller: the CPU time of calls that do nothing, the memory of keys that wait, and
//! the context switches of an idle process. Each program runs in its own process, against a
//! [server](common::replay) in another process. It runs only on Linux, because it reads `/proc`.
//!
//! ```text
//! cargo bench -p k8s-informer-controller --bench controllers                    # six minutes
//! cargo bench -p k8s-informer-controller --bench controllers -- cpu             # parts: cpu, waiting, idle, counts
//! cargo bench -p k8s-informer-controller --bench controllers -- idle --idle 10  # other options: --objects, --events, --paced, --keys, --runs
//! cargo bench -p k8s-informer-controller --bench controllers -- counts          # instructions, under valgrind
//! ```
//!
//! `benches/peers` runs the same programs beside those of kube-rs:
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml --bin controllers
//! ```

mod bench;
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code)]
#[path = "../../examples/measure/src/meter.rs"]
mod meter;
mod ours;

fn main() {
    bench::main(&ours::PROGRAMS, None);
}
