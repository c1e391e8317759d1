//! An API server with a minimal cost. It renders the same Pods at each start, before it prints its
//! address. Responses are copies of them with a few patched digits. It runs in a child process, so
//! its cost is not part of the measured figures.
//!
//! It serves LIST, WATCH and watch-lists of `/api/v1/pods`, or of `/api/v1/configmaps`. After the
//! initial objects, a watch is silent until [`Replay::send_events`]. A PATCH returns the object in a
//! version that no watch delivers. A restarted server has its initial state again.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::pods::{Pods, VERSIONS};

/// The first argument of a server process. The others are the address to listen on, the number of
/// objects, and their kind.
const ARGUMENT: &str = "--replay-server";

/// The size of a write while more data follows.
const WRITE: usize = 256 * 1024;

/// The chunk size of a list, as in kube-apiserver.
const CHUNK: usize = 64 * 1024;

/// A sleep ends about this much too late. A wait therefore sleeps less by this time and spins for
/// the rest.
const SLACK: Duration = Duration::from_micros(50);

/// A handle to the server process. Dropping it ends the process.
pub(crate) struct Replay {
    pub(crate) url: String,
    kind: &'static str,
    count: usize,
    child: Child,
    commands: ChildStdin,
    /// A line for each executed command.
    answers: BufReader<ChildStdout>,
}

impl Replay {
    /// Starts this program again as a server of `pods` Pods. Its `main` must call
    /// [`serve_if_child`].
    pub(crate) fn spawn(pods: usize) -> Self {
        Self::spawn_kind(POD, pods)
    }

    /// Like [`spawn`](Self::spawn), with small ConfigMaps.
    pub(crate) fn spawn_config_maps(count: usize) -> Self {
        Self::spawn_kind(CONFIG_MAP, count)
    }

    fn spawn_kind(kind: &'static str, count: usize) -> Self {
        Self::listen("127.0.0.1:0", kind, count)
    }

    fn listen(address: &str, kind: &'static str, count: usize) -> Self {
        let program = std::env::current_exe().expect("Linux");
        let mut child = Command::new(program)
            .args([ARGUMENT, address, &count.to_string(), kind])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server process starts");
        let mut url = String::new();
        let mut answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        answers
            .read_line(&mut url)
            .expect("the server prints its address");
        let commands = child.stdin.take().expect("stdin is piped");
        Self {
            url: url.trim_end().to_owned(),
            kind,
            count,
            child,
            commands,
            answers,
        }
    }

    /// Ends the server process and starts another one at the same address.
    pub(crate) fn restart(&mut self) {
        self.end();
        let address = self.url.trim_start_matches("http://").to_owned();
        *self = Self::listen(&address, self.kind, self.count);
    }

    /// Sends `events` events at `rate` events per second. A rate of 0 sends them as fast as the
    /// client reads them. Paced events carry the time at which they are sent.
    pub(crate) fn send_events(&mut self, events: usize, rate: usize) {
        self.command(&format!("send_events {events} {rate}"));
    }

    /// Sends `events` updates at `rate` updates per second, of each object in turn.
    pub(crate) fn send_updates(&mut self, events: usize, rate: usize) {
        self.command(&format!("send_updates {events} {rate}"));
    }

    /// Sends `events` events of one object as fast as the client reads them.
    pub(crate) fn send_hot_events(&mut self, events: usize) {
        self.command(&format!("hot {events}"));
    }

    /// Changes one object in a hundred without events, and ends all watches as expired. The changes
    /// are only visible in a new list.
    pub(crate) fn expire(&mut self) {
        self.command("expire");
    }

    /// Like [`expire`](Self::expire), but breaks all connections. The next watch has expired.
    pub(crate) fn cut(&mut self) {
        self.command("cut");
    }

    /// Restores the initial state and ends all watches as expired.
    pub(crate) fn reset(&mut self) {
        self.command("reset");
    }

