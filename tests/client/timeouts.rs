//! Idle timeouts of a body. A read that times out loses nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{Body, ListOptions};
use k8s_informer::{Client, Config, Error, Stop};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::server::{Reply, Server, first_chunk, listen, read_request};
use super::tls::Authority;
use super::tunnels::{Kind, Tunnels};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const CHUNKS: [&[u8]; 3] = [
    b"1;a\r\n{\r\n",
    b"10\r\n\"type\":\"ADDED\"}\n\r\n",
    b"0\r\nx: y\r\n\r\n",
];
const TEXT: &[u8] = b"{\"type\":\"ADDED\"}\n";

/// So short that there is a timeout before each byte.
const SHORT: Duration = Duration::from_millis(1);

/// Writes one byte for each message on `go`. Without `go`, writes everything.
struct SlowStream {
    stream: TcpStream,
    go: Option<Receiver<()>>,
}

impl Read for SlowStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for SlowStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let Some(go) = &self.go else {
            return self.stream.write(buffer);
        };
        go.recv().map_err(io::Error::other)?;
        self.stream.write(&buffer[..buffer.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers requests on one connection: the head at once, the body byte by byte.
fn slow_server(tls: Option<Arc<ServerConfig>>) -> (SocketAddr, Sender<Receiver<()>>) {
    let listener = listen();
    let address = listener.local_addr().unwrap();
    let (bodies, next) = channel::<Receiver<()>>();
    // The thread ends with its client.
    thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let stream = SlowStream { stream, go: None };
        match tls {
            None => reply(stream, &next, |stream| stream),
            Some(tls) => reply(
                StreamOwned::new(ServerConnection::new(tls).unwrap(), stream),
                &next,
                |stream| &mut stream.sock,
            ),
        }
    });
    (address, bodies)
}

fn reply<S: Read + Write>(
    mut stream: S,
    bodies: &Receiver<Receiver<()>>,
    slow_stream: impl Fn(&mut S) -> &mut SlowStream,
) -> io::Result<()> {
    for go in bodies {
        read_request(&mut stream)?;
        stream.write_all(HEAD)?;
        stream.flush()?;
        slow_stream(&mut stream).go = Some(go);
        for chunk in CHUNKS {
            stream.write_all(chunk)?;
            stream.flush()?;
        }
        slow_stream(&mut stream).go = None;
    }
    Ok(())
}

/// Reads to the end. After each timeout, lets the server continue. Returns the text and the number
/// of timeouts.
fn read_despite_timeouts(body: &mut Body, go: &Sender<()>) -> (Vec<u8>, usize) {
    let (mut text, mut timeouts) = (Vec::new(), 0);
    let mut buffer = [0; 64];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => return (text, timeouts),
            Ok(amount) => text.extend_from_slice(&buffer[..amount]),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
                assert!(Error::from(error).is_timeout());
                timeouts += 1;
                // Ignore the error: the server may have finished.
                let _ = go.send(());
            }
        }
    }
}

fn assert_complete_despite_timeouts(client: &Client, bodies: &Sender<Receiver<()>>) {
    // The second request reuses the connection: the timeouts of the first must leave no trace in
    // it.
    for _ in 0..2 {
        let (go, go_receiver) = channel();
        bodies.send(go_receiver).unwrap();
        let request = Request::get("/").idle_timeout(SHORT);
        let mut body = client
            .request(&request, &Stop::never())
            .unwrap()
            .into_body();
        let (text, timeouts) = read_despite_timeouts(&mut body, &go);
        assert_eq!(text, TEXT);
        assert!(timeouts >= CHUNKS.concat().len(), "{timeouts}");
        assert_eq!(
            body.read(&mut [0]).unwrap(),
            0,
            "a read after the end must return 0"
        );
    }
}

#[test]
fn body_is_complete_despite_read_timeouts() {
    let (address, bodies) = slow_server(None);
    assert_complete_despite_timeouts(
        &Client::new(Config::new(format!("http://{address}"))).unwrap(),
        &bodies,
    );
}

