//! The state of a recorder, without threads: correlation and the queue of events to write.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::aggregate::{Aggregator, COMBINED};
use super::core::correlator::{Correlator, CorrelatorOptions};
use super::core::delivery::Verb;
use super::core::event::{Event, Key};
use super::core::filter::SpamFilter;
use super::core::json::EventApi;
use super::core::series::{FINISH, SeriesCache, Write};
use super::stats::EventStats;
use super::validation::{cut, event_name};

/// The maximum length of a note in events.k8s.io/v1, in bytes.
pub(super) const NOTE: usize = 1024;

/// The namespace and the name of an event.
pub(super) type Id = Arc<(String, String)>;

/// The limits of a recorder.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) correlator: CorrelatorOptions,
    pub(super) queue: usize,
    pub(super) series_interval: Duration,
    pub(super) merge_notes: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            correlator: CorrelatorOptions {
                name: event_name,
                ..CorrelatorOptions::default()
            },
            queue: 1000,
            series_interval: Duration::from_secs(30),
            merge_notes: false,
        }
    }
}

pub(super) struct State {
    rules: Rules,
    queue_limit: usize,
    series_interval: Duration,
    /// The events that the server does not have as they are now. One entry for each event object,
    /// so that its count goes on while it waits.
    pending: HashMap<Id, Pending>,
    /// The keys of `pending` that are not being written.
    queue: VecDeque<Id>,
    stats: EventStats,
    /// The time and the wall-clock time of the first event.
    origin: Option<(Instant, Duration)>,
    /// The wall-clock time of the first event, and the monotonic time since then, at the last
    /// event. Filter, aggregates and series measure with it, and names contain it, so each event
    /// has a later one.
    last: Duration,
    /// When counts of series that no write has shown are due.
    pub(super) due: Option<Instant>,
    /// Whether a flush could not queue all events.
    left_over: bool,
    /// Whether the recorder has been shut down.
    pub(super) closed: bool,
}

enum Rules {
    CoreV1(Correlator),
    EventsV1(Series),
}

/// The rules of events.k8s.io/v1, with combining and filtering like core v1.
struct Series {
    cache: SeriesCache,
    aggregator: Aggregator,
    filter: SpamFilter,
    merge_notes: bool,
    finished: Duration,
}

struct Pending {
    event: Event,
    verb: Verb,
    /// The recorded events that no accepted request has shown.
    occurrences: u32,
    /// How many of them the running request shows.
    in_flight: Option<u32>,
    /// The number of the first recorded event that waits here, and of the first one after the
    /// running request began.
    since: u64,
    since_in_flight: Option<u64>,
    /// The answers that count towards giving up.
    tries: u32,
    /// Whether a create may have been executed without an answer.
    in_doubt: bool,
}

/// An event to send now.
pub(super) struct Sending {
    pub(super) id: Id,
    pub(super) event: Event,
    pub(super) verb: Verb,
    pub(super) tries: u32,
    pub(super) in_doubt: bool,
}

/// The result of an attempt to send an event.
pub(super) enum Outcome {
    Written,
    Failed,
    Retry {
        verb: Verb,
        tries: u32,
        in_doubt: bool,
    },
}

