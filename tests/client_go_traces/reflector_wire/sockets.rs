//! Replays a part of the scripts over TCP with the crate's client and compares the results.
//!
//! No time passes: the waits of the reflector return at once. Traces that need time are left out:
//! pauses of the server (except before a reset, where a pause only lets the sent bytes arrive),
//! resyncs, and stops by time. Traces with a refused connection or a whole informer are also left
//! out.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::Reflector;
use k8s_informer::store::ReflectorStore;
use k8s_informer::time::Clock;
use k8s_informer::{Client, Config, DynamicObject, Stop, Stopper};
use serde_json::{Value, json};

use super::observe::{self, Recorder};
use super::response::{End, Part, Response};
use super::{checked, deviations, options};
use crate::client_go_traces::object::{text, version_text};
use crate::client_go_traces::{SUITES, replay};

/// The maximum time that a test waits for an event, in real time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The minimum percentage of the suite's steps that must be replayed here.
const FLOOR: f64 = 40.0;

const THREADS: usize = 4;

#[test]
fn recorded_reflector_traces_replay_over_tcp() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = replay::deviations(root);
    let files = replay::files(&root.join("tests/traces"), SUITES)
        .into_iter()
        .filter(|(suite, _)| suite.name == "reflector_wire");
    let traces: Vec<Value> = files.flat_map(|(_, path)| replay::traces(&path)).collect();
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(trace) = traces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let compared = is_for_sockets(trace).then(|| replay(trace, &listed));
                    tally.lock().unwrap().add(trace, compared);
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    let share = 100.0 * tally.replayed as f64 / tally.steps as f64;
    println!(
        "reflector_wire over TCP: {} of {} traces, {} of {} steps replayed ({share:.1} %)",
        tally.traces,
        traces.len(),
        tally.replayed,
        tally.steps
    );
    assert!(
        tally.failed.is_empty(),
        "{} failed:\n{}",
        tally.failed.len(),
        tally.failed.join("\n")
    );
    assert!(
        share >= FLOOR,
        "only {share:.1} % replayed, the minimum is {FLOOR} %"
    );
}

#[derive(Default)]
struct Tally {
    traces: usize,
    steps: usize,
    replayed: usize,
    failed: Vec<String>,
}

impl Tally {
    fn add(&mut self, trace: &Value, compared: Option<Result<usize, String>>) {
        self.steps += trace["steps"].as_array().unwrap().len();
        match compared {
            None => return,
            Some(Ok(steps)) => self.replayed += steps,
            Some(Err(difference)) => self.failed.push(format!("{}: {difference}", trace["id"])),
        }
        self.traces += 1;
    }
}

fn is_for_sockets(trace: &Value) -> bool {
    let config = &trace["config"];
    let is_pause = |item: &Value| item["pause_ms"].is_u64();
    let mut steps = trace["steps"].as_array().unwrap().iter();
    config["sink"] == "store"
        && config["resync_ms"].is_null()
        && steps.all(|step| {
            let response = &step["response"];
            let mut stream = response["stream"].as_array().map_or(&[][..], Vec::as_slice);
            if let Some((_, before)) = stream.split_last().filter(|(last, _)| is_pause(last)) {
                stream = if response["end"] == "reset" {
                    before
                } else {
                    stream
                };
            }
            response["refuse"] != true && step["when"] != "after" && !stream.iter().any(is_pause)
        })
}

/// Compares one trace and returns the number of compared steps.
fn replay(trace: &Value, listed: &BTreeSet<String>) -> Result<usize, String> {
    let (config, steps) = (&trace["config"], trace["steps"].as_array().unwrap());
    let mut own = deviations::own(steps);
    for (step, own) in steps.iter().zip(&mut own) {
        // The client neither follows redirects nor accepts compressed bodies.
        let (response, headers) = (&step["response"], &step["response"]["headers"]);
        let is_packed = headers["Content-Encoding"] == "gzip" && response["body_b64"].is_string();
        if own.is_none() && (is_packed || headers["Location"].is_string()) {
            *own = Some("REST");
        }
    }
    let until = deviations::cut(steps, &own, listed);
    let answers = run(config, steps, until);
    for (number, step) in steps[..until].iter().enumerate() {
        let (got, want) = (answers.get(number), checked(&step["want"]));
        if got != Some(&want) {
            let nothing = json!("nothing");
            return Err(format!(
                "step {number}: {step}\n  got {}",
                got.unwrap_or(&nothing)
            ));
        }
    }
    Ok(until)
}

/// The server of one trace.
struct Server {
    config: Value,
    recorder: Arc<Recorder>,
    clock: Immediate,
    arrived: Receiver<TcpStream>,
    /// The observations of each step.
    answers: Vec<Value>,
    current: Option<Current>,
}

/// The last answered request.
struct Current {
    request: Value,
    want: Value,
    /// The connection, if it stays open.
    held: Option<TcpStream>,
}

