//! A proxy in front of the server that disturbs connections. It changes bytes in transit and, if it
//! terminates TLS, also requests and responses.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::SockRef;

use crate::counts::Counts;
use crate::random::Random;

/// A fault of one connection. A number is the count of server bytes that the proxy forwards first.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut(usize),
    Reset(usize),
    /// No more bytes are forwarded in either direction. Both connections stay open.
    Stall(usize),
    /// The connection to the server is closed. The connection to the client stays open.
    HalfOpen(usize),
    /// Two bytes are replaced by bytes that are invalid in JSON.
    Garble(usize),
    /// The response starts late.
    Delay(Duration),
    /// The bytes arrive a few at a time.
    Drip,
    /// A response without a length ends early with a clean close.
    Truncate(usize),
    /// The proxy responds in place of the server.
    Answer(&'static str, &'static str),
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Cut(_) => "tcp cut",
            Self::Reset(_) => "tcp reset",
            Self::Stall(_) => "tcp stall",
            Self::HalfOpen(_) => "tcp half-open",
            Self::Garble(_) => "garbled bytes",
            Self::Delay(_) => "delay",
            Self::Drip => "drip",
            Self::Truncate(_) => "http truncated body",
            Self::Answer(name, _) => name,
        }
    }

    /// Returns a fault that does not require the proxy to understand HTTP.
    fn of_tcp(random: &Random) -> Self {
        let at = random.size(19);
        match random.below(8) {
            0 | 1 => Self::Cut(at),
            2 | 3 => Self::Reset(at),
            4 => Self::Stall(at),
            5 => Self::HalfOpen(at),
            6 => Self::Delay(Duration::from_millis(random.size(11) as u64)),
            _ => Self::Drip,
        }
    }

    fn of_http(random: &Random, is_watch: bool) -> Self {
        match random.below(12) {
            0 => Self::Garble(random.size(19)),
            1 | 2 => Self::Truncate(random.size(19)),
            3 => Self::Answer("http 429", TOO_MANY),
            4 => Self::Answer("http 500", INTERNAL),
            5 => Self::Answer("http 503", UNAVAILABLE),
            6 => Self::Answer("http 410", GONE),
            7 if is_watch => Self::Answer("410 event", GONE_EVENT),
            _ => Self::of_tcp(random),
        }
    }
}

macro_rules! reply {
    ($head:literal, $status:literal) => {
        concat!(
            "HTTP/1.1 ",
            $head,
            "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
            $status
        )
    };
}

const TOO_MANY: &str = reply!(
    "429 Too Many Requests\r\nRetry-After: 1",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests","message":"chaos"}"#
);
const INTERNAL: &str = reply!(
    "500 Internal Server Error",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"chaos"}"#
);
const UNAVAILABLE: &str = reply!(
    "503 Service Unavailable",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"reason":"ServiceUnavailable","message":"chaos"}"#
);
const GONE: &str = reply!(
    "410 Gone",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"chaos"}"#
);
const GONE_EVENT: &str = reply!(
    "200 OK",
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\
     \"code\":410,\"reason\":\"Expired\",\"message\":\"chaos\"}}\n"
);

pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    /// Set if the proxy terminates TLS.
    tls: Option<Arc<ClientConfig>>,
    random: Random,
    counts: Arc<Counts>,
    /// How many of 1000 connections have a fault.
    level: AtomicUsize,
    /// Whether all connections are refused.
    down: AtomicBool,
    /// Whether all connections stall.
    silent: AtomicBool,
    /// Whether no connection gets bytes of the server.
    deaf: AtomicBool,
    closing: AtomicBool,
    links: Mutex<Vec<Arc<Link>>>,
}

/// A connection from a client and its connection to the server.
struct Link {
    client: TcpStream,
    server: TcpStream,
    stalled: AtomicBool,
    /// Whether bytes of the server are dropped.
    deaf: AtomicBool,
    ended: AtomicBool,
}