impl State {
    pub(super) fn new(api: EventApi, limits: Limits) -> Self {
        let options = limits.correlator;
        let rules = match api {
            EventApi::CoreV1 => Rules::CoreV1(Correlator::new(options)),
            EventApi::EventsV1 => Rules::EventsV1(Series {
                cache: SeriesCache::new(options.limit),
                aggregator: Aggregator::new(options.limit, options.max_events, options.interval),
                filter: SpamFilter::new(options.limit, options.per_second, options.burst),
                merge_notes: limits.merge_notes,
                finished: Duration::ZERO,
            }),
        };
        Self {
            rules,
            queue_limit: limits.queue,
            series_interval: limits.series_interval,
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

    /// Records an event: correlates it, and queues it if it is to be written. Returns whether the
    /// thread has to know. `wall` is the wall-clock time since 1970, which can be set at any time,
    /// so it is only written.
    pub(super) fn record(&mut self, mut event: Event, wall: Duration, instant: Instant) -> bool {
        let due = self.due;
        self.stats.recorded += 1;
        let (start, wall_at_start) = *self.origin.get_or_insert((instant, wall));
        let now = wall_at_start.saturating_add(instant.saturating_duration_since(start));
        let now = now.max(self.last.saturating_add(Duration::from_nanos(1)));
        self.last = now;
        event.name = event_name(&event.regarding.name, now);
        (event.count, event.first, event.last) = (1, wall, wall);
        match &mut self.rules {
            Rules::CoreV1(correlator) => {
                let correlated = correlator.correlate(event, now, wall);
                let event = correlated.event;
                let id = (event.namespace.clone(), event.name.clone());
                let pending = self.pending.get_mut(&id);
                // A filtered event costs nothing if its count is to be written anyway.
                if correlated.passes || pending.as_ref().is_some_and(|pending| pending.waits()) {
                    self.queue(Write {
                        event,
                        is_repeat: correlated.is_repeat,
                        occurrences: 1,
                    });
                } else {
                    self.stats.filtered += 1;
                    // If the running request fails, the next one has the new count.
                    if let Some(pending) = pending {
                        pending.event = event;
                    }
                }
            }
            Rules::EventsV1(_) => self.record_series(event, now, instant),
        }
        !self.queue.is_empty() || self.due != due
    }

    fn record_series(&mut self, mut event: Event, now: Duration, instant: Instant) {
        let Rules::EventsV1(series) = &mut self.rules else {
            return;
        };
        let mut writes = series.finish(now);
        let key = series.key(&mut event, now);
        if series.cache.is_new(&key) && !series.filter.accepts(event.spam_key(), now) {
            self.stats.filtered += 1;
        } else {
            let (entry, evicted) = series.cache.observe(key, event, now);
            writes.extend(
                evicted
                    .filter(|entry| entry.unwritten() > 0)
                    .map(|mut entry| entry.take()),
            );
            if let Some(entry) = entry {
                let id = (entry.event.namespace.clone(), entry.event.name.clone());
                let pending = self.pending.get(&id);
                // The count of a waiting event is written anyway. Otherwise, it is written when it
                // has doubled, so that a storm of events becomes few requests.
                let is_due = entry.event.count >= entry.written.saturating_mul(2);
                if is_due || pending.is_some_and(Pending::waits) {
                    writes.push(entry.take());
                } else if self.due.is_none() {
                    self.due = instant.checked_add(self.series_interval);
                }
            }
        }
        for write in writes {
            self.queue(write);
        }
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
        let is_full = self.pending.len() >= self.queue_limit;
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
                    verb,
                    occurrences,
                    in_flight: None,
                    since,
                    since_in_flight: None,
                    tries: 0,
                    in_doubt: false,
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
        let Rules::EventsV1(series) = &mut self.rules else {
            return;
        };
        let mut room = self.queue_limit.saturating_sub(self.pending.len());
        let mut writes = Vec::new();
        for entry in series
            .cache
            .iter_mut()
            .filter(|entry| entry.unwritten() > 0)
        {
            let id = (entry.event.namespace.clone(), entry.event.name.clone());
            if !self.pending.contains_key(&id) {
                if room == 0 {
                    self.left_over = true;
                    continue;
                }
                room -= 1;
            }
            writes.push(entry.take());
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
            verb: pending.verb,
            tries: pending.tries,
            in_doubt: pending.in_doubt,
            id,
        })
    }

    /// Records how sending an event has ended.
    pub(super) fn settle(&mut self, id: Id, outcome: &Outcome) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        let sent = pending.in_flight.take().unwrap_or(0);
        match outcome {
            Outcome::Written => {
                self.stats.written += 1;
                self.stats.merged += u64::from(sent).saturating_sub(1);
                pending.verb = Verb::Patch;
            }
            Outcome::Failed => self.stats.failed += u64::from(sent),
            Outcome::Retry {
                verb,
                tries,
                in_doubt,
            } => {
                (pending.verb, pending.tries, pending.in_doubt) = (*verb, *tries, *in_doubt);
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
        (pending.tries, pending.in_doubt) = (0, false);
        self.queue.push_back(id);
    }

    /// Whether everything up to the recorded event `number` has been settled.
    pub(super) fn is_settled(&self, number: u64) -> bool {
        !self.left_over && self.pending.values().all(|pending| pending.since > number)
    }

    pub(super) fn stats(&self) -> EventStats {
        let stats = &self.stats;
        let settled = stats.written + stats.merged + stats.filtered + stats.dropped + stats.failed;
        EventStats {
            pending: stats.recorded.saturating_sub(settled),
            ..*stats
        }
    }

    pub(super) fn refuse(&mut self) {
        self.stats.refused += 1;
    }
}

impl Pending {
    /// Whether a later request than the running one will show the event.
    fn waits(&self) -> bool {
        self.in_flight.is_none_or(|sent| sent < self.occurrences)
    }
}

impl Series {
    /// Forgets the series that have ended (ER4), as often as client-go does. Returns those whose
    /// count has not been written.
    fn finish(&mut self, now: Duration) -> Vec<Write> {
        if now.saturating_sub(self.finished) < FINISH {
            return Vec::new();
        }
        self.finished = now;
        let ended = self.cache.ended(now);
        let entries = ended.iter().filter_map(|key| self.cache.remove(key));
        entries
            .filter(|entry| entry.unwritten() > 0)
            .map(|mut entry| entry.take())
            .collect()
    }

    /// Returns the key of an event, and changes the event if it is to be combined.
    fn key(&mut self, event: &mut Event, now: Duration) -> Key {
        let mut key = event.series_key();
        if self.merge_notes {
            return key;
        }
        if self.aggregator.combines(&key, event.note.clone(), now) {
            event.note = cut(format!("{COMBINED}{}", event.note), NOTE);
            event.annotations.clear();
        } else {
            key.extend(["note".to_owned(), event.note.clone()]);
        }
        key
    }
}
