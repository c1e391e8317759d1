use std::time::Duration;

use super::aggregate::{Aggregator, COMBINED};
use super::event::{Event, Key, plain_name};
use super::filter::SpamFilter;
use super::lru::Lru;

/// The correlation of core v1: combine, count, filter, in this order. client-go's
/// `EventCorrelator`.
#[derive(Debug)]
pub(crate) struct Correlator {
    options: CorrelatorOptions,
    aggregator: Aggregator,
    counts: Lru<Key, Count>,
    filter: SpamFilter,
}

/// client-go's `CorrelatorOptions`.
#[derive(Clone, Debug)]
pub(crate) struct CorrelatorOptions {
    /// The size of each of the three maps (EC6).
    pub(crate) limit: usize,
    pub(crate) burst: u32,
    pub(crate) per_second: f64,
    pub(crate) max_events: usize,
    pub(crate) interval: Duration,
    pub(crate) spam_key: fn(&Event) -> Key,
    /// Returns the aggregate key, and the local key that tells the events of an aggregate apart.
    pub(crate) aggregate_key: fn(&Event) -> (Key, String),
    /// Returns the name of a new event about an object.
    pub(crate) name: fn(&str, Duration) -> String,
}

impl Default for CorrelatorOptions {
    fn default() -> Self {
        Self {
            limit: 4096,
            burst: 25,
            // client-go has this number with 32 bits.
            per_second: f64::from(1.0_f32 / 300.0),
            max_events: 10,
            interval: Duration::from_secs(600),
            spam_key: Event::spam_key,
            aggregate_key: |event| (event.aggregate_key(), event.note.clone()),
            name: plain_name,
        }
    }
}

/// What is known about the last event of a key.
#[derive(Clone, Debug)]
struct Count {
    count: u32,
    first: Duration,
    name: String,
    resource_version: String,
}

/// The result of [`Correlator::correlate`].
#[derive(Debug, PartialEq)]
pub(crate) struct Correlated {
    pub(crate) event: Event,
    /// Whether an earlier event of the same key exists, which is to be patched.
    pub(crate) is_repeat: bool,
    /// Whether the spam filter lets it pass. A filtered event has been counted (EC4).
    pub(crate) passes: bool,
}

impl Correlator {
    pub(crate) fn new(options: CorrelatorOptions) -> Self {
        let CorrelatorOptions {
            limit,
            burst,
            per_second,
            max_events,
            interval,
            ..
        } = options;
        Self {
            options,
            aggregator: Aggregator::new(limit, max_events, interval),
            counts: Lru::new(limit),
            filter: SpamFilter::new(limit, per_second, burst),
        }
    }

    /// Correlates an event. `now` is the time that durations are measured with, and `wall` that of
    /// the wall clock, which is written into combined events.
    pub(crate) fn correlate(&mut self, event: Event, now: Duration, wall: Duration) -> Correlated {
        let (aggregate, local) = (self.options.aggregate_key)(&event);
        let (mut event, key) = match self.aggregator.combines(&aggregate, local, now) {
            false => {
                let key = event.key();
                (event, key)
            }
            true => (self.combined(event, now, wall), aggregate),
        };
        let known = self.counts.get(&key).filter(|known| known.count > 0);
        let is_repeat = known.is_some();
        if let Some(known) = known {
            event.name.clone_from(&known.name);
            event.resource_version.clone_from(&known.resource_version);
            event.first = known.first;
            event.count = known.count.saturating_add(1);
        }
        self.counts.put(key, Count::of(&event));
        let passes = self.filter.accepts((self.options.spam_key)(&event), now);
        Correlated {
            event,
            is_repeat,
            passes,
        }
    }

    /// Files what the server returned, under the event's own key (EC9).
    #[allow(
        dead_code,
        reason = "the recorder counts while requests are under way, so that an answer is older than its count"
    )]
    pub(crate) fn update_state(&mut self, event: &Event) {
        self.counts.put(event.key(), Count::of(event));
    }

    /// Returns the event that stands for events with too many different notes (EC2).
    fn combined(&self, event: Event, now: Duration, wall: Duration) -> Event {
        Event {
            name: (self.options.name)(&event.regarding.name, now),
            namespace: event.namespace,
            regarding: event.regarding,
            kind: event.kind,
            reason: event.reason,
            note: format!("{COMBINED}{}", event.note),
            source: event.source,
            count: 1,
            first: wall,
            last: wall,
            ..Event::default()
        }
    }
}

impl Count {
    fn of(event: &Event) -> Self {
        Self {
            count: event.count,
            first: event.first,
            name: event.name.clone(),
            resource_version: event.resource_version.clone(),
        }
    }
}
