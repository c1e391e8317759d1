use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delayed::Delayed;
use super::item::Item;
use super::state::{DoneOutcome, Effects, State, Taken, Ticket};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::error::ShutdownError;
use crate::log;
use crate::metrics::Meter;
use crate::metrics::WorkQueueMetrics;
use crate::stop::Stopper;
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
    /// The name that the user gave the queue.
    pub(super) name: Option<String>,
    clock: Arc<dyn Clock>,
    /// Whether items may be delayed. Without delays and metrics the clock is never called.
    delaying: bool,
    meter: Meter<dyn WorkQueueMetrics>,
    /// Guards everything that changes. The methods of the `Order` and the items' `Hash`, `Eq` and
    /// `Clone` run under this lock. Nothing is dropped, and no metrics, clock or log is called,
    /// under it.
    state: Mutex<State<T>>,
    /// Signals that an item is available. Each queued item wakes one waiter, and a shutdown wakes
    /// all. A waiter that leaves without an item wakes the next one.
    items: Condvar,
    /// Drains wait on this. All are woken when the last processing ends, when the queue's thread
    /// ends, and by a shutdown.
    drained: Condvar,
}

/// Wakes the next waiter on drop, unless it is disarmed. A woken waiter calls the user's [`Order`]
/// and [`Clock`]. If one of them panics before the waiter takes the item, another waiter must be
/// woken for it.
struct WakeNext<'a>(Option<&'a Condvar>);

impl Drop for WakeNext<'_> {
    fn drop(&mut self) {
        if let Some(items) = self.0 {
            items.notify_one();
        }
    }
}

/// Releases the drains that wait for the timer thread, also if a clock of the user panics on it.
struct TimerEnded<'a, T>(&'a Shared<T>);

impl<T> Drop for TimerEnded<'_, T> {
    fn drop(&mut self) {
        self.0.state.lock().timer_runs = false;
        self.0.drained.notify_all();
    }
}

/// What a shutdown does to the drains that wait.
enum Drains {
    Release,
    Keep,
}

/// The part of a shutdown that runs after the lock is released.
struct PendingShutdown<T> {
    _delayed: Delayed<T>,
    timer: Option<Stopper>,
    releases: u64,
}

impl<T> PendingShutdown<T> {
    fn finish(self) -> u64 {
        if let Some(timer) = &self.timer {
            timer.stop();
        }
        self.releases
    }
}

