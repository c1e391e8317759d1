//! Faults, tokens and the log of requests.

use std::time::Duration;

use k8s_informer_testing::{ApiServer, Fault, Verb};
use serde_json::json;

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, PODS, TIMEOUT};

#[test]
fn fault_hits_matching_requests_given_number_of_times() {
    let server = ApiServer::start().unwrap();
    server.fail_next(Fault::status(403).on(Verb::List).resource("pods").times(2));
    server.fail_next(Fault::status(429).header("Retry-After", "7"));
    let mut client = Client::connect(&server);
    assert_eq!(client.get(PODS).status, 403);
    let throttled = client.get(CONFIGMAPS);
    assert_eq!(
        (throttled.status, throttled.header("retry-after")),
        (429, Some("7"))
    );
    assert_eq!(throttled.json()["reason"], "TooManyRequests");
    assert_eq!(client.get(CONFIGMAPS).status, 200);
    assert_eq!(
        client.get(&format!("{PODS}/p")).status,
        404,
        "the fault does not match another verb"
    );
    assert_eq!(server.pending_faults(), 1);
    assert_eq!(client.get(PODS).status, 403);
    assert_eq!(client.get(PODS).status, 200);
    assert_eq!(server.pending_faults(), 0);
}

#[test]
fn fault_response_matcher_and_repetition_are_configurable() {
    let server = ApiServer::start().unwrap();
    server.fail_next(
        Fault::response(500, "text/plain", "sorry")
            .when(|request| request.param("limit").is_some())
            .always(),
    );
    let mut client = Client::connect(&server);
    for _ in 0..3 {
        let sorry = client.get(&format!("{CONFIGMAPS}?limit=5"));
        assert_eq!((sorry.status, &*sorry.body), (500, &b"sorry"[..]));
        assert_eq!(client.get(CONFIGMAPS).status, 200);
    }
    server.clear_faults();
    assert_eq!(client.get(&format!("{CONFIGMAPS}?limit=5")).status, 200);
    server.fail_next(Fault::status_with_message(410, "gone for good").on(Verb::Watch));
    assert_eq!(
        client.get(&format!("{CONFIGMAPS}?watch=true")).json()["message"],
        "gone for good"
    );
}

#[test]
fn close_fault_closes_connection_without_response() {
    let server = ApiServer::start().unwrap();
    server.fail_next(Fault::close());
    let mut client = Client::connect(&server);
    client.send("GET", CONFIGMAPS, &[], "");
    client.assert_closed();
    assert_eq!(Client::connect(&server).get(CONFIGMAPS).status, 200);
}

#[test]
fn queued_faults_form_a_script_with_skips() {
    let server = ApiServer::start().unwrap();
    for code in [500, 503, 504] {
        server.fail_next(Fault::status(code).on(Verb::List));
    }
    server.fail_next(Fault::status(403).on(Verb::List).skip(2).times(2));
    let mut client = Client::connect(&server);
    let statuses: Vec<u16> = (0..8).map(|_| client.get(CONFIGMAPS).status).collect();
    assert_eq!(statuses, [500, 503, 504, 200, 200, 403, 403, 200]);
    assert_eq!(server.pending_faults(), 0);
}

#[test]
fn retry_after_is_in_the_header_and_the_status() {
    let server = ApiServer::start().unwrap();
    server.fail_next(Fault::status(429).retry_after(7).header("X-Other", "1"));
    server.fail_next(Fault::response(503, "text/plain", "busy").retry_after(8));
    let mut client = Client::connect(&server);
    let throttled = client.get(CONFIGMAPS);
    assert_eq!(
        (throttled.header("retry-after"), throttled.header("x-other")),
        (Some("7"), Some("1"))
    );
    assert_eq!(
        throttled.json()["details"],
        json!({ "retryAfterSeconds": 7 })
    );
    let busy = client.get(CONFIGMAPS);
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("8")));
}

#[test]
fn replaced_tokens_are_rejected_with_401() {
    let server = ApiServer::builder().token("old").start().unwrap();
    let mut client = Client::connect(&server);
    let mut status = |authorization: &str| {
        let headers = [("Authorization".to_owned(), authorization.to_owned())];
        client.send("GET", CONFIGMAPS, &headers, "");
        client.response().status
    };
    assert_eq!(
        (
            status("Bearer old"),
            status("bearer old"),
            status("Bearer new")
        ),
        (200, 200, 401)
    );
    server.set_tokens(["new"]);
    assert_eq!(
        (
            status("Bearer old"),
            status("Bearer new"),
            status("Basic eDp5")
        ),
        (401, 200, 403)
    );
    let mut client = Client::connect(&server);
    assert_eq!(client.get("/readyz").status, 200);
    assert_eq!(client.get("/nowhere").status, 403);
    assert_eq!(
        client.get("/api/v1/pods").json()["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
    );
}

#[test]
fn requests_are_recorded_and_can_be_awaited() {
    let server = ApiServer::start().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(&server);
            client.get(&format!("{PODS}?limit=5&labelSelector=a%3Db"));
            client.json("POST", CONFIGMAPS, &json!({ "metadata": { "name": "a" } }));
            client.get("/nowhere");
        });
        server
            .wait_for_requests(|all| all.len() == 3, TIMEOUT)
            .unwrap();
    });
    let requests = server.requests();
    let verbs: Vec<_> = requests
        .iter()
        .map(|r| (r.verb(), r.method(), r.resource()))
        .collect();
    assert_eq!(
        verbs,
        [
            (Verb::List, "GET", Some("pods")),
            (Verb::Create, "POST", Some("configmaps")),
            (Verb::Other, "GET", None)
        ]
    );
    assert_eq!(
        (requests[0].path(), requests[0].param("labelSelector")),
        (PODS, Some("a=b"))
    );
    assert_eq!(requests[0].header("HOST"), Some("localhost"));
    assert_eq!(
        format!("{:?}", requests[0]),
        format!("GET {PODS}?limit=5&labelSelector=a=b")
    );
    let missing = server.wait_for_requests(|all| all.len() == 4, Duration::from_millis(1));
    assert!(missing.unwrap_err().is_timed_out());
    server.clear_requests();
    assert!(server.requests().is_empty());
}
