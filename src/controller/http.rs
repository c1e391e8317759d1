//! A small HTTP/1.1 server for probes, metrics and status.
//!
//! It serves GET and HEAD, one request per connection. All input is limited in size and time:
//!
//! - Eight threads accept and serve connections. Further connections wait in the backlog of
//!   the system until a thread is free, or the client gives up.
//! - A client has 2 seconds to send the head of its request, of at most 8 KiB, and 5 seconds to
//!   receive the response. Bodies of requests are ignored.
//!
//! Routes are user code without a time limit. A route that blocks keeps one thread.

mod connection;
mod request;
mod response;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::request::Request;
pub(crate) use self::response::Response;
use crate::stop::Stop;
use crate::sync::{Condvar, Mutex};
use crate::threads::{Owner, Threads};

/// The number of connections that are served at the same time.
const WORKERS: usize = 8;

/// The content of a server.
pub(crate) trait Routes: Send + Sync + 'static {
    /// Returns the response to a GET request, or `None` if the path does not exist. A HEAD request
    /// gets the same response without its body. A panic is logged, and the response is 500.
    fn get(&self, request: &Request) -> Option<Response>;
}

/// A server on one address, with its threads. Dropping it shuts it down.
pub(crate) struct HttpServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    owner: Owner,
    threads: Threads,
}

impl HttpServer {
    /// Listens on the first of the addresses that is free, and starts the threads. For addresses
    /// that users write, see [`with_host`].
    ///
    /// # Errors
    ///
    /// Fails if no address can be used, or if a thread cannot be started.
    pub(crate) fn start(address: impl ToSocketAddrs, routes: Arc<dyn Routes>) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let owner = Owner::new();
        let server = Self {
            shared: Arc::new(Shared {
                routes,
                stop: Stop::new(),
                state: Mutex::default(),
                accepted: Condvar::new(),
            }),
            address: listener.local_addr()?,
            owner,
            threads: Threads::new(owner),
        };
        for worker in 0..WORKERS {
            let (shared, listener) = (Arc::clone(&server.shared), Arc::clone(&listener));
            let name = format!("http {} {worker}", server.address.port());
            // If this fails, dropping the server ends the other threads.
            server
                .threads
                .spawn(name, None, move || shared.work(&listener))?;
        }
        Ok(server)
    }

    /// Returns the address that the server listens on. It has the port that the system selected if
    /// the requested port was 0.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port and all connections, and joins the threads. It waits for routes that are
    /// running. On a thread of this server, it does not join. Later calls do nothing.
    pub(crate) fn shutdown(&self) {
        const GIVE_UP: Duration = Duration::from_secs(1);
        let until = Instant::now() + GIVE_UP;
        self.shared.stop.stop();
        let mut state = self.shared.state.lock();
        for connection in &state.connections {
            // The client may have closed it already.
            let _ = connection.shutdown(Shutdown::Both);
        }
        // A thread that blocks in `accept` wakes only for a connection.
        while state.accepting > 0 && Instant::now() < until {
            let blocked = state.accepting;
            drop(state);
            for _ in 0..blocked {
                let _ = TcpStream::connect_timeout(&self.wake_address(), GIVE_UP / 10);
            }
            state = self.shared.state.lock();
            if state.accepting > 0 {
                let pause = Duration::from_millis(5);
                self.shared.accepted.wait_for(&mut state, pause);
            }
        }
        let blocked = state.accepting;
        drop(state);
        if blocked > 0 {
            // For example, without a free file descriptor.
            let address = self.address;
            log::error!("{blocked} threads of the HTTP server on {address} cannot be woken");
            return;
        }
        Owner::wait_for(&[self.owner], || self.threads.join());
    }

    fn wake_address(&self) -> SocketAddr {
        let mut address = self.address;
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

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Returns `address` with a host. `:8080` becomes `127.0.0.1:8080`, so that a server without a host
/// is not reachable from outside. In Go it would listen on all interfaces.
pub(crate) fn with_host(address: &str) -> Cow<'_, str> {
    if address.starts_with(':') {
        Cow::Owned(format!("{}{address}", Ipv4Addr::LOCALHOST))
    } else {
        Cow::Borrowed(address)
    }
}

struct Shared {
    routes: Arc<dyn Routes>,
    stop: Stop,
    /// No other lock is taken under this lock.
    state: Mutex<State>,
    /// Notified when `accepting` becomes smaller.
    accepted: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of threads in `accept`, or about to call it.
    accepting: usize,
    /// The connections that are served.
    connections: Vec<Arc<TcpStream>>,
}

