//! The whole informer in virtual time. See `tests/simulation/README.md`.

mod checks;
mod clock;
mod connection;
mod log;
mod observer;
mod plan;
mod run;
mod server;
mod source;
mod thing;
mod world;

use std::fmt::Write;
use std::io::{self, Write as _};

use plan::Fault;
use run::run;

/// Seeds from which the table of faults must be complete.
const ENOUGH: u64 = 2000;

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn every_seed_is_right() {
    if let Ok(seed) = std::env::var("SEED") {
        let outcome = run(seed.parse().expect("a number"), true);
        assert_eq!(outcome.failure, None);
        return;
    }
    let (first, seeds) = (number("FIRST_SEED", 0), number("SEEDS", ENOUGH));
    let mut with_fault = vec![0_u64; Fault::ALL.len()];
    let mut writes = 0;
    for seed in first..first + seeds {
        let outcome = run(seed, false);
        if let Some(failure) = outcome.failure {
            panic!(
                "seed {seed}, after {} seeds: {failure}\nTo print the trace: SEED={seed} cargo test -p simulation every_seed",
                seed - first
            );
        }
        writes += outcome.writes;
        for (all, one) in with_fault.iter_mut().zip(outcome.faults) {
            *all += u64::from(one > 0);
        }
    }
    let mut table = format!(
        "{seeds} seeds, {:.1} writes each\n",
        writes as f64 / seeds as f64
    );
    let mut rare = Vec::new();
    for (fault, count) in Fault::ALL.iter().zip(&with_fault) {
        let share = 100.0 * *count as f64 / seeds as f64;
        let _ = writeln!(table, "{share:5.1} % {}", fault.name());
        if share < 2.0 {
            rare.push(fault.name());
        }
    }
    let _ = io::stderr().write_all(table.as_bytes());
    assert!(
        seeds < ENOUGH || rare.is_empty(),
        "in less than 2 % of the seeds: {rare:?}"
    );
}

#[test]
fn every_seed_replays_exactly() {
    if std::env::var("SEED").is_ok() {
        return;
    }
    let first = number("FIRST_SEED", 0);
    for seed in first..first + 300.min(number("SEEDS", ENOUGH)) {
        assert_eq!(
            run(seed, false).digest,
            run(seed, false).digest,
            "seed {seed}"
        );
    }
}
