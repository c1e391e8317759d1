mod sharding;

use std::collections::HashSet;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use self::sharding::{ShardOptions, Shards, divisions};
use crate::controller::engine::runner::Runner;
use crate::controller::error::{ControllerError, ControllerErrorKind};
use crate::controller::sources::division::ShardBy;
use crate::controller::sources::source::AnySource;
use crate::controller::surface::builder::ControllerBuilder;
use crate::controller::surface::handle::Controller;
use crate::leader_election::{
    Ended, LeaderElectionOptions, LeaderElector, Leading, LeaseLock, Lock,
};
use crate::log;
use crate::serve::MetricsRegistry;
use crate::serve::checks::Checks;
use crate::serve::endpoints::Endpoints;
use crate::serve::http::{self, HttpServer};
use crate::serve::status_page::{
    self, InformerStatus, KeyError, LeaderStatus, ShardsStatus, Status,
};
use k8s_informer::__private::{Owner, Threads};
use k8s_informer::client::Client;
use k8s_informer::informer::{FactoryOptions, SharedInformerFactory, Source};
use k8s_informer::object::{Object, Resource};
use k8s_informer::reflector::Shard;
use k8s_informer::stop::Stop;

/// How long a leader can fail to renew its Lease after the end of the lease before `/healthz`
/// fails. This is the value of kube-controller-manager.
const LEASE_TOLERANCE: Duration = Duration::from_secs(20);

/// How long the elector waits for the controllers after a stop, by default. It is longer than twice
/// the default grace period of a controller, so that a stuck call is reported with its key.
const ELECTOR_GRACE: Duration = Duration::from_secs(60);

/// Runs the controllers of a program, with leader election and endpoints for probes, metrics and
/// status.
///
/// Clones refer to the same manager. It corresponds to controller-runtime's `Manager`.
///
/// All controllers of a manager share informers. The informers run on every replica, and only the
/// leader calls reconcile functions. So a replica that becomes the leader starts with complete
/// caches.
///
/// With [shards](ManagerBuilder::one_shard_of), each replica caches and reconciles its own part of the
/// objects.
///
/// ```
/// use k8s_informer::{Client, Config, Object, Stopper};
/// use k8s_informer_controller::{Manager, Next};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use std::sync::mpsc;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let manager = Manager::builder(client)
///     .leader_election("kube-system", "map-controller")
///     .health("127.0.0.1:0")
///     .build()?;
/// let (sender, names) = mpsc::channel();
/// manager.reconcile::<ConfigMap>("maps").by(move |_, map| {
///     sender.send(map.name().to_owned())?;
///     Ok(Next::Done)
/// })?;
///
/// let stop = Stopper::new();
/// let running = std::thread::spawn({ let (manager, stop) = (manager.clone(), stop.signal()); move || manager.run(&stop) });
/// server.create("/api/v1/namespaces/default/configmaps", serde_json::json!({"metadata": {"name": "a"}}))?;
/// assert_eq!(names.recv()?, "a");
/// assert!(manager.elector().unwrap().is_leader());
/// assert!(manager.metrics().render().contains("controller_runtime_reconcile_total{controller=\"maps\""));
/// stop.stop();
/// running.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Manager {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    factory: SharedInformerFactory,
    metrics: MetricsRegistry,
    election: Election,
    /// No other lock is taken while this one is held.
    controllers: Mutex<Vec<Arc<Runner>>>,
    has_run: AtomicBool,
    endpoints: OnceLock<HttpServer>,
}

/// What this replica needs before it calls reconcile functions.
enum Election {
    Nothing,
    Leadership(LeaderElector),
    Shard(Arc<Shards>),
}

impl Manager {
    /// Returns a builder.
    pub fn builder(client: Client) -> ManagerBuilder {
        ManagerBuilder {
            client,
            lease: None,
            shards: None,
            identity: None,
            election_options: LeaderElectionOptions::new(),
            informers: FactoryOptions::new(),
            address: None,
            metrics: MetricsRegistry::new(),
            healthz: Checks::new("healthz"),
            readyz: Checks::new("readyz"),
        }
    }

