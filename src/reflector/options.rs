use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::derive::{debug_fields, setters};
use crate::base::text::EscapedText;
use crate::base::threads::StackSizes;
use crate::error::Error;
use crate::object::GroupVersionKind;
use crate::resource_version::ResourceVersion;
use crate::time::{Backoff, Clock, RealClock};
use crate::wire::{DecodeLimits, FieldPaths, Shard};

/// A callback for failed LISTs and failed WATCH requests. client-go's `WatchErrorHandler`.
pub(crate) type WatchErrorHandler = Arc<dyn Fn(&Error) + Send + Sync>;

/// Options for a [`Reflector`](crate::reflector::Reflector).
///
/// They correspond to client-go's `ReflectorOptions` and to some fields of its `Reflector`.
///
/// ```
/// use k8s_informer::reflector::ReflectorOptions;
/// use k8s_informer::time::Backoff;
/// use std::time::{Duration, Instant};
///
/// let options = ReflectorOptions::new()
///     .page_size(100)
///     .backoff(Backoff::new(Duration::from_secs(1)).factor(2.0).cap(Duration::from_secs(60)).jitter(0.5));
/// assert_eq!(options.resync_period, Duration::ZERO);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// The name in log messages and thread names. `None`, the default, selects the lister-watcher's
    /// description.
    pub name: Option<String>,
    /// The interval at which the store delivers all its objects again. Zero, the default, disables
    /// resyncs. A [`Body`](super::Body) without timed reads delays a resync until its next bytes.
    pub resync_period: Duration,
    /// Returns whether a resync is needed when it is due. `None`, the default, means that each one is.
    /// An informer replaces the function, because its handlers have periods of their own.
    /// client-go's `ShouldResync`.
    pub should_resync: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// Whether the server may lack the kind. A 404 is then expected and no warning.
    pub(crate) is_optional_kind: bool,
    /// The number of objects on a page of a LIST.
    ///
    /// `None`, the default, requests pages of 500 objects, except when relisting from the last seen
    /// version. Such a relist requests the whole list at once, because it comes from the server's
    /// watch cache. If the server turns out to have no watch cache, the relist is paged as well. A
    /// relist in pages returns the last seen state or a newer one.
    pub page_size: Option<u32>,
    /// Whether to request the initial objects with a watch instead of a LIST (a watch-list), which
    /// needs less memory on the server.
    ///
    /// This requires a lister-watcher that
    /// [supports it](crate::reflector::ListerWatcher::supports_watch_list). If the server does not
    /// support watch-lists, the reflector sends a LIST, and sends no further watch-list for a
    /// while. The default is `true`, as in client-go.
    pub watch_list: bool,
    /// The time without data after which a watch is considered dead and is opened again.
    ///
    /// `None` (the default) or zero selects the timeout automatically. It is three minutes if the
    /// server is known to send bookmarks, which API servers do about once a minute. Otherwise it is
    /// the requested duration of the watch plus 30 seconds. Timeouts under two minutes would end
    /// healthy watches. The timeout requires bodies with
    /// [time limits](crate::reflector::TimedRead), such as those of the client.
    ///
    /// A silence can also mean that the cache is wrong: a restored etcd sends no events for a
    /// version in its future. The reflector therefore lists again once watches at one version have
    /// been silent for twice this timeout, and for at least two minutes. It does so whether the
    /// watches broke or the server ended them. By default, this happens after six minutes if the
    /// server is known to send bookmarks, and otherwise after 21 minutes. Until an event arrives,
    /// each of these lists doubles the time to the next one.
    pub watch_idle_timeout: Option<Duration>,
    /// The kind that the objects must have. Watch events with objects of another kind are reported
    /// and skipped. A list of another kind fails.
    ///
    /// `None`, the default, accepts every kind. In a factory, an informer whose type defines the
    /// kind uses that kind unless you set another one.
    pub expected_kind: Option<GroupVersionKind>,
    /// The shard to which the objects are restricted. `None`, the default, selects all objects.
    /// **Experimental**, like [`Shard`].
    ///
    /// Each list and watch requests the shard from the server, except for a shard [by
    /// controller](Shard::by_controller). The reflector also drops objects of other shards itself,
    /// by the same hash, before it decodes anything else. Dropped objects are neither stored nor
    /// delivered, but they count as received, and their versions count as seen.
    /// [`ReflectorStatus::shard_applied`] shows whether the server applies the shard.
    ///
    /// An object without a UID is hashed by the empty string, as in an API server. An object whose
    /// UID is not a string is unreadable, and so is one whose controller can't be read.
    pub shard: Option<Shard>,
    /// The fields that are not decoded, whatever the type: for example, `managedFields`. Empty
    /// by default.
    pub skip: FieldPaths,
    /// Limits for the size of the data that a server sends.
    pub limits: DecodeLimits,
    /// Whether decode errors quote the messages of custom deserializers.
    ///
    /// These are the messages that a `deserialize_with` function or a hand-written `Deserialize`
    /// passes to [`serde::de::Error::custom`]. The default is `false`, because they often contain
    /// the value: the value of a Secret would then appear in the log, in
    /// [`ReflectorStatus::last_error`]. If `false`, an error contains
    /// the name of the field and hides the message.
    ///
    /// ```
    /// use k8s_informer::informer::SharedIndexInformerOptions;
    /// use k8s_informer::{ObjectMeta, SharedIndexInformer, Stopper, impl_object};
    /// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
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
    /// let stop = Stopper::new();
    /// # std::thread::scope(|scope| {
    /// # scope.spawn(|| backups.run(&stop));
    /// let error = backups.wait_for_sync(None, &stop).unwrap_err().to_string();
    /// assert!(error.contains("schedule: often is no schedule"), "{error}");
    /// # stop.stop();
    /// # });
    /// ```
    pub show_custom_decode_errors: bool,
    /// The stack sizes of the threads, including all threads of an informer.
    pub stack_sizes: StackSizes,
    /// The back-off after failures, and before the relists while an object is
    /// [missing](ReflectorStatus::complete).
    ///
    /// The back-off after failures resets when a watch proves healthy, by an event or by lasting a
    /// second. A successful list does not reset it.
    pub backoff: Backoff,
    /// The clock, which provides the time and waits, also for the informer and its handlers.
    pub clock: Arc<dyn Clock>,
    /// A callback that replaces the log messages for failed lists and failed watch requests. It
    /// runs on the reflector's thread.
    ///
    /// It is not called if a watch request fails because the server is unreachable or overloaded
    /// (429), nor for an error within an open watch. The reflector logs these failures and requests
    /// the watch again. [`Observe::on_error`](crate::informer::Observe::on_error) receives every
    /// failure.
    pub watch_error_handler: Option<WatchErrorHandler>,
}

