//! Runs a controller on the embedded server, in virtual time.

mod error;
mod pace;
mod running;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

pub use self::error::ControllerTestError;
use self::pace::Pace;
use self::running::Running;
use super::{ApiServer, FakeClock, WriteRecord};
use crate::client::{Client, Config};
use crate::controller::{Controller, ControllerBuilder, ControllerError};
use crate::informer::{SharedInformerFactory, Source};
use crate::object::{Key, Object};
use crate::reflector::ReflectorOptions;
use crate::sync::Mutex;
use crate::time::{Backoff, Clock};

/// The number of calls for one key after which a run gives up.
const MOST_CALLS: usize = 100;

/// Distinguishes the requests of the controller from those of other clients of the server.
const USER_AGENT: &str = "k8s-informer-controller-test";

/// The number of failures in an error message.
const MOST_FAILURES: usize = 5;

/// The real time between two checks of the handlers.
const TICK: Duration = Duration::from_millis(1);

type Build<T> = dyn Fn(ControllerBuilder<T>) -> Result<Controller<T>, ControllerError> + Send;

pub struct ControllerTest<T: Object + DeserializeOwned> {
    /// Dropped before the server, so that the controller ends without failed requests.
    running: Running<T>,
    source: Source<T>,
    build: Box<Build<T>>,
    server: ApiServer,
    clock: FakeClock,
    /// The clock of the controllers, to recognize it.
    shared_clock: Arc<dyn Clock>,
    writes: Arc<Mutex<Vec<WriteRecord>>>,
    calls: HashMap<Key, usize>,
    timeout: Duration,
}

impl<T: Object + DeserializeOwned> ControllerTest<T> {
    pub fn new(
        source: Source<T>,
        build: impl Fn(ControllerBuilder<T>) -> Result<Controller<T>, ControllerError> + Send + 'static,
    ) -> Result<Self, ControllerTestError> {
        let server = ApiServer::start().map_err(ControllerTestError::new)?;
        Self::with_server(server, source, build)
    }

