//! Clients that can change something only while their candidate leads.

use std::thread::{self, JoinHandle};

use k8s_informer::{Client, Config, Error, Stop};
use k8s_informer_testing::{ApiServer, FakeClock, Fault as ServerFault, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::lock::{Fault, Server};
use super::{Candidate, LIMIT, SECOND};

fn create(client: &Client, name: &str) -> Result<(), Error> {
    let maps = client.api::<ConfigMap>(Some("default"));
    let map = json!({"metadata": {"name": name}});
    maps.create(&map, &Stop::never()).map(drop)
}

fn api_server() -> (ApiServer, Client) {
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    (server, client)
}

/// Sends a request that gets no response, and returns when the server has it.
fn hang(server: &ApiServer, gated: &Client) -> JoinHandle<Error> {
    server.fail_next(ServerFault::stall().on(Verb::Create));
    let client = gated.clone();
    let sending = thread::spawn(move || create(&client, "hangs").unwrap_err());
    let arrived = |requests: &[k8s_informer_testing::RequestRecord]| {
        requests
            .iter()
            .any(|request| request.verb() == Verb::Create)
    };
    server.wait_for_requests(arrived, LIMIT).unwrap();
    sending
}

/// Waits until the watchdog measures the term, which has just begun. A wait that began after an advance
/// of the clock would end too late. There were `before` waits before the term.
fn until_watched(clock: &FakeClock, before: usize) {
    // The watchdog at two requests and at the start of the term, and a pause.
    clock.wait_for_waits(before + 4, LIMIT).unwrap();
}

#[track_caller]
fn assert_refused(result: Result<(), Error>) {
    let error = result.unwrap_err();
    assert!(
        error.is_not_leading() && !error.is_outcome_unknown(),
        "{error:?}"
    );
}

#[test]
fn le27_gate_is_open_while_the_term_is_valid() {
    let (lease, clock) = (Server::new(), FakeClock::new());
    let (server, client) = api_server();
    lease.fail_always(Fault::Status(500));
    let candidate = Candidate::start(&lease, &clock, "a");
    let gated = candidate.elector.gate(&client);
    assert_refused(create(&gated, "before"));
    // The watchdog at a request, and a pause. The term begins with the request after the pause.
    clock.wait_for_waits(2, LIMIT).unwrap();
    lease.fail_always(None);
    clock.advance(*clock.waits().iter().max().unwrap());
    candidate.leading();
    until_watched(&clock, 2);
    create(&gated, "leads").unwrap();

    // The term may still be renewed.
    lease.fail_always(Fault::Hang);
    clock.advance(10 * SECOND);
    let doubtful = create(&gated, "doubtful").unwrap_err();
    assert!(
        doubtful.to_string().contains("not certainly the leader"),
        "{doubtful}"
    );
    assert_refused(Err(doubtful));
    assert!(
        client
            .api::<ConfigMap>(Some("default"))
            .get("leads", &Stop::never())
            .is_ok()
    );
    lease.fail_always(None);
    candidate.end().unwrap();
    assert_refused(create(&gated, "after"));
    create(&client, "ungated").unwrap();
    let maps = server
        .list("/api/v1/namespaces/default/configmaps")
        .unwrap();
    assert_eq!(maps["items"].as_array().unwrap().len(), 2);
}

#[test]
fn le27_loss_ends_requests_in_flight() {
    let (lease, clock) = (Server::new(), FakeClock::new());
    let (server, client) = api_server();
    let candidate = Candidate::start(&lease, &clock, "a");
    let leading = candidate.leading();
    until_watched(&clock, 0);
    let gated = candidate.elector.gate(&client);
    let sending = hang(&server, &gated);
    lease.fail_always(Fault::Hang);
    // In doubt, it goes on.
    clock.advance(10 * SECOND);
    assert!(leading.ensure().is_err() && !sending.is_finished());
    clock.advance(2 * SECOND);
    let error = sending.join().unwrap();
    assert!(
        error.is_not_leading() && error.is_outcome_unknown(),
        "{error:?}"
    );
    lease.fail_always(None);
    candidate.end().unwrap();
}

/// A thread of the program that is no part of the work: the next leader must not meet its request.
#[test]
fn le27_requests_end_before_the_release() {
    let (lease, clock) = (Server::new(), FakeClock::new());
    let (server, client) = api_server();
    let candidate = Candidate::start(&lease, &clock, "a");
    candidate.leading();
    let gated = candidate.elector.gate(&client);
    let sending = hang(&server, &gated);
    candidate.stop.stop();
    assert!(!sending.is_finished());
    candidate.end().unwrap();
    assert_eq!(lease.record().holder, None);
    let error = sending.join().unwrap();
    assert!(
        error.is_not_leading() && error.is_outcome_unknown(),
        "{error:?}"
    );
    assert_refused(create(&gated, "after"));
}

/// The next leader must not meet the requests of work that can't be ended.
#[test]
fn le27_requests_of_abandoned_work_end() {
    let (lease, clock) = (Server::new(), FakeClock::new());
    let (server, client) = api_server();
    let candidate = Candidate::start_with(&lease, &clock, "a", |options| {
        options.grace_period(5 * SECOND)
    });
    candidate.leading();
    let gated = candidate.elector.gate(&client);
    let sending = hang(&server, &gated);
    candidate.stop.stop();
    let is_over = || candidate.run.is_finished();
    for _ in 0..60 {
        if is_over() {
            break;
        }
        let waits = clock.waits().len();
        clock.advance(SECOND);
        drop(clock.wait_for_waits(waits + 1, SECOND / 5));
    }
    let error = sending.join().unwrap();
    assert!(
        error.is_not_leading() && error.is_outcome_unknown(),
        "{error:?}"
    );
    assert!(candidate.run.join().unwrap().unwrap_err().is_stuck());
    assert_refused(create(&gated, "after"));
}

#[test]
fn le24_elector_runs_again_with_the_same_gate() {
    let (_server, client) = api_server();
    let lease = Server::new();
    let lock = super::TestLock::new(&lease, &FakeClock::new(), "a");
    let elector = super::LeaderElector::new(lock, super::LeaderElectionOptions::new()).unwrap();
    let gated = elector.gate(&client);
    for term in 0..3 {
        let of_work = gated.clone();
        let work = move |leading: super::Leading| {
            create(&of_work, &format!("term-{term}")).unwrap();
            leading.token().transitions
        };
        let ended = elector.run(work, &Stop::never()).unwrap();
        assert_eq!(ended, super::Ended::Finished(term));
        assert_refused(create(&gated, "between"));
    }
}