    /// Returns a builder for a controller of the objects of type `T`. The controller belongs to
    /// this manager: [`run`](Self::run) runs it.
    pub fn reconcile<T: Resource + DeserializeOwned>(
        &self,
        name: impl Into<String>,
    ) -> ControllerBuilder<T> {
        self.reconcile_source(Source::of::<T>(), name)
    }

    /// Returns a builder for a controller of the objects of `source`, for example of a dynamic
    /// resource.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer::object::{GroupVersionResource, Scope};
    /// use k8s_informer::{Client, Config};
    /// use k8s_informer_controller::{Manager, Next};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let manager = Manager::builder(Client::new(Config::new("http://127.0.0.1:8001"))?).build()?;
    /// let teams = Source::dynamic(GroupVersionResource::new("example.com", "v1", "teams"));
    /// let controller = manager
    ///     .reconcile_source(teams, "team")
    ///     .kind("Team", Scope::Namespaced) // `owns` and `Context::owned` need it.
    ///     .owns(Source::of::<ConfigMap>())
    ///     .by(|_, team| {
    ///         let size: Option<u32> = team.read("/spec/size")?;
    ///         log::info!("{size:?}");
    ///         Ok(Next::Done)
    ///     })?;
    /// assert_eq!(controller.name(), "team");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reconcile_source<T: Object + DeserializeOwned>(
        &self,
        source: Source<T>,
        name: impl Into<String>,
    ) -> ControllerBuilder<T> {
        let mut builder = Controller::builder(&self.shared.client, source, name)
            .factory(&self.shared.factory)
            .metrics(Arc::new(self.shared.metrics.clone()));
        let shared = Arc::clone(&self.shared);
        builder.register = Some(Box::new(move |runner| shared.register(runner)));
        builder
    }

    /// Returns the factory of the informers. Request other informers before [`run`](Self::run).
    ///
    /// A controller waits only for the informers of its own sources. If its reconcile function
    /// reads another cache, declare it with [`watches`](ControllerBuilder::watches) instead, and
    /// read it with [`Context::lister`](crate::Context::lister).
    pub fn factory(&self) -> &SharedInformerFactory {
        &self.shared.factory
    }

    /// Returns the metrics that `/metrics` shows.
    pub fn metrics(&self) -> &MetricsRegistry {
        &self.shared.metrics
    }

    /// Returns the elector, if there is leader election. With shards, it is the one of the shard that
    /// this replica has.
    pub fn elector(&self) -> Option<&LeaderElector> {
        self.shared.elector()
    }

    /// Returns the index of the shard that this replica has, or had until its end. `None` without
    /// [shards](ManagerBuilder::one_shard_of), or while it waits for one.
    pub fn shard(&self) -> Option<u32> {
        match &self.shared.election {
            Election::Shard(shards) => shards.own().map(|(shard, _)| *shard),
            _ => None,
        }
    }

    /// Returns the address of the HTTP endpoints, with the port that the system has selected if
    /// the configured port is 0.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.shared.endpoints.get().map(HttpServer::local_addr)
    }

    /// Runs all controllers until `stop` is signalled. Blocks until all calls have returned.
    ///
    /// The order is that of controller-runtime, except that the informers always start before the
    /// election, and that the Lease is released after a stop:
    ///
    /// 1. The endpoints respond from [`build`](ManagerBuilder::build) on.
    /// 2. The informers start.
    /// 3. With leader election, this replica waits until it leads. With
    ///    [shards](ManagerBuilder::one_shard_of), it waits for one before the informers start.
    /// 4. The controllers run.
    /// 5. After the stop, the controllers finish their calls, within their [grace
    ///    periods](ControllerBuilder::grace_period).
    /// 6. The Lease is released, so that another replica continues immediately. If a call has not
    ///    returned, the Lease is kept until it expires.
    /// 7. The informers and then the endpoints end.
    ///
    /// The grace periods limit reconcile calls. A handler or an observation of [`factory`](Self::factory)
    /// that blocks is awaited without a limit: call `run` on a thread of its own, and
    /// [`shut_down`](SharedInformerFactory::shut_down) of the factory with a limit, if one may block.
    ///
    /// If the leadership is lost, calls in progress are ended without a grace period.
    ///
    /// # Errors
    ///
    /// Returns [`ControllerErrorKind::LeadershipLost`] if the leadership was lost: exit, so that the
    /// program restarts. Returns the first error of a controller; the others are then stopped.
    /// After [`ControllerErrorKind::Stuck`], also if the leadership was lost, a call still runs: end
    /// the process. Returns an error if the informers cannot be started, or if the manager has run
    /// before.
    pub fn run(&self, stop: &Stop) -> Result<(), ControllerError> {
        let shared = &self.shared;
        if shared.has_run.swap(true, Ordering::Relaxed) {
            return Err(ControllerError::of_manager(ControllerErrorKind::AlreadyRan));
        }
        let result = shared.run(stop);
        // Without a timeout, the only error is a call from within a callback, which is logged.
        let _ = shared.factory.shut_down(None);
        if let Some(endpoints) = shared.endpoints.get() {
            endpoints.shutdown();
        }
        result
    }
}

