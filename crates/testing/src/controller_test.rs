//! Runs a controller on the embedded server, in virtual time.

mod error;
mod events;
mod pace;
mod running;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

pub use self::error::ControllerTestError;
use self::events::RecordedEvents;
use self::pace::Pace;
use self::running::Running;
use super::{ApiServer, FakeClock, WriteRecord};
use k8s_informer::client::{Client, Config};
use k8s_informer::informer::FactoryOptions;
use k8s_informer::informer::{SharedInformerFactory, Source};
use k8s_informer::object::{Key, Object};
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::{Backoff, Clock};
use k8s_informer_controller::__private::Drive;
use k8s_informer_controller::{Controller, ControllerBuilder, ControllerError};
use parking_lot::Mutex;

/// The number of calls for one key after which a run gives up.
const MOST_CALLS: usize = 100;

/// Distinguishes the requests of the controller from those of other clients of the server.
const USER_AGENT: &str = "k8s-informer-controller-test";

/// The number of failures in an error message.
const MOST_FAILURES: usize = 5;

/// The real time between two checks of the handlers.
const TICK: Duration = Duration::from_millis(1);

type Build<T> = dyn Fn(ControllerBuilder<T>) -> Result<Controller<T>, ControllerError> + Send;

/// Runs a controller on an embedded API server, in virtual time.
///
/// The test and the program share the function that builds the controller. It receives the builder,
/// here from the test, in the program from [`Controller::builder`] or
/// [`Manager::reconcile`](k8s_informer_controller::Manager::reconcile):
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer_controller::{Controller, ControllerBuilder, ControllerError, Next};
/// use k8s_informer_testing::{ControllerTest, Fault, Verb};
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
/// use std::time::Duration;
///
/// fn notes(builder: ControllerBuilder<Deployment>) -> Result<Controller<Deployment>, ControllerError> {
///     builder.owns(Source::of::<ConfigMap>()).by(|cx, _| {
///         if cx.children::<ConfigMap>()?.is_empty() {
///             let map = cx.owned(json!({"metadata": {"name": cx.name()}}))?;
///             cx.api::<ConfigMap>(Some(cx.namespace())).create(&map, cx.stop())?;
///         }
///         Ok(Next::After(Duration::from_secs(600)))
///     })
/// }
///
/// let mut test = ControllerTest::new(Source::of::<Deployment>(), notes)?;
/// let deployments = "/apis/apps/v1/namespaces/default/deployments";
/// test.server().create(deployments, json!({"metadata": {"name": "web"}}))?;
/// test.server().fail_next(Fault::status(500).on(Verb::Create).times(10));
/// test.run_until_idle()?; // The ten retries take no real time.
/// assert_eq!(test.writes(), ["create configmaps default/web"]);
///
/// test.server().delete("/api/v1/namespaces/default/configmaps/web")?;
/// test.run_until_idle()?;
/// assert_eq!(test.writes(), ["create configmaps default/web"]);
///
/// test.advance(Duration::from_secs(3600))?;
/// assert!(test.writes().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What is idle
///
/// A controller is idle if its caches and handlers have every change on the server, it knows which
/// optional kinds exist, no call runs,
/// and no key is queued, waits for a retry, or waits for its own writes. A key that waits because
/// of [`Next::After`](k8s_informer_controller::Next::After), and a terminal failure, are idle.
///
/// # Calls
///
/// Calls run only in [`run_until_idle`](Self::run_until_idle), [`advance`](Self::advance) and
/// [`step`](Self::step), so a test can prepare the server between calls. They run one after another,
/// also with several [workers](ControllerBuilder::workers), in the alphabetical order of the queued
/// keys, whatever their [priorities](https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/guide/controllers/index.html#priorities). Before each call, the
/// caches and handlers receive all changes. The calls and writes of a run are therefore always the
/// same, unless the controller itself is random.
///
/// As a consequence, a test cannot show errors of a controller that depend on old caches or on
/// overlapping calls.
///
/// # Kinds that appear later
///
/// A run sees each [optional](ControllerBuilder::owns_optional) kind whose CustomResourceDefinition
/// exists when it begins. To see that a kind is gone, [`advance`](Self::advance) by more than five
/// seconds. [The guide] has an example.
///
/// [The guide]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/guide/controllers/index.html#kinds-that-may-be-missing
///
/// # Time
///
/// Retries, delays, time limits and the waits for own writes use a [`FakeClock`]. It advances to
/// the next retry when there is nothing else to do. Requests and informers use real time, also
/// for a `Retry-After`. Do not set a rate limiter with its own clock.
///
/// # Faults
///
/// Inject [`Fault`](super::Fault)s into the requests of the controller with
/// [`ApiServer::fail_next`]. Restrict them to a [verb](super::Fault::on), since the informers send
/// requests as well.
///
/// After [`ApiServer::restore`], call [`restart`](Self::restart): informers notice a restored
/// server only after minutes, in real time.
///
/// # Threads
///
/// Dropping the test stops the controller, its informers and the server, and joins their threads. A
/// call that runs at this time ends through [`Context::stop`](k8s_informer_controller::Context::stop).
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
    events: Arc<RecordedEvents>,
    calls: HashMap<Key, usize>,
    timeout: Duration,
}