impl<T: Item> Shared<T> {
    pub(super) fn new(
        name: Option<String>,
        clock: Arc<dyn Clock>,
        delaying: bool,
        metrics: Option<Arc<dyn WorkQueueMetrics>>,
        state: State<T>,
    ) -> Self {
        Self {
            name,
            clock,
            delaying,
            meter: Meter::new(metrics),
            state: Mutex::new(state),
            items: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    /// Returns the name for logs and errors.
    pub(super) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or("workqueue")
    }

    /// Returns the name of the queue's thread.
    pub(super) fn timer_name(&self) -> String {
        format!("{} timer", self.label())
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
        change: impl FnOnce(&mut State<T>, Option<Instant>, &mut Effects<T>) -> R,
    ) -> R {
        let now = self.now();
        let mut effects = Effects::default();
        let result = {
            let mut state = self.state.lock();
            self.promote(&mut state, now, &mut effects);
            change(&mut state, now, &mut effects)
        };
        self.finish(effects);
        result
    }

    fn promote(&self, state: &mut State<T>, now: Option<Instant>, effects: &mut Effects<T>) {
        if let (true, Some(now)) = (self.delaying, now) {
            state.promote(now, effects);
        }
        self.wake(effects);
    }

    /// Wakes a waiter for each queued item. Call this immediately, because the code that follows
    /// may panic.
    fn wake(&self, effects: &mut Effects<T>) {
        for _ in 0..std::mem::take(&mut effects.pushed) {
            self.items.notify_one();
        }
    }

    fn finish(&self, mut effects: Effects<T>) {
        self.wake(&mut effects);
        for _ in 0..effects.added {
            self.meter.event(|metrics| metrics.added());
        }
        if effects.added > 0 || effects.queued_for.is_some() {
            self.meter.level(
                || self.state.lock().depth(),
                |metrics, depth| metrics.depth(depth),
            );
        }
        if let Some(waited) = effects.queued_for {
            self.meter.event(|metrics| metrics.queue_duration(waited));
        }
        if let Some(worked) = effects.worked_for {
            self.meter.event(|metrics| metrics.work_duration(worked));
        }
        for panic in effects.panics {
            log::error!(
                "work queue {:?}: adding a delayed item {panic}; the item is lost",
                self.label()
            );
        }
    }

    pub(super) fn add(&self, item: T, priority: i32) {
        self.change(|state, now, effects| state.add(item, priority, None, now, effects));
    }

    /// Adds an item after a delay (Q10).
    pub(super) fn add_after(&self, item: T, priority: i32, delay: Duration) {
        let (refused, timer) = self.change(|state, now, effects| {
            let Some(now) = now.filter(|_| !state.shutting_down) else {
                effects.dropped.push(item);
                return (true, None);
            };
            // A delay that exceeds the range of `Instant` becomes a century. If even a century
            // exceeds it, the item is due immediately.
            let due = [delay, CENTURY]
                .into_iter()
                .find_map(|delay| now.checked_add(delay))
                .filter(|due| *due > now);
            let next = state.delayed.next_due();
            state.add(item, priority, due, Some(now), effects);
            let first = state.delayed.next_due();
            let sooner = first.is_some_and(|first| next.is_none_or(|next| first < next));
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
    pub(super) fn get(&self, stopped: impl Fn() -> bool) -> Option<Taken<T>> {
        let mut wake_next = WakeNext(None);
        loop {
            let now = self.now();
            let mut effects = Effects::default();
            let mut state = self.state.lock();
            self.promote(&mut state, now, &mut effects);
            let stopped = stopped();
            let next = if stopped {
                None
            } else {
                state.next(now, &mut effects)
            };
            let over = next.is_some() || stopped || state.shutting_down;
            if !over && effects.is_empty() {
                self.items.wait(&mut state);
                wake_next.0 = Some(&self.items);
                continue;
            }
            drop(state);
            if next.is_some() {
                wake_next.0 = None;
            }
            self.finish(effects);
            if over {
                return next;
            }
        }
    }

    pub(super) fn done(&self, item: &T, ticket: Option<Ticket>) {
        let ended = self.change(|state, now, effects| {
            let ended = state.done(item, ticket, now, effects);
            if state.is_drained() {
                self.drained.notify_all();
            }
            ended
        });
        match ended {
            DoneOutcome::Done => {}
            DoneOutcome::Unknown if ticket.is_none() => {
                log::warn!(
                    "work queue {:?}: `done` was called for an item that is not being processed",
                    self.label()
                );
            }
            DoneOutcome::Unknown => {}
            DoneOutcome::Lost(panic) => resume_unwind(panic),
        }
    }

    /// Ends the queue and every drain (Q6).
    pub(super) fn stop(&self) {
        self.change(|state, _, _| self.begin_shutdown(state, Drains::Release))
            .finish();
    }

    /// Ends the queue. Drains go on.
    pub(super) fn refuse_items(&self) {
        self.change(|state, _, _| self.begin_shutdown(state, Drains::Keep))
            .finish();
    }

    /// Like [`stop`](Self::stop), but does not call the clock.
    pub(super) fn close(&self) {
        let shutdown = self.begin_shutdown(&mut self.state.lock(), Drains::Release);
        shutdown.finish();
    }

    fn begin_shutdown(&self, state: &mut State<T>, drains: Drains) -> PendingShutdown<T> {
        match drains {
            Drains::Release => state.releases += 1,
            Drains::Keep => {}
        }
        self.items.notify_all();
        self.drained.notify_all();
        PendingShutdown {
            _delayed: state.shut_down(),
            timer: state.timer.take(),
            releases: state.releases,
        }
    }

    /// Ends the queue, and blocks until all items are processed and the queue's thread has left user
    /// code (Q7).
    pub(super) fn drain(&self, timeout: Option<Duration>) -> Result<(), ShutdownError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let releases = self
            .change(|state, _, _| self.begin_shutdown(state, Drains::Keep))
            .finish();
        let mut state = self.state.lock();
        while let Some(stuck) = self.stuck(&state) {
            // A `stop` ends the wait for items. If none are left, the thread ends on its own.
            if state.releases != releases && !state.is_drained() {
                return Err(ShutdownError::Interrupted { stuck: vec![stuck] });
            }
            match (timeout, deadline) {
                (Some(after), Some(deadline)) => {
                    let timed_out = self.drained.wait_until(&mut state, deadline).timed_out();
                    // The last item may have ended at the deadline.
                    if let (true, Some(stuck)) = (timed_out, self.stuck(&state)) {
                        return Err(ShutdownError::TimedOut {
                            after,
                            stuck: vec![stuck],
                        });
                    }
                }
                _ => self.drained.wait(&mut state),
            }
        }
        Ok(())
    }

    /// Describes what a drain waits for: first the items, then the thread.
    fn stuck(&self, state: &State<T>) -> Option<String> {
        if state.is_drained() {
            return state.timer_runs.then(|| self.timer_name());
        }
        let (name, processing, waiting) = (self.label(), state.processing(), state.depth());
        let items = if processing == 1 { "item" } else { "items" };
        Some(format!(
            "{name}: {processing} {items} in process, {waiting} waiting"
        ))
    }

    pub(super) fn wake_all(&self) {
        // Takes the lock, so that the wake-up cannot fall between a waiter's check and its wait.
        let _state = self.state.lock();
        self.items.notify_all();
    }

    pub(super) fn peek(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// Makes drains wait for the timer thread, which the caller starts.
    pub(super) fn begin_timer(&self) {
        self.state.lock().timer_runs = true;
    }

    /// Runs the timer thread: queues delayed items when they are due, and measures unfinished work.
    pub(super) fn run_timer(&self) {
        let _ended = TimerEnded(self);
        let mut now = self.clock.now();
        let mut refresh = self
            .meter
            .is_on()
            .then(|| now.checked_add(REFRESH))
            .flatten();
        loop {
            let wake = Stopper::new();
            let measured = refresh.is_some_and(|refresh| refresh <= now);
            if measured {
                refresh = now.checked_add(REFRESH);
            }
            let mut effects = Effects::default();
            let (until, unfinished) = {
                let mut state = self.state.lock();
                if state.shutting_down {
                    return;
                }
                self.promote(&mut state, Some(now), &mut effects);
                state.timer = Some(wake.clone());
                let until = [refresh, state.delayed.next_due()]
                    .into_iter()
                    .flatten()
                    .min();
                (until, measured.then(|| state.unfinished(now)))
            };
            self.finish(effects);
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
