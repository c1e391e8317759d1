//! `ensure` and `health`.

use std::sync::{Arc, OnceLock};

use k8s_informer::{Error, Stop};
use k8s_informer_controller::leader_election::{
    Ended, LeaderElectionOptions, LeaderElector, Lease, Lock, Record,
};
use k8s_informer_testing::FakeClock;

use super::lock::{Fault, Server, TestLock};
use super::{Candidate, LIMIT, SECOND, Steps};

#[test]
fn ensure_fails_from_the_renew_deadline_until_a_renewal() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    server.fail_always(Fault::Hang);
    clock.advance(10 * SECOND - SECOND / 1000);
    leading.ensure().unwrap();
    clock.advance(SECOND / 1000);
    let error = leading.ensure().unwrap_err();
    assert!(error.is_not_leading() && !error.is_term_ended());
    assert_eq!(
        error.to_string(),
        "leader election default/test: not certainly the leader: the last renewal is 10s old, the limit is 10s"
    );
    assert!(!candidate.elector.is_leader());
    assert!(!leading.stop().is_stopped());
    server.fail_always(None);
    candidate.end().unwrap();
}

#[test]
fn validity_counts_from_the_start_of_the_request() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    let acquired = server.requests().last().unwrap().at;
    clock.advance(2 * SECOND);
    let renewed = server.requests_until(|requests| requests.len() >= 3);
    assert_eq!(renewed.last().unwrap().at, acquired + 2 * SECOND);
    server.fail_always(Fault::Status(500));
    clock.advance(10 * SECOND - SECOND / 1000);
    assert!(!leading.stop().is_stopped());
    clock.advance(SECOND / 1000);
    assert!(leading.ensure().is_err());
    candidate.end().unwrap();
}

#[test]
fn le25_suspension_invalidates_the_term() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    // The watchdog at two requests and at the start of the term, and a pause.
    clock.wait_for_waits(4, LIMIT).unwrap();
    clock.suspend(9 * SECOND);
    leading.ensure().unwrap();
    clock.advance(SECOND);
    assert!(leading.ensure().unwrap_err().is_not_leading());
    // The next renewal succeeds, because no other candidate has taken over.
    let waits = clock.waits().len();
    clock.advance(SECOND);
    // The watchdog at the request, and the next pause.
    clock.wait_for_waits(waits + 2, LIMIT).unwrap();
    leading.ensure().unwrap();
    candidate.end().unwrap();
}

#[test]
fn le25_long_suspension_ends_the_term() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    clock.suspend(60 * SECOND);
    clock.advance(2 * SECOND);
    assert!(leading.stop().wait_timeout(LIMIT));
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
}

#[test]
fn ensure_of_an_old_term_fails_in_the_next() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let first = Candidate::start(&server, &clock, "a");
    let old = first.leading();
    let elector = first.elector.clone();
    first.end().unwrap();
    elector
        .run(
            move |leading| {
                leading.ensure().unwrap();
                assert!(old.ensure().unwrap_err().is_term_ended());
            },
            &Stop::never(),
        )
        .unwrap();
}

#[test]
fn le14_health_fails_after_lease_and_tolerance() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    candidate.elector.health(SECOND).unwrap();
    server.fail_always(Fault::Status(500));
    clock.advance(16 * SECOND);
    candidate.elector.health(SECOND).unwrap();
    clock.advance(SECOND / 1000);
    let error = candidate.elector.health(SECOND).unwrap_err();
    assert!(error.to_string().starts_with(
        "leader election default/test: the leader has not renewed its Lease for 16.001s"
    ));
    assert!(leading.stop().wait_timeout(LIMIT));
    let elector = candidate.elector.clone();
    candidate.end().unwrap();
    // A candidate that does not lead is healthy.
    elector.health(SECOND).unwrap();
}

/// A lock whose name depends on its elector.
struct Reflexive {
    lock: TestLock,
    elector: Arc<OnceLock<LeaderElector>>,
}

impl Lock for Reflexive {
    fn name(&self) -> &str {
        self.elector.get().map(LeaderElector::leader);
        self.lock.name()
    }

    fn identity(&self) -> &str {
        self.lock.identity()
    }

    fn get(&self, stop: &Stop) -> Result<Lease, Error> {
        self.lock.get(stop)
    }

    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error> {
        self.lock.create(record, stop)
    }

    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error> {
        self.lock.update(record, last, stop)
    }
}

#[test]
fn lock_that_reads_its_elector_does_not_block_ensure() {
    let elector = Arc::<OnceLock<LeaderElector>>::default();
    let lock = Reflexive {
        lock: TestLock::new(&Server::new(), &FakeClock::new(), "a"),
        elector: Arc::clone(&elector),
    };
    let built = LeaderElector::new(lock, LeaderElectionOptions::new()).unwrap();
    let Ended::Finished(leading) = built.run(|leading| leading, &Stop::never()).unwrap() else {
        panic!("the work has ended first");
    };
    elector.set(built).unwrap();
    let (sender, ended) = crossbeam_channel::bounded(1);
    std::thread::spawn(move || sender.send(leading.ensure()).unwrap());
    let error = ended.recv_timeout(LIMIT).unwrap().unwrap_err();
    assert!(error.is_term_ended());
}
