//! Renewal, loss and the end of the work.

use std::sync::Arc;

use k8s_informer::Stop;
use k8s_informer_controller::leader_election::{Ended, LeaderElectionOptions, LeaderElector};
use k8s_informer_controller::metrics::LeaderElectionMetrics;
use k8s_informer_testing::FakeClock;
use parking_lot::Mutex;

use super::lock::{Fault, Server, TestLock};
use super::{Candidate, LIMIT, SECOND, Steps};
use crate::events::sink::Sink;

#[test]
fn le5_renewal_needs_one_request_and_keeps_the_term() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    candidate.leading();
    let first = server.record();
    let mut steps = Steps::after(&server, &clock, 2);
    (0..3).for_each(|_| steps.renew(1));
    let verbs: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.verb)
        .collect();
    assert_eq!(verbs, ["get", "create", "update", "update", "update"]);
    candidate.end().unwrap();
    assert_eq!(first.acquire_time, first.renew_time);
    // The release is the read and the write at the end.
    let last = server.record();
    assert_eq!((last.holder.as_deref(), last.transitions), (None, 0));
}

#[test]
fn le5_renewal_after_a_change_of_metadata_reads_first() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    // A label is set, so the version of the Lease is another.
    server.edit(|_| ());
    Steps::after(&server, &clock, 2).renew(3);
    let verbs = |requests: &[super::lock::Arrived]| {
        requests
            .iter()
            .map(|request| request.verb)
            .collect::<Vec<_>>()
    };
    let requests = server.requests();
    assert_eq!(
        verbs(&requests),
        ["get", "create", "update", "get", "update"]
    );
    leading.ensure().unwrap();
    candidate.end().unwrap();
}

#[test]
fn le4_term_is_lost_12_seconds_after_last_renewal() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    server.fail_always(Fault::Status(500));
    let mut steps = Steps::after(&server, &clock, 2);
    (0..5).for_each(|_| steps.renew(2));
    clock.advance(SECOND * 19 / 10);
    assert!(!leading.stop().is_stopped());
    clock.advance(SECOND / 10);
    assert!(leading.stop().wait_timeout(LIMIT));
    assert!(leading.ensure().unwrap_err().is_term_ended());
    assert!(!candidate.elector.is_leader());
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
}

#[test]
fn lost_lease_is_renewed_until_the_work_has_ended() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    server.fail_always(Fault::Status(500));
    let mut steps = Steps::after(&server, &clock, 2);
    (0..5).for_each(|_| steps.renew(2));
    steps.renew(2);
    assert!(leading.stop().wait_timeout(LIMIT));
    server.fail_always(None);
    let before = server.record().renew_time;
    steps.renew(1);
    steps.renew(1);
    let renewed = server.record();
    assert!(renewed.holder.as_deref() == Some("a") && renewed.renew_time > before);
    // It protects the work that is still being joined, but the term stays lost.
    assert!(leading.ensure().unwrap_err().is_term_ended());
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
    assert_eq!(server.record().holder, None);
}

#[test]
fn le19_other_holder_ends_the_term_at_once() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    server.edit(|lease| {
        let record = &mut lease.as_mut().unwrap().record;
        record.holder = Some("other".to_owned());
        record.transitions += 1;
    });
    clock.advance(2 * SECOND);
    assert!(leading.stop().wait_timeout(LIMIT));
    assert!(leading.ensure().unwrap_err().is_term_ended());
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
    assert_eq!(server.record().holder.as_deref(), Some("other"));
}

#[test]
fn le19_same_identity_in_another_term_ends_the_term() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    server.edit(|lease| lease.as_mut().unwrap().record.transitions += 1);
    clock.advance(2 * SECOND);
    assert!(leading.stop().wait_timeout(LIMIT));
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
    assert_eq!(server.record().holder.as_deref(), Some("a"));
}

#[test]
fn le19_emptied_or_deleted_lease_ends_the_term() {
    for deleted in [false, true] {
        let (server, clock) = (Server::new(), FakeClock::new());
        let candidate = Candidate::start(&server, &clock, "a");
        let leading = candidate.leading();
        Steps::after(&server, &clock, 2);
        server.edit(|lease| match deleted {
            true => *lease = None,
            false => lease.as_mut().unwrap().record.holder = None,
        });
        clock.advance(2 * SECOND);
        assert!(leading.stop().wait_timeout(LIMIT));
        assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
    }
}

#[test]
fn read_older_than_own_write_is_ignored() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    let mut stale = server.lease().unwrap();
    stale.record.holder = Some("other".to_owned());
    let mut steps = Steps::after(&server, &clock, 2);
    steps.renew(1);
    steps.renew(1);
    server.fail_next(Fault::Status(500));
    server.fail_next(Fault::Read(Box::new(stale)));
    steps.renew(2);
    assert_eq!(server.requests().last().unwrap().verb, "get");
    steps.renew(1);
    assert_eq!(server.requests().last().unwrap().verb, "update");
    leading.ensure().unwrap();
    candidate.end().unwrap();
}

#[test]
fn le2_lease_is_released_after_the_work_is_joined() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    let mut steps = Steps::after(&server, &clock, 2);
    candidate.stop.stop();
    assert!(leading.stop().is_stopped());
    // The stop starts another pause.
    steps.pauses += 1;
    steps.settle();
    // Renewing goes on, so the guard still passes.
    (0..8).for_each(|_| steps.renew(1));
    leading.ensure().unwrap();
    assert_eq!(server.record().holder.as_deref(), Some("a"));
    assert_eq!(candidate.end().unwrap(), Ended::Stopped(Some("work done")));
    assert_eq!(server.record().holder, None);
    assert!(leading.ensure().unwrap_err().is_term_ended());
}

