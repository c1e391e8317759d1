//! The states in which the tests stop an informer. For each of them there is a server that keeps
//! the informer in it. The bench `stop` uses them too.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_informer::handler::HandlerFuncs;
use k8s_informer::informer::{Controller, ControllerConfig, SharedIndexInformerOptions};
use k8s_informer::object::{Accessor, GroupVersionResource};
use k8s_informer::queue::DeltaFifo;
use k8s_informer::reflector::{ReflectorOptions, ReflectorState};
use k8s_informer::{Client, Config, DynamicObject, SharedIndexInformer, Stop, Stopper};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::server::{FullBacklog, SOON, hang, read_request};

/// How long a slow handler runs. A stop may have to wait for it.
pub(crate) const CALLBACK: Duration = Duration::from_millis(1);

const OK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The server does not accept the connection.
    Connecting,
    /// The connection is refused. The informer waits before it tries again.
    Refused,
    /// The server reads the TLS hello and stays silent.
    Handshake,
    /// The proxy reads the CONNECT request and stays silent.
    Tunnel,
    /// The server reads the request and stays silent.
    Head,
    /// The objects of a list arrive slowly and never end.
    SlowList,
    /// No event arrives.
    SilentWatch,
    SilentTlsWatch,
    SilentTunnelledWatch,
    /// Events of a thousand objects arrive as fast as they are read.
    BusyWatch,
    /// Events of one object arrive as fast as they are read. The changes of this object accumulate
    /// in the queue and are processed together.
    HotKey,
    /// The server fails. The informer waits before it tries again.
    BackOff,
    /// A handler of a shared informer is slow. The notifications for it wait.
    SlowHandler,
    /// The handler of an unshared informer is slow. The items of the queue wait.
    BusyQueue,
}

impl State {
    pub(crate) const ALL: [Self; 14] = [
        Self::Connecting,
        Self::Refused,
        Self::Handshake,
        Self::Tunnel,
        Self::Head,
        Self::SlowList,
        Self::SilentWatch,
        Self::SilentTlsWatch,
        Self::SilentTunnelledWatch,
        Self::BusyWatch,
        Self::HotKey,
        Self::BackOff,
        Self::SlowHandler,
        Self::BusyQueue,
    ];
}

/// When the informer is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// This long after the start.
    AfterStart(Duration),
    /// This long after the state is reached.
    AfterReached(Duration),
}

/// A state with its server. Dropping it ends the server and all its threads.
pub(crate) struct Scene {
    state: State,
    address: SocketAddr,
    reached: Mutex<Receiver<()>>,
    reached_sender: Sender<()>,
    server: Server,
}

enum Server {
    Backlog(FullBacklog),
    /// A port that is taken, but without a listener.
    NotListening(#[expect(dead_code, reason = "the socket reserves the port")] socket2::Socket),
    Serving {
        closing: Arc<AtomicBool>,
        acceptor: Option<JoinHandle<()>>,
    },
}

/// An informer before its start, shared or not.
struct Informer {
    run: Box<dyn FnOnce(&Stop) + Send>,
    is_backing_off: Box<dyn Fn() -> bool>,
}

impl Scene {
    pub(crate) fn new(state: State) -> Self {
        let (reached_sender, reached) = channel();
        let (address, server) = match state {
            State::Connecting => {
                let backlog = FullBacklog::new();
                (backlog.address, Server::Backlog(backlog))
            }
            State::Refused => {
                let socket =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
                        .unwrap();
                socket
                    .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
                    .unwrap();
                (
                    socket.local_addr().unwrap().as_socket().unwrap(),
                    Server::NotListening(socket),
                )
            }
            _ => listen(state, &reached_sender),
        };
        Self {
            state,
            address,
            reached: Mutex::new(reached),
            reached_sender,
            server,
        }
    }

