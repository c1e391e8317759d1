use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::metrics::ClientMetrics;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::time::RateLimit;
use k8s_informer::{Client, Config, Stop};
use k8s_informer_testing::FakeClock;

use crate::client::server::{Reply, SOON, Server, reply};

/// The recorded metrics, one line each, without the host.
#[derive(Default)]
struct RecordedMetrics {
    lines: Mutex<Vec<String>>,
    host: String,
    panics: bool,
}

impl RecordedMetrics {
    fn of(server: &Server) -> Arc<Self> {
        Arc::new(Self {
            host: server.address.to_string(),
            ..Self::default()
        })
    }

    fn record(&self, line: String, host: &str) {
        assert_eq!(host, self.host);
        self.lines.lock().unwrap().push(line);
        assert!(!self.panics, "these metrics are broken");
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

impl ClientMetrics for RecordedMetrics {
    fn request(&self, code: &str, method: &str, host: &str) {
        self.record(format!("{method} {code}"), host);
    }

    fn request_retry(&self, code: &str, method: &str, host: &str) {
        self.record(format!("{method} {code} again"), host);
    }

    fn request_duration(&self, method: &str, host: &str, duration: Duration) {
        self.record(format!("{method} {duration:?}"), host);
    }

    fn request_size(&self, method: &str, host: &str, bytes: u64) {
        self.record(format!("{method} sent {bytes}"), host);
    }

    fn response_size(&self, method: &str, host: &str, bytes: u64) {
        self.record(format!("{method} got {bytes}"), host);
    }

    fn rate_limiter_duration(&self, method: &str, host: &str, duration: Duration) {
        self.record(format!("{method} waited {duration:?}"), host);
    }
}

fn client(server: &Server, recorded: &Arc<RecordedMetrics>, clock: &FakeClock) -> Client {
    let config = Config::new(server.url())
        .metrics(recorded.clone())
        .clock(Arc::new(clock.clone()));
    Client::new(config.response_timeout(SOON)).unwrap()
}

#[test]
fn request_metrics_are_recorded_when_sent_and_when_read() {
    let server = Server::answering("{\"a\": 1}");
    let (recorded, clock) = (RecordedMetrics::of(&server), FakeClock::new());
    let client = client(&server, &recorded, &clock);
    let response = client
        .request(&Request::post("/").body("body"), &Stop::never())
        .unwrap();
    assert_eq!(recorded.take(), ["POST sent 4", "POST 200"]);
    clock.advance(Duration::from_secs(3));
    response.bytes().unwrap();
    assert_eq!(recorded.take(), ["POST 3s", "POST got 8"]);
    // One response is dropped before anything is read, the other after a part is read.
    drop(client.request(&Request::get("/"), &Stop::never()).unwrap());
    assert_eq!(recorded.take(), ["GET sent 0", "GET 200", "GET 0ns"]);
    let mut body = client
        .request(&Request::get("/"), &Stop::never())
        .unwrap()
        .into_body();
    body.read_exact(&mut [0; 3]).unwrap();
    drop(body);
    assert_eq!(
        recorded.take(),
        ["GET sent 0", "GET 200", "GET 0ns", "GET got 3"]
    );
}

#[test]
fn failed_requests_are_counted_by_code_or_as_error() {
    let server = Server::start(|request| match request {
        request if request.starts_with("PUT") => Reply::WriteAndClose(b"SSH-2.0\r\n\r\n".to_vec()),
        _ => Reply::Write(reply("404 No", "", "nothing")),
    });
    let (recorded, clock) = (RecordedMetrics::of(&server), FakeClock::new());
    let client = client(&server, &recorded, &clock);
    client
        .request(&Request::get("/"), &Stop::never())
        .unwrap_err();
    assert_eq!(
        recorded.take(),
        ["GET sent 0", "GET 404", "GET 0ns", "GET got 7"]
    );
    client
        .request(&Request::put("/"), &Stop::never())
        .unwrap_err();
    assert_eq!(recorded.take(), ["PUT sent 0", "PUT <error>", "PUT 0ns"]);
}

#[test]
fn retried_request_counts_twice_with_total_latency() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Write(reply("429 Slow", "Retry-After: 2\r\n", "slower")),
        _ => Reply::Write(reply("200 OK", "", "{}")),
    });
    let (recorded, clock) = (RecordedMetrics::of(&server), FakeClock::new());
    let client = client(&server, &recorded, &clock);
    let waiting = thread::spawn(move || {
        client
            .request(&Request::delete("/"), &Stop::never())
            .unwrap()
            .bytes()
            .unwrap();
    });
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(Duration::from_secs(2));
    waiting.join().unwrap();
    assert_eq!(
        recorded.take(),
        [
            "DELETE sent 0",
            "DELETE 429",
            "DELETE sent 0",
            "DELETE 200",
            "DELETE 200 again",
            "DELETE 2s",
            "DELETE got 2"
        ]
    );
}

#[test]
fn watch_records_only_its_status_code() {
    let server = Server::answering("{}");
    let (recorded, clock) = (RecordedMetrics::of(&server), FakeClock::new());
    let pods = client(&server, &recorded, &clock)
        .lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
    pods.watch(&ListOptions::default(), &Stop::never())
        .unwrap()
        .read_to_end(&mut Vec::new())
        .unwrap();
    assert_eq!(recorded.take(), ["GET 200"]);
    pods.list(&ListOptions::default(), &Stop::never())
        .unwrap()
        .read_to_end(&mut Vec::new())
        .unwrap();
    assert_eq!(
        recorded.take(),
        ["GET sent 0", "GET 200", "GET 0ns", "GET got 2"]
    );
}

#[test]
fn rate_limit_wait_is_recorded_for_each_request() {
    let server = Server::answering("{}");
    let (recorded, clock) = (RecordedMetrics::of(&server), FakeClock::new());
    let config = Config::new(server.url())
        .metrics(recorded.clone())
        .clock(Arc::new(clock.clone()));
    let client = Client::new(config.rate_limit(RateLimit::per_second(4.0).burst(1))).unwrap();
    client
        .request(&Request::get("/"), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
    assert_eq!(recorded.take()[0], "GET waited 0ns");
    let waiting = thread::spawn(move || {
        client
            .request(&Request::get("/"), &Stop::never())
            .unwrap()
            .bytes()
            .unwrap();
    });
    clock.wait_for_waits(1, SOON).unwrap();
    clock.advance(Duration::from_millis(250));
    waiting.join().unwrap();
    assert_eq!(
        recorded.take(),
        [
            "GET waited 250ms",
            "GET sent 0",
            "GET 200",
            "GET 250ms",
            "GET got 2"
        ]
    );
}

#[test]
fn metrics_panic_does_not_fail_the_request() {
    let server = Server::answering("{}");
    let recorded = Arc::new(RecordedMetrics {
        host: server.address.to_string(),
        panics: true,
        ..RecordedMetrics::default()
    });
    let client = client(&server, &recorded, &FakeClock::new());
    for _ in 0..2 {
        client
            .request(&Request::get("/"), &Stop::never())
            .unwrap()
            .bytes()
            .unwrap();
        assert_eq!(recorded.take().len(), 4);
    }
    assert_eq!(server.accepted(), 1);
}
