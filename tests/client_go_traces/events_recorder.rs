//! Replays client-go's recorder for events.k8s.io/v1 with the core of this crate's recorder, as it
//! is if events with different notes are merged.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Replay;
use super::event_json::{Answers, answer, event, name, optional, reference, want};
use super::events_core::delivery::{Next, Verb, next};
use super::events_core::event::{Event, Key};
use super::events_core::json::EventApi;
use super::events_core::series::SeriesCache;

const EPOCH: Duration = Duration::from_secs(946_684_800);

const API: EventApi = EventApi::EventsV1;

pub(crate) fn build(_config: &Value) -> Box<dyn Replay> {
    Box::new(Subject {
        cache: SeriesCache::new(1_000_000),
        now: EPOCH,
    })
}

struct Subject {
    cache: SeriesCache,
    now: Duration,
}

impl Replay for Subject {
    /// client-go's series end when the object changes (ER1), and are refreshed (ER3).
    fn deviates(&self, step: &Value) -> Option<&'static str> {
        let mut series = self.cache.iter().filter(|entry| entry.event.count > 1);
        if step["op"] == "refresh" && series.next().is_some() {
            return Some("ER3");
        }
        let references = [&step["regarding"], &step["related"]];
        let mut versions = references
            .iter()
            .filter_map(|reference| reference.get("resourceVersion"));
        versions.any(|version| version != "").then_some("ER1")
    }

    fn step(&mut self, op: &str, step: &Value) -> Value {
        match op {
            "emit" => self.emit(step),
            "event" => {
                let calls = self.record(event(API, &step["event"]), Answers::new(&step["answers"]));
                json!({"calls": calls})
            }
            "finish" => self.finish(&step["fail"]),
            // Nothing is refreshed if there is no series. Otherwise, the replay has ended (ER3).
            "refresh" => json!({"calls": []}),
            "cache" => {
                let mut events: Vec<Value> = self
                    .cache
                    .iter()
                    .map(|entry| want(API, &entry.event))
                    .collect();
                events.sort_by_key(Value::to_string);
                json!({"events": events})
            }
            "advance_ms" => {
                self.now += Duration::from_millis(step["ms"].as_u64().unwrap());
                json!({})
            }
            other => panic!("op {other}"),
        }
    }
}

impl Subject {
    fn emit(&mut self, step: &Value) -> Value {
        let kind = step["type"].as_str().unwrap();
        if !["Normal", "Warning"].contains(&kind) {
            return json!({"made": null, "calls": []});
        }
        let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        let regarding = reference(&step["regarding"]);
        let made = Event {
            name: name(&regarding.name, self.now),
            namespace: optional(&regarding.namespace, "default"),
            regarding,
            related: step.get("related").map(reference),
            kind: kind.to_owned(),
            reason: text("reason"),
            action: text("action"),
            note: text("note"),
            controller: "ctl".to_owned(),
            instance: "ctl-host".to_owned(),
            count: 1,
            first: self.now,
            last: self.now,
            ..Event::default()
        };
        let json = want(API, &made);
        let calls = self.record(made, Answers::new(&step["answers"]));
        json!({"made": json, "calls": calls})
    }

    fn record(&mut self, mut event: Event, mut answers: Answers) -> Vec<Value> {
        let brings_series = event.count > 1;
        let key = event.series_key();
        let is_new = self.cache.is_new(&key);
        let seen = match (is_new, brings_series) {
            (true, false) => event.first,
            (true, true) => event.last,
            (false, _) => self.now,
        };
        if !is_new {
            event.last = self.now;
        }
        let (Some(entry), None) = self.cache.observe(key, event, seen) else {
            panic!("no entry");
        };
        // Later occurrences are only counted (ER2). When this crate writes them is not part of the
        // core.
        let is_second = !is_new && entry.event.count == 2;
        if !is_new && !is_second {
            return Vec::new();
        }
        let event = entry.event.clone();
        let mut calls = Vec::new();
        for _ in 0..12 {
            if !self.attempt(&event, is_second || brings_series, &mut answers, &mut calls) {
                break;
            }
        }
        calls
    }

    /// Sends an event once. Returns whether client-go tries again (ER6).
    fn attempt(
        &self,
        event: &Event,
        is_series: bool,
        answers: &mut Answers,
        calls: &mut Vec<Value>,
    ) -> bool {
        let mut verb = match is_series {
            true => Verb::Patch,
            false => Verb::Create,
        };
        loop {
            calls.push(match verb {
                Verb::Create => json!({"create": want(API, event)}),
                Verb::Patch => {
                    json!({"patch": API.patch(event), "ns": event.namespace, "name": event.name})
                }
            });
            let class = answers.next();
            match next(verb, answer(&class), event.count, false) {
                Next::Send(other) => verb = other,
                // The retries of this crate differ (ER6): it also retries a `Status`.
                Next::Retry(_) => return class != "internal",
                Next::Written | Next::Failed => return false,
            }
        }
    }

    fn finish(&mut self, fail: &Value) -> Value {
        let mut calls: Vec<(String, Vec<Value>)> = Vec::new();
        let ended: HashMap<Key, Event> = {
            let keys = self.cache.ended(self.now);
            let events = keys.into_iter().filter_map(|key| {
                let entry = self.cache.remove(&key)?;
                Some((key, entry.event))
            });
            events.collect()
        };
        for (key, event) in ended {
            if event.count < 2 {
                continue;
            }
            let class = fail.get(&event.name);
            let mut answers = Answers::new(&class.map_or(json!([]), |class| json!([class, class])));
            let mut sent = Vec::new();
            if self.attempt(&event, true, &mut answers, &mut sent) {
                let (name, last) = (event.name.clone(), event.last);
                self.cache.observe(key, event, last);
                calls.push((name, sent));
            } else {
                calls.push((event.name.clone(), sent));
            }
        }
        calls.sort_by(|a, b| a.0.cmp(&b.0));
        json!({"calls": calls.into_iter().flat_map(|(_, sent)| sent).collect::<Vec<_>>()})
    }
}
