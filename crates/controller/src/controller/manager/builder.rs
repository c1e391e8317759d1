use std::fmt::{self, Display};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::sharding::{ShardOptions, Shards};
use super::{AtLoss, Election, Manager, Shared};
use crate::controller::error::{ControllerError, ControllerErrorKind};
use crate::controller::sources::division::ShardBy;
use crate::leader_election::{LeaderElectionOptions, LeaderElector, LeaseLock, Lock};
use crate::serve::MetricsRegistry;
use crate::serve::checks::Checks;
use crate::serve::endpoints::Endpoints;
use crate::serve::http::{self, HttpServer};
use k8s_informer::client::Client;
use k8s_informer::informer::{FactoryOptions, SharedInformerFactory};

/// How long a leader can fail to renew its Lease after the end of the lease before `/healthz`
/// fails. This is the value of kube-controller-manager.
const LEASE_TOLERANCE: Duration = Duration::from_secs(20);

/// How long the elector waits for the controllers after a stop, by default. It is longer than twice
/// the default grace period of a controller, so that a stuck call is reported with its key.
const ELECTOR_GRACE: Duration = Duration::from_secs(60);

/// The names of the manager's own checks.
const INFORMERS: &str = "informers";
const LEADER_ELECTION: &str = "leaderElection";

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
    at_loss: AtLoss,
    informers: FactoryOptions,
    address: Option<String>,
    metrics: MetricsRegistry,
    healthz: Checks,
    readyz: Checks,
}

impl ManagerBuilder {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            lease: None,
            shards: None,
            identity: None,
            election_options: LeaderElectionOptions::new(),
            at_loss: AtLoss::LeadAgain,
            informers: FactoryOptions::new(),
            address: None,
            metrics: MetricsRegistry::new(),
            healthz: Checks::new("healthz"),
            readyz: Checks::new("readyz"),
        }
    }

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
    /// spare replica has empty caches and waits. A replica that loses its Lease tries to take the same
    /// shard again. If another replica has taken it, [`run`](Manager::run) ends with an error: exit, so
    /// that the Pod restarts and takes a free one.
    ///
    /// If `count` or `by` changes, a replica waits until no Lease of the other division has a holder.
    /// So an object is never in the shards of two replicas, whatever the rollout strategy. [The
    /// guide](crate::guide::sharding#another-number-of-shards) has the conditions.
    ///
    /// All sources of the controllers are divided, as [`ShardBy`] describes; those that can't be
    /// divided are refused by [`by`](crate::ControllerBuilder::by). An informer of the
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
    /// [grace period](crate::ControllerBuilder::grace_period) plus the same time again, but at least one
    /// second more. Metrics go to the [registry](Self::metrics) of the manager if the options do not
    /// set where.
    pub fn leader_election_options(mut self, options: LeaderElectionOptions) -> Self {
        self.election_options = options;
        self
    }

    /// Ends [`run`](Manager::run) with
    /// [`LeadershipLost`](crate::ControllerErrorKind::LeadershipLost) when the leadership is lost, as in
    /// controller-runtime. Exit then.
    ///
    /// By default, the manager becomes a candidate again, and its informers and caches stay.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_controller::{ControllerErrorKind, Manager, Next};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::sync::mpsc;
    ///
    /// let server = ApiServer::start()?;
    /// server.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}}))?;
    /// let manager = Manager::builder(Client::new(Config::new(server.url()))?)
    ///     .leader_election("default", "maps")
    ///     .end_at_loss()
    ///     .build()?;
    /// let (sender, calls) = mpsc::channel();
    /// manager.reconcile::<ConfigMap>("maps").by(move |_, _| {
    ///     sender.send(())?;
    ///     Ok(Next::Done)
    /// })?;
    /// let running = std::thread::spawn(move || manager.run(&Stop::never()));
    /// calls.recv()?;
    /// server.delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/maps")?;
    /// let error = running.join().unwrap().unwrap_err();
    /// assert!(matches!(error.kind(), ControllerErrorKind::LeadershipLost { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end_at_loss(mut self) -> Self {
        self.at_loss = AtLoss::End;
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
        // Nothing is created before all settings are checked.
        self.check()?;
        let election = self.election()?;
        let factory = self.factory();
        let shared = Arc::new(Shared {
            client: self.client,
            factory,
            metrics: self.metrics.clone(),
            election,
            at_loss: self.at_loss,
            controllers: Mutex::default(),
            has_run: AtomicBool::new(false),
            endpoints: OnceLock::new(),
        });
        if let Some(address) = self.address {
            add_own_checks(&shared, &self.healthz, &self.readyz);
            let server = serve(&shared, address, self.metrics, self.healthz, self.readyz)?;
            let _ = shared.endpoints.set(server);
        }
        Ok(Manager { shared })
    }

    fn check(&self) -> Result<(), ControllerError> {
        if self.lease.is_some() && self.shards.is_some() {
            let problem = "`one_shard_of` replaces `leader_election`: call one of them";
            return Err(ControllerError::invalid_manager(problem));
        }
        let own_checks = [(&self.readyz, INFORMERS), (&self.healthz, LEADER_ELECTION)];
        for (checks, name) in own_checks {
            if checks.contains(name) {
                let problem = format!("the manager has a check {name:?} itself: use another name");
                return Err(ControllerError::invalid_manager(problem));
            }
        }
        Ok(())
    }

    /// Returns what this replica needs before it calls reconcile functions. Checks its settings, and
    /// sends no request.
    fn election(&self) -> Result<Election, ControllerError> {
        let (namespace, name) = match (&self.lease, &self.shards) {
            (Some((namespace, name)), _) => (namespace, name),
            (None, Some(shards)) => (&shards.namespace, &shards.name),
            (None, None) => return Ok(Election::Nothing),
        };
        let mut lock = LeaseLock::new(&self.client, namespace, name);
        if let Some(identity) = &self.identity {
            lock = lock.identity(identity);
        }
        let metrics = self.metrics.leader_election_metrics(name);
        let options = self.election_options.clone().or(ELECTOR_GRACE, metrics);
        match self.shards.clone() {
            Some(shards) => {
                let identity = Lock::identity(&lock).to_owned();
                let metrics = self.metrics.clone();
                let shards = Shards::new(&self.client, shards, identity, options, metrics)?;
                Ok(Election::Shard(Arc::new(shards)))
            }
            None => {
                let elector = LeaderElector::new(lock, options);
                let elector = elector.map_err(ControllerError::election)?;
                Ok(Election::Leadership(elector))
            }
        }
    }

    fn factory(&self) -> SharedInformerFactory {
        let mut informers = self.informers.clone();
        if informers.metrics.is_none() {
            informers = informers.metrics("manager", Arc::new(self.metrics.clone()));
        }
        SharedInformerFactory::with_options(self.client.clone(), informers)
    }
}