    /// Starts an informer, stops it at `moment` and waits until it ends. Returns the time from the
    /// stop to the end.
    pub(crate) fn stop_at(&self, moment: Moment) -> Duration {
        // Drops the signals of an earlier informer.
        self.reached.lock().unwrap().try_iter().for_each(drop);
        let stop = Stopper::new();
        let (ended, end) = channel();
        let Informer {
            run,
            is_backing_off,
        } = self.informer();
        let thread = thread::spawn({
            let stop = stop.clone();
            move || {
                run(&stop);
                // Take the time on this thread, because the other thread may be scheduled late.
                let _ = ended.send(Instant::now());
            }
        });
        let wait = match moment {
            Moment::AfterStart(wait) => wait,
            Moment::AfterReached(wait) => {
                self.wait_until_reached(&*is_backing_off);
                wait
            }
        };
        // A timer: this `Stop` is never stopped.
        Stopper::new().wait_timeout(wait);
        let start = Instant::now();
        stop.stop();
        let ended = end.recv_timeout(4 * SOON);
        let ended = ended.unwrap_or_else(|_| {
            panic!(
                "{:?}: the informer did not end after a stop at {moment:?}",
                self.state
            )
        });
        thread.join().unwrap();
        ended.saturating_duration_since(start)
    }

    fn wait_until_reached(&self, is_backing_off: &dyn Fn() -> bool) {
        match &self.server {
            #[cfg(target_os = "linux")]
            Server::Backlog(backlog) => backlog.wait_for_connect(),
            _ if matches!(self.state, State::Refused | State::BackOff) => {
                let deadline = Instant::now() + SOON;
                while !is_backing_off() {
                    assert!(
                        Instant::now() < deadline,
                        "{:?} was not reached",
                        self.state
                    );
                    thread::yield_now();
                }
            }
            Server::Serving { .. } => {
                let reached = self.reached.lock().unwrap().recv_timeout(SOON);
                reached.unwrap_or_else(|_| panic!("{:?} was not reached", self.state));
            }
            #[cfg(not(target_os = "linux"))]
            Server::Backlog(_) => {}
            Server::NotListening(_) => {}
        }
    }

    fn informer(&self) -> Informer {
        let tls = matches!(self.state, State::Handshake | State::SilentTlsWatch);
        let scheme = if tls { "https" } else { "http" };
        let mut config =
            Config::new(format!("{scheme}://{}", self.address)).insecure_skip_tls_verify(tls);
        if matches!(self.state, State::Tunnel | State::SilentTunnelledWatch) {
            // The server is also the proxy.
            config = config.proxy_url(format!("http://{}", self.address));
        }
        let pods = Client::new(config).unwrap();
        let pods = pods.lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
        let mut reflector = ReflectorOptions::default();
        reflector.watch_list = false;
        reflector.watch_error_handler = Some(Arc::new(|_| {}));

        let is_slow = matches!(self.state, State::SlowHandler | State::BusyQueue);
        let reached_sender = self.reached_sender.clone();
        let called = move || {
            if is_slow {
                let _ = reached_sender.send(());
                Stopper::new().wait_timeout(CALLBACK);
            }
        };
        let (updated, processed) = (called.clone(), called.clone());
        let handler = HandlerFuncs::<DynamicObject>::new()
            .on_add(move |_, _| called())
            .on_update(move |_, _| updated());
        if self.state == State::BusyQueue {
            let queue = DeltaFifo::<DynamicObject>::new(Accessor::object());
            let mut config = ControllerConfig::new(Arc::new(queue), pods, move |_, _| {
                processed();
                Ok(())
            });
            config.reflector = reflector;
            let controller = Controller::new(config);
            return Informer {
                run: Box::new(move |stop| controller.run(stop).unwrap()),
                is_backing_off: Box::new(|| false),
            };
        }
        let options = SharedIndexInformerOptions::new().reflector(reflector);
        let informer = SharedIndexInformer::<DynamicObject>::new(pods, options);
        informer.add_handler(handler).unwrap();
        let status = informer.clone();
        Informer {
            run: Box::new(move |stop| informer.run(stop).unwrap()),
            is_backing_off: Box::new(move || status.status().state == ReflectorState::BackingOff),
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Server::Serving { closing, acceptor } = &mut self.server {
            closing.store(true, Ordering::SeqCst);
            // Wakes the acceptor. The connections end with their clients.
            let _ = TcpStream::connect(self.address);
            if let Some(acceptor) = acceptor.take() {
                let _ = acceptor.join();
            }
        }
    }
}

fn listen(state: State, reached_sender: &Sender<()>) -> (SocketAddr, Server) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closing = Arc::new(AtomicBool::new(false));
    let tls = (state == State::SilentTlsWatch).then(self_signed);
    let (reached_sender, closes) = (reached_sender.clone(), Arc::clone(&closing));
    let acceptor = thread::spawn(move || {
        let mut connections: Vec<JoinHandle<()>> = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            if closes.load(Ordering::SeqCst) {
                break;
            }
            let (reached_sender, tls) = (reached_sender.clone(), tls.clone());
            connections.retain(|connection| !connection.is_finished());
            connections.push(thread::spawn(move || {
                // Ignore errors: a stopped client closes its connection.
                let _ = match tls {
                    None => serve_connection(state, stream, &reached_sender),
                    Some(tls) => serve_connection(
                        state,
                        StreamOwned::new(ServerConnection::new(tls).unwrap(), stream),
                        &reached_sender,
                    ),
                };
            }));
        }
        for connection in connections {
            let _ = connection.join();
        }
    });
    (
        address,
        Server::Serving {
            closing,
            acceptor: Some(acceptor),
        },
    )
}