impl Shared {
    fn register(&self, runner: &Arc<Runner>) -> Result<(), ControllerError> {
        let invalid = |problem: &str| Err(ControllerError::invalid(runner.name(), problem));
        let mut controllers = self.controllers.lock();
        if controllers
            .iter()
            .any(|other| other.name() == runner.name())
        {
            return invalid("another controller of the manager has this name");
        }
        if self.has_run.load(Ordering::Relaxed) {
            return invalid("the manager runs already: build all controllers before");
        }
        let max_stop = runner.reconcile_loop.settings.max_stop();
        let grace = match &self.election {
            Election::Nothing => None,
            Election::Leadership(elector) => Some(elector.grace_period()),
            Election::Shard(shards) => {
                divisions(runner, &controllers, shards.options.by)?;
                Some(shards.election.grace())
            }
        };
        if grace.is_some_and(|grace| grace <= max_stop) {
            return invalid(&format!(
                "a stop can take {max_stop:?}, but the leader election gives up before: set a longer `grace_period` with \
                 `leader_election_options`"
            ));
        }
        controllers.push(Arc::clone(runner));
        Ok(())
    }

    fn run(self: &Arc<Self>, stop: &Stop) -> Result<(), ControllerError> {
        let this = Arc::clone(self);
        let ended = match &self.election {
            Election::Nothing => {
                let since = Instant::now();
                self.start_informers()?;
                return self.run_controllers(since, stop, None);
            }
            Election::Leadership(elector) => {
                self.start_informers()?;
                let work = move |leading: Leading| {
                    // The caches must contain what earlier leaders have written.
                    this.run_controllers(Instant::now(), leading.stop(), Some(&leading))
                };
                let ended = elector.run(work, stop);
                ended.map_err(ControllerError::election)?
            }
            Election::Shard(shards) => {
                let by = shards.options.by;
                shards.run(stop, move |shard, leading| {
                    let since = Instant::now();
                    this.divide(by, shard)?;
                    this.start_informers()?;
                    this.run_controllers(since, leading.stop(), Some(leading))
                })?
            }
        };
        match ended {
            Ended::Stopped(result) => result.unwrap_or(Ok(())),
            Ended::Finished(result) => result,
            Ended::Lost(Err(error)) if error.is_stuck() => Err(error),
            Ended::Lost(_) => Err(ControllerError::of_manager(
                ControllerErrorKind::LeadershipLost {
                    last_error: self.elector().and_then(LeaderElector::last_error),
                },
            )),
        }
    }

    fn elector(&self) -> Option<&LeaderElector> {
        match &self.election {
            Election::Nothing => None,
            Election::Leadership(elector) => Some(elector),
            Election::Shard(shards) => shards.own().map(|(_, elector)| elector),
        }
    }

    fn start_informers(&self) -> Result<(), ControllerError> {
        let started = self.factory.start(&Stop::never());
        started.map_err(|source| ControllerError::of_manager(ControllerErrorKind::Informer(source)))
    }

