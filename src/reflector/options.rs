use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::UndecodableList;
use crate::error::Error;
use crate::object::GroupVersionKind;
use crate::text::Prose;
use crate::threads::StackSizes;
use crate::time::{Backoff, Clock, RealClock};
use crate::wire::{DecodeLimits, FieldPaths, Shard};

/// What is called when a LIST, or the request for a WATCH, has failed. client-go's `WatchErrorHandler`.
pub type WatchErrorHandler = Arc<dyn Fn(&Error) + Send + Sync>;

/// How a reflector goes about it. client-go's `ReflectorOptions`, and what it keeps in fields.
///
/// ```
/// use k8s_informer::reflector::ReflectorOptions;
/// use k8s_informer::time::Backoff;
/// use std::time::{Duration, Instant};
///
/// let mut options = ReflectorOptions::default();
/// options.page_size = Some(100);
/// options.backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(60), 0.5);
/// assert_eq!((options.resync_period, options.min_watch_timeout), (Duration::ZERO, Duration::from_secs(300)));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// Stands in logs and in the names of threads; the lister-watcher's description if empty.
    pub name: String,
    /// How often the store is asked to tell everything once more; zero for never, which is the default.
    pub resync_period: Duration,
    /// Asked at each resync whether anybody wants it; `None` for always.
    pub should_resync: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// How many objects a page of a LIST has. `None`, the default: 500, and everything at once where the
    /// list comes from the server's watch cache on a relist (L9). A relist in pages shows the
    /// last seen state or a newer one.
    pub page_size: Option<u32>,
    /// The shortest time after which the server is asked to end a watch; each asks for a random time between
    /// that and twice that. 5 minutes, and less is not taken (W1).
    pub min_watch_timeout: Duration,
    /// Whether to ask a server for what is there by a watch instead of a LIST, where the lister-watcher
    /// [can](crate::reflector::ListerWatcher::supports_watch_list): the server then needs less memory. A server that
    /// can't is asked for a LIST, and not asked again for a while. On, as in client-go (WL1).
    pub watch_list: bool,
    /// After how long a silence a watch is taken for dead and opened again. `None` or zero, the default:
    /// three minutes where the server is seen to send bookmarks, which API servers do about once a
    /// minute; else the time after which it was asked to end the watch, and half a minute. Less than two
    /// minutes would end healthy watches. It takes a lister-watcher whose bodies have
    /// [time limits](crate::reflector::TimedRead), as the client's do.
    ///
    /// A restored etcd has no events for a version that is yet to come, so a silence can also mean that the
    /// cache is wrong. Once watches at one version have been silent for twice this timeout, and for two minutes
    /// at least, the reflector lists, whether they broke off or the server ended them. By default it does so
    /// after six minutes where the server is seen to send bookmarks, else after 21. As long as nothing
    /// else comes, each such list doubles the time to the next one.
    pub watch_idle_timeout: Option<Duration>,
    /// For how long a watch that the server ends with an internal error is opened again at once, and not
    /// listed again. Zero, the default, is never. client-go's `MaxInternalErrorRetryDuration` (W7).
    pub internal_error_retry: Duration,
    /// The first request waits for a random time up to this, so that many programs that start together don't
    /// list together. Zero by default.
    pub start_jitter: Duration,
    /// What the objects have to be, where the type does not say: of a watch, those that say that they are
    /// something else are told and left out (W9). `None`, the default, takes everything; typed informers of
    /// a factory set it.
    pub expected_kind: Option<GroupVersionKind>,
    /// Only the objects of this shard. `None`, the default, for all. **Experimental**, as [`Shard`] is.
    ///
    /// Each list and watch asks the server for the shard. Whether it complies or not, the objects of other
    /// shards are left out here, too, by the same hash and before anything else of them is decoded: they are
    /// neither kept nor told, but they count as received, and their versions as seen.
    /// [`ReflectorStatus::shard_applied`] tells whether the server does its part.
    ///
    /// An object without a UID goes by the empty one, as with an API server. One whose UID is no text can't
    /// be read.
    pub shard: Option<Shard>,
    /// Fields that are not decoded, whatever the type: `managedFields` for example. None by default.
    pub skip: FieldPaths,
    /// Whether an object of a relist that is the one in the cache, by UID and resourceVersion, is kept and
    /// not decoded again; the rest of its bytes is not read. On by default.
    ///
    /// A restored etcd gives a resourceVersion a second time, to another state. Everything is therefore decoded
    /// after any sign of that: an expired version or one that is too large, a list that is older than what was
    /// seen, a connection that failed, broke, ended early or fell silent, a server that is not available, or a wait
    /// of more than a second, in which a server can be restarted.
    /// Objects are kept again once the cache has all of a list that was decoded in full. A relist that decodes
    /// everything holds two generations of all objects until the cache has the new one.
    pub reuse_unchanged: bool,
    /// How large what a server sends may be.
    pub limits: DecodeLimits,
    /// Whether errors of decoding quote what a custom deserializer reports: the text that a `deserialize_with`
    /// function or a hand-written `Deserialize` passes to [`serde::de::Error::custom`]. Off by default: such a text
    /// often repeats the value, and the value of a Secret would then be in the log, in
    /// [`ReflectorStatus::last_error`] and in [`UndecodableList`]. Without it, an error names the field and hides the
    /// text.
    ///
    /// ```
    /// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
    /// use k8s_informer::{ObjectMeta, SharedIndexInformer, Stop, impl_object};
    /// use k8s_informer::informer::SharedIndexInformerOptions;
    /// use serde::de::Error;
    /// use serde::{Deserialize, Deserializer};
    /// use std::sync::Arc;
    ///
    /// #[derive(Deserialize)]
    /// struct Backup {
    ///     metadata: ObjectMeta,
    ///     #[serde(deserialize_with = "schedule")]
    ///     schedule: String,
    /// }
    /// impl_object!(Backup, "example.com/v1", "Backup", "backups", Namespaced);
    ///
    /// fn schedule<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    ///     let text = String::deserialize(deserializer)?;
    ///     if text.starts_with('@') { Ok(text) } else { Err(D::Error::custom(format!("{text} is no schedule"))) }
    /// }
    ///
    /// # let item = |name: &str| format!(r#"{{"metadata": {{"name": "{name}"}}, "schedule": "often"}}"#);
    /// # let list = format!(
    /// #     r#"{{"kind": "List", "metadata": {{"resourceVersion": "7"}}, "items": [{}, {}]}}"#, item("a"), item("b"));
    /// let mut options = SharedIndexInformerOptions::default();
    /// options.reflector.show_custom_decode_errors = true;
    /// let source = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
    /// let backups = SharedIndexInformer::<Backup>::new(Arc::new(source), options);
    /// let stop = Stop::new();
    /// # std::thread::scope(|scope| {
    /// # scope.spawn(|| backups.run(&stop));
    /// let error = backups.wait_for_sync(&stop, None).unwrap_err().to_string();
    /// assert!(error.contains("schedule: often is no schedule"), "{error}");
    /// # stop.stop();
    /// # });
    /// ```
    pub show_custom_decode_errors: bool,
    /// How much stack the threads get: all those of an informer, too.
    pub stack_sizes: StackSizes,
    /// The waits after failures, and before the relists while an object is [missing](ReflectorStatus::complete).
    ///
    /// The waits after failures start over when a watch proves healthy: one that had an event, or lasted a second. A
    /// list that succeeds does not start them over.
    pub backoff: Backoff,
    /// Tells the time and waits.
    pub clock: Arc<dyn Clock>,
    /// Called on the reflector's thread with the failed lists and the failed requests for a watch, instead
    /// of logging them.
    pub watch_error_handler: Option<WatchErrorHandler>,
}

