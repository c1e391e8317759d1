pub(crate) mod apply;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::apply::{Applied, Apply, ApplyOptions};
use crate::controller::call::calls::Call;
use crate::controller::call::outcome::Failure;
use crate::controller::objects::owner;
use crate::controller::sources::source::{AnySource, InformerSource, OWNER_INDEX, PRIMARY};
use crate::controller::writes::own_writes::{KeyWrites, OwnWrites};
use crate::events::{EventError, EventRecorder};
use k8s_informer::client::Client;
use k8s_informer::client::api::{Api, WriteOutcome};
use k8s_informer::error::Error;
use k8s_informer::object::{
    DynamicObject, FullMetadata, GroupVersionResource, Key, Object, ObjectName, OwnerReference,
    Resource,
};
use k8s_informer::stop::Stop;
use k8s_informer::store::{IndexError, Lister};
use k8s_informer::time::Clock;

/// The context of one reconcile call: reads the caches, and writes through the client.
///
/// Writes through [`apply`](Self::apply), [`api`](Self::api) and [`dynamic_api`](Self::dynamic_api)
/// are recorded. The next call for the same key waits until the caches of this controller contain
/// them, so it sees the successful writes of earlier calls. A write with an unknown outcome and a
/// deletion are awaited for a [limited time](crate::ControllerBuilder::own_writes_timeout). Writes
/// to other kinds than those of the controller's sources are not awaited.
///
/// `Display` writes the controller, the key and the attempt, for log messages.
///
/// ```
/// use k8s_informer::client::api::Patch;
/// use k8s_informer::informer::Source;
/// use k8s_informer::object::GroupVersionResource;
/// use k8s_informer::{Client, Config, Object, Stopper};
/// use k8s_informer_controller::{Controller, Failure, Next};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use serde_json::json;
/// use std::sync::mpsc;
///
/// let server = ApiServer::start()?;
/// server.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "settings"}}))?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (sender, results) = mpsc::channel();
/// let maps = Controller::builder(&client, Source::of::<ConfigMap>(), "maps")
///     .watches(Source::of::<Namespace>(), |_| None)
///     .by(move |cx, map| {
///         if cx.attempt() == 1 {
///             return Err(Failure::new("not yet")); // The second call is the first retry.
///         }
///         cx.ensure()?; // Without leader election, this always succeeds.
///         let namespace = cx.lister::<Namespace>().get_by_key(cx.namespace());
///         assert!(namespace.is_some_and(|namespace| namespace.name() == "default"));
///         let maps = GroupVersionResource::new("", "v1", "configmaps");
///         let patch = Patch::merge(json!({"data": {"seen": "true"}}));
///         let patched = cx.dynamic_api(&maps, Some(cx.namespace())).patch(cx.name(), &patch, cx.stop())?;
///         // This read is newer than the cache, which the next call reads.
///         assert_eq!(cx.client().api::<ConfigMap>(Some("default")).get(map.name(), cx.stop())?.uid(), patched.uid());
///         sender.send(cx.to_string())?;
///         Ok(Next::Done)
///     })?;
///
/// let stop = Stopper::new();
/// let running = std::thread::spawn({ let (maps, stop) = (maps.clone(), stop.signal()); move || maps.run(&stop) });
/// assert_eq!(results.recv()?, r#"controller "maps", key "default/settings", attempt 2"#);
/// stop.stop();
/// running.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Context {
    pub(crate) call: Call,
    /// Ends with the call. `writes` is weak, because the program can keep an `Api` that has it.
    own_writes: Arc<OwnWrites>,
    writes: Arc<KeyWrites>,
    /// The UID of the object. Empty if it is gone.
    pub(crate) uid: String,
    pub(crate) has_vanished: bool,
}

