//! Methods of a shared informer that read its state. You can call them at any time.

use std::sync::Arc;
use std::time::Instant;

use super::SharedIndexInformer;
use crate::base::sync::atomic::Ordering;
use crate::base::threads::Owner;
use crate::error::Error;
use crate::informer::controller::Controller;
use crate::informer::error::InformerError;
use crate::informer::error_listeners::ErrorSubscription;
use crate::informer::wait::{SyncEnd, SyncError, SyncOptions, Unsynced};
use crate::object::Object;
use crate::reflector::{ReflectorState, ReflectorStatus};
use crate::resource_version::ResourceVersion;
use crate::stop::{Done, Stop, Subscription};
use crate::store::{IndexFunc, Indexer, Indexers, Lister};

impl<T: Object> SharedIndexInformer<T> {
    /// Returns the cache. Only the informer may write to it. It is empty before the informer runs.
    /// client-go's `GetIndexer`.
    pub fn indexer(&self) -> &Arc<Indexer<T>> {
        &self.shared.indexer
    }

    /// Returns read access to the cache.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(&self.shared.indexer))
    }

    /// Adds an index. `values` returns the index values of an object.
    ///
    /// You can call this method before the informer runs or while it runs; the objects in the cache
    /// are indexed immediately. `values` runs while a change is processed, so it must not add or
    /// remove handlers. If `values` panics, the cache rejects the change. Until it accepts the object,
    /// the [status](Self::status) is not `complete`, and the informer relists up to five times.
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

    /// Adds several indexes at once; see [`add_index`](Self::add_index). client-go's `AddIndexers`.
    ///
    /// # Errors
    ///
    /// Fails like [`add_index`](Self::add_index). In this case no index is added.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), InformerError> {
        if self.is_stopped() {
            let (name, what) = (Arc::clone(&self.shared.name), "the index was not added");
            return Err(InformerError::Stopped { name, what });
        }
        self.shared
            .indexer
            .add_indexers(indexers)
            .map_err(InformerError::Index)
    }

    /// Whether all objects of the initial list are in the cache and on their way to the handlers,
    /// except those that could not be decoded or stored (see [`status`](Self::status)). It stays true after the informer has stopped.
    pub fn has_synced(&self) -> bool {
        self.shared.synced.is_done()
    }

    /// Returns a [`Done`] that is set when [`has_synced`](Self::has_synced) becomes true.
    pub fn synced(&self) -> &Done {
        &self.shared.synced
    }

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
    /// let error = informer.wait_for_sync(&Stop::new(), Duration::from_millis(1)).unwrap_err();
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
        stop: &Stop,
        options: impl Into<SyncOptions>,
    ) -> Result<(), SyncError> {
        self.wait_for(self.synced(), stop, options.into())
    }

    /// Waits like [`wait_for_sync`](Self::wait_for_sync), but for `synced`, a signal of the
    /// informer or of one of its handlers.
    pub(crate) fn wait_for(
        &self,
        synced: &Done,
        stop: &Stop,
        options: SyncOptions,
    ) -> Result<(), SyncError> {
        let SyncOptions { timeout, fail_fast } = options;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (either, _ends) = self.stop_or_end(stop);
        let _refused = fail_fast.then(|| self.stop_on_refusal(&either));
        if synced.wait_until(deadline, &either) {
            return SyncError::undecodable(self.undecodable());
        }
        let is_refused = fail_fast && !stop.is_stopped() && self.is_refused();
        let end = SyncEnd::of(stop, timeout, either.is_stopped());
        Err(SyncError::new(
            self.unsynced(),
            if is_refused { SyncEnd::Refused } else { end },
        ))
    }

    /// Calls `on_error` for each failed request and each object that cannot be decoded or stored,
    /// until the subscription is dropped.
    #[doc(hidden)]
    pub fn on_error<F: Fn(&Error) + Send + Sync + 'static>(
        &self,
        on_error: F,
    ) -> impl Send + Sync + use<T, F> {
        self.shared
            .error_listeners
            .subscribe(move |error, _| on_error(error))
    }

    /// Sets `stop` when the first list of a reflector fails permanently. Sets it immediately if the
    /// last attempt of such a list has already failed permanently.
    pub(crate) fn stop_on_refusal(&self, stop: &Stop) -> ErrorSubscription {
        let stop_if = |refused: bool, stop: &Stop| {
            if refused {
                stop.stop();
            }
        };
        let stopped = stop.clone();
        let subscription = self
            .shared
            .error_listeners
            .subscribe(move |_, refused| stop_if(refused, &stopped));
        stop_if(self.is_refused(), stop);
        subscription
    }

    /// Whether a reflector has no list yet and its last attempt failed permanently.
    pub(crate) fn is_refused(&self) -> bool {
        let mut parts = self.controllers().iter().enumerate();
        parts.any(|(at, one)| self.shared.error_listeners.is_refused(at) && !one.status().listed)
    }

    /// Returns the parts whose list had at least two objects, none of which could be decoded.
    pub(crate) fn undecodable(&self) -> Vec<Unsynced> {
        let all = self.controllers().iter();
        all.filter_map(|one| Some(Unsynced::decoded_nothing(one.name(), one.undecodable()?)))
            .collect()
    }

    /// Returns what has not synced: with several namespaces, each namespace that has no list yet;
    /// otherwise the informer itself.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        let controllers = self.controllers();
        if controllers.len() > 1 {
            let all = controllers.iter().map(|one| (one.name(), one.status()));
            let unlisted = all.filter(|(_, status)| !status.listed);
            let unsynced: Vec<_> = unlisted
                .map(|(name, status)| Unsynced::new(name, status.last_error))
                .collect();
            if !unsynced.is_empty() {
                return unsynced;
            }
        }
        if !self.is_run_requested() {
            return vec![Unsynced::not_started(self.name())];
        }
        vec![Unsynced::new(self.name(), self.status().last_error)]
    }

    /// Whether a thread runs the informer, or has run it, or is about to.
    pub(crate) fn is_run_requested(&self) -> bool {
        self.shared.run_requested.load(Ordering::Relaxed)
    }

    /// Returns a signal that is set when `stop` is set or when the run has returned. Keep the
    /// subscription: without it, the end of the run does not set the signal.
    pub(crate) fn stop_or_end(&self, stop: &Stop) -> (Stop, Subscription) {
        let either = stop.child();
        let ends = either.clone();
        (either, self.ended().on_done(move || ends.stop()))
    }

    /// Returns the resource version that the reflector has seen last. The cache may be behind it.
    /// The version is empty before the first list.
    ///
    /// With several namespaces, the result is the lowest of their versions. It is empty while a
    /// namespace has no version, and if the versions cannot be compared.
    pub fn last_sync_resource_version(&self) -> String {
        let all = self.controllers().iter();
        ResourceVersion::lowest(all.map(|one| one.last_sync_resource_version().as_str().into()))
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
        let all = self.controllers().iter().map(Controller::status);
        let mut status = all.reduce(combine).unwrap_or_default();
        if self.controllers().len() > 1 {
            status.resource_version = self.last_sync_resource_version();
        }
        status
    }

    /// Returns the status of each reflector with its namespace. An informer for several namespaces
    /// has one reflector for each; otherwise there is a single one without a namespace. The list is
    /// empty before the informer starts.
    pub fn statuses(&self) -> Vec<(Option<String>, ReflectorStatus)> {
        let parts = self
            .shared
            .parts
            .iter()
            .map(|source| source.namespace.clone());
        parts
            .zip(self.controllers().iter().map(Controller::status))
            .collect()
    }

    pub(super) fn controllers(&self) -> &[Controller<T>] {
        self.shared
            .controllers
            .get()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Returns the names of the threads that have not ended after a stop. While reflectors or
    /// process loops are running, only their threads are returned; after that, the threads of
    /// handlers.
    pub(crate) fn running_threads(&self) -> Vec<String> {
        if self.is_stopped() {
            return self.shared.processor.running_threads();
        }
        let controllers = self.controllers().iter().enumerate();
        // The first process loop runs on the thread that called `run`, so it is listed under the
        // informer's name.
        let names =
            controllers.map(|(at, one)| (one, if at == 0 { self.name() } else { one.name() }));
        names
            .flat_map(|(controller, name)| controller.running_threads(name))
            .collect()
    }

    /// Returns the owner of the informer's threads.
    pub(crate) fn owner(&self) -> Owner {
        self.shared.owner
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