    /// Sends a command and waits until the server has executed it. Otherwise a client that is
    /// started after a reset could see the state before it.
    fn command(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the server reads commands");
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        read.expect("the server answers");
        assert_eq!(answer, "done\n", "the server has ended");
    }

    fn end(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.end();
    }
}

/// If this process is a server process, serves until standard input ends. Returns whether this
/// process is a server process.
pub(crate) fn serve_if_child() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return false;
    }
    let address = arguments.next().expect("the address");
    let count = arguments
        .next()
        .and_then(|count| count.parse().ok())
        .expect("the number of objects");
    let server = Arc::new(Server::new(
        count,
        arguments.next().as_deref() == Some(CONFIG_MAP),
    ));
    let listener = TcpListener::bind(address).expect("a free port");
    println!(
        "http://{}",
        listener.local_addr().expect("the listener is bound")
    );
    let accepting = Arc::clone(&server);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&accepting);
            let connection = stream.try_clone().expect("a free file descriptor");
            server.state().connections.push(connection);
            // A failed connection affects only its own thread.
            thread::spawn(move || server.connection(stream));
        }
    });
    for line in io::stdin().lines().map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["send_events", events, rate] => {
                server.send_events(
                    events.parse().expect("a number"),
                    rate.parse().expect("a number"),
                );
            }
            ["send_updates", events, rate] => server.send_updates(
                events.parse().expect("a number"),
                rate.parse().expect("a number"),
            ),
            ["hot", events] => server.send_hot_events(events.parse().expect("a number")),
            ["expire"] => server.expire(),
            ["cut"] => server.cut(),
            ["reset"] => server.reset(),
            _ => panic!("unknown command: {line}"),
        }
        println!("done");
    }
    true
}

/// The version at which the log begins, which is the version of the first list.
fn first_version() -> usize {
    VERSIONS[0].parse().expect("a number")
}

const POD: &str = "Pod";
const CONFIG_MAP: &str = "ConfigMap";

struct Server {
    kind: &'static str,
    path: &'static str,
    /// The objects, whatever their kind is.
    pods: Vec<Pod>,
    /// The number of Pods that exist at the beginning. The others can be added.
    count: usize,
    state: Mutex<State>,
    /// Signalled when the log grows or is replaced.
    changed: Condvar,
}

/// The JSON of a Pod, and the positions of the digits that differ between events.
struct Pod {
    json: &'static [u8],
    version: usize,
    /// The first eight digits change, so that a Pod that is added again is a different object.
    uid: usize,
    sent_at: usize,
}

/// The log contains every change. A version is a position in the log.
struct State {
    log: Vec<Entry>,
    /// A watch that has not read the log up to here has expired.
    oldest: usize,
    /// The number of resets.
    generation: usize,
    /// The first paced entry, the number of entries per second, and the start time.
    pace: (usize, usize, Instant),
    random: u64,
    /// `live` has the Pods that exist, `gone` those that do not.
    live: Vec<u32>,
    gone: Vec<u32>,
    incarnations: Vec<u32>,
    /// The connections since the last cut.
    connections: Vec<TcpStream>,
}

#[derive(Clone, Copy)]
struct Entry {
    r#type: &'static str,
    pod: u32,
    incarnation: u32,
}

impl State {
    fn new(count: usize, all: usize, generation: usize) -> Self {
        Self {
            log: Vec::new(),
            oldest: 0,
            generation,
            pace: (0, 0, Instant::now()),
            random: 7,
            live: (0..count as u32).collect(),
            gone: (count as u32..all as u32).collect(),
            incarnations: vec![0; all],
            connections: Vec::new(),
        }
    }