impl ReflectorOptions {
    /// Shorter watches are not asked for.
    pub(crate) const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(300);
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            resync_period: Duration::ZERO,
            should_resync: None,
            page_size: None,
            min_watch_timeout: Self::MIN_WATCH_TIMEOUT,
            watch_list: true,
            watch_idle_timeout: None,
            internal_error_retry: Duration::ZERO,
            start_jitter: Duration::ZERO,
            expected_kind: None,
            shard: None,
            skip: FieldPaths::default(),
            reuse_unchanged: true,
            limits: DecodeLimits::default(),
            show_custom_decode_errors: false,
            stack_sizes: StackSizes::default(),
            backoff: Backoff::default(),
            clock: Arc::new(RealClock),
            watch_error_handler: None,
        }
    }
}

impl fmt::Debug for ReflectorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorOptions")
            .field("name", &self.name)
            .field("resync_period", &self.resync_period)
            .field("page_size", &self.page_size)
            .field("min_watch_timeout", &self.min_watch_timeout)
            .field("watch_list", &self.watch_list)
            .field("watch_idle_timeout", &self.watch_idle_timeout)
            .field("internal_error_retry", &self.internal_error_retry)
            .field("start_jitter", &self.start_jitter)
            .field("expected_kind", &self.expected_kind)
            .field("shard", &self.shard)
            .field("skip", &self.skip)
            .field("reuse_unchanged", &self.reuse_unchanged)
            .field("limits", &self.limits)
            .field("show_custom_decode_errors", &self.show_custom_decode_errors)
            .field("stack_sizes", &self.stack_sizes)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// How a reflector stands.
