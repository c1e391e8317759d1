//! The state of an informer's threads and the virtual time, which advances only when all threads
//! have settled.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use k8s_informer::handler::HandlerRegistration;
use k8s_informer::stop::Subscription;
use k8s_informer::time::Clock;
use k8s_informer::{Error, Stop, Stopper};
use serde_json::Value;

/// The maximum time until all threads settle, in real time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The state on which the informer's threads block and in which they record results. Clones share
/// it.
#[derive(Clone)]
pub(super) struct World(Arc<Shared>);

struct Shared {
    start: Instant,
    /// Stops the informer.
    stop: Stopper,
    /// The innermost lock. Code that holds it calls only read-only methods of the informer.
    state: Mutex<State>,
    /// Notified on every change of `state`.
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    now: Duration,
    sleepers: Vec<Sleeper>,
    /// Whether `run` was called and has not returned.
    pub(super) running: bool,
    pub(super) stopped: bool,
    /// Whether the reflector resyncs while it watches, so that its reads are timed.
    pub(super) resyncs: bool,

    pub(super) reflector: Reflector,
    pub(super) reflector_thread: Option<ThreadId>,
    /// The response to the pending LIST.
    pub(super) reply: Option<Result<Vec<u8>, Error>>,
    /// The bytes that the watch sends next. If `watch_ends`, the watch then ends.
    pub(super) bytes: VecDeque<u8>,
    pub(super) watch_ends: bool,
    pub(super) requests: Vec<Value>,
    pub(super) errors: Vec<Value>,

    pub(super) gate: Gate,
    /// The length of the queue.
    pub(super) queued: usize,
    pub(super) process: ProcessLoop,
    pub(super) process_thread: Option<ThreadId>,
    /// Whether the gate is before the first pop as well.
    pub(super) holds_first: bool,
    /// Whether the process loop ends.
    pub(super) closed: bool,

    pub(super) handlers: BTreeMap<String, HandlerState>,
}

/// The state of the reflector's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Reflector {
    #[default]
    Busy,
    /// The thread waits for the response to a LIST.
    Lists,
    /// The thread waits for bytes of a watch.
    Watches,
    /// The thread waits for the end of its back-off.
    BacksOff,
}

/// The state of the process loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum ProcessLoop {
    /// The loop waits for its first items. There are none before the first list.
    #[default]
    Unstarted,
    /// The first list is on its way to the loop.
    Awaits,
    /// The loop has taken its first items, and reads the clock next.
    HasFirst,
    /// The loop waits at the gate before its first items are processed.
    Begins,
    /// The loop waits at the gate after a pop.
    Waits,
    Busy,
}

struct Sleeper {
    thread: ThreadId,
    until: Duration,
}

/// Decides whether the process loop may pop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Gate {
    #[default]
    Open,
    /// Only this number of pops may pass.
    Closed { passes: usize },
}

#[derive(Default)]
pub(super) struct HandlerState {
    pub(super) events: Vec<Value>,
    /// Whether the next callback blocks.
    pub(super) blocked: bool,
    /// Whether a callback is blocked now.
    pub(super) hangs: bool,
    /// The number of calls that have returned.
    pub(super) returned: u64,
    /// Whether the handler is removed and receives no more notifications.
    pub(super) removed: bool,
    /// Whether the handler was added after the others.
    pub(super) late: bool,
    pub(super) registration: Option<HandlerRegistration>,
    pub(super) wakes: Option<Subscription>,
}

impl HandlerState {
    fn is_settled(&self, stopped: bool) -> bool {
        match &self.registration {
            None => false,
            Some(registration) if registration.ended().is_done() => true,
            Some(_) if self.hangs && self.blocked => self.removed || !stopped,
            Some(_) => !self.removed && !stopped && self.is_idle(),
        }
    }

    /// Whether the handler has processed every notification that it received.
    pub(super) fn is_idle(&self) -> bool {
        self.registration
            .as_ref()
            .is_some_and(|registration| registration.stats().received == self.returned)
    }
}

impl State {
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Begins a wait of the current thread. Returns when it ends.
    pub(super) fn sleep(&mut self, duration: Duration) -> Duration {
        let (thread, until) = (thread::current().id(), self.now + duration);
        self.sleepers.push(Sleeper { thread, until });
        until
    }

    /// Ends the wait of the current thread.
    pub(super) fn wake(&mut self) {
        let thread = thread::current().id();
        self.sleepers.retain(|sleeper| sleeper.thread != thread);
    }

    /// Whether the process loop may pass the gate.
    pub(super) fn may_pop(&self) -> bool {
        let has_items = self.process == ProcessLoop::Begins || self.queued > 0;
        self.closed || has_items && self.gate != Gate::Closed { passes: 0 }
    }

