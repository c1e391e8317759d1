//! A small HTTP/1.1 server for probes, metrics and status.
//!
//! It serves GET and HEAD, one request per connection. All input is limited in size and time:
//!
//! - A client has 2 seconds to send the head of its request, of at most 8 KiB, and 5 seconds to
//!   receive the response. Bodies of requests are ignored.
//! - Each connection has a thread, up to 32. If another client comes then, the oldest connection
//!   whose client makes the server wait is closed.
//!
//! Routes are user code without a time limit. A route that blocks keeps one of the 32 threads.

mod connection;
mod request;
mod response;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::connection::Phase;
pub(crate) use self::request::Request;
pub(crate) use self::response::Response;
use crate::log;
use k8s_informer::__private::catch;
use k8s_informer::__private::{Owner, Threads};
use k8s_informer::stop::Stopper;
use parking_lot::{Condvar, Mutex};

/// The maximum number of connections. Each has a thread, and can have a response in memory.
const MAX_CONNECTIONS: usize = 32;

/// A client always has this time to send its head, and the same to receive its response. After
/// that, it can lose its connection to another client. The time is enough for a client that does
/// not pause, and short enough that a probe does not reach its timeout of one second.
const SLOW: Duration = Duration::from_millis(50);

/// The content of a server.
pub(crate) trait Routes: Send + Sync + 'static {
    /// Returns the response to a GET request, or `None` if the path does not exist. A HEAD request
    /// gets the same response without its body. A panic is logged, and the response is 500.
    fn get(&self, request: &Request) -> Option<Response>;
}

/// A server on one address, with its threads. Dropping it shuts it down.
pub(crate) struct HttpServer {
    shared: Arc<Shared>,
}