impl Context {
    pub(crate) fn new(call: Call, own_writes: &Arc<OwnWrites>) -> Self {
        Self {
            writes: Arc::new(KeyWrites::new(own_writes, &call.key)),
            own_writes: Arc::clone(own_writes),
            call,
            uid: String::new(),
            has_vanished: false,
        }
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn writes(&self) -> &KeyWrites {
        &self.writes
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &Key {
        &self.call.key
    }

    /// Returns the namespace of the object, empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.key().namespace()
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        self.key().name()
    }

    /// Returns the name of the controller.
    pub fn controller(&self) -> &str {
        &self.call.core().name
    }

    /// Returns the number of this call: 1 for the first call after a success, 2 for the first
    /// retry.
    pub fn attempt(&self) -> usize {
        self.call.attempt
    }

    /// Whether this is the cleanup of an object that has vanished: the server has removed it although
    /// the [finalizer](crate::ControllerBuilder::finalizer) was on it.
    ///
    /// The object of the call is its last known state. A cleanup must not write to it: the server
    /// responds with 404, or changes a new object of this name. [`children`](Self::children) still
    /// returns its children, which the garbage collector deletes.
    ///
    /// ```
    /// use k8s_informer::Object;
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::sync::mpsc;
    ///
    /// let (sender, cleanups) = mpsc::channel();
    /// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), move |builder| {
    ///     let sender = sender.clone();
    ///     let cleanup = move |cx: &k8s_informer_controller::Context, map: &std::sync::Arc<ConfigMap>| {
    ///         sender.send((map.name().to_owned(), cx.has_vanished()))?;
    ///         Ok(Next::Done)
    ///     };
    ///     builder.finalizer("example.com/bucket", |_| true, cleanup).by(|_, _| Ok(Next::Done))
    /// })?;
    /// let path = "/api/v1/namespaces/default/configmaps";
    /// for name in ["a", "b"] {
    ///     test.server().create(path, json!({"metadata": {"name": name}}))?;
    /// }
    /// test.run_until_idle()?;
    /// test.server().delete(&format!("{path}/a"))?;
    /// test.run_until_idle()?;
    /// test.server().vanish(&format!("{path}/b"))?;
    /// test.run_until_idle()?;
    /// assert_eq!(cleanups.try_iter().collect::<Vec<_>>(), [("a".to_owned(), false), ("b".to_owned(), true)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_vanished(&self) -> bool {
        self.has_vanished
    }

