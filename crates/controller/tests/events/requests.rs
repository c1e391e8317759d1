//! The requests of a recorder with a client.

use std::time::{Duration, Instant};

use k8s_informer::{Client, Config};
use k8s_informer_controller::events::{EventRecorder, EventType};

use super::sink::{SOON, pod};
use crate::server::{Reply, Server, reply};

#[test]
fn requests_have_the_paths_and_types_of_the_api() {
    let path = "/apis/events.k8s.io/v1/namespaces/shop/events";
    let server = Server::start(|_| Reply::Write(reply("200 OK", "", "{}")));
    let client = Client::new(Config::new(server.url())).unwrap();
    let recorder = EventRecorder::builder(&client, "example.com/ctl")
        .build()
        .unwrap();
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    recorder.flush(SOON).unwrap();
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    recorder.flush(SOON).unwrap();
    let create = server.request();
    assert!(create.starts_with(&format!("POST {path} ")), "{create}");
    let patch = server.request();
    assert!(patch.starts_with(&format!("PATCH {path}/p.")), "{patch}");
    assert!(
        patch.contains("application/strategic-merge-patch+json"),
        "{patch}"
    );
    // Both requests use one connection.
    assert_eq!(server.accepted(), 1);
}

#[test]
fn request_to_a_hanging_server_ends_by_its_limit() {
    let server = Server::mute();
    let client = Client::new(Config::new(server.url())).unwrap();
    let recorder = EventRecorder::builder(&client, "example.com/ctl")
        .request_timeout(Duration::from_millis(20))
        .build()
        .unwrap();
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    let deadline = Instant::now() + SOON;
    while recorder.last_error().is_none() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert!(recorder.last_error().unwrap().is_timeout());
    assert_eq!(recorder.stats().pending, 1);
}

#[test]
fn shutdown_ends_a_request_that_hangs() {
    let server = Server::mute();
    let client = Client::new(Config::new(server.url())).unwrap();
    let recorder = EventRecorder::builder(&client, "example.com/ctl")
        .build()
        .unwrap();
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    server.request();
    let begin = Instant::now();
    let error = recorder.shut_down(Duration::from_millis(10)).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(5));
    let expected = "timed out after 10ms; unfinished: 1 event unsent";
    assert_eq!(error.to_string(), expected);
}
