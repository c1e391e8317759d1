//! A network between client and server that can be disturbed. It does not interpret TLS or HTTP, so
//! it works in front of real servers and the embedded one. It can also act as an HTTP or SOCKS
//! proxy to any server.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

/// A disturbance of one connection. The number is the count of server bytes that are forwarded
/// first, except for `Drip`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    /// The connection is closed.
    Cut(usize),
    /// The connection is reset.
    Reset(usize),
    /// No more bytes are forwarded in either direction. Both connections stay open.
    Stall(usize),
    /// These bytes are inserted into the server's bytes.
    Garbage(usize, &'static [u8]),
    /// At most this number of bytes is forwarded at once.
    Drip(usize),
}

/// The protocol in which a client names its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Connect,
    Socks,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: Upstream,
    /// The innermost lock. No code blocks while holding it.
    state: Mutex<State>,
}

/// The destination of connections.
enum Upstream {
    Server(SocketAddr),
    AsRequested(Protocol),
}

#[derive(Default)]
struct State {
    closing: bool,
    /// One disturbance for each of the next connections.
    planned: VecDeque<Disturbance>,
    connections: usize,
    links: Vec<Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
}

/// A connection from a client and its connection to the server.
struct Link {
    client: TcpStream,
    server: TcpStream,
    stalled: AtomicBool,
    ended: AtomicBool,
}

impl Proxy {
    /// Starts a network in front of the server at this URL.
    pub(crate) fn to(url: &str) -> Self {
        let server = authority(url).to_socket_addrs().unwrap().next().unwrap();
        Self::new(0, Upstream::Server(server))
    }

    /// Starts a proxy that connects to the destination that the client names.
    pub(crate) fn with_protocol(protocol: Protocol, port: u16) -> Self {
        Self::new(port, Upstream::AsRequested(protocol))
    }

    fn new(port: u16, upstream: Upstream) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::default(),
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            named(move || {
                for client in listener.incoming() {
                    if shared.state().closing {
                        return;
                    }
                    shared.accept(client.unwrap());
                }
            })
        };
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Disturbs the next connections, one each.
    pub(crate) fn plan(&self, disturbances: impl IntoIterator<Item = Disturbance>) {
        self.shared.state().planned.extend(disturbances);
    }

    /// Returns the number of planned disturbances that are left.
    pub(crate) fn planned(&self) -> usize {
        self.shared.state().planned.len()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        self.shared
            .take_links()
            .iter()
            .for_each(|link| link.close());
    }

    /// Resets all connections.
    pub(crate) fn reset(&self) {
        self.shared
            .take_links()
            .iter()
            .for_each(|link| link.reset());
    }

    /// Stops forwarding on all open connections.
    pub(crate) fn stall(&self) {
        self.shared
            .state()
            .links
            .iter()
            .for_each(|link| link.stalled.store(true, Ordering::SeqCst));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        // Unblocks the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.cut();
        let threads = std::mem::take(&mut self.shared.state().threads);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_links(&self) -> Vec<Arc<Link>> {
        std::mem::take(&mut self.state().links)
    }

    fn accept(self: &Arc<Self>, client: TcpStream) {
        // If the server is down, the client's connection closes, and the client connects again.
        let Ok(server) = self.upstream.connect(&client) else {
            return;
        };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let link = Arc::new(Link {
            client,
            server,
            stalled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let mut state = self.state();
        state.connections += 1;
        let disturbance = state.planned.pop_front();
        state.links.push(Arc::clone(&link));
        for down in [false, true] {
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            state.threads.push(named(move || {
                match down {
                    false => link.carry(&link.client, &link.server, None),
                    true => link.carry(&link.server, &link.client, disturbance),
                }
                shared
                    .state()
                    .links
                    .retain(|other| !Arc::ptr_eq(other, &link));
            }));
        }
    }
}

impl Upstream {
    fn connect(&self, client: &TcpStream) -> io::Result<TcpStream> {
        match self {
            Self::Server(server) => TcpStream::connect(server),
            Self::AsRequested(protocol) => {
                // Limit the wait for the client, because no other client is accepted meanwhile. A
                // working client names its destination at once.
                client.set_read_timeout(Some(Duration::from_secs(5)))?;
                let server = protocol.connect(client)?;
                client.set_read_timeout(None)?;
                Ok(server)
            }
        }
    }
}

impl Protocol {
    fn connect(self, mut client: &TcpStream) -> io::Result<TcpStream> {
        match self {
            Self::Connect => {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    client.read_exact(&mut byte)?;
                    head.extend(byte);
                }
                let head = String::from_utf8_lossy(&head);
                let server = TcpStream::connect(head.split(' ').nth(1).unwrap_or_default())?;
                client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
                Ok(server)
            }
            Self::Socks => {
                client.read_exact(&mut [0; 3])?;
                client.write_all(&[5, 0])?;
                let mut head = [0; 4];
                client.read_exact(&mut head)?;
                let mut host = [0; 255];
                let host = match head[3] {
                    1 => &mut host[..4],
                    4 => &mut host[..16],
                    _ => {
                        let mut length = [0];
                        client.read_exact(&mut length)?;
                        &mut host[..length[0].into()]
                    }
                };
                client.read_exact(host)?;
                let mut port = [0; 2];
                client.read_exact(&mut port)?;
                let port = u16::from_be_bytes(port);
                let server = match (head[3], &*host) {
                    (1, &[a, b, c, d]) => TcpStream::connect((Ipv4Addr::new(a, b, c, d), port))?,
                    (4, host) => {
                        let host = <[u8; 16]>::try_from(host).map_err(io::Error::other)?;
                        TcpStream::connect((Ipv6Addr::from(host), port))?
                    }
                    (_, host) => {
                        TcpStream::connect((String::from_utf8_lossy(host).as_ref(), port))?
                    }
                };
                client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
                Ok(server)
            }
        }
    }

    /// Returns the scheme of the proxy's URL.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Connect => "http",
            Self::Socks => "socks5",
        }
    }
}

