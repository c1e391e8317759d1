//! Replacements for interleaving tests: shuttle's primitives with the interfaces of parking_lot,
//! crossbeam-channel and std.
//!
//! They do not model weak memory orderings (all atomics are sequentially consistent), `Arc` and
//! `OnceLock` (no thread switch happens between two of their operations), fairness, or time (a
//! timed wait can end at any moment).

pub mod channel;
mod lock;
pub mod thread;

pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use shuttle::sync::atomic;
pub use shuttle::thread_local;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// The number of schedules of each kind per test, unless the environment sets `SCHEDULES`.
const SCHEDULES: usize = 1500;

/// The number of PCT's chosen preemptions, plus one. Most bugs need one or two preemptions.
const DEPTH: usize = 3;

/// Runs `model` under random schedules, and under schedules of the PCT scheduler, which preempts
/// rarely and at unlikely moments.
///
/// Any panic or deadlock fails the test and prints the schedule.
pub fn check(model: fn()) {
    check_times(1.0, model);
}

/// Like [`check`], with `share` of the usual number of schedules, for models with long runs.
pub fn check_times(share: f64, model: fn()) {
    let schedules = std::env::var("SCHEDULES")
        .ok()
        .and_then(|number| number.parse().ok());
    let schedules = (schedules.unwrap_or(SCHEDULES) as f64 * share) as usize;
    run(RandomScheduler::new(schedules), model);
    run(PctScheduler::new(DEPTH, schedules), model);
}

fn run(scheduler: impl Scheduler + 'static, model: fn()) {
    let mut config = Config::new();
    // Unoptimized decoding needs large stack frames.
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(model);
}

/// Runs `work` without catching panics: a panic is a failed assertion of the model, or comes from
/// the scheduler.
pub fn catch_unwind<R>(work: impl FnOnce() -> R) -> std::thread::Result<R> {
    Ok(work())
}

/// Joins the threads of a model and returns their results.
pub fn join_all<R>(threads: impl IntoIterator<Item = thread::JoinHandle<R>>) -> Vec<R> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// Returns a number below `below`, chosen by the schedule.
pub fn any(below: usize) -> usize {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..below)
}
