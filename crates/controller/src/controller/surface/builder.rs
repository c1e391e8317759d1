use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::handle::Controller;
use crate::controller::call::core::{Core, Events};
use crate::controller::call::outcome::{Failure, Next};
use crate::controller::context::Context;
use crate::controller::engine::enqueue::{Enqueue, KeysOf, UpdateFilter};
use crate::controller::engine::finalize::Finalizer;
use crate::controller::engine::probe::Probe;
use crate::controller::engine::queue::QueueSettings;
use crate::controller::engine::reconcile::Reconciler;
use crate::controller::engine::reconcile_loop::{LoopParts, ReconcileLoop, Settings};
use crate::controller::engine::runner::{AddHandler, OwnsFactory, RemoveHandler, Runner};
use crate::controller::engine::vanished::IsHeld;
use crate::controller::error::ControllerError;
use crate::controller::objects::owner;
use crate::controller::objects::predicate::Predicate;
use crate::controller::sources::division::Role;
use crate::controller::sources::source::{AnySource, InformerSource};
use crate::finalizers::patches;
use crate::log;
use crate::metrics::{ControllerMetrics, ControllerMetricsProvider};
use k8s_informer::__private::{Meter, catch};
use k8s_informer::client::Client;
use k8s_informer::handler::HandlerOptions;
use k8s_informer::informer::{InformerScope, SharedIndexInformer, SharedInformerFactory, Source};
use k8s_informer::object::{
    FullMetadata, GroupVersionKind, Key, Object, Scope, meta_namespace_key,
};
use k8s_informer::selector::is_qualified_name;
use k8s_informer::time::{Clock, RealClock};
use k8s_informer::workqueue::{ItemExponentialFailureRateLimiter, RateLimiter};

