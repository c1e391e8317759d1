//! Replays recorded results of client-go's leader elector and of its event recorder.

mod events_recorder;
mod leader_election;
#[path = "../../../../tests/client_go_traces/replay.rs"]
mod replay;

use replay::{Replay, Suite};

const SUITES: &[Suite] = &[
    Suite {
        name: "events_recorder",
        build: events_recorder::build,
        info: &[],
        floor: 85.0,
    },
    Suite {
        name: "leader_election",
        build: leader_election::build,
        info: &[],
        // A quarter of the steps is in run mode or coordinated.
        floor: 42.0,
    },
];

#[test]
fn client_go_traces_replay_up_to_listed_deviations() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    replay::replay(root, "crates/controller/tests/traces", SUITES);
}
