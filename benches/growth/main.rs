//! How the CPU time of operations grows with their size. It runs only on Linux, because it reads
//! `/proc`.
//!
//! ```text
//! cargo bench -p k8s-informer-controller --bench growth                   # a minute
//! cargo bench -p k8s-informer-controller --bench growth -- server writes  # operations whose names contain one of these words
//! ```
//!
//! Each operation runs at four sizes, each twice the previous one. The exponent is the slope of a line
//! through the logarithms of size and CPU time: 1 if the time grows with the work, 2 if it grows with
//! its square. The bound is above 1 because larger sizes miss more caches; a `HashMap` alone reaches
//! 1.4.
#![allow(clippy::unwrap_used, reason = "a failed operation ends the bench")]

mod controllers;
mod informers;
#[allow(dead_code)]
#[path = "../../examples/measure/src/meter.rs"]
mod meter;
mod queues;
mod server;

use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::{ObjectMeta, impl_object};
use meter::Reading;
use serde::Deserialize;

/// An operation that a user can make large.
struct Operation {
    /// `n` is the size.
    name: &'static str,
    smallest: usize,
    /// Performs the operation, and returns its CPU time.
    run: fn(usize) -> Duration,
}

const OPERATIONS: [Operation; 18] = [
    Operation {
        name: "store: add n objects with an index, list them",
        smallest: 20_000,
        run: queues::store,
    },
    Operation {
        name: "DeltaFifo: n objects in, n out",
        smallest: 20_000,
        run: queues::delta_fifo,
    },
    Operation {
        name: "WorkQueue: n items in, n out",
        smallest: 50_000,
        run: queues::work_queue,
    },
    Operation {
        name: "PriorityQueue: n priorities, starvation limit 10",
        smallest: 2_000,
        run: queues::priorities,
    },
    Operation {
        name: "informer: n events to a handler",
        smallest: 10_000,
        run: informers::events,
    },
    Operation {
        name: "informer: list and relist of n objects",
        smallest: 10_000,
        run: informers::relist,
    },
    Operation {
        name: "informer: n handlers, 100 events",
        smallest: 32,
        run: informers::handlers,
    },
    Operation {
        name: "informer: relist of n namespaces, 100 objects each",
        smallest: 64,
        run: informers::namespaces,
    },
    Operation {
        name: "informer: n threads wait for n versions",
        smallest: 64,
        run: informers::waits,
    },
    Operation {
        name: "controller: calls for n objects",
        smallest: 5_000,
        run: controllers::calls,
    },
    Operation {
        name: "controller: a watched object with n keys is updated",
        smallest: 4_000,
        run: controllers::mapped_keys,
    },
    Operation {
        name: "controller: the events of n writes of one key",
        smallest: 2_000,
        run: controllers::writes_of_one_key,
    },
    Operation {
        name: "controller: the events of an object that n keys wrote",
        smallest: 1_000,
        run: controllers::writes_to_one_object,
    },
    Operation {
        name: "test server: create n objects",
        smallest: 4_000,
        run: server::objects,
    },
    Operation {
        name: "test server: create n definitions",
        smallest: 32,
        run: server::definitions,
    },
    Operation {
        name: "test server: delete n objects, with garbage collection",
        smallest: 500,
        run: server::deletions,
    },
    Operation {
        name: "test server: read n objects in pages of 50",
        smallest: 2_000,
        run: server::pages,
    },
    Operation {
        name: "test source: n events to a handler",
        smallest: 8_000,
        run: informers::test_source,
    },
];

/// The number of sizes. Each is twice the previous one.
const SIZES: u32 = 4;

/// The largest exponent of an operation that grows with its work.
const BOUND: f64 = 1.5;

/// Times below this are measured three times, and the smallest counts.
const SHORT: Duration = Duration::from_millis(100);

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let words: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let mut beyond = 0;
    println!("| operation | n | CPU ms | exponent | bound | |");
    println!("|---|--:|--:|--:|--:|---|");
    for Operation {
        name,
        smallest,
        run,
    } in OPERATIONS
    {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        if is_test {
            run(2);
            println!("| {name} | 2 | | | | |");
            continue;
        }
        let sizes: Vec<usize> = (0..SIZES).map(|n| smallest << n).collect();
        let times: Vec<Duration> = sizes.iter().map(|size| time(run, *size)).collect();
        let exponent = exponent(&sizes, &times);
        let is_beyond = exponent > BOUND;
        beyond += usize::from(is_beyond);
        println!(
            "| {name} | {} to {} | {:.0} to {:.0} | {exponent:.2} | {BOUND} | {} |",
            sizes[0],
            sizes[sizes.len() - 1],
            milliseconds(times[0]),
            milliseconds(times[times.len() - 1]),
            if is_beyond { "beyond its bound" } else { "" },
        );
    }
    println!("\nOperations beyond their bound: {beyond}");
}

fn time(run: fn(usize) -> Duration, size: usize) -> Duration {
    let first = run(size);
    if first > SHORT {
        return first;
    }
    first.min(run(size)).min(run(size))
}

/// The slope of the line through the logarithms, by least squares.
fn exponent(sizes: &[usize], times: &[Duration]) -> f64 {
    let points: Vec<(f64, f64)> = sizes
        .iter()
        .zip(times)
        .map(|(size, time)| ((*size as f64).ln(), milliseconds(*time).max(0.1).ln()))
        .collect();
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let rise: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let run: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    rise / run
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the CPU time of all threads during `work`. A thread that ends during `work` is not
/// counted.
fn cpu_of(work: impl FnOnce()) -> Duration {
    let cpu = || {
        // The kernel counts the time of a thread when it pauses.
        thread::sleep(Duration::from_micros(50));
        Reading::now().cpu
    };
    let before = cpu();
    work();
    cpu().saturating_sub(before)
}

/// Fails the bench instead of letting it hang.
const LIMIT: Duration = Duration::from_secs(120);

fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "a wait took too long");
        thread::sleep(Duration::from_millis(1));
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A ConfigMap without its data.
#[derive(Deserialize)]
struct Item {
    metadata: ObjectMeta,
}

impl_object!(Item, "v1", "ConfigMap", "configmaps", Namespaced);