/// Builds a [`Controller`].
///
/// Create a builder with [`Controller::builder`], or with [`Manager::reconcile`] for a controller
/// of a manager. The last call is [`by`](Self::by), with the reconcile function.
///
/// ```
/// use k8s_informer::client::api::DeleteOptions;
/// use k8s_informer::informer::{InformerScope, Source};
/// use k8s_informer::object::{FullObjectMeta, Key};
/// use k8s_informer::{Client, Config, Object, Stopper, impl_full_metadata, impl_object};
/// use k8s_informer_controller::{Controller, Next, generation_changed, labels_changed};
/// use k8s_informer_testing::{ApiResource, ApiServer};
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use serde_json::json;
/// use std::sync::{Arc, Mutex, mpsc};
/// use std::time::Duration;
///
/// #[derive(serde::Deserialize)]
/// struct Team {
///     metadata: FullObjectMeta,
///     spec: TeamSpec,
/// }
/// #[derive(serde::Deserialize)]
/// struct TeamSpec {
///     bucket: Option<String>,
/// }
/// impl_object!(Team, "example.com/v1", "Team", "teams", Namespaced);
/// impl_full_metadata!(Team);
///
/// let server = ApiServer::builder().resource(ApiResource::new("example.com", "v1", "teams", "Team")).start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (bucket_sender, deleted_buckets) = mpsc::channel();
/// let (gone_sender, gone) = mpsc::channel();
/// let teams = Controller::builder(&client, Source::of::<Team>(), "team")
///     .when(generation_changed().or(labels_changed()))
///     .owns(Source::of::<ConfigMap>())
///     .watches(Source::of::<Secret>().scope(InformerScope::all().label_selector("team".parse()?)), |secret| {
///         secret.label("team").map(|team| Key::from(format!("{}/{team}", secret.namespace())))
///     })
///     .finalizer("example.com/team", |team| team.spec.bucket.is_some(), move |_, team| {
///         bucket_sender.send(team.spec.bucket.clone())?;
///         Ok(Next::Done)
///     })
///     .on_gone(move |key| gone_sender.send(key.to_string()).unwrap())
///     .workers(4)
///     .time_limit(Duration::from_secs(60))
///     .by(|cx, team| {
///         if cx.children::<ConfigMap>()?.is_empty() {
///             let map = json!({"metadata": {"name": team.name()}, "data": {"bucket": team.spec.bucket}});
///             cx.api::<ConfigMap>(Some(team.namespace())).create(&cx.owned(map)?, cx.stop())?;
///         }
///         Ok(Next::After(Duration::from_secs(600)))
///     })?;
///
/// let stop = Stopper::new();
/// let running = std::thread::spawn({ let (teams, stop) = (teams.clone(), stop.signal()); move || teams.run(&stop) });
/// let path = "/apis/example.com/v1/namespaces/default/teams";
/// server.create(path, json!({"metadata": {"name": "sky"}, "spec": {"bucket": "clouds"}}))?;
/// let patience = Duration::from_secs(10);
/// let creates_map = |requests: &[k8s_informer_testing::RequestRecord]| requests.iter()
///     .any(|request| request.method() == "POST" && request.resource() == Some("configmaps"));
/// server.wait_for_requests(creates_map, patience).unwrap();
/// assert_eq!(server.get(&format!("{path}/sky"))?["metadata"]["finalizers"], json!(["example.com/team"]));
///
/// server.delete(&format!("{path}/sky"))?;
/// assert_eq!(deleted_buckets.recv_timeout(patience)?.as_deref(), Some("clouds"));
/// assert_eq!(gone.recv_timeout(patience)?, "default/sky");
/// stop.stop();
/// running.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Manager::reconcile`]: crate::Manager::reconcile
#[must_use]
pub struct ControllerBuilder<T> {
    name: String,
    client: Client,
    /// `None` for a factory that belongs to the controller.
    factory: Option<SharedInformerFactory>,
    source: Source<T>,
    kind: Option<GroupVersionKind>,
    kind_scope: Option<Scope>,
    filter: Option<UpdateFilter<T>>,
    others: Vec<Box<AddSource>>,
    finalizer: Option<Finalizer<T>>,
    former_finalizers: Vec<String>,
    on_gone: Box<dyn Fn(&Key) + Send + Sync>,
    settings: Settings,
    sync_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// `None` for the default.
    limiter: Option<Arc<dyn RateLimiter<Key>>>,
    starvation_limit: usize,
    metrics: Option<Arc<dyn ControllerMetricsProvider>>,
    /// `None` for the name.
    field_manager: Option<String>,
    pub(crate) probe: Option<Probe>,
    /// Adds the built controller to its manager.
    pub(crate) register: Option<Box<Register>>,
}

/// Creates the informer of another source.
type AddSource = dyn FnOnce(&Setup<'_>) -> Result<AddedSource, ControllerError> + Send;

pub(crate) type Register = dyn FnOnce(&Arc<Runner>) -> Result<(), ControllerError> + Send;

/// An informer, and the function that adds its handler.
type AddedSource = (Arc<dyn AnySource>, Box<AddHandler>);

type MetricsOf = Arc<dyn ControllerMetrics>;

/// The facts about a controller that its sources need.
struct Setup<'a> {
    name: &'a str,
    factory: &'a SharedInformerFactory,
    /// The kind and the scope of the objects of the controller.
    owner: Option<(GroupVersionKind, Scope)>,
}

impl<T: Object + DeserializeOwned> Controller<T> {
    /// Returns a builder for a controller of the objects of `source`. The name appears in logs,
    /// metrics and thread names.
    pub fn builder(
        client: &Client,
        source: Source<T>,
        name: impl Into<String>,
    ) -> ControllerBuilder<T> {
        ControllerBuilder {
            name: name.into(),
            client: client.clone(),
            factory: None,
            kind: source.kind().cloned(),
            kind_scope: source.kind_scope(),
            source,
            filter: None,
            others: Vec::new(),
            finalizer: None,
            former_finalizers: Vec::new(),
            on_gone: Box::new(|_| {}),
            settings: Settings {
                workers: 1,
                time_limit: None,
                grace_period: Duration::from_secs(15),
                own_writes_timeout: Duration::from_secs(10),
            },
            sync_timeout: Duration::from_secs(120),
            clock: Arc::new(RealClock),
            limiter: None,
            starvation_limit: 10,
            metrics: None,
            field_manager: None,
            probe: None,
            register: None,
        }
    }
}

