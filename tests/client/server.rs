//! A scripted server over TCP or TLS that reports what it sees.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use k8s_informer::__private::client::ignore_shutdowns;
use k8s_informer::Stopper;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::SockRef;

/// The time limit for a test that hangs. Every other wait is far shorter.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Marks a child process in which a shutdown of a socket has no effect, as on Windows.
pub(crate) const IGNORE_SHUTDOWNS: &str = "TEST_WITH_IGNORED_SHUTDOWNS";

/// Returns whether this process is marked with [`IGNORE_SHUTDOWNS`], and makes it so.
pub(crate) fn ignores_shutdowns() -> bool {
    let is_marked = std::env::var_os(IGNORE_SHUTDOWNS).is_some();
    if is_marked {
        ignore_shutdowns();
    }
    is_marked
}

/// Listens on a free port. All servers of the tests begin here, so it also prepares a process that
/// [ignores shutdowns](ignores_shutdowns).
pub(crate) fn listen() -> TcpListener {
    ignores_shutdowns();
    TcpListener::bind("127.0.0.1:0").unwrap()
}

pub(crate) enum Reply {
    Write(Vec<u8>),
    WriteAndClose(Vec<u8>),
    /// Writes the bytes, then stays silent until the client closes.
    WriteAndHang(Vec<u8>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// The head and body of a request.
    Request(String),
    /// The connection ended.
    Closed,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    events: Mutex<Receiver<ServerEvent>>,
    tls: Arc<Mutex<Option<Arc<ServerConfig>>>>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::with_tls(None, script)
    }

    pub(crate) fn with_tls(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::on(listen(), tls, script)
    }

    pub(crate) fn on(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (sender, events) = channel();
        let script = Arc::new(script);
        let counter = accepted.clone();
        let tls = Arc::new(Mutex::new(tls));
        let shared_tls = tls.clone();
        // The thread ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counter.fetch_add(1, Ordering::SeqCst);
                let tls = shared_tls.lock().unwrap().clone();
                let (script, events) = (script.clone(), sender.clone());
                thread::spawn(move || {
                    // A close then returns once the client's system knows of it.
                    let _ = SockRef::from(&stream).set_linger(Some(SOON));
                    let _ = match tls {
                        None => serve(stream, &*script, &events),
                        Some(tls) => serve(
                            StreamOwned::new(ServerConnection::new(tls).unwrap(), stream),
                            &*script,
                            &events,
                        ),
                    };
                    let _ = events.send(ServerEvent::Closed);
                });
            }
        });
        Self {
            address,
            accepted,
            events: Mutex::new(events),
            tls,
        }
    }

    pub(crate) fn answering(body: &'static str) -> Self {
        Self::start(move |_| Reply::Write(reply("200 OK", "", body)))
    }

    /// Accepts connections and reads, but never responds.
    pub(crate) fn mute() -> Self {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (sender, events) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                thread::spawn(move || hang(&mut { stream }, Some(&sender)));
            }
        });
        Self {
            address,
            accepted,
            events: Mutex::new(events),
            tls: Arc::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn https(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Applies to new connections.
    pub(crate) fn set_tls(&self, tls: Arc<ServerConfig>) {
        *self.tls.lock().unwrap() = Some(tls);
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits for the next event.
    pub(crate) fn next(&self) -> ServerEvent {
        match self.events.lock().unwrap().recv_timeout(SOON) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => panic!("the server received nothing"),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn request(&self) -> String {
        match self.next() {
            ServerEvent::Request(request) => request,
            ServerEvent::Closed => panic!("the connection closed without a request"),
        }
    }
}

/// A response with a Content-Length.
pub(crate) fn reply(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head and the first chunk of an unfinished response.
pub(crate) fn first_chunk(text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n",
        text.len()
    )
    .into_bytes()
}

fn serve(
    mut stream: impl Read + Write,
    script: &dyn Fn(&str) -> Reply,
    events: &Sender<ServerEvent>,
) -> io::Result<()> {
    loop {
        let request = read_request(&mut stream)?;
        let _ = events.send(ServerEvent::Request(request.clone()));
        match script(&request) {
            Reply::Write(bytes) => {
                stream.write_all(&bytes)?;
                stream.flush()?;
            }
            Reply::WriteAndClose(bytes) => {
                stream.write_all(&bytes)?;
                return stream.flush();
            }
            Reply::WriteAndHang(bytes) => {
                stream.write_all(&bytes)?;
                stream.flush()?;
                hang(&mut stream, None);
                return Ok(());
            }
        }
    }
}

pub(crate) fn hang(stream: &mut impl Read, events: Option<&Sender<ServerEvent>>) {
    let mut buffer = [0; 1024];
    while let Ok(amount @ 1..) = stream.read(&mut buffer) {
        if let Some(events) = events {
            let _ = events.send(ServerEvent::Request(format!("{amount} bytes")));
        }
    }
    if let Some(events) = events {
        let _ = events.send(ServerEvent::Closed);
    }
}

pub(crate) fn read_request(stream: &mut impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length:")?
                        .trim()
                        .parse()
                        .ok()
                })
                .unwrap_or(0);
            if body.len() >= length {
                return Ok(text.into_owned());
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            amount => bytes.extend_from_slice(&buffer[..amount]),
        }
    }
}

/// An address that does not respond, so that a connect blocks: a listener with a full backlog.
pub(crate) struct FullBacklog {
    pub(crate) address: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<TcpStream>,
}

impl FullBacklog {
    pub(crate) fn new() -> Self {
        Self::find().expect("every address responds")
    }

    /// Returns `None` if every address responds at once, which only the network of a Windows machine
    /// can cause.
    pub(crate) fn find() -> Option<Self> {
        ignores_shutdowns();
        let connect =
            |address: &SocketAddr| TcpStream::connect_timeout(address, Duration::from_millis(200));
        let is_timeout = |error: io::Error| error.kind() == io::ErrorKind::TimedOut;
        let listener =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener
            .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        // Not 0, for which macOS uses its largest backlog.
        listener.listen(1).unwrap();
        let mut address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        let error = loop {
            match connect(&address) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
            assert!(queued.len() < 100, "the backlog does not fill");
        };
        if !is_timeout(error) {
            // Windows refuses connections above the backlog. TEST-NET-1 (RFC 5737) has no hosts, and
            // most networks drop what is sent there.
            address = SocketAddr::from(([192, 0, 2, 1], 9));
            if !connect(&address).is_err_and(is_timeout) {
                return None;
            }
        }
        Some(Self {
            address,
            _listener: listener,
            _queued: queued,
        })
    }

    /// Waits until a client is connecting.
    pub(crate) fn wait_for_connect(&self) {
        if !cfg!(target_os = "linux") {
            // Nothing shows a connect. If this is too short, the stop comes before the connect.
            Stopper::new().wait_timeout(Duration::from_millis(100));
            return;
        }
        // The format of /proc: remote address and port in hex. State 02 is SYN_SENT.
        let syn_sent = format!("0100007F:{:04X} 02", self.address.port());
        let deadline = std::time::Instant::now() + SOON;
        while !std::fs::read_to_string("/proc/net/tcp")
            .unwrap()
            .contains(&syn_sent)
        {
            assert!(
                std::time::Instant::now() < deadline,
                "no client connected in time"
            );
            thread::yield_now();
        }
    }
}