impl Shared {
    /// Accepts and serves connections until the server stops.
    fn work(&self, listener: &TcpListener) {
        let mut failed = false;
        while self.begin_accept() {
            match self.end_accept(listener.accept()) {
                Ok(Some(connection)) => {
                    failed = false;
                    if let Err(error) = connection::serve(&connection, &*self.routes) {
                        log::debug!("a client of the HTTP server is gone: {error}");
                    }
                    let mut state = self.state.lock();
                    state
                        .connections
                        .retain(|other| !Arc::ptr_eq(other, &connection));
                }
                Ok(None) => return,
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
        let goes_on = !self.stop.is_stopped();
        state.accepting += usize::from(goes_on);
        goes_on
    }

    /// Registers the connection for [`HttpServer::shutdown`]. Returns `None` if the server stops.
    fn end_accept(
        &self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
    ) -> io::Result<Option<Arc<TcpStream>>> {
        let mut state = self.state.lock();
        state.accepting -= 1;
        self.accepted.notify_all();
        if self.stop.is_stopped() {
            return Ok(None);
        }
        let connection = Arc::new(accepted?.0);
        state.connections.push(Arc::clone(&connection));
        Ok(Some(connection))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::sync::OnceLock;

    use super::*;
    use crate::stop::Done;
    use crate::sync::thread;

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
        for _ in 0..2 * WORKERS {
            let response = get(&server, "/panic");
            assert_eq!(status(&response), "500");
            assert!(!response.contains("a bug"), "{response}");
        }
        assert_eq!(status(&get(&server, "/ok")), "200");
    }

    #[test]
    fn more_clients_than_threads_are_all_served() {
        let server = start_ok();
        let clients: Vec<TcpStream> = (0..5 * WORKERS).map(|_| connect(&server)).collect();
        // The first clients occupy all threads, and send their requests last.
        for mut client in clients.iter().rev() {
            client.write_all(b"GET /ok HTTP/1.1\r\n\r\n").unwrap();
        }
        for mut client in clients {
            let mut response = String::new();
            client.read_to_string(&mut response).unwrap();
            assert_eq!(status(&response), "200");
        }
    }

    #[test]
    fn shutdown_ends_at_once_while_clients_hang() {
        // More than the buffers of both sockets.
        let server = start(|_| Some(Response::text(200, "x".repeat(16 << 20))));
        let mut reads_a_byte = connect(&server);
        reads_a_byte.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let sends_half: Vec<TcpStream> = (0..2 * WORKERS).map(|_| connect(&server)).collect();
        for mut client in &sends_half {
            client.write_all(b"GET / HT").unwrap();
        }
        // The server is writing the response.
        reads_a_byte.read_exact(&mut [0]).unwrap();

        let began = Instant::now();
        server.shutdown();
        let took = began.elapsed();
        // A loaded machine can delay the threads. On an idle one, this takes a few milliseconds.
        assert!(took < Duration::from_millis(500), "{took:?}");
        assert!(server.threads.running().is_empty());
        TcpStream::connect(server.local_addr()).unwrap_err();
        server.shutdown();
    }

    #[test]
    fn idle_server_on_all_interfaces_shuts_down() {
        let server = HttpServer::start("0.0.0.0:0", Arc::new(Site(|_: &Request| None))).unwrap();
        server.shutdown();
        assert!(server.threads.running().is_empty());
    }

    #[test]
    fn shutdown_in_a_route_does_not_wait_for_itself() {
        let this = Arc::new(OnceLock::<HttpServer>::new());
        let (site, ended) = (Arc::clone(&this), Done::new("shutdown has returned"));
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
        assert!(server.threads.running().is_empty());
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
        assert_eq!(server.threads.running().len(), WORKERS);
        assert_eq!(status(&get(&server, "/ok")), "200");
    }

    #[test]
    fn address_without_a_host_means_loopback() {
        assert_eq!(with_host(":8080"), "127.0.0.1:8080");
        assert_eq!(with_host("0.0.0.0:8080"), "0.0.0.0:8080");
        let site = || Arc::new(Site(|_: &Request| None));
        HttpServer::start("nonsense", site()).unwrap_err();
        let server = HttpServer::start(&*with_host(":0"), site()).unwrap();
        assert!(server.local_addr().ip().is_loopback());
        // The port is in use.
        HttpServer::start(server.local_addr(), site()).unwrap_err();
    }
}
