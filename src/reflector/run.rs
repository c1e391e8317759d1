mod availability;
mod current;
mod custom_store;
mod feed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::log::Level;
use serde::de::DeserializeOwned;

use self::availability::Availability;
use self::custom_store::CustomStore;
pub(crate) use self::feed::{Feed, FeedProgress};
use super::catch_up::CatchUp;
use super::failures::{Failures, named};
use super::protocol::{Report, ReportKind};
use super::reclaim::ReclaimQueue;
use super::{ListerWatcher, Missing, ReflectorOptions, ReflectorStatus};
use crate::base::derive::debug_fields;
use crate::base::panic;
use crate::base::sync::Mutex;
use crate::base::threads::StackSizes;
use crate::entry::Staging;
use crate::error::Error;
use crate::log;
use crate::object::{Key, Object};
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::store::{ReflectorStore, StoreError};
use crate::wire::Decode;

/// The suffix of the log message for a failure that will repeat.
const PERMANENT_HINT: &str =
    "; this error persists until the request, the credentials or the cluster change; retrying";

/// Lists and watch-lists that take longer than this are logged.
const LONG_LIST: Duration = Duration::from_secs(10);

/// The callback for failures, except expired versions and rejected watch-lists, after which a list
/// follows.
pub(crate) type OnFailure = Arc<dyn Fn(&Error, Outlook) + Send + Sync>;

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// No list has reached the store yet, and the request will fail again in the same way.
    Refused,
    /// The next attempt may succeed, or the store has the objects of an earlier list.
    Open,
}

/// What an informer adds to its reflector, whose store is then a queue.
pub(crate) struct InformerHooks<T> {
    /// The delivered objects that the feed frees.
    pub(crate) reclaim: Option<Arc<ReclaimQueue<T>>>,
    pub(crate) on_failure: Option<OnFailure>,
}

