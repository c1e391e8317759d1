//! A stop ends a request in every phase.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::{Request, Response};
use k8s_informer::{Client, Config, Error, Stop, Stopper};

use super::server::{
    FullBacklog, IGNORE_SHUTDOWNS, Reply, SOON, Server, ServerEvent, first_chunk,
    ignores_shutdowns, listen, reply,
};

/// The longest time from a stop to its effect. This is generous for a loaded machine; it usually
/// takes far less than a millisecond.
const IMMEDIATE: Duration = Duration::from_secs(2);

/// Starts a request, waits for `phase` and stops the request.
pub(crate) fn stop_during(config: Config, phase: impl FnOnce()) -> Error {
    let client = Client::new(config).unwrap();
    let stop = Stopper::new();
    let (done, result) = channel();
    thread::spawn({
        let stop = stop.clone();
        move || {
            let outcome = client
                .request(&Request::get("/"), &stop)
                .and_then(|response| {
                    let error = response.bytes().unwrap_err();
                    Err::<(), _>(error)
                });
            done.send(outcome.unwrap_err()).unwrap();
        }
    });
    phase();
    let start = Instant::now();
    stop.stop();
    let error = result
        .recv_timeout(SOON)
        .expect("the stop did not end the request");
    assert!(start.elapsed() < IMMEDIATE, "{:?}", start.elapsed());
    assert!(error.is_stopped(), "{error:?}");
    error
}

#[test]
fn stop_before_request_sends_nothing() {
    let server = Server::answering("{}");
    let client = Client::new(Config::new(server.url())).unwrap();
    let stop = Stopper::new();
    stop.stop();
    assert!(
        client
            .request(&Request::get("/"), &stop)
            .unwrap_err()
            .is_stopped()
    );
    assert_eq!(server.accepted(), 0);
}

#[test]
fn stop_ends_connecting() {
    let Some(listener) = FullBacklog::find() else {
        return;
    };
    let error = stop_during(Config::new(format!("http://{}", listener.address)), || {
        listener.wait_for_connect();
    });
    assert!(error.to_string().ends_with(": stopped"), "{error}");
}

#[test]
fn connect_timeout_includes_tls_handshake() {
    let mute = Server::mute();
    let mut urls = vec![mute.https()];
    let listener = FullBacklog::find();
    urls.extend(
        listener
            .as_ref()
            .map(|listener| format!("http://{}", listener.address)),
    );
    for url in urls {
        let config = Config::new(url)
            .insecure_skip_tls_verify(true)
            .connect_timeout(Duration::from_millis(50));
        let error = Client::new(config)
            .unwrap()
            .request(&Request::get("/"), &Stop::never())
            .unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
    }
}

#[test]
fn stop_ends_tls_handshake() {
    let server = Server::mute();
    stop_during(
        Config::new(server.https()).insecure_skip_tls_verify(true),
        || {
            assert!(
                matches!(server.next(), ServerEvent::Request(_)),
                "expected the client hello"
            );
        },
    );
    while server.next() != ServerEvent::Closed {}
}

#[test]
fn stop_ends_sending_of_unread_body() {
    let listener = listen();
    let client = Client::new(Config::new(format!(
        "http://{}",
        listener.local_addr().unwrap()
    )))
    .unwrap();
    let stop = Stopper::new();
    thread::scope(|scope| {
        let request = Request::post("/").body(vec![b' '; 64 * 1024 * 1024]);
        let stop = &stop;
        let sender = scope.spawn(move || client.request(&request, stop));
        let (_peer, _) = listener.accept().unwrap();
        // Waits until the socket buffers are most likely full.
        stop.wait_timeout(Duration::from_millis(100));
        let start = Instant::now();
        stop.stop();
        assert!(sender.join().unwrap().unwrap_err().is_stopped());
        assert!(start.elapsed() < IMMEDIATE, "{:?}", start.elapsed());
    });
}

#[test]
fn stop_ends_wait_for_response_head() {
    let server = Server::start(|_| Reply::WriteAndHang(Vec::new()));
    stop_during(Config::new(server.url()), || drop(server.request()));
    assert_eq!(server.next(), ServerEvent::Closed);
}

#[test]
fn stop_ends_body_read() {
    let server = Server::start(|_| Reply::WriteAndHang(first_chunk("{")));
    stop_during(Config::new(server.url()), || drop(server.request()));
    assert_eq!(server.next(), ServerEvent::Closed);
}

#[test]
fn stop_ends_read_of_body_delimited_by_close() {
    // The body ends with its connection. Therefore the body looks complete when the stop closes the
    // connection, but the read must still fail.
    let server = Server::start(|_| Reply::WriteAndHang(b"HTTP/1.1 200 OK\r\n\r\n{".to_vec()));
    stop_during(Config::new(server.url()), || drop(server.request()));
}

