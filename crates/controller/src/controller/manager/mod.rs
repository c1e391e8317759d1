mod builder;
mod sharding;
mod status;

use std::collections::HashSet;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;

pub use self::builder::ManagerBuilder;
use self::sharding::{ShardTerm, Shards, divisions};
use self::status::{ControllerRow, InformerStatus, LeaderStatus, ShardsStatus, Status};
use crate::controller::engine::runner::Runner;
use crate::controller::error::{ControllerError, ControllerErrorKind};
use crate::controller::sources::division::ShardBy;
use crate::controller::sources::source::AnySource;
use crate::controller::surface::builder::ControllerBuilder;
use crate::controller::surface::handle::Controller;
use crate::leader_election::{Ended, LeaderElector, Leading};
use crate::log;
use crate::serve::MetricsRegistry;
use crate::serve::http::HttpServer;
use k8s_informer::__private::sync::thread;
use k8s_informer::__private::{Owner, Threads, catch, named};
use k8s_informer::client::Client;
use k8s_informer::informer::{SharedInformerFactory, Source};
use k8s_informer::object::{Object, Resource};
use k8s_informer::reflector::Shard;
use k8s_informer::stop::Stop;

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
    at_loss: AtLoss,
    /// No other lock is taken while this one is held.
    controllers: Mutex<Vec<Arc<Runner>>>,
    has_run: AtomicBool,
    endpoints: OnceLock<HttpServer>,
}

