//! What can be read of a shared informer at any time.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::SharedIndexInformer;
use crate::error::Error;
use crate::informer::controller::Controller;
use crate::informer::error::InformerError;
use crate::informer::error_listeners::ErrorSubscription;
use crate::informer::wait::{SyncEnd, SyncError, SyncOptions, Unsynced};
use crate::object::Object;
use crate::reflector::{ReflectorState, ReflectorStatus};
use crate::resource_version::compare_resource_versions;
use crate::stop::{Done, Stop, Subscription};
use crate::store::{IndexFunc, Indexer, Indexers, Lister};
use crate::threads::Owner;

impl<T: Object> SharedIndexInformer<T> {
    /// The cache. It is the informer's to write (I21: empty before it runs). client-go's `GetIndexer`.
    pub fn indexer(&self) -> &Arc<Indexer<T>> {
        &self.shared.indexer
    }

    /// The cache, for reading.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(&self.shared.indexer))
    }

    /// Adds an index: `values` says under which values an object is found. Before the informer runs or while
    /// it does; what is in the cache is indexed at once. `values` runs while a change is processed: it
    /// must not add or remove handlers.
    ///
    /// # Errors
    ///
    /// If the informer has stopped (I7), if there is an index of that name (X8), and if `values` panics on an
    /// object of the cache.
    pub fn add_index(
        &self,
        name: &str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        self.add_indexers(Indexers::new().with(name, IndexFunc::new(values)))
    }

    /// Adds several indices at once, as [`add_index`](Self::add_index) adds one. client-go's `AddIndexers`.
    ///
    /// # Errors
    ///
    /// As there; none has been added then.
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

    /// Whether everything of the initial list is in the cache and on its way to the handlers (I5). It stays
    /// true after a stop.
    pub fn has_synced(&self) -> bool {
        self.shared.synced.is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    pub fn synced(&self) -> &Done {
        &self.shared.synced
    }

    /// Blocks until it [has synced](Self::has_synced), until `stop` is given, until the informer has ended,
    /// or until the options say so: a timeout, `None`, or [`SyncOptions`]. An informer that was not started is
    /// waited for; the error then says that it was not started.
    ///
    /// ```
    /// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
    /// use k8s_informer::{DynamicObject, SharedIndexInformer, Stop};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let script = Arc::new(ScriptedListerWatcher::new([]));
    /// let informer = SharedIndexInformer::<DynamicObject>::new(script, Default::default());
    /// let error = informer.wait_for_sync(&Stop::new(), Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "after 1ms these had not synced: scripted objects (not started)");
    /// ```
    ///
    /// # Errors
    ///
    /// If the informer has not synced by then: the error says what went wrong last. Also if it has synced, but
    /// the first list of a source had at least two objects and none could be decoded as `T`: see
    /// [`Unsynced::undecodable`]. A later list that has an object of type `T` ends that state.
    pub fn wait_for_sync(
        &self,
        stop: &Stop,
        options: impl Into<SyncOptions>,
    ) -> Result<(), SyncError> {
        self.wait_for(self.synced(), stop, options.into())
    }

    /// Blocks until this has happened, to the informer or to one of its handlers.
    pub(in crate::informer) fn wait_for(
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

    /// Calls this with each error while the subscription is kept.
    pub(in crate::informer) fn on_error(
        &self,
        on_error: impl Fn(&Error) + Send + Sync + 'static,
    ) -> ErrorSubscription {
        self.shared
            .error_listeners
            .subscribe(move |error, _| on_error(error))
    }

    /// Gives `stop` when a first list fails for good, or at once if the last one did.
    pub(in crate::informer) fn stop_on_refusal(&self, stop: &Stop) -> ErrorSubscription {
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

    /// Whether a source has no list, and failed for good when it last tried.
    pub(in crate::informer) fn is_refused(&self) -> bool {
        let mut parts = self.controllers().iter().enumerate();
        parts.any(|(at, one)| self.shared.error_listeners.is_refused(at) && !one.status().listed)
    }

    /// The parts of whose objects none could be decoded.
    pub(in crate::informer) fn undecodable(&self) -> Vec<Unsynced> {
        let all = self.controllers().iter();
        all.filter_map(|one| {
            Some(Unsynced::decoded_nothing(
                one.name(),
                one.status().undecodable?,
            ))
        })
        .collect()
    }

    /// What it has not synced with: itself, or those of several namespaces whose list has not come.
    pub(in crate::informer) fn unsynced(&self) -> Vec<Unsynced> {
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
        if !self.shared.started.is_done() {
            return vec![Unsynced::not_started(self.name())];
        }
        vec![Unsynced::new(self.name(), self.status().last_error)]
    }

    /// What is given at the stop, or when the run has returned, as long as the subscription is kept.
    pub(super) fn stop_or_end(&self, stop: &Stop) -> (Stop, Subscription) {
        let either = stop.child();
        let ends = either.clone();
        (either, self.ended().on_done(move || ends.stop()))
    }

    /// The resourceVersion that the reflector has seen last; the cache may be behind it. Empty before the
    /// first list. With several namespaces it is the least of theirs: empty before each has one, and if they
    /// can't be compared.
    pub fn last_sync_resource_version(&self) -> String {
        let mut versions = self
            .controllers()
            .iter()
            .map(Controller::last_sync_resource_version);
        let first = versions.next().unwrap_or_default();
        let lower = |a: String, b: String| match compare_resource_versions(&a, &b)? {
            Ordering::Greater => Some(b),
            _ => Some(a),
        };
        versions.try_fold(first, lower).unwrap_or_default()
    }

    /// How the reflector stands: what it does, how far the initial list has come, and what went wrong last.
    ///
    /// With several namespaces it is what they come to: counts are sums, it lists or fails as long as one of
    /// them does, and the error is the latest; [`statuses`](Self::statuses) gives each.
    ///
    /// The outcome of a list is published before the list reaches the cache, so that you can read it as soon as the
    /// informer has synced: `listed`, `received`, `complete`, `relists`, `resource_version`, `unreadable`, `undecodable`
    /// and `last_error`. If the queue rejects the list, they go back. Everything else is updated after each step of
    /// the reflector and may be behind the cache for a moment.
    pub fn status(&self) -> ReflectorStatus {
        let all = self.controllers().iter().map(Controller::status);
        let mut status = all.reduce(both).unwrap_or_default();
        if self.controllers().len() > 1 {
            status.resource_version = self.last_sync_resource_version();
        }
        status
    }

    /// How each of the reflectors stands, with its namespace: one for each of several namespaces, else one
    /// without. None before the start.
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

    fn controllers(&self) -> &[Controller<T>] {
        self.shared
            .controllers
            .get()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The threads that have not ended after a stop, by name: reflectors and process loops, or, once these
    /// have (I3), handlers.
    pub(crate) fn running_threads(&self) -> Vec<String> {
        if self.is_stopped() {
            return self.shared.processor.running_threads();
        }
        let controllers = self.controllers().iter().enumerate();
        // The first has its process loop on the thread of the run.
        let names =
            controllers.map(|(at, one)| (one, if at == 0 { self.name() } else { one.name() }));
        names
            .flat_map(|(controller, name)| controller.running_threads(name))
            .collect()
    }

    /// To whom its threads belong.
    pub(crate) fn owner(&self) -> Owner {
        self.shared.owner
    }
}

/// What the states of two reflectors of one informer come to.
fn both(one: ReflectorStatus, other: ReflectorStatus) -> ReflectorStatus {
    use ReflectorState::{BackingOff, Created, Listing, Stopped, Watching};
    let worst = [BackingOff, Listing, Created, Watching, Stopped];
    let rank = |state: ReflectorState| worst.iter().position(|worst| *worst == state);
    let state = if rank(one.state) <= rank(other.state) {
        one.state
    } else {
        other.state
    };
    let expected = one
        .expected
        .zip(other.expected)
        .map(|(one, other)| one + other);
    let mut both = one;
    both.state = state;
    both.listed &= other.listed;
    both.received += other.received;
    both.expected = expected;
    both.complete &= other.complete;
    both.unreadable += other.unreadable;
    both.undecodable = both.undecodable.or(other.undecodable);
    both.lists += other.lists;
    both.watches += other.watches;
    both.relists += other.relists;
    both.failures += other.failures;
    both.last_contact = both.last_contact.max(other.last_contact);
    both.shard_applied = match (both.shard_applied, other.shard_applied) {
        (Some(one), Some(other)) => Some(one && other),
        (one, other) => one.or(other).filter(|applied| !applied),
    };
    if other.last_error_at >= both.last_error_at {
        (both.last_error, both.last_error_at) = (other.last_error, other.last_error_at);
    }
    both
}
