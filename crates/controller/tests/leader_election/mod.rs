//! The election in virtual time: its decisions need neither threads nor a server.

mod rules;
mod simulation;

use simulation::{Faults, Mutant, Run, run};

/// The simulated elections of each test. `SEEDS` sets another number.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let seeds = std::env::var("SEEDS")
        .ok()
        .map(|seeds| seeds.parse().unwrap());
    0..seeds.unwrap_or(default)
}

fn first_problem(
    faults: Faults,
    mutant: Mutant,
    seeds: std::ops::Range<u64>,
) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let Run {
            overlap, revived, ..
        } = run(seed, faults, mutant);
        let revived = revived.map(|revived| format!("a term is valid again: {revived}"));
        overlap.or(revived).map(|problem| (seed, problem))
    })
}

#[test]
fn no_two_candidates_pass_ensure_at_one_time() {
    assert_eq!(
        first_problem(Faults::Severe, Mutant::None, seeds(2_000)),
        None
    );
}

#[test]
fn no_two_candidates_work_while_user_code_blocks_elections() {
    assert_eq!(
        first_problem(Faults::Blocked, Mutant::None, seeds(2_000)),
        None
    );
}

#[test]
fn frozen_clocks_overlap_for_a_renew_deadline_at_most() {
    assert_eq!(
        first_problem(Faults::Frozen, Mutant::None, seeds(2_000)),
        None
    );
}

#[test]
fn one_candidate_leads_90_percent_of_the_time_with_mild_faults() {
    for seed in seeds(500) {
        let run = run(seed, Faults::Mild, Mutant::None);
        assert_eq!(run.overlap, None, "seed {seed}");
        assert!(run.led >= 0.9, "seed {seed}: {}", run.led);
    }
}

#[test]
fn tokens_are_unique_even_if_the_lease_is_deleted_or_emptied() {
    for seed in seeds(500) {
        let run = run(seed, Faults::Destructive, Mutant::None);
        assert_eq!(run.repeated_token, None, "seed {seed}");
    }
}

/// The simulation is strong enough to find the faults that the policy is there to prevent.
#[test]
fn planted_faults_are_found() {
    for (faults, mutant, within) in [
        (Faults::Severe, Mutant::ValidFromAnswer, 100),
        (Faults::Severe, Mutant::ValidForWholeLease, 500),
        (Faults::Severe, Mutant::TextComparison, 2_000),
        (Faults::Severe, Mutant::ReleaseWithoutComparison, 100),
        (Faults::Severe, Mutant::LateAnswer, 500),
        (Faults::Frozen, Mutant::ReleaseWithoutComparison, 500),
        (Faults::Blocked, Mutant::NoWatchdog, 100),
        (Faults::Blocked, Mutant::StartWithoutCheck, 500),
    ] {
        let found = first_problem(faults, mutant, 0..within);
        assert!(
            found.is_some(),
            "{mutant:?} was not found in {within} seeds"
        );
    }
}
