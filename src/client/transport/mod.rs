//! Sockets and TLS under ureq. All that touches `ureq::unversioned`, which is outside ureq's semver promise,
//! stands here.

pub(super) mod cancel;
pub(super) mod deadline;
mod resolve;
pub(super) mod tls;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Protocol, SockRef, TcpKeepalive, Type};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
    time,
};
use ureq::{Agent, http::Uri};

use self::cancel::{Call, Socket};
use self::resolve::Names;
use self::tls::Tls;

/// The largest head of an answer, and the longest header line of a request: 32 KiB. A long token has 10 KiB;
/// each running watch holds the buffers, so more would cost every one of them.
pub(super) const BUFFER: usize = 32 * 1024;

/// The buffers under TLS: one record.
const RECORD_BUFFER: usize = 16 * 1024;

/// TCP keepalive: after 30 s of silence, every 10 s, three times; a dead peer is noticed after a minute. No
/// TCP_USER_TIMEOUT, it would override the count.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// How long an unused connection stays in the pool: as long as a keepalive would find it alive without
/// asking.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// An agent for one server.
pub(super) fn agent(tls: Option<Tls>) -> Agent {
    let config = Agent::config_builder()
        // Without this ureq takes one from the environment, for every host.
        .proxy(None)
        // Otherwise the body of a failure, its Status, is lost.
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .accept_encoding("identity")
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        // All of them: there is one host.
        .max_idle_connections_per_host(10)
        .max_idle_age(MAX_IDLE)
        .build();
    Agent::with_parts(config, TcpConnector::default().chain(TlsConnector { tls }), Later)
}

/// Resolves nothing: ureq asks for every request, but only a new connection needs addresses.
#[derive(Debug)]
struct Later;

impl Resolver for Later {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

/// What is left of the time to connect; zero is an error.
fn left(details: &ConnectionDetails<'_>) -> Result<Option<Duration>, ureq::Error> {
    let time::Duration::Exact(limit) = details.timeout.after else { return Ok(None) };
    let (time::Instant::Exact(start), time::Instant::Exact(now)) = (details.now, (details.current_time)())
    else {
        return Ok(Some(limit));
    };
    match limit.saturating_sub(now.saturating_duration_since(start)) {
        Duration::ZERO => Err(ureq::Error::Timeout(details.timeout.reason)),
        left => Ok(Some(left)),
    }
}

#[derive(Debug, Default)]
struct TcpConnector {
    names: Names,
}

impl Connector for TcpConnector {
    type Out = TcpTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<TcpTransport>, ureq::Error> {
        let host = details.uri.host().unwrap_or_default();
        let port = match details.uri.port_u16() {
            Some(port) => port,
            None if details.needs_tls() => 443,
            None => 80,
        };
        let call = Call::current();
        let stop = call.as_ref().map(|call| call.stop());
        let addresses = match self.names.resolve(host, port, left(details)?, stop) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(ureq::Error::Timeout(ureq::Timeout::Resolve));
            }
            addresses => addresses?,
        };

        let mut last = ureq::Error::HostNotFound;
        for (index, &address) in addresses.iter().enumerate() {
            // Half of what is left for each but the last, so that a silent first address leaves time for the
            // others.
            let share = if index + 1 < addresses.len() { 2 } else { 1 };
            let timeout = left(details)?.map(|left| left / share);
            match connect(address, timeout, call.as_deref()) {
                Ok(socket) => return Ok(Some(TcpTransport::new(socket, details.needs_tls()))),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    last = ureq::Error::Timeout(details.timeout.reason);
                }
                Err(error) => {
                    last = io::Error::new(error.kind(), format!("connect to {address}: {error}")).into();
                }
            }
            if stop.is_some_and(|stop| stop.is_stopped()) {
                break;
            }
        }
        Err(last)
    }
}

fn connect(address: SocketAddr, timeout: Option<Duration>, call: Option<&Call>) -> io::Result<Arc<Socket>> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // std's stream writes without raising SIGPIPE; socket2's does not promise it.
    let socket = Socket::new(TcpStream::from(socket));
    if let Some(call) = call {
        // Before it connects: a shutdown ends a connect that blocks, and fails one that comes after.
        call.adopt(&socket);
    }
    let options = SockRef::from(&socket.stream);
    match timeout {
        Some(timeout) => options.connect_timeout(&address.into(), timeout)?,
        None => options.connect(&address.into())?,
    }
    options.set_tcp_nodelay(true)?;
    options.set_tcp_keepalive(&KEEPALIVE)?;
    Ok(socket)
}

struct TcpTransport {
    socket: Arc<Socket>,
    buffers: LazyBuffers,
    /// What the socket is set to, to save system calls.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl TcpTransport {
    fn new(socket: Arc<Socket>, under_tls: bool) -> Self {
        let size = if under_tls { RECORD_BUFFER } else { BUFFER };
        Self { socket, buffers: LazyBuffers::new(size, size), read_timeout: None, write_timeout: None }
    }