    pub fn with_server(
        server: ApiServer,
        source: Source<T>,
        build: impl Fn(ControllerBuilder<T>) -> Result<Controller<T>, ControllerError> + Send + 'static,
    ) -> Result<Self, ControllerTestError> {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&writes);
        server.observe_writes(Box::new(move |request, write| {
            if request.header("user-agent") == Some(USER_AGENT) {
                record.lock().push(write);
            }
        }));
        let clock = FakeClock::new();
        let shared_clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let running = start(&server, &source, &build, &clock, &shared_clock)?;
        Ok(Self {
            running,
            source,
            build: Box::new(build),
            server,
            clock,
            shared_clock,
            writes,
            calls: HashMap::new(),
            timeout: Duration::from_secs(10),
        })
    }

    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    pub fn controller(&self) -> &Controller<T> {
        &self.running.controller
    }

    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub fn run_until_idle(&mut self) -> Result<(), ControllerTestError> {
        let deadline = self.deadline();
        self.run_until(self.clock.now(), deadline)
    }

    pub fn advance(&mut self, by: Duration) -> Result<(), ControllerTestError> {
        let deadline = self.deadline();
        let target = self.clock.now().checked_add(by);
        let target = target.ok_or_else(|| self.error(format_args!("can't advance by {by:?}")))?;
        self.run_until(target, deadline)
    }

    pub fn step(&mut self) -> Result<Option<Key>, ControllerTestError> {
        self.run_one(self.deadline())
    }

    pub fn restart(&mut self) -> Result<(), ControllerTestError> {
        self.running.stop().map_err(ControllerTestError::new)?;
        self.count_calls();
        let (source, build) = (&self.source, &*self.build);
        self.running = start(&self.server, source, build, &self.clock, &self.shared_clock)?;
        Ok(())
    }

    pub fn writes(&mut self) -> Vec<WriteRecord> {
        std::mem::take(&mut *self.writes.lock())
    }

    pub fn calls(&self, key: &str) -> usize {
        self.calls.get(key).copied().unwrap_or_default()
    }

    fn deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.timeout).unwrap_or(now + Duration::from_secs(u32::MAX.into()))
    }

    /// Runs until the virtual time is at least `target` and the controller is idle.
    fn run_until(&mut self, target: Instant, deadline: Instant) -> Result<(), ControllerTestError> {
        // The calls at this time, and from the target on.
        let mut calls: HashMap<Key, usize> = HashMap::new();
        loop {
            while let Some(key) = self.run_one(deadline)? {
                let of_key = calls.entry(Key::clone(&key)).or_default();
                *of_key += 1;
                if *of_key == MOST_CALLS {
                    return Err(self.too_many_calls(&key));
                }
            }
            let now = self.clock.now();
            let controller = &self.running.controller;
            let next = match target > now {
                true => {
                    calls.clear();
                    Some(controller.next_due().map_or(target, |due| due.min(target)))
                }
                false => controller.next_work(),
            };
            let Some(next) = next else {
                return Ok(());
            };
            self.clock.advance(next.saturating_duration_since(now));
            let timers = controller.due_timers_done();
            if !timers.wait_timeout(deadline.saturating_duration_since(Instant::now())) {
                return Err(self.error("the timers did not run in time"));
            }
        }
    }

    /// Runs the next call, and returns its key. Returns `None` if no key is queued at this time.
    fn run_one(&mut self, deadline: Instant) -> Result<Option<Key>, ControllerTestError> {
        loop {
            self.wait_for_call(deadline)?;
            if let Some(key) = self.count_calls() {
                return Ok(Some(key));
            }
            self.settle(deadline)?;
            if self.running.controller.status().queued == 0 {
                return Ok(None);
            }
            self.running.pace.begin();
        }
    }

    /// Waits until no call runs.
    fn wait_for_call(&mut self, deadline: Instant) -> Result<(), ControllerTestError> {
        if !self.running.pace.wait_for_end(deadline) {
            let running = self.controller().status().running;
            let keys: Vec<_> = running.iter().map(|(key, _)| &**key).collect();
            let (keys, timeout) = (keys.join(", "), self.timeout);
            return Err(self.error(format_args!("a call has not returned within {timeout:?}: {keys}")));
        }
        match self.running.pace.has_ended() {
            true => Err(self.ended()),
            false => Ok(()),
        }
    }

    /// Waits until the caches and the handlers have all changes on the server.
    fn settle(&mut self, deadline: Instant) -> Result<(), ControllerTestError> {
        loop {
            let version = self.server.resource_version();
            self.server.request_progress();
            let is_reached = self.controller().wait_for_caches(version, deadline);
            let is_reached = is_reached.map_err(|problem| match self.running.pace.has_ended() {
                true => self.ended(),
                false => self.error(problem),
            })?;
            let is_settled = is_reached && self.running.pace.handlers_are_idle();
            if is_settled && self.server.resource_version() == version {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let timeout = self.timeout;
                return Err(self.error(format_args!(
                    "the handlers have not received all changes within {timeout:?}"
                )));
            }
            self.running.pace.wait_briefly();
        }
    }

    /// Counts the calls that have ended, and returns the key of the last one.
    fn count_calls(&mut self) -> Option<Key> {
        let ended = self.running.pace.take_calls();
        for key in &ended {
            *self.calls.entry(Key::clone(key)).or_default() += 1;
        }
        ended.into_iter().next_back()
    }

    fn too_many_calls(&self, key: &Key) -> ControllerTestError {
        let last: Vec<_> = self.writes.lock().iter().rev().take(3).map(ToString::to_string).collect();
        let problem = format!("not idle after {MOST_CALLS} calls for {key}");
        match last.is_empty() {
            true => self.error(problem),
            false => self.error(format_args!("{problem}; the last writes: {}", last.join(", "))),
        }
    }

    fn ended(&mut self) -> ControllerTestError {
        match self.running.stop() {
            Ok(()) => self.error("the controller has ended"),
            Err(error) => ControllerTestError::new(error),
        }
    }

    /// Returns an error with the failures of the controller.
    fn error(&self, problem: impl fmt::Display) -> ControllerTestError {
        let controller = self.controller();
        let mut message = format!("controller {:?}: {problem}", controller.name());
        for (key, last) in controller.failures().into_iter().take(MOST_FAILURES) {
            let (attempts, failure) = (last.attempts, last.failure);
            message += &format!("\nthe last call for {key}, attempt {attempts}, failed: {failure}");
        }
        ControllerTestError::new(message)
    }
}

fn start<T: Object + DeserializeOwned>(
    server: &ApiServer,
    source: &Source<T>,
    build: &Build<T>,
    clock: &FakeClock,
    shared_clock: &Arc<dyn Clock>,
) -> Result<Running<T>, ControllerTestError> {
    let config = Config::new(server.url()).user_agent(USER_AGENT);
    let client = Client::new(config).map_err(ControllerTestError::new)?;
    let mut options = ReflectorOptions::default();
    // The informers run in real time.
    options.backoff = Backoff::new(TICK, 2.0, 100 * TICK, 0.0);
    let factory = SharedInformerFactory::builder(client.clone()).reflector_options(options).build();
    let pace = Arc::new(Pace::default());
    let name = source.resource.resource.clone();
    let builder = Controller::builder(&client, source.clone(), name)
        .factory(&factory)
        .clock(Arc::clone(shared_clock))
        .probe(Arc::clone(&pace) as _);
    let controller = build(builder).map_err(ControllerTestError::new)?;
    if !controller.is_driven_by(shared_clock) {
        return Err(ControllerTestError::new(format_args!(
            "controller {:?}: the function must use the builder that it receives, and must not set its clock",
            controller.name()
        )));
    }
    Running::start(controller, pace, factory, clock.clone()).map_err(ControllerTestError::new)
}

impl<T: Object + DeserializeOwned> fmt::Debug for ControllerTest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerTest")
            .field("controller", &self.running.controller)
            .field("server", &self.server)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
