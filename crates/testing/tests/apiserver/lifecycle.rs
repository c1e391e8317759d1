//! Start, pause, resume and drop: ports, threads and connections.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_informer_testing::{ApiServer, Fault};
use serde_json::json;

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, TIMEOUT};

#[test]
fn paused_server_refuses_resumed_server_keeps_state() {
    let server = ApiServer::start().unwrap();
    let url = server.url();
    let mut watch = Client::watch(&server, &format!("{CONFIGMAPS}?watch=true"));
    let mut idle = Client::connect(&server);
    assert_eq!(idle.get(CONFIGMAPS).status, 200);
    server.pause();
    server.pause();
    watch.assert_closed();
    idle.assert_closed();
    assert_eq!((server.open_watches(), server.open_connections()), (0, 0));
    assert_eq!(
        TcpStream::connect(server.address()).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );

    let version = server.resource_version();
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": "meanwhile" } }))
        .unwrap();
    server.resume().unwrap();
    server.resume().unwrap();
    assert_eq!(server.url(), url);
    let mut watch = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion={version}"),
    );
    assert_eq!(watch.event(), "ADDED meanwhile 5");
    for _ in 0..20 {
        server.pause();
        server.resume().unwrap();
        assert_eq!(Client::connect(&server).get(CONFIGMAPS).status, 200);
    }
}

/// All threads of the server share the condition of the fault, which holds a reference to `alive`.
/// When only the test's reference is left, all threads have ended.
#[test]
fn drop_ends_all_server_threads_at_once() {
    let server = ApiServer::start().unwrap();
    let alive = Arc::new(());
    let held = alive.clone();
    server.fail_next(
        Fault::close()
            .when(move |_| Arc::strong_count(&held) == 0)
            .always(),
    );
    let big = json!({ "metadata": { "name": "big" }, "data": { "x": "y".repeat(1 << 20) } });
    server.create(CONFIGMAPS, big).unwrap();

    let silent = Client::connect(&server);
    let mut half = Client::connect(&server);
    half.write(b"GET / HT");
    let mut idle = Client::connect(&server);
    assert_eq!(idle.get("/livez").status, 200);
    let watch = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=5"),
    );
    // This client does not read, so the server blocks in the middle of a write.
    let mut stuck = Client::connect(&server);
    for _ in 0..32 {
        stuck.send("GET", CONFIGMAPS, &[], "");
    }
    let mut first = [0; 1];
    stuck.0.read_exact(&mut first).unwrap();
    let stuck_watch = Client::watch(&server, &format!("{CONFIGMAPS}?watch=true"));
    for value in 0..32 {
        server
            .patch(
                &format!("{CONFIGMAPS}/big"),
                json!({ "data": { "v": value.to_string() } }),
            )
            .unwrap();
    }
    server.wait_for_watches(2, TIMEOUT).unwrap();
    assert_eq!(Arc::strong_count(&alive), 2);

    let start = Instant::now();
    drop(server);
    let took = start.elapsed();
    assert_eq!(Arc::strong_count(&alive), 1, "a thread is still running");
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop((silent, half, idle, watch, stuck, stuck_watch));
}

#[test]
fn servers_do_not_share_ports_or_objects() {
    let (one, two) = (ApiServer::start().unwrap(), ApiServer::start().unwrap());
    assert_ne!(one.url(), two.url());
    one.create(CONFIGMAPS, json!({ "metadata": { "name": "a" } }))
        .unwrap();
    assert_eq!(two.get(&format!("{CONFIGMAPS}/a")).unwrap_err().code(), 404);
    assert_eq!(Client::connect(&one).get(CONFIGMAPS).names(), ["a"]);
    assert!(Client::connect(&two).get(CONFIGMAPS).names().is_empty());
}

#[test]
fn requested_port_is_used_and_freed_on_drop() {
    let port = ApiServer::start().unwrap().address().port();
    let server = ApiServer::builder().port(port).start().unwrap();
    assert_eq!(server.url(), format!("http://127.0.0.1:{port}"));
    let taken = ApiServer::builder().port(port).start().unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

#[test]
fn closed_connections_are_not_counted() {
    let server = ApiServer::start().unwrap();
    for _ in 0..50 {
        let mut client = Client::connect(&server);
        client.write(b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    let mut client = Client::connect(&server);
    assert_eq!(client.get("/livez").status, 200);
    assert!(server.open_connections() < 50);
}
