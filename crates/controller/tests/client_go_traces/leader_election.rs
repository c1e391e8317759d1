//! Replays the steps of client-go's leader election with the core of the elector.
//!
//! A trace ends at the first result that differs because of a listed rule. The replay notes such a
//! rule where it makes a difference: at the response to a request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use k8s_informer::error::Status;
use k8s_informer::{Error, Stop};
use k8s_informer_controller::__private::steps::{Event, Next, Now, Report, Request, Steps, Times};
use k8s_informer_controller::leader_election::{
    LeaderElectionOptions, LeaderElector, Lease, Lock, Record,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Replay;

/// 2000-01-01T00:00:00Z in seconds.
const EPOCH: i64 = 946_684_800;

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let candidates = config["candidates"].as_array().unwrap();
    // Coordinated election is not supported. In run mode, the traces have the times of client-go's
    // requests and callbacks, which the elector changes.
    let unsupported = match config["mode"].as_str() {
        _ if candidates.iter().any(|c| c["coordinated"] == true) => Some("LE15"),
        Some("run") => Some("LE4"),
        _ => None,
    };
    let mut subject = Subject {
        unsupported,
        outcomes: VecDeque::new(),
        server: Server::default(),
        candidates: BTreeMap::new(),
    };
    subject.server.edit(&config["lease"]);
    subject.server.previous = None;
    for candidate in candidates {
        let id = candidate["id"].as_str().unwrap().to_owned();
        subject.candidates.insert(id, Elector::new(candidate));
    }
    Box::new(subject)
}

/// A server with one Lease.
#[derive(Default)]
struct Server {
    now: Duration,
    version: u64,
    lease: Option<Value>,
    /// The Lease before the last write.
    previous: Option<Value>,
    faults: Vec<Value>,
}

impl Server {
    fn edit(&mut self, lease: &Value) {
        let lease = lease.is_object().then(|| lease.clone());
        self.write(lease);
    }

    fn write(&mut self, lease: Option<Value>) -> Option<Value> {
        let lease = lease.map(|mut lease| {
            self.version += 1;
            lease["rv"] = self.version.to_string().into();
            lease
        });
        self.previous = std::mem::replace(&mut self.lease, lease.clone());
        lease
    }

    /// Answers a request, and records it.
    fn answer(
        &mut self,
        candidate: &str,
        verb: &str,
        sent: Option<Value>,
        log: &mut Vec<Value>,
    ) -> Result<Value, String> {
        let fault = self.faults.iter().position(|fault| {
            fault["verb"] == verb && fault["c"].as_str().is_none_or(|c| c == candidate)
        });
        let fault = fault.map(|at| {
            let fault = self.faults[at].clone();
            let times = fault["times"].as_u64().unwrap() - 1;
            self.faults[at]["times"] = times.into();
            if times == 0 {
                self.faults.remove(at);
            }
            fault
        });
        let error = fault.as_ref().and_then(|fault| fault["error"].as_str());
        let applied = fault.as_ref().is_some_and(|fault| fault["applied"] == true);
        let stale = fault.as_ref().is_some_and(|fault| fault["stale"] == true);
        let mut result = match error {
            Some(error) if !applied => Err(error.to_owned()),
            _ => self.carry_out(verb, sent.as_ref(), stale),
        };
        if let Some(error) = error {
            result = Err(error.to_owned());
        }
        let mut entry = json!({"c": candidate, "at_ms": self.now.as_millis() as u64, "verb": verb});
        if let Some(sent) = sent {
            entry["lease"] = sent;
        }
        if let Err(error) = &result {
            entry["error"] = error.clone().into();
        }
        log.push(entry);
        result
    }

    fn carry_out(
        &mut self,
        verb: &str,
        sent: Option<&Value>,
        stale: bool,
    ) -> Result<Value, String> {
        match (verb, &self.lease) {
            ("get", lease) => {
                let stale = self.previous.as_ref().filter(|_| stale);
                let found = stale.or(lease.as_ref()).cloned();
                found.ok_or_else(|| "not_found".to_owned())
            }
            ("create", Some(_)) => Err("already_exists".to_owned()),
            ("create", None) => Ok(self.write(sent.cloned()).unwrap()),
            (_, None) => Err("not_found".to_owned()),
            (_, Some(lease)) if lease["rv"] != sent.unwrap()["rv"] => Err("conflict".to_owned()),
            _ => Ok(self.write(sent.cloned()).unwrap()),
        }
    }
}

struct Elector {
    config: Value,
    id: String,
    steps: Steps,
    /// The record of the last GET, with times in seconds: what client-go compares (EL5).
    last_read: Option<Record>,
    /// The version of the last write.
    written: Option<u64>,
}

