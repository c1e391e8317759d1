use std::hash::Hash;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delayed::Delayed;
use super::state::{After, Ended, State, Ticket};
use super::{Order, WorkQueueMetrics};
use crate::metrics::Meter;
use crate::stop::Stop;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::time::Clock;

/// The interval for measuring unfinished work (Q18).
const REFRESH: Duration = Duration::from_millis(500);

/// Replaces delays that exceed the range of `Instant`.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The state that a queue and its thread share.
///
/// Every call first queues the delayed items that are due. They are therefore queued in the order
/// of their times, and the thread is only needed while there are no calls.
pub(super) struct Shared<T> {
    pub(super) name: String,
    clock: Arc<dyn Clock>,
    /// Whether items may be delayed. Without delays and metrics the clock is never called.
    delaying: bool,
    meter: Meter<dyn WorkQueueMetrics>,
    /// Guards everything that changes. The order of the items and their `Hash`, `Eq` and `Clone`
    /// run under this lock. Nothing is dropped, and no metrics, clock or log is called, under it.
    state: Mutex<State<T>>,
    /// Signals that an item is available. Each queued item wakes one waiter, and a shutdown wakes
    /// all. A waiter that leaves without an item wakes the next one.
    items: Condvar,
    /// Drains wait on this. All are woken when the last processing ends, and by a shutdown.
    drained: Condvar,
}

/// Wakes the next waiter on drop, unless it is disarmed. If a waiter was woken for an item and then
/// the order or the clock panics, the wake-up would otherwise be lost.
struct Baton<'a>(Option<&'a Condvar>);

impl Drop for Baton<'_> {
    fn drop(&mut self) {
        if let Some(items) = self.0 {
            items.notify_one();
        }
    }
}

/// The part of a shutdown that runs after the lock is released.
struct End<T> {
    _delayed: Delayed<T>,
    timer: Option<Stop>,
    releases: u64,
}

