//! Runs a script on the reflector's own thread. The script decides the result inside each call that
//! the reflector makes, so the test does not depend on the speed of the machine.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use k8s_informer::reflector::{Body, ListOptions, ListWatch, ListerWatcher, TimedRead};
use k8s_informer::{Error, Stop, Stopper};
use serde_json::{Map, Value, json};

use super::clock::VirtualClock;
use super::observe::{self, Recorder};
use super::response::{End, Part, Response};
use crate::client_go_traces::object::text;

/// The number of resyncs without a change after which the script stops waiting on a held stream.
const RESYNCS: usize = 10;

pub(super) struct Script {
    config: Value,
    steps: Vec<Value>,
    /// The script runs only the steps before this one.
    until: usize,
    pub(super) clock: VirtualClock,
    pub(super) recorder: Arc<Recorder>,
    pub(super) stop: Stopper,
    /// Returns further observations after all effects of a step have arrived. Its argument is the
    /// expected result.
    look: OnceLock<Box<Look>>,
    /// The innermost lock.
    run: Mutex<Run>,
}

type Look = dyn Fn(&Value) -> Map<String, Value> + Send + Sync;

#[derive(Default)]
struct Run {
    /// The observations of the steps so far.
    answers: Vec<Value>,
    /// The request that is being answered.
    current: Option<Current>,
    /// The time at which the last response ended.
    ended_at: Duration,
    /// How long the reflector has waited since the last request. `None` before the first request.
    waited: Option<Duration>,
    /// A request that arrived after the end of the script.
    further: Option<Value>,
    stopped_at: Option<Duration>,
}

struct Current {
    request: Value,
    is_held: bool,
    hung_up: Arc<AtomicBool>,
}

impl Current {
    /// Whether the server holds the response open and the client has not closed it.
    fn is_open(&self) -> bool {
        self.is_held && !self.hung_up.load(Ordering::Relaxed)
    }
}

impl Script {
    pub(super) fn new(config: &Value, steps: &[Value], until: usize) -> Arc<Self> {
        let script = Arc::new(Self {
            config: config.clone(),
            steps: steps.to_vec(),
            until,
            clock: VirtualClock::new(),
            recorder: Arc::new(Recorder::new(config)),
            stop: Stopper::new(),
            look: OnceLock::new(),
            run: Mutex::default(),
        });
        let waiting = Arc::downgrade(&script);
        script.clock.on_wait(move |duration, stop| {
            waiting
                .upgrade()
                .is_some_and(|script| script.reflector_waits(duration, stop))
        });
        script
    }

    pub(super) fn look(&self, look: impl Fn(&Value) -> Map<String, Value> + Send + Sync + 'static) {
        let _ = self.look.set(Box::new(look));
    }

    pub(super) fn lister_watcher(self: &Arc<Self>) -> Arc<dyn ListerWatcher> {
        let (list, watch) = (Arc::clone(self), Arc::clone(self));
        Arc::new(
            ListWatch::new(
                move |options: &ListOptions, stop: &Stop| list.request(&options.to_query(), stop),
                move |options: &ListOptions, stop: &Stop| {
                    watch.request(&options.to_watch_query(), stop)
                },
            )
            .with_watch_list(),
        )
    }

    /// Returns the observations of each step. Call it after everything has stopped.
    pub(super) fn answers(&self) -> Vec<Value> {
        self.step_is_over();
        let mut run = self.run.lock().unwrap();
        let stopped = match run.stopped_at {
            Some(at) if at == self.clock.elapsed() => "now",
            Some(_) => "late",
            None => "never",
        };
        let last = json!({"request": run.further, "stopped": stopped});
        run.answers.push(last);
        std::mem::take(&mut run.answers)
    }

    fn request(self: &Arc<Self>, query: &str, stop: &Stop) -> Result<Body, Error> {
        let (mut path, mut query) = (observe::path(&self.config), query.to_owned());
        loop {
            let overlaps = self
                .run
                .lock()
                .unwrap()
                .current
                .as_ref()
                .is_some_and(Current::is_open);
            let (step, waited) = self.arrived();
            let mut request = observe::request(&self.config, &path, &query, waited);
            if overlaps {
                request["after"] = json!("overlap");
            }
            let hung_up = Arc::new(AtomicBool::new(false));
            let response = match &step {
                Some(step) => Response::parse(&step["response"]),
                None => Response::Dropped(End::Cut),
            };
            if matches!(response, Response::Refused) {
                request = json!({"kind": "refused", "after": request["after"]});
            }
            let is_held = matches!(&response, Response::Answered(reply) if reply.end == End::Hold);
            {
                let mut run = self.run.lock().unwrap();
                if step.is_none() {
                    run.further = Some(request);
                    drop(run);
                    self.stop();
                    return Err(Error::other("the script has ended"));
                }
                run.current = Some(Current {
                    request,
                    is_held,
                    hung_up: Arc::clone(&hung_up),
                });
                run.ended_at = self.clock.elapsed();
            }
            self.recorder
                .requested(query.contains("sendInitialEvents=true"));
            let reply = match response {
                Response::Refused => {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
                }
                Response::Dropped(end) => {
                    return Err(end
                        .read()
                        .map_or_else(Error::from, |_| Error::other("no response arrived")));
                }
                Response::Answered(reply) => reply,
            };
            // A client follows redirects.
            if let Some(location) = reply.header("Location") {
                let (to, with) = location.split_once('?').unwrap_or((location, ""));
                (path, query) = (to.to_owned(), with.to_owned());
                continue;
            }
            let (parts, end) = reply.received(query.starts_with("watch=true"))?;
            let (script, stop) = (Arc::clone(self), stop.clone());
            return Ok(Body::timed(Reader {
                parts,
                end,
                stop,
                hung_up,
                script,
                resyncs: 0,
            }));
        }
    }

