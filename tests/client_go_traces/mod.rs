//! Replays recorded results of the real client-go, and of controller-runtime for the priority queue,
//! from every `*.jsonl` file in `tests/traces`.

mod delta_fifo;
mod deltas;
mod expiration_cache;
mod fifo;
mod filtering_handler;
mod informer;
mod keys;
mod known;
mod object;
mod priority_queue;
mod rate_limiter;
mod real_fifo;
mod reflector_wire;
mod replay;
mod store;
mod thread_safe_store;
mod workqueue;

use replay::{Replay, Suite};

const SUITES: &[Suite] = &[
    Suite {
        name: "delta_fifo",
        build: delta_fifo::build,
        info: &["done_during"],
        floor: 100.0,
    },
    Suite {
        name: "expiration_cache",
        build: expiration_cache::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "fifo",
        build: fifo::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "filtering_handler",
        build: filtering_handler::build,
        info: &[],
        floor: 73.0,
    },
    Suite {
        name: "informer",
        build: informer::build,
        info: &[],
        floor: 80.0,
    },
    Suite {
        name: "keys",
        build: keys::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "priority_queue",
        build: priority_queue::build,
        info: &[],
        floor: 93.0,
    },
    Suite {
        name: "rate_limiter",
        build: rate_limiter::build,
        info: &[],
        floor: 100.0,
    },
    Suite {
        name: "real_fifo",
        build: real_fifo::build,
        info: &["locked_during"],
        floor: 95.0,
    },
    Suite {
        name: "reflector_wire",
        build: reflector_wire::build,
        info: &[],
        floor: 55.0,
    },
    Suite {
        name: "store",
        build: store::build,
        info: &[],
        floor: 90.0,
    },
    Suite {
        name: "thread_safe_store",
        build: thread_safe_store::build,
        info: &[],
        floor: 99.0,
    },
    Suite {
        name: "workqueue",
        build: workqueue::build,
        info: &[],
        floor: 95.0,
    },
];

#[test]
fn client_go_traces_replay_up_to_listed_deviations() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "tests/traces", SUITES);
}

#[test]
fn file_name_prefix_selects_the_suite() {
    let name = |stem| replay::suite_of(SUITES, stem).map(|suite| suite.name);
    assert_eq!(name("store"), Some("store"));
    assert_eq!(name("thread_safe_store-seed2"), Some("thread_safe_store"));
    assert_eq!(name("delta_fifo_3"), Some("delta_fifo"));
    assert_eq!(name("store_of_things"), None);
}
