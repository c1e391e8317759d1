//! A gated client sends nothing that changes something while its gate is closed.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::{WriteObserver, WriteOutcome};
use k8s_informer::client::{Request, WriteGate};
use k8s_informer::object::{GroupVersionResource, ObjectName};
use k8s_informer::time::RateLimit;
use k8s_informer::{Client, Config, Error, Stop, Stopper};
use k8s_informer_testing::FakeClock;
use serde_json::{Value, json};

use super::server::{Reply, SOON, Server, ServerEvent, first_chunk, reply};
use super::tls::Authority;
use super::tunnels::{Kind, Tunnels};

type Refusal = Box<dyn StdError + Send + Sync>;

/// A gate that lets the first `open_for` questions pass, until it closes for good.
#[derive(Clone)]
struct Gate(Arc<State>);

struct State {
    asked: AtomicUsize,
    open_for: AtomicUsize,
    closed: Stopper,
}

impl Gate {
    fn new(open_for: usize) -> Self {
        Self(Arc::new(State {
            asked: AtomicUsize::new(0),
            open_for: AtomicUsize::new(open_for),
            closed: Stopper::new(),
        }))
    }

    fn open() -> Self {
        Self::new(usize::MAX)
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// Closes the gate for a moment.
    fn doubt(&self) {
        self.0.open_for.store(0, Ordering::SeqCst);
    }

    fn close(&self) {
        self.0.closed.stop();
    }
}

impl WriteGate for Gate {
    fn pass(&self) -> Result<Stop, Refusal> {
        let asked = self.0.asked.fetch_add(1, Ordering::SeqCst);
        if self.0.closed.is_stopped() {
            return Err("the term has ended".into());
        }
        match asked < self.0.open_for.load(Ordering::SeqCst) {
            true => Ok(self.0.closed.signal()),
            false => Err("not renewed for 11s".into()),
        }
    }
}

fn client(server: &Server) -> Client {
    Client::new(Config::new(server.url())).unwrap()
}

fn send(client: &Client, request: &Request) -> Result<Vec<u8>, Error> {
    client.request(request, &Stop::never())?.bytes()
}

#[track_caller]
fn assert_refused(error: &Error) {
    assert!(error.is_not_leading(), "{error:?}");
    assert!(
        !error.is_outcome_unknown() && !error.is_retryable(),
        "{error:?}"
    );
}

#[track_caller]
fn assert_unknown(error: &Error) {
    assert!(error.is_not_leading(), "{error:?}");
    assert!(
        error.is_outcome_unknown() && !error.is_stopped(),
        "{error:?}"
    );
}

#[test]
fn only_requests_that_change_something_are_gated() {
    let server = Server::answering("{}");
    let gate = Gate::new(0);
    let origin = client(&server);
    let gated = origin.gated(gate.clone());
    for request in [
        Request::post("/a"),
        Request::put("/a"),
        Request::patch("/a"),
        Request::delete("/a"),
    ] {
        let error = send(&gated, &request).unwrap_err();
        assert_refused(&error);
        assert!(
            error.to_string().ends_with("not sent: not renewed for 11s"),
            "{error}"
        );
        assert_eq!(error.source().unwrap().to_string(), "not renewed for 11s");
        assert!(send(&origin, &request).is_ok());
        server.request();
    }
    assert_eq!(gate.asked(), 4);
    assert!(send(&gated, &Request::get("/a")).is_ok());
    assert!(server.request().starts_with("GET /a "));
    assert_eq!(gate.asked(), 4);
    // Both use the connections of one pool.
    assert_eq!(server.accepted(), 1);
}

/// A gate that closes and opens again before it is asked for the second time.
struct NextTerm {
    asked: AtomicUsize,
    closed: Stopper,
}

impl WriteGate for NextTerm {
    fn pass(&self) -> Result<Stop, Refusal> {
        if self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
            return Ok(self.closed.signal());
        }
        self.closed.stop();
        Ok(Stop::never())
    }
}

#[test]
fn request_of_an_earlier_term_sends_no_byte() {
    let server = Server::answering("{}");
    let origin = client(&server);
    let gated = origin.gated(NextTerm {
        asked: AtomicUsize::new(0),
        closed: Stopper::new(),
    });
    let error = send(&gated, &Request::post("/a")).unwrap_err();
    assert_refused(&error);
    assert_eq!(
        error.source().unwrap().to_string(),
        "the term in which the request began has ended"
    );
    assert_eq!(server.next(), ServerEvent::Closed);
    // A request of the next term.
    assert!(send(&gated, &Request::post("/a")).is_ok());
}

