//! Methods of a shared informer that read its state. You can call them at any time.

use std::any::Any;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{NamespaceSource, Running, SharedIndexInformer};
use crate::base::sync::atomic::Ordering;
use crate::error::Error;
use crate::error::{Unsynced, WaitError};
use crate::informer::any_informer::{self, AnyInformer, Awaited, InformerState};
use crate::informer::driver::Driver;
use crate::informer::error::InformerError;
use crate::informer::wait::SyncOptions;
use crate::object::Object;
use crate::reflector::{ReflectorState, ReflectorStatus};
use crate::resource_version::ResourceVersion;
use crate::stop::{Done, Stop};
use crate::store::{IndexFunc, Indexers, Lister};

impl<T: Object> SharedIndexInformer<T> {
    /// Returns read access to the cache, which is empty before the informer runs. Only the informer
    /// writes to it. client-go's `GetIndexer` and `GetStore`.
    #[doc(alias = "GetIndexer")]
    #[doc(alias = "GetStore")]
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(&self.shared.indexer))
    }

    /// Adds an index. `values` returns the index values of an object.
    ///
    /// You can call this method before the informer runs or while it runs; the objects in the cache
    /// are indexed immediately. `values` runs without any lock while a change is processed, so it must
    /// be fast. If it panics for a later state of an object, the object is cached and delivered, but
    /// this index does not find it. See [`IndexFunc`](crate::store::IndexFunc).
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped, if an index of this name exists, or if `values` panics on
    /// an object in the cache.
    pub fn add_index(
        &self,
        name: &str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        self.add_indexers(Indexers::new().with(name, IndexFunc::new(values)))
    }

    /// Adds an index by a label, such as `app`, which [`Lister::select`] uses for selectors such as
    /// `app=web` and `app in (web, cache)`.
    ///
    /// You can call this method before the informer runs or while it runs.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, SharedIndexInformer};
    /// use k8s_informer_testing::ScriptedListerWatcher;
    /// use std::sync::Arc;
    ///
    /// let script = Arc::new(ScriptedListerWatcher::new([]));
    /// let pods = SharedIndexInformer::<DynamicObject>::new(script, Default::default());
    /// pods.add_label_index("app")?;
    /// assert!(pods.lister().select(&"app=web".parse()?).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped, if the label has an index, or if no label can have this
    /// name.
    pub fn add_label_index(&self, label: &str) -> Result<(), InformerError> {
        self.add_indexers(
            Indexers::new()
                .with_label(label)
                .map_err(InformerError::Index)?,
        )
    }

    /// Adds several indexes at once; see [`add_index`](Self::add_index). client-go's `AddIndexers`.
    ///
    /// # Errors
    ///
    /// Fails like [`add_index`](Self::add_index). In this case no index is added.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), InformerError> {
        if self.is_stopped() {
            return Err(self.stopped("the index was not added"));
        }
        self.shared
            .indexer
            .add_indexers(indexers)
            .map_err(InformerError::Index)
    }

    /// Whether both are the same informer.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, SharedIndexInformer};
    /// use k8s_informer_testing::ScriptedListerWatcher;
    /// use std::sync::Arc;
    ///
    /// let new = || SharedIndexInformer::<DynamicObject>::new(Arc::new(ScriptedListerWatcher::new([])), Default::default());
    /// let pods = new();
    /// assert!(pods.is_same(&pods.clone()) && !pods.is_same(&new()));
    /// ```
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether all objects of the initial list are in the cache and on their way to the handlers,
    /// except those that could not be decoded or stored (see [`status`](Self::status)). It stays true after the informer has stopped.
    pub fn has_synced(&self) -> bool {
        self.shared.state.synced.is_done()
    }

    /// Returns a [`Done`] that is set when [`has_synced`](Self::has_synced) becomes true.
    pub fn synced(&self) -> &Done {
        &self.shared.state.synced
    }

    /// Calls `on_error` for each failed request, each object that cannot be decoded or stored, and
    /// each state of an object for which an index function fails, until the subscription is dropped.
    #[doc(hidden)]
    pub fn on_error<F: Fn(&Error) + Send + Sync + 'static>(
        &self,
        on_error: F,
    ) -> impl Send + Sync + use<T, F> {
        self.shared
            .state
            .errors
            .subscribe(move |error, _| on_error(error))
    }

    /// Returns the resource version that the reflector has seen last. The cache may be behind it.
    /// `None` before the first list.
    ///
    /// With several namespaces, the result is the lowest of their versions. It is `None` while a
    /// namespace has no version, and if the versions cannot be compared.
    pub fn last_sync_resource_version(&self) -> Option<ResourceVersion> {
        let running = self.running();
        ResourceVersion::lowest(
            running.map(|(_, running)| running.state.reflector.last_sync_resource_version()),
        )
    }

    /// Returns the status of the reflector: its state, the progress of the initial list, and its
    /// last error.
    ///
    /// With several namespaces, the status is a summary. Counts are sums, and the error is the
    /// latest one. The state is listing or backing off if any of the reflectors is. To get the
    /// status of each namespace, call [`statuses`](Self::statuses).
    ///
    /// These fields of a list are published before the list reaches the cache, so that you can read
    /// them as soon as the informer has synced: `listed`, `received`, `complete`, `relists`,
    /// `resource_version`, `unreadable`, `undecodable` and `last_error`. If the queue rejects the
    /// list, they return to their previous values. All other fields are updated after each step of
    /// the reflector, and may be behind the cache for a moment.
    pub fn status(&self) -> ReflectorStatus {
        let all = self.running().map(|(_, running)| running.status());
        let mut status = all.reduce(combine).unwrap_or_default();
        if self.shared.sources.len() > 1 {
            status.resource_version = self.last_sync_resource_version();
        }
        status
    }

    /// Returns the status of each reflector with its namespace. An informer for several namespaces
    /// has one reflector for each; otherwise there is a single one without a namespace. The list is
    /// empty before the informer starts.
    pub fn statuses(&self) -> Vec<(Option<String>, ReflectorStatus)> {
        let status = |(source, running): (&NamespaceSource, &Running<T>)| {
            let namespace = source.separate_namespace().cloned();
            (namespace, running.status())
        };
        self.running().map(status).collect()
    }

    /// Returns the sources of a running informer.
    pub(super) fn running(&self) -> impl Iterator<Item = (&NamespaceSource, &Running<T>)> {
        let running = self.shared.running.get().into_iter().flatten();
        self.shared.sources.iter().zip(running)
    }
}