/// Adds the checks of the manager itself. They are weak, because the manager owns the server that has
/// them.
fn add_own_checks(shared: &Arc<Shared>, healthz: &Checks, readyz: &Checks) {
    if !matches!(shared.election, Election::Nothing) {
        let weak = Arc::downgrade(shared);
        healthz.add(LEADER_ELECTION, move || {
            let shared = weak.upgrade();
            let elector = shared.as_ref().and_then(|shared| shared.elector());
            let health = elector.map_or(Ok(()), |elector| elector.health(LEASE_TOLERANCE));
            health.map_err(|error| error.to_string())
        });
    }
    let weak = Arc::downgrade(shared);
    readyz.add(INFORMERS, move || {
        let shared = weak.upgrade();
        shared.map_or(Ok(()), |shared| shared.check_informers())
    });
}

/// Starts the HTTP endpoints. They are weak, because the manager owns them.
fn serve(
    shared: &Arc<Shared>,
    address: String,
    metrics: MetricsRegistry,
    healthz: Checks,
    readyz: Checks,
) -> Result<HttpServer, ControllerError> {
    let weak = Arc::downgrade(shared);
    let status = move || {
        let status = weak.upgrade().map(|shared| shared.status());
        status.unwrap_or_default().to_json()
    };
    let endpoints = Endpoints {
        healthz,
        readyz,
        ..Endpoints::new(metrics, status)
    };
    let server = HttpServer::start(&*http::with_host(&address), Arc::new(endpoints));
    server.map_err(|source| {
        let source = Arc::new(source);
        ControllerError::of_manager(ControllerErrorKind::Endpoints { address, source })
    })
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
