//! The state of a recorder, without threads: the series and the queue of events to write.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::delivery::Verb;
use super::core::event::Event;
use super::core::series::{Entry, FINISH, SeriesCache, Write};
use super::stats::EventStats;
use super::validation::event_name;

/// The namespace and the name of an event.
pub(super) type Id = Arc<(String, String)>;

/// The limits of a recorder.
pub(super) struct Limits {
    /// The number of series.
    pub(super) cache: usize,
    /// The number of events that wait to be written.
    pub(super) queue: usize,
    pub(super) series_interval: Duration,
}

pub(super) struct State {
    limits: Limits,
    series: SeriesCache,
    /// When the series that have ended were last removed.
    finished: Duration,
    /// The events that the server does not have as they are now. One entry for each event object,
    /// so that its count goes on while it waits.
    pending: HashMap<Id, Pending>,
    /// The keys of `pending` that are not being written.
    queue: VecDeque<Id>,
    stats: EventStats,
    /// The time and the wall-clock time of the first event.
    origin: Option<(Instant, Duration)>,
    /// The wall-clock time of the first event, and the monotonic time since then, at the last
    /// event. Series measure with it, and names contain it, so each event has a later one.
    last: Duration,
    /// When counts of series that no write has shown are due.
    pub(super) due: Option<Instant>,
    /// Whether a flush could not queue all events.
    left_over: bool,
    /// Whether the recorder has been shut down.
    pub(super) closed: bool,
}

struct Pending {
    event: Event,
    attempt: Attempt,
    /// The recorded events that no accepted request has shown.
    occurrences: u32,
    /// How many of them the running request shows.
    in_flight: Option<u32>,
    /// The number of the first recorded event that waits here, and of the first one after the
    /// running request began.
    since: u64,
    since_in_flight: Option<u64>,
}

/// The next attempt to send an event.
#[derive(Clone, Copy)]
pub(super) struct Attempt {
    pub(super) verb: Verb,
    /// The answers that count towards giving up.
    pub(super) tries: u32,
    /// Whether a create may have been executed without an answer.
    pub(super) in_doubt: bool,
}

/// An event to send now.
pub(super) struct Sending {
    pub(super) id: Id,
    pub(super) event: Event,
    pub(super) attempt: Attempt,
}

