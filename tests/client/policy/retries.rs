use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::testing::FakeClock;
use k8s_informer::{Config, Error, Stop};

use super::client_by;
use crate::client::server::{Reply, SOON, Server, reply};

const BUSY: &str = "429 Too Many Requests";

fn busy(times: usize, status: &'static str, headers: &'static str, body: &'static str) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        so_far if so_far < times => Reply::Write(reply(status, headers, body)),
        _ => Reply::Write(reply("200 OK", "", "{}")),
    })
}

/// Sends a request with a clock that ends each wait at once. Returns the requested waits.
fn send(server: &Server, request: Request) -> (Result<(), Error>, Vec<Duration>) {
    let clock = FakeClock::new();
    let client = client_by(&clock, server);
    let done = Stop::new();
    let turning = thread::spawn({
        let (clock, done) = (clock.clone(), done.clone());
        move || {
            for waits in 1.. {
                while !clock.until_waits(waits, Duration::from_millis(10)) {
                    if done.is_stopped() {
                        return;
                    }
                }
                clock.advance(*clock.waits().last().unwrap());
            }
        }
    });
    let result = client
        .request(&request, &Stop::new())
        .and_then(|response| response.bytes().map(drop));
    done.stop();
    turning.join().unwrap();
    (result, clock.waits())
}

#[test]
fn a_busy_server_is_asked_again_when_it_says_with_the_same_body() {
    for (status, headers) in [
        (BUSY, "Retry-After: 1\r\n"),
        ("500 Oops", "Retry-After: 1\r\n"),
        ("503 Busy", "retry-after:  1 \r\n"),
        ("504 Late", "Retry-After: 1\r\n"),
    ] {
        for request in [
            Request::get("/p"),
            Request::post("/p").body("body"),
            Request::put("/p").body("body"),
            Request::patch("/p")
                .body("body")
                .content_type("application/merge-patch+json"),
            Request::delete("/p").body("body"),
        ] {
            let server = busy(2, status, headers, "");
            let (result, waits) = send(&server, request);
            result.unwrap();
            assert_eq!(waits, [Duration::from_secs(1); 2], "{status}");
            let first = server.request();
            assert_eq!(
                [server.request(), server.request()],
                [first.clone(), first],
                "{status}"
            );
            assert_eq!(server.accepted(), 1, "on the same connection");
        }
    }
}

#[test]
fn what_does_not_ask_for_it_is_not_sent_again() {
    let status = r#"{"kind": "Status", "code": 409, "details": {"retryAfterSeconds": 1}}"#;
    for (code, headers, body) in [
        (BUSY, "", ""),
        (BUSY, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n", ""),
        (BUSY, "Retry-After: -1\r\n", ""),
        ("500 Oops", "", ""),
        ("409 Conflict", "Retry-After: 1\r\n", status),
        ("301 There", "Retry-After: 1\r\nLocation: /there\r\n", ""),
    ] {
        let server = busy(1, code, headers, body);
        let (result, waits) = send(&server, Request::get("/"));
        assert!(
            result.is_err() && waits.is_empty(),
            "{code} {headers}: {waits:?}"
        );
    }
}

#[test]
fn the_details_of_a_status_say_when_where_no_header_does() {
    let body = r#"{"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 2}}"#;
    let (result, waits) = send(&busy(1, BUSY, "", body), Request::get("/"));
    result.unwrap();
    assert_eq!(waits, [Duration::from_secs(2)]);
    let (result, waits) = send(
        &busy(1, BUSY, "Retry-After: 3\r\n", body),
        Request::get("/"),
    );
    result.unwrap();
    assert_eq!(waits, [Duration::from_secs(3)]);
}

#[test]
fn it_is_asked_ten_times_more_or_as_often_as_wanted() {
    assert_eq!(Request::DEFAULT_RETRIES, 10);
    for (request, retries) in [
        (Request::get("/"), 10),
        (Request::get("/").retries(3), 3),
        (Request::get("/").retries(0), 0),
    ] {
        let server = busy(usize::MAX, BUSY, "Retry-After: 0\r\n", "still busy");
        let (result, waits) = send(&server, request);
        let error = result.unwrap_err();
        assert!(
            error.is_too_many_requests() && error.to_string().ends_with("still busy (429)"),
            "{error}"
        );
        assert_eq!(
            waits,
            vec![Duration::ZERO; retries],
            "at once, if it says so"
        );
        for _ in 0..=retries {
            server.request();
        }
        assert_eq!(server.accepted(), 1);
    }
}

#[test]
fn a_wait_that_is_longer_than_an_answer_may_take_is_the_callers() {
    let server = busy(1, BUSY, "Retry-After: 6\r\n", "");
    let (result, waits) = send(&server, Request::get("/"));
    assert_eq!(
        result.unwrap_err().retry_after(),
        Some(Duration::from_secs(6))
    );
    assert!(waits.is_empty());
    for request in [
        Request::get("/").response_timeout(Duration::from_secs(6)),
        Request::get("/").response_timeout(None),
    ] {
        let (result, waits) = send(&busy(1, BUSY, "Retry-After: 6\r\n", ""), request);
        result.unwrap();
        assert_eq!(waits, [Duration::from_secs(6)]);
    }
    let (result, waits) = send(
        &busy(1, BUSY, "Retry-After: 18446744073709551615\r\n", ""),
        Request::get("/"),
    );
    assert!(result.unwrap_err().is_too_many_requests() && waits.is_empty());
}

#[test]
fn a_stop_ends_the_wait() {
    let server = busy(usize::MAX, BUSY, "Retry-After: 1\r\n", "");
    let clock = FakeClock::new();
    let client = client_by(&clock, &server);
    let stop = Stop::new();
    let waiting = thread::spawn({
        let stop = stop.clone();
        move || client.request(&Request::get("/"), &stop).unwrap_err()
    });
    assert!(clock.until_waits(1, SOON));
    stop.stop();
    let error = waiting.join().unwrap();
    assert!(error.is_stopped(), "{error:?}");
    server.request();
    // With the real clock, a stop also ends the wait.
    let server = busy(usize::MAX, BUSY, "Retry-After: 60\r\n", "");
    let client = k8s_informer::Client::new(Config::new(server.url())).unwrap();
    let stop = Stop::new();
    let waiting = thread::spawn({
        let stop = stop.clone();
        move || client.request(&Request::get("/"), &stop).unwrap_err()
    });
    server.request();
    stop.stop();
    assert!(waiting.join().unwrap().is_stopped());
}