    /// Restricts the informers of all controllers to a shard.
    fn divide(&self, by: ShardBy, shard: &Shard) -> Result<(), ControllerError> {
        let controllers = self.controllers.lock().clone();
        for runner in &controllers {
            for (source, division) in divisions(runner, &[], by)? {
                if let Some(part) = division.part(shard.clone()) {
                    let divided = source.divide(division, part);
                    divided.map_err(|source| ControllerError::informer(runner.name(), source))?;
                }
            }
        }
        Ok(())
    }

    /// Runs each controller on its own thread, and stops all after the first error.
    fn run_controllers(
        &self,
        since: Instant,
        stop: &Stop,
        leading: Option<&Leading>,
    ) -> Result<(), ControllerError> {
        let stop = stop.child();
        let threads = Threads::new(Owner::new());
        let first_error: Arc<OnceLock<ControllerError>> = Arc::default();
        let controllers = self.controllers.lock().clone();
        if controllers.is_empty() {
            stop.wait();
        }
        for runner in controllers {
            let name = format!("controller {}", runner.name());
            let (failed, leading) = (Arc::clone(&first_error), leading.cloned());
            let (error_of, stop_all) = (Arc::clone(&runner), stop.clone());
            let work = move || {
                if let Err(error) = runner.run(since, &stop_all, leading.as_ref()) {
                    let _ = failed.set(error.clone());
                    stop_all.stop();
                    log::error!("{error}");
                }
            };
            if let Err(source) = threads.spawn(name, None, work) {
                let _ = first_error.set(ControllerError::thread(error_of.name(), source));
                stop.stop();
            }
        }
        threads.join();
        first_error.get().cloned().map_or(Ok(()), Err)
    }

    /// Returns the sources of all controllers, each informer once, sorted by name.
    fn sources(&self) -> Vec<Arc<dyn AnySource>> {
        let controllers = self.controllers.lock().clone();
        let sources = controllers
            .iter()
            .flat_map(|runner| runner.core().sources.iter());
        let mut seen = HashSet::new();
        let is_first =
            |source: &&Arc<dyn AnySource>| seen.insert(std::ptr::from_ref(source.synced()));
        let mut sources: Vec<_> = sources.filter(is_first).cloned().collect();
        sources.sort_by(|a, b| a.name().cmp(b.name()));
        sources
    }

    /// Whether all caches have synced. A replica that waits for a shard is ready.
    fn check_informers(&self) -> Result<(), NotSynced> {
        if matches!(&self.election, Election::Shard(shards) if shards.own().is_none()) {
            return Ok(());
        }
        let (sources, now) = (self.sources(), Instant::now());
        let missing = sources.iter().filter(|source| !source.is_ready(now));
        let missing: Vec<_> = missing.map(|source| source.name().to_owned()).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(NotSynced(missing)),
        }
    }

    fn status(&self) -> Status {
        let informer = |source: &Arc<dyn AnySource>| {
            let status = source.status();
            let informer = InformerStatus::new(source.name(), &status, source.len());
            match source.shows_missing(&status) {
                true => informer.missing(),
                false => informer,
            }
        };
        let controllers = self.controllers.lock().clone();
        let leader = self.elector().map(|elector| LeaderStatus {
            identity: elector.identity().to_owned(),
            is_leader: elector.is_leader(),
            leader: elector.leader(),
        });
        let shards = match &self.election {
            Election::Shard(shards) => {
                let view = shards.view();
                Some(ShardsStatus {
                    shard: shards.own().map(|(shard, _)| *shard),
                    count: shards.options.count,
                    with_holder: view.held,
                    other_division: view.other.map(|term| term.lease),
                    last_error: view.last_error.as_ref().map(status_page::short),
                })
            }
            _ => None,
        };
        Status {
            informers: self.sources().iter().map(informer).collect(),
            controllers: controllers
                .iter()
                .map(|runner| controller_status(runner))
                .collect(),
            leader,
            shards,
        }
    }
}