/// What a manager does when it has lost its leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtLoss {
    /// It becomes a candidate again.
    LeadAgain,
    /// [`Manager::run`] ends with an error.
    End,
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
        ManagerBuilder::new(client)
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
    /// this replica has. Gate clients with [`gate`](Self::gate) and not with the elector: before a term of a
    /// shard, the replica looks for other divisions, and the elector leads already.
    pub fn elector(&self) -> Option<&LeaderElector> {
        self.shared.elector()
    }

    /// Returns a client that can change something only while this replica leads, for closures and
    /// threads of your program. [`Context::client`](crate::Context::client) is gated already.
    ///
    /// [`LeaderElector::gate`] documents it. With shards, the replica leads while it has its shard.
    /// Without leader election, it is a clone of `client`.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_controller::Manager;
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let manager = Manager::builder(client.clone()).leader_election("default", "maps").build()?;
    /// let maps = manager.gate(&client).api::<ConfigMap>(Some("default"));
    /// assert!(maps.list(&Default::default(), &Stop::never())?.items.is_empty());
    /// let error = maps.create(&serde_json::json!({"metadata": {"name": "a"}}), &Stop::never()).unwrap_err();
    /// assert!(error.is_not_leading(), "the manager does not run");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gate(&self, client: &Client) -> Client {
        match &self.shared.election {
            Election::Nothing => client.clone(),
            Election::Leadership(elector) => elector.gate(client),
            Election::Shard(shards) => Shards::gate(shards, client),
        }
    }

    /// Returns the index of the shard that this replica has, or had: it takes no other one. `None`
    /// without [shards](ManagerBuilder::one_shard_of), or while it waits for its first one.
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
    /// 4. The controllers run. If the leadership is lost, their calls are ended without a grace
    ///    period, and step 3 follows again. Informers and caches stay.
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
    /// Each term is a new beginning: all objects are reconciled, and the first call sees everything
    /// that was committed before the term. Nothing of an earlier term remains: queued keys, delays,
    /// failures, and waits for own writes. [The
    /// guide](crate::guide::leader_election#after-a-loss) has the details.
    ///
    /// # Errors
    ///
    /// Returns the first error of a controller; the others are then stopped. After
    /// [`ControllerErrorKind::Stuck`], also if the leadership was lost, a call still runs: end the
    /// process. Returns an error if the informers cannot be started, or if the manager has run before.
    ///
    /// Returns [`ControllerErrorKind::LeadershipLost`] if the leadership was lost, and
    /// [`end_at_loss`](ManagerBuilder::end_at_loss) was set or another replica has taken the shard of
    /// this one. Exit then, so that the program restarts.
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
        let max_stop = runner.parts.settings.max_stop();
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

    /// Runs the controllers in one term after the other.
    fn run(self: &Arc<Self>, stop: &Stop) -> Result<(), ControllerError> {
        let controllers = self.controllers.lock().clone();
        controllers.iter().try_for_each(|runner| runner.claim())?;
        let result = self.run_terms(&controllers, stop);
        end_all(&controllers);
        result
    }

    fn run_terms(
        self: &Arc<Self>,
        controllers: &[Arc<Runner>],
        stop: &Stop,
    ) -> Result<(), ControllerError> {
        loop {
            match self.run_term(stop)? {
                Ended::Stopped(result) => return result.unwrap_or(Ok(())),
                Ended::Finished(result) => return result,
                // Also a stuck call: the next term must not begin beside it.
                Ended::Lost(Err(error)) => return Err(error),
                Ended::Lost(Ok(())) => match self.at_loss {
                    AtLoss::End => return Err(self.leadership_lost()),
                    AtLoss::LeadAgain if stop.is_stopped() => {}
                    AtLoss::LeadAgain => log::info!("manager: a candidate again after a loss"),
                },
            }
            // All calls of the lost term have returned. Nothing of it reaches the next one.
            controllers
                .iter()
                .try_for_each(|runner| runner.prepare_term())?;
        }
    }

    /// Waits until this replica may work, and runs the controllers until it may not.
    fn run_term(
        self: &Arc<Self>,
        stop: &Stop,
    ) -> Result<Ended<Result<(), ControllerError>>, ControllerError> {
        let this = Arc::clone(self);
        match &self.election {
            Election::Nothing => {
                let since = Instant::now();
                self.start_informers()?;
                Ok(Ended::Finished(self.run_controllers(since, stop, None)))
            }
            Election::Leadership(elector) => {
                // Only the first term finds informers to start.
                self.start_informers()?;
                let work = move |leading: Leading| {
                    // The caches must contain what earlier leaders have written, also this one.
                    this.run_controllers(Instant::now(), leading.stop(), Some(&leading))
                };
                elector.run(work, stop).map_err(ControllerError::election)
            }
            Election::Shard(shards) => {
                let (by, is_first) = (shards.options.by, shards.own().is_none());
                let term = shards.run_term(stop, move |shard, leading| {
                    let since = Instant::now();
                    // The informers of a shard can be divided only once, before their start.
                    if is_first {
                        this.divide(by, shard)?;
                        this.start_informers()?;
                    }
                    this.run_controllers(since, leading.stop(), Some(leading))
                })?;
                match term {
                    ShardTerm::Ended(ended) => Ok(ended),
                    ShardTerm::Taken => Err(self.leadership_lost()),
                }
            }
        }
    }

    fn leadership_lost(&self) -> ControllerError {
        let last_error = self.elector().and_then(LeaderElector::last_error);
        ControllerError::of_manager(ControllerErrorKind::LeadershipLost { last_error })
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
                if let Err(error) = runner.run_term_caught(since, &stop_all, leading.as_ref()) {
                    let _ = failed.set(error.clone());
                    stop_all.stop();
                    // A logger must not keep the others from their end.
                    drop(catch(|| log::error!("{error}")));
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
        let shards = match &self.election {
            Election::Shard(shards) => Some(ShardsStatus::new(shards)),
            Election::Nothing | Election::Leadership(_) => None,
        };
        let controllers = self.controllers.lock().clone();
        let rows = controllers.iter().map(|runner| ControllerRow::new(runner));
        let sources = self.sources();
        let informers = sources.iter().map(|source| InformerStatus::of(&**source));
        Status {
            informers: informers.collect(),
            controllers: rows.collect(),
            leader: self.elector().map(LeaderStatus::new),
            shards,
        }
    }
}

/// Ends all controllers side by side, because each can wait for its last events.
fn end_all(controllers: &[Arc<Runner>]) {
    thread::scope(|scope| {
        for runner in controllers {
            let end = named(format!("{} end", runner.name()), None);
            if end.spawn_scoped(scope, || runner.end()).is_err() {
                runner.end();
            }
        }
    });
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
