//! Replays client-go's event correlator, and its recorder for core v1, with the core of this
//! crate's recorder.

use std::time::Duration;

use serde_json::{Value, json};

use super::Replay;
use super::event_json::{Answers, annotations, answer, event, name, optional, reference, want};
use super::events_core::correlator::{Correlated, Correlator, CorrelatorOptions};
use super::events_core::delivery::{Answer, Next, Verb, next};
use super::events_core::event::{Event, plain_name};
use super::events_core::json::EventApi;

/// 2000-01-01T00:00:00Z.
const EPOCH: Duration = Duration::from_secs(946_684_800);

const API: EventApi = EventApi::CoreV1;

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let mut options = CorrelatorOptions::default();
    let number = |field: &str| config[field].as_u64();
    let size = |number: u64| usize::try_from(number).unwrap();
    options.limit = number("lru").map_or(options.limit, size);
    options.burst = number("burst").map_or(options.burst, |burst| burst.try_into().unwrap());
    options.max_events = number("max_events").map_or(options.max_events, size);
    options.interval = number("max_interval_s").map_or(options.interval, Duration::from_secs);
    // client-go has a 32-bit number.
    let qps = config["qps"].as_f64().map(|qps| f64::from(qps as f32));
    options.per_second = qps.unwrap_or(options.per_second);
    match config["spam_key"].as_str() {
        None => {}
        Some("type_reason") => {
            options.spam_key = |event| vec![format!("{}/{}", event.kind, event.reason)];
        }
        Some(other) => panic!("spam_key {other}"),
    }
    match config["aggregate_key"].as_str() {
        None => {}
        Some("type") => {
            options.aggregate_key = |event| (vec![event.kind.clone()], event.reason.clone());
        }
        Some(other) => panic!("aggregate_key {other}"),
    }
    Box::new(Subject {
        correlator: Correlator::new(options),
        now: EPOCH,
        accepted: 0,
    })
}

struct Subject {
    correlator: Correlator,
    now: Duration,
    /// The number of requests that the sink has accepted.
    accepted: u64,
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        match op {
            "correlate" => self.correlate(&step["event"]),
            "update_state" => {
                self.correlator.update_state(&event(API, &step["event"]));
                json!({})
            }
            "emit" => self.emit(step),
            "advance_ms" => {
                self.now += Duration::from_millis(step["ms"].as_u64().unwrap());
                json!({})
            }
            other => panic!("op {other}"),
        }
    }
}

impl Subject {
    fn correlate(&mut self, json: &Value) -> Value {
        let Correlated {
            event: result,
            is_repeat,
            passes,
        } = self
            .correlator
            .correlate(event(API, json), self.now, self.now);
        if !passes {
            return json!({"skip": true});
        }
        let mut body = want(API, &result);
        // The core does not keep labels, which no event of a recorder has.
        let is_combined = result.controller.is_empty() && result.note != json["message"];
        if let (false, Some(labels)) = (is_combined, json["metadata"].get("labels")) {
            body["metadata"]["labels"] = labels.clone();
        }
        let mut correlated = json!({"event": body});
        if is_repeat {
            correlated["patch"] = API.patch(&result);
        }
        correlated
    }

    fn emit(&mut self, step: &Value) -> Value {
        let regarding = reference(&step["about"]);
        let kind = step["type"].as_str().unwrap();
        if !["Normal", "Warning"].contains(&kind) {
            return json!({"made": null, "calls": []});
        }
        let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        let made = Event {
            name: name(&regarding.name, self.now),
            namespace: optional(&regarding.namespace, "default"),
            annotations: annotations(&step["annotations"]),
            regarding,
            kind: kind.to_owned(),
            reason: text("reason"),
            note: text("message"),
            controller: "ctl".to_owned(),
            instance: "h1".to_owned(),
            source: ("ctl".to_owned(), "h1".to_owned()),
            count: 1,
            first: self.now,
            last: self.now,
            ..Event::default()
        };
        let json = want(API, &made);
        let calls = self.send(made, Answers::new(&step["answers"]));
        json!({"made": json, "calls": calls})
    }

    /// Correlates an event and sends it until client-go would give up (EC11).
    fn send(&mut self, event: Event, mut answers: Answers) -> Vec<Value> {
        let correlated = self.correlator.correlate(event, self.now, self.now);
        let Correlated {
            event: mut result,
            passes,
            ..
        } = correlated;
        let mut calls = Vec::new();
        if !passes {
            return calls;
        }
        let mut tries = 0;
        let first = match result.count > 1 {
            true => Verb::Patch,
            false => Verb::Create,
        };
        let mut verb = first;
        loop {
            let class = answers.next();
            match verb {
                Verb::Create => {
                    result.resource_version.clear();
                    calls.push(json!({"create": want(API, &result)}));
                }
                Verb::Patch => calls.push(json!({
                    "patch": API.patch(&result), "ns": result.namespace, "name": result.name,
                })),
            }
            let answer = answer(&class);
            // The retries of this crate differ (EC11): it also retries a `Status`.
            let gives_up = ["internal", "already_exists"].contains(&&*class);
            match next(verb, answer, result.count, false) {
                Next::Written => {
                    assert_eq!(answer, Answer::Accepted);
                    self.accepted += 1;
                    result.resource_version = self.accepted.to_string();
                    self.correlator.update_state(&result);
                    return calls;
                }
                Next::Send(other) => {
                    verb = other;
                    continue;
                }
                Next::Failed => return calls,
                Next::Retry(_) if gives_up => return calls,
                Next::Retry(_) => {
                    tries += 1;
                    if tries == 12 {
                        return calls;
                    }
                    verb = first;
                }
            }
        }
    }
}

#[test]
fn ec2_name_of_a_combined_event_is_made_of_the_time() {
    assert_eq!(plain_name("p", EPOCH), "p.d234ccf52430000");
}