    /// Whether all threads are idle until time passes or the script continues.
    fn is_settled(&self) -> bool {
        let mut handlers = self.handlers.values();
        if !self.running {
            return handlers.all(|handler| handler.is_settled(false));
        }
        if self.stopped {
            // A stopped informer is settled only if a blocked callback keeps it from returning.
            return self
                .handlers
                .values()
                .any(|handler| handler.hangs && handler.blocked)
                && handlers.all(|handler| handler.is_settled(true));
        }
        let reflector = match self.reflector {
            Reflector::Busy => false,
            Reflector::Lists => self.reply.is_none(),
            Reflector::Watches => {
                self.bytes.is_empty()
                    && !self.watch_ends
                    && self.sleepers.len() == usize::from(self.resyncs)
            }
            Reflector::BacksOff => true,
        };
        let process = match self.process {
            ProcessLoop::Unstarted => true,
            ProcessLoop::Begins | ProcessLoop::Waits => !self.may_pop(),
            ProcessLoop::Awaits | ProcessLoop::HasFirst | ProcessLoop::Busy => false,
        };
        reflector
            && process
            && self.sleepers.iter().all(|sleeper| sleeper.until > self.now)
            && handlers.all(|handler| handler.is_settled(false))
    }

    fn describe(&self) -> String {
        let handlers: Vec<String> = self
            .handlers
            .iter()
            .map(|(id, handler)| {
                let stats = handler
                    .registration
                    .as_ref()
                    .map(HandlerRegistration::stats);
                format!(
                    "{id}: hangs {}, returned {}, removed {}, {stats:?}",
                    handler.hangs, handler.returned, handler.removed
                )
            })
            .collect();
        format!(
            "the reflector {:?}, running {}, stopped {}, {} sleep, queued {}, {:?}, the process loop {:?}, {handlers:?}",
            self.reflector,
            self.running,
            self.stopped,
            self.sleepers.len(),
            self.queued,
            self.gate,
            self.process
        )
    }
}

impl World {
    pub(super) fn new() -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared {
            start: Instant::now(),
            stop: Stopper::new(),
            state,
            changed,
        }))
    }

    /// Returns the handle that stops the informer.
    pub(super) fn stop(&self) -> Stopper {
        self.0.stop.clone()
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.0.state.lock().unwrap())
    }

    /// Changes the state and wakes all waiting threads.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let changed = change(&mut self.0.state.lock().unwrap());
        self.0.changed.notify_all();
        changed
    }

    /// Blocks a thread of the informer until `is_so` returns true or `stop` is signalled. Then
    /// calls `then`.
    pub(super) fn wait_until<R>(
        &self,
        stop: &Stop,
        is_so: impl Fn(&State) -> bool,
        then: impl FnOnce(&mut State) -> R,
    ) -> R {
        let world = self.clone();
        // The callback takes the lock, so the wake-up cannot fall between the check of `stop` and
        // the wait.
        let _wakes = stop.on_stop(move || world.change(|_| ()));
        let mut state = self.0.state.lock().unwrap();
        while !is_so(&state) && !stop.is_stopped() {
            state = self.0.changed.wait(state).unwrap();
        }
        let changed = then(&mut state);
        self.0.changed.notify_all();
        changed
    }

    /// Blocks until all threads have settled.
    pub(super) fn settle(&self) {
        let state = self.0.state.lock().unwrap();
        let waited = self
            .0
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !state.is_settled());
        let (state, timeout) = waited.unwrap();
        let described = timeout.timed_out().then(|| state.describe());
        drop(state);
        assert!(
            described.is_none(),
            "the informer did not settle: {}",
            described.unwrap_or_default()
        );
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.look(|state| state.now)
    }

    /// Advances the time to `target`. Timers that become due fire at their times, in order.
    pub(super) fn advance_to(&self, target: Duration) {
        while let Some(due) = self.next_due().filter(|due| *due <= target) {
            self.change(|state| state.now = due);
            self.settle();
        }
        self.change(|state| state.now = target);
        self.settle();
    }

    /// Returns the time at which the next timer fires.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.look(|state| state.sleepers.iter().map(|sleeper| sleeper.until).min())
    }
}

impl Clock for World {
    fn now(&self) -> Instant {
        let thread = thread::current().id();
        let begins = self.look(|state| {
            state.process == ProcessLoop::HasFirst && state.process_thread == Some(thread)
        });
        if begins {
            self.begin_first_pop();
        }
        self.0.start + self.elapsed()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let thread = thread::current().id();
        let until = self.change(|state| {
            if state.reflector_thread == Some(thread) {
                state.reflector = Reflector::BacksOff;
            }
            state.sleep(duration)
        });
        self.wait_until(
            stop,
            |state| state.now >= until,
            |state| {
                state.wake();
                if state.reflector_thread == Some(thread) {
                    state.reflector = Reflector::Busy;
                }
            },
        );
        !stop.is_stopped()
    }
}