///
/// ```
/// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stop};
/// use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
/// use std::sync::Arc;
///
/// /// What a progress bar says during the first list.
/// fn progress(status: &ReflectorStatus) -> String {
///     let of = status.expected.map(|expected| format!(" of {expected}")).unwrap_or_default();
///     format!("{}{of}", status.received)
/// }
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
/// assert_eq!(informer.status().state, ReflectorState::Created);
/// let stop = Stop::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| informer.run(&stop));
///     informer.synced().wait();
///     stop.stop();
/// });
/// let status = informer.status();
/// assert_eq!((status.state, status.lists), (ReflectorState::Stopped, 1));
/// assert!(status.listed && status.complete && status.last_contact.is_some());
/// assert_eq!(progress(&status), "1");
/// assert!(status.last_error.is_none() && status.failures == 0);
/// ```
///
/// `Display` writes one line for logs and people: the state, the version, the counts, the ages of the last contact
/// and the last error, and that error. It contains no object content. The ages are measured by the system's clock.
/// Parse the fields, not this text: its wording may change.
///
/// ```
/// use k8s_informer::Error;
/// use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
/// use std::time::Instant;
///
/// let mut status = ReflectorStatus::default();
/// let line = status.to_string();
/// assert_eq!(line, "created, not synced yet; objects listed 0, lists 0, watches 0, relists 0; no contact yet");
///
/// (status.state, status.resource_version) = (ReflectorState::Watching, "7".to_owned());
/// (status.listed, status.complete) = (true, true);
/// (status.received, status.lists, status.watches) = (3, 1, 1);
/// status.last_contact = Some(Instant::now());
/// let line = status.to_string();
/// assert!(line.starts_with("watching at version 7; objects listed 3, lists 1, watches 1, relists 0; last contact "));
///
/// (status.failures, status.last_error) = (2, Some(Error::other("the server is down")));
/// assert!(status.to_string().ends_with("; failures 2; last error: the server is down"));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReflectorStatus {
    /// What it is doing.
    pub state: ReflectorState,
    /// The version of the last list, event or bookmark; empty before the first.
    pub resource_version: String,
    /// Whether a whole list has reached the store since it runs.
    pub listed: bool,
    /// How many objects of the current or last list have come, those of other shards that the server sent
    /// all the same included.
    pub received: usize,
    /// How many objects it has in all, where the server tells: paged lists without a selector, if they are
    /// not of one shard.
    pub expected: Option<usize>,
    /// Whether the server itself picks the objects of the [shard](ReflectorOptions::shard). So if every page
    /// of the last list said it; not so if one did not, or once an object of another shard came, by whatever
    /// way: kube-apiserver 1.36 does not pick those of watches where it has no watch cache. `None` as long
    /// as nothing has told either: a watch-list of a server that does pick them does not say it (SH3).
    pub shard_applied: Option<bool>,
    /// Whether everything that the server told could be read: what is cached is what there is. Not so from
    /// an object on that could not be decoded, until a list comes that has none such. Meanwhile the reflector
    /// lists again on its own: after the waits of the [back-off](ReflectorOptions::backoff), at least a second
    /// each, and up to five times for each missed object.
    pub complete: bool,
    /// How many objects of lists and events could not be decoded, keyed or transformed so far: each is
    /// logged, and its cached copy stays.
    pub unreadable: u64,
    /// Set if none of the objects in the first list could be decoded, until a list has one that can be.
    pub undecodable: Option<UndecodableList>,
    /// Requests for a LIST so far, pages counted one by one.
    pub lists: u64,
    /// Requests for a WATCH so far: one, and one for each restart.
    pub watches: u64,
    /// How often everything was listed once more, after the first time: because the server could not go on
    /// from where the watch was, or because an object was missing.
    pub relists: u64,
    /// When the server last answered or sent something, by the [clock](ReflectorOptions::clock).
    pub last_contact: Option<Instant>,
    /// How often something has failed since a watch last brought something: 0 if all is well.
    pub failures: u64,
    /// What went wrong last, whatever came after.
    pub last_error: Option<Error>,
    /// When that was.
    pub last_error_at: Option<Instant>,
}

impl fmt::Display for ReflectorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = |at: Instant| format!("{}s ago", at.elapsed().as_secs());
        f.write_str(match self.state {
            ReflectorState::Created => "created",
            ReflectorState::Listing => "listing",
            ReflectorState::Watching => "watching",
            ReflectorState::BackingOff => "backing off",
            ReflectorState::Stopped => "stopped",
        })?;
        if !self.resource_version.is_empty() {
            write!(f, " at version {}", Prose(&self.resource_version))?;
        }
        if !self.listed {
            f.write_str(", not synced yet")?;
        }
        write!(f, "; objects listed {}", self.received)?;
        if let Some(expected) = self.expected {
            write!(f, " of {expected}")?;
        }
        write!(
            f,
            ", lists {}, watches {}, relists {}",
            self.lists, self.watches, self.relists
        )?;
        match self.last_contact {
            Some(at) => write!(f, "; last contact {}", age(at))?,
            None => f.write_str("; no contact yet")?,
        }
        if self.listed && !self.complete {
            f.write_str("; incomplete")?;
        }
        if self.unreadable > 0 {
            write!(f, "; unreadable {}", self.unreadable)?;
        }
        if self.failures > 0 {
            write!(f, "; failures {}", self.failures)?;
        }
        if let Some(error) = &self.last_error {
            // A lister-watcher's own error may have more than one line.
            let when = self
                .last_error_at
                .map(|at| format!(" {}", age(at)))
                .unwrap_or_default();
            write!(f, "; last error{when}: {}", Prose(&error.to_string()))?;
        }
        Ok(())
    }
}

/// What a reflector is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReflectorState {
    /// It has not been started.
    #[default]
    Created,
    /// It lists.
    Listing,
    /// It watches.
    Watching,
    /// Something failed; it waits before it tries again.
    BackingOff,
    /// It was stopped.
    Stopped,
}
