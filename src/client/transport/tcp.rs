//! TCP to the server or to its proxy.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, TcpKeepalive, Type};
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport, time};

use super::buffers::ConnectionBuffers;
use super::cancel::{
    Call, SLICE, Socket, connects_need_slices, in_slices, reads_need_slices, retry_in_slices,
};
use super::sizes::{BUFFER, RECORD_BUFFER, RECORD_INPUT, SMALL_INPUT};
use crate::base::derive::debug_fields;
use crate::stop::Stop;

/// TCP keepalive: the first probe after 30 s without data, then every 10 s, three in total. A dead
/// peer is detected after a minute. TCP_USER_TIMEOUT is not set, because it would override the
/// count.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// The time to wait for one of several addresses before the next one is tried: 300 ms, as Go's
/// `FallbackDelay`.
const FALLBACK_DELAY: Duration = Duration::from_millis(300);

pub(super) enum DialError {
    /// No address responded in time.
    Silent,
    Failed(ureq::Error),
}

/// Connects to the first address that responds. `left` is the time left for all attempts.
///
/// This is Happy Eyeballs (RFC 8305) without threads: the addresses are tried in order, in two
/// rounds. In the first round, an address that does not respond, for example because IPv6 is
/// broken, costs only a short delay. The second round waits longer for these addresses, in case
/// they are only slow.
pub(super) fn dial(
    addresses: &[SocketAddr],
    left: impl Fn() -> Result<Option<Duration>, ureq::Error>,
    call: Option<&Call>,
) -> Result<Arc<Socket>, DialError> {
    let mut waiting = alternate_families(addresses);
    let mut last = DialError::Failed(ureq::Error::HostNotFound);
    // A single address needs no first round.
    for first_round in [true, false]
        .into_iter()
        .skip(usize::from(addresses.len() < 2))
    {
        let count = waiting.len();
        let mut silent = Vec::new();
        for (index, address) in waiting.into_iter().enumerate() {
            let left = left().map_err(DialError::Failed)?;
            let timeout = match left {
                // The whole first round takes at most a quarter of the time left.
                Some(left) if first_round => Some(FALLBACK_DELAY.min(left / 4 / count as u32)),
                None if first_round => Some(FALLBACK_DELAY),
                // Each address but the last one gets half of the time left.
                left => left.map(|left| left / if index + 1 < count { 2 } else { 1 }),
            };
            match connect(address, timeout, call) {
                Ok(socket) => return Ok(socket),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    silent.push(address);
                    last = DialError::Silent;
                }
                Err(error) => {
                    let text = format!("connect to {address}: {error}");
                    last = DialError::Failed(io::Error::new(error.kind(), text).into());
                }
            }
            if call.is_some_and(|call| call.stop().is_stopped()) {
                return Err(last);
            }
        }
        if silent.is_empty() {
            break;
        }
        waiting = silent;
    }
    Err(last)
}

/// Keeps the system's order of the addresses, but alternates between IPv6 and IPv4. If one family
/// does not work at all, it then does not delay the other one.
fn alternate_families(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .iter()
        .copied()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::with_capacity(addresses.len());
    while ordered.len() < addresses.len() {
        ordered.extend(first.next());
        ordered.extend(second.next());
    }
    ordered
}

fn connect(
    address: SocketAddr,
    timeout: Option<Duration>,
    call: Option<&Call>,
) -> io::Result<Arc<Socket>> {
    let socket = socket2::Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Use the standard library's stream, because its writes do not raise SIGPIPE. socket2 does not
    // guarantee that.
    let socket = Socket::new(TcpStream::from(socket));
    if let Some(call) = call {
        // Register the socket before it connects. Then a shutdown ends a blocked connect, and if
        // the shutdown comes first, the connect fails.
        call.adopt(&socket);
    }
    let options = SockRef::from(&socket.stream);
    if connects_need_slices() {
        let stop = call.map_or_else(Stop::never, |call| call.stop().clone());
        connect_in_slices(&socket.stream, address, timeout, &stop)?;
    } else {
        // Without a limit as well, because a shutdown does not end a `connect` that comes after it.
        options.connect_timeout(&address.into(), timeout.unwrap_or(Duration::MAX))?;
    }
    options.set_tcp_nodelay(true)?;
    options.set_tcp_keepalive(&KEEPALIVE)?;
    Ok(socket)
}