    /// Reads the UID of the object with the name of this call from the server, not from the cache.
    /// Returns `None` if there is none.
    pub(crate) fn current_uid(&self) -> Result<Option<String>, Error> {
        let namespace = Some(self.namespace());
        let api = self.client().metadata_api(self.resource(), namespace);
        match api.get(self.name(), self.stop()) {
            Ok(found) => Ok(Some(found.uid().to_owned())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the signal that ends this call. Pass it to requests and waits.
    ///
    /// It is set when the [time limit](crate::ControllerBuilder::time_limit) of the call elapses,
    /// when the grace period after a stop elapses, and when the program loses its leadership.
    pub fn stop(&self) -> &Stop {
        &self.call.stop
    }

    /// Returns the clock of the controller. Read the time from it, so that a test can set it:
    /// [`ControllerTest`](https://docs.rs/k8s-informer-testing/0.1/k8s_informer_testing/struct.ControllerTest.html) advances this clock.
    ///
    /// The reconciler of a controller-runtime project has a clock as a field for this purpose.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// const HOUR: Duration = Duration::from_secs(3600);
    ///
    /// let (sender, times) = mpsc::channel();
    /// let mut test = ControllerTest::new(Source::of::<Node>(), move |builder| {
    ///     let sender = sender.clone();
    ///     builder.by(move |cx, _| {
    ///         sender.send(cx.clock().wall_clock())?;
    ///         Ok(Next::After(HOUR))
    ///     })
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.advance(HOUR)?;
    /// assert_eq!(times.recv()? + HOUR, times.recv()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock(&self) -> &dyn Clock {
        &*self.call.core().clock
    }

    /// Returns an error if this program is not the leader any more. Call it before an effect
    /// outside the cluster that two programs must not cause at the same time.
    ///
    /// Without leader election it always succeeds. [`Leading::ensure`] documents what the check can
    /// guarantee.
    ///
    /// [`Leading::ensure`]: crate::leader_election::Leading::ensure
    ///
    /// # Errors
    ///
    /// Fails like [`Leading::ensure`].
    pub fn ensure(&self) -> Result<(), Failure> {
        match self.call.leading() {
            Some(leading) => Ok(leading.ensure()?),
            None => Ok(()),
        }
    }

    /// Returns an [`Api`] whose writes are recorded. [`Client::api`] documents the arguments.
    ///
    /// [`Api::delete_collection`] is not recorded. Of the subresources that can only be created,
    /// `eviction` and `binding` are.
    pub fn api<C: Resource>(&self, namespace: Option<&str>) -> Api<C> {
        self.observed(self.client().api(namespace))
    }

    /// Returns an [`Api`] for a resource chosen at run time, whose writes are recorded.
    pub fn dynamic_api(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        self.observed(self.client().dynamic_api(resource, namespace))
    }

    /// Returns an [`Api`] for the objects of the controller, whose writes are recorded.
    pub(crate) fn own_api<C: Object>(&self) -> Api<C> {
        let namespace = Some(self.namespace());
        self.observed(self.client().dynamic_api_as(self.resource(), namespace))
    }

    /// Records that this call has removed its object.
    pub(crate) fn deleted(&self, uid: &str) {
        let object = ObjectName::new(self.namespace(), self.name());
        let outcome = WriteOutcome::Deleted { uid };
        self.writes.record(self.resource(), object, &outcome);
    }

    /// Returns the resource of the objects of the controller.
    fn resource(&self) -> &GroupVersionResource {
        self.call.core().sources[PRIMARY].resource()
    }

    fn observed<C>(&self, api: Api<C>) -> Api<C> {
        api.observed_by(Arc::clone(&self.writes) as _)
    }

    /// Returns the recorder of the controller, for events about its objects. The first use starts
    /// its thread.
    ///
    /// It is named after the controller, and uses its client and its clock. When the controller
    /// ends, it writes the waiting events for at most two seconds. [The guide](crate::guide::events)
    /// describes which events become one, and the permissions.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of the controller is not a qualified name, such as
    /// `example.com/team`, or if the system cannot start a thread.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Failure;
    /// use k8s_informer_controller::events::EventType;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), |builder| {
    ///     builder.by(|cx, map| {
    ///         cx.events()?.event(&**map, EventType::Warning, "NoData", "the map is empty")?;
    ///         Err(Failure::terminal("no data"))
    ///     })
    /// })?;
    /// test.server().create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!(test.events(), ["Warning NoData ConfigMap default/a: the map is empty"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "GetEventRecorder")]
    pub fn events(&self) -> Result<&EventRecorder, EventError> {
        self.call.core().recorder()
    }

    /// Returns the client. Writes through it are not recorded.
    ///
    /// With leader election, it is [gated](Client::gated), as all that a context sends: it changes
    /// nothing before the term of this call is valid or after its end. A request then fails with an
    /// [`is_not_leading`](k8s_informer::Error::is_not_leading) error. Clones of it keep the gate.
    pub fn client(&self) -> &Client {
        self.call.client()
    }

    /// Returns the cached objects of type `C` that this object controls, sorted by key: their
    /// controller owner reference has the UID of this object. Objects that are being deleted are
    /// included. An [optional](crate::ControllerBuilder::owns_optional) kind that is missing has none.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::Unindexed`] if the owner of a cached object could not be read, because an
    /// accessor of its type panicked. The object might be a child.
    ///
    /// # Panics
    ///
    /// Panics if the controller does not own objects of this type: call
    /// [`owns`](crate::ControllerBuilder::owns).
    pub fn children<C: Object + DeserializeOwned>(&self) -> Result<Vec<Arc<C>>, IndexError> {
        let mut children = Vec::new();
        for (_, source) in self.owned_sources::<C>() {
            if !source.exists() {
                continue;
            }
            let lister = source.informer.lister();
            children.extend(lister.by_complete_index(OWNER_INDEX, &self.uid)?);
        }
        let order = |child: &Arc<C>| {
            let names = [child.namespace(), child.name(), child.uid()];
            names.map(str::to_owned)
        };
        children.sort_by_cached_key(order);
        // Two sources can contain the same object.
        children.dedup_by(|a, b| a.uid() == b.uid());
        Ok(children)
    }

    /// Returns the cache of the first source with objects of type `C`: first the objects of the
    /// controller, then those of `owns` and `watches`, in the order of the calls. If several sources
    /// have the type [`DynamicObject`], use custom structs with
    /// [`Source::dynamic_as`](k8s_informer::informer::Source::dynamic_as) to tell them apart.
    ///
    /// # Panics
    ///
    /// Panics if the controller has no such source, or only optional ones.
    pub fn lister<C: Object + DeserializeOwned>(&self) -> Lister<C> {
        let mut sources = self.sources::<C>();
        match sources.find(|(_, source)| !source.is_optional()) {
            Some((_, source)) => source.informer.lister(),
            None => panic!(
                "the controller {:?} has no source of type {}: call `owns` or `watches` when you build it; for an optional one, \
                 call `Context::optional`",
                self.controller(),
                std::any::type_name::<C>()
            ),
        }
    }

    /// Returns the cache of an [optional](crate::ControllerBuilder::watches_optional) kind, or `None`
    /// while the kind is missing. What is missing then does not look deleted.
    ///
    /// # Panics
    ///
    /// Panics if the controller has no optional source of this type, or those of several resources:
    /// give each a custom struct with
    /// [`Source::dynamic_as`](k8s_informer::informer::Source::dynamic_as).
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer::object::FullObjectMeta;
    /// use k8s_informer::{impl_full_metadata, impl_object};
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::Node;
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Certificate {
    ///     metadata: FullObjectMeta,
    /// }
    /// impl_object!(Certificate, "cert-manager.io/v1", "Certificate", "certificates", Namespaced);
    /// impl_full_metadata!(Certificate);
    ///
    /// let mut test = ControllerTest::new(Source::of::<Node>(), |controller| {
    ///     controller.watches_optional(Source::of::<Certificate>(), |_| None).by(|cx, _| {
    ///         assert!(cx.optional::<Certificate>().is_none(), "cert-manager is not installed");
    ///         Ok(Next::Done)
    ///     })
    /// })?;
    /// test.server().create("/api/v1/nodes", json!({"metadata": {"name": "a"}}))?;
    /// test.run_until_idle()?;
    /// assert!(test.controller().last_failure("a").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn optional<C: Object + DeserializeOwned>(&self) -> Option<Lister<C>> {
        let (controller, of) = (self.controller(), std::any::type_name::<C>());
        let sources = self.sources::<C>();
        let mut sources = sources.filter(|(_, source)| source.is_optional());
        let Some((_, source)) = sources.next() else {
            panic!(
                "the controller {controller:?} has no optional source of type {of}: call `owns_optional` or `watches_optional` \
                 when you build it"
            );
        };
        // The answer for another kind would be wrong.
        if let Some((_, other)) = sources.find(|(_, other)| other.resource != source.resource) {
            panic!(
                "the controller {controller:?} has several optional kinds of type {of}, {} and {}: give each a custom struct \
                 with `Source::dynamic_as`",
                source.resource, other.resource
            );
        }
        source.exists().then(|| source.informer.lister())
    }

    /// Whether the object of this call controls `child`: the controller owner reference of `child`
    /// has the UID of this object.
    ///
    /// Call it before you change an object with a predictable name, because it may belong to
    /// someone else. It returns `false` if the metadata of `child` cannot be decoded. It
    /// corresponds to client-go's `IsControlledBy`.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::{Failure, Next};
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), |controller| {
    ///     controller.owns(Source::of::<Deployment>()).by(|cx, _| {
    ///         match cx.lister::<Deployment>().get(cx.namespace(), cx.name()) {
    ///             Some(found) if !cx.controls(&*found) => Err(Failure::terminal("not ours")),
    ///             _ => Ok(Next::Done),
    ///         }
    ///     })
    /// })?;
    /// let web = json!({"metadata": {"name": "web"}});
    /// test.server().create("/apis/apps/v1/namespaces/default/deployments", web.clone())?;
    /// test.server().create("/api/v1/namespaces/default/configmaps", web)?;
    /// test.run_until_idle()?;
    /// let last = test.controller().last_failure("default/web").unwrap();
    /// assert_eq!(last.failure.to_string(), "not ours");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn controls(&self, child: &impl FullMetadata) -> bool {
        let is_self = |of: &OwnerReference| of.uid == self.uid && !of.uid.is_empty();
        let metadata = child.full_metadata();
        metadata.is_ok_and(|child| child.controller().is_some_and(is_self))
    }

    /// Returns the sources with objects of type `C`, with their positions.
    fn sources<C: 'static>(&self) -> impl Iterator<Item = (usize, &InformerSource<C>)> {
        let sources = self.call.core().sources.iter().enumerate();
        sources.filter_map(|(at, source)| Some((at, source.as_any().downcast_ref()?)))
    }

