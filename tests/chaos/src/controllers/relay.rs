//! A proxy between the controller and the server. It reads the requests, so it can count them and
//! lose single responses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

use super::ledger::Ledger;
use super::site::Point;
use super::supervisor::Supervisor;
use crate::counts::Counts;
use crate::random::Random;

/// The controller can have given up on a response that comes later.
const LATE: Duration = Duration::from_secs(20);

const ERROR: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n";

/// A fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection breaks before the server gets the request.
    LostRequest,
    /// The connection breaks after the server has responded.
    LostResponse,
    /// The server responds with an error after it has executed the request.
    WrongError,
}

pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    tls: Arc<ClientConfig>,
    random: Random,
    ledger: Arc<Ledger>,
    supervisor: Arc<Supervisor>,
    counts: Counts,
    /// How many of 1000 writes have a fault.
    level: AtomicUsize,
    /// The namespace whose watches of children get no more bytes.
    stalled: Mutex<Option<&'static str>>,
    changed: Condvar,
    links: Mutex<Vec<Arc<Link>>>,
}

/// A connection of the controller.
struct Link {
    client: TcpStream,
    server: Mutex<Option<TcpStream>>,
    ended: AtomicBool,
}

/// What a request does.
#[derive(Debug)]
enum Call {
    Read,
    /// A watch of children in a namespace.
    Watch(String),
    /// The create of a child, with the UID of its owner.
    Create(String),
    DeleteChild,
    AddFinalizer,
    RemoveFinalizer,
    Write(&'static str),
}

impl Relay {
    /// Starts a proxy in front of the server on a local port. It ends with the process.
    pub(crate) fn start(
        port: u16,
        tls: Arc<ClientConfig>,
        random: Random,
        ledger: &Arc<Ledger>,
        supervisor: &Arc<Supervisor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a proxy");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            server: SocketAddr::from(([127, 0, 0, 1], port)),
            tls,
            random,
            ledger: Arc::clone(ledger),
            supervisor: Arc::clone(supervisor),
            counts: Counts::default(),
            level: AtomicUsize::new(0),
            stalled: Mutex::default(),
            changed: Condvar::new(),
            links: Mutex::default(),
        });
        let accepts = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&accepts);
                thread::spawn(move || shared.serve(client));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Sets how many of 1000 writes have a fault.
    pub(crate) fn disturb(&self, level: usize) {
        self.shared.level.store(level, SeqCst);
    }

    /// Stalls the watches of children in a namespace, or continues them without a gap.
    pub(crate) fn stall(&self, namespace: Option<&'static str>) {
        *lock(&self.shared.stalled) = namespace;
        self.shared.changed.notify_all();
    }

    /// Closes all connections. The outcomes of writes in progress are unknown.
    pub(crate) fn cut(&self) {
        let links = std::mem::take(&mut *lock(&self.shared.links));
        links.iter().for_each(|link| link.close());
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn serve(&self, client: TcpStream) {
        let _ = client.set_nodelay(true);
        let Ok(stream) = client.try_clone() else {
            return;
        };
        let link = Arc::new(Link {
            client,
            server: Mutex::default(),
            ended: AtomicBool::default(),
        });
        lock(&self.links).push(Arc::clone(&link));
        let (mut reader, mut upstream) = (BufReader::new(stream), None);
        while let Ok(Some(request)) = Request::read(&mut reader) {
            if self.exchange(&link, &request, &mut upstream).is_err() {
                break;
            }
        }
        link.close();
        lock(&self.links).retain(|other| !Arc::ptr_eq(other, &link));
    }

    /// Forwards a request and its response. After an error, the connection is closed.
    fn exchange(
        &self,
        link: &Link,
        request: &Request,
        upstream: &mut Option<Upstream>,
    ) -> io::Result<()> {
        let call = request.call();
        if upstream.is_none() {
            *upstream = Some(self.connect(link)?);
        }
        let upstream = upstream.as_mut().expect("a connection");
        let namespace = match &call {
            Call::Read => "",
            Call::Watch(namespace) => namespace,
            _ => return self.write(link, request, &call, upstream),
        };
        upstream.send(request)?;
        upstream.receive(|bytes, _| {
            self.wait_while_stalled(link, namespace);
            (&link.client).write_all(bytes)
        })?;
        Ok(())
    }

    /// Forwards a write. The controller gets the whole response or nothing.
    fn write(
        &self,
        link: &Link,
        request: &Request,
        call: &Call,
        upstream: &mut Upstream,
    ) -> io::Result<()> {
        let fault = self.fault();
        if fault == Some(Fault::LostRequest) || link.ended.load(SeqCst) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.counts.add(call.name());
        match call {
            Call::Create(owner) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let seen = body.pointer("/data/seen").and_then(Value::as_str);
                self.ledger.creating(owner, seen.unwrap_or_default());
            }
            Call::DeleteChild => self.ledger.deleting(request.parts()[2]),
            _ => {}
        }
        let (mut response, mut body) = (Vec::new(), Vec::new());
        let began = Instant::now();
        let received = upstream.send(request).and_then(|()| {
            upstream.receive(|bytes, content| {
                response.extend_from_slice(bytes);
                body.extend_from_slice(content);
                Ok(())
            })
        });
        let delivered = received.and_then(|status| {
            let is_executed = (200..300).contains(&status);
            if is_executed && self.executed(request, call, &body) {
                // The next process must find the result.
                return Ok(Delivery::Killed);
            }
            match fault {
                Some(Fault::LostResponse) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Some(_) => (&link.client).write_all(ERROR.as_bytes())?,
                None => (&link.client).write_all(&response)?,
            }
            let is_known = fault.is_none() && !link.ended.load(SeqCst) && began.elapsed() < LATE;
            Ok(match is_known || !is_executed {
                true => Delivery::Known,
                false => Delivery::Unknown,
            })
        });
        if let (Call::Create(owner), Ok(Delivery::Unknown) | Err(_)) = (call, &delivered) {
            let object: Value = serde_json::from_slice(&body).unwrap_or_default();
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            self.ledger.unknown(owner, name.unwrap_or_default());
        }
        match delivered? {
            Delivery::Killed => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Ok(()),
        }
    }

    /// Records a successful write. Returns whether a trap has killed the controller.
    fn executed(&self, request: &Request, call: &Call, body: &[u8]) -> bool {
        let object: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |pointer| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let point = match call {
            Call::Create(owner) => {
                self.ledger
                    .created(owner, text("/metadata/uid"), text("/metadata/name"));
                Point::Create
            }
            Call::AddFinalizer => Point::Finalizer,
            Call::RemoveFinalizer => Point::Removal,
            _ => return false,
        };
        self.supervisor.trigger(point, &request.key())
    }

    fn connect(&self, link: &Link) -> io::Result<Upstream> {
        let stream = TcpStream::connect(self.server)?;
        stream.set_nodelay(true)?;
        *lock(&link.server) = Some(stream.try_clone()?);
        if link.ended.load(SeqCst) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let name = ServerName::from(self.server.ip());
        let session =
            ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
        Ok(Upstream(BufReader::new(StreamOwned::new(session, stream))))
    }

    fn fault(&self) -> Option<Fault> {
        let is_disturbed = self.random.below(1000) < self.level.load(SeqCst);
        let (fault, name) = match self.random.below(4) {
            0 => (Fault::LostRequest, "lost request"),
            1 => (Fault::WrongError, "wrong error"),
            _ => (Fault::LostResponse, "lost response"),
        };
        is_disturbed.then(|| {
            self.counts.add(name);
            fault
        })
    }

    fn wait_while_stalled(&self, link: &Link, namespace: &str) {
        let mut stalled = lock(&self.stalled);
        while stalled.is_some_and(|stalled| stalled == namespace) && !link.ended.load(SeqCst) {
            let waited = self.changed.wait(stalled);
            stalled = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What became of a write.
enum Delivery {
    Known,
    /// The server has executed it, and the controller does not know.
    Unknown,
    /// The server has executed it, and the controller was killed before the response.
    Killed,
}

impl Link {
    fn close(&self) {
        self.ended.store(true, SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
        if let Some(server) = &*lock(&self.server) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

/// A request of the controller.
struct Request {
    method: String,
    target: String,
    body: Vec<u8>,
    /// The head and the body.
    bytes: Vec<u8>,
}

impl Request {
    /// Returns `None` at the end of the connection.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let head = read_head(reader, &mut bytes)?;
        if head.is_empty() {
            return Ok(None);
        }
        let length = head.number("content-length")?.unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        bytes.extend_from_slice(&body);
        let mut words = head.0.split(' ');
        let [method, target] = [(); 2].map(|()| words.next().unwrap_or_default().to_owned());
        Ok(Some(Self {
            method,
            target,
            body,
            bytes,
        }))
    }

    fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns the namespace, the resource, the name and the subresource.
    fn parts(&self) -> [&str; 4] {
        let path = self.path();
        let rest = path.split_once("/namespaces/").map_or("", |(_, rest)| rest);
        let mut parts = rest.split('/');
        [(); 4].map(|()| parts.next().unwrap_or_default())
    }

    fn key(&self) -> String {
        let [namespace, resource, name, _] = self.parts();
        if resource == "sites" {
            return format!("{namespace}/{name}");
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let owner = body.pointer("/metadata/ownerReferences/0/name");
        format!(
            "{namespace}/{}",
            owner.and_then(Value::as_str).unwrap_or_default()
        )
    }

    fn call(&self) -> Call {
        let [namespace, resource, _, subresource] = self.parts();
        let body = || serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        match (&*self.method, resource, subresource) {
            ("GET", "configmaps", _) if self.target.contains("watch=true") => {
                Call::Watch(namespace.to_owned())
            }
            ("GET", ..) => Call::Read,
            ("POST", "configmaps", _) => {
                let owner = body().pointer("/metadata/ownerReferences/0/uid").cloned();
                let owner = owner.and_then(|owner| owner.as_str().map(str::to_owned));
                Call::Create(owner.unwrap_or_default())
            }
            ("PATCH", "sites", "status") => Call::Write("status"),
            ("PATCH", "sites", _) => {
                let body = body();
                let operations = body.as_array().into_iter().flatten();
                match operations
                    .map(|of| &of["op"])
                    .any(|operation| operation == "remove")
                {
                    true => Call::RemoveFinalizer,
                    false => Call::AddFinalizer,
                }
            }
            ("PATCH", ..) => Call::Write("patch of a child"),
            ("DELETE", "configmaps", _) => Call::DeleteChild,
            _ => Call::Write("another write"),
        }
    }
}

impl Call {
    fn name(&self) -> &'static str {
        match self {
            Self::Read | Self::Watch(_) => "read",
            Self::Create(_) => "create",
            Self::DeleteChild => "delete of a child",
            Self::AddFinalizer => "finalizer added",
            Self::RemoveFinalizer => "finalizer removed",
            Self::Write(name) => name,
        }
    }
}

/// The start line and the headers of a message, in lower case except for the start line.
struct Head(String, String);

impl Head {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.1.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    }

    fn number(&self, name: &str) -> io::Result<Option<usize>> {
        let number = self.header(name).map(str::parse).transpose();
        number.map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// Appends the bytes of a head. At the end of the connection, the head is empty.
fn read_head(reader: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<Head> {
    let from = bytes.len();
    while !bytes[from..].ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', bytes)? == 0 {
            return match bytes.len() == from {
                true => Ok(Head(String::new(), String::new())),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
    }
    let text = String::from_utf8_lossy(&bytes[from..]);
    let (start, headers) = text.split_once("\r\n").unwrap_or_default();
    Ok(Head(start.to_owned(), headers.to_ascii_lowercase()))
}

struct Upstream(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Upstream {
    fn send(&mut self, request: &Request) -> io::Result<()> {
        let stream = self.0.get_mut();
        stream.write_all(&request.bytes)?;
        stream.flush()
    }

    /// Reads a response and returns its status. Passes the bytes of the message and, of them, those
    /// of the content.
    fn receive(&mut self, mut sink: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<u16> {
        let reader = &mut self.0;
        let mut bytes = Vec::new();
        let head = read_head(reader, &mut bytes)?;
        let status = head
            .0
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
        sink(&bytes, &[])?;
        if head.header("transfer-encoding") == Some("chunked") {
            loop {
                bytes.clear();
                reader.read_until(b'\n', &mut bytes)?;
                let size = std::str::from_utf8(&bytes).unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16)
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                // The chunk, or the end of the message without trailers, ends with an empty line.
                let content = bytes.len();
                bytes.resize(content + size + 2, 0);
                reader.read_exact(&mut bytes[content..])?;
                sink(&bytes, &bytes[content..content + size])?;
                if size == 0 {
                    return Ok(status);
                }
            }
        }
        let length = head.number("content-length")?.unwrap_or(0);
        bytes.resize(length, 0);
        reader.read_exact(&mut bytes)?;
        sink(&bytes, &bytes)?;
        Ok(status)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
