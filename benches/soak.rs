//! Checks that memory does not grow. An informer of 5,000 Pods as a custom struct runs in its own
//! process with at most 64 MiB of writable memory, including stacks. It receives half a million
//! events. Its watch expires twenty times, and each time the informer lists everything again. The
//! server is the parent process. It runs only on Linux, because it reads `/proc`.
//!
//! ```text
//! cargo bench --bench soak                 # two minutes
//! cargo bench --bench soak -- 2000000      # two million events
//! cargo bench --bench soak -- coalescing   # at full speed, to a handler that merges waiting notifications
//! ```

mod common;

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::Jump;
use common::custom::Pod;
use common::pods::Pods;
use k8s_informer::handler::{HandlerBuffer, HandlerFuncs, HandlerOptions};
use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::Backoff;
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stopper};

/// The limit of writable memory of the informer process in KiB, for `ulimit -d`.
const LIMIT: usize = 64 << 10;

const PODS: usize = 5_000;
const RELISTS: usize = 20;

/// The pause before each chunk of about ten events, so that the handler keeps up. Notifications for
/// a slower handler are kept, as in client-go. This test does not measure them.
const PAUSE: Duration = Duration::from_millis(2);

/// The maximum ratio of resident memory at the end to that after the first list.
const BOUND: f64 = 1.05;

/// The first version of the server. All later versions have the same number of digits.
const FIRST_VERSION: usize = 2_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--informer", url, last, buffer] = arguments[..] {
        return informer(url, last, buffer == "coalescing");
    }
    let coalescing = arguments.contains(&"coalescing");
    let test = arguments.contains(&"--test");
    let events = arguments.iter().find_map(|argument| argument.parse().ok());
    let events = events.unwrap_or(if test { 5_000 } else { 500_000 });
    let pods = if test { 200 } else { PODS };

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "http://{}",
        listener.local_addr().expect("the listener is bound")
    );
    let world = World::new(pods, events);
    let last = world.last.to_string();
    let world = Arc::new(Mutex::new(world));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let world = Arc::clone(&world);
            // The thread ends with its connection.
            thread::spawn(move || serve(&stream, &world, !coalescing));
        }
    });
    let rate = if coalescing {
        "at full speed"
    } else {
        "at less than 5,000 per second"
    };
    println!(
        "{pods} pods, {events} events {rate}, {RELISTS} relists. The limit of the process is {} MiB.",
        LIMIT >> 10
    );
    println!("Resident memory in MiB:");
    let this = std::env::current_exe().expect("the path of this program");
    let buffer = if coalescing { "coalescing" } else { "ring" };
    let limited = format!("ulimit -d {LIMIT} && exec \"$0\" --informer {url} {last} {buffer}");
    let status = Command::new("sh")
        .args(["-c", &limited])
        .arg(this)
        .status()
        .expect("sh can be started");
    assert!(status.success(), "the informer process failed: {status}");
}

/// Runs the informer process.
fn informer(url: &str, last: &str, coalescing: bool) {
    let mut options = ReflectorOptions::default();
    options.watch_list = false;
    // Only the expired watches fail. Their backoff must not take minutes.
    options.backoff = Backoff::new(Duration::from_millis(1));
    let client = Client::new(Config::new(url)).expect("a plain URL");
    let factory =
        SharedInformerFactory::with_options(client, FactoryOptions::new().reflector(options));
    let pods = factory.informer::<Pod>();
    let mut options = HandlerOptions::default();
    if coalescing {
        options.buffer = HandlerBuffer::Coalescing;
    }
    let (sender, done) = mpsc::channel();
    let last = last.to_owned();
    let handler = HandlerFuncs::new().on_update(move |_, pod: &Arc<Pod>| {
        if pod.resource_version() == last {
            sender.send(()).expect("the main thread receives");
        }
    });
    let handler = pods
        .add_handler_with_options(handler, options)
        .expect("the informer has not ended");
    let stop = Stopper::new();
    let began = Instant::now();
    factory.start(&stop).expect("threads");
    factory
        .wait_for_cache_sync(None, &stop)
        .expect("the cache syncs");
    let first = Process::now();
    first.print("after the first list", began);
    let began = Instant::now();
    while done.recv_timeout(Duration::from_secs(4)).is_err() {
        Process::now().print("during the events", began);
    }
    let end = Process::now();
    end.print("at the end", began);
    let status = pods.status();
    println!(
        "maximum number of waiting notifications: {}",
        handler.stats().most_waiting
    );
    println!(
        "lists {}, relists {}, watches {}",
        status.lists, status.relists, status.watches
    );
    let growth = end.resident / first.resident;
    println!(
        "growth {:+.1} %: {}",
        (growth - 1.0) * 100.0,
        if growth <= BOUND { "yes" } else { "NO" }
    );
    factory.shut_down(None).expect("no callback calls this");
}

