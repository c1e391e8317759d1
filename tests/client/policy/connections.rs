//! A connection is reused for later requests, unless something is wrong with it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use k8s_informer::client::Request;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Stop, Stopper};

use crate::client::server::{Reply, SOON, Server, ServerEvent, first_chunk, read_request, reply};

fn client(server: &Server) -> Client {
    Client::new(Config::new(server.url()).response_timeout(SOON)).unwrap()
}

fn get(client: &Client) {
    client
        .request(&Request::get("/"), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
}

#[test]
fn connection_is_reused_after_reads_writes_and_failures() {
    let server = Server::start(|request| {
        let (first, _) = request.split_once("\r\n").unwrap();
        Reply::Write(match first.split_once(' ').unwrap().1 {
            "/api/v1/pods?watch=true HTTP/1.1" => {
                let mut stream = first_chunk("{\"type\":\"BOOKMARK\"}\n");
                stream.extend(b"0\r\n\r\n");
                stream
            }
            "/401 HTTP/1.1" => reply("401 Who", "", "who?"),
            "/500 HTTP/1.1" => reply("500 Oops", "", &"oops".repeat(10_000)),
            "/empty HTTP/1.1" => reply("403 No", "", ""),
            _ => reply("200 OK", "", "{}"),
        })
    });
    let client = client(&server);
    let stop = Stopper::new();
    let pods = client.lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
    for _ in 0..3 {
        pods.list(&ListOptions::default(), &stop)
            .unwrap()
            .read_to_end(&mut Vec::new())
            .unwrap();
        pods.watch(&ListOptions::default(), &stop)
            .unwrap()
            .read_to_end(&mut Vec::new())
            .unwrap();
        get(&client);
        client
            .request(&Request::post("/").body("body"), &stop)
            .unwrap()
            .bytes()
            .unwrap();
        client
            .request(&Request::delete("/"), &stop)
            .unwrap()
            .bytes()
            .unwrap();
        for path in ["/401", "/500", "/empty"] {
            client.request(&Request::get(path), &stop).unwrap_err();
        }
    }
    assert_eq!(server.accepted(), 1);
}

#[test]
fn connection_with_unread_or_large_body_is_not_reused() {
    let server = Server::start(|_| Reply::Write(reply("200 OK", "", "{\"a\": 1}")));
    let client = client(&server);
    // Drop the response unread. If its connection were reused, the client would take the unread
    // rest for the next response.
    drop(client.request(&Request::get("/"), &Stop::never()).unwrap());
    get(&client);
    assert_eq!(server.accepted(), 2);
    client
        .request(&Request::get("/").body_limit(2), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap_err();
    get(&client);
    assert_eq!(server.accepted(), 3);
    get(&client);
    assert_eq!(server.accepted(), 3);
}

#[test]
fn connection_close_header_prevents_reuse() {
    for headers in ["Connection: close\r\n", "connection: Close\r\n"] {
        let server = Server::start(move |_| Reply::Write(reply("200 OK", headers, "{}")));
        let client = client(&server);
        get(&client);
        get(&client);
        assert_eq!(server.accepted(), 2);
    }
}

#[test]
fn request_succeeds_if_idle_connection_was_closed() {
    let server = Server::start(|_| Reply::WriteAndClose(reply("200 OK", "", "{}")));
    let client = client(&server);
    for request in [
        Request::get("/"),
        Request::post("/"),
        Request::patch("/"),
        Request::delete("/"),
    ] {
        client
            .request(&request, &Stop::never())
            .unwrap()
            .bytes()
            .unwrap();
        server.request();
        // The server closes the connection before the next request.
        assert_eq!(server.next(), ServerEvent::Closed);
    }
    assert_eq!(server.accepted(), 4);
}

#[test]
fn concurrent_requests_use_separate_pooled_connections() {
    const THREADS: usize = 8;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    // No response is sent before all first requests have arrived.
    let all = Arc::new(Barrier::new(THREADS));
    thread::spawn({
        let (accepted, all) = (accepted.clone(), all.clone());
        move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                accepted.fetch_add(1, Ordering::SeqCst);
                let all = all.clone();
                thread::spawn(move || {
                    let mut first = true;
                    while let Ok(request) = read_request(&mut stream) {
                        if std::mem::take(&mut first) {
                            all.wait();
                        }
                        let path = request.split(' ').nth(1).unwrap().to_owned();
                        stream.write_all(&reply("200 OK", "", &path)).unwrap();
                    }
                });
            }
        }
    });
    let client =
        Client::new(Config::new(format!("http://{address}")).response_timeout(SOON)).unwrap();
    let workers: Vec<_> = (0..THREADS)
        .map(|worker| {
            let client = client.clone();
            thread::spawn(move || {
                for n in 0..50 {
                    let path = format!("/{worker}/{n}");
                    let response = client
                        .request(&Request::get(&path), &Stop::never())
                        .unwrap();
                    assert_eq!(
                        response.bytes().unwrap(),
                        path.as_bytes(),
                        "a request received the response of another one"
                    );
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(accepted.load(Ordering::SeqCst), THREADS);
}
