//! A lock in memory, which fails on request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::error::{Error, Status};
use k8s_informer::object::ObjectReference;
use k8s_informer::stop::DoneSetter;
use k8s_informer::time::Clock;
use k8s_informer_controller::leader_election::{Lease, Lock, Record};
use k8s_informer_testing::FakeClock;
use parking_lot::{Condvar, Mutex};

use super::LIMIT;

/// What happens to a request instead of the usual.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Status(u16),
    /// The request is carried out, but its response is lost.
    LostResponse,
    /// The request is carried out, but its response never arrives.
    Unanswered,
    /// The request never ends on its own.
    Hang,
    /// A read returns this Lease.
    Read(Box<Lease>),
    Panic,
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) by: String,
    pub(super) verb: &'static str,
    pub(super) holder: Option<String>,
    pub(super) at: Duration,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    requests: Vec<Arrived>,
    faults: VecDeque<Fault>,
    /// What happens to every request.
    always: Option<Fault>,
    watchers: Vec<DoneSetter>,
}

#[derive(Default)]
pub(super) struct Server {
    state: Mutex<State>,
    changed: Condvar,
}

impl Server {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until the requests satisfy a condition, and returns them.
    pub(super) fn requests_until(&self, is_met: impl Fn(&[Arrived]) -> bool) -> Vec<Arrived> {
        let deadline = Instant::now() + LIMIT;
        let mut state = self.state.lock();
        while !is_met(&state.requests) {
            let waited = self.changed.wait_until(&mut state, deadline);
            assert!(!waited.timed_out(), "{:#?}", state.requests);
        }
        state.requests.clone()
    }

    pub(super) fn requests(&self) -> Vec<Arrived> {
        self.state.lock().requests.clone()
    }

    pub(super) fn fail_next(&self, fault: Fault) {
        self.state.lock().faults.push_back(fault);
    }

    pub(super) fn fail_always(&self, fault: impl Into<Option<Fault>>) {
        self.state.lock().always = fault.into();
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.state.lock().lease.clone()
    }

    pub(super) fn record(&self) -> Record {
        self.lease().unwrap().record
    }

    /// Changes the Lease as another client, and wakes the watches.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Option<Lease>)) {
        let mut state = self.state.lock();
        state.version += 1;
        change(&mut state.lease);
        let version = state.version.to_string();
        if let Some(lease) = &mut state.lease {
            lease.resource_version = version;
        }
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        watchers.iter().for_each(DoneSetter::set);
    }

    /// Waits until a candidate watches.
    pub(super) fn wait_for_watch(&self) {
        let deadline = Instant::now() + LIMIT;
        let mut state = self.state.lock();
        while state.watchers.is_empty() {
            assert!(!self.changed.wait_until(&mut state, deadline).timed_out());
        }
    }

    fn carry_out(&self, verb: &'static str, sent: Option<(&Record, &str)>) -> Result<Lease, Error> {
        let mut state = self.state.lock();
        let version = (state.version + 1).to_string();
        let lease = match (verb, &mut state.lease, sent) {
            ("get", Some(lease), _) => return Ok(lease.clone()),
            ("create", Some(_), _) => return Err(status(409)),
            ("create", none, Some((record, _))) => {
                let mut lease = Lease::default();
                lease.uid = format!("uid-{version}");
                lease.record = record.clone();
                none.insert(lease)
            }
            ("update", Some(lease), Some((record, last))) if lease.resource_version == last => {
                lease.record = record.clone();
                lease
            }
            ("update", Some(_), _) => return Err(status(409)),
            _ => return Err(status(404)),
        };
        lease.resource_version = version;
        let lease = lease.clone();
        state.version += 1;
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        watchers.iter().for_each(DoneSetter::set);
        Ok(lease)
    }
}

pub(super) fn status(code: u16) -> Error {
    let mut status = Status::default();
    status.code = code;
    status.message = format!("status {code}");
    status.reason = match code {
        404 => "NotFound",
        403 => "Forbidden",
        409 => "Conflict",
        _ => "InternalError",
    }
    .to_owned();
    Error::from_status(status)
}

pub(super) struct TestLock {
    server: Arc<Server>,
    clock: FakeClock,
    start: Instant,
    identity: String,
}

impl TestLock {
    pub(super) fn new(server: &Arc<Server>, clock: &FakeClock, identity: &str) -> Self {
        Self {
            server: Arc::clone(server),
            clock: clock.clone(),
            start: clock.now(),
            identity: identity.to_owned(),
        }
    }

    fn request(
        &self,
        verb: &'static str,
        sent: Option<(&Record, &str)>,
        stop: &Stop,
    ) -> Result<Lease, Error> {
        let fault = {
            let mut state = self.server.state.lock();
            state.requests.push(Arrived {
                by: self.identity.clone(),
                verb,
                holder: sent.and_then(|(record, _)| record.holder.clone()),
                at: self.clock.now() - self.start,
            });
            let fault = state.faults.pop_front().or_else(|| state.always.clone());
            self.server.changed.notify_all();
            fault
        };
        match fault {
            None => self.server.carry_out(verb, sent),
            Some(Fault::Status(code)) => Err(status(code)),
            Some(Fault::LostResponse) => {
                let _ = self.server.carry_out(verb, sent);
                Err(status(500))
            }
            Some(Fault::Unanswered) => {
                let _ = self.server.carry_out(verb, sent);
                stop.wait();
                Err(Error::stopped())
            }
            Some(Fault::Hang) => {
                stop.wait();
                Err(Error::stopped())
            }
            Some(Fault::Read(lease)) => Ok(*lease),
            Some(Fault::Panic) => panic!("requested by the test"),
        }
    }
}

impl Lock for TestLock {
    fn name(&self) -> &str {
        "default/test"
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn get(&self, stop: &Stop) -> Result<Lease, Error> {
        self.request("get", None, stop)
    }

    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error> {
        self.request("create", Some((record, "")), stop)
    }

    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error> {
        self.request("update", Some((record, &last.resource_version)), stop)
    }

    fn reference(&self, lease: &Lease) -> Option<ObjectReference> {
        let mut reference = ObjectReference::default();
        reference.api_version = "coordination.k8s.io/v1".to_owned();
        reference.kind = "Lease".to_owned();
        reference.namespace = "default".to_owned();
        reference.name = "test".to_owned();
        reference.uid = lease.uid.clone();
        Some(reference)
    }

    fn watch(&self, on_free: &mut dyn FnMut(), stop: &Stop) {
        while !stop.is_stopped() {
            let changed = DoneSetter::new("the Lease has changed");
            {
                let mut state = self.server.state.lock();
                state.watchers.push(changed.clone());
                self.server.changed.notify_all();
            }
            if changed.wait_or_stop(None, stop).is_ok()
                && self
                    .server
                    .lease()
                    .is_none_or(|lease| lease.record.holder.is_none())
            {
                on_free();
            }
        }
    }
}