fn self_signed() -> Arc<ServerConfig> {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let chain = vec![CertificateDer::from(cert)];
    Arc::new(
        builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap(),
    )
}

/// Serves one connection: responds until the state is reached, then keeps the informer in it.
fn serve_connection(
    state: State,
    mut stream: impl Read + Write,
    reached_sender: &Sender<()>,
) -> io::Result<()> {
    let reached = || {
        let _ = reached_sender.send(());
    };
    if state == State::Handshake {
        stream.read_exact(&mut [0])?;
        reached();
        hang(&mut stream, None);
        return Ok(());
    }
    loop {
        let request = read_request(&mut stream)?;
        let is_watch = request
            .lines()
            .next()
            .unwrap_or_default()
            .contains("watch=true");
        match state {
            State::SilentTunnelledWatch if request.starts_with("CONNECT ") => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            }
            State::Head | State::Tunnel => {
                reached();
                hang(&mut stream, None);
            }
            State::BackOff => {
                stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")?;
            }
            State::SlowList => {
                stream.write_all(OK.as_bytes())?;
                chunk(
                    &mut stream,
                    r#"{"kind":"List","metadata":{"resourceVersion":"7"},"items":["#,
                )?;
                reached();
                for n in 0.. {
                    let comma = if n == 0 { "" } else { "," };
                    chunk(&mut stream, &format!("{comma}{}", object(n, 7)))?;
                    Stopper::new().wait_timeout(Duration::from_micros(200));
                }
            }
            _ if !is_watch => {
                let count = if matches!(state, State::SlowHandler | State::BusyQueue) {
                    500
                } else {
                    1
                };
                let objects: Vec<_> = (0..count).map(|n| object(n, 7)).collect();
                stream.write_all(OK.as_bytes())?;
                let list = r#"{"kind":"List","metadata":{"resourceVersion":"7"},"items":["#;
                chunk(&mut stream, &format!("{list}{}]}}", objects.join(",")))?;
                stream.write_all(b"0\r\n\r\n")?;
            }
            State::BusyWatch | State::HotKey => {
                stream.write_all(OK.as_bytes())?;
                reached();
                for version in 8.. {
                    let number = if state == State::HotKey {
                        0
                    } else {
                        version % 1000
                    };
                    let object = object(number, version);
                    chunk(
                        &mut stream,
                        &format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n"),
                    )?;
                }
            }
            _ => {
                stream.write_all(OK.as_bytes())?;
                stream.flush()?;
                if !matches!(state, State::SlowHandler | State::BusyQueue) {
                    reached();
                }
                hang(&mut stream, None);
            }
        }
        stream.flush()?;
    }
}

fn object(number: u32, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"name":"pod-{number}","namespace":"a","resourceVersion":"{version}"}}}}"#
    )
}

fn chunk(stream: &mut impl Write, text: &str) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?;
    stream.flush()
}

/// SplitMix64, with the same numbers in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A duration below `limit`.
    pub(crate) fn duration(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        limit.mul_f64(((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// Alternates between two kinds: a random time after the start, when the state may not be reached
/// yet, and a random time after the state is reached.
pub(crate) fn moments(random: &mut Random) -> impl Iterator<Item = Moment> {
    let limit = Duration::from_millis(4);
    (0..).map(move |n| match n % 2 {
        0 => Moment::AfterStart(random.duration(limit)),
        _ => Moment::AfterReached(random.duration(limit)),
    })
}