impl ReflectorOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the [name](Self#structfield.name) in log messages and thread names.
        name(name: impl Into<String>) = Some(name.into());
        /// Sets the [interval](Self#structfield.resync_period) of resyncs.
        resync_period(period: Duration) = period;
        /// Sets the function that decides whether a due resync [is
        /// needed](Self#structfield.should_resync).
        should_resync(is_needed: impl Fn() -> bool + Send + Sync + 'static) = Some(Arc::new(is_needed));
        /// Sets the number of objects on a [page](Self#structfield.page_size).
        page_size(objects: u32) = Some(objects);
        /// Sets whether to request the initial objects with a
        /// [watch-list](Self#structfield.watch_list).
        watch_list(watch_list: bool) = watch_list;
        /// Sets the time without data after which a watch [is considered
        /// dead](Self#structfield.watch_idle_timeout).
        watch_idle_timeout(timeout: impl Into<Option<Duration>>) = timeout.into();
        /// Sets the [kind](Self#structfield.expected_kind) that the objects must have.
        expected_kind(kind: GroupVersionKind) = Some(kind);
        /// Restricts the objects to a [shard](Self#structfield.shard).
        shard(shard: Shard) = Some(shard);
        /// Sets the fields that are [not decoded](Self#structfield.skip).
        skip(fields: FieldPaths) = fields;
        /// Sets [limits](Self#structfield.limits) for the size of the data that a server sends.
        limits(limits: DecodeLimits) = limits;
        /// Sets whether decode errors [quote](Self#structfield.show_custom_decode_errors) the messages
        /// of custom deserializers.
        show_custom_decode_errors(show: bool) = show;
        /// Sets the [stack sizes](Self#structfield.stack_sizes) of the threads.
        stack_sizes(sizes: StackSizes) = sizes;
        /// Sets the [back-off](Self#structfield.backoff) after failures.
        backoff(backoff: Backoff) = backoff;
        /// Sets the [clock](Self#structfield.clock).
        clock(clock: Arc<dyn Clock>) = clock;
        /// Sets the [callback](Self#structfield.watch_error_handler) that replaces the log messages for
        /// failed lists and failed watch requests.
        watch_error_handler(handler: impl Fn(&Error) + Send + Sync + 'static) = Some(Arc::new(handler));
    }
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            name: None,
            resync_period: Duration::ZERO,
            should_resync: None,
            is_optional_kind: false,
            page_size: None,
            watch_list: true,
            watch_idle_timeout: None,
            expected_kind: None,
            shard: None,
            skip: FieldPaths::default(),
            limits: DecodeLimits::default(),
            show_custom_decode_errors: false,
            stack_sizes: StackSizes::default(),
            backoff: Backoff::default(),
            clock: Arc::new(RealClock),
            watch_error_handler: None,
        }
    }
}