fn controller_status(runner: &Runner) -> status_page::ControllerStatus {
    let of = &runner.reconcile_loop;
    let status = of.status();
    let awaited = status.awaited.into_iter();
    let awaited = awaited.map(|write| status_page::AwaitedWrite {
        key: write.key.to_string(),
        informer: write.informer,
        object: write.object.to_string(),
        change: write.change,
        seconds: write.since.as_secs(),
    });
    let old_caches = status.old_caches.into_iter();
    let old_caches = old_caches
        .map(|wait| status_page::SourceWait::new(wait.informer, &wait.reason, wait.since));
    let failures = of.calls.failures(status_page::ControllerStatus::MAX_ERRORS);
    let failures = failures.into_iter();
    let errors = failures.map(|(key, last)| KeyError::new(key.to_string(), &last.failure));
    status_page::ControllerStatus {
        name: runner.name().to_owned(),
        workers: of.settings.workers,
        active_workers: status.running.len(),
        queue_depth: status.queued,
        waiting: status.delayed + status.postponed,
        old_caches: old_caches.collect(),
        awaited_writes: awaited.collect(),
        failing: status.failing,
        last_errors: errors.collect(),
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controllers = self.shared.controllers.lock().clone();
        let names: Vec<_> = controllers.iter().map(|runner| runner.name()).collect();
        f.debug_struct("Manager")
            .field("controllers", &names)
            .finish_non_exhaustive()
    }
}

/// The caches that have not synced.
struct NotSynced(Vec<String>);

impl Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not synced: {}", self.0.join(", "))
    }
}

/// Builds a [`Manager`].
///
/// ```
/// use k8s_informer::informer::{FactoryOptions, InformerScope};
/// use k8s_informer::{Client, Config};
/// use k8s_informer_controller::leader_election::LeaderElectionOptions;
/// use k8s_informer_controller::{Manager, MetricsRegistry};
/// use k8s_informer_testing::ApiServer;
/// use std::time::Duration;
///
/// let server = ApiServer::start()?;
/// let registry = MetricsRegistry::new();
/// let config = Config::new(server.url()).metrics(registry.client_metrics());
/// let manager = Manager::builder(Client::new(config)?)
///     .metrics(registry)
///     .leader_election("teams", "team-controller")
///     .leader_election_options(LeaderElectionOptions::new().lease_duration(Duration::from_secs(30)))
///     .informers(FactoryOptions::new().scope(InformerScope::all().namespace("teams")))
///     .health(":0")
///     .health_check("disk", || std::fs::metadata("/").map(drop))
///     .build()?;
/// assert!(manager.health_address().is_some() && manager.elector().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct ManagerBuilder {
    client: Client,
    /// The namespace and the name of the Lease.
    lease: Option<(String, String)>,
    shards: Option<ShardOptions>,
    identity: Option<String>,
    election_options: LeaderElectionOptions,
    informers: FactoryOptions,
    address: Option<String>,
    metrics: MetricsRegistry,
    healthz: Checks,
    readyz: Checks,
}

impl ManagerBuilder {
    /// Runs the controllers only on the replica that holds this Lease.
    ///
    /// No call begins before the caches contain everything that was committed when the replica took
    /// the Lease. A request of an earlier holder that the server commits later is not covered: see
    /// [the guide](crate::guide::leader_election#what-a-new-leader-sees).
    pub fn leader_election(
        mut self,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        self.lease = Some((namespace.into(), name.into()));
        self
    }