/// Runs the steps before `until` and stops the reflector. Returns the observations of each step.
fn run(config: &Value, steps: &[Value], until: usize) -> Vec<Value> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let client = Client::new(Config::new(format!("http://{address}"))).unwrap();
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    let lister_watcher = client.lister_watcher(&resource, Some(text(&config["namespace"])));
    let (recorder, clock, stop) = (
        Arc::new(Recorder::new(config)),
        Immediate::default(),
        Stopper::new(),
    );
    let store: Arc<dyn ReflectorStore<DynamicObject>> = recorder.clone();
    let options = options(config, Arc::new(clock.clone()), &recorder);
    let reflector = Reflector::new(lister_watcher, store, options);

    let (accepted, arrived) = mpsc::channel();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let connections = listener.incoming().map_while(Result::ok);
            for connection in connections.take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let _ = accepted.send(connection);
            }
        });
        let running = scope.spawn(|| reflector.run(&stop));
        let config = config.clone();
        let mut server = Server {
            config,
            recorder,
            clock,
            arrived,
            answers: Vec::new(),
            current: None,
        };
        let version = || version_text(reflector.last_sync_resource_version());
        let further = server.serve(steps, until, &version);
        stop.stop();
        running.join().unwrap();
        server.step_is_over(&version);
        is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(address));
        server
            .answers
            .push(json!({"request": further, "stopped": "now"}));
        server.answers
    })
}

impl Server {
    /// Answers the requests. Returns the request after the last response, if the last step expects
    /// one.
    fn serve(
        &mut self,
        steps: &[Value],
        until: usize,
        version: &dyn Fn() -> String,
    ) -> Option<Value> {
        for step in steps[..until]
            .iter()
            .take_while(|step| step["op"] == "respond")
        {
            let resets = step["response"]["end"] == "reset" || step["response"]["drop"] == "reset";
            let (connection, request) = self.request(!resets)?;
            self.step_is_over(version);
            let want = checked(&step["want"]);
            let held = self.respond(&Response::parse(&step["response"]), connection, &want);
            self.current = Some(Current {
                request,
                want,
                held,
            });
        }
        let next = self.answers.len() + usize::from(self.current.is_some());
        if steps
            .get(next)
            .is_none_or(|step| step["want"]["request"].is_null())
        {
            if let Some(current) = &self.current {
                self.recorder.wait_for(&current.want, PATIENCE);
            }
            return None;
        }
        let (_connection, request) = self.request(true)?;
        self.step_is_over(version);
        Some(request)
    }

    /// Reads the next request. Without `to_the_last_byte`, leaves its last byte unread, so that
    /// closing the connection resets it.
    fn request(&self, to_the_last_byte: bool) -> Option<(TcpStream, Value)> {
        let mut connection = self.arrived.recv_timeout(PATIENCE).ok()?;
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.set_nodelay(true).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r") {
            let mut byte = [0];
            connection.read_exact(&mut byte).ok()?;
            head.extend(byte);
        }
        if to_the_last_byte {
            connection.read_exact(&mut [0]).ok()?;
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.strip_prefix("GET ")?.split(' ').next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        self.recorder
            .requested(query.contains("sendInitialEvents=true"));
        Some((
            connection,
            observe::request(&self.config, path, query, self.clock.waited()),
        ))
    }

    /// Sends a response. Returns the connection if it stays open.
    fn respond(
        &self,
        response: &Response,
        mut connection: TcpStream,
        want: &Value,
    ) -> Option<TcpStream> {
        let Response::Answered(reply) = response else {
            return None;
        };
        // The client may already have closed the connection.
        let _ = connection.write_all(&reply.head());
        for part in &reply.parts {
            if let Part::Bytes(bytes) = part {
                let _ = connection.write_all(bytes);
            }
        }
        if reply.end == End::Reset {
            // Wait until the reflector has read all bytes, because a reset would discard unread
            // bytes.
            self.recorder.wait_for(want, PATIENCE);
        }
        (reply.end == End::Hold).then_some(connection)
    }

    /// Records the observations of the last request. All its effects have arrived.
    fn step_is_over(&mut self, version: &dyn Fn() -> String) {
        let Some(Current {
            request,
            want,
            held,
        }) = self.current.take()
        else {
            return;
        };
        let mut reply = self.recorder.take();
        reply.insert("request".to_owned(), request);
        reply.insert("last_rv".to_owned(), json!(version()));
        if want["hung_up"] == true {
            // If the client had not read everything, its close is a reset.
            let hung_up = held.is_some_and(|mut held| match held.read(&mut [0]) {
                Ok(read) => read == 0,
                Err(error) => error.kind() == ErrorKind::ConnectionReset,
            });
            reply.insert("hung_up".to_owned(), json!(hung_up));
        }
        self.answers.push(Value::Object(reply));
    }
}

/// A clock whose waits return at once.
#[derive(Clone)]
struct Immediate {
    start: Instant,
    /// The sum of all waits, and the sum since the last request (`None` before the first request).
    waits: Arc<Mutex<(Duration, Option<Duration>)>>,
}

impl Default for Immediate {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            waits: Arc::default(),
        }
    }
}

impl Immediate {
    /// Returns how long the reflector has waited since the last call.
    fn waited(&self) -> Option<Duration> {
        self.waits.lock().unwrap().1.replace(Duration::ZERO)
    }
}

impl Clock for Immediate {
    fn now(&self) -> Instant {
        self.start + self.waits.lock().unwrap().0
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let mut waits = self.waits.lock().unwrap();
        waits.0 += duration;
        *waits.1.get_or_insert_default() += duration;
        !stop.is_stopped()
    }
}