debug_fields!(ReflectorOptions:
    name, resync_period, page_size, watch_list, watch_idle_timeout, expected_kind, shard, skip, limits,
    show_custom_decode_errors, stack_sizes, backoff
);

/// The state, progress and errors of a reflector.
///
/// ```
/// use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
/// use std::sync::Arc;
///
/// /// The text of a progress bar during the first list.
/// fn progress(status: &ReflectorStatus) -> String {
///     let of = status.expected.map(|expected| format!(" of {expected}")).unwrap_or_default();
///     format!("{}{of}", status.received)
/// }
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
/// assert_eq!(informer.status().state, ReflectorState::Created);
/// let stop = Stopper::new();
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
/// `Display` writes one line for logs and users: the state, the version, the counts, the ages of
/// the last contact and the last error, and the error itself. It contains no object content. The
/// ages are measured by the system clock. The wording may change, so do not parse this line; read
/// the fields instead.
///
/// ```
/// use k8s_informer::Error;
/// use k8s_informer::object::ResourceVersion;
/// use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
/// use std::time::Instant;
///
/// let mut status = ReflectorStatus::default();
/// let line = status.to_string();
/// assert_eq!(line, "created, not synced yet; objects listed 0, lists 0, watches 0, relists 0; no contact yet");
///
/// (status.state, status.resource_version) = (ReflectorState::Watching, ResourceVersion::new("7"));
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
    /// The current activity.
    pub state: ReflectorState,
    /// The version from which the next watch resumes. `None` before the first list, and if the server
    /// sends no versions. With several namespaces, it is the lowest version, or `None` if one is
    /// unknown or they cannot be compared.
    pub resource_version: Option<ResourceVersion>,
    /// Whether a complete list has reached the store since the start.
    pub listed: bool,
    /// The number of objects received in the current or last list. It includes objects of other
    /// shards that the server sent anyway.
    pub received: usize,
    /// The total number of objects in the list, if the server reports it. Servers report it for
    /// paged lists without a selector. `None` for a shard, unless the list has an object of another
    /// shard.
    pub expected: Option<usize>,
    /// Whether the server selects the objects of the [shard](ReflectorOptions::shard).
    ///
    /// `Some(true)` if every page of the last list confirmed it. `Some(false)` once any response
    /// contained an object of another shard. For example, kube-apiserver 1.36 does not filter
    /// watches if it has no watch cache for the resource. `None` while it is unknown: kube-apiserver
    /// 1.36 confirms nothing in watch-lists, and in lists of custom resources and of metadata. Never
    /// `Some(true)` for a shard [by controller](Shard::by_controller).
    pub shard_applied: Option<bool>,
    /// Whether every object could be read and stored, so that the cache matches the server.
    ///
    /// It becomes `false` when an object cannot be decoded, and `true` when every object of a list
    /// can be decoded. It is also `false` while the process function of a
    /// [`Controller`](crate::informer::Controller) has rejected an object. Meanwhile the reflector
    /// relists automatically, up to five times for each missed object. Before each relist it waits for the
    /// [back-off](ReflectorOptions::backoff), and at least a second.
    pub complete: bool,
    /// The total number of objects in lists and events that could not be decoded, keyed,
    /// transformed or stored. Each is logged, and its cached copy remains.
    pub unreadable: u64,
    /// The number of objects for which an [index function](crate::store::IndexFunc) failed. They are
    /// in the cache, but not found by that index. Each is logged.
    pub unindexed: usize,
    /// The reason, if the first list had at least two objects and none of them could be decoded.
    /// Most likely, the Rust type does not match the resource. The informer is then synced, with an
    /// empty cache. The field is reset when a list contains an object that can be decoded.
    pub undecodable: Option<Error>,
    /// The number of LIST requests so far, with each page counted.
    pub lists: u64,
    /// The number of WATCH requests so far, including each restart.
    pub watches: u64,
    /// The number of complete lists after the first one. The reflector relists if the server cannot
    /// resume the watch or if an object is missing.
    pub relists: u64,
    /// The time of the last response or data from the server, by the
    /// [clock](ReflectorOptions::clock).
    pub last_contact: Option<Instant>,
    /// The number of failures since a watch last received an event or a bookmark.
    ///
    /// After a recovery, it stays above 0 until the next event or bookmark, which can take minutes.
    /// For health checks, use [`state`](Self::state) and [`last_contact`](Self::last_contact).
    pub failures: u64,
    /// The last error. It remains after the reflector recovers.
    pub last_error: Option<Error>,
    /// The time of the last error.
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
        if let Some(version) = &self.resource_version {
            write!(f, " at version {}", EscapedText(&version.to_string()))?;
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
        if self.unindexed > 0 {
            write!(f, "; unindexed {}", self.unindexed)?;
        }
        if self.failures > 0 {
            write!(f, "; failures {}", self.failures)?;
        }
        if let Some(error) = &self.last_error {
            // Write the error on one line: the error of a lister-watcher may have several lines.
            let when = self
                .last_error_at
                .map(|at| format!(" {}", age(at)))
                .unwrap_or_default();
            write!(f, "; last error{when}: {}", EscapedText(&error.to_string()))?;
        }
        Ok(())
    }
}

/// The current activity of a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReflectorState {
    /// The reflector has not been started.
    #[default]
    Created,
    /// The reflector is listing.
    Listing,
    /// The reflector is watching.
    Watching,
    /// The reflector is waiting after a failure.
    BackingOff,
    /// The reflector was stopped.
    Stopped,
}

impl ReflectorState {
    /// Returns the state as one word: `created`, `listing`, `watching`, `backingOff` or `stopped`.
    ///
    /// ```
    /// use k8s_informer::reflector::ReflectorState;
    ///
    /// assert_eq!(ReflectorState::BackingOff.as_str(), "backingOff");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Listing => "listing",
            Self::Watching => "watching",
            Self::BackingOff => "backingOff",
            Self::Stopped => "stopped",
        }
    }
}
