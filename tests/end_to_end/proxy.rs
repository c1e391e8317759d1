//! A network between client and server that can be made worse. It knows nothing of TLS and HTTP, so it stands
//! in front of a real server as well as of the embedded one; or it is a proxy that leads to any of them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

/// What happens to a connection, by how many bytes of the server have come through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    /// It is closed.
    Cut(usize),
    /// It is reset.
    Reset(usize),
    /// Nothing comes through any more, either way, and nobody is told.
    Stall(usize),
    /// These bytes come, and then what the server says.
    Garbage(usize, &'static [u8]),
    /// No more than so many at once come through.
    Drip(usize),
}

/// How a client of a proxy says where to.
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
    /// Innermost: nothing blocks under it.
    state: Mutex<State>,
}

/// Where connections lead to.
enum Upstream {
    Server(SocketAddr),
    AsAsked(Protocol),
}

#[derive(Default)]
struct State {
    closing: bool,
    /// For connections to come, one each.
    planned: VecDeque<Disturbance>,
    connections: usize,
    links: Vec<Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
}

/// A connection of a client, and the one to the server that belongs to it.
struct Link {
    client: TcpStream,
    server: TcpStream,
    stalled: AtomicBool,
    ended: AtomicBool,
}

impl Proxy {
    /// In front of the server of this URL.
    pub(crate) fn to(url: &str) -> Self {
        let server = authority(url).to_socket_addrs().unwrap().next().unwrap();
        Self::new(0, Upstream::Server(server))
    }

    /// One that leads where it is asked to.
    pub(crate) fn asked_by(protocol: Protocol, port: u16) -> Self {
        Self::new(port, Upstream::AsAsked(protocol))
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

    /// Disturbs connections that are still to come, one each.
    pub(crate) fn plan(&self, disturbances: impl IntoIterator<Item = Disturbance>) {
        self.shared.state().planned.extend(disturbances);
    }

    /// How many of these are still to come.
    pub(crate) fn planned(&self) -> usize {
        self.shared.state().planned.len()
    }

    /// How many connections there have been.
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

    /// Nothing comes through the connections that there are.
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
        // Wakes it.
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
        // A server that is away is one that closes: whoever waits for it connects again.
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
            Self::AsAsked(protocol) => {
                // Who asks does so at once; nobody else is let in meanwhile.
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

    /// The scheme of its URL.
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
        let most = if let Some(Disturbance::Drip(most)) = disturbance {
            most
        } else {
            buffer.len()
        };
        while let Ok(length @ 1..) = from.read(&mut buffer[..most]) {
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
                // So that the parts are read one by one.
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
        // A FIN in front of it would be an end in order; so it comes when nobody holds the socket any more.
        let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// `host:port` of a URL.
pub(crate) fn authority(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    rest.split('/').next().unwrap()
}

/// Named like the embedded server's, which are not counted.
fn named(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new()
        .name("api-server proxy".to_owned())
        .spawn(work)
        .unwrap()
}