/// The gate is asked above TLS and the tunnels of proxies, whose bytes are no request.
#[test]
fn refused_request_sends_no_byte() {
    let authority = Authority::new();
    let mut kinds = vec![None];
    kinds.extend(
        [
            Kind::Connect,
            Kind::ConnectOverTls(authority.server("127.0.0.1")),
            Kind::Socks,
        ]
        .map(Some),
    );
    for kind in kinds {
        for tls in [false, true] {
            let ok = |_: &str| Reply::Write(reply("200 OK", "", "{}"));
            let server = Server::with_tls(tls.then(|| authority.server("127.0.0.1")), ok);
            let url = if tls { server.https() } else { server.url() };
            let mut config = Config::new(url).ca_pem(authority.pem.clone());
            let proxy = kind.clone().map(Tunnels::new);
            if let Some(proxy) = &proxy {
                config = config.proxy_url(proxy.url());
            }
            // Open when the request begins, and not when it has its connection.
            let gate = Gate::new(1);
            let client = Client::new(config).unwrap();
            let error = send(&client.gated(gate.clone()), &Request::post("/a")).unwrap_err();
            assert_refused(&error);
            // The connection was opened before.
            assert_eq!(server.next(), ServerEvent::Closed);
            assert_eq!((gate.asked(), server.accepted()), (2, 1));
        }
    }
}

#[test]
fn gate_is_asked_after_the_rate_limit() {
    let server = Server::answering("{}");
    let clock = FakeClock::new();
    let config = Config::new(server.url()).clock(Arc::new(clock.clone()));
    let limited = config.rate_limit(RateLimit::per_second(1.0).burst(1));
    let gate = Gate::open();
    let client = Client::new(limited).unwrap().gated(gate.clone());
    send(&client, &Request::post("/a")).unwrap();
    server.request();
    let waiting = thread::spawn(move || send(&client, &Request::post("/b")).unwrap_err());
    clock.wait_for_waits(1, SOON).unwrap();
    gate.doubt();
    clock.advance(Duration::from_secs(60));
    assert_refused(&waiting.join().unwrap());
}

#[test]
fn closing_ends_a_wait_for_the_rate_limit() {
    let server = Server::answering("{}");
    let clock = FakeClock::new();
    let config = Config::new(server.url()).clock(Arc::new(clock.clone()));
    let limited = config.rate_limit(RateLimit::per_second(1.0).burst(1));
    let gate = Gate::open();
    let client = Client::new(limited).unwrap().gated(gate.clone());
    send(&client, &Request::post("/a")).unwrap();
    let waiting = thread::spawn(move || send(&client, &Request::post("/b")).unwrap_err());
    clock.wait_for_waits(1, SOON).unwrap();
    gate.close();
    assert_refused(&waiting.join().unwrap());
}

/// Each attempt is a new request for the server. One that fails may have executed the first one.
#[test]
fn gate_is_asked_before_each_attempt() {
    for (status, is_unknown) in [("429 Slow", false), ("503 Down", true)] {
        for for_good in [false, true] {
            let clock = FakeClock::new();
            let retried = move |_: &str| Reply::Write(reply(status, "Retry-After: 1\r\n", "{}"));
            let server = Server::start(retried);
            let config = Config::new(server.url()).clock(Arc::new(clock.clone()));
            let gate = Gate::open();
            let gated = Client::new(config).unwrap().gated(gate.clone());
            let sending = thread::spawn(move || send(&gated, &Request::post("/a")).unwrap_err());
            server.request();
            clock.wait_for_waits(1, SOON).unwrap();
            match for_good {
                true => gate.close(),
                false => gate.doubt(),
            }
            clock.advance(Duration::from_secs(1));
            let error = sending.join().unwrap();
            assert!(error.is_not_leading(), "{error:?}");
            assert_eq!(error.is_outcome_unknown(), is_unknown, "{error:?}");
        }
    }
}

#[test]
fn closing_ends_a_request_in_flight() {
    for received in [
        Vec::new(),
        first_chunk("{"),
        b"HTTP/1.1 200 OK\r\n\r\n{".to_vec(),
    ] {
        let gate = Gate::open();
        let server = Server::start(move |_| Reply::WriteAndHang(received.clone()));
        let gated = client(&server).gated(gate.clone());
        let sending = thread::spawn(move || send(&gated, &Request::post("/a")).unwrap_err());
        server.request();
        gate.close();
        let error = sending.join().unwrap();
        assert_unknown(&error);
        assert!(
            error
                .to_string()
                .contains("the server may have executed it"),
            "{error}"
        );
        assert_eq!(server.next(), ServerEvent::Closed);
    }
}

/// The stop of the caller is that of a call, which is set at the end of the term as well.
#[test]
fn end_of_the_term_counts_more_than_the_stop_of_the_caller() {
    let gate = Gate::open();
    let server = Server::start(|_| Reply::WriteAndHang(Vec::new()));
    let gated = client(&server).gated(gate.clone());
    let stop = Stopper::new();
    let of_request = stop.signal();
    let sending = thread::spawn(move || {
        gated
            .request(&Request::post("/a"), &of_request)
            .unwrap_err()
    });
    server.request();
    gate.close();
    stop.stop();
    assert_unknown(&sending.join().unwrap());

    // Without the end of the term, it is a stop like any other.
    let gate = Gate::open();
    let server = Server::start(|_| Reply::WriteAndHang(Vec::new()));
    let gated = client(&server).gated(gate);
    let stop = Stopper::new();
    let of_request = stop.signal();
    let sending = thread::spawn(move || {
        gated
            .request(&Request::post("/a"), &of_request)
            .unwrap_err()
    });
    server.request();
    stop.stop();
    assert!(sending.join().unwrap().is_stopped());
}

