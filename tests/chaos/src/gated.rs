//! A thread that writes without a pause through a gated client, and ignores every stop. A relay in
//! front of its requests, in the same process, checks that none begins after the end of a term.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Stop};
use k8s_informer_controller::metrics::LeaderElectionMetrics;
use serde_json::json;

use crate::random::Random;
use crate::timing::{Micros, now};

/// How long after the loss of its Lease the process may still write the first byte of a request. It
/// is the time between the last look at the clocks and the write, on a busy machine.
const LIMIT: Micros = 50_000;

/// How often the relay looks for the begin of a term, at least 1 ms apart. A count, because the
/// process can be paused.
const LOOKS: usize = 50;

/// The maximum number of microseconds between two requests.
const PAUSE: usize = 20_000;

/// When this process has last lost its term. 0 during a term.
#[derive(Clone)]
pub(crate) struct Term(Arc<AtomicI64>);

impl Term {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1)))
    }
}

/// The process sees the begin and the end of its terms.
impl LeaderElectionMetrics for Term {
    fn is_leader(&self, is_leader: bool) {
        self.0.store(if is_leader { 0 } else { now() }, SeqCst);
    }
}

/// What has happened since the last report.
pub(crate) enum News {
    /// The numbers of requests that have left, and that the gate has refused.
    Counts {
        changes: u64,
        refused: u64,
    },
    Violation(String),
}

type Report = Arc<dyn Fn(News) + Send + Sync>;

/// Starts the thread and its relay. `upstream` is where the relay sends the requests to. `gate` gates
/// the client of the thread.
pub(crate) fn start(
    upstream: Client,
    path: String,
    term: &Term,
    random: Random,
    gate: impl FnOnce(&Client) -> Client,
    report: impl Fn(News) + Send + Sync + 'static,
) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a relay");
    let address = listener.local_addr().expect("its address");
    let (changes, report): (Arc<AtomicU64>, Report) = (Arc::default(), Arc::new(report));
    let relay = Relay {
        upstream,
        term: term.clone(),
        changes: Arc::clone(&changes),
        report: Arc::clone(&report),
    };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let relay = relay.clone();
            thread::spawn(move || relay.serve(&client));
        }
    });
    let client = gate(&relayed(address));
    thread::spawn(move || write(&client, &path, &random, &changes, &*report));
}

/// Writes for ever, and ignores each stop.
fn write(
    client: &Client,
    path: &str,
    random: &Random,
    changes: &AtomicU64,
    report: &dyn Fn(News),
) -> ! {
    let (mut counter, mut refused) = (0, 0);
    loop {
        counter += 1;
        let body = json!({"data": {"rude": counter.to_string()}});
        let request = Request::patch(path)
            .content_type("application/merge-patch+json")
            .json(&body)
            .expect("JSON");
        // Some are retried, and each attempt is a request.
        let sent = client.request(&request.retries(1), &Stop::never());
        refused += u64::from(sent.is_err_and(|error| error.is_not_leading()));
        if counter % 100 == 0 {
            let changes = changes.swap(0, SeqCst);
            report(News::Counts { changes, refused });
            refused = 0;
        }
        thread::sleep(Duration::from_micros(random.below(PAUSE) as u64));
    }
}

fn relayed(address: SocketAddr) -> Client {
    let config = Config::new(format!("http://{address}")).no_proxy();
    Client::new(config).expect("a client")
}

/// Forwards the requests of the thread that writes.
#[derive(Clone)]
struct Relay {
    upstream: Client,
    term: Term,
    changes: Arc<AtomicU64>,
    report: Report,
}

impl Relay {
    fn serve(&self, client: &TcpStream) {
        // Ends with the connection.
        let _ = self.forward(client);
        let _ = client.shutdown(Shutdown::Both);
    }

    fn forward(&self, client: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(client);
        loop {
            // Blocks until the first byte of a request.
            if reader.fill_buf()?.is_empty() {
                return Ok(());
            }
            let (at, lost) = (now(), self.term.0.load(SeqCst));
            let (path, body) = read_request(&mut reader)?;
            self.changes.fetch_add(1, SeqCst);
            if lost != 0 && at - lost > LIMIT && !self.term_begins() {
                let late = at - lost;
                let violation = format!("a change begins {late} µs after the end of the term");
                (self.report)(News::Violation(violation));
            }
            // The answer does not matter, but its time does: it can be lost or late.
            let request = Request::patch(&path)
                .content_type("application/merge-patch+json")
                .body(body)
                .retries(0);
            let answer = match self.upstream.request(&request, &Stop::never()) {
                Ok(response) => response.bytes().is_ok(),
                Err(_) => false,
            };
            let head = if answer {
                "200 OK"
            } else {
                "503 Service Unavailable"
            };
            let head = format!(
                "HTTP/1.1 {head}\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{{}}"
            );
            (&*client).write_all(head.as_bytes())?;
        }
    }

    /// Whether a term begins about now. A gate opens a moment before the begin is reported.
    fn term_begins(&self) -> bool {
        (0..LOOKS).any(|_| {
            thread::sleep(Duration::from_millis(1));
            self.term.0.load(SeqCst) == 0
        })
    }
}

/// Reads a request. Returns its path and its body.
fn read_request(reader: &mut BufReader<&TcpStream>) -> io::Result<(String, Vec<u8>)> {
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((path, body))
}