#[test]
fn body_over_tls_is_complete_despite_read_timeouts() {
    let authority = Authority::new();
    let (address, bodies) = slow_server(Some(authority.server("127.0.0.1")));
    let config = Config::new(format!("https://{address}")).ca_pem(authority.pem);
    assert_complete_despite_timeouts(&Client::new(config).unwrap(), &bodies);
}

#[test]
fn body_through_proxies_is_complete_despite_read_timeouts() {
    let authority = Authority::new();
    let tls = || authority.server("127.0.0.1");
    for (kind, server) in [
        (Kind::Socks, None),
        (Kind::ConnectOverTls(tls()), Some(tls())),
    ] {
        let scheme = if server.is_some() { "https" } else { "http" };
        let (address, bodies) = slow_server(server);
        let proxy = Tunnels::new(kind);
        let config = Config::new(format!("{scheme}://{address}")).ca_pem(authority.pem.clone());
        assert_complete_despite_timeouts(
            &Client::new(config.proxy_url(proxy.url())).unwrap(),
            &bodies,
        );
        assert_eq!(proxy.opened().len(), 1);
    }
}

#[test]
fn idle_timeout_ignores_bytes_of_endless_trailers() {
    // Endless trailers: the socket is never silent, but the body is.
    let listener = listen();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        read_request(&mut stream)?;
        stream.write_all(HEAD)?;
        stream.write_all(b"2\r\n{}\r\n0\r\n")?;
        loop {
            stream.write_all(b"x: y\r\n")?;
        }
    });
    let client = Client::new(Config::new(url)).unwrap();
    let request = Request::get("/").idle_timeout(Duration::from_millis(50));
    let error = client
        .request(&request, &Stop::never())
        .unwrap()
        .bytes()
        .unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
}

#[test]
fn silent_list_times_out_but_silent_watch_does_not() {
    let limit = Duration::from_millis(250);
    let pods = GroupVersionResource::new("", "v1", "pods");
    let (address, bodies) = slow_server(None);
    let client =
        Client::new(Config::new(format!("http://{address}")).response_timeout(limit)).unwrap();
    let (go, go_receiver) = channel();
    bodies.send(go_receiver).unwrap();
    let mut watch = client
        .lister_watcher(&pods, None)
        .watch(&ListOptions::default(), &Stop::never())
        .unwrap();
    let watch = thread::spawn(move || {
        let mut text = Vec::new();
        watch.read_to_end(&mut text).map(|_| text)
    });

    let server = Server::start(|_| Reply::WriteAndHang(first_chunk("{")));
    let client = Client::new(Config::new(server.url()).response_timeout(limit)).unwrap();
    let mut list = client
        .lister_watcher(&pods, None)
        .list(&ListOptions::default(), &Stop::never())
        .unwrap();
    // Wait for two timeouts of the list. The watch is silent meanwhile, and would time out if the
    // limit of the list applied to it.
    for _ in 0..2 {
        let error = io::copy(&mut list, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }
    for _ in CHUNKS.concat() {
        go.send(()).unwrap();
    }
    assert_eq!(watch.join().unwrap().unwrap(), TEXT);
}

#[test]
fn endless_error_body_ends_at_the_response_timeout() {
    // The server sends a byte now and then: each read succeeds, but the body never ends.
    let listener = listen();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        read_request(&mut stream)?;
        stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 1000000\r\n\r\n")?;
        stream.set_read_timeout(Some(Duration::from_millis(5)))?;
        loop {
            stream.write_all(b"x")?;
            if !stream
                .read(&mut [0])
                .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            {
                return Ok(());
            }
        }
    });
    let client =
        Client::new(Config::new(url).response_timeout(Duration::from_millis(250))).unwrap();
    let error = client
        .request(&Request::get("/"), &Stop::never())
        .unwrap_err();
    assert_eq!(error.status().unwrap().code, 503);
}