impl<T> End<T> {
    fn finish(self) -> u64 {
        if let Some(timer) = &self.timer {
            timer.stop();
        }
        self.releases
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Shared<T> {
    pub(super) fn new(
        name: String,
        clock: Arc<dyn Clock>,
        delaying: bool,
        metrics: Option<Arc<dyn WorkQueueMetrics>>,
        order: Box<dyn Order<T>>,
    ) -> Self {
        Self {
            name,
            clock,
            delaying,
            meter: Meter::new(metrics),
            state: Mutex::new(State::new(order)),
            items: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    /// Whether the queue needs a thread.
    pub(super) fn is_timed(&self) -> bool {
        self.delaying || self.meter.is_on()
    }

    fn now(&self) -> Option<Instant> {
        self.is_timed().then(|| self.clock.now())
    }

    /// Runs `change` on the state, then does the remaining work without the lock.
    pub(super) fn change<R>(
        &self,
        change: impl FnOnce(&mut State<T>, Option<Instant>, &mut After<T>) -> R,
    ) -> R {
        let now = self.now();
        let mut after = After::default();
        let result = {
            let mut state = self.state.lock();
            self.promote(&mut state, now, &mut after);
            change(&mut state, now, &mut after)
        };
        self.finish(after);
        result
    }

    fn promote(&self, state: &mut State<T>, now: Option<Instant>, after: &mut After<T>) {
        if let (true, Some(now)) = (self.delaying, now) {
            state.promote(now, after);
        }
        self.wake(after);
    }

    /// Wakes waiters immediately, because the code that follows may panic.
    fn wake(&self, after: &mut After<T>) {
        for _ in 0..std::mem::take(&mut after.pushed) {
            self.items.notify_one();
        }
    }

    fn finish(&self, mut after: After<T>) {
        self.wake(&mut after);
        for _ in 0..after.added {
            self.meter.event(|metrics| metrics.added());
        }
        if after.added > 0 || after.queued_for.is_some() {
            self.meter.level(
                || self.state.lock().depth(),
                |metrics, depth| metrics.depth(depth),
            );
        }
        if let Some(waited) = after.queued_for {
            self.meter.event(|metrics| metrics.queue_duration(waited));
        }
        if let Some(worked) = after.worked_for {
            self.meter.event(|metrics| metrics.work_duration(worked));
        }
        for panic in after.panics {
            log::error!(
                "work queue {:?}: queueing a delayed item {panic}; it is lost",
                self.name
            );
        }
    }

    pub(super) fn add(&self, item: T) {
        self.change(|state, now, after| state.add(item, None, now, after));
    }

    /// Adds an item after a delay (Q10).
    pub(super) fn add_after(&self, item: T, delay: Duration) {
        let (refused, timer) = self.change(|state, now, after| {
            let Some(now) = now.filter(|_| !state.shutting_down) else {
                after.dropped.push(item);
                return (true, None);
            };
            if delay.is_zero() {
                state.add(item, None, Some(now), after);
                return (false, None);
            }
            // A delay that exceeds the range of `Instant` becomes a century. If even a century
            // exceeds it, the item is due immediately.
            let due = [delay, CENTURY]
                .into_iter()
                .find_map(|delay| now.checked_add(delay))
                .unwrap_or(now);
            let next = state.delayed.next_due();
            after.dropped.extend(state.delayed.insert(item, due));
            let sooner = next.is_none_or(|next| due < next);
            (false, if sooner { state.timer.take() } else { None })
        });
        if let Some(timer) = timer {
            timer.stop();
        }
        if !refused {
            self.meter.event(|metrics| metrics.retried());
        }
    }

    /// Blocks until an item is available, the queue is shut down and empty, or `stopped` returns
    /// true.
    pub(super) fn get(&self, stopped: impl Fn() -> bool) -> Option<(T, Ticket)> {
        let mut baton = Baton(None);
        loop {
            let now = self.now();
            let mut after = After::default();
            let mut state = self.state.lock();
            self.promote(&mut state, now, &mut after);
            let stopped = stopped();
            let next = if stopped {
                None
            } else {
                state.next(now, &mut after)
            };
            let over = next.is_some() || stopped || state.shutting_down;
            if !over && after.is_empty() {
                self.items.wait(&mut state);
                baton.0 = Some(&self.items);
                continue;
            }
            drop(state);
            if next.is_some() {
                baton.0 = None;
            }
            self.finish(after);
            if over {
                return next;
            }
        }
    }

    pub(super) fn done(&self, item: &T, ticket: Option<Ticket>) {
        let ended = self.change(|state, now, after| {
            let ended = state.done(item, ticket, now, after);
            if state.is_drained() {
                self.drained.notify_all();
            }
            ended
        });
        match ended {
            Ended::Done => {}
            Ended::Unknown if ticket.is_none() => {
                log::warn!(
                    "work queue {:?}: done with an item that is not being processed",
                    self.name
                );
            }
            Ended::Unknown => {}
            Ended::Lost(panic) => resume_unwind(panic),
        }
    }

    /// Shuts the queue down (Q6). With `release`, blocked drains return. Returns the number of
    /// releases.
    pub(super) fn shut_down(&self, release: bool) -> u64 {
        self.change(|state, _, _| self.end(state, release)).finish()
    }

    /// Like `shut_down` with `release`, but does not call the clock.
    pub(super) fn close(&self) {
        let end = self.end(&mut self.state.lock(), true);
        end.finish();
    }

    fn end(&self, state: &mut State<T>, release: bool) -> End<T> {
        state.releases += u64::from(release);
        self.items.notify_all();
        self.drained.notify_all();
        End {
            _delayed: state.shut_down(),
            timer: state.timer.take(),
            releases: state.releases,
        }
    }

    /// Blocks until all items are processed, a shutdown releases the drains, or the deadline
    /// passes. Returns whether all items are processed.
    pub(super) fn drain(&self, deadline: Option<Instant>) -> bool {
        let releases = self.shut_down(false);
        let mut state = self.state.lock();
        while !state.is_drained() && state.releases == releases {
            match deadline {
                None => self.drained.wait(&mut state),
                Some(deadline) if self.drained.wait_until(&mut state, deadline).timed_out() => {
                    break;
                }
                Some(_) => {}
            }
        }
        state.is_drained()
    }

    pub(super) fn wake_all(&self) {
        // Takes the lock, so that the wake-up cannot fall between a waiter's check and its wait.
        let _state = self.state.lock();
        self.items.notify_all();
    }

    pub(super) fn peek(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// Runs the timer thread: queues delayed items when they are due, and measures unfinished work.
    pub(super) fn keep_time(&self) {
        let mut now = self.clock.now();
        let mut refresh = self
            .meter
            .is_on()
            .then(|| now.checked_add(REFRESH))
            .flatten();
        loop {
            let wake = Stop::new();
            let measured = refresh.is_some_and(|refresh| refresh <= now);
            if measured {
                refresh = now.checked_add(REFRESH);
            }
            let mut after = After::default();
            let (until, unfinished) = {
                let mut state = self.state.lock();
                if state.shutting_down {
                    return;
                }
                self.promote(&mut state, Some(now), &mut after);
                state.timer = Some(wake.clone());
                let until = [refresh, state.delayed.next_due()]
                    .into_iter()
                    .flatten()
                    .min();
                (until, measured.then(|| state.unfinished(now)))
            };
            self.finish(after);
            if let Some(unfinished) = unfinished {
                self.meter.event(|metrics| {
                    metrics.unfinished_work(unfinished.total);
                    metrics.longest_running_processor(unfinished.longest);
                });
            }
            match until {
                Some(until) => {
                    let wait = until.saturating_duration_since(self.clock.now());
                    self.clock.wait(wait, &wake);
                }
                None => wake.wait(),
            }
            now = self.clock.now();
        }
    }
}
