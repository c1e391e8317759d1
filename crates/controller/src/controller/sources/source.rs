//! One informer of a controller, with and without the type of its objects.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::division::{Division, Indivisible, Role, ShardBy};
use super::presence::Presence;

use k8s_informer::error::WaitError;
use k8s_informer::informer::{InformerError, InformerScope, SharedIndexInformer};
use k8s_informer::object::{
    GroupVersionKind, GroupVersionResource, Key, Object, ResourceVersion, Scope, meta_namespace_key,
};
use k8s_informer::reflector::{ReflectorState, ReflectorStatus, Shard};
use k8s_informer::selector::Selector;
use k8s_informer::stop::Done;
use k8s_informer::stop::Stop;
use k8s_informer::store::AddIndexersError;

/// The sources of a controller.
pub(crate) type Sources = Arc<[Arc<dyn AnySource>]>;

/// The position of the source of the primary objects. An object and its key belong together there.
pub(crate) const PRIMARY: usize = 0;

/// The index of children by the UID of their controllers. Controllers that share an informer share
/// the index.
pub(crate) const OWNER_INDEX: &str = "k8s-informer/controller-uid";

/// An informer of a controller, without its type.
pub(crate) trait AnySource: Send + Sync {
    fn resource(&self) -> &GroupVersionResource;

    /// Whether the cache gets the new state of a written object.
    fn coverage(&self, object: &dyn Object) -> Coverage;

    /// Whether the cache can get an object of this namespace. It can't while an optional kind is
    /// missing.
    fn covers_namespace(&self, namespace: &str) -> bool;

    /// Returns the UID and the resource version of a cached object.
    fn cached(&self, key: &str) -> Option<(String, String)>;

    /// Whether the cache contains all changes in `namespace` up to this version.
    fn has_processed(&self, namespace: &str, version: &str) -> bool;

    fn name(&self) -> &str;

    fn status(&self) -> ReflectorStatus;

    /// The status of the part with this namespace.
    fn status_of(&self, namespace: &str) -> ReflectorStatus;

    /// Waits until the cache has this version, and returns the version that it has then.
    fn wait_for_version(
        &self,
        version: &ResourceVersion,
        timeout: Duration,
    ) -> Result<Option<ResourceVersion>, WaitError>;

    /// Waits until the cache contains everything that was committed before `since`.
    fn wait_until_current(&self, since: Instant, stop: &Stop) -> Result<(), WaitError>;

    /// The newest version that a part of the cache has, or `None` if a part has none.
    fn newest_version(&self) -> Option<ResourceVersion>;

    fn len(&self) -> usize;

    /// The signal of the first sync. It also identifies the informer.
    fn synced(&self) -> &Done;

    /// The keys of the cached objects.
    fn keys(&self) -> Vec<Key>;

    /// Whether the cache has a complete list, and the informer watches.
    fn is_listed(&self) -> bool;

    /// Whether the source is one of `owns`, and its type does not define its kind.
    fn is_of_unknown_kind(&self) -> bool;

    /// Whether the kind exists, as [`OptionalKinds`](super::optional::OptionalKinds) has found out.
    /// `None` for a required kind.
    fn presence(&self) -> Option<&Presence>;

    /// Whether the kind may be missing. The start waits for the caches of all other kinds.
    fn is_optional(&self) -> bool {
        self.presence().is_some()
    }

    /// Whether calls see the objects: always, but for an optional kind that is missing.
    fn exists(&self) -> bool {
        self.presence().is_none_or(Presence::exists)
    }

    /// Returns a signal for a wait of the start for this source: it is set with `stop`, and when an
    /// optional kind turns out to be missing. `None` if the kind is missing already.
    fn awaits(&self, stop: &Stop) -> Option<Stop> {
        match self.presence() {
            None => Some(stop.child().signal()),
            Some(presence) => presence.awaits(stop),
        }
    }

    /// Whether the source does not keep a replica from being ready.
    fn is_ready(&self, now: Instant) -> bool {
        let is_excused = |presence: &Presence| presence.excuses(&self.status(), now);
        self.synced().is_done() || self.presence().is_some_and(is_excused)
    }

    /// Whether the status of a replica shows the kind as missing.
    fn shows_missing(&self, status: &ReflectorStatus) -> bool {
        self.presence()
            .is_some_and(|presence| presence.shows_missing(status))
    }

    /// Returns how the objects are divided, or what prevents it.
    fn division(&self, by: ShardBy) -> Result<Division, Indivisible>;

    /// Restricts the informer, which has not started, to the objects of a shard.
    fn divide(&self, division: Division, shard: Shard) -> Result<(), InformerError>;

    /// Whether the object with this key may be one of this source. The objects of other shards are
    /// not.
    fn may_have(&self, key: &Key) -> bool;

    fn as_any(&self) -> &dyn Any;
}

/// Whether the cache of an informer gets an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    Yes,
    No,
    /// Only the server can evaluate the field selector or the shard. The watch may deliver nothing,
    /// but the cache can prove that it has processed a version.
    Unknown,
}

/// An informer of a controller.
pub(crate) struct InformerSource<T> {
    pub(crate) informer: SharedIndexInformer<T>,
    pub(crate) resource: GroupVersionResource,
    /// `None` for a dynamic source.
    pub(crate) kind: Option<GroupVersionKind>,
    pub(crate) scope: InformerScope,
    /// The parsed label selector of the scope.
    pub(crate) labels: Selector,
    pub(crate) has_owner_index: bool,
    presence: Option<Presence>,
    pub(crate) role: Role,
    pub(crate) kind_scope: Option<Scope>,
    division: OnceLock<(Division, Shard)>,
}