#[test]
fn le17_request_ends_after_half_the_renew_deadline() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    server.fail_next(Fault::Hang);
    let mut steps = Steps::after(&server, &clock, 2);
    clock.advance(2 * SECOND);
    steps.requests += 1;
    steps.settle();
    clock.advance(SECOND * 49 / 10);
    steps.watches += 1;
    steps.settle();
    assert_eq!(server.requests().len(), 3);
    clock.advance(SECOND / 10);
    steps.requests += 2;
    steps.pauses += 1;
    steps.watches += 1;
    steps.settle();
    let requests = server.requests();
    let verbs: Vec<_> = requests.iter().map(|request| request.verb).collect();
    assert_eq!(verbs, ["get", "create", "update", "get", "update"]);
    leading.ensure().unwrap();
    assert_eq!(candidate.end().unwrap(), Ended::Finished("work done"));
}

#[test]
fn end_of_the_work_ends_a_hanging_renewal() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    candidate.leading();
    server.fail_next(Fault::Hang);
    Steps::after(&server, &clock, 2);
    clock.advance(2 * SECOND);
    server.requests_until(|requests| requests.len() == 3);
    assert_eq!(candidate.end().unwrap(), Ended::Finished("work done"));
    assert_eq!(server.record().holder, None);
}

#[test]
fn panic_of_the_work_releases_and_continues() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let lock = TestLock::new(&server, &clock, "a");
    let elector = LeaderElector::new(
        lock,
        LeaderElectionOptions::new().clock(Arc::new(clock.clone())),
    )
    .unwrap();
    let run =
        std::panic::AssertUnwindSafe(|| elector.run(|_| panic!("by the test"), &Stop::never()));
    let panic = std::panic::catch_unwind(run).map(drop).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"by the test"));
    assert_eq!(server.record().holder, None);
    // It can run again.
    assert_eq!(
        elector.run(|_| 7, &Stop::never()).unwrap(),
        Ended::Finished(7)
    );
    assert_eq!(server.record().transitions, 1);
}

#[test]
fn second_run_at_one_time_fails() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    candidate.leading();
    let error = candidate.elector.run(|_| (), &Stop::never()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "leader election default/test: the elector is running already; use another elector"
    );
    assert!(candidate.elector.is_leader());
    candidate.end().unwrap();
}

#[test]
fn le2_work_that_ignores_its_stop_is_reported() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder.grace_period(45 * SECOND)
    });
    let leading = candidate.leading();
    let mut steps = Steps::after(&server, &clock, 2);
    candidate.stop.stop();
    steps.pauses += 1;
    steps.settle();
    // The Lease is held for almost three times its duration.
    (0..22).for_each(|_| steps.renew(1));
    leading.ensure().unwrap();
    clock.advance(SECOND);
    let error = candidate.run.join().unwrap().unwrap_err();
    assert!(error.is_stuck());
    assert_eq!(
        error.to_string(),
        "leader election default/test: the thread \"leader default/test\" has not ended within 45s after its \
         stop; exit the process"
    );
    // The Lease is not released: it expires.
    assert_eq!(server.record().holder.as_deref(), Some("a"));
    assert!(leading.ensure().unwrap_err().is_term_ended());
    assert!(candidate.elector.health(SECOND).unwrap_err().is_stuck());
    assert!(candidate.elector.run(|_| (), &Stop::never()).is_err());
    candidate.finish.send(()).unwrap();
}

#[derive(Default)]
struct Metrics {
    leads: Mutex<Vec<bool>>,
    slow_paths: Mutex<usize>,
}

impl LeaderElectionMetrics for Metrics {
    fn is_leader(&self, is_leader: bool) {
        self.leads.lock().push(is_leader);
    }

    fn slow_path(&self) {
        *self.slow_paths.lock() += 1;
    }
}

#[test]
fn le22_metrics_report_the_end_of_a_term() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let metrics = Arc::new(Metrics::default());
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder.metrics(metrics.clone())
    });
    candidate.leading();
    assert_eq!(*metrics.leads.lock(), [false, true]);
    server.edit(|_| ());
    let mut steps = Steps::after(&server, &clock, 2);
    steps.renew(3);
    steps.renew(1);
    candidate.end().unwrap();
    assert_eq!(*metrics.leads.lock(), [false, true, false]);
    assert_eq!(*metrics.slow_paths.lock(), 1);
}

#[test]
fn le21_events_report_begin_and_end_of_a_term() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder.recorder(recorder.clone())
    });
    candidate.leading();
    recorder.flush(LIMIT).unwrap();
    let notes = || -> Vec<_> {
        let events = sink.events();
        let mut notes: Vec<_> = events
            .iter()
            .map(|event| event["note"].as_str().unwrap().to_owned())
            .collect();
        notes.sort();
        notes
    };
    assert_eq!(notes(), ["a became leader"]);
    let event = &sink.events()[0];
    assert_eq!(event["reason"], "LeaderElection");
    assert_eq!(
        (&event["regarding"]["kind"], &event["regarding"]["uid"]),
        (&"Lease".into(), &"uid-1".into())
    );
    candidate.end().unwrap();
    recorder.flush(LIMIT).unwrap();
    assert_eq!(notes(), ["a became leader", "a stopped leading"]);
}