impl HttpServer {
    /// Listens on the first of the addresses that is free, and starts a thread. For addresses that
    /// users write, see [`with_host`].
    ///
    /// # Errors
    ///
    /// Fails if no address can be used, or if the thread cannot be started.
    pub(crate) fn start(address: impl ToSocketAddrs, routes: Arc<dyn Routes>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let owner = Owner::new();
        let shared = Arc::new(Shared {
            routes,
            address: listener.local_addr()?,
            stop: Stopper::new(),
            owner,
            threads: Threads::new(owner),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        shared.spawn(move || accepting.accept(&listener))?;
        Ok(Self { shared })
    }

    /// Returns the address that the server listens on. It has the port that the system selected if
    /// the requested port was 0.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.shared.address
    }

    /// Closes the port and all connections, and joins the threads. It waits for routes that are
    /// running. On a thread of this server, it does not join. Later calls do nothing.
    pub(crate) fn shutdown(&self) {
        const GIVE_UP: Duration = Duration::from_secs(1);
        let until = Instant::now() + GIVE_UP;
        self.shared.stop.stop();
        let mut state = self.shared.state.lock();
        self.shared.changed.notify_all();
        for connection in &state.connections {
            // The client may have closed it already.
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        // `accept` returns only for a connection.
        while state.is_accepting && Instant::now() < until {
            drop(state);
            let _ = TcpStream::connect_timeout(&self.wake_address(), GIVE_UP / 10);
            state = self.shared.state.lock();
            if state.is_accepting {
                let pause = Duration::from_millis(5);
                self.shared.changed.wait_for(&mut state, pause);
            }
        }
        let is_blocked = state.is_accepting;
        drop(state);
        if is_blocked {
            // For example, without a free file descriptor.
            let address = self.shared.address;
            log::error!("the HTTP server on {address} cannot be woken, so its threads go on");
            return;
        }
        Owner::wait_for(&[self.shared.owner], || self.shared.threads.join());
    }

    fn wake_address(&self) -> SocketAddr {
        let mut address = self.shared.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Returns `address` with a host. `:8080` becomes `127.0.0.1:8080`, so that a server without a host
/// is not reachable from outside. In Go it would listen on all interfaces.
pub(crate) fn with_host(address: &str) -> String {
    if address.starts_with(':') {
        format!("{}{address}", Ipv4Addr::LOCALHOST)
    } else {
        address.to_owned()
    }
}

struct Shared {
    routes: Arc<dyn Routes>,
    address: SocketAddr,
    stop: Stopper,
    owner: Owner,
    threads: Threads,
    /// No other lock is taken under this lock.
    state: Mutex<State>,
    /// Notified of changes of `state`, and of the stop.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether a thread is in `accept`, or about to call it.
    is_accepting: bool,
    /// The oldest connection comes first.
    connections: Vec<Connection>,
}

struct Connection {
    stream: Arc<TcpStream>,
    phase: Phase,
    /// The start of the phase.
    since: Instant,
}

impl Shared {
    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let name = format!("http {}", self.address.port());
        self.threads.spawn(name, None, work)
    }

    /// Accepts connections until the server stops.
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut failed = false;
        while self.begin_accept() {
            let accepted = listener.accept();
            self.change(|state| state.is_accepting = false);
            match accepted.and_then(|(stream, _)| self.begin(Arc::new(stream))) {
                Ok(()) => failed = false,
                Err(error) => {
                    if !failed {
                        log::warn!("the HTTP server cannot accept a connection: {error}");
                    }
                    failed = true;
                    // The next `accept` could fail immediately as well, for example without a free
                    // file descriptor.
                    self.stop.wait_timeout(Duration::from_millis(100));
                }
            }
        }
    }

    fn begin_accept(&self) -> bool {
        let mut state = self.state.lock();
        state.is_accepting = !self.stop.is_stopped();
        state.is_accepting
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Serves a connection on a separate thread. If there are too many, closes another one first.
    fn begin(self: &Arc<Self>, stream: Arc<TcpStream>) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            while state.connections.len() >= MAX_CONNECTIONS && !self.stop.is_stopped() {
                state.close_one(Instant::now());
                self.changed.wait_for(&mut state, SLOW);
            }
            if self.stop.is_stopped() {
                return Ok(());
            }
            state.connections.push(Connection {
                stream: Arc::clone(&stream),
                phase: Phase::Client,
                since: Instant::now(),
            });
        }
        let (this, served) = (Arc::clone(self), Arc::clone(&stream));
        let spawned = self.spawn(move || {
            // Loggers are user code.
            drop(catch(|| {
                let enter = |phase| this.state.lock().enter(&served, phase);
                if let Err(error) = connection::serve(&served, &*this.routes, enter) {
                    log::debug!("a client of the HTTP server is gone: {error}");
                }
            }));
            this.end(&served);
        });
        if spawned.is_err() {
            self.end(&stream);
        }
        spawned
    }

    fn end(&self, stream: &Arc<TcpStream>) {
        let is_other = |other: &Connection| !Arc::ptr_eq(&other.stream, stream);
        self.change(|state| state.connections.retain(is_other));
    }
}

impl State {
    /// Records the start of a phase. Fails if the connection was closed for another one, which can
    /// happen after its head has been read.
    fn enter(&mut self, stream: &Arc<TcpStream>, phase: Phase) -> io::Result<()> {
        let is_this = |connection: &&mut Connection| {
            Arc::ptr_eq(&connection.stream, stream) && connection.phase != Phase::Closed
        };
        let connection = self.connections.iter_mut().find(is_this);
        let connection = connection.ok_or(io::ErrorKind::ConnectionAborted)?;
        connection.phase = phase;
        connection.since = Instant::now();
        Ok(())
    }