impl<T: Object + DeserializeOwned> SharedIndexInformer<T> {
    /// Blocks until the informer [has synced](Self::has_synced).
    ///
    /// The wait also ends when `stop` is set or when the informer ends. For `options`, pass a
    /// timeout, `None`, or [`SyncOptions`]. The method also waits if the informer was not started;
    /// if it is still not started at the end of the wait, the error reports this state.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, SharedIndexInformer, Stop};
    /// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let script = Arc::new(ScriptedListerWatcher::new([]));
    /// let informer = SharedIndexInformer::<DynamicObject>::new(script, Default::default());
    /// let error = informer.wait_for_sync(Duration::from_millis(1), &Stop::never()).unwrap_err();
    /// assert_eq!(error.to_string(), "timed out after 1ms; not synced: scripted objects (not started)");
    /// ```
    ///
    /// # Errors
    ///
    /// - The informer has not synced when the wait ends. The error has the last failure.
    /// - The informer has synced, but the first list (with several namespaces, the first list of
    ///   one of them) had at least two objects, and none of them could be decoded as `T` and
    ///   stored; see [`Unsynced::undecodable`]. Once a later object could be, the method succeeds.
    pub fn wait_for_sync(
        &self,
        options: impl Into<SyncOptions>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        self.wait_for(self.synced(), stop, options.into())
    }

    /// Waits like [`wait_for_sync`](Self::wait_for_sync), but for `synced`, a signal of the
    /// informer or of one of its handlers.
    pub(crate) fn wait_for(
        &self,
        synced: &Done,
        stop: &Stop,
        options: SyncOptions,
    ) -> Result<(), WaitError> {
        let awaited = Awaited {
            informer: Arc::new(self.clone()),
            synced: synced.clone(),
            stop: None,
        };
        any_informer::wait_for_sync(&[awaited], stop, options)
    }
}