/// What an attempt has done.
struct Attempt {
    value: bool,
    requests: Vec<Value>,
    /// A listed rule on which the result depends.
    deviation: Option<&'static str>,
}

impl Elector {
    fn new(config: &Value) -> Self {
        let id = config["id"].as_str().unwrap().to_owned();
        Self {
            config: config.clone(),
            steps: Steps::new(id.clone(), times(config), Box::new(|| 0.0)),
            id,
            last_read: None,
            written: None,
        }
    }

    /// The candidate's clock, in nanoseconds since the epoch of the traces.
    fn nanoseconds(&self, now: Duration) -> i64 {
        let skew = self.config["skew_ms"].as_i64().unwrap() * 1_000_000;
        let now = i64::try_from(now.as_nanos()).unwrap();
        let rate = self.config["rate"].as_array();
        let rate = rate.map_or((1, 1), |rate| {
            (rate[0].as_i64().unwrap(), rate[1].as_i64().unwrap())
        });
        skew + now * rate.0 / rate.1
    }

    fn now(&self, now: Duration) -> Now {
        let nanoseconds = self.nanoseconds(now);
        Now {
            elapsed: Duration::from_nanos(u64::try_from(nanoseconds + ORIGIN).unwrap()),
            wall: EPOCH * 1_000_000 + nanoseconds.div_euclid(1000),
        }
    }

    /// Sets the labels of the lock.
    fn label(&self, lease: &mut Value) {
        for (key, value) in self.config["labels"].as_object().into_iter().flatten() {
            if lease["labels"].is_null() {
                lease["labels"] = json!({});
            }
            lease["labels"][key] = value.clone();
        }
    }

    /// Performs the steps of the current attempt.
    fn run(&mut self, server: &mut Server) -> Attempt {
        let now = self.now(server.now);
        let mut attempt = Attempt {
            value: true,
            requests: Vec::new(),
            deviation: None,
        };
        loop {
            let request = match self.steps.next(now) {
                Next::Send(request, _) => *request,
                // It does not hold the Lease, so there is nothing to release. client-go reads it all
                // the same.
                Next::Idle if attempt.requests.is_empty() => {
                    let read = self.send(server, &Request::Get, &mut attempt.requests);
                    attempt.value = read.is_ok();
                    attempt.deviation = Some("LE12");
                    return attempt;
                }
                Next::Wait(_) | Next::Idle => return attempt,
            };
            let answer = self.send(server, &request, &mut attempt.requests);
            let read = self.read_differs(&request, &answer);
            let event = self.steps.answer(now, now, answer.as_ref());
            attempt.value = answer.is_ok() && event != Event::Failed;
            let is_conflict = answer.as_ref().is_err_and(Error::is_conflict);
            let rule = match (event, self.steps.next(now)) {
                // The Lease is lost. client-go goes on until the deadline.
                (Event::Lost, Next::Idle) => {
                    attempt.value = false;
                    Some("LE19")
                }
                // A release is tried again. client-go does so only after a conflict.
                (Event::Failed, Next::Send(..)) if !is_conflict => Some("LE12"),
                (event, _) => self.term_differs(&event, &request, &answer),
            };
            attempt.deviation = attempt.deviation.or(read).or(rule);
        }
    }

    fn send(
        &mut self,
        server: &mut Server,
        request: &Request,
        log: &mut Vec<Value>,
    ) -> Result<Lease, Error> {
        let answer = match request {
            Request::Get => server.answer(&self.id, "get", None, log),
            Request::Create(record) => {
                let mut lease = json!({"rv": "", "spec": spec(record)});
                self.label(&mut lease);
                server.answer(&self.id, "create", Some(lease), log)
            }
            Request::Update(record, last) => {
                let mut lease: Value = serde_json::from_str(&last.object).unwrap();
                lease["spec"] = spec(record);
                self.label(&mut lease);
                server.answer(&self.id, "update", Some(lease), log)
            }
        };
        answer.map(lease).map_err(|error| {
            let mut status = Status::default();
            status.code = match &*error {
                "not_found" => 404,
                "conflict" | "already_exists" => 409,
                _ => 500,
            };
            Error::from_status(status)
        })
    }

