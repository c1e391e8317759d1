//! Starts and kills the process of the controller.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::site::Point;
use crate::child::ChildProcess;

/// The number of log lines that are kept.
const LINES: usize = 20_000;

#[derive(Default)]
pub(crate) struct Supervisor {
    state: Mutex<State>,
    /// Notified when a trap has killed the process.
    killed: Condvar,
    log: Arc<Mutex<VecDeque<String>>>,
}

#[derive(Default)]
struct State {
    /// Counts the processes.
    number: usize,
    process: Option<ChildProcess>,
    trap: Option<Point>,
    /// The key of the call that the trap has interrupted.
    interrupted: Option<String>,
}

impl Supervisor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process. The arguments follow the number of the process.
    pub(crate) fn launch(&self, arguments: &[String]) {
        let mut state = self.state();
        state.number += 1;
        let (log, number) = (Arc::clone(&self.log), state.number);
        let mode = ["controller".to_owned(), number.to_string()];
        let arguments = mode.iter().chain(arguments);
        state.process = Some(ChildProcess::start(arguments, move |line| {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.len() == LINES {
                log.pop_front();
            }
            log.push_back(format!("process {number}: {line}"));
        }));
    }

    /// Returns the last log lines that contain `text`.
    pub(crate) fn log(&self, text: &str, count: usize) -> Vec<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = log.iter().rev().filter(|line| line.contains(text));
        let mut lines: Vec<_> = lines.take(count).cloned().collect();
        lines.reverse();
        lines
    }

    /// Runs `work` if `process` is the number of the running process. The process is not killed
    /// meanwhile.
    pub(crate) fn if_current(&self, process: &str, work: impl FnOnce()) -> bool {
        let state = self.state();
        let is_current = state.process.is_some() && state.number.to_string() == process;
        if is_current {
            work();
        }
        is_current
    }

    /// Kills the process at this point if a trap is set there. Returns whether it was killed.
    pub(crate) fn trigger(&self, point: Point, key: &str) -> bool {
        let mut state = self.state();
        if state.trap != Some(point) || state.process.is_none() {
            return false;
        }
        state.process = None;
        state.interrupted = Some(key.to_owned());
        self.killed.notify_all();
        true
    }

    /// Sets a trap and waits until it kills the process. Returns the key of the interrupted call,
    /// or `None` if no call has reached the point in time.
    pub(crate) fn trap(&self, point: Point, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        let mut state = self.state();
        state.trap = Some(point);
        while state.interrupted.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.killed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.trap = None;
        state.interrupted.take()
    }

    pub(crate) fn kill(&self) {
        self.state().process = None;
    }

    /// Whether the process ended on its own.
    pub(crate) fn has_ended(&self) -> bool {
        let mut state = self.state();
        let process = state.process.as_mut();
        process.is_some_and(|process| process.ended().is_some())
    }

    /// Stops the controller. Returns whether the process has ended successfully in time.
    pub(crate) fn stop(&self, patience: Duration) -> bool {
        let process = self.state().process.take();
        let status = process.and_then(|process| process.stop(patience));
        status.is_some_and(|status| status.success())
    }
}