    /// Closes the oldest connection whose client has been slow. Does nothing while a connection is
    /// being closed.
    fn close_one(&mut self, now: Instant) {
        let is_closing = |connection: &Connection| connection.phase == Phase::Closed;
        if self.connections.iter().any(is_closing) {
            return;
        }
        let is_slow = |connection: &&mut Connection| {
            let time = now.saturating_duration_since(connection.since);
            connection.phase == Phase::Client && time >= SLOW
        };
        if let Some(connection) = self.connections.iter_mut().find(is_slow) {
            connection.phase = Phase::Closed;
            // The client may have closed it already.
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::sync::OnceLock;

    use super::*;
    use k8s_informer::__private::sync::thread;
    use k8s_informer::stop::DoneSetter;

    const PATIENCE: Duration = Duration::from_secs(30);

    struct Site<F>(F);

    impl<F: Fn(&Request) -> Option<Response> + Send + Sync + 'static> Routes for Site<F> {
        fn get(&self, request: &Request) -> Option<Response> {
            (self.0)(request)
        }
    }

    fn start(get: impl Fn(&Request) -> Option<Response> + Send + Sync + 'static) -> HttpServer {
        HttpServer::start("127.0.0.1:0", Arc::new(Site(get))).unwrap()
    }

    fn start_ok() -> HttpServer {
        start(|request| (request.path() == "/ok").then(|| Response::text(200, "fine\n")))
    }

    fn connect(server: &HttpServer) -> TcpStream {
        let connection = TcpStream::connect(server.local_addr()).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection
    }

    /// Sends `request` and returns the whole response.
    fn exchange(server: &HttpServer, request: &[u8]) -> String {
        let mut connection = connect(server);
        // The server may answer before it has read everything.
        let _ = connection.write_all(request);
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        response
    }

    fn get(server: &HttpServer, path: &str) -> String {
        exchange(
            server,
            format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(),
        )
    }

    fn status(response: &str) -> &str {
        response.split(' ').nth(1).unwrap_or(response)
    }

    #[test]
    fn get_has_length_type_and_body_and_head_no_body() {
        let server = start_ok();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
                    Content-Length: 5\r\nX-Content-Type-Options: nosniff\r\n\
                    Connection: close\r\n\r\n";
        assert_eq!(get(&server, "/ok"), format!("{head}fine\n"));
        assert_eq!(exchange(&server, b"HEAD /ok HTTP/1.0\n\n"), head);
    }

    #[test]
    fn unsuitable_requests_get_the_status_of_their_error() {
        let server = start_ok();
        assert_eq!(status(&get(&server, "/other")), "404");
        assert_eq!(status(&exchange(&server, b"\x16\x03\x01\x02")), "400");
        assert_eq!(
            status(&exchange(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
            "505"
        );
        let large = format!("GET /ok HTTP/1.1\r\na: {}", "b".repeat(100_000));
        assert_eq!(status(&exchange(&server, large.as_bytes())), "431");
        assert_eq!(status(&get(&server, "/ok")), "200");
    }

    #[test]
    fn other_method_with_a_body_gets_405_with_allow() {
        let server = start_ok();
        let head = "POST /ok HTTP/1.1\r\nContent-Length: 30000\r\n\r\n";
        let response = exchange(&server, (head.to_owned() + &"x".repeat(30_000)).as_bytes());
        assert_eq!(status(&response), "405");
        assert!(response.contains("\r\nAllow: GET, HEAD\r\n"), "{response}");
    }

    #[test]
    fn half_request_that_ends_gets_400_and_an_empty_one_nothing() {
        let server = start_ok();
        for (sent, expected) in [("GET /ok HT", "400"), ("", "")] {
            let mut connection = connect(&server);
            connection.write_all(sent.as_bytes()).unwrap();
            connection.shutdown(Shutdown::Write).unwrap();
            let mut response = String::new();
            connection.read_to_string(&mut response).unwrap();
            assert_eq!(status(&response), expected);
        }
    }

    #[test]
    fn trickling_client_gets_408_at_the_deadline() {
        let server = start_ok();
        let mut connection = connect(&server);
        // Each read is the pause before the next byte.
        connection
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let began = Instant::now();
        let mut response = [0; 12];
        while began.elapsed() < PATIENCE {
            let _ = connection.write(b"G");
            match connection.read_exact(&mut response) {
                Ok(()) => break,
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                    "{error}"
                ),
            }
        }
        assert_eq!(&response, b"HTTP/1.1 408");
        assert!(began.elapsed() >= connection::HEAD_TIME);
    }

    #[test]
    fn panic_in_a_route_is_500_and_the_server_goes_on() {
        let server = start(|request| match request.path() {
            "/panic" => panic!("a bug"),
            _ => Some(Response::text(200, "ok")),
        });
        for _ in 0..2 * MAX_CONNECTIONS {
            let response = get(&server, "/panic");
            assert_eq!(status(&response), "500");
            assert!(!response.contains("a bug"), "{response}");
        }
        assert_eq!(status(&get(&server, "/ok")), "200");
    }

    #[test]
    fn clients_that_wait_for_each_other_are_all_served() {
        let server = start_ok();
        let clients: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| connect(&server)).collect();
        // The first clients send their requests last.
        for mut client in clients.iter().rev() {
            client.write_all(b"GET /ok HTTP/1.1\r\n\r\n").unwrap();
        }
        for mut client in clients {
            let mut response = String::new();
            client.read_to_string(&mut response).unwrap();
            assert_eq!(status(&response), "200");
        }
    }

    /// Lets more clients than there are threads do `begin` and then nothing more, and another one
    /// send a request. Returns how many of the first were closed without a response.
    fn closed_for_a_probe(server: &HttpServer, begin: impl Fn(&mut TcpStream)) -> usize {
        let count = MAX_CONNECTIONS + 8;
        let mut clients: Vec<TcpStream> = (0..count).map(|_| connect(server)).collect();
        clients.iter_mut().for_each(begin);
        assert_eq!(status(&get(server, "/ok")), "200");
        let is_closed = |client: &mut TcpStream| {
            client.set_nonblocking(true).unwrap();
            let mut response = Vec::new();
            // `Ok` is the end of the connection.
            client.read_to_end(&mut response).is_ok() && response.is_empty()
        };
        clients
            .iter_mut()
            .map(is_closed)
            .filter(|closed| *closed)
            .count()
    }

    #[test]
    fn silent_and_slow_clients_are_closed_for_a_probe() {
        let server = start_ok();
        assert!(closed_for_a_probe(&server, |_| {}) > 0);
    }

    #[test]
    fn slow_heads_are_closed_for_a_probe() {
        let server = start_ok();
        let half = |client: &mut TcpStream| drop(client.write_all(b"GET / HT"));
        closed_for_a_probe(&server, half);
    }

    #[test]
    fn clients_that_do_not_read_are_closed_for_a_probe() {
        // More than the buffers of both sockets.
        let server = start(|request| match request.path() {
            "/large" => Some(Response::text(200, "x".repeat(5 << 20))),
            _ => Some(Response::text(200, "fine")),
        });
        // A client that is slow to begin may be closed already.
        closed_for_a_probe(&server, |client| {
            let _ = client.write_all(b"GET /large HTTP/1.1\r\n\r\n");
        });
    }

    /// Otherwise its route would run in vain, and no other connection could be closed meanwhile.
    #[test]
    fn closed_connection_enters_no_phase() {
        let server = start_ok();
        let stream = Arc::new(connect(&server));
        let mut state = State::default();
        for (phase, is_open) in [(Phase::Client, true), (Phase::Closed, false)] {
            state.connections = vec![Connection {
                stream: Arc::clone(&stream),
                phase,
                since: Instant::now(),
            }];
            assert_eq!(state.enter(&stream, Phase::Route).is_ok(), is_open);
        }
        assert_eq!(state.connections[0].phase, Phase::Closed);
    }

    #[test]
    fn oldest_slow_client_is_closed() {
        use Phase::{Client, Closed, Route};

        let server = start_ok();
        let stream = Arc::new(connect(&server));
        let now = Instant::now();
        for (before, expected) in [
            (
                &[(Route, 90), (Client, 49), (Client, 50), (Client, 51)][..],
                Some(2),
            ),
            (&[(Route, 90), (Client, 49)], None),
            (&[(Client, 90), (Closed, 0)], None),
        ] {
            let connection = |&(phase, millis)| Connection {
                stream: Arc::clone(&stream),
                phase,
                since: now.checked_sub(Duration::from_millis(millis)).unwrap(),
            };
            let connections = before.iter().map(connection).collect();
            let mut state = State {
                connections,
                is_accepting: false,
            };
            state.close_one(now);
            let phases = state.connections.iter().map(|connection| connection.phase);
            let mut closed = phases.zip(before).enumerate();
            let closed = closed.find(|(_, (after, before))| *after != before.0);
            assert_eq!(closed.map(|(at, _)| at), expected, "{before:?}");
        }
    }

    #[test]
    fn shutdown_ends_at_once_while_clients_hang() {
        // More than the buffers of both sockets.
        let server = start(|_| Some(Response::text(200, "x".repeat(16 << 20))));
        let mut reads_a_byte = connect(&server);
        reads_a_byte.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // The server is writing the response.
        reads_a_byte.read_exact(&mut [0]).unwrap();
        let sends_half: Vec<TcpStream> =
            (0..MAX_CONNECTIONS / 2).map(|_| connect(&server)).collect();
        for mut client in &sends_half {
            client.write_all(b"GET / HT").unwrap();
        }

        let ended = DoneSetter::new("shutdown has returned");
        thread::scope(|scope| {
            scope.spawn(|| {
                server.shutdown();
                ended.set();
            });
            // Only a shutdown that waits for the client takes as long.
            assert!(ended.wait_timeout(connection::WRITE_TIME / 2));
        });
        for mut client in sends_half {
            // Not 408, which follows only if the server waited for the rest of the request.
            let mut response = Vec::new();
            let _ = client.read_to_end(&mut response);
            assert!(response.is_empty(), "{}", response.escape_ascii());
        }
        assert!(server.shared.threads.running().is_empty());
        TcpStream::connect(server.local_addr()).unwrap_err();
        server.shutdown();
    }

    #[test]
    fn idle_server_on_all_interfaces_shuts_down() {
        let server = HttpServer::start("0.0.0.0:0", Arc::new(Site(|_: &Request| None))).unwrap();
        server.shutdown();
        assert!(server.shared.threads.running().is_empty());
    }

    #[test]
    fn shutdown_in_a_route_does_not_wait_for_itself() {
        let this = Arc::new(OnceLock::<HttpServer>::new());
        let (site, ended) = (Arc::clone(&this), DoneSetter::new("shutdown has returned"));
        let signal = ended.clone();
        let server = start(move |_| {
            if let Some(server) = site.get() {
                server.shutdown();
                signal.set();
            }
            None
        });
        let server = this.get_or_init(|| server);
        connect(server)
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .unwrap();
        assert!(ended.wait_timeout(PATIENCE));
        server.shutdown();
        assert!(server.shared.threads.running().is_empty());
    }

    #[test]
    fn random_bytes_never_end_the_server() {
        let server = start_ok();
        let mut random = 0x2545_F491_4F6C_DD1D_u64;
        thread::scope(|scope| {
            for client in 0..200 {
                let bytes: Vec<u8> = (0..client)
                    .map(|_| {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        random as u8
                    })
                    .collect();
                let server = &server;
                scope.spawn(move || {
                    let mut connection = connect(server);
                    let _ = connection.write_all(&bytes);
                    let _ = connection.shutdown(Shutdown::Write);
                    let _ = connection.read_to_end(&mut Vec::new());
                });
            }
        });
        assert_eq!(status(&get(&server, "/ok")), "200");
    }

    #[test]
    fn address_without_a_host_means_loopback() {
        assert_eq!(with_host(":8080"), "127.0.0.1:8080");
        assert_eq!(with_host("0.0.0.0:8080"), "0.0.0.0:8080");
        let site = || Arc::new(Site(|_: &Request| None));
        HttpServer::start("nonsense", site()).err().unwrap();
        let server = HttpServer::start(&*with_host(":0"), site()).unwrap();
        assert!(server.local_addr().ip().is_loopback());
        // The port is in use.
        HttpServer::start(server.local_addr(), site())
            .err()
            .unwrap();
    }
}
