use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_informer::{Stop, Stopper};
use k8s_informer_controller::leader_election::{Ended, Lease, Record};
use k8s_informer_testing::FakeClock;

use super::lock::{Fault, Server};
use super::{Candidate, LIMIT, SECOND, Steps};

fn held_by(holder: &str, seconds: i32) -> Lease {
    let mut record = Record::default();
    record.holder = Some(holder.to_owned());
    record.lease_duration_seconds = seconds;
    record.transitions = 6;
    let mut lease = Lease::default();
    lease.uid = "uid-0".to_owned();
    lease.record = record;
    lease
}

#[test]
fn first_candidate_creates_the_lease_and_leads() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    assert!(candidate.elector.is_leader());
    assert_eq!(candidate.elector.leader().as_deref(), Some("a"));
    assert_eq!(leading.token().to_string(), "uid-1/0");
    candidate
        .elector
        .wait_for_leadership(None, &Stop::never())
        .unwrap();
    let verbs: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.verb)
        .collect();
    assert_eq!(verbs, ["get", "create"]);
    assert_eq!(candidate.end().unwrap(), Ended::Finished("work done"));
}

#[test]
fn stop_before_leadership_runs_no_work() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.edit(|lease| *lease = Some(held_by("other", 15)));
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|requests| !requests.is_empty());
    candidate.stop.stop();
    assert_eq!(candidate.run.join().unwrap().unwrap(), Ended::Stopped(None));
    assert!(candidate.started.try_recv().is_err());
    assert_eq!(server.record().holder.as_deref(), Some("other"));
}

#[test]
fn stop_ends_a_hanging_acquisition() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_always(Fault::Hang);
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|requests| !requests.is_empty());
    candidate.stop.stop();
    assert_eq!(candidate.run.join().unwrap().unwrap(), Ended::Stopped(None));
}

#[test]
fn permanent_error_is_readable_and_named_by_waits() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_always(Fault::Status(403));
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|requests| !requests.is_empty());
    // The error is published before the pause.
    clock.wait_for_waits(2, LIMIT).unwrap();
    assert!(candidate.elector.last_error().unwrap().is_forbidden());
    let stop = Stopper::new();
    let error = candidate
        .elector
        .wait_for_leadership(Duration::ZERO, &stop)
        .unwrap_err();
    assert!(error.is_timed_out() && error.last_error().unwrap().is_forbidden());
    assert_eq!(
        error.to_string(),
        "timed out after 0ns waiting to lead default/test; last seen: nothing; last error: status 403 (403 Forbidden)"
    );
    stop.stop();
    assert!(
        candidate
            .elector
            .wait_for_leadership(None, &stop)
            .unwrap_err()
            .is_stopped()
    );
    // It goes on as soon as the permission is there.
    server.fail_always(None);
    clock.advance(5 * SECOND);
    candidate.leading();
    assert!(candidate.elector.last_error().is_none());
    candidate.end().unwrap();
}

#[test]
fn le3_candidate_tries_at_observed_expiry() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.edit(|lease| *lease = Some(held_by("other", 3)));
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder
            .lease_duration(20 * SECOND)
            .renew_deadline(13 * SECOND)
            .retry_period(5 * SECOND)
    });
    // The next poll would be 5 to 11 s later.
    clock.wait_for_waits(2, LIMIT).unwrap();
    assert!(clock.waits().contains(&(3 * SECOND)));
    clock.advance(3 * SECOND);
    let leading = candidate.leading();
    assert_eq!(leading.token().transitions, 7);
    candidate.end().unwrap();
}