fn connect_in_slices(
    stream: &TcpStream,
    address: SocketAddr,
    timeout: Option<Duration>,
    stop: &Stop,
) -> io::Result<()> {
    let options = SockRef::from(stream);
    let mut started = false;
    let connected = retry_in_slices(stop, timeout, || {
        if !started {
            started = true;
            let slice = timeout.map_or(SLICE, |timeout| timeout.min(SLICE));
            return match options.connect_timeout(&address.into(), slice) {
                // The system continues to connect, unless the error is its own.
                Err(error)
                    if error.kind() == io::ErrorKind::TimedOut
                        && error.raw_os_error().is_none() =>
                {
                    Ok(None)
                }
                connected => connected.map(Some),
            };
        }
        match options.take_error()? {
            Some(error) => Err(error),
            // A socket has no peer before it is connected.
            None => Ok(stream.peer_addr().ok().map(drop)),
        }
    })?;
    connected.ok_or(io::ErrorKind::TimedOut)?;
    // socket2 does not guarantee the mode of the socket after a timeout.
    stream.set_nonblocking(false)
}

/// Writes all bytes. Returns `None` if the peer does not accept them before `limit`.
///
/// The socket is in nonblocking mode, because Windows does not define what a write that timed out
/// has written.
fn write_in_slices(
    mut stream: &TcpStream,
    mut bytes: &[u8],
    limit: Option<Duration>,
    stop: &Stop,
) -> io::Result<Option<()>> {
    stream.set_nonblocking(true)?;
    let written = retry_in_slices(stop, limit, || {
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_unfinished(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(()))
    });
    stream.set_nonblocking(false)?;
    written
}

pub(super) struct TcpTransport {
    socket: Arc<Socket>,
    buffers: ConnectionBuffers,
    /// The call that wrote last. Its deadline and its stop apply to reads.
    call: Weak<Call>,
    /// The current timeouts of the socket, kept to avoid system calls.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl TcpTransport {
    pub(super) fn new(socket: Arc<Socket>, under_tls: bool) -> Self {
        let (small, output) = if under_tls {
            (RECORD_INPUT, RECORD_BUFFER)
        } else {
            (SMALL_INPUT, BUFFER)
        };
        let buffers = ConnectionBuffers::new(small, output);
        Self {
            socket,
            buffers,
            call: Weak::new(),
            read_timeout: None,
            write_timeout: None,
        }
    }

    /// The stop of the call that wrote last.
    fn stop(&self) -> Stop {
        let call = self.call.upgrade();
        call.map_or_else(Stop::never, |call| call.stop().clone())
    }

    /// Blocks until there is input, or the connection ends. Returns whether this was before `limit`.
    ///
    /// This peeks, because a read that times out may lose data on Windows.
    fn wait_for_input(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        let peeked = in_slices(&self.stop(), limit, |slice| {
            self.set_read_timeout(Some(slice))?;
            match self.socket.stream.peek(&mut [0]) {
                Err(error) if is_unfinished(&error) => Ok(None),
                peeked => peeked.map(Some),
            }
        });
        Ok(peeked?.is_some())
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout != self.read_timeout {
            self.socket.stream.set_read_timeout(timeout)?;
            self.read_timeout = timeout;
        }
        Ok(())
    }