    /// Returns those of them that were added with `owns`. Panics if there are none.
    fn owned_sources<C: 'static>(&self) -> Vec<(usize, &InformerSource<C>)> {
        let owned = self.sources().filter(|(_, source)| source.has_owner_index);
        let owned: Vec<_> = owned.collect();
        assert!(
            !owned.is_empty(),
            "the controller {:?} owns no objects of type {}: call `owns` when you build it",
            self.controller(),
            std::any::type_name::<C>()
        );
        owned
    }

    /// Makes a child have these fields, with a server-side apply, and creates it if it does not
    /// exist. Sends nothing if that would change nothing.
    ///
    /// `child` is anything that serializes to an object with the fields that you want, such as
    /// `json!`. `C` is the type of a source of [`owns`](crate::ControllerBuilder::owns). The child
    /// gets its kind, and the namespace and the owner reference of [`owned`](Self::owned). With a
    /// dynamic source, the child needs an `apiVersion` and a `kind`. If several dynamic sources of
    /// the type have its group and version, discovery tells which resource has the kind. To choose
    /// it by the type, give each a custom struct with
    /// [`Source::dynamic_as`](k8s_informer::informer::Source::dynamic_as). Fields that the last
    /// apply had and this one lacks are removed, unless another manager owns them. Leave out the status: the
    /// server ignores it if it is a subresource. The field manager is that of the
    /// [builder](crate::ControllerBuilder::field_manager).
    ///
    /// Nothing is sent if the controller has sent the same before, and the cached object is the one
    /// in the answer. The status may differ, unless `C` drops fields of the object. After a
    /// restart, each object is applied once. If that changes nothing, the server writes nothing. If
    /// the cache has no object, a GET comes first. If the same manager has created, updated or
    /// patched fields of the object before, the first apply takes them over, with two more requests:
    /// they count as fields of the last apply. [The guide](crate::guide::controllers#apply)
    /// says more.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::Next;
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use k8s_openapi::api::core::v1::Service;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Deployment>(), |builder| {
    ///     builder.owns(Source::of::<Service>()).by(|cx, _| {
    ///         let service = json!({"metadata": {"name": cx.name()}, "spec": {"ports": [{"port": 80}]}});
    ///         cx.apply::<Service>(service)?;
    ///         Ok(Next::Done)
    ///     })
    /// })?;
    /// test.server().create("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": {"name": "web"}}))?;
    /// test.run_until_idle()?;
    /// assert_eq!((test.calls("default/web"), test.writes().len()), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of the request. It is a [conflict](k8s_informer::Error::is_conflict) if
    /// another manager owns a field with another value. Returns a
    /// [terminal](Failure::is_terminal) error if an object of this name has another controller or
    /// none, if no source fits the child, or if the child has no name or a resource version.
    /// An object that an earlier owner of the same kind and name controls is an error that is
    /// retried: the garbage collector deletes it. Returns the errors of [`owned`](Self::owned).
    ///
    /// # Panics
    ///
    /// Panics if the controller does not own objects of this type.
    pub fn apply<C: FullMetadata + DeserializeOwned + Serialize>(
        &self,
        child: impl Serialize,
    ) -> Result<Applied, Failure> {
        self.apply_with::<C>(child, ApplyOptions::new())
    }

    /// Like [`apply`](Self::apply), with options. [`ApplyOptions::force`] has an example.
    ///
    /// # Errors
    ///
    /// Fails like [`apply`](Self::apply).
    pub fn apply_with<C: FullMetadata + DeserializeOwned + Serialize>(
        &self,
        child: impl Serialize,
        options: ApplyOptions,
    ) -> Result<Applied, Failure> {
        let owner = self.owner()?;
        let mut child = self.owned(child)?;
        let sources = self.owned_sources::<C>();
        let (at, source) = apply::source_of(&self.call, &sources, &mut child)?;
        let target = apply::target_of(&child)?;
        let key = target.to_key();
        let cached = source.informer.lister().get_by_key(&key);
        let apply = Apply {
            call: &self.call,
            owner: &owner,
            api: self.dynamic_api(&source.resource, Some(&target.namespace)),
            target,
            id: (at, key),
            source,
            applied: &self.own_writes.applied,
            options,
        };
        apply.run(child, cached)
    }

    /// Returns `child` with an owner reference to the object of this call, as its controller.
    /// Create the result.
    ///
    /// The garbage collector deletes the child after its owner, and changes of the child reconcile
    /// the owner.
    ///
    /// # Errors
    ///
    /// Returns an error if `child` is not an object, has another controller, or is in another
    /// namespace than its namespaced owner. An earlier object of the same kind and name is not
    /// another controller: its reference is replaced.
    #[doc(alias = "set_controller_reference")]
    pub fn owned(&self, child: impl Serialize) -> Result<Value, Failure> {
        let child = serde_json::to_value(child).map_err(|_| {
            Error::other(
                "the child can't be serialized as JSON: its Serialize implementation failed",
            )
        })?;
        Ok(owner::owned(child, &self.owner()?, self.namespace())?)
    }

    /// Returns a reference to the object of this call.
    fn owner(&self) -> Result<OwnerReference, Failure> {
        match &self.call.core().kind {
            Some(kind) => Ok(OwnerReference::new(kind, self.name(), &self.uid)),
            None => Err(Failure::terminal(
                "the kind of the owner is unknown: call `kind` when you build the controller",
            )),
        }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.call, f)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.call, f)
    }
}