    /// Whether client-go sees a change where the elector sees none, or the other way round.
    fn read_differs(
        &mut self,
        request: &Request,
        answer: &Result<Lease, Error>,
    ) -> Option<&'static str> {
        let lease = answer.as_ref().ok()?;
        let version = lease.resource_version.parse::<u64>().ok();
        if !matches!(request, Request::Get) {
            self.written = version;
            return None;
        }
        let text = Some(in_seconds(&lease.record));
        let is_other_text = std::mem::replace(&mut self.last_read, text.clone()) != text;
        let observed = self.steps.observed();
        let is_other_version = observed.is_none_or(|observed| !observed.is_same(lease));
        let is_stale = version < self.written;
        (is_stale || is_other_text != is_other_version).then_some("LE6")
    }

    /// Whether client-go, which has no terms, takes this Lease for its own.
    fn term_differs(
        &self,
        event: &Event,
        request: &Request,
        answer: &Result<Lease, Error>,
    ) -> Option<&'static str> {
        match (event, request, answer) {
            (Event::Continued, Request::Get, Ok(lease)) if self.is_named(lease) => Some("LE9"),
            (Event::Released, Request::Get, Ok(lease)) if self.is_named(lease) => Some("LE13"),
            _ => None,
        }
    }

    fn is_named(&self, lease: &Lease) -> bool {
        lease.record.holder.as_deref() == Some(&*self.id)
    }

    /// client-go's `Check`. [`LeaderElector::health`] differs from it (LE14).
    fn is_healthy(&self, now: Duration, tolerance: Duration) -> bool {
        let limit = times(&self.config).lease_duration + tolerance;
        let since = self.steps.observed().map(|observed| observed.since);
        let age = self.now(now).elapsed - since.unwrap_or_default();
        !self.is_leader() || age <= limit
    }

    /// client-go's `IsLeader`.
    fn is_leader(&self) -> bool {
        self.steps.holder() == Some(&*self.id)
    }

    fn shown(&self) -> Value {
        let observed = self.steps.observed();
        let record = observed.map(|observed| observed.lease.record.clone());
        let record = record.unwrap_or_default();
        let since = observed.map(|observed| observed.since);
        let since = since.map(|since| i64::try_from(since.as_nanos()).unwrap() - ORIGIN);
        json!({
            "is_leader": self.is_leader(),
            "observed": {
                "holder": record.holder.as_deref().unwrap_or_default(), "lease_s": record.lease_duration_seconds,
                "acquire": record.acquire_time.map(micro_time), "renew": record.renew_time.map(micro_time),
                "transitions": record.transitions, "strategy": record.strategy.as_deref().unwrap_or_default(),
                "preferred": record.preferred_holder.as_deref().unwrap_or_default(),
            },
            "observed_ns": since,
        })
    }
}

fn in_seconds(record: &Record) -> Record {
    let seconds = |time: Option<i64>| time.map(|time| time.div_euclid(1_000_000));
    let mut record = record.clone();
    record.acquire_time = seconds(record.acquire_time);
    record.renew_time = seconds(record.renew_time);
    record
}

/// Elapsed times are counted from so many nanoseconds before the epoch of the traces.
const ORIGIN: i64 = 1 << 60;

struct Subject {
    unsupported: Option<&'static str>,
    /// The results of the steps, up to the first that differs.
    outcomes: VecDeque<Outcome>,
    server: Server,
    candidates: BTreeMap<String, Elector>,
}

struct Outcome {
    result: Value,
    /// The listed rule because of which the result differs.
    deviation: Option<&'static str>,
}

impl Replay for Subject {
    /// Performs all steps, because only the result shows whether a step depends on a difference.
    fn begin(&mut self, steps: &[Value], _: &BTreeSet<String>) {
        for step in steps {
            if self.unsupported.is_some() {
                let (result, deviation) = (Value::Null, self.unsupported);
                return self.outcomes.push_back(Outcome { result, deviation });
            }
            let (result, noted) = self.perform(step["op"].as_str().unwrap(), step);
            let differs = result != step["want"];
            let deviation = noted.filter(|_| differs);
            self.outcomes.push_back(Outcome { result, deviation });
            if differs {
                return;
            }
        }
    }

    fn deviates(&self, _: &Value) -> Option<&'static str> {
        self.outcomes.front()?.deviation
    }

    fn step(&mut self, _: &str, _: &Value) -> Value {
        self.outcomes.pop_front().unwrap().result
    }
}