    /// Appends the next event. One of ten deletes a Pod, and one adds a Pod.
    fn next(&mut self) {
        let (r#type, pod) = match self.log.len() % 10 {
            3 if self.live.len() > 1 => {
                let at = self.below(self.live.len());
                let pod = self.live.swap_remove(at);
                self.gone.push(pod);
                ("DELETED", pod)
            }
            8 if !self.gone.is_empty() => {
                let at = self.below(self.gone.len());
                let pod = self.gone.swap_remove(at);
                self.live.push(pod);
                self.incarnations[pod as usize] += 1;
                ("ADDED", pod)
            }
            _ => {
                let at = self.below(self.live.len());
                ("MODIFIED", self.live[at])
            }
        };
        self.push(r#type, pod);
    }

    fn push(&mut self, r#type: &'static str, pod: u32) {
        self.log.push(Entry {
            r#type,
            pod,
            incarnation: self.incarnations[pod as usize],
        });
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit
    }
}

impl Server {
    fn new(count: usize, has_config_maps: bool) -> Self {
        let all = count + count.div_ceil(10);
        let (kind, path, pods) = match has_config_maps {
            false => (POD, "/api/v1/pods", Pods::new(all)),
            true => (CONFIG_MAP, "/api/v1/configmaps", Pods::config_maps(all)),
        };
        let pods = (0..all).map(|n| {
            let json = pods.item(n, 0);
            let text = std::str::from_utf8(json).expect("JSON");
            let end_of = |key: &str| text.find(key).expect("every Pod has this field") + key.len();
            Pod {
                json,
                version: end_of(r#""resourceVersion":""#),
                // This finds the UID of the Pod, which comes before the UID of its owner.
                uid: end_of(r#","uid":""#),
                sent_at: end_of(r#""example.com/sent-at":""#),
            }
        });
        let pods: Vec<Pod> = pods.collect();
        Self {
            kind,
            path,
            pods,
            count,
            state: State::new(count, all, 0).into(),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_events(&self, events: usize, rate: usize) {
        let mut state = self.state();
        state.pace = (state.log.len(), rate, Instant::now());
        (0..events).for_each(|_| state.next());
        self.changed.notify_all();
    }

    fn send_updates(&self, events: usize, rate: usize) {
        let mut state = self.state();
        state.pace = (state.log.len(), rate, Instant::now());
        for n in 0..events {
            let pod = state.live[n % state.live.len()];
            state.push("MODIFIED", pod);
        }
        self.changed.notify_all();
    }

    fn send_hot_events(&self, events: usize) {
        let mut state = self.state();
        state.pace = (state.log.len(), 0, Instant::now());
        let pod = state.live[0];
        (0..events).for_each(|_| state.push("MODIFIED", pod));
        self.changed.notify_all();
    }

    fn expire(&self) {
        self.change_without_events(&mut self.state());
    }

    fn cut(&self) {
        let mut state = self.state();
        for connection in state.connections.drain(..) {
            // The client may have closed the connection.
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.change_without_events(&mut state);
    }

    fn change_without_events(&self, state: &mut State) {
        let count = state.live.len().div_ceil(100);
        // A random start selects different Pods each time.
        let first = state.below(100);
        (0..count).for_each(|n| {
            let pod = state.live[(first + n * 100) % state.live.len()];
            state.push("MODIFIED", pod);
        });
        state.oldest = state.log.len();
        self.changed.notify_all();
    }

    fn reset(&self) {
        let mut state = self.state();
        *state = State::new(self.count, self.pods.len(), state.generation + 1);
        self.changed.notify_all();
    }

    /// Returns the Pods that exist, in order and in their newest state, and the version.
    fn snapshot(&self) -> (Vec<(usize, u32, usize)>, usize) {
        let state = self.state();
        let first = first_version();
        let mut newest = vec![first; self.pods.len()];
        for (at, entry) in state.log.iter().enumerate() {
            newest[entry.pod as usize] = first + at + 1;
        }
        let mut live = state.live.clone();
        live.sort_unstable();
        let live = live.into_iter().map(|pod| pod as usize);
        (
            live.map(|pod| (pod, state.incarnations[pod], newest[pod]))
                .collect(),
            first + state.log.len(),
        )
    }

    fn connection(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut output = Output {
            stream,
            buffer: Vec::with_capacity(2 * WRITE),
        };
        let mut line = String::new();
        loop {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let is_get = line.starts_with("GET ");
            let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
            let mut body = 0;
            while line != "\r\n" {
                line.clear();
                if input.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                    body = length.trim().parse().map_err(io::Error::other)?;
                }
            }
            if !is_get {
                io::copy(&mut (&mut input).take(body), &mut io::sink())?;
                output.patched(self.kind, &target)?;
                continue;
            }
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let parameters = query.split('&').filter_map(|pair| pair.split_once('='));
            let parameter = |name| {
                parameters
                    .clone()
                    .find(|pair| pair.0 == name)
                    .map(|pair| pair.1)
            };
            if path != self.path {
                output.not_found()?;
                continue;
            }
            output.ok()?;
            if parameter("watch").is_none_or(|watch| watch == "false") {
                let number = |name| parameter(name).and_then(|number| number.parse().ok());
                self.list(
                    &mut output,
                    number("continue").unwrap_or(0),
                    number("limit").unwrap_or(0),
                )?;
            } else {
                let seconds = parameter("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
                let deadline = Instant::now() + Duration::from_secs(seconds.unwrap_or(3600));
                let bookmark = parameter("sendInitialEvents") == Some("true");
                let version = parameter("resourceVersion").unwrap_or_default();
                self.watch(&mut output, version, bookmark, deadline)?;
            }
            output.write(b"0\r\n\r\n");
            output.flush()?;
        }
    }

    fn list(&self, output: &mut Output, start: usize, limit: usize) -> io::Result<()> {
        let (live, version) = self.snapshot();
        let page = live.get(start..).unwrap_or_default();
        let page = &page[..if limit == 0 {
            page.len()
        } else {
            limit.min(page.len())
        }];
        let end = start + page.len();
        let more = match live.len() - end.min(live.len()) {
            0 => String::new(),
            left => format!(r#","continue":"{end}","remainingItemCount":{left}"#),
        };
        let mut chunk = format!(
            r#"{{"kind":"{}List","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{more}}},"items":["#,
            self.kind
        )
        .into_bytes();
        for (n, &(pod, incarnation, version)) in page.iter().enumerate() {
            if n > 0 {
                chunk.push(b',');
            }
            let start = chunk.len();
            chunk.extend_from_slice(self.pods[pod].json);
            self.pods[pod].patch(&mut chunk[start..], version, incarnation, 0);
            if chunk.len() >= CHUNK {
                output.chunk(&[&chunk]);
                chunk.clear();
                output.flush_if_full()?;
            }
        }
        chunk.extend_from_slice(b"]}\n");
        output.chunk(&[&chunk]);
        Ok(())
    }

    /// Serves a watch. The watch starts with all Pods if `version` is missing or 0, or if
    /// `bookmark` is set.
    fn watch(
        &self,
        output: &mut Output,
        version: &str,
        bookmark: bool,
        deadline: Instant,
    ) -> io::Result<()> {
        let mut from: usize = version.parse().unwrap_or(0);
        let generation = self.state().generation;
        if from == 0 || bookmark {
            let live;
            (live, from) = self.snapshot();
            for (pod, incarnation, version) in live {
                self.event(output, "ADDED", pod, version, incarnation, 0);
                output.flush_if_full()?;
            }
        }
        if bookmark {
            output.chunk(&[format!(
                concat!(
                    r#"{{"type":"BOOKMARK","object":{{"kind":"{}","apiVersion":"v1","metadata":{{"#,
                    r#""resourceVersion":"{}","creationTimestamp":null,"#,
                    r#""annotations":{{"k8s.io/initial-events-end":"true"}}}},"#,
                    r#""spec":{{"containers":null}},"status":{{}}}}}}"#,
                    "\n"
                ),
                self.kind, from
            )
            .as_bytes()]);
        }
        output.flush()?;

        // The position in the log up to which this watch has read.
        let mut at = from.wrapping_sub(first_version());
        let mut some = Vec::new();
        loop {
            let pace = {
                let mut state = self.state();
                loop {
                    if state.generation != generation || at < state.oldest || at > state.log.len() {
                        drop(state);
                        output.chunk(&[EXPIRED.as_bytes()]);
                        return Ok(());
                    }
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(());
                    }
                    if at < state.log.len() {
                        break;
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                // A small batch, so that an expired version is detected soon.
                let end = state.log.len().min(at + 256);
                some.clear();
                some.extend_from_slice(&state.log[at..end]);
                state.pace
            };
            for entry in &some {
                let paced = at >= pace.0 && pace.1 > 0;
                let mut sent_at = 0;
                if paced {
                    let nanoseconds = (at - pace.0) as u64 * 1_000_000_000 / pace.1 as u64;
                    wait_until(pace.2 + Duration::from_nanos(nanoseconds));
                    let now = SystemTime::now()
                        .duration_since(UNIX_EPOCH)
                        .expect("the clock is after 1970");
                    sent_at = now.as_nanos();
                }
                at += 1;
                self.event(
                    output,
                    entry.r#type,
                    entry.pod as usize,
                    first_version() + at,
                    entry.incarnation,
                    sent_at,
                );
                if paced {
                    output.flush()?;
                } else {
                    output.flush_if_full()?;
                }
            }
            output.flush()?;
        }
    }

    /// Writes one event as one chunk, as kube-apiserver does.
    fn event(
        &self,
        output: &mut Output,
        r#type: &str,
        pod: usize,
        version: usize,
        incarnation: u32,
        sent_at: u128,
    ) {
        let pod = &self.pods[pod];
        let head = [
            r#"{"type":""#,
            r#type,
            r#"","object":{"kind":""#,
            self.kind,
            r#"","apiVersion":"v1","#,
        ]
        .map(str::as_bytes);
        // The head includes the opening brace.
        let [a, b, c, d, e] = head;
        let place = output.chunk(&[a, b, c, d, e, &pod.json[1..], b"}\n"]);
        let start = place.end - 2 - pod.json.len();
        pod.patch(&mut output.buffer[start..], version, incarnation, sent_at);
    }
}

/// The event for an expired watch.
const EXPIRED: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"The resourceVersion for the provided watch is too old.","reason":"Expired","code":410}}"#,
    "\n"
);

impl Pod {
    fn patch(&self, json: &mut [u8], version: usize, incarnation: u32, sent_at: u128) {
        digits(
            &mut json[self.version..][..VERSIONS[0].len()],
            version as u128,
        );
        if incarnation > 0 {
            digits(&mut json[self.uid..][..8], incarnation.into());
        }
        if sent_at > 0 {
            digits(&mut json[self.sent_at..][..20], sent_at);
        }
    }
}

/// Writes `number` with leading zeros.
fn digits(place: &mut [u8], mut number: u128) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn wait_until(time: Instant) {
    let left = time.saturating_duration_since(Instant::now());
    if left > SLACK {
        thread::sleep(left - SLACK);
    }
    while Instant::now() < time {
        std::hint::spin_loop();
    }
}

struct Output {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Output {
    fn ok(&mut self) -> io::Result<()> {
        self.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        self.flush()
    }

    fn not_found(&mut self) -> io::Result<()> {
        let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
        let head = "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: ";
        self.write(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes());
        self.flush()
    }

    /// Writes the answer to a PATCH.
    fn patched(&mut self, kind: &str, target: &str) -> io::Result<()> {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let mut segments = path.rsplit('/');
        let (name, _, namespace) = (segments.next(), segments.next(), segments.next());
        let body = format!(
            r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"{}","namespace":"{}","resourceVersion":"9000000"}}}}"#,
            name.unwrap_or_default(),
            namespace.unwrap_or_default(),
        );
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
        self.write(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes());
        self.flush()
    }

    /// Writes a chunk. Returns the position of its content in the buffer.
    fn chunk(&mut self, parts: &[&[u8]]) -> Range<usize> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.write(format!("{length:x}\r\n").as_bytes());
        let start = self.buffer.len();
        parts.iter().for_each(|part| self.write(part));
        self.write(b"\r\n");
        start..start + length
    }

    fn write(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= WRITE {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