impl Link {
    fn carry(&self, mut from: &TcpStream, mut to: &TcpStream, disturbance: Option<Disturbance>) {
        let mut buffer = [0; 16 << 10];
        let mut carried = 0;
        let limit = if let Some(Disturbance::Drip(limit)) = disturbance {
            limit
        } else {
            buffer.len()
        };
        while let Ok(length @ 1..) = from.read(&mut buffer[..limit]) {
            if self.stalled.load(Ordering::SeqCst) {
                continue;
            }
            let place = match disturbance {
                Some(
                    Disturbance::Cut(at)
                    | Disturbance::Reset(at)
                    | Disturbance::Stall(at)
                    | Disturbance::Garbage(at, _),
                ) => at.checked_sub(carried).filter(|left| *left < length),
                _ => None,
            };
            let (before, after) = buffer[..length].split_at(place.unwrap_or(length));
            carried += length;
            let written = match (place, disturbance) {
                (Some(_), Some(disturbance)) => {
                    let written = to.write_all(before);
                    match disturbance {
                        Disturbance::Cut(_) => return self.close(),
                        Disturbance::Reset(_) => return self.reset(),
                        Disturbance::Stall(_) => self.stalled.store(true, Ordering::SeqCst),
                        Disturbance::Garbage(_, bytes) => {
                            let _ = to.write_all(bytes).and_then(|()| to.write_all(after));
                        }
                        Disturbance::Drip(_) => {}
                    }
                    written
                }
                _ => to.write_all(before),
            };
            if written.is_err() {
                break;
            }
            if matches!(disturbance, Some(Disturbance::Drip(_))) {
                // Makes the client read the parts one by one.
                thread::park_timeout(Duration::from_micros(200));
            }
        }
        self.close();
    }

    fn close(&self) {
        if self.ended.swap(true, Ordering::SeqCst) {
            return;
        }
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn reset(&self) {
        if self.ended.swap(true, Ordering::SeqCst) {
            return;
        }
        // The client receives a reset when the last handle of its connection closes. Shut down only
        // reading, because a FIN before the reset would be a clean end.
        let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// Returns `host:port` of a URL.
pub(crate) fn authority(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    rest.split('/').next().unwrap()
}

/// Starts a thread that is named like those of the embedded server, because
/// [`threads`](crate::support::threads) does not count these.
fn named(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new()
        .name("api-server proxy".to_owned())
        .spawn(work)
        .unwrap()
}