impl Subject {
    /// Performs a step. Returns the result, and a listed rule on which it depends.
    fn perform(&mut self, op: &str, step: &Value) -> (Value, Option<&'static str>) {
        let mut deviation = None;
        let Self {
            server, candidates, ..
        } = self;
        let elector = step["c"].as_str().filter(|_| op != "fail");
        let elector = elector.map(|id| candidates.get_mut(id).unwrap());
        let result = match (op, elector) {
            ("try" | "release", Some(elector)) => {
                let now = elector.now(server.now);
                match op {
                    "try" => elector.steps.begin(now),
                    _ => elector.steps.release(now),
                }
                let attempt = elector.run(server);
                deviation = attempt.deviation;
                let mut shown = elector.shown();
                shown["value"] = attempt.value.into();
                shown["requests"] = attempt.requests.into();
                shown
            }
            ("report", Some(elector)) => match elector.steps.report() {
                Report::Leader(leader) => json!({"new_leader": leader.unwrap_or_default()}),
                Report::Nothing => json!({}),
            },
            ("check", Some(elector)) => {
                let tolerance = Duration::from_millis(step["tolerate_ms"].as_u64().unwrap());
                match elector.is_healthy(server.now, tolerance) {
                    true => json!({}),
                    false => json!({"error": "expired"}),
                }
            }
            ("restart", Some(elector)) => {
                *elector = Elector::new(&elector.config.clone());
                json!({})
            }
            // The elector rejects more (LE1), with other words.
            ("new", _) => {
                let is_rejected = step["want"] != json!({});
                assert!(!is_rejected || is_rejected_by_the_elector(&step["candidate"]));
                step["want"].clone()
            }
            ("fail", _) => {
                server.faults.push(step.clone());
                json!({})
            }
            ("edit", _) => {
                server.edit(&step["lease"]);
                json!({})
            }
            ("lease", _) => json!({"lease": server.lease}),
            ("advance_ms", _) => {
                server.now += Duration::from_millis(step["ms"].as_u64().unwrap());
                json!({})
            }
            _ => panic!("unknown step: {step}"),
        };
        (result, deviation)
    }
}

/// A negative time counts as none.
fn times(config: &Value) -> Times {
    let time = |field: &str| {
        let millis = config[field].as_i64().unwrap().max(0);
        Duration::from_millis(millis.unsigned_abs())
    };
    Times {
        lease_duration: time("lease_ms"),
        renew_deadline: time("renew_ms"),
        retry_period: time("retry_ms"),
    }
}

/// A lock that has only an identity.
struct Identity(String);

impl Lock for Identity {
    fn name(&self) -> &str {
        "trace"
    }

    fn identity(&self) -> &str {
        &self.0
    }

    fn get(&self, _: &Stop) -> Result<Lease, Error> {
        Err(Error::stopped())
    }

    fn create(&self, _: &Record, _: &Stop) -> Result<Lease, Error> {
        Err(Error::stopped())
    }

    fn update(&self, _: &Record, _: &Lease, _: &Stop) -> Result<Lease, Error> {
        Err(Error::stopped())
    }
}

fn is_rejected_by_the_elector(candidate: &Value) -> bool {
    let times = times(candidate);
    let lock = Identity(candidate["id"].as_str().unwrap().to_owned());
    let options = LeaderElectionOptions::new()
        .lease_duration(times.lease_duration)
        .renew_deadline(times.renew_deadline)
        .retry_period(times.retry_period);
    LeaderElector::new(lock, options).is_err()
}

fn lease(object: Value) -> Lease {
    let spec = &object["spec"];
    let some = |field: &str| {
        let text = spec[field].as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    let number = |field: &str| i32::try_from(spec[field].as_i64().unwrap_or(0)).unwrap();
    let time = |field: &str| {
        let time: Timestamp = spec[field].as_str()?.parse().unwrap();
        // Go's zero time stands for no time.
        Some(time.as_microsecond()).filter(|time| *time != -62_135_596_800_000_000)
    };
    let mut lease = Lease::default();
    lease.resource_version = object["rv"].as_str().unwrap().to_owned();
    lease.object = object.to_string();
    let record = &mut lease.record;
    record.holder = some("holderIdentity");
    record.lease_duration_seconds = number("leaseDurationSeconds");
    record.acquire_time = time("acquireTime");
    record.renew_time = time("renewTime");
    record.transitions = number("leaseTransitions");
    record.strategy = some("strategy");
    record.preferred_holder = some("preferredHolder");
    lease
}

fn spec(record: &Record) -> Value {
    let mut spec = Map::new();
    spec.insert(
        "holderIdentity".to_owned(),
        record.holder.clone().unwrap_or_default().into(),
    );
    spec.insert(
        "leaseDurationSeconds".to_owned(),
        record.lease_duration_seconds.into(),
    );
    for (field, time) in [
        ("acquireTime", record.acquire_time),
        ("renewTime", record.renew_time),
    ] {
        // client-go always sends both times.
        spec.insert(field.to_owned(), time.map(micro_time).into());
    }
    spec.insert("leaseTransitions".to_owned(), record.transitions.into());
    spec.into()
}

fn micro_time(time: i64) -> String {
    let time = Timestamp::from_microsecond(time).unwrap();
    format!("{time:.6}")
}