impl<T: Object + DeserializeOwned> AnyInformer for SharedIndexInformer<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn state(&self) -> &InformerState {
        &self.shared.state
    }

    fn run(&self, stop: &Stop) -> Result<(), InformerError> {
        self.run(stop)
    }

    fn drivers(&self, stop: &Stop) -> Result<Vec<Driver>, InformerError> {
        self.drivers(stop)
    }

    fn is_refused(&self) -> bool {
        let errors = &self.shared.state.errors;
        let mut running = self.running().enumerate();
        running.any(|(source, (_, running))| errors.is_refused(source) && !running.status().listed)
    }

    fn undecodable(&self) -> Vec<Unsynced> {
        let undecodable = self.running().filter_map(|(_, running)| {
            let error = running.status().undecodable?;
            Some(Unsynced::decoded_nothing(&running.state.name, error))
        });
        undecodable.collect()
    }

    fn unsynced(&self) -> Vec<Unsynced> {
        if self.shared.sources.len() > 1 {
            let mut unsynced = Vec::new();
            for (_, running) in self.running() {
                let status = running.status();
                if !status.listed {
                    unsynced.push(Unsynced::new(&running.state.name, status.last_error));
                }
            }
            if !unsynced.is_empty() {
                return unsynced;
            }
        }
        if !self.shared.state.run_requested.load(Ordering::Relaxed) {
            return vec![Unsynced::not_started(self.name())];
        }
        vec![Unsynced::new(self.name(), self.status().last_error)]
    }

    fn running_threads(&self) -> Vec<String> {
        self.running_thread_names()
    }
}

impl<T: Object> SharedIndexInformer<T> {
    /// Returns the names of the threads that have not ended; see [`AnyInformer::running_threads`].
    pub(super) fn running_thread_names(&self) -> Vec<String> {
        if self.is_stopped() {
            return self.shared.processor.running_threads();
        }
        let delivery = self.shared.state.delivery();
        let mut threads = Vec::new();
        for (_, Running { state, .. }) in self.running() {
            // The first one runs on the thread that called `run`, so it is listed under the
            // informer's name.
            let run = match threads.is_empty() {
                true => self.name(),
                false => &state.name,
            };
            threads.extend(state.running_threads(run, delivery));
        }
        threads
    }
}

impl<T: Object> Running<T> {
    /// Returns the status of the reflector.
    pub(super) fn status(&self) -> ReflectorStatus {
        let mut status = self.state.reflector.status();
        status.unindexed = self.cache.count_unindexed();
        status
    }
}

/// Combines the statuses of two reflectors of one informer.
fn combine(mut one: ReflectorStatus, other: ReflectorStatus) -> ReflectorStatus {
    use ReflectorState::{BackingOff, Created, Listing, Stopped, Watching};
    let worst_first = [BackingOff, Listing, Created, Watching, Stopped];
    let is_either = |state: &ReflectorState| [one.state, other.state].contains(state);
    one.state = worst_first.into_iter().find(is_either).unwrap_or_default();
    one.listed &= other.listed;
    one.received += other.received;
    one.expected = one.expected.zip(other.expected).map(|(a, b)| a + b);
    one.complete &= other.complete;
    one.unreadable += other.unreadable;
    one.unindexed += other.unindexed;
    one.undecodable = one.undecodable.or(other.undecodable);
    one.lists += other.lists;
    one.watches += other.watches;
    one.relists += other.relists;
    one.failures += other.failures;
    one.last_contact = one.last_contact.max(other.last_contact);
    one.shard_applied = match (one.shard_applied, other.shard_applied) {
        (Some(one), Some(other)) => Some(one && other),
        (one, other) => one.or(other).filter(|applied| !applied),
    };
    if other.last_error_at >= one.last_error_at {
        (one.last_error, one.last_error_at) = (other.last_error, other.last_error_at);
    }
    one
}