    /// Divides the objects into `count` shards, of which this replica has at most one. It replaces
    /// [`leader_election`](Self::leader_election).
    ///
    /// Deploy `count` replicas and some spare ones. Each shard has a Lease in `namespace`. A replica
    /// takes one that is free; then its informers start and get the objects of this shard only. A
    /// spare replica has empty caches and waits. A replica that loses its Lease ends
    /// [`run`](Manager::run) with an error: exit, so that the Pod restarts and takes a free one.
    ///
    /// If `count` or `by` changes, a replica waits until no Lease of the other division has a holder.
    /// So an object is never in the shards of two replicas, whatever the rollout strategy. [The
    /// guide](crate::guide::sharding#another-number-of-shards) has the conditions.
    ///
    /// All sources of the controllers are divided, as [`ShardBy`] describes; those that can't be
    /// divided are refused by [`by`](ControllerBuilder::by). An informer of the
    /// [factory](Manager::factory) is divided if a controller has the same source.
    ///
    /// The permissions are `get`, `list`, `create` and `update` for Leases. [The
    /// guide](crate::guide::sharding) compares the divisions, and states what they do not promise.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Object, Stopper};
    /// use k8s_informer_controller::{Manager, Next, ShardBy};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::sync::mpsc;
    ///
    /// let server = ApiServer::start()?;
    /// for namespace in ["blue", "green", "red", "white"] {
    ///     server.create(&format!("/api/v1/namespaces/{namespace}/configmaps"), json!({"metadata": {"name": "a"}}))?;
    /// }
    /// let (sender, calls) = mpsc::channel();
    /// let stop = Stopper::new();
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         let manager = Manager::builder(Client::new(Config::new(server.url()))?)
    ///             .one_shard_of("kube-system", "map-controller", 2, ShardBy::Namespace)
    ///             .build()?;
    ///         let (sender, of) = (sender.clone(), manager.clone());
    ///         manager.reconcile::<ConfigMap>("maps").by(move |_, map| {
    ///             sender.send((map.namespace().to_owned(), of.shard()))?;
    ///             Ok(Next::Done)
    ///         })?;
    ///         scope.spawn({ let stop = &stop; move || manager.run(stop) });
    ///     }
    ///     let mut calls: Vec<_> = calls.iter().take(4).collect();
    ///     calls.sort();
    ///     let shards = ["blue", "green", "red", "white"].map(|namespace| (namespace.to_owned(), Some(shard_of(namespace))));
    ///     assert_eq!(calls, shards);
    ///     stop.stop();
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    ///
    /// fn shard_of(namespace: &str) -> u32 {
    ///     let shards = (0..2).map(|index| k8s_informer::reflector::Shard::new(index, 2).unwrap().by_namespace());
    ///     shards.into_iter().position(|shard| shard.contains(namespace)).unwrap() as u32
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn one_shard_of(
        mut self,
        namespace: impl Into<String>,
        name: impl Into<String>,
        count: u32,
        by: ShardBy,
    ) -> Self {
        self.shards = Some(ShardOptions {
            namespace: namespace.into(),
            name: name.into(),
            count,
            by,
        });
        self
    }

    /// Sets the identity of this replica in the Lease. The default is the host name with a random
    /// suffix. Each replica needs its own identity: two replicas with the same one both lead.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Sets the options of the leader election, for example its durations.
    ///
    /// The grace period of the election is a minute if the options do not set it. It must be longer
    /// than the stop of each controller can take: its
    /// [grace period](ControllerBuilder::grace_period) plus the same time again, but at least one
    /// second more. Metrics go to the [registry](Self::metrics) of the manager if the options do not
    /// set where.
    pub fn leader_election_options(mut self, options: LeaderElectionOptions) -> Self {
        self.election_options = options;
        self
    }

    /// Sets the options of the informers, for example their scope or resync period. Unless the
    /// options have metrics, the manager publishes those of the informers.
    pub fn informers(mut self, options: FactoryOptions) -> Self {
        self.informers = options;
        self
    }

    /// Serves `/healthz`, `/readyz`, `/metrics` and `/status` over HTTP on this address.
    ///
    /// Without a host, as in `:8080`, the address is a loopback address. HTTP probes of a kubelet
    /// and a Prometheus server need another one, such as `0.0.0.0:8080`. The endpoints have no
    /// authentication: `/status` contains names of objects and error messages, and a path such as
    /// `/readyz/informers` the message of a failed check. Use a network policy if clients are not
    /// trusted.
    ///
    /// Up to 32 connections have a thread. A further client takes the place of one that does not send
    /// its request or does not receive its response, so idle connections do not keep a probe from its
    /// response. Checks that block do.
    pub fn health(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Adds a check to `/healthz`. A failing check means that the program must be restarted.
    ///
    /// Each probe runs the check on a thread of the HTTP server, possibly several times at once. A
    /// panic is a failure. The check must return quickly: probes have a time limit, and the end of
    /// [`Manager::run`] waits for running checks. The error of a check may be anything that can be
    /// displayed. If the answer takes long, compute it on another thread, and return the last one
    /// here. With leader election, the name `leaderElection` is taken.
    pub fn health_check<E: Display>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.healthz.add(name, check);
        self
    }