impl<T: Object + DeserializeOwned> ControllerBuilder<T> {
    /// Uses the informers of this factory. By default the controller has its own factory. The
    /// controller starts the informers of the factory that do not run yet, and does not stop them.
    pub fn factory(mut self, factory: &SharedInformerFactory) -> Self {
        self.factory = Some(factory.clone());
        self
    }

    /// Restricts the controller to some objects of its kind, for example those of a namespace.
    pub fn scope(mut self, scope: InformerScope) -> Self {
        self.source = self.source.scope(scope);
        self
    }

    /// Declares the kind of a dynamic resource. [`owns`](Self::owns) and [`Context::owned`] need
    /// it.
    pub fn kind(mut self, kind: impl Into<String>, scope: Scope) -> Self {
        let resource = self.source.resource();
        let (group, version) = (resource.group.clone(), resource.version.clone());
        self.kind = Some(GroupVersionKind::new(group, version, kind));
        self.kind_scope = Some(scope);
        self
    }

    /// Selects the updates of objects that cause a call. The first sight of an object, the start
    /// of its deletion, its deletion and resyncs always cause one.
    ///
    /// Several calls of `when` select updates that match all predicates. They concern only the
    /// objects of the controller: every change of an owned or watched object causes a call.
    pub fn when(mut self, predicate: Predicate<T>) -> Self
    where
        T: FullMetadata,
    {
        let others = self.filter.take();
        self.filter = Some(Arc::new(move |old, new| {
            let is_deletion = new.is_being_deleted() && !old.is_being_deleted();
            let is_selected = || others.as_ref().is_none_or(|others| others(old, new));
            is_deletion || predicate.matches(old, new) && is_selected()
        }));
        self
    }

    /// Reconciles an object when an object that it owns changes.
    ///
    /// The owner is the controller owner reference, compared by group and kind. If an update
    /// changes the owner, the old and the new owner are reconciled. [`Context::children`] returns
    /// the owned objects of the call's object.
    pub fn owns<C: FullMetadata + DeserializeOwned>(self, source: Source<C>) -> Self {
        self.add_owned(source, false)
    }

    /// Like [`owns`](Self::owns), for a kind that may be missing in the cluster, as the Certificate of
    /// an optional integration. [`watches_optional`](Self::watches_optional) has the rules.
    pub fn owns_optional<C: FullMetadata + DeserializeOwned>(self, source: Source<C>) -> Self {
        self.add_owned(source, true)
    }

    fn add_owned<C: FullMetadata + DeserializeOwned>(
        mut self,
        source: Source<C>,
        is_optional: bool,
    ) -> Self {
        self.others.push(Box::new(move |setup| {
            let Some((kind, scope)) = setup.owner.clone() else {
                let problem = "the kind of the owner is unknown: call `kind` before `by`";
                return Err(ControllerError::invalid(setup.name, problem));
            };
            if scope == Scope::Namespaced && source.kind_scope() == Some(Scope::Cluster) {
                let problem = format!(
                    "{} are cluster-scoped and can't be owned by a namespaced {}: use `watches`",
                    source.resource(), kind.kind
                );
                return Err(ControllerError::invalid(setup.name, problem));
            }
            let mut source = informer_source(setup.factory, source, is_optional);
            source.role = Role::Owned;
            let uid = |child: &C| {
                let metadata = child.full_metadata().ok();
                let owner = metadata.as_ref().and_then(|metadata| metadata.controller());
                owner.map(|owner| owner.uid.clone()).into_iter().collect()
            };
            source.add_owner_index(uid).map_err(|source| ControllerError::informer(setup.name, source))?;
            let (name, resource) = (setup.name.to_owned(), source.resource().clone());
            let keys = move |child: &C| match child.full_metadata() {
                Ok(metadata) => {
                    let key = owner::controller_key(&metadata, &kind, scope);
                    key.into_iter().collect()
                }
                Err(error) => {
                    let child = meta_namespace_key(child);
                    log::error!("controller {name:?}: {resource} {child:?} has invalid metadata, so its owner is unknown: {error}");
                    Vec::new()
                }
            };
            Ok(added_source(source, keys, None, None))
        }));
        self
    }

