//! The event correlator of core v1 compared with lists (EC1–EC7). The model has no maps, keys or
//! token buckets: it looks through what happened.

use std::time::Duration;

use arbitrary::Arbitrary;

use super::events_core::correlator::{Correlated, Correlator, CorrelatorOptions};
use super::events_core::event::Event;
use super::events_core::reference::ObjectReference;
use super::item::read;

/// The filter refills one token in two seconds.
const SECONDS_PER_TOKEN: u64 = 2;

#[derive(Arbitrary, Debug)]
struct Config {
    limit: u8,
    burst: u8,
    max_events: u8,
    interval: u8,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Correlate(Sample),
    Update { sample: Sample, count: u8 },
    Advance(u8),
}

/// An event, by small numbers. Events differ in each of the fields of a key.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
struct Sample {
    object: u8,
    field: bool,
    warning: bool,
    reason: u8,
    note: u8,
    reporter: bool,
}

/// The parts of the three keys that differ.
type SpamKey = (u8, bool);
type AggregateKey = (u8, bool, u8, bool);
type EventKey = (u8, bool, bool, u8, String);

#[derive(Clone, Debug, PartialEq)]
enum CountKey {
    Event(EventKey),
    Aggregate(AggregateKey),
}

impl Sample {
    fn limited(self) -> Self {
        Self {
            object: self.object % 3,
            reason: self.reason % 2,
            note: self.note % 6,
            ..self
        }
    }

    fn event(self, now: Duration) -> Event {
        // The texts would run together without separators (EC8).
        let texts = ["a", "aa", "aaa", "aaaa", "aaaaa", "aaaaaa"];
        let reporter = if self.reporter { "c" } else { "" };
        Event {
            name: format!("made-{}", now.as_secs()),
            namespace: "n".to_owned(),
            regarding: ObjectReference {
                kind: "Pod".to_owned(),
                name: texts[usize::from(self.object)].to_owned(),
                field_path: if self.field { "f" } else { "" }.to_owned(),
                ..ObjectReference::default()
            },
            kind: if self.warning { "Warning" } else { "Normal" }.to_owned(),
            reason: texts[usize::from(self.reason)].to_owned(),
            note: texts[usize::from(self.note)].to_owned(),
            controller: reporter.to_owned(),
            count: 1,
            first: now,
            last: now,
            ..Event::default()
        }
    }

    fn event_key(self, note: &str) -> CountKey {
        let note = note.to_owned();
        CountKey::Event((self.object, self.field, self.warning, self.reason, note))
    }

    fn aggregate_key(self) -> AggregateKey {
        (self.object, self.warning, self.reason, self.reporter)
    }
}

/// A list of keys and values, the most recently used one last.
struct Recent<K, V>(usize, Vec<(K, V)>);

impl<K: PartialEq, V> Recent<K, V> {
    fn take(&mut self, key: &K) -> Option<V> {
        let at = self.1.iter().position(|(known, _)| known == key)?;
        Some(self.1.remove(at).1)
    }

    fn put(&mut self, key: K, value: V) {
        self.1.push((key, value));
        if self.1.len() > self.0 {
            self.1.remove(0);
        }
    }
}

#[derive(Clone)]
struct Count {
    count: u32,
    name: String,
    first: u64,
}

struct Model {
    burst: u64,
    max_events: usize,
    interval: u64,
    aggregates: Recent<AggregateKey, (Vec<u8>, u64)>,
    counts: Recent<CountKey, Count>,
    /// The number of tokens in seconds, and the time.
    buckets: Recent<SpamKey, (u64, u64)>,
}

impl Model {
    /// Returns whether the event is combined, its count, name and first time, and whether it
    /// passes.
    fn correlate(&mut self, sample: Sample, event: &Event, now: u64) -> (bool, Count, bool) {
        let key = sample.aggregate_key();
        let (mut notes, last) = self.aggregates.take(&key).unwrap_or_default();
        if now - last > self.interval {
            notes.clear();
        }
        let is_known = notes.contains(&sample.note);
        let combined = !is_known && notes.len() + 1 >= self.max_events;
        if !is_known && !combined {
            notes.push(sample.note);
        }
        self.aggregates.put(key, (notes, now));

        let (key, name) = match combined {
            true => {
                let nanos = Duration::from_secs(now).as_nanos();
                let name = format!("{}.{nanos:x}", event.regarding.name);
                (CountKey::Aggregate(key), name)
            }
            false => (sample.event_key(&event.note), event.name.clone()),
        };
        let known = self.counts.take(&key).filter(|known| known.count > 0);
        let mut count = known.unwrap_or(Count {
            count: 0,
            name,
            first: now,
        });
        count.count += 1;
        self.counts.put(key, count.clone());

        let key = (sample.object, sample.warning);
        let full = self.burst * SECONDS_PER_TOKEN;
        let (seconds, at) = self.buckets.take(&key).unwrap_or((full, now));
        let seconds = (seconds + now - at).min(full);
        let passes = seconds >= SECONDS_PER_TOKEN;
        let left = seconds - if passes { SECONDS_PER_TOKEN } else { 0 };
        self.buckets.put(key, (left, now));
        (combined, count, passes)
    }
}

pub fn run(input: &[u8]) {
    let Ok((config, operations)) = read::<Config, Op>(input) else {
        return;
    };
    let limit = usize::from(config.limit % 5) + 1;
    let burst = u32::from(config.burst % 5) + 1;
    let max_events = usize::from(config.max_events % 4) + 1;
    let interval = u64::from(config.interval % 8);
    let mut correlator = Correlator::new(CorrelatorOptions {
        limit,
        burst,
        per_second: 1.0 / SECONDS_PER_TOKEN as f64,
        max_events,
        interval: Duration::from_secs(interval),
        ..CorrelatorOptions::default()
    });
    let mut model = Model {
        burst: burst.into(),
        max_events,
        interval,
        aggregates: Recent(limit, Vec::new()),
        counts: Recent(limit, Vec::new()),
        buckets: Recent(limit, Vec::new()),
    };
    let mut now = 1_000_000;
    for operation in operations {
        match operation {
            Op::Advance(seconds) => now += u64::from(seconds % 10),
            Op::Update { sample, count } => {
                let sample = sample.limited();
                let mut event = sample.event(Duration::from_secs(now));
                event.count = count.into();
                correlator.update_state(&event);
                let key = sample.event_key(&event.note);
                model.counts.take(&key);
                let count = Count {
                    count: event.count,
                    name: event.name,
                    first: now,
                };
                model.counts.put(key, count);
            }
            Op::Correlate(sample) => {
                let sample = sample.limited();
                let made = sample.event(Duration::from_secs(now));
                let (combined, count, passes) = model.correlate(sample, &made, now);
                let mut wanted = Event {
                    name: count.name,
                    count: count.count,
                    first: Duration::from_secs(count.first),
                    ..made.clone()
                };
                if combined {
                    wanted.note = format!("(combined from similar events): {}", made.note);
                    wanted.controller.clear();
                }
                let wanted = Correlated {
                    is_repeat: count.count > 1,
                    event: wanted,
                    passes,
                };
                assert_eq!(
                    correlator.correlate(made, Duration::from_secs(now), Duration::from_secs(now)),
                    wanted
                );
            }
        }
    }
}