/// The result of an attempt to send an event.
pub(super) enum Outcome {
    Written,
    Failed,
    Retry(Attempt),
}

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            series: SeriesCache::new(limits.cache),
            limits,
            finished: Duration::ZERO,
            pending: HashMap::new(),
            queue: VecDeque::new(),
            stats: EventStats::default(),
            origin: None,
            last: Duration::ZERO,
            due: None,
            left_over: false,
            closed: false,
        }
    }

    /// Counts an event, and queues it if it is to be written. Returns whether the thread has to
    /// know. `wall` is the wall-clock time since 1970, which can be set at any time, so it is only
    /// written.
    pub(super) fn record(&mut self, mut event: Event, wall: Duration, instant: Instant) -> bool {
        let due = self.due;
        self.stats.recorded += 1;
        let (start, wall_at_start) = *self.origin.get_or_insert((instant, wall));
        let now = wall_at_start.saturating_add(instant.saturating_duration_since(start));
        let now = now.max(self.last.saturating_add(Duration::from_nanos(1)));
        self.last = now;
        event.name = event_name(&event.regarding.name, now);
        (event.count, event.first, event.last) = (1, wall, wall);

        let mut gone = Vec::new();
        // As often as client-go does.
        if now.saturating_sub(self.finished) >= FINISH {
            self.finished = now;
            gone = self.series.finish(now);
        }
        let (entry, evicted) = self.series.observe(event, now);
        gone.extend(evicted);
        let id = (entry.event.namespace.clone(), entry.event.name.clone());
        // The count of a waiting event is written anyway. Otherwise, it is written when it has
        // doubled, so that a storm of events becomes few requests.
        let is_due = entry.event.count >= entry.written.saturating_mul(2);
        let write = match is_due || self.pending.get(&id).is_some_and(Pending::waits) {
            true => entry.take(),
            false => None,
        };
        if write.is_none() && self.due.is_none() {
            self.due = instant.checked_add(self.limits.series_interval);
        }
        let gone = gone.iter_mut().filter_map(Entry::take);
        for write in gone.chain(write) {
            self.queue(write);
        }
        !self.queue.is_empty() || self.due != due
    }

    /// Queues an event, or updates the one that waits.
    fn queue(&mut self, write: Write) {
        let Write {
            event,
            is_repeat,
            occurrences,
        } = write;
        let id: Id = Arc::new((event.namespace.clone(), event.name.clone()));
        let since = self.stats.recorded;
        let is_full = self.pending.len() >= self.limits.queue;
        match self.pending.get_mut(&id) {
            Some(pending) => {
                pending.event = event;
                pending.occurrences += occurrences;
                if pending.in_flight.is_some() {
                    pending.since_in_flight.get_or_insert(since);
                }
            }
            None if is_full => {
                self.stats.dropped += u64::from(occurrences);
            }
            None => {
                let verb = match is_repeat {
                    true => Verb::Patch,
                    false => Verb::Create,
                };
                let pending = Pending {
                    event,
                    attempt: Attempt::new(verb),
                    occurrences,
                    in_flight: None,
                    since,
                    since_in_flight: None,
                };
                self.pending.insert(Arc::clone(&id), pending);
                self.queue.push_back(id);
            }
        }
    }

    /// Queues the counts of series that are due.
    pub(super) fn queue_due(&mut self, now: Instant) {
        if self.left_over || self.due.is_some_and(|due| due <= now) {
            self.queue_all();
        }
    }

    /// Queues all counts of series that no write has shown, as far as the queue has room.
    pub(super) fn queue_all(&mut self) {
        (self.due, self.left_over) = (None, false);
        let mut room = self.limits.queue.saturating_sub(self.pending.len());
        let mut writes = Vec::new();
        for entry in self.series.entries_mut() {
            if entry.written == entry.event.count {
                continue;
            }
            let id = (entry.event.namespace.clone(), entry.event.name.clone());
            if !self.pending.contains_key(&id) {
                if room == 0 {
                    self.left_over = true;
                    continue;
                }
                room -= 1;
            }
            writes.extend(entry.take());
        }
        for write in writes {
            self.queue(write);
        }
    }

    /// Returns the next event to send.
    pub(super) fn take(&mut self) -> Option<Sending> {
        let id = self.queue.pop_front()?;
        let pending = self.pending.get_mut(&id)?;
        pending.in_flight = Some(pending.occurrences);
        pending.since_in_flight = None;
        Some(Sending {
            event: pending.event.clone(),
            attempt: pending.attempt,
            id,
        })
    }

    /// Records how sending an event has ended.
    pub(super) fn settle(&mut self, id: Id, outcome: &Outcome) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        let sent = pending.in_flight.take().unwrap_or(0);
        let mut verb = pending.attempt.verb;
        match outcome {
            Outcome::Written => {
                self.stats.written += 1;
                self.stats.merged += u64::from(sent).saturating_sub(1);
                verb = Verb::Patch;
            }
            Outcome::Failed => self.stats.failed += u64::from(sent),
            Outcome::Retry(attempt) => {
                pending.attempt = *attempt;
                self.queue.push_back(id);
                return;
            }
        }
        pending.occurrences -= sent;
        if pending.occurrences == 0 {
            self.pending.remove(&id);
            return;
        }
        pending.since = pending.since_in_flight.take().unwrap_or(pending.since);
        pending.attempt = Attempt::new(verb);
        self.queue.push_back(id);
    }

    /// Whether everything up to the recorded event `number` has been settled.
    pub(super) fn is_settled(&self, number: u64) -> bool {
        !self.left_over && self.pending.values().all(|pending| pending.since > number)
    }

    pub(super) fn stats(&self) -> EventStats {
        let stats = &self.stats;
        let settled = stats.written + stats.merged + stats.dropped + stats.failed;
        EventStats {
            pending: stats.recorded.saturating_sub(settled),
            ..*stats
        }
    }

    pub(super) fn refuse(&mut self) {
        self.stats.refused += 1;
    }
}

impl Attempt {
    fn new(verb: Verb) -> Self {
        Self {
            verb,
            tries: 0,
            in_doubt: false,
        }
    }
}

impl Pending {
    /// Whether a later request than the running one will show the event.
    fn waits(&self) -> bool {
        self.in_flight.is_none_or(|sent| sent < self.occurrences)
    }
}
