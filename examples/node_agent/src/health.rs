//! Kubernetes' probes: `/healthz` says whether a restart is needed, `/readyz` whether the cache can be used.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_informer::handler::HandlerStats;
use k8s_informer::informer::Observation;
use k8s_informer::{Object, Stop};
use serde::de::DeserializeOwned;

/// How long one client may keep the next one waiting: clients are served one after the other.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest request head. The kubelet sends about 150 bytes.
const MAX_HEAD: usize = 8 << 10;

/// Listens on every address of this machine or Pod, IPv6 and IPv4: the kubelet connects to the Pod's address.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    let addresses: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, port).into(),
        (Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    TcpListener::bind(&addresses[..])
}

/// The answers to the probes.
pub(crate) struct Health {
    /// After this time without a delivered event, while events wait, the handler counts as stuck.
    stuck_after: Duration,
    /// How many events had been delivered when the first of them was seen waiting, and when that was.
    waiting: Mutex<Option<(u64, Instant)>>,
}

impl Health {
    pub(crate) fn new(stuck_after: Duration) -> Self {
        Self {
            stuck_after,
            waiting: Mutex::new(None),
        }
    }

    /// The HTTP status and the body for a path.
    ///
    /// `/healthz` fails only for faults that a restart can mend: the informer has ended although the program runs, or
    /// a handler is stuck. An API server that is down, rejects the credentials or sends objects that can't be decoded
    /// stays so after a restart. The informer retries on its own, and the cache remains readable meanwhile; a restart
    /// would lose it, and would add a list per node to the load of a server that may be overloaded.
    ///
    /// `/readyz` succeeds once the handlers have seen the first list and every object in it could be decoded. It does
    /// not fail while the server is away: a cache that is a little behind is what informers are for.
    pub(crate) fn reply<T: Object + DeserializeOwned>(
        &self,
        path: &str,
        objects: &Observation<T>,
    ) -> (&'static str, String) {
        const OK: &str = "200 OK";
        const UNAVAILABLE: &str = "503 Service Unavailable";
        let status = objects.status();
        let has_ended = objects.informer().ended().is_done();
        match path {
            "/healthz" if has_ended => (UNAVAILABLE, format!("the informer has ended: {status}\n")),
            "/healthz" if self.is_stuck(objects.stats()) => (
                UNAVAILABLE,
                format!("a handler has not returned for {:?}\n", self.stuck_after),
            ),
            "/readyz" if has_ended || !objects.synced().is_done() || !status.complete => {
                (UNAVAILABLE, format!("{status}\n"))
            }
            "/healthz" | "/readyz" => (OK, format!("{status}\n")),
            _ => ("404 Not Found", "try /healthz or /readyz\n".to_owned()),
        }
    }

    /// Compares with the probe before. A handler that is in a call while nothing waits may take its time.
    fn is_stuck(&self, stats: HandlerStats) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match *waiting {
            _ if stats.waiting == 0 => *waiting = None,
            Some((delivered, since)) if delivered == stats.delivered => {
                return since.elapsed() >= self.stuck_after;
            }
            _ => *waiting = Some((stats.delivered, Instant::now())),
        }
        false
    }
}

/// Serves GET requests until `stop` is given; `reply` returns the status and the body for a path.
pub(crate) fn serve(
    listener: &TcpListener,
    stop: &Stop,
    reply: impl Fn(&str) -> (&'static str, String),
) -> io::Result<()> {
    let port = listener.local_addr()?.port();
    // `accept` has no timeout. A connection wakes it up.
    let _wake = stop.on_stop(move || {
        let addresses: [SocketAddr; 2] = [
            (Ipv4Addr::LOCALHOST, port).into(),
            (Ipv6Addr::LOCALHOST, port).into(),
        ];
        let _ = TcpStream::connect(&addresses[..]);
    });
    while !stop.is_stopped() {
        let served = listener
            .accept()
            .map(|(connection, _)| respond(connection, &reply));
        if served.is_err() {
            // For example no free file descriptor: the next call would fail at once.
            stop.wait_timeout(Duration::from_millis(50));
        }
    }
    Ok(())
}

fn respond(
    mut connection: TcpStream,
    reply: impl Fn(&str) -> (&'static str, String),
) -> io::Result<()> {
    let deadline = Instant::now() + CLIENT_TIMEOUT;
    connection.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_HEAD {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        match connection.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend(&buffer[..read]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => reply(target.split('?').next().unwrap_or_default()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Sends one GET request. Returns the status and the body as `200 OK: body`.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut reply = String::new();
    connection.read_to_string(&mut reply)?;
    let parts = reply
        .strip_prefix("HTTP/1.1 ")
        .and_then(|reply| reply.split_once("\r\n\r\n"));
    let (head, body) = parts.ok_or(io::ErrorKind::InvalidData)?;
    Ok(format!(
        "{}: {}",
        head.lines().next().unwrap_or_default(),
        body.trim_end()
    ))
}