    /// Reconciles the objects with the keys that `keys` returns when an object of another source
    /// changes. `keys` is called for the old and for the new state of an object.
    ///
    /// `keys` runs on a thread of the informer, so it must not block. If it panics, this state of the
    /// object causes no call. To find all objects that refer to the changed one, use an index:
    /// [the guide](crate::guide::controllers#owners) has an example.
    pub fn watches<C: Object + DeserializeOwned, K: IntoIterator<Item = Key>>(
        self,
        source: Source<C>,
        keys: impl Fn(&C) -> K + Send + Sync + 'static,
    ) -> Self {
        self.add_watched(source, keys, false)
    }

    /// Like [`watches`](Self::watches), for a kind that may be missing in the cluster, because its
    /// definition is not installed or comes later. [`Context::optional`] returns its cache.
    ///
    /// - If the kind exists at the start, calls wait for its first list, like for any other. They
    ///   do not wait for a kind that is missing: discovery lacks it in each answer for 5 seconds,
    ///   because one of several API servers may not know a new definition yet. So a start without the
    ///   kind takes 5 seconds. Both can change while the calls wait.
    /// - A kind that exists and can't be read counts as missing after 20 seconds, for example because
    ///   of a 403 or of a conversion webhook that does not respond. The log has a warning, and
    ///   `/status` the error. A shorter [`sync_timeout`](Self::sync_timeout) ends the start before.
    /// - If discovery has no answer, nothing is known about the kind, and the calls wait for an answer
    ///   or the list, up to the `sync_timeout`.
    /// - If it appears later, or can be read again, it exists once its cache is complete, and contains
    ///   all that was committed before the start or the term: no call sees a part. All keys are then
    ///   queued. A failed list is repeated within a minute.
    /// - If its lists fail with 404, and discovery lacks it in each answer for 5 seconds, it is gone.
    ///   All keys are then queued, and waits for [own writes] to it end. Deletions that the server
    ///   sent are delivered, and no others. After the start, errors such as 403 or 503 never end it:
    ///   its cache stays, as that of any other kind.
    ///
    /// [own writes]: crate::guide::controllers#own-writes
    ///
    /// A missing kind does not affect `/readyz`, and its 404 is no warning in the log. `/status` says
    /// `optional, missing`. One that can't be read affects `/readyz` for 20 seconds.
    pub fn watches_optional<C: Object + DeserializeOwned, K: IntoIterator<Item = Key>>(
        self,
        source: Source<C>,
        keys: impl Fn(&C) -> K + Send + Sync + 'static,
    ) -> Self {
        self.add_watched(source, keys, true)
    }

    fn add_watched<C: Object + DeserializeOwned, K: IntoIterator<Item = Key>>(
        mut self,
        source: Source<C>,
        keys: impl Fn(&C) -> K + Send + Sync + 'static,
        is_optional: bool,
    ) -> Self {
        self.others.push(Box::new(move |setup| {
            let source = informer_source(setup.factory, source, is_optional);
            let keys = move |object: &C| keys(object).into_iter().collect();
            Ok(added_source(source, keys, None, None))
        }));
        self
    }