    /// Whether it is connected and silent. A byte that nobody asked for makes it useless.
    fn is_idle(&self) -> io::Result<bool> {
        let stream = &self.socket.stream;
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        Ok(peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    }
}

/// The time that a read or write may take; running out is an error of its own.
fn limit(timeout: NextTimeout) -> Result<Option<Duration>, ureq::Error> {
    match timeout.after {
        time::Duration::NotHappening => Ok(None),
        time::Duration::Exact(Duration::ZERO) => Err(ureq::Error::Timeout(timeout.reason)),
        time::Duration::Exact(limit) => Ok(Some(limit)),
    }
}

/// The socket's own timeout is WouldBlock on Unix; TimedOut is a peer that did not answer keepalive there.
fn is_timeout(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || cfg!(windows) && error.kind() == io::ErrorKind::TimedOut
}

impl Transport for TcpTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        if let Some(call) = Call::current() {
            call.adopt_if_new(&self.socket);
        }
        let limit = limit(timeout)?;
        if limit != self.write_timeout {
            self.socket.stream.set_write_timeout(limit)?;
            self.write_timeout = limit;
        }
        match (&self.socket.stream).write_all(&self.buffers.output()[..amount]) {
            Err(error) if is_timeout(&error) => Err(ureq::Error::Timeout(timeout.reason)),
            written => Ok(written?),
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = match deadline::left() {
            Some(left) => {
                NextTimeout { after: time::Duration::Exact(left), reason: ureq::Timeout::PerRead, ..timeout }
            }
            None => timeout,
        };
        let limit = limit(timeout)?;
        if limit != self.read_timeout {
            self.socket.stream.set_read_timeout(limit)?;
            self.read_timeout = limit;
        }
        let free = free_input(&mut self.buffers)?;
        let amount = loop {
            match (&self.socket.stream).read(free) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Err(ureq::Error::Timeout(timeout.reason)),
                read => break read?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // ureq asks before it takes a connection out of the pool, too: a call that wants a new one says no to
        // all.
        !Call::current().is_some_and(|call| call.is_fresh()) && self.is_idle().unwrap_or(false)
    }
}

/// Where to read to. A buffer that is full while more is wanted would look like the end of the connection.
fn free_input(buffers: &mut LazyBuffers) -> Result<&mut [u8], ureq::Error> {
    let used = buffers.input().len();
    match buffers.input_append_buf() {
        [] => Err(ureq::Error::LargeResponseHeader(used, used)),
        free => Ok(free),
    }
}

impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpTransport").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct TlsConnector {
    tls: Option<Tls>,
}

impl Connector<TcpTransport> for TlsConnector {
    type Out = Either<TcpTransport, Box<TlsTransport>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<TcpTransport>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Err(ureq::Error::ConnectionFailed) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let Some(tls) = &self.tls else { return Err(ureq::Error::TlsRequired) };
        let mut connection =
            ClientConnection::new(tls.config.clone(), tls.server_name.clone()).map_err(io::Error::other)?;
        let mut socket = TransportAdapter::new(transport, details.current_time.clone());
        let after = left(details)?.map_or(time::Duration::NotHappening, time::Duration::Exact);
        socket.set_timeout(NextTimeout { after, ..details.timeout });
        connection.complete_io(&mut socket)?;
        let stream = StreamOwned::new(connection, socket);
        Ok(Some(Either::B(Box::new(TlsTransport { stream, buffers: LazyBuffers::new(BUFFER, BUFFER) }))))
    }
}

struct TlsTransport {
    stream: StreamOwned<ClientConnection, TransportAdapter<TcpTransport>>,
    buffers: LazyBuffers,
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(free_input(&mut self.buffers)?)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_notice_a_dead_peer_and_send_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let timeout = Some(Duration::from_secs(5));
        let socket = connect(listener.local_addr().unwrap(), timeout, None).unwrap();
        let options = SockRef::from(&socket.stream);
        assert!(options.tcp_nodelay().unwrap() && options.keepalive().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(options.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
        assert_eq!(options.tcp_keepalive_retries().unwrap(), 3);
    }

    #[test]
    fn a_connection_is_idle_until_a_byte_or_its_end_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for bytes in [&b"x"[..], b""] {
            let socket = connect(listener.local_addr().unwrap(), None, None).unwrap();
            let mut transport = TcpTransport::new(socket, false);
            assert!(transport.is_open());
            let (mut peer, _) = listener.accept().unwrap();
            peer.write_all(bytes).unwrap();
            drop(peer);
            // Blocks until it is there.
            let _ = transport.socket.stream.peek(&mut [0]).unwrap();
            assert!(!transport.is_open());
        }
    }
}
