//! The stand-ins: shuttle's primitives behind the interfaces of parking_lot, crossbeam-channel and std.
//!
//! What they don't model: the orderings of atomics (each is sequentially consistent), `Arc` and `OnceLock`
//! (no other thread runs between two of their operations), fairness, and time (a timed wait ends at any
//! moment).

pub(crate) mod channel;
mod lock;
pub(crate) mod thread;

pub(crate) use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::thread_local;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// How many schedules of each kind a model is run under, unless `SCHEDULES` in the environment says.
const SCHEDULES: usize = 1500;

/// How many preemptions at chosen moments PCT makes, plus one. Most bugs need one or two.
const DEPTH: usize = 3;

/// Runs a model under random schedules, and under those of PCT, which preempt rarely and at unlikely moments.
///
/// It fails on any panic, and if its threads wait for each other, and prints the schedule.
pub(crate) fn check(model: fn()) {
    check_times(1.0, model);
}

/// As [`check`], with this much of the usual number of schedules: for models with long runs.
pub(crate) fn check_times(share: f64, model: fn()) {
    let schedules = std::env::var("SCHEDULES")
        .ok()
        .and_then(|number| number.parse().ok());
    let schedules = (schedules.unwrap_or(SCHEDULES) as f64 * share) as usize;
    run(RandomScheduler::new(schedules), model);
    run(PctScheduler::new(DEPTH, schedules), model);
}

fn run(scheduler: impl Scheduler + 'static, model: fn()) {
    let mut config = Config::new();
    // Unoptimized frames of decoding are big.
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(model);
}

/// Catches nothing: a panic is a failed assertion of the model, or the scheduler's own.
pub(crate) fn catch_unwind<R>(work: impl FnOnce() -> R) -> std::thread::Result<R> {
    Ok(work())
}

/// What the threads of a model came to.
pub(crate) fn join_all<R>(threads: impl IntoIterator<Item = thread::JoinHandle<R>>) -> Vec<R> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// A number below this one, as the schedule decides.
pub(crate) fn any(below: usize) -> usize {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..below)
}
