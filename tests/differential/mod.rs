//! A randomized differential test of informers.
//!
//! Each seed creates a *world*: an embedded API server and one informer with a random configuration
//! (queue, kind of list, scope, form of the objects, handlers; see [`config`]). A world lasts ten
//! rounds. A round is a random sequence of steps such as writes, faults, compactions, restarts,
//! restores of a backup and late handlers ([`round`], [`faults`]). At the end of each round the
//! faults stop. Within ten seconds, the following must match a model ([`compare`]):
//!
//! - the cache: its keys and full contents match a fresh list, filtered by the scope ([`model`]);
//! - each index;
//! - each handler: the view folded from its events matches the cached objects that pass its filter,
//!   and no event contradicts earlier events ([`recorder`]);
//! - on one thread and with the default queue: the cache is not ahead of any call, and nothing but
//!   the change in progress waits for a handler that is blocked;
//! - `status().complete`, the version that the cache has reached, and `wait_for_object`.
//!
//! `cargo test` runs a few seconds of the test. For long runs:
//!
//! ```sh
//! DIFFERENTIAL_ROUNDS=10000 cargo test --test client differential -- --nocapture
//! ```
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `DIFFERENTIAL_ROUNDS` | the number of rounds | 60 |
//! | `DIFFERENTIAL_SEED` | the seed of the first world; each further world uses the next seed | 1 |
//! | `DIFFERENTIAL_KEEP_GOING` | if set to any number, a difference ends only its world, and the test fails at the end | |
//! | `DIFFERENTIAL_WITHOUT` | names of steps, faults and configurations to leave out, separated by commas; empty to leave out nothing | see `config.rs` |
//!
//! The test prints each difference with its seed, the configuration, the last operations and a
//! command that runs this seed again. The seed determines the inputs but not the interleaving of
//! threads: if the command passes, repeat it. At the end, a table shows the number of rounds with
//! each fault.
mod cluster;
mod compare;
mod config;
mod faults;
mod form;
mod gate;
mod model;
mod random;
mod recorder;
mod round;
mod world;

use std::time::Instant;

use k8s_informer::DynamicObject;
use k8s_informer::object::PartialObjectMetadata;
use k8s_openapi::api::core::v1::Pod;

use crate::differential::config::{Config, Form};
use crate::differential::form::{CacheForm, Widget};
use crate::differential::random::Random;
use crate::differential::round::Tally;
use crate::differential::world::World;

const ROUNDS_OF_A_WORLD: u64 = 10;

#[test]
fn informer_through_random_faults_equals_model() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|value| value.parse::<u64>().unwrap())
    };
    let rounds = number("DIFFERENTIAL_ROUNDS").unwrap_or(60);
    let first = number("DIFFERENTIAL_SEED").unwrap_or(1);
    let keep_going = number("DIFFERENTIAL_KEEP_GOING").is_some();
    let mut tally = Tally::new();
    let (mut done, mut failures) = (0, 0);
    let began = Instant::now();
    for seed in first.. {
        if done >= rounds {
            break;
        }
        let mut random = Random::new(seed);
        let config = Config::random(&mut random);
        let result = match config.form {
            Form::Dynamic => run_world::<DynamicObject>(&config, seed, random, &mut tally),
            Form::Custom => run_world::<Widget>(&config, seed, random, &mut tally),
            Form::Typed => run_world::<Pod>(&config, seed, random, &mut tally),
            Form::Metadata => run_world::<PartialObjectMetadata>(&config, seed, random, &mut tally),
        };
        done += ROUNDS_OF_A_WORLD;
        if let Err(why) = result {
            failures += 1;
            println!("\n{why}\n");
            assert!(keep_going, "seed {seed} found a difference");
        }
    }
    println!(
        "{done} rounds, seeds {first} to {}, {:?}",
        first + done / ROUNDS_OF_A_WORLD - 1,
        began.elapsed()
    );
    for (what, rounds) in &tally {
        println!("{rounds:>8} rounds with {what}");
    }
    assert_eq!(failures, 0, "worlds with differences");
}

/// Runs a world from start to end. Returns the first difference with everything that explains it.
fn run_world<T: CacheForm>(
    config: &Config,
    seed: u64,
    mut random: Random,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut world = World::<T>::start(config, seed);
    let mut round = 0;
    let result = loop {
        let result = match round {
            ROUNDS_OF_A_WORLD => world.heal().and_then(|()| world.end()),
            _ => world.round(&mut random, tally),
        };
        if result.is_err() || round == ROUNDS_OF_A_WORLD {
            break result;
        }
        round += 1;
    };
    result.map_err(|why| {
        let operations = world.cluster.last_operations();
        let status = world.informer.status();
        format!(
            "seed {seed}, round {round}: {why}\n{config:?}\nlast operations, by the server's version:\n{operations}{status:?}\n\
             rerun: DIFFERENTIAL_SEED={seed} DIFFERENTIAL_ROUNDS={ROUNDS_OF_A_WORLD} cargo test --test client differential"
        )
    })
}