/// The resources of this process, in MiB and seconds.
struct Process {
    resident: f64,
    anonymous: f64,
    peak: f64,
    threads: f64,
    cpu: f64,
}

impl Process {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let field = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            number.expect("a number")
        };
        let [resident, anonymous, peak] =
            ["VmRSS:", "RssAnon:", "VmHWM:"].map(|name| field(name) / 1024.0);
        let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
        let fields = stat
            .rsplit(") ")
            .next()
            .expect("the name ends with a parenthesis")
            .split(' ')
            .skip(11)
            .take(2);
        let cpu = fields
            .filter_map(|ticks| ticks.parse::<f64>().ok())
            .sum::<f64>()
            / 100.0;
        Self {
            resident,
            anonymous,
            peak,
            threads: field("Threads:"),
            cpu,
        }
    }

    fn print(&self, when: &str, began: Instant) {
        let Self {
            resident,
            anonymous,
            peak,
            threads,
            cpu,
        } = self;
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{when:20} {resident:6.2}, anonymous {anonymous:6.2}, peak {peak:6.2}; {threads} threads; \
             {cpu:.2} s of CPU so far; took {seconds:.2} s"
        );
    }
}

/// The state of the server. The Pods are rendered once; only versions and names are patched.
struct World {
    pods: Vec<Slot>,
    jump: Jump,
    version: usize,
    /// The version of the last event.
    last: usize,
    /// The number of events until the watch expires.
    until_expired: usize,
    events: usize,
    /// The number of Pods created so far.
    created: usize,
    frame: Vec<u8>,
}

struct Slot {
    bytes: Vec<u8>,
    /// The ends of the name, the UID and the version in `bytes`.
    name: usize,
    uid: usize,
    version: usize,
    exists: bool,
}

