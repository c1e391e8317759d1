//! Replays the steps of client-go's leader election with the core of the elector.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_informer::error::Status;
use k8s_informer::{Error, Stop};
use k8s_informer_controller::__private::steps::{
    Event, Next, Now, Policy, Report, Request, Steps, Times,
};
use k8s_informer_controller::leader_election::{
    LeaderElectionOptions, LeaderElector, Lease, Lock, Record,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Replay;

const CLIENT_GO: Policy = Policy {
    compares_versions: false,
    has_terms: false,
    checks_release: false,
};

/// 2000-01-01T00:00:00Z in seconds.
const EPOCH: i64 = 946_684_800;

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let candidates = config["candidates"].as_array().unwrap();
    let deviation = match config["mode"].as_str() {
        _ if candidates.iter().any(|c| c["coordinated"] == true) => Some("LE15"),
        Some("run") => Some("LE4"),
        _ => None,
    };
    let mut subject = Subject {
        deviation,
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
    steps: Steps,
}

impl Elector {
    fn new(config: &Value) -> Self {
        let identity = config["id"].as_str().unwrap().to_owned();
        Self {
            config: config.clone(),
            steps: Steps::new(identity, times(config), CLIENT_GO, Box::new(|| 0.0)),
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
    fn run(&mut self, server: &mut Server) -> (bool, Vec<Value>) {
        let id = self.config["id"].as_str().unwrap().to_owned();
        let now = self.now(server.now);
        let mut log = Vec::new();
        loop {
            let Next::Send(request, _) = self.steps.next(now) else {
                panic!("an attempt without a request");
            };
            let answer = match *request {
                Request::Get => server.answer(&id, "get", None, &mut log),
                Request::Create(record) => {
                    let mut lease = json!({"rv": "", "spec": spec(&record)});
                    self.label(&mut lease);
                    server.answer(&id, "create", Some(lease), &mut log)
                }
                Request::Update(record, lease) => {
                    let mut lease: Value = serde_json::from_str(&lease.object).unwrap();
                    lease["spec"] = spec(&record);
                    self.label(&mut lease);
                    server.answer(&id, "update", Some(lease), &mut log)
                }
            };
            let answer = answer.map(lease).map_err(|error| {
                let mut status = Status::default();
                status.code = if error == "not_found" { 404 } else { 500 };
                Error::from_status(status)
            });
            match self.steps.answer(now, now, answer.as_ref()) {
                Event::Continued | Event::Slow => {}
                Event::Acquired(_) | Event::Renewed => return (true, log),
                Event::Failed | Event::Lost => return (false, log),
                Event::Released => return (answer.is_ok(), log),
            }
        }
    }

    /// client-go's `Check`. [`LeaderElector::health`] differs from it (LE14).
    fn is_healthy(&self, now: Duration, tolerance: Duration) -> bool {
        let limit = times(&self.config).lease_duration + tolerance;
        let (_, at) = self.steps.observed();
        let age = self.now(now).elapsed - at.unwrap_or_default();
        !self.steps.is_holder() || age <= limit
    }

    fn shown(&self) -> Value {
        let (record, at) = self.steps.observed();
        let at = at.map(|at| i64::try_from(at.as_nanos()).unwrap() - ORIGIN);
        json!({
            "is_leader": self.steps.is_holder(),
            "observed": {
                "holder": record.holder.as_deref().unwrap_or_default(), "lease_s": record.lease_duration_seconds,
                "acquire": record.acquire_time.map(micro_time), "renew": record.renew_time.map(micro_time),
                "transitions": record.transitions, "strategy": record.strategy.as_deref().unwrap_or_default(),
                "preferred": record.preferred_holder.as_deref().unwrap_or_default(),
            },
            "observed_ns": at,
        })
    }
}

/// Elapsed times are counted from so many nanoseconds before the epoch of the traces.
const ORIGIN: i64 = 1 << 60;

struct Subject {
    deviation: Option<&'static str>,
    server: Server,
    candidates: BTreeMap<String, Elector>,
}

impl Replay for Subject {
    /// Coordinated election is not supported. In run mode, the traces have the times of client-go's
    /// requests and callbacks, which the elector changes.
    fn deviates(&self, _: &Value) -> Option<&'static str> {
        self.deviation
    }

    fn step(&mut self, op: &str, step: &Value) -> Value {
        let Self {
            server, candidates, ..
        } = self;
        let elector = step["c"].as_str().filter(|_| op != "fail");
        let elector = elector.map(|id| candidates.get_mut(id).unwrap());
        match (op, elector) {
            ("try" | "release", Some(elector)) => {
                let now = elector.now(server.now);
                match op {
                    "try" => elector.steps.begin(now),
                    _ => elector.steps.release(now),
                }
                let (value, requests) = elector.run(server);
                let mut shown = elector.shown();
                shown["value"] = value.into();
                shown["requests"] = requests.into();
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
        }
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