impl<T: Object + DeserializeOwned> ControllerTest<T> {
    /// Starts a server that collects garbage, and a controller. `build` receives a builder for the
    /// objects of `source`; it must use it, and must not set its clock. The controller is named
    /// after the resource.
    ///
    /// # Errors
    ///
    /// Returns an error if `build` fails, or if the server or a thread cannot be started.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    ///
    /// let test = ControllerTest::new(Source::of::<Node>(), |builder| builder.by(|_, _| Ok(Next::Done)))?;
    /// assert_eq!(test.controller().name(), "nodes");
    ///
    /// let error = ControllerTest::new(Source::of::<Node>(), |builder| {
    ///     builder.workers(0).by(|_, _| Ok(Next::Done))
    /// });
    /// assert!(error.unwrap_err().to_string().contains("0 workers"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        source: Source<T>,
        build: impl Fn(ControllerBuilder<T>) -> Result<Controller<T>, ControllerError> + Send + 'static,
    ) -> Result<Self, ControllerTestError> {
        let server = ApiServer::builder().garbage_collection(true).start();
        let server = server.map_err(ControllerTestError::new)?;
        Self::with_server(server, source, build)
    }

    /// Starts a controller on this server, for example one with custom resources. Let it
    /// [collect garbage](super::ApiServerBuilder::garbage_collection) if the controller owns
    /// objects. It must not require a token.
    ///
    /// # Errors
    ///
    /// Returns an error if `build` fails, or if a thread cannot be started.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::informer::Source;
    /// use k8s_informer::object::GroupVersionResource;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::{ApiResource, ApiServer, ControllerTest};
    /// use serde_json::json;
    ///
    /// let teams = ApiResource::new("example.com", "v1", "teams", "Team");
    /// let server = ApiServer::builder().resource(teams).garbage_collection(true).start()?;
    /// let source = Source::dynamic(GroupVersionResource::new("example.com", "v1", "teams"));
    /// let mut test = ControllerTest::with_server(server, source, |builder| {
    ///     builder.by(|_, _| Ok(Next::Done))
    /// })?;
    /// test.server().create("/apis/example.com/v1/namespaces/default/teams", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!(test.calls("default/a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        let events = Arc::default();
        let running = start(&server, &source, &build, &clock, &shared_clock, &events)?;
        Ok(Self {
            running,
            source,
            build: Box::new(build),
            server,
            clock,
            shared_clock,
            writes,
            events,
            calls: HashMap::new(),
            timeout: Duration::from_secs(10),
        })
    }

    /// Returns the server. A test changes objects and injects faults through it. Its writes are not
    /// in [`writes`](Self::writes).
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| builder.by(|_, _| Ok(Next::Done)))?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert!(test.writes().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Returns the controller, for its failures and its cache. After a [restart](Self::restart) it
    /// is another one.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Failure;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| {
    ///     builder.by(|_, _| Err(Failure::terminal("no capacity")))
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// let last = test.controller().last_failure("a").unwrap();
    /// assert_eq!(last.failure.to_string(), "no capacity");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn controller(&self) -> &Controller<T> {
        &self.running.controller
    }

    /// Returns the clock of the controller. To run what becomes due, call
    /// [`advance`](Self::advance). Advance the clock alone to let time pass during a call:
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::{ControllerTest, Fault, Verb};
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// const HOUR: Duration = Duration::from_secs(3600);
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| {
    ///     builder.time_limit(HOUR).by(|cx, _| {
    ///         cx.api::<Node>(None).get(cx.name(), cx.stop())?;
    ///         Ok(Next::Done)
    ///     })
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// let clock = test.clock().clone();
    /// let hangs = Fault::stall().on(Verb::Get).when(move |_| {
    ///     clock.advance(HOUR);
    ///     true
    /// });
    /// test.server().fail_next(hangs);
    /// test.run_until_idle()?;
    /// assert_eq!(test.calls("a"), 2, "the time limit has ended the first call");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }

    /// Sets how long a run can take in real time. The default is 10 seconds.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::{ControllerTest, Fault, Verb};
    /// use k8s_openapi::api::core::v1::Node;
    /// use std::time::Duration;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| builder.by(|_, _| Ok(Next::Done)))?;
    /// test.run_until_idle()?;
    /// test.server().fail_next(Fault::status(503).always());
    /// test.server().cut_watches();
    /// test.server().create("/api/v1/nodes", serde_json::json!({"metadata": {"name": "a"}}))?;
    /// test.set_timeout(Duration::from_millis(50));
    /// let error = test.run_until_idle().unwrap_err().to_string();
    /// assert!(error.contains("the cache of nodes has not reached version"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Runs calls until the controller [is idle](Self#what-is-idle). Advances the clock to run
    /// retries. Blocks until then.
    ///
    /// # Errors
    ///
    /// Returns an error if the controller is not idle after 100 calls for one key, or in [real
    /// time](Self::set_timeout). It names the key, the call or the cache, and the last failures.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| {
    ///     builder.by(|cx, _| match cx.attempt() {
    ///         1..=9 => Err("not yet".parse::<u32>().unwrap_err().into()),
    ///         _ => Ok(Next::Done),
    ///     })
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!(test.calls("a"), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_until_idle(&mut self) -> Result<(), ControllerTestError> {
        let deadline = self.deadline();
        self.run_until(self.clock.now(), deadline)
    }

    /// Advances the time, and runs what becomes due, each at its time. At the end, runs until the
    /// controller is idle.
    ///
    /// # Errors
    ///
    /// The errors of [`run_until_idle`](Self::run_until_idle). Before the end, they apply to the
    /// calls at one time.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let mut test = ControllerTest::new(Source::of::<Node>(), move |builder| {
    ///     builder.by(move |_, _| Ok(Next::After(10 * minute)))
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!(test.calls("a"), 1);
    /// test.advance(60 * minute)?;
    /// assert_eq!(test.calls("a"), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance(&mut self, by: Duration) -> Result<(), ControllerTestError> {
        let deadline = self.deadline();
        let target = self.clock.now().checked_add(by);
        let target = target.ok_or_else(|| self.error(format_args!("can't advance by {by:?}")))?;
        self.run_until(target, deadline)
    }

    /// Runs the next call, and returns its key. Returns `None` if no key is queued at this time.
    ///
    /// # Errors
    ///
    /// The errors of [`run_until_idle`](Self::run_until_idle), except for the number of calls.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| builder.by(|_, _| Ok(Next::Done)))?;
    /// for name in ["b", "a"] {
    ///     test.server().create("/api/v1/nodes", json!({"metadata": {"name": name}}))?;
    /// }
    /// assert_eq!(test.step()?.as_deref(), Some("a"));
    /// assert_eq!(test.step()?.as_deref(), Some("b"));
    /// assert_eq!(test.step()?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn step(&mut self) -> Result<Option<Key>, ControllerTestError> {
        self.run_one(self.deadline())
    }

    /// Stops the controller, and builds and starts it again on the same server: the program has
    /// crashed and lost its queue and caches. The objects on the server, the time, the recorded
    /// writes and the numbers of calls stay.
    ///
    /// To crash between two writes of a call, inject a fault into the second one, call
    /// [`step`](Self::step), and then this method.
    ///
    /// # Errors
    ///
    /// Returns an error if a call does not end, or if the controller cannot be built again.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| builder.by(|_, _| Ok(Next::Done)))?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// test.restart()?;
    /// test.run_until_idle()?;
    /// assert_eq!(test.calls("a"), 2, "a controller starts with a call for each object");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restart(&mut self) -> Result<(), ControllerTestError> {
        self.running.stop().map_err(ControllerTestError::new)?;
        self.count_calls();
        self.running = start(
            &self.server,
            &self.source,
            &*self.build,
            &self.clock,
            &self.shared_clock,
            &self.events,
        )?;
        Ok(())
    }

    /// Takes the writes of the controller since the last call of this method, in their order.
    ///
    /// Only successful requests are writes, including those that changed nothing and those whose
    /// response was lost. Dry runs are not. [`ApiServer::requests`] has all requests.
    ///
    /// ```
    /// use k8s_informer::client::api::Patch;
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| {
    ///     builder.by(|cx, node| {
    ///         if node.spec.is_none() {
    ///             let patch = Patch::merge(json!({"spec": {"unschedulable": true}}));
    ///             cx.api::<Node>(None).patch(cx.name(), &patch, cx.stop())?;
    ///         }
    ///         Ok(Next::Done)
    ///     })
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!(test.writes(), ["patch nodes a"]);
    /// assert!(test.writes().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn writes(&mut self) -> Vec<WriteRecord> {
        std::mem::take(&mut *self.writes.lock())
    }

    /// Takes the events that the controller has recorded through
    /// [`Context::events`](k8s_informer_controller::Context::events) since the last call of this
    /// method: the type, the reason, the object and the note, in the order of their first
    /// occurrences.
    ///
    /// Equal events are one series, as on a server, and are returned with their count so far. An
    /// event about a changed object begins another series. The events are not on the server of the
    /// test, and not in [`writes`](Self::writes), so faults do not affect them.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::{Failure, Next};
    /// use k8s_informer_controller::events::EventType;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| {
    ///     builder.by(|cx, node| match cx.attempt() {
    ///         1..=3 => {
    ///             cx.events()?.event(&**node, EventType::Warning, "NotReady", "no kubelet")?;
    ///             Err(Failure::new("no kubelet"))
    ///         }
    ///         _ => Ok(Next::Done),
    ///     })
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!(test.events(), ["Warning NotReady Node a: no kubelet (x3)"]);
    /// assert!(test.events().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn events(&mut self) -> Vec<String> {
        self.running.drive.flush_events(self.timeout);
        self.events.take()
    }

    /// Returns the number of calls for a key since the start of the test. Calls of a cleanup, and
    /// of the callback for objects that are gone, count.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |builder| builder.by(|_, _| Ok(Next::Done)))?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!((test.calls("a"), test.calls("b")), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn calls(&self, key: &str) -> usize {
        self.calls.get(key).copied().unwrap_or_default()
    }

    fn deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.timeout)
            .unwrap_or(now + Duration::from_secs(u32::MAX.into()))
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
            let drive = &self.running.drive;
            let next = match target > now {
                true => {
                    calls.clear();
                    Some(drive.next_due().map_or(target, |due| due.min(target)))
                }
                false => drive.next_work(),
            };
            let Some(next) = next else {
                return Ok(());
            };
            self.clock.advance(next.saturating_duration_since(now));
            let timers = drive.due_timers_done();
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
        while !self
            .running
            .pace
            .wait_for_end(deadline.min(Instant::now() + TICK * 100))
        {
            // The clock may have reached the time limit of the call.
            self.running.drive.due_timers_done();
            if Instant::now() < deadline {
                continue;
            }
            let running = self.controller().status().running;
            let keys: Vec<_> = running.iter().map(|(key, _)| &**key).collect();
            let (keys, timeout) = (keys.join(", "), self.timeout);
            return Err(self.error(format_args!(
                "a call has not returned within {timeout:?}: {keys}"
            )));
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
            let is_exact = self.running.drive.wait_for_caches(version, deadline);
            let is_exact = is_exact.map_err(|problem| match self.running.pace.has_ended() {
                true => self.ended(),
                false => self.error(problem.to_string()),
            })?;
            let is_settled = is_exact && self.running.pace.handlers_are_idle();
            if is_settled && self.server.resource_version() == version {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.error(match is_exact {
                    true => "the handlers have not received all changes in time",
                    false => "the caches are newer than the restored server: call `restart`",
                }));
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
        let last: Vec<_> = self
            .writes
            .lock()
            .iter()
            .rev()
            .take(3)
            .map(ToString::to_string)
            .collect();
        let problem = format!("not idle after {MOST_CALLS} calls for {key}");
        match last.is_empty() {
            true => self.error(problem),
            false => self.error(format_args!(
                "{problem}; the last writes: {}",
                last.join(", ")
            )),
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
    events: &Arc<RecordedEvents>,
) -> Result<Running<T>, ControllerTestError> {
    let config = Config::new(server.url()).user_agent(USER_AGENT);
    let client = Client::new(config).map_err(ControllerTestError::new)?;
    // The informers run in real time.
    let backoff = Backoff::new(TICK).factor(2.0).cap(100 * TICK);
    let options = ReflectorOptions::new().backoff(backoff);
    let factory = SharedInformerFactory::with_options(
        client.clone(),
        FactoryOptions::new().reflector(options),
    );
    let pace = Arc::new(Pace::default());
    let name = source.resource().resource.clone();
    let builder = Controller::builder(&client, source.clone(), name)
        .factory(&factory)
        .clock(Arc::clone(shared_clock));
    let [added, begin, ended] = [(); 3].map(|()| Arc::clone(&pace));
    let builder = Drive::attach(
        builder,
        move |registration| added.handler_added(registration),
        move || begin.wait_to_begin(),
        move |key, is_called| ended.ended(key, is_called),
        Arc::clone(events) as _,
    );
    let controller = build(builder).map_err(ControllerTestError::new)?;
    let drive = Drive::of(&controller);
    if !drive.is_driven_by(shared_clock) {
        return Err(ControllerTestError::new(format_args!(
            "controller {:?}: the function must use the builder that it receives, and must not set its clock",
            controller.name()
        )));
    }
    Running::start(controller, drive, pace, factory, clock.clone())
        .map_err(ControllerTestError::new)
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