    /// Adds a finalizer to the objects for which `is_needed` returns `true`, and calls `cleanup`
    /// before such an object is deleted.
    ///
    /// The finalizer is present before the reconcile function is called, so no effect remains
    /// without a cleanup. `cleanup` returns [`Next::Done`] if it has finished; the finalizer is
    /// then removed. With [`Next::After`] it is called again. With a finalizer, the reconcile
    /// function is not called for objects that are being deleted.
    ///
    /// An API server can lose a finalizer that is added at the moment of a deletion: it accepts the
    /// finalizer and removes the object ([kubernetes/kubernetes#77988]). The cleanup is called for such
    /// an object as well, with [`Context::has_vanished`]. It must then not write to the object. What
    /// happens while no process leads is not seen: [the
    /// guide](crate::guide::controllers#objects-that-vanish) has the details. If an effect must never
    /// remain, also compare the effects with the objects from time to time.
    ///
    /// [kubernetes/kubernetes#77988]: https://github.com/kubernetes/kubernetes/issues/77988
    ///
    /// `name` is a qualified name such as `example.com/team`. A finalizer stays on an object for
    /// which `is_needed` returns `false` later, until the object is deleted.
    ///
    /// The scope of the objects must not have a label or field selector: an object that leaves
    /// the scope would keep its finalizer forever. [`by`](Self::by) returns an error in this case.
    pub fn finalizer(
        mut self,
        name: impl Into<String>,
        is_needed: impl Fn(&T) -> bool + Send + Sync + 'static,
        cleanup: impl Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        T: FullMetadata,
    {
        self.finalizer = Some(Finalizer::new(name.into(), is_needed, cleanup));
        self
    }

    /// Declares names that the [finalizer](Self::finalizer) had in earlier versions of the program.
    ///
    /// An object that has a former name gets the current one instead, in one patch and before the
    /// reconcile function is called. This does not depend on `is_needed`, because the effect that
    /// the finalizer guards may exist. An object that is being deleted cannot get a new finalizer.
    /// The cleanup runs for its former name, and removes it. Other finalizers stay as they are.
    ///
    /// Declare a former name for as long as objects can have it. Without a declaration, an object
    /// with only the former name can never be deleted, and [`remove_finalizers`] is the remedy. A
    /// former name may lack the domain.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::{Controller, ControllerBuilder, ControllerError, Next};
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// fn bucket(builder: ControllerBuilder<ConfigMap>) -> Result<Controller<ConfigMap>, ControllerError> {
    ///     builder
    ///         .finalizer("example.com/bucket", |_| false, |_, _| Ok(Next::Done))
    ///         .former_finalizers(["example.com/s3"])
    ///         .by(|_, _| Ok(Next::Done))
    /// }
    ///
    /// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), bucket)?;
    /// let path = "/api/v1/namespaces/default/configmaps";
    /// let finalizers = json!(["example.com/other", "example.com/s3"]);
    /// test.server().create(path, json!({"metadata": {"name": "a", "finalizers": finalizers}}))?;
    /// test.run_until_idle()?;
    /// let map = test.server().get(&format!("{path}/a"))?;
    /// assert_eq!(map["metadata"]["finalizers"], json!(["example.com/other", "example.com/bucket"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`by`](Self::by) returns an error if there is no finalizer, or if a former name is invalid,
    /// repeated or the current one.
    ///
    /// [`remove_finalizers`]: crate::remove_finalizers
    pub fn former_finalizers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.former_finalizers
            .extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets a callback for keys without an object in the cache. It can be called several times for a
    /// key.
    ///
    /// It is not called for an object that was deleted while the program was down, or whose name is
    /// in use again: use a [finalizer](Self::finalizer) for these. It is also called for an object
    /// that leaves the [scope](Self::scope), and for a queued key that never had an object.
    pub fn on_gone(mut self, on_gone: impl Fn(&Key) + Send + Sync + 'static) -> Self {
        self.on_gone = Box::new(on_gone);
        self
    }

    /// Sets the number of calls that can run at the same time. The default is 1. Calls for the same
    /// key never overlap.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Sets how many calls in a row can overtake a key of lower priority, such as one of the initial
    /// list. Then the key that has waited longest is next. The default is 10 and the minimum is 1.
    /// `usize::MAX` means no limit, as in controller-runtime.
    ///
    /// [The guide](crate::guide::controllers#priorities) describes the priorities.
    pub fn starvation_limit(mut self, calls: usize) -> Self {
        self.starvation_limit = calls;
        self
    }

    /// Sets the time limit of a call. When it elapses, [`Context::stop`] is set, and the excess
    /// is logged and counted. By default there is no limit.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.settings.time_limit = Some(limit);
        self
    }

