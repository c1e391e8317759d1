use k8s_informer_controller::leader_election::Ended;
use k8s_informer_testing::FakeClock;

use super::lock::{Fault, Server};
use super::{Candidate, LIMIT, SECOND, Steps};

#[test]
fn release_empties_the_lease_and_keeps_the_transitions() {
    let (server, clock) = (Server::new(), FakeClock::new());
    for transitions in 0..3 {
        let candidate = Candidate::start(&server, &clock, "a");
        assert_eq!(candidate.leading().token().transitions, transitions);
        candidate.end().unwrap();
        let record = server.record();
        assert_eq!(
            (
                record.holder.as_deref(),
                record.lease_duration_seconds,
                record.transitions
            ),
            (None, 1, transitions)
        );
    }
}

#[test]
fn lease_is_kept_without_release() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| builder.release(false));
    candidate.leading();
    candidate.end().unwrap();
    assert_eq!(server.record().holder.as_deref(), Some("a"));
}

#[test]
fn le13_release_leaves_the_lease_of_another_holder() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    // The candidate has not seen the other holder when its work ends.
    server.edit(|lease| lease.as_mut().unwrap().record.holder = Some("other".to_owned()));
    assert!(!leading.stop().is_stopped());
    assert_eq!(candidate.end().unwrap(), Ended::Finished("work done"));
    assert_eq!(server.record().holder.as_deref(), Some("other"));
    assert_eq!(server.requests().last().unwrap().verb, "get");
}

#[test]
fn le13_release_leaves_another_term_of_the_same_identity() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    candidate.leading();
    server.edit(|lease| lease.as_mut().unwrap().record.transitions += 1);
    candidate.end().unwrap();
    assert_eq!(server.record().holder.as_deref(), Some("a"));
}

#[test]
fn le12_release_is_tried_three_times() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    candidate.leading();
    server.fail_next(Fault::Status(500));
    server.fail_next(Fault::Status(500));
    candidate.end().unwrap();
    assert_eq!(server.record().holder, None);

    let candidate = Candidate::start(&server, &clock, "b");
    candidate.leading();
    let before = server.requests().len();
    server.fail_always(Fault::Status(500));
    assert_eq!(candidate.end().unwrap(), Ended::Finished("work done"));
    assert_eq!(server.requests().len() - before, 3);
}

#[test]
fn le12_hanging_release_ends_after_the_renew_deadline() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    candidate.leading();
    Steps::after(&server, &clock, 2);
    let before = server.requests().len();
    server.fail_always(Fault::Hang);
    candidate.finish.send(()).unwrap();
    for request in 1..=2 {
        server.requests_until(|requests| requests.len() == before + request);
        clock.wait_for_waits(4 + request, LIMIT).unwrap();
        clock.advance(5 * SECOND);
    }
    assert_eq!(
        candidate.run.join().unwrap().unwrap(),
        Ended::Finished("work done")
    );
    // Two requests of half the deadline each.
    assert_eq!(server.requests().len() - before, 2);
}

#[test]
fn le12_wall_clock_does_not_end_the_release() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    candidate.leading();
    Steps::after(&server, &clock, 2);
    server.fail_next(Fault::Hang);
    candidate.finish.send(()).unwrap();
    server.requests_until(|requests| requests.len() == 3);
    clock.wait_for_waits(5, LIMIT).unwrap();
    clock.suspend(60 * SECOND);
    clock.advance(5 * SECOND);
    candidate.run.join().unwrap().unwrap();
    assert_eq!(server.record().holder, None);
}

#[test]
fn le20_work_is_stopped_before_the_release() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let candidate = Candidate::start(&server, &clock, "a");
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    server.fail_always(Fault::Hang);
    // A renewal with two requests of 5 s, and the first request of the next.
    let (requests, waits) = (server.requests().len(), clock.waits().len());
    for (advance, begun, watched) in [(2, 1, 0), (5, 2, 1), (5, 3, 1)] {
        assert!(!leading.stop().is_stopped());
        clock.advance(advance * SECOND);
        server.requests_until(|all| all.len() == requests + begun);
        clock
            .wait_for_waits(waits + begun + watched, LIMIT)
            .unwrap();
    }
    assert!(leading.stop().wait_timeout(LIMIT));
    // All requests so far are renewals: no release has begun.
    let all = server.requests();
    assert!(
        all.iter()
            .all(|request| request.verb == "get" || request.holder.as_deref() == Some("a"))
    );
    candidate.finish.send(()).unwrap();
    for begun in 4..=5 {
        server.requests_until(|all| all.len() == requests + begun);
        clock.wait_for_waits(waits + begun + 1, LIMIT).unwrap();
        clock.advance(5 * SECOND);
    }
    assert_eq!(
        candidate.run.join().unwrap().unwrap(),
        Ended::Lost("work done")
    );
}