/// Writes a number with `digits` digits that end at `end`.
fn write(bytes: &mut [u8], end: usize, digits: usize, mut number: usize) {
    for digit in bytes[end - digits..end].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

impl World {
    fn new(count: usize, events: usize) -> Self {
        let pods = Pods::new(count);
        let slot = |n| {
            let bytes = pods.item(n, 0).to_vec();
            let text = std::str::from_utf8(&bytes).expect("JSON");
            let end = |field: &str| {
                let value = text.find(field).expect("every Pod has this field") + field.len();
                value
                    + text[value..]
                        .find('"')
                        .expect("the value ends with a quote")
            };
            let (name, uid) = (end(r#""name":""#), end(r#""uid":""#));
            let version = end(r#""resourceVersion":""#);
            Slot {
                bytes,
                name,
                uid,
                version,
                exists: true,
            }
        };
        Self {
            pods: (0..count).map(slot).collect(),
            jump: Jump::new(),
            version: FIRST_VERSION,
            // Changes without events also have versions.
            last: FIRST_VERSION + events + RELISTS * (count / 100),
            until_expired: events / (RELISTS + 1),
            events,
            created: count,
            frame: Vec::new(),
        }
    }

    /// Makes a random change and writes its watch event to `frame`.
    fn step(&mut self, is_last: bool) {
        self.version += 1;
        let Self {
            pods,
            jump,
            version,
            created,
            frame,
            ..
        } = self;
        // The first Pod always exists. The last event changes it.
        let mut n = 1 + jump.below(pods.len() - 1);
        let kind = match jump.below(10) {
            _ if is_last => "MODIFIED",
            0 => "DELETED",
            1 => "ADDED",
            _ => "MODIFIED",
        };
        if is_last {
            n = 0;
        }
        // In practice there is always a Pod to delete. If no Pod can be added, one is changed
        // instead.
        let must_exist = kind != "ADDED";
        let found = (n..pods.len())
            .chain(1..n)
            .find(|n| pods[*n].exists == must_exist);
        let (kind, slot) = match found {
            Some(n) => (kind, &mut pods[n]),
            None => ("MODIFIED", &mut pods[n]),
        };
        write(&mut slot.bytes, slot.version, 7, *version);
        match kind {
            "ADDED" => {
                write(&mut slot.bytes, slot.name, 5, *created);
                write(&mut slot.bytes, slot.uid, 12, *created);
                *created += 1;
                slot.exists = true;
            }
            "DELETED" => slot.exists = false,
            _ => {}
        }
        frame.clear();
        frame.extend_from_slice(br#"{"type":""#);
        frame.extend_from_slice(kind.as_bytes());
        frame.extend_from_slice(br#"","object":{"kind":"Pod","apiVersion":"v1","#);
        frame.extend_from_slice(&slot.bytes[1..]);
        frame.extend_from_slice(b"}\n");
    }

    fn list(&self) -> Vec<u8> {
        let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":""#;
        let mut list = format!("{head}{}\"}},\"items\":[", self.version).into_bytes();
        for (n, pod) in self.pods.iter().filter(|pod| pod.exists).enumerate() {
            list.extend_from_slice(if n > 0 { b"," } else { b"" });
            list.extend_from_slice(&pod.bytes);
        }
        list.extend_from_slice(b"]}\n");
        list
    }

    /// Returns the next frames, about `size` bytes. Returns nothing at the end of the watch.
    fn frames(&mut self, size: usize) -> Vec<u8> {
        let mut frames = Vec::with_capacity(size + (64 << 10));
        while self.until_expired > 0 && self.events > 0 && frames.len() < size {
            self.until_expired -= 1;
            self.events -= 1;
            self.step(self.events == 0);
            frames.extend_from_slice(&self.frame);
        }
        frames
    }

    /// Lets the watch expire. The changes until the next watch have no events.
    fn expire(&mut self) {
        (0..self.pods.len() / 100).for_each(|_| self.step(false));
        let relists = (self.last - self.version - self.events) / (self.pods.len() / 100);
        self.until_expired = if relists == 0 {
            self.events
        } else {
            self.events / (relists + 1)
        };
    }
}

fn serve(stream: &TcpStream, world: &Mutex<World>, paced: bool) -> io::Result<()> {
    const EXPIRED: &str = concat!(
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"too old resource version","reason":"Expired","code":410}}"#,
        "\n"
    );
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    loop {
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if reader.read_line(&mut request)? == 0 {
                return Ok(());
            }
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        if !request.contains("watch=") {
            let list = world.lock().expect("no thread panics").list();
            write!(out, "{head}Content-Length: {}\r\n\r\n", list.len())?;
            out.write_all(&list)?;
            continue;
        }
        write!(out, "{head}Transfer-Encoding: chunked\r\n\r\n")?;
        let mut chunk = |bytes: &[u8]| {
            write!(out, "{:x}\r\n", bytes.len())?;
            out.write_all(bytes)?;
            out.write_all(b"\r\n")
        };
        loop {
            let (frames, is_over) = {
                let mut world = world.lock().expect("no thread panics");
                (world.frames(64 << 10), world.events == 0)
            };
            if !frames.is_empty() {
                if paced {
                    thread::sleep(PAUSE);
                }
                chunk(&frames)?;
                continue;
            }
            if is_over {
                // After the last event, the watch stays silent.
                return reader.read_line(&mut request).map(drop);
            }
            chunk(EXPIRED.as_bytes())?;
            world.lock().expect("no thread panics").expire();
            chunk(b"")?;
            break;
        }
    }
}