    /// Sets how long calls in progress can take after a stop, before [`Context::stop`] is set.
    /// The default is 15 seconds.
    ///
    /// [`Controller::run`] waits for the same time again, but at least for a second, and then
    /// returns an error with the keys of the calls. The sum should be shorter than the
    /// `terminationGracePeriodSeconds` of the Pod.
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.settings.grace_period = period;
        self
    }

    /// Sets how long a call waits for a write with an unknown outcome to appear in the cache. The
    /// default is 10 seconds.
    ///
    /// A deletion is awaited for three times this duration, but at least for three seconds. The wait
    /// for a known version of an object has no limit, whatever selectors and shards the scope of the
    /// source has. After this duration, the log has a warning, and later ones at growing intervals.
    pub fn own_writes_timeout(mut self, timeout: Duration) -> Self {
        self.settings.own_writes_timeout = timeout;
        self
    }

    /// Sets how long the first lists can take. After that, [`Controller::run`] fails with the
    /// names of the missing caches and their last errors. The default is 2 minutes.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = timeout;
        self
    }

    /// Sets the back-off of failed keys. The default is 5 ms after the first failure, twice as
    /// long after each further one, up to 1000 s, as in controller-runtime.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<Key>) -> Self {
        self.limiter = Some(Arc::new(limiter));
        self
    }

    /// Sets the provider of the metrics of the controller and its queue.
    pub fn metrics(mut self, provider: Arc<dyn ControllerMetricsProvider>) -> Self {
        self.metrics = Some(provider);
        self
    }

    /// Sets the field manager of [`Context::apply`]. The default is the name of the controller.
    ///
    /// It must be the same in all versions of the program: the server keeps the fields that another
    /// name has applied, and a field that a new version drops would stay forever. It must also
    /// differ from the managers of other programs. If an earlier version has created or patched the
    /// children, use the manager of these writes, which is by default the file name of the program:
    /// the first apply then [takes their fields over](crate::guide::controllers#apply).
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), |builder| {
    ///     builder.owns(Source::of::<Secret>()).field_manager("example.com/passwords").by(|cx, _| {
    ///         cx.apply::<Secret>(json!({"metadata": {"name": cx.name()}, "stringData": {"a": "b"}}))?;
    ///         Ok(Next::Done)
    ///     })
    /// })?;
    /// test.server().create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// let secret = test.server().get("/api/v1/namespaces/default/secrets/a")?;
    /// assert_eq!(secret["metadata"]["managedFields"][0]["manager"], "example.com/passwords");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Sets the clock of retries and time limits, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the reconcile function, and builds the controller.
    ///
    /// The function receives the cached object and makes the actual state equal to the desired
    /// state. It must not depend on which change caused the call. Without a
    /// [finalizer](Self::finalizer), it is also called for objects that are being deleted. A panic
    /// is caught and counts as a failure.
    ///
    /// # Errors
    ///
    /// Returns an error if the description is contradictory; its message says what to change.
    /// Returns an error if an informer cannot be created.
    pub fn by(
        mut self,
        reconcile: impl Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync + 'static,
    ) -> Result<Controller<T>, ControllerError> {
        self.check()?;
        if let Some(finalizer) = &mut self.finalizer {
            finalizer.former = std::mem::take(&mut self.former_finalizers);
        }
        // The informers, first that of the primary objects. None of them has a handler yet.
        let (factory, owns_factory) = match self.factory.take() {
            Some(factory) => (factory, OwnsFactory::No),
            None => {
                let own = SharedInformerFactory::new(self.client.clone());
                (own, OwnsFactory::Yes)
            }
        };
        let (informer, added) = self.add_sources(&factory)?;
        let (sources, handlers): (Vec<_>, _) = added.into_iter().unzip();
        let (queue, metrics) = self.queue();
        // What each call uses.
        let reconciler = Reconciler {
            lister: informer.lister(),
            on_gone: self.on_gone,
            finalizer: self.finalizer,
            reconcile: Box::new(reconcile),
        };
        let events = self.probe.as_ref().map(|probe| Arc::clone(&probe.events));
        let core = Core {
            field_manager: self.field_manager.unwrap_or_else(|| self.name.clone()),
            name: self.name,
            kind: self.kind,
            client: self.client,
            sources: sources.into(),
            clock: self.clock,
            events: Events::new(events),
            meter: Meter::new(metrics),
        };
        let parts = LoopParts {
            settings: self.settings,
            core: Arc::new(core),
            queue,
            reconciler: Arc::new(reconciler),
            probe: self.probe.map(Arc::new),
        };
        let runner = Runner::new(parts, factory, owns_factory, self.sync_timeout, handlers)?;
        let runner = Arc::new(runner);
        if let Some(register) = self.register {
            register(&runner)?;
        }
        Ok(Controller { runner, informer })
    }

    /// Creates the informers of all sources. Returns that of the primary objects, which is the first
    /// source.
    fn add_sources(
        &mut self,
        factory: &SharedInformerFactory,
    ) -> Result<(SharedIndexInformer<T>, Vec<AddedSource>), ControllerError> {
        let mut primary = informer_source(factory, self.source.clone(), false);
        (primary.role, primary.kind_scope) = (Role::Primary, self.kind_scope);
        let informer = primary.informer.clone();
        let keys = |object: &T| vec![meta_namespace_key(object)];
        let is_held = self.finalizer.as_ref().map(Finalizer::is_held);
        let mut added = vec![added_source(primary, keys, self.filter.take(), is_held)];
        let setup = Setup {
            name: &self.name,
            factory,
            owner: self.kind.clone().zip(self.kind_scope),
        };
        for add in std::mem::take(&mut self.others) {
            added.push(add(&setup)?);
        }
        Ok((informer, added))
    }

    /// Returns the settings of the queues, and the metrics of the controller.
    fn queue(&mut self) -> (QueueSettings, Option<MetricsOf>) {
        let (mut of_queue, mut of_controller) = (None, None);
        if let Some(provider) = &self.metrics {
            of_controller = provider.controller_metrics(&self.name);
            let queue_metrics = catch(|| provider.work_queue_metrics(&self.name));
            of_queue = queue_metrics.unwrap_or_else(|panic| {
                log::error!("controller {:?}: the metrics provider {panic}", self.name);
                None
            });
        }
        let limiter = self.limiter.take().unwrap_or_else(|| {
            let delays = Duration::from_millis(5)..=Duration::from_secs(1000);
            Arc::new(ItemExponentialFailureRateLimiter::new(delays))
        });
        let queue = QueueSettings {
            name: self.name.clone(),
            clock: Arc::clone(&self.clock),
            starvation_limit: self.starvation_limit,
            limiter,
            metrics: of_queue,
            is_sorted: self.probe.is_some(),
        };
        (queue, of_controller)
    }

    fn invalid<R>(&self, problem: impl Into<String>) -> Result<R, ControllerError> {
        Err(ControllerError::invalid(&self.name, problem))
    }

    fn check(&self) -> Result<(), ControllerError> {
        if self.name.is_empty() {
            return self.invalid("the name is empty");
        }
        if self.settings.workers == 0 {
            return self.invalid("0 workers would reconcile nothing: use at least 1");
        }
        if self.settings.time_limit == Some(Duration::ZERO) {
            return self.invalid("a time limit of 0 would end every call at once");
        }
        let Some(of) = &self.finalizer else {
            return match self.former_finalizers.is_empty() {
                true => Ok(()),
                false => self.invalid("former finalizers need a current one: call `finalizer`"),
            };
        };
        for (at, former) in self.former_finalizers.iter().enumerate() {
            let problem = if !is_qualified_name(former) {
                "not a qualified name: use a name that objects have"
            } else if *former == of.name {
                "also the current name: use only names that differ from it"
            } else if self.former_finalizers[..at].contains(former) {
                "repeated: name it once"
            } else {
                continue;
            };
            return self.invalid(format!("the former finalizer {former:?} is {problem}"));
        }
        self.check_finalizer(&of.name)
    }

    fn check_finalizer(&self, name: &str) -> Result<(), ControllerError> {
        if !patches::valid_name(name) {
            return self.invalid(format!(
                "the finalizer {name:?} is not a qualified name: use a domain and a name, such as \"example.com/team\""
            ));
        }
        let scope = match &self.factory {
            Some(factory) => factory.effective_scope(&self.source),
            None => self.source.own_scope().cloned().unwrap_or_default(),
        };
        let selected = scope.list_options();
        if selected.label_selector.is_none() && selected.field_selector.is_none() {
            return Ok(());
        }
        self.invalid(format!(
            "the finalizer {name:?} needs a scope without selectors: an object that leaves the scope would never be \
             deleted; watch all objects and let the predicate of the finalizer select"
        ))
    }
}