    /// Called for each request. Returns the step that answers it and how long the reflector has
    /// waited.
    fn arrived(&self) -> (Option<Value>, Option<Duration>) {
        self.step_is_over();
        let mut run = self.run.lock().unwrap();
        let waited = run.waited.replace(Duration::ZERO);
        (
            self.next(&run)
                .filter(|step| step["op"] == "respond")
                .cloned(),
            waited,
        )
    }

    fn next(&self, run: &Run) -> Option<&Value> {
        self.steps[..self.until].get(run.answers.len())
    }

    /// Records the observations of the last request. All its effects have arrived.
    fn step_is_over(&self) {
        let (current, step) = {
            let mut run = self.run.lock().unwrap();
            let Some(current) = run.current.take() else {
                return;
            };
            (current, self.next(&run).cloned())
        };
        let wanted = step.map_or(Value::Null, |step| step["want"].clone());
        let mut reply = self.recorder.take();
        reply.extend(
            self.look
                .get()
                .map(|look| look(&wanted))
                .unwrap_or_default(),
        );
        reply.insert("request".to_owned(), current.request);
        if current.is_held && current.hung_up.load(Ordering::Relaxed) {
            reply.insert("hung_up".to_owned(), json!(true));
        }
        self.run.lock().unwrap().answers.push(Value::Object(reply));
    }

    fn stop(&self) {
        self.step_is_over();
        self.run
            .lock()
            .unwrap()
            .stopped_at
            .get_or_insert(self.clock.elapsed());
        self.stop.stop();
    }

    /// Returns the time at which the next step stops the reflector, if that step has a time.
    fn stops_at(&self) -> Option<Duration> {
        let run = self.run.lock().unwrap();
        let next =
            self.steps[..self.until].get(run.answers.len() + usize::from(run.current.is_some()))?;
        let by_time = next["op"] == "stop" && next["when"] == "after";
        by_time.then(|| run.ended_at + Duration::from_millis(next["ms"].as_u64().unwrap()))
    }

    fn reflector_waits(&self, duration: Duration, stop: &Stop) -> bool {
        if stop.is_stopped() {
            return false;
        }
        let now = self.clock.elapsed();
        if let Some(at) = self.stops_at().filter(|at| *at <= now + duration) {
            self.clock.advance(at.saturating_sub(now));
            self.stop();
            return false;
        }
        self.clock.advance(duration);
        *self.run.lock().unwrap().waited.get_or_insert_default() += duration;
        !stop.is_stopped()
    }

    /// Passes the time while the reflector waits for bytes that never arrive: until a read ends, or
    /// until the script stops the reflector.
    fn quiet(&self, left: Option<Duration>, resyncs: usize) -> Quiet {
        let next = {
            let run = self.run.lock().unwrap();
            self.steps[..self.until]
                .get(run.answers.len() + 1)
                .map(|step| text(&step["op"]).to_owned())
        };
        let until_stop = self
            .stops_at()
            .map(|at| at.saturating_sub(self.clock.elapsed()));
        match (until_stop, left) {
            (Some(until_stop), Some(left)) if left <= until_stop => {
                self.clock.advance(left);
                return Quiet::TimedOut;
            }
            (Some(until_stop), _) => self.clock.advance(until_stop),
            // Only a failing resync can end the watch, so run resyncs until one fails.
            (None, Some(left)) if next.is_none_or(|op| op == "respond") && resyncs < RESYNCS => {
                self.clock.advance(left);
                return Quiet::TimedOut;
            }
            (None, _) => {}
        }
        self.stop();
        Quiet::Stopped
    }
}

/// What ends a wait for bytes that never arrive.
enum Quiet {
    /// The read, for a resync.
    TimedOut,
    Stopped,
}

struct Reader {
    parts: VecDeque<Part>,
    end: End,
    /// The stop signal of the request.
    stop: Stop,
    hung_up: Arc<AtomicBool>,
    script: Arc<Script>,
    /// The number of reads that ended for a resync while no bytes were left.
    resyncs: usize,
}

impl TimedRead for Reader {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        // Only resyncs are timed: no trace has a silence that ends a watch.
        let has_resyncs = self.script.config["resync_ms"].is_u64();
        let mut left = timeout.filter(|_| has_resyncs);
        while !self.stop.is_stopped() {
            match self.parts.front_mut() {
                Some(Part::Bytes(bytes)) if bytes.is_empty() => drop(self.parts.pop_front()),
                Some(Part::Bytes(bytes)) => {
                    let length = bytes.len().min(buffer.len());
                    buffer[..length].copy_from_slice(&bytes[..length]);
                    bytes.drain(..length);
                    return Ok(length);
                }
                Some(Part::Pause(pause)) => {
                    if let Some(left) = left
                        && left <= *pause
                    {
                        self.script.clock.advance(left);
                        *pause -= left;
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.script.clock.advance(*pause);
                    left = left.map(|left| left - *pause);
                    self.parts.pop_front();
                }
                None if self.end == End::Hold => match self.script.quiet(left, self.resyncs) {
                    Quiet::TimedOut => {
                        self.resyncs += 1;
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    Quiet::Stopped => {}
                },
                None => return self.end.read(),
            }
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_within(buffer, None)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.hung_up.store(true, Ordering::Relaxed);
        self.script.run.lock().unwrap().ended_at = self.script.clock.elapsed();
    }
}
