use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::controller::call::outcome::LastFailure;
use crate::controller::engine::runner::Runner;
use crate::controller::engine::status::ControllerStatus;
use crate::controller::error::ControllerError;
use crate::controller::sources::source::PRIMARY;
use crate::leader_election::Leading;
use k8s_informer::informer::SharedIndexInformer;
use k8s_informer::object::{Key, Object};
use k8s_informer::stop::Stop;
use k8s_informer::store::Lister;

/// A controller: calls a reconcile function for each object that needs it.
///
/// Clones refer to the same controller. It corresponds to controller-runtime's `Controller`.
/// [`informer::Controller`](k8s_informer::informer::Controller) is something else: the part of an informer
/// that client-go calls so.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer::{Client, Config, Stopper};
/// use k8s_informer_controller::{Controller, Failure, Next};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let server = ApiServer::start()?;
/// server.create("/api/v1/namespaces/default/configmaps", serde_json::json!({"metadata": {"name": "a"}}))?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (sender, calls) = mpsc::channel();
/// let maps = Controller::builder(&client, Source::of::<ConfigMap>(), "maps").by(move |cx, map| {
///     sender.send(cx.key().to_string())?;
///     match &map.data {
///         Some(_) => Ok(Next::Done),
///         None => Err(Failure::terminal("the map has no data")),
///     }
/// })?;
///
/// let stop = Stopper::new();
/// let running = std::thread::spawn({ let (maps, stop) = (maps.clone(), stop.signal()); move || maps.run(&stop) });
/// assert_eq!(calls.recv()?, "default/a");
/// maps.enqueue("default/a");
/// assert_eq!(calls.recv()?, "default/a");
/// maps.enqueue_after("default/a", Duration::from_millis(1));
/// assert_eq!(calls.recv()?, "default/a");
/// stop.stop();
/// running.join().unwrap()?;
///
/// assert_eq!(maps.lister().list().len(), 1);
/// let failure = maps.last_failure("default/a").unwrap().failure;
/// assert_eq!((failure.to_string().as_str(), failure.is_terminal()), ("the map has no data", true));
/// assert_eq!((maps.failures().len(), maps.status().failing, maps.status().running.len()), (1, 1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Controller<T> {
    pub(crate) runner: Arc<Runner>,
    pub(crate) informer: SharedIndexInformer<T>,
}

impl<T: Object> Controller<T> {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.runner.name()
    }

    /// Runs the controller until `stop` is signalled: starts the informers, waits until they have
    /// synced, and calls the reconcile function for every object. Blocks until all calls have
    /// returned.
    ///
    /// A stop drops the waiting keys, because the next start lists all objects. It lets calls in
    /// progress finish within the [grace period](crate::ControllerBuilder::grace_period).
    ///
    /// # Errors
    ///
    /// Returns an error if the informers do not sync in time, if calls do not return after the
    /// stop, or if the controller has run before.
    pub fn run(&self, stop: &Stop) -> Result<(), ControllerError> {
        self.runner.run(stop, None)
    }

    /// Runs the controller until the leadership ends. The first call waits until the caches contain
    /// everything that was committed when this method was called. Pass it to
    /// [`LeaderElector::run`](crate::leader_election::LeaderElector::run).
    ///
    /// If the leadership is lost, calls in progress are ended without a grace period.
    ///
    /// ```no_run
    /// use k8s_informer::informer::Source;
    /// use k8s_informer::{Client, Stop};
    /// use k8s_informer_controller::leader_election::{LeaderElectionOptions, LeaderElector, LeaseLock};
    /// use k8s_informer_controller::{Controller, Next};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let client = Client::try_default()?;
    /// let maps = Controller::builder(&client, Source::of::<ConfigMap>(), "maps").by(|_, _| Ok(Next::Done))?;
    /// let elector = LeaderElector::new(LeaseLock::new(&client, "default", "maps"), LeaderElectionOptions::new())?;
    /// let ended = elector.run(move |leading| maps.run_as_leader(&leading), &Stop::on_signals()?)?;
    /// println!("{ended:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Self::run).
    pub fn run_as_leader(&self, leading: &Leading) -> Result<(), ControllerError> {
        self.runner.run(leading.stop(), Some(leading))
    }

    /// Queues a key, as a change of the object does. Ignores keys of other
    /// [shards](crate::ManagerBuilder::one_shard_of): call it on all replicas.
    ///
    /// If a leader loses its Lease, the keys of the term are dropped, also those that are queued until its
    /// calls have ended: the next term queues all objects. As a standby, a replica keeps the keys for
    /// its term.
    pub fn enqueue(&self, key: impl Into<Key>) {
        self.enqueue_after(key, Duration::ZERO);
    }

    /// Queues a key after a delay. An earlier call for the key replaces this one.
    pub fn enqueue_after(&self, key: impl Into<Key>, delay: Duration) {
        let (of, key) = (self.runner.current(), key.into());
        if of.core.sources[PRIMARY].may_have(&key) {
            of.enqueue_after(key, delay);
        }
    }

    /// Returns the cache of the objects.
    pub fn lister(&self) -> Lister<T> {
        self.informer.lister()
    }

    /// Returns the informer of the objects.
    pub fn informer(&self) -> &SharedIndexInformer<T> {
        &self.informer
    }

    /// Returns the failure of the last call for a key. `None` if it succeeded, or if there was
    /// none.
    pub fn last_failure(&self, key: &str) -> Option<LastFailure> {
        self.runner.current().calls.last_failure(key)
    }

    /// Returns the failures of all keys whose last call failed, sorted by key.
    pub fn failures(&self) -> Vec<(Key, LastFailure)> {
        self.runner.current().calls.failures(usize::MAX)
    }

    /// Returns what the controller is doing.
    pub fn status(&self) -> ControllerStatus {
        self.runner.current().status()
    }
}

impl<T> Clone for Controller<T> {
    fn clone(&self) -> Self {
        Self {
            runner: Arc::clone(&self.runner),
            informer: self.informer.clone(),
        }
    }
}

impl<T> fmt::Debug for Controller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.runner.name())
            .field("status", &self.runner.current().status())
            .finish_non_exhaustive()
    }
}