fn added_source<C: Object + DeserializeOwned>(
    source: InformerSource<C>,
    keys: impl Fn(&C) -> Vec<Key> + Send + Sync + 'static,
    filter: Option<UpdateFilter<C>>,
    is_held: Option<IsHeld<C>>,
) -> AddedSource {
    let informer = source.informer.clone();
    let keys: KeysOf<C> = Arc::new(keys);
    let add_handler = move |reconcile_loop: &Arc<ReconcileLoop>, at: usize| {
        let handler = Enqueue {
            reconcile_loop: Arc::downgrade(reconcile_loop),
            source: at,
            keys: Arc::clone(&keys),
            filter: filter.clone(),
            is_held: is_held.clone(),
        };
        let options = HandlerOptions::new().name(&reconcile_loop.core.name);
        let registration = informer.add_handler_with_options(handler, options)?;
        let probe = reconcile_loop.probe.as_ref();
        probe.inspect(|probe| (probe.handler_added)(registration.clone()));
        let own_writes = Arc::downgrade(&reconcile_loop.own_writes);
        let optional = Arc::downgrade(&reconcile_loop.optional);
        let check = move || {
            let optional = optional.upgrade();
            optional.inspect(|optional| optional.check_after(at, Duration::ZERO));
        };
        let synced = informer.synced().on_done(check.clone());
        let errors = informer.on_error(move |error| {
            own_writes.upgrade().inspect(|of| of.source_failed(at));
            if error.is_not_found() {
                check();
            }
        });
        let informer = informer.clone();
        let remove = move || {
            drop((errors, synced));
            informer.remove_event_handler(&registration);
        };
        Ok(Box::new(remove) as RemoveHandler)
    };
    (Arc::new(source), Box::new(add_handler))
}

fn informer_source<C: Object + DeserializeOwned>(
    factory: &SharedInformerFactory,
    source: Source<C>,
    is_optional: bool,
) -> InformerSource<C> {
    let (resource, kind) = (source.resource().clone(), source.kind().cloned());
    let kind_scope = source.kind_scope();
    let scope = factory.effective_scope(&source);
    let mut source = InformerSource::new(factory.informer_for(source), resource, kind, scope);
    if is_optional {
        source.set_optional();
    }
    source.kind_scope = kind_scope;
    source
}

impl<T> fmt::Debug for ControllerBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