    /// Whether the connection is open and has no input. A connection with unexpected input is
    /// unusable.
    fn is_idle(&self) -> io::Result<bool> {
        let stream = &self.socket.stream;
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        Ok(peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    }
}

/// The time limit of a read or write. Returns an error if it has run out.
fn limit(timeout: NextTimeout) -> Result<Option<Duration>, ureq::Error> {
    match timeout.after {
        time::Duration::NotHappening => Ok(None),
        time::Duration::Exact(Duration::ZERO) => Err(ureq::Error::Timeout(timeout.reason)),
        time::Duration::Exact(limit) => Ok(Some(limit)),
    }
}

/// Whether a read or write has reached the timeout of the socket. On Unix, that error is
/// `WouldBlock`, and `TimedOut` means that the peer did not respond to keepalive probes.
fn is_timeout(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || cfg!(windows) && error.kind() == io::ErrorKind::TimedOut
}

/// Whether a read or write ended without a result and can be repeated.
fn is_unfinished(error: &io::Error) -> bool {
    is_timeout(error) || error.kind() == io::ErrorKind::Interrupted
}

impl Transport for TcpTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        if let Some(call) = Call::current() {
            call.adopt_if_new(&self.socket);
            self.call = Arc::downgrade(&call);
        }
        let limit = limit(timeout)?;
        if reads_need_slices() {
            let (stop, output) = (self.stop(), &self.buffers.output()[..amount]);
            let written = write_in_slices(&self.socket.stream, output, limit, &stop)?;
            return written.ok_or(ureq::Error::Timeout(timeout.reason));
        }
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
        let call = self.call.upgrade();
        let timeout = match call.and_then(|call| call.deadline().left()) {
            Some(left) => NextTimeout {
                after: time::Duration::Exact(left),
                reason: ureq::Timeout::PerRead,
                ..timeout
            },
            None => timeout,
        };
        let limit = limit(timeout)?;
        if reads_need_slices() {
            // A full input is an error before a wait.
            free_input(&mut self.buffers)?;
            if !self.wait_for_input(limit)? {
                return Err(ureq::Error::Timeout(timeout.reason));
            }
        } else {
            self.set_read_timeout(limit)?;
        }
        let free = free_input(&mut self.buffers)?;
        let amount = loop {
            match (&self.socket.stream).read(free) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    return Err(ureq::Error::Timeout(timeout.reason));
                }
                read => break read?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.buffers.release();
        // ureq calls `is_open` before it returns a connection to the pool and before it takes one
        // out. A request that needs a new connection must not get a pooled one.
        !Call::current().is_some_and(|call| call.is_fresh()) && self.is_idle().unwrap_or(false)
    }
}

/// Returns the free part of the input. A full input is an error, because ureq would take it for the
/// end of the connection.
pub(super) fn free_input(buffers: &mut ConnectionBuffers) -> Result<&mut [u8], ureq::Error> {
    let used = buffers.input().len();
    match buffers.input_append_buf() {
        [] => Err(ureq::Error::LargeResponseHeader(used, used)),
        free => Ok(free),
    }
}