#[test]
fn doubt_ends_no_request() {
    let gate = Gate::open();
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let server = Server::start(move |_| {
        waits.lock().unwrap().recv().unwrap();
        Reply::Write(reply("200 OK", "", "{}"))
    });
    let gated = client(&server).gated(gate.clone());
    let of_thread = gated.clone();
    let sending = thread::spawn(move || send(&of_thread, &Request::post("/a")));
    server.request();
    gate.doubt();
    assert_refused(&send(&gated, &Request::post("/b")).unwrap_err());
    go_on.send(()).unwrap();
    assert_eq!(sending.join().unwrap().unwrap(), b"{}");
}

/// The result of a write must not be lost: the next call waits for its version.
#[test]
fn response_that_has_arrived_is_returned() {
    for (status, is_success) in [("200 OK", true), ("409 Conflict", false)] {
        let gate = Gate::open();
        let closes = gate.clone();
        // Closed before the client reads the response, which follows in one piece.
        let server = Server::start(move |_| Reply::Write(reply(status, "", r#"{"a": 1}"#)));
        let gated = client(&server).gated(gate);
        let response = gated.request(&Request::post("/a"), &Stop::never());
        closes.close();
        match response {
            Ok(response) => assert_eq!(response.json::<Value>().unwrap(), json!({"a": 1})),
            Err(error) => assert!(!is_success && error.is_conflict(), "{error:?}"),
        }
    }
}

#[test]
fn response_without_a_body_is_complete() {
    let gate = Gate::open();
    let server = Server::start(|_| Reply::Write(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()));
    let gated = client(&server).gated(gate.clone());
    let response = gated
        .request(&Request::delete("/a"), &Stop::never())
        .unwrap();
    gate.close();
    assert_eq!(response.bytes().unwrap(), b"");
}

/// The server has refused the request, whatever the rest of the body says.
#[test]
fn cut_error_response_is_no_definite_answer() {
    for (status, is_unknown) in [("409 Conflict", false), ("500 Broken", true)] {
        let gate = Gate::open();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n{{");
        let server = Server::start(move |_| Reply::WriteAndHang(head.clone().into_bytes()));
        let gated = client(&server).gated(gate.clone());
        let sending = thread::spawn(move || send(&gated, &Request::post("/a")).unwrap_err());
        server.request();
        gate.close();
        let error = sending.join().unwrap();
        // The head can come after the close.
        assert!(error.is_not_leading() && !error.is_conflict(), "{error:?}");
        assert!(error.is_outcome_unknown() || !is_unknown, "{error:?}");
    }
}

#[test]
fn gated_client_of_a_gated_one_has_both_gates() {
    let server = Server::answering("{}");
    let (outer, inner) = (Gate::open(), Gate::open());
    let once = client(&server).gated(outer.clone());
    let twice = once.gated(inner.clone());
    send(&twice, &Request::post("/a")).unwrap();
    inner.close();
    assert_refused(&send(&twice, &Request::post("/a")).unwrap_err());
    send(&once, &Request::post("/a")).unwrap();
    outer.doubt();
    assert_refused(&send(&once, &Request::post("/a")).unwrap_err());
}

#[derive(Default)]
struct Outcomes(Mutex<Vec<&'static str>>);

impl WriteObserver for Outcomes {
    fn before_write<'a>(
        &'a self,
        _: &GroupVersionResource,
        _: &ObjectName,
    ) -> Box<dyn FnOnce(WriteOutcome<'_>) + 'a> {
        Box::new(|outcome| {
            self.0.lock().unwrap().push(match outcome {
                WriteOutcome::Written(_) => "written",
                WriteOutcome::Unknown => "unknown",
                _ => "deleted",
            });
        })
    }
}

#[test]
fn observer_of_writes_hears_only_of_bytes_that_left() {
    let object = json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "7"}});
    let body = object.to_string();
    let gate = Gate::open();
    let closes = gate.clone();
    let server = Server::start(move |request| {
        if request.contains("hang") {
            closes.close();
            return Reply::WriteAndHang(Vec::new());
        }
        Reply::Write(reply(
            "201 Created",
            "Content-Type: application/json\r\n",
            &body,
        ))
    });
    let outcomes = Arc::new(Outcomes::default());
    let maps = GroupVersionResource::new("", "v1", "configmaps");
    let api = client(&server)
        .gated(gate.clone())
        .dynamic_api(&maps, Some("b"))
        .observed_by(outcomes.clone());
    let create = |value: &Value| api.create(value, &Stop::never()).map(drop);
    create(&object).unwrap();
    let mut hanging = object.clone();
    hanging["data"] = json!({"a": "hang"});
    assert_unknown(&create(&hanging).unwrap_err());
    assert_refused(&create(&object).unwrap_err());
    assert_eq!(*outcomes.0.lock().unwrap(), ["written", "unknown"]);
}