    /// Adds a check to `/readyz`. [`health_check`](Self::health_check) documents the rules for
    /// checks. The name `informers` is taken by a check that succeeds once the caches of all
    /// controllers have synced.
    pub fn ready_check<E: Display>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.readyz.add(name, check);
        self
    }

    /// Sets the registry of the metrics. Use it to include the metrics of the client: pass
    /// [`MetricsRegistry::client_metrics`] to [`Config::metrics`](k8s_informer::Config::metrics).
    pub fn metrics(mut self, metrics: MetricsRegistry) -> Self {
        self.metrics = metrics;
        self
    }

    /// Builds the manager, and starts its HTTP endpoints.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings of the leader election are invalid, if a check has the name
    /// of a built-in one, or if the address is invalid or in use.
    pub fn build(self) -> Result<Manager, ControllerError> {
        let of_shards = self.shards.as_ref();
        let of_shards = of_shards.map(|of| (of.namespace.clone(), of.name.clone()));
        if self.lease.is_some() && of_shards.is_some() {
            let problem = "`one_shard_of` replaces `leader_election`: call one of them";
            return Err(ControllerError::invalid_manager(problem));
        }
        let election = match self.lease.or(of_shards) {
            Some((namespace, name)) => {
                let mut lock = LeaseLock::new(&self.client, &namespace, &name);
                if let Some(identity) = self.identity {
                    lock = lock.identity(identity);
                }
                let identity = Lock::identity(&lock).to_owned();
                let metrics = self.metrics.leader_election_metrics(&name);
                let options = self.election_options.or(ELECTOR_GRACE, metrics);
                match self.shards {
                    Some(shards) => {
                        let metrics = self.metrics.clone();
                        let shards = Shards::new(&self.client, shards, identity, options, metrics)?;
                        Election::Shard(Arc::new(shards))
                    }
                    None => {
                        let elector = LeaderElector::new(lock, options);
                        Election::Leadership(elector.map_err(ControllerError::election)?)
                    }
                }
            }
            None => Election::Nothing,
        };
        let mut informers = self.informers;
        if informers.metrics.is_none() {
            informers = informers.metrics("manager", Arc::new(self.metrics.clone()));
        }
        let factory = SharedInformerFactory::with_options(self.client.clone(), informers);
        let shared = Arc::new(Shared {
            client: self.client,
            factory,
            metrics: self.metrics.clone(),
            election,
            controllers: Mutex::default(),
            has_run: AtomicBool::new(false),
            endpoints: OnceLock::new(),
        });
        for (checks, name) in [
            (&self.readyz, "informers"),
            (&self.healthz, "leaderElection"),
        ] {
            if checks.contains(name) {
                let problem = format!("the manager has a check {name:?} itself: use another name");
                return Err(ControllerError::invalid_manager(problem));
            }
        }
        if let Some(address) = self.address {
            // Weak, because the manager owns the server.
            let of = Arc::downgrade(&shared);
            if !matches!(shared.election, Election::Nothing) {
                self.healthz.add("leaderElection", move || {
                    let of = of.upgrade();
                    let elector = of.as_ref().and_then(|of| of.elector());
                    let health = elector.map_or(Ok(()), |of| of.health(LEASE_TOLERANCE));
                    health.map_err(|error| error.to_string())
                });
            }
            let of = Arc::downgrade(&shared);
            self.readyz.add("informers", move || {
                of.upgrade().map_or(Ok(()), |of| of.check_informers())
            });
            let of = Arc::downgrade(&shared);
            let status = move || of.upgrade().map_or_else(Status::default, |of| of.status());
            let endpoints = Endpoints {
                healthz: self.healthz,
                readyz: self.readyz,
                ..Endpoints::new(self.metrics, status)
            };
            let server = HttpServer::start(&*http::with_host(&address), Arc::new(endpoints));
            let server = server.map_err(|source| {
                let source = Arc::new(source);
                ControllerError::of_manager(ControllerErrorKind::Endpoints { address, source })
            })?;
            let _ = shared.endpoints.set(server);
        }
        Ok(Manager { shared })
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("lease", &self.lease)
            .field("shards", &self.shards)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