debug_fields!(TcpTransport:);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;
    use crate::client::transport::cancel::Running;
    use crate::stop::Stopper;

    /// The time limit for a test that hangs.
    const SOON: Duration = Duration::from_secs(5);

    /// A listener whose queue is full, so that connection attempts get no response. `None` on a
    /// system that refuses them, such as Windows.
    fn silent() -> Option<(socket2::Socket, Vec<TcpStream>, SocketAddr)> {
        let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        // Not 0, for which macOS uses its largest queue.
        listener.listen(1).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        loop {
            match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                Ok(stream) => queued.push(stream),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
                Err(_) => return None,
            }
            assert!(queued.len() < 100, "the accept queue did not fill up");
        }
        Some((listener, queued, address))
    }

    /// A bound socket that does not listen, so that connections are refused.
    fn refusing() -> (socket2::Socket, SocketAddr) {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        (socket, address)
    }

    #[test]
    fn dial_order_alternates_address_families() {
        let addresses = |text: &str| -> Vec<SocketAddr> {
            text.split(' ')
                .map(|address| address.parse().unwrap())
                .collect()
        };
        for (given, expected) in [
            (
                "[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1 2.2.2.2:1",
                "[::1]:1 1.1.1.1:1 [::2]:1 2.2.2.2:1 [::3]:1",
            ),
            ("1.1.1.1:1 [::1]:1 [::2]:1", "1.1.1.1:1 [::1]:1 [::2]:1"),
            ("1.1.1.1:1 2.2.2.2:1", "1.1.1.1:1 2.2.2.2:1"),
        ] {
            assert_eq!(alternate_families(&addresses(given)), addresses(expected));
        }
        assert!(alternate_families(&[]).is_empty());
    }

    #[test]
    fn dial_skips_silent_and_refusing_addresses() {
        let Some((_full, _queued, silent)) = silent() else {
            return;
        };
        let (_refusing, refusing) = refusing();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        // The first round has short delays, so a silent address delays the call only a little, even
        // without a limit.
        for limit in [None, Some(Duration::from_secs(60))] {
            let Ok(socket) = dial(&[silent, refusing, silent, good], || Ok(limit), None) else {
                panic!()
            };
            assert_eq!(socket.stream.peer_addr().unwrap(), good);
        }
        let error = dial(
            &[silent, refusing],
            || Ok(Some(Duration::from_millis(100))),
            None,
        )
        .err()
        .unwrap();
        assert!(matches!(error, DialError::Silent));
        let Some(DialError::Failed(error)) = dial(&[refusing], || Ok(None), None).err() else {
            panic!()
        };
        assert!(error.to_string().contains(&refusing.to_string()), "{error}");
    }

    #[test]
    fn stop_ends_wait_for_silent_addresses() {
        let Some((_full, _queued, silent)) = silent() else {
            return;
        };
        // The second stop comes before the connect.
        for (count, wait) in [(2, Duration::from_millis(50)), (1, Duration::ZERO)] {
            let stop = Stopper::new();
            let running = Running::begin(&stop, false, false, None);
            let (sender, failed) = channel();
            if wait.is_zero() {
                stop.stop();
            }
            let dialing = std::thread::spawn(move || {
                let addresses = &[silent; 2][..count];
                let dialed =
                    running.enter(|| dial(addresses, || Ok(None), Call::current().as_deref()));
                sender.send(dialed.is_err()).unwrap();
            });
            stop.wait_timeout(wait);
            stop.stop();
            assert!(failed.recv_timeout(SOON).unwrap());
            dialing.join().unwrap();
        }
    }

    #[test]
    fn connect_in_slices_ends_like_any_connect() {
        let connect = |address, timeout, stop: &Stop| {
            let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let stream = TcpStream::from(socket);
            connect_in_slices(&stream, address, timeout, stop).map(|()| stream)
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = connect(address, None, &Stop::never()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"x").unwrap();
        // The stream is in blocking mode again.
        assert_eq!(stream.read(&mut [0]).unwrap(), 1);

        let (_refusing, refusing) = refusing();
        let error = connect(refusing, None, &Stop::never()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);

        let Some((full, _queued, silent)) = silent() else {
            return;
        };
        let mut full = Some(full);
        for limit in [1, 120].map(Duration::from_millis) {
            let (start, result) = (Instant::now(), connect(silent, Some(limit), &Stop::never()));
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(start.elapsed() >= limit);
        }
        for end in ["stopped", "accepted", "refused"] {
            let stop = Stopper::new();
            let (sender, result) = channel();
            let connecting = std::thread::spawn({
                let stop = stop.clone();
                move || sender.send(connect(silent, None, &stop)).unwrap()
            });
            let early = result.recv_timeout(3 * SLICE);
            assert!(early.is_err(), "{early:?}");
            // The system repeats its attempt to connect after a second or two.
            match end {
                "stopped" => stop.stop(),
                "accepted" => drop(full.as_ref().unwrap().accept().unwrap()),
                _ => drop(full.take()),
            }
            let connected = result.recv_timeout(SOON).unwrap();
            assert_eq!(connected.is_ok(), end == "accepted", "{end}: {connected:?}");
            connecting.join().unwrap();
        }
    }

    #[test]
    fn writes_in_slices_are_complete_and_limited() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // More than the buffers of two sockets hold.
        let bytes: Vec<u8> = (0..32 << 20).map(|n: u32| (n % 251) as u8).collect();
        for (reads, limit) in [(false, 2 * SLICE), (true, 4 * SOON)] {
            let socket = connect(listener.local_addr().unwrap(), None, None).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let writer = Arc::clone(&socket);
            std::thread::scope(|scope| {
                let writing = scope
                    .spawn(|| write_in_slices(&writer.stream, &bytes, Some(limit), &Stop::never()));
                if !reads {
                    assert_eq!(writing.join().unwrap().unwrap(), None);
                    return;
                }
                // The peer reads after the writer has waited.
                Stop::never().wait_timeout(2 * SLICE);
                let mut read = vec![0; bytes.len()];
                peer.read_exact(&mut read).unwrap();
                assert!(read == bytes);
                assert_eq!(writing.join().unwrap().unwrap(), Some(()));
                // The socket blocks again.
                socket.stream.set_read_timeout(Some(SLICE)).unwrap();
                let start = Instant::now();
                socket.stream.peek(&mut [0]).unwrap_err();
                assert!(start.elapsed() >= SLICE / 2);
            });
        }
    }

    // Not on Windows, where socket2 cannot read the keepalive settings.
    #[cfg(unix)]
    #[test]
    fn sockets_have_keepalive_and_nodelay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let timeout = Some(Duration::from_secs(5));
        let socket = connect(listener.local_addr().unwrap(), timeout, None).unwrap();
        let options = SockRef::from(&socket.stream);
        assert!(options.tcp_nodelay().unwrap() && options.keepalive().unwrap());
        assert_eq!(
            options.tcp_keepalive_time().unwrap(),
            Duration::from_secs(30)
        );
        assert_eq!(
            options.tcp_keepalive_interval().unwrap(),
            Duration::from_secs(10)
        );
        assert_eq!(options.tcp_keepalive_retries().unwrap(), 3);
    }

    #[test]
    fn idle_connection_is_open_until_data_or_eof_arrives() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for bytes in [&b"x"[..], b""] {
            let socket = connect(listener.local_addr().unwrap(), None, None).unwrap();
            let mut transport = TcpTransport::new(socket, false);
            assert!(transport.is_open());
            let (mut peer, _) = listener.accept().unwrap();
            peer.write_all(bytes).unwrap();
            drop(peer);
            // Blocks until the byte or the end arrives.
            let _ = transport.socket.stream.peek(&mut [0]).unwrap();
            assert!(!transport.is_open());
        }
    }

    #[test]
    fn silent_read_times_out_at_the_call_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = connect(listener.local_addr().unwrap(), None, None).unwrap();
        let mut transport = TcpTransport::new(socket, false);
        let (mut peer, _) = listener.accept().unwrap();
        let no_limit = NextTimeout {
            after: time::Duration::NotHappening,
            reason: ureq::Timeout::RecvBody,
            per_read: None,
            per_write: None,
        };
        let running = Running::begin(&Stop::never(), false, false, None);
        running.enter(|| transport.transmit_output(0, no_limit).unwrap());
        for wait in [Duration::ZERO, Duration::from_millis(1)] {
            running.deadline().set(Some(Instant::now() + wait));
            let silent = transport.await_input(no_limit);
            assert!(matches!(
                silent,
                Err(ureq::Error::Timeout(ureq::Timeout::PerRead))
            ));
        }
        peer.write_all(b"x").unwrap();
        running.deadline().set(None);
        assert!(transport.await_input(no_limit).unwrap());
        assert_eq!(transport.buffers.input(), b"x");
    }
}
