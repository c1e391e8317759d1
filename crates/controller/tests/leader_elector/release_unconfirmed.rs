//! A stop while it is unknown whether this candidate has acquired the Lease.

use k8s_informer_controller::leader_election::{Ended, Lease};
use k8s_informer_testing::FakeClock;

use super::lock::{Fault, Server};
use super::{Candidate, LIMIT, SECOND, Steps};

/// Ends a run whose work has not started, and returns the requests after the stop.
fn stop(server: &Server, candidate: Candidate) -> Vec<&'static str> {
    let before = server.requests().len();
    candidate.stop.stop();
    assert_eq!(candidate.run.join().unwrap().unwrap(), Ended::Stopped(None));
    assert!(candidate.started.try_recv().is_err());
    let requests = server.requests().split_off(before);
    requests.iter().map(|request| request.verb).collect()
}

#[test]
fn unanswered_create_is_released_on_a_stop() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Status(404));
    server.fail_next(Fault::Unanswered);
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|all| all.len() == 2);
    assert_eq!(stop(&server, candidate), ["get", "update"]);
    assert_eq!(server.record().holder, None);
}

#[test]
fn unanswered_update_is_released_on_a_stop() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.edit(|lease| *lease = Some(Lease::default()));
    server.fail_next(Fault::Read(Box::new(server.lease().unwrap())));
    server.fail_next(Fault::Unanswered);
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|all| all.len() == 2);
    assert_eq!(stop(&server, candidate), ["get", "update"]);
    assert_eq!(server.record().holder, None);
}

#[test]
fn acquisition_with_a_lost_response_is_released_on_a_stop() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Status(404));
    server.fail_next(Fault::LostResponse);
    let candidate = Candidate::start(&server, &clock, "a");
    Steps::failed(&server, &clock, 2);
    assert_eq!(stop(&server, candidate), ["get", "update"]);
    assert_eq!(server.record().holder, None);
}

#[test]
fn timed_out_acquisition_is_released_on_a_stop() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Status(404));
    server.fail_next(Fault::Unanswered);
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|all| all.len() == 2);
    clock.wait_for_waits(2, LIMIT).unwrap();
    clock.advance(5 * SECOND);
    Steps::failed(&server, &clock, 2);
    assert_eq!(stop(&server, candidate), ["get", "update"]);
    assert_eq!(server.record().holder, None);
}

#[test]
fn earlier_lost_acquisition_is_released_on_a_stop() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Status(404));
    server.fail_next(Fault::LostResponse);
    let candidate = Candidate::start(&server, &clock, "a");
    Steps::failed(&server, &clock, 2);
    // The candidate finds its own record, and its next term is not written.
    server.fail_next(Fault::Read(Box::new(server.lease().unwrap())));
    server.fail_next(Fault::Hang);
    clock.advance(5 * SECOND);
    server.requests_until(|all| all.len() == 4);
    assert_eq!(stop(&server, candidate), ["get", "update"]);
    assert_eq!(server.record().holder, None);
}

#[test]
fn write_that_was_not_carried_out_releases_nothing() {
    for holder in [None, Some("a"), Some("other")] {
        let (server, clock) = (Server::new(), FakeClock::new());
        server.edit(|lease| {
            let lease = lease.insert(Lease::default());
            lease.record.holder = holder.map(str::to_owned);
        });
        server.fail_next(Fault::Read(Box::new(server.lease().unwrap())));
        server.fail_next(Fault::Hang);
        let candidate = Candidate::start(&server, &clock, "a");
        server.requests_until(|all| all.len() == 2);
        assert_eq!(stop(&server, candidate), ["get"]);
        assert_eq!(server.record().holder.as_deref(), holder);
    }
}

#[test]
fn stop_sends_nothing_if_another_candidate_leads() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Status(404));
    server.fail_next(Fault::Status(409));
    let candidate = Candidate::start(&server, &clock, "a");
    Steps::failed(&server, &clock, 2);
    server.edit(|lease| {
        let lease = lease.insert(Lease::default());
        lease.record.holder = Some("other".to_owned());
        lease.record.lease_duration_seconds = 15;
    });
    clock.advance(5 * SECOND);
    server.requests_until(|all| all.len() == 3);
    clock.wait_for_waits(5, LIMIT).unwrap();
    assert!(stop(&server, candidate).is_empty());
}

#[test]
fn unanswered_acquisition_is_kept_without_release() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Status(404));
    server.fail_next(Fault::Unanswered);
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| builder.release(false));
    server.requests_until(|all| all.len() == 2);
    assert!(stop(&server, candidate).is_empty());
    assert_eq!(server.record().holder.as_deref(), Some("a"));
}

#[test]
fn hanging_release_of_unanswered_write_ends_after_1_second() {
    let (server, clock) = (Server::new(), FakeClock::new());
    server.fail_next(Fault::Status(404));
    server.fail_next(Fault::Unanswered);
    let candidate = Candidate::start(&server, &clock, "a");
    server.requests_until(|all| all.len() == 2);
    clock.wait_for_waits(2, LIMIT).unwrap();
    server.fail_always(Fault::Hang);
    candidate.stop.stop();
    server.requests_until(|all| all.len() == 3);
    clock.wait_for_waits(3, LIMIT).unwrap();
    clock.advance(SECOND);
    assert_eq!(candidate.run.join().unwrap().unwrap(), Ended::Stopped(None));
    assert_eq!(server.requests().len(), 3);
}
