use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::{Config, Error, Stop, Stopper};
use k8s_informer_testing::FakeClock;

use super::client_with_clock;
use crate::client::server::{Reply, SOON, Server, reply};

const BUSY: &str = "429 Too Many Requests";

fn busy(times: usize, status: &'static str, headers: &'static str, body: &'static str) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        so_far if so_far < times => Reply::Write(reply(status, headers, body)),
        _ => Reply::Write(reply("200 OK", "", "{}")),
    })
}

/// Sends a request with a clock that ends each wait at once. Returns the result and the requested
/// waits.
fn send(server: &Server, request: Request) -> (Result<(), Error>, Vec<Duration>) {
    let clock = FakeClock::new();
    let client = client_with_clock(&clock, server);
    let done = Stopper::new();
    let advancing = thread::spawn({
        let (clock, done) = (clock.clone(), done.clone());
        move || {
            for waits in 1.. {
                while clock
                    .wait_for_waits(waits, Duration::from_millis(10))
                    .is_err()
                {
                    if done.is_stopped() {
                        return;
                    }
                }
                clock.advance(*clock.waits().last().unwrap());
            }
        }
    });
    let result = client
        .request(&request, &Stop::never())
        .and_then(|response| response.bytes().map(drop));
    done.stop();
    advancing.join().unwrap();
    (result, clock.waits())
}

#[test]
fn request_is_retried_after_retry_after_with_same_body() {
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
            assert_eq!(server.accepted(), 1, "retries must reuse the connection");
        }
    }
}

#[test]
fn response_without_usable_retry_after_is_not_retried() {
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
fn request_with_any_time_limit_waits_at_most_ten_minutes() {
    let unlimited = || Request::get("/").response_timeout(None);
    let (result, waits) = send(&busy(1, BUSY, "Retry-After: 600\r\n", ""), unlimited());
    result.unwrap();
    assert_eq!(waits, [Duration::from_secs(600)]);
    let day = || Request::get("/").response_timeout(Duration::from_secs(86_400));
    for header in ["Retry-After: 601\r\n", "Retry-After: 4294967295\r\n"] {
        for request in [unlimited(), day()] {
            let (result, waits) = send(&busy(1, BUSY, header, ""), request);
            assert!(result.unwrap_err().is_too_many_requests() && waits.is_empty());
        }
    }
}

#[test]
fn status_retry_after_applies_without_header() {
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
fn request_is_retried_ten_times_or_as_configured() {
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
            "retries must obey `Retry-After: 0`"
        );
        for _ in 0..=retries {
            server.request();
        }
        assert_eq!(server.accepted(), 1);
    }
}

#[test]
fn retry_after_beyond_response_timeout_is_returned() {
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
fn stop_ends_retry_wait() {
    let server = busy(usize::MAX, BUSY, "Retry-After: 1\r\n", "");
    let clock = FakeClock::new();
    let client = client_with_clock(&clock, &server);
    let stop = Stopper::new();
    let waiting = thread::spawn({
        let stop = stop.clone();
        move || client.request(&Request::get("/"), &stop).unwrap_err()
    });
    clock.wait_for_waits(1, SOON).unwrap();
    stop.stop();
    let error = waiting.join().unwrap();
    assert!(error.is_stopped(), "{error:?}");
    server.request();
    // With the real clock, a stop also ends the wait.
    let server = busy(usize::MAX, BUSY, "Retry-After: 60\r\n", "");
    let client = k8s_informer::Client::new(Config::new(server.url())).unwrap();
    let stop = Stopper::new();
    let waiting = thread::spawn({
        let stop = stop.clone();
        move || client.request(&Request::get("/"), &stop).unwrap_err()
    });
    server.request();
    stop.stop();
    assert!(waiting.join().unwrap().is_stopped());
}
