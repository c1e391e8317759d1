//! A handler with minimal work: it counts events and records their latency.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::{Deleted, Stopper};

use super::latency::Samples;

/// The events of one handler since the initial list, and the limit that ends the measurement.
pub(crate) struct Count {
    log: Mutex<EventLog>,
    limit: u64,
    /// The number of handlers that have not reached their limit. The counts of all handlers share
    /// it.
    remaining: Arc<AtomicUsize>,
    /// Stopped when the last handler reaches its limit.
    limit_reached: Stopper,
}

pub(crate) struct EventLog {
    /// The time of the first object, in the initial list or later.
    pub(crate) first_object: Option<Instant>,
    pub(crate) events: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    pub(crate) samples: Samples,
}

impl EventLog {
    /// Returns the time from the first to the last event.
    pub(crate) fn elapsed(&self) -> Duration {
        self.first
            .zip(self.last)
            .map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

impl Count {
    /// Returns one count per handler, each with the given limit. The last handler that reaches its
    /// limit sets `limit_reached`. Without a limit, nothing sets it.
    pub(crate) fn several(
        handlers: usize,
        limit: Option<u64>,
        limit_reached: &Stopper,
    ) -> Vec<Arc<Self>> {
        let remaining = Arc::new(AtomicUsize::new(handlers));
        let limit = limit.unwrap_or(u64::MAX);
        let count = |_| {
            let samples = Samples::with_capacity(limit.try_into().unwrap_or(usize::MAX));
            let log = Mutex::new(EventLog {
                first_object: None,
                events: 0,
                first: None,
                last: None,
                samples,
            });
            Arc::new(Self {
                log,
                limit,
                remaining: Arc::clone(&remaining),
                limit_reached: limit_reached.clone(),
            })
        };
        if limit == 0 {
            limit_reached.stop();
        }
        (0..handlers).map(count).collect()
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, EventLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an object of the initial list.
    fn initial(&self) {
        self.log().first_object.get_or_insert_with(Instant::now);
    }

    /// Records an event. `sent_at` is the send time of its object, or 0 if unknown.
    fn event(&self, sent_at: u64) {
        let mut log = self.log();
        if log.events == self.limit {
            return;
        }
        let now = Instant::now();
        log.first_object.get_or_insert(now);
        log.first.get_or_insert(now);
        log.last = Some(now);
        log.events += 1;
        log.samples.add(sent_at);
        if log.events == self.limit {
            drop(log);
            if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.limit_reached.stop();
            }
        }
    }
}

pub(crate) struct Counting<T> {
    pub(crate) count: Arc<Count>,
    /// Returns the send time of an object, or 0 if unknown.
    pub(crate) sent_at: fn(&T) -> u64,
}

impl<T: Send + Sync> ResourceEventHandler<T> for Counting<T> {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        if is_in_initial_list {
            self.count.initial();
        } else {
            self.count.event((self.sent_at)(object));
        }
    }

    fn on_update(&mut self, _: &Arc<T>, new: &Arc<T>) {
        self.count.event((self.sent_at)(new));
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        self.count.event(match gone {
            Deleted::Final(object) => (self.sent_at)(object),
            // The send time of the last known state is not that of the deletion.
            Deleted::FinalStateUnknown { .. } => 0,
        });
    }
}