impl Proxy {
    /// Starts a proxy in front of the server on local port `port`. With `tls`, the proxy terminates
    /// TLS and serves HTTP. Without `tls`, it only forwards bytes.
    pub(crate) fn start(
        port: u16,
        tls: Option<Arc<ClientConfig>>,
        random: Random,
        counts: Arc<Counts>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a proxy");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            server: SocketAddr::from(([127, 0, 0, 1], port)),
            tls,
            random,
            counts,
            level: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            links: Mutex::default(),
        });
        let accepts = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepts.closing.load(SeqCst) {
                    return;
                }
                let shared = Arc::clone(&accepts);
                thread::spawn(move || shared.serve(client));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{}", self.address)
    }

    /// Sets how many of every 1000 new connections are disturbed, on average.
    pub(crate) fn disturb(&self, level: usize) {
        self.shared.level.store(level, SeqCst);
    }

    /// Stalls, resets or cuts all open connections.
    pub(crate) fn disturb_open_connections(&self) {
        let links = self.shared.links().clone();
        if links.is_empty() {
            return;
        }
        let (name, act): (_, fn(&Link)) = match self.shared.random.below(4) {
            0 => ("tcp stall, all", |link| link.stalled.store(true, SeqCst)),
            1 => ("tcp reset, all", Link::reset),
            _ => ("tcp cut, all", Link::close),
        };
        self.shared.counts.add(name);
        links.iter().for_each(|link| act(link));
    }

    /// Closes all open connections and refuses new ones, or accepts new connections again.
    pub(crate) fn set_down(&self, down: bool) {
        self.shared.down.store(down, SeqCst);
        if down {
            self.cut();
        }
    }

    /// Drops all bytes of both sides, on open and new connections, until [`heal`](Self::heal).
    pub(crate) fn silence(&self) {
        self.shared.silent.store(true, SeqCst);
        for link in &*self.shared.links() {
            link.stalled.store(true, SeqCst);
        }
    }

    /// Drops all bytes of the server, on open and new connections, until [`heal`](Self::heal).
    pub(crate) fn deafen(&self) {
        self.shared.deaf.store(true, SeqCst);
        for link in &*self.shared.links() {
            link.deaf.store(true, SeqCst);
        }
    }

    /// Ends all faults. Closes stalled connections: without that, an informer might not notice for
    /// minutes.
    pub(crate) fn heal(&self) {
        self.disturb(0);
        self.shared.down.store(false, SeqCst);
        self.shared.silent.store(false, SeqCst);
        self.shared.deaf.store(false, SeqCst);
        for link in &*self.shared.links() {
            if link.stalled.load(SeqCst) || link.deaf.load(SeqCst) {
                link.close();
            }
        }
    }

    /// Closes all open connections.
    pub(crate) fn cut(&self) {
        self.shared.links().iter().for_each(|link| link.close());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closing.store(true, SeqCst);
        // Unblocks the accepting thread.
        let _ = TcpStream::connect(self.address);
        self.cut();
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, client: TcpStream) {
        if self.down.load(SeqCst) {
            return;
        }
        let _ = client.set_nodelay(true);
        let _ = match &self.tls {
            None => self.tunnel(client),
            Some(tls) => self.reply(client, tls),
        };
    }

    /// Returns the fault of a new connection, if any.
    fn fault(&self, fault: impl FnOnce(&Random) -> Fault) -> Option<Fault> {
        let disturbed = self.random.below(1000) < self.level.load(SeqCst);
        let fault = disturbed.then(|| fault(&self.random));
        if let Some(fault) = fault {
            self.counts.add(fault.name());
        }
        fault
    }

    fn link(&self, client: TcpStream) -> io::Result<Arc<Link>> {
        let server = TcpStream::connect(self.server)?;
        server.set_nodelay(true)?;
        let link = Arc::new(Link {
            client,
            server,
            stalled: AtomicBool::default(),
            deaf: AtomicBool::default(),
            ended: AtomicBool::default(),
        });
        let mut links = self.links();
        links.push(Arc::clone(&link));
        // `silence` and `deafen` set their flag first, so they do not miss a new link.
        link.stalled.store(self.silent.load(SeqCst), SeqCst);
        link.deaf.store(self.deaf.load(SeqCst), SeqCst);
        drop(links);
        // Close the link if `set_down` or `drop` closed all others before it was registered.
        if self.down.load(SeqCst) || self.closing.load(SeqCst) {
            link.close();
        }
        Ok(link)
    }

    fn unlink(&self, link: &Arc<Link>) {
        link.close();
        self.links().retain(|other| !Arc::ptr_eq(other, link));
    }

    fn tunnel(&self, client: TcpStream) -> io::Result<()> {
        let fault = self.fault(Fault::of_tcp);
        let link = self.link(client)?;
        let up = Arc::clone(&link);
        thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(length @ 1..) = (&up.client).read(&mut buffer) {
                if up.stalled.load(SeqCst) {
                    continue;
                }
                if (&up.server).write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            up.close();
        });
        link.carry(&mut &link.server, fault);
        self.unlink(&link);
        Ok(())
    }

    /// Forwards one request and its response, then closes the connection.
    fn reply(&self, client: TcpStream, tls: &Arc<ClientConfig>) -> io::Result<()> {
        let mut head = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        while !head.ends_with(b"\r\n\r\n") {
            let length = (&client).read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            head.extend_from_slice(&buffer[..length]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let is_watch = head
            .lines()
            .next()
            .is_some_and(|line| line.contains("watch=true"));
        let fault = self.fault(|random| Fault::of_http(random, is_watch));
        if let Some(Fault::Answer(_, reply)) = fault {
            return (&client).write_all(reply.as_bytes());
        }
        // Request HTTP/1.0 for a truncation, because such a response has neither chunks nor a
        // length.
        let head = match fault {
            Some(Fault::Truncate(_)) => head.replacen(" HTTP/1.1\r\n", " HTTP/1.0\r\n", 1),
            _ => head.replacen("\r\n", "\r\nConnection: close\r\n", 1),
        };
        let link = self.link(client)?;
        let name = ServerName::from(self.server.ip());
        let session = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
        let mut server = StreamOwned::new(session, link.server.try_clone()?);
        let sent = server
            .write_all(head.as_bytes())
            .and_then(|()| server.flush());
        if sent.is_ok() {
            let up = Arc::clone(&link);
            // The client sends nothing more, so this read returns only when the client closes.
            thread::spawn(move || {
                let _ = (&up.client).read(&mut [0]);
                up.close();
            });
            link.carry(&mut server, fault);
        }
        self.unlink(&link);
        Ok(())
    }
}

impl Link {
    /// Forwards bytes from the server to the client.
    fn carry(&self, from: &mut dyn Read, fault: Option<Fault>) {
        let mut buffer = vec![0; 16 << 10];
        let mut carried = 0;
        if let Some(Fault::Delay(delay)) = fault {
            thread::sleep(delay);
        }
        let max_read = if matches!(fault, Some(Fault::Drip)) {
            100
        } else {
            buffer.len()
        };
        while let Ok(length @ 1..) = from.read(&mut buffer[..max_read]) {
            if self.stalled.load(SeqCst) || self.deaf.load(SeqCst) {
                continue;
            }
            let bytes = &mut buffer[..length];
            let cut_at = match fault {
                Some(
                    Fault::Cut(at)
                    | Fault::Reset(at)
                    | Fault::Stall(at)
                    | Fault::HalfOpen(at)
                    | Fault::Garble(at)
                    | Fault::Truncate(at),
                ) => at.checked_sub(carried).filter(|left| *left < length),
                _ => None,
            };
            if carried == 0
                && matches!(fault, Some(Fault::Truncate(_)))
                && bytes.starts_with(b"HTTP/1.0")
            {
                bytes[7] = b'1';
            }
            carried += length;
            let Some(cut_at) = cut_at else {
                if (&self.client).write_all(bytes).is_err() {
                    break;
                }
                if max_read < 1000 && carried < 100_000 {
                    thread::sleep(Duration::from_micros(200));
                }
                continue;
            };
            if let Some(Fault::Garble(_)) = fault {
                for byte in bytes.iter_mut().skip(cut_at).take(2) {
                    *byte = 1;
                }
                let _ = (&self.client).write_all(bytes);
                continue;
            }
            let _ = (&self.client).write_all(&bytes[..cut_at]);
            match fault {
                Some(Fault::Reset(_)) => return self.reset(),
                Some(Fault::Stall(_)) => self.stalled.store(true, SeqCst),
                Some(Fault::HalfOpen(_)) => {
                    self.stalled.store(true, SeqCst);
                    let _ = self.server.shutdown(Shutdown::Both);
                    // Waits until the client closes the connection or the faults end.
                    while (&self.client).read(&mut [0]).is_ok_and(|length| length > 0) {}
                    return;
                }
                _ => break,
            }
        }
        self.close();
    }

    fn close(&self) {
        if self.ended.swap(true, SeqCst) {
            return;
        }
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn reset(&self) {
        if self.ended.swap(true, SeqCst) {
            return;
        }
        // The client receives a reset when the last handle of its connection closes. Shut down only
        // reading, because a FIN before the reset would be a clean end.
        let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}