#[test]
fn le10_observed_lease_is_valid_for_its_own_duration() {
    let (server, clock) = (Server::new(), FakeClock::new());
    // The times in the record are long over, which does not matter.
    server.edit(|lease| *lease = Some(held_by("other", 60)));
    let candidate = Candidate::start(&server, &clock, "a");
    for polls in 1..=11 {
        server.requests_until(|requests| requests.len() == polls);
        // The candidate has published the response and waits.
        clock.wait_for_waits(2 * polls, LIMIT).unwrap();
        clock.advance(5 * SECOND);
    }
    assert_eq!(server.record().holder.as_deref(), Some("other"));
    server.requests_until(|requests| requests.len() == 12);
    clock.wait_for_waits(24, LIMIT).unwrap();
    // The expiry comes before the next poll or with it.
    clock.advance(5 * SECOND);
    candidate.leading();
    candidate.end().unwrap();
}

#[test]
fn el7_watching_candidate_takes_over_without_a_poll() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let first = Candidate::start_with(&server, &clock, "a", |builder| builder.watch(false));
    first.leading();
    let second = Candidate::start(&server, &clock, "b");
    server.wait_for_watch();
    first.end().unwrap();
    // The clock has not moved, so no poll was due.
    assert_eq!(second.leading().token().transitions, 1);
    second.end().unwrap();
}

#[test]
fn candidate_without_a_watch_takes_over_at_its_poll() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let first = Candidate::start(&server, &clock, "a");
    first.leading();
    Steps::after(&server, &clock, 2);
    let second = Candidate::start_with(&server, &clock, "b", |builder| builder.watch(false));
    server.requests_until(|requests| requests.iter().any(|request| request.by == "b"));
    first.end().unwrap();
    // Two requests of the first to acquire and two to release, one of the second, and their pauses.
    let steps = Steps {
        server: &server,
        clock: &clock,
        requests: 5,
        pauses: 2,
        watches: 1,
    };
    steps.settle();
    clock.advance(5 * SECOND);
    second.leading();
    second.end().unwrap();
}

#[test]
fn el6_same_identity_starts_a_new_term() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.edit(|lease| *lease = Some(held_by("a", 15)));
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    assert_eq!(leading.token().to_string(), "uid-0/7");
    candidate.end().unwrap();
}

#[test]
fn acquisition_with_a_lost_response_is_repeated() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.edit(|lease| lease.insert(held_by("b", 1)).record.holder = None);
    server.fail_next(Fault::Read(Box::new(server.lease().unwrap())));
    server.fail_next(Fault::LostResponse);
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|requests| requests.len() >= 2);
    Steps::failed(&server, &clock, 2);
    clock.advance(5 * SECOND);
    // The Lease named this candidate already, but that was not a term.
    assert_eq!(candidate.leading().token().transitions, 8);
    candidate.end().unwrap();
}

#[test]
fn panic_of_the_lock_is_an_error() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Panic);
    let candidate = Candidate::start(&server, &clock, "a");
    clock.wait_for_waits(2, LIMIT).unwrap();
    let error = candidate.elector.last_error().unwrap();
    assert_eq!(
        error.to_string(),
        "the lock panicked: requested by the test"
    );
    clock.advance(5 * SECOND);
    candidate.leading();
    candidate.end().unwrap();
}

#[test]
fn le11_new_leaders_are_reported_in_order() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.edit(|lease| *lease = Some(held_by("other", 3)));
    let (leaders, reported) = crossbeam_channel::unbounded();
    let calls = Arc::new(AtomicUsize::new(0));
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder.on_new_leader(move |leader| {
            leaders.send(leader.map(str::to_owned)).unwrap();
            // A panic does not end the callbacks.
            assert!(
                calls.fetch_add(1, Ordering::Relaxed) > 0,
                "the first call panics"
            );
        })
    });
    assert_eq!(
        reported.recv_timeout(LIMIT).unwrap().as_deref(),
        Some("other")
    );
    Steps::failed(&server, &clock, 1);
    clock.advance(3 * SECOND);
    assert_eq!(reported.recv_timeout(LIMIT).unwrap().as_deref(), Some("a"));
    candidate.end().unwrap();
    // The candidate's own release is not reported.
    assert!(reported.recv_timeout(LIMIT).is_err());
}
