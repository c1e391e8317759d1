//! The probes of Kubernetes: `/healthz` reports whether a restart is needed, `/readyz` whether the
//! cache is ready for use.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_informer::handler::HandlerStats;
use k8s_informer::informer::Observation;
use k8s_informer::{Object, Stop};
use serde::de::DeserializeOwned;

/// The longest time that one client can delay the next. Clients are served one at a time.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum size of a request head. The kubelet sends about 150 bytes.
const MAX_HEAD: usize = 8 << 10;

/// Listens on all IPv6 and IPv4 addresses of this machine or Pod. The kubelet connects to the
/// address of the Pod.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    let addresses: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, port).into(),
        (Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    TcpListener::bind(&addresses[..])
}

/// Computes the responses to the probes.
pub(crate) struct Health {
    /// A handler is stuck if events wait and none is delivered for this time.
    stuck_after: Duration,
    /// The number of delivered events when events were first seen waiting, and the time of that
    /// probe.
    waiting: Mutex<Option<(u64, Instant)>>,
}

impl Health {
    pub(crate) fn new(stuck_after: Duration) -> Self {
        Self {
            stuck_after,
            waiting: Mutex::new(None),
        }
    }

    /// Returns the HTTP status and the body for `path`.
    ///
    /// `/healthz` fails only for faults that a restart can repair: the informer has ended while the
    /// program runs, or a handler is stuck. A restart does not help if the API server is down,
    /// rejects the credentials or sends objects that cannot be decoded. In these cases the informer
    /// retries on its own, and the cache stays readable. A restart would lose the cache. It would
    /// also cost one more list per node on a server that may already be overloaded.
    ///
    /// `/readyz` succeeds once the handlers have received the initial list. It does not fail while
    /// the server is unreachable: an informer still serves its cache, which may be slightly out of
    /// date. Nor does it fail while an object is unreadable, because one object would take all
    /// replicas out of service. Use the log or the metrics for an alert.
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
            "/readyz" if has_ended || !objects.synced().is_done() => {
                (UNAVAILABLE, format!("{status}\n"))
            }
            "/healthz" | "/readyz" => (OK, format!("{status}\n")),
            _ => (
                "404 Not Found",
                "the paths are /healthz and /readyz\n".to_owned(),
            ),
        }
    }

    /// Compares the counters with the previous probe. A handler in a long call is not stuck while
    /// no event waits for it.
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

/// Serves GET requests until `stop` is signalled. `reply` returns the status and the body for a
/// path.
pub(crate) fn serve(
    listener: &TcpListener,
    stop: &Stop,
    reply: impl Fn(&str) -> (&'static str, String),
) -> io::Result<()> {
    let port = listener.local_addr()?.port();
    // `accept` has no timeout, so a connection from this program wakes it up on stop.
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
            // Pause, because the next `accept` could fail immediately as well, for example without
            // a free file descriptor.
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