/// Keeps a store equal to the server: it lists, watches from there on, and lists again when the
/// watch cannot continue.
///
/// It corresponds to client-go's `Reflector`. [`run`](Self::run) works on the caller's thread.
///
/// The rules are those of client-go; `docs/client-go-rules.md` describes the differences:
///
/// - The first list requests resource version "0". A later list requests the last version seen.
/// - A watch that ends is opened again from the last version.
/// - If that version has expired, the reflector lists again.
/// - After each failure, it waits with exponential back-off.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Indexer, Stop, Stopper};
/// use k8s_informer::object::ResourceVersion;
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch, Reflector, ReflectorOptions};
///
/// let stop = Stopper::new();
/// let enough = stop.clone();
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(
///         r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#,
///     )),
///     move |options: &ListOptions, _: &Stop| {
///         assert_eq!(options.resource_version, ResourceVersion::new("7"));
///         enough.stop(); // End the example.
///         Ok(Body::from(""))
///     },
/// );
/// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
/// Reflector::new(Arc::new(pods), store.clone(), ReflectorOptions::default()).run(&stop);
/// assert_eq!(store.list().len(), 1);
/// ```
pub struct Reflector<T> {
    core: Arc<Core<T>>,
}

/// What a reflector, its feed and its readers share.
struct Core<T> {
    lister_watcher: Arc<dyn ListerWatcher>,
    store: Arc<dyn ReflectorStore<T>>,
    /// The way into the store if it takes objects instead of entries. Otherwise unused.
    custom: CustomStore<T>,
    decode: Decode<T>,
    options: ReflectorOptions,
    /// `None` for a reflector without an informer.
    hooks: Option<InformerHooks<T>>,
    missing: Arc<Missing>,
    catch_up: CatchUp,
    /// Whether the thread of the feed can soon return to its owner.
    availability: Availability,
    /// The result of [`status`](Reflector::status), without the rejected objects. Innermost lock:
    /// nothing is called while it is held.
    status: Mutex<ReflectorStatus>,
    /// The failures logged so far. Innermost lock: nothing is called while it is held.
    logged: Mutex<Failures>,
}

impl<T: Object + DeserializeOwned> Reflector<T> {
    /// Creates a reflector. It does nothing until you call [`run`](Self::run).
    pub fn new(
        lister_watcher: Arc<dyn ListerWatcher>,
        store: Arc<dyn ReflectorStore<T>>,
        options: ReflectorOptions,
    ) -> Self {
        Self::with_hooks(lister_watcher, store, options, None)
    }

    /// Creates the reflector of an informer, whose store is a queue.
    pub(crate) fn with_hooks(
        lister_watcher: Arc<dyn ListerWatcher>,
        store: Arc<dyn ReflectorStore<T>>,
        options: ReflectorOptions,
        hooks: Option<InformerHooks<T>>,
    ) -> Self {
        Self {
            core: Arc::new(Core {
                lister_watcher,
                custom: CustomStore::new(Arc::clone(&store)),
                store,
                decode: Decode::new(),
                options,
                hooks,
                missing: Arc::default(),
                catch_up: CatchUp::default(),
                availability: Availability::default(),
                status: Mutex::default(),
                logged: Mutex::default(),
            }),
        }
    }
}

impl<T: Object> Reflector<T> {
    /// Returns another handle of this reflector.
    pub(crate) fn handle(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
        }
    }

    fn reclaim(&self) -> Option<&ReclaimQueue<T>> {
        self.core.hooks.as_ref()?.reclaim.as_deref()
    }

    /// Returns the store as the feed writes to it.
    fn staging(&self) -> &dyn Staging<T> {
        self.core.store.staging().unwrap_or(&self.core.custom)
    }

    /// Returns the objects whose newest state the store, or the consumer of its queue, lacks.
    pub(crate) fn missing(&self) -> &Missing {
        &self.core.missing
    }

    /// Records that the consumer of the store's queue could not process an object in this version.
    /// The reflector notices it on its own thread and schedules a relist. Pass the error to
    /// [`notify_rejected`](Self::notify_rejected) afterwards.
    pub(crate) fn rejected(
        &self,
        key: Option<Key>,
        version: Option<ResourceVersion>,
        error: &Error,
    ) {
        self.set_last_error(error.clone());
        self.core.missing.add_rejected(key, version);
    }

    /// Records that an index function failed for an object, which the consumer has stored. Pass the
    /// error to [`notify_rejected`](Self::notify_rejected) afterwards.
    pub(crate) fn unindexed(&self, error: &Error) {
        self.set_last_error(error.clone());
    }

    fn set_last_error(&self, error: Error) {
        let at = self.now();
        let mut status = self.core.status.lock();
        (status.last_error, status.last_error_at) = (Some(error), at);
    }

    /// Passes the error of a rejected or unindexed object to the log and to the callback for failures.
    pub(crate) fn notify_rejected(&self, error: &Error) {
        let text = error.to_string();
        let level = match self
            .core
            .logged
            .lock()
            .record(ReportKind::Object, error, &text)
        {
            Level::Warn => Level::Error,
            level => level,
        };
        log::log!(level, "{}: {text}", self.name());
        if let Some(on_failure) = self.on_failure() {
            on_failure(error, Outlook::Open);
        }
    }

    /// Returns the current status.
    pub fn status(&self) -> ReflectorStatus {
        // Read before the status, which then has the errors of these objects.
        let (rejected, rejections) = (self.core.missing.rejected(), self.core.missing.rejections());
        let mut status = self.core.status.lock().clone();
        status.complete &= rejected == 0;
        status.unreadable += rejections;
        status.unindexed = self.core.store.staging().map_or(0, Staging::unindexed);
        status
    }

    /// Returns the resource version of the last list, or the newest one of the events and bookmarks
    /// since then. `None` before the first list. If a queue is between the reflector and a
    /// store, the store may still have an older version.
    pub fn last_sync_resource_version(&self) -> Option<ResourceVersion> {
        self.core.status.lock().resource_version.clone()
    }

    pub(crate) fn stack_sizes(&self) -> StackSizes {
        self.core.options.stack_sizes
    }

    /// Lists and watches until `stop` is stopped. This method blocks, and does everything on the
    /// current thread.
    ///
    /// Resyncs run while the reflector watches. A [`Body`](crate::reflector::Body) without timed reads
    /// delays a resync until the next bytes.
    pub fn run(&self, stop: &Stop) {
        let mut feed = Feed::new(self);
        while !stop.is_stopped() {
            feed.step(None, stop);
            feed.flush();
            // Also after a stop, so that the status shows what has reached the store.
            feed.publish();
            feed.report();
        }
    }

    /// Returns the time of the clock, which is user code: do not hold a lock.
    fn now(&self) -> Option<Instant> {
        panic::catch(|| self.core.options.clock.now()).ok()
    }

    /// Returns the error of a report. Its context is what was being read, for example `list pods`.
    /// The error of a failed request already has this context.
    fn in_context(&self, report: &Report) -> Error {
        let error = report.error.clone();
        match report.reading {
            Some(reading) => error.context(format!("{reading} {}", self.description())),
            None => error,
        }
    }

    /// Passes a failure to the callbacks and the log.
    fn notify_failure(&self, report: &Report, outlook: Outlook) {
        let options = &self.core.options;
        let error = report.error.to_string();
        let level = match options.is_optional_kind && report.error.is_not_found() {
            // Neither a failure nor a recovery: the owner of the informer reports both.
            true => Level::Debug,
            false => {
                let mut logged = self.core.logged.lock();
                logged.record(report.kind, &report.error, &error)
            }
        };
        // A watch error handler replaces the log, as in client-go (W14).
        let handler = options.watch_error_handler.as_ref();
        match handler.filter(|_| report.kind == ReportKind::Request) {
            Some(handler) => {
                if let Err(panic) = panic::catch(|| handler(&report.error)) {
                    log::error!("{}: the watch error handler {panic}", self.name());
                }
            }
            None => {
                let hint = match report.is_permanent() {
                    true => PERMANENT_HINT,
                    false => "",
                };
                log::log!(level, "{}{hint}", named(&self.name(), &error));
            }
        }
        let is_routine = report.kind == ReportKind::Preliminary || report.error.is_gone();
        if let Some(on_failure) = self.on_failure()
            && !is_routine
        {
            on_failure(&report.error, outlook);
        }
    }

    fn on_failure(&self) -> Option<&OnFailure> {
        self.core.hooks.as_ref()?.on_failure.as_ref()
    }

    fn name(&self) -> String {
        match &self.core.options.name {
            None => self.description(),
            Some(name) => name.clone(),
        }
    }

    fn description(&self) -> String {
        let description = panic::catch(|| self.core.lister_watcher.description());
        description.unwrap_or_else(|panic| format!("objects (the description {panic})"))
    }

    /// If a resync is needed, the store delivers all its objects again.
    fn resync(&self) -> Result<(), StoreError> {
        let should_resync = self.core.options.should_resync.as_ref();
        match should_resync.is_none_or(|should_resync| should_resync()) {
            true => self.core.store.resync(),
            false => Ok(()),
        }
    }
}

debug_fields!(Reflector<T>, this, status: *this.core.status.lock());
