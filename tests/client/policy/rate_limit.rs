use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::time::RateLimit;
use k8s_informer::{Client, Config, Stop, Stopper};
use k8s_informer_testing::FakeClock;

use super::{client_with_clock, logged};
use crate::client::server::{Reply, SOON, Server, reply};

fn limited(clock: &FakeClock, server: &Server, qps: f64, burst: usize) -> Client {
    let config = Config::new(server.url()).clock(Arc::new(clock.clone()));
    Client::new(config.rate_limit(RateLimit::per_second(qps).burst(burst))).unwrap()
}

fn get(client: &Client) {
    client
        .request(&Request::get("/path"), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
}

#[test]
fn requests_are_not_rate_limited_by_default() {
    let server = Server::answering("{}");
    let clock = FakeClock::new();
    let client = client_with_clock(&clock, &server);
    for _ in 0..100 {
        get(&client);
    }
    assert!(clock.waits().is_empty());
}

#[test]
fn requests_beyond_burst_wait_and_are_logged() {
    let server = Server::answering("{}");
    logged(&server);
    let clock = FakeClock::new();
    let client = limited(&clock, &server, 2.0, 3);
    for _ in 0..3 {
        get(&client);
    }
    assert!(clock.waits().is_empty());
    let waiting = thread::spawn({
        let client = client.clone();
        move || get(&client)
    });
    clock.wait_for_waits(1, SOON).unwrap();
    // A clone shares the limit and waits behind earlier requests.
    let another = thread::spawn({
        let client = client.clone();
        move || get(&client)
    });
    clock.wait_for_waits(2, SOON).unwrap();
    assert_eq!(clock.waits(), [500, 1000].map(Duration::from_millis));
    for _ in 0..3 {
        server.request();
    }
    clock.advance(Duration::from_millis(500));
    waiting.join().unwrap();
    clock.advance(Duration::from_millis(600));
    another.join().unwrap();
    let line = |level: &str, waited: &str| {
        format!(
            "{level} GET {}/path: waited {waited} for the client's own rate limit",
            server.url()
        )
    };
    assert_eq!(
        logged(&server),
        [line("DEBUG", "500ms"), line("INFO", "1.1s")]
    );
    clock.advance(Duration::from_secs(60));
    for _ in 0..3 {
        get(&client);
    }
    assert_eq!(clock.waits().len(), 2);
}

#[test]
fn short_rate_limit_waits_are_not_logged() {
    let server = Server::answering("{}");
    logged(&server);
    let clock = FakeClock::new();
    let client = limited(&clock, &server, 20.0, 1);
    get(&client);
    let waiting = thread::spawn(move || get(&client));
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(Duration::from_millis(50));
    waiting.join().unwrap();
    assert!(logged(&server).is_empty(), "{:?}", logged(&server));
}

#[test]
fn stop_ends_rate_limit_wait_without_sending() {
    let server = Server::answering("{}");
    let clock = FakeClock::new();
    let client = limited(&clock, &server, 1.0, 1);
    get(&client);
    let stop = Stopper::new();
    let waiting = thread::spawn({
        let (client, stop) = (client.clone(), stop.clone());
        move || client.request(&Request::get("/"), &stop).unwrap_err()
    });
    clock.wait_for_waits(1, SOON).unwrap();
    stop.stop();
    let error = waiting.join().unwrap();
    assert!(error.is_stopped(), "{error:?}");
    assert!(
        client
            .request(&Request::get("/"), &stop)
            .unwrap_err()
            .is_stopped()
    );
    assert_eq!(
        clock.waits().len(),
        1,
        "a request stopped beforehand must not wait"
    );
    server.request();
    clock.advance(Duration::from_secs(60));
    get(&client);
    assert!(server.request().starts_with("GET /path "));
}

#[test]
fn lists_watches_and_retries_count_against_limit() {
    let busy = std::sync::atomic::AtomicBool::new(true);
    let server = Server::start(move |request| {
        if request.starts_with("POST") && busy.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Reply::Write(reply("429 Slow", "Retry-After: 0\r\n", ""));
        }
        Reply::Write(reply("200 OK", "", "{}"))
    });
    let clock = FakeClock::new();
    let client = limited(&clock, &server, 1.0, 4);
    let pods = client.lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
    pods.list(&ListOptions::default(), &Stop::never()).unwrap();
    pods.watch(&ListOptions::default(), &Stop::never()).unwrap();
    client.request(&Request::post("/"), &Stop::never()).unwrap();
    let waiting = thread::spawn(move || get(&client));
    // The first wait (0 s) is for `Retry-After: 0`, the second (1 s) is for the rate limit.
    clock.wait_for_waits(2, SOON).unwrap();
    assert_eq!(clock.waits(), [0, 1].map(Duration::from_secs));
    clock.advance(Duration::from_secs(1));
    waiting.join().unwrap();
}