#[test]
fn stop_ends_read_of_error_body() {
    let server = Server::start(|_| {
        Reply::WriteAndHang(b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n{".to_vec())
    });
    stop_during(Config::new(server.url()), || drop(server.request()));
}

#[test]
fn stop_ends_requests_over_tls() {
    let tls = super::tls::Authority::new().server("127.0.0.1");
    for reply in [Vec::new(), first_chunk("{")] {
        let server = Server::with_tls(Some(tls.clone()), move |_| {
            Reply::WriteAndHang(reply.clone())
        });
        let config = Config::new(server.https()).insecure_skip_tls_verify(true);
        stop_during(config, || drop(server.request()));
        assert_eq!(server.next(), ServerEvent::Closed);
    }
}

#[test]
fn stop_ends_hundred_watches_at_once() {
    let server = Server::start(|_| Reply::WriteAndHang(first_chunk("{")));
    let client = Client::new(Config::new(server.url())).unwrap();
    let stop = Stopper::new();
    let watches: Vec<_> = (0..100)
        .map(|_| {
            let mut body = client
                .request(&Request::get("/"), &stop.child())
                .unwrap()
                .into_body();
            thread::spawn(move || body.read_to_end(&mut Vec::new()))
        })
        .collect();
    let start = Instant::now();
    stop.stop();
    for watch in watches {
        watch.join().unwrap().unwrap_err();
    }
    assert!(start.elapsed() < IMMEDIATE, "{:?}", start.elapsed());
}

#[test]
fn stop_of_earlier_request_does_not_end_the_next_one() {
    let (go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let server = Server::start(move |request| {
        if request.starts_with("GET /slow") {
            wait.lock().unwrap().recv().unwrap();
        }
        Reply::Write(reply("200 OK", "", "{}"))
    });
    let client = Client::new(Config::new(server.url())).unwrap();
    let earlier = Stopper::new();
    let mut body = client
        .request(&Request::get("/"), &earlier)
        .unwrap()
        .into_body();
    body.read_to_end(&mut Vec::new()).unwrap();
    server.request();

    thread::scope(|scope| {
        let next = scope.spawn(|| {
            client
                .request(&Request::get("/slow"), &Stop::never())
                .unwrap()
                .bytes()
                .unwrap()
        });
        assert!(server.request().starts_with("GET /slow"));
        earlier.stop();
        go.send(()).unwrap();
        assert_eq!(next.join().unwrap(), b"{}");
    });
    assert_eq!(server.accepted(), 1);

    // The stop of the current request ends it.
    let stop = Stopper::new();
    thread::scope(|scope| {
        let last = scope.spawn(|| client.request(&Request::get("/slow"), &stop));
        assert!(server.request().starts_with("GET /slow"));
        stop.stop();
        assert!(last.join().unwrap().unwrap_err().is_stopped());
        go.send(()).unwrap();
    });
    assert_eq!(server.accepted(), 1);
}

#[test]
fn stops_at_any_moment_do_not_affect_other_requests() {
    let server = Server::start(|_| {
        Reply::Write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".to_vec(),
        )
    });
    let client = Client::new(Config::new(server.url())).unwrap();
    let get = |stop: &Stop| {
        client
            .request(&Request::get("/"), stop)
            .and_then(Response::bytes)
    };
    thread::scope(|scope| {
        let stopping = scope.spawn(|| {
            let mut stopped = 0;
            // With each step the stop comes later: first at the start of the request, finally after
            // its end.
            for step in 0..600_u64 {
                let stop = Stopper::new();
                thread::scope(|scope| {
                    let request = scope.spawn(|| get(&stop));
                    let until = Instant::now() + Duration::from_micros(step);
                    while Instant::now() < until && !request.is_finished() {
                        std::hint::spin_loop();
                    }
                    stop.stop();
                    match request.join().unwrap() {
                        Ok(body) => assert_eq!(body, b"{}"),
                        Err(error) => {
                            assert!(error.is_stopped(), "{error:?}");
                            stopped += 1;
                        }
                    }
                });
            }
            stopped
        });
        let mut answered = 0;
        while !stopping.is_finished() {
            assert_eq!(get(&Stop::never()).unwrap(), b"{}");
            answered += 1;
        }
        println!(
            "{} requests stopped, {answered} concurrent requests succeeded",
            stopping.join().unwrap()
        );
    });
}

/// Repeats the tests whose reads, writes or connects block, in a child process.
#[test]
fn stops_and_timeouts_work_without_shutdowns() {
    if ignores_shutdowns() {
        return;
    }
    let modules = [
        "client::stop::",
        "client::stop_anytime::",
        "client::hostile",
        "client::timeouts::",
        "client::proxy::stop",
    ];
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(modules)
        .env(IGNORE_SHUTDOWNS, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let (sender, text) = channel();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        let _ = output.read_to_string(&mut text);
        sender.send(()).unwrap();
        text
    });
    // A test that hangs would block its process.
    let ended = text.recv_timeout(12 * SOON);
    let _ = child.kill();
    let (status, text) = (child.wait().unwrap(), reader.join().unwrap());
    assert!(ended.is_ok() && status.success(), "{text}");
    for module in modules {
        let is_there = text.contains(&format!("test {module}"));
        assert!(
            is_there || cfg!(not(target_os = "linux")),
            "no test of {module}"
        );
    }
}
