//! Test proxies: HTTP CONNECT with and without TLS, and SOCKS5.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::server::read_request;

#[derive(Clone)]
pub(crate) enum Kind {
    Connect,
    ConnectOverTls(Arc<ServerConfig>),
    Socks,
    /// SOCKS that requires this user and password.
    SocksFor(&'static str, &'static str),
}

pub(crate) struct Tunnels {
    pub(crate) address: SocketAddr,
    kind: Kind,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// The target of all tunnels, in place of the requested one.
    to: Option<SocketAddr>,
    /// The `host:port` of each tunnel.
    opened: Vec<String>,
    /// The CONNECT requests, or `user:password` of SOCKS.
    heads: Vec<String>,
    sockets: Vec<TcpStream>,
}

impl Tunnels {
    pub(crate) fn new(kind: Kind) -> Self {
        Self::on("127.0.0.1:0", kind).unwrap()
    }

    pub(crate) fn on(address: &str, kind: Kind) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::<Mutex<Shared>>::default();
        let tunnels = Self {
            address,
            kind: kind.clone(),
            shared: shared.clone(),
        };
        // The thread ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (kind, shared) = (kind.clone(), shared.clone());
                // The client may close at any moment.
                thread::spawn(move || {
                    let socket = client.try_clone()?;
                    match &kind {
                        Kind::ConnectOverTls(tls) => {
                            let connection = ServerConnection::new(tls.clone()).unwrap();
                            serve(
                                &kind,
                                &mut StreamOwned::new(connection, client),
                                &socket,
                                &shared,
                            )
                        }
                        _ => serve(&kind, &mut { client }, &socket, &shared),
                    }
                });
            }
        });
        Ok(tunnels)
    }

    pub(crate) fn redirect_to(&self, address: SocketAddr) {
        self.shared.lock().unwrap().to = Some(address);
    }

    pub(crate) fn to(self, address: SocketAddr) -> Self {
        self.redirect_to(address);
        self
    }

    pub(crate) fn url(&self) -> String {
        let scheme = match self.kind {
            Kind::Connect => "http",
            Kind::ConnectOverTls(_) => "https",
            Kind::Socks | Kind::SocksFor(..) => "socks5",
        };
        format!("{scheme}://{}", self.address)
    }

    pub(crate) fn opened(&self) -> Vec<String> {
        self.shared.lock().unwrap().opened.clone()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.shared.lock().unwrap().heads.clone()
    }

    /// Closes all open tunnels.
    pub(crate) fn cut(&self) {
        for socket in self.shared.lock().unwrap().sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn serve(
    kind: &Kind,
    client: &mut (impl Read + Write),
    socket: &TcpStream,
    shared: &Mutex<Shared>,
) -> io::Result<()> {
    let (target, head, reply) = match kind {
        Kind::Connect | Kind::ConnectOverTls(_) => {
            let head = read_request(client)?;
            let target = head.split(' ').nth(1).unwrap().to_owned();
            (
                target,
                Some(head),
                &b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n"[..],
            )
        }
        Kind::Socks => (
            socks_handshake(client, None)?.0,
            None,
            &b"\x05\0\0\x01\x7f\0\0\x01\x12\x34"[..],
        ),
        Kind::SocksFor(user, password) => {
            let (target, given) = socks_handshake(client, Some((user, password)))?;
            // The bound address is a name, to cover this form of a reply.
            (target, given, &b"\x05\0\0\x03\x05proxy\x12\x34"[..])
        }
    };
    let to = shared.lock().unwrap().to;
    let server = match to {
        Some(to) => TcpStream::connect(to)?,
        None => TcpStream::connect(&target)?,
    };
    {
        let mut shared = shared.lock().unwrap();
        shared.opened.push(target);
        shared.heads.extend(head);
        shared
            .sockets
            .extend([socket.try_clone()?, server.try_clone()?]);
    }
    client.write_all(reply)?;
    client.flush()?;
    relay(client, socket, server)
}

/// Relays until one side ends. One thread serves both directions, because TLS cannot be split.
fn relay(
    client: &mut (impl Read + Write),
    socket: &TcpStream,
    mut server: TcpStream,
) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    for side in [socket, &server] {
        side.set_nodelay(true)?;
        side.set_read_timeout(Some(Duration::from_millis(1)))?;
    }
    // Alternates between the directions. Each read waits at most a millisecond.
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return server.shutdown(Shutdown::Both),
            Ok(length) => server.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                server.shutdown(Shutdown::Both)?;
                return Err(error);
            }
        }
        match server.read(&mut buffer) {
            Ok(0) => return socket.shutdown(Shutdown::Both),
            Ok(length) => {
                client.write_all(&buffer[..length])?;
                client.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                socket.shutdown(Shutdown::Both)?;
                return Err(error);
            }
        }
    }
}

/// Reads SOCKS5 up to the target. Returns the target and the user and password of the client.
fn socks_handshake(
    client: &mut (impl Read + Write),
    required: Option<(&str, &str)>,
) -> io::Result<(String, Option<String>)> {
    let [5, methods] = read(client)? else {
        return Err(io::Error::other("not SOCKS5"));
    };
    let methods = read_text(client, methods)?;
    let mut given = None;
    match required {
        None => client.write_all(&[5, 0])?,
        Some((user, password)) => {
            if !methods.contains('\x02') {
                return client
                    .write_all(&[5, 0xff])
                    .and(Err(io::Error::other("no password")));
            }
            client.write_all(&[5, 2])?;
            let [1, length] = read(client)? else {
                return Err(io::Error::other("not RFC 1929"));
            };
            let name = read_text(client, length)?;
            let [length] = read(client)?;
            let text = format!("{name}:{}", read_text(client, length)?);
            let matches = text == format!("{user}:{password}");
            client.write_all(&[1, u8::from(!matches)])?;
            if !matches {
                return Err(io::Error::other("wrong password"));
            }
            given = Some(text);
        }
    }
    let [5, 1, 0, kind] = read(client)? else {
        return Err(io::Error::other("not CONNECT"));
    };
    let host = match kind {
        1 => std::net::Ipv4Addr::from(read::<4>(client)?).to_string(),
        4 => format!("[{}]", std::net::Ipv6Addr::from(read::<16>(client)?)),
        _ => {
            let [length] = read(client)?;
            read_text(client, length)?
        }
    };
    Ok((
        format!("{host}:{}", u16::from_be_bytes(read(client)?)),
        given,
    ))
}

fn read<const N: usize>(client: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_text(client: &mut impl Read, length: u8) -> io::Result<String> {
    let mut bytes = vec![0; length.into()];
    client.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