impl<T: Object + DeserializeOwned> InformerSource<T> {
    pub(crate) fn new(
        informer: SharedIndexInformer<T>,
        resource: GroupVersionResource,
        kind: Option<GroupVersionKind>,
        scope: InformerScope,
    ) -> Self {
        // An unparsable selector cannot occur: the scope was built from a `Selector`.
        let labels = scope
            .list_options()
            .label_selector
            .and_then(|selector| selector.parse().ok())
            .unwrap_or_else(Selector::everything);
        Self {
            informer,
            resource,
            kind,
            scope,
            labels,
            has_owner_index: false,
            presence: None,
            role: Role::Watched,
            kind_scope: None,
            division: OnceLock::new(),
        }
    }

    /// Lets the kind be missing.
    pub(crate) fn set_optional(&mut self) {
        self.informer.expect_missing_kind();
        self.presence = Some(Presence::default());
    }

    /// Adds the index of children. Another controller with the same informer may have added it.
    pub(crate) fn add_owner_index(
        &mut self,
        uid: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        self.has_owner_index = true;
        match self.informer.add_index(OWNER_INDEX, uid) {
            Err(InformerError::Index(AddIndexersError::Conflict { .. })) => Ok(()),
            added => added,
        }
    }
}

impl<T: Object + DeserializeOwned> AnySource for InformerSource<T> {
    fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    fn coverage(&self, object: &dyn Object) -> Coverage {
        if !self.covers_namespace(object.namespace()) {
            return Coverage::No;
        }
        if !self.labels.matches(object) {
            // A change of the labels can remove the object from the cache. The watch then delivers
            // a deletion with the version of the change.
            let key = meta_namespace_key(object);
            return match self.cached(&key) {
                Some(_) => Coverage::Yes,
                None => Coverage::No,
            };
        }
        // The watch of children of other shards is not filtered, so it reaches each version.
        if let Some((Division::Uid, shard)) = self.division.get()
            && !shard.contains(object.uid())
        {
            return Coverage::No;
        }
        let has_fields = self.scope.list_options().field_selector.is_some();
        match has_fields || self.scope.selected_shard().is_some() {
            true => Coverage::Unknown,
            false => Coverage::Yes,
        }
    }

    fn covers_namespace(&self, namespace: &str) -> bool {
        if !self.exists() {
            return false;
        }
        if let Some((Division::Namespace, shard)) = self.division.get()
            && !shard.contains(namespace)
        {
            return false;
        }
        let namespaces = self.scope.namespaces();
        namespaces.is_empty() || namespaces.iter().any(|watched| watched == namespace)
    }

    fn cached(&self, key: &str) -> Option<(String, String)> {
        let object = self.informer.lister().get_by_key(key)?;
        Some((
            object.uid().to_owned(),
            object.resource_version().to_owned(),
        ))
    }

    fn has_processed(&self, namespace: &str, version: &str) -> bool {
        ResourceVersion::new(version)
            .is_some_and(|version| self.informer.has_processed(namespace, &version))
    }

    fn name(&self) -> &str {
        self.informer.name()
    }

    fn status(&self) -> ReflectorStatus {
        self.informer.status()
    }

    fn status_of(&self, namespace: &str) -> ReflectorStatus {
        self.informer.status_of(namespace)
    }

    fn wait_for_version(
        &self,
        version: &ResourceVersion,
        timeout: Duration,
    ) -> Result<Option<ResourceVersion>, WaitError> {
        let informer = &self.informer;
        informer.wait_for_resource_version(version, timeout, &Stop::never())?;
        Ok(informer.store_resource_version())
    }

    fn wait_until_current(&self, since: Instant, stop: &Stop) -> Result<(), WaitError> {
        self.informer.wait_for_current_state(since, None, stop)
    }

    fn newest_version(&self) -> Option<ResourceVersion> {
        let parts = self.informer.statuses().into_iter();
        let versions: Option<Vec<_>> = parts.map(|(_, status)| status.resource_version).collect();
        // A status can be behind the cache for a moment.
        let of_cache = self.informer.store_resource_version();
        let newer = |a: ResourceVersion, b: ResourceVersion| if a >= b { a } else { b };
        versions?.into_iter().chain(of_cache).reduce(newer)
    }

    fn len(&self) -> usize {
        self.informer.lister().len()
    }

    fn synced(&self) -> &Done {
        self.informer.synced()
    }

    fn keys(&self) -> Vec<Key> {
        self.informer.lister().list_keys()
    }

    fn is_listed(&self) -> bool {
        let parts = self.informer.statuses();
        !parts.is_empty()
            && parts.iter().all(|(namespace, status)| {
                let namespace = namespace.as_deref().unwrap_or_default();
                let has_processed =
                    |version: &ResourceVersion| self.informer.has_processed(namespace, version);
                status.state == ReflectorState::Watching
                    && status.resource_version.as_ref().is_some_and(has_processed)
            })
    }

    fn is_of_unknown_kind(&self) -> bool {
        self.has_owner_index && self.kind.is_none()
    }

    fn presence(&self) -> Option<&Presence> {
        self.presence.as_ref()
    }

    fn division(&self, by: ShardBy) -> Result<Division, Indivisible> {
        match self.scope.selected_shard() {
            None => Division::of(&self.resource, self.role, self.kind_scope, by),
            Some(_) => Err(Indivisible::HasShard(self.resource.clone())),
        }
    }

    fn divide(&self, division: Division, shard: Shard) -> Result<(), InformerError> {
        self.informer.set_shard(shard.clone())?;
        let _ = self.division.set((division, shard));
        Ok(())
    }

    fn may_have(&self, key: &Key) -> bool {
        match self.division.get() {
            None => true,
            Some((Division::Namespace, shard)) => shard.contains(key.namespace()),
            Some(_) => self.cached(key).is_some(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
