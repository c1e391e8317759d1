//! The record of an election, and the locks that keep it.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::events::host_name;
use crate::log;
use crate::rfc3339;
use k8s_informer::__private::UnixTime;
use k8s_informer::client::Client;
use k8s_informer::client::api::{Api, Fetched, WatchEvent};
use k8s_informer::error::Error;
use k8s_informer::object::ObjectReference;
use k8s_informer::object::{DynamicObject, GroupVersionKind, GroupVersionResource, Object};
use k8s_informer::reflector::ListOptions;
use k8s_informer::stop::Stop;
use k8s_informer::time::{Backoff, Clock, RealClock};

/// The part of a [`Lease`] that the election reads and writes. client-go's `LeaderElectionRecord`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Record {
    /// The identity of the candidate that holds the Lease, or `None` if the Lease is free. In the
    /// Lease itself, an empty text means the same.
    pub holder: Option<String>,
    /// How long other candidates must wait after the last change of the record, in seconds.
    pub lease_duration_seconds: i32,
    /// When the holder acquired the Lease, in microseconds since the Unix epoch. It identifies the
    /// term, together with `transitions`.
    pub acquire_time: Option<i64>,
    /// When the holder last renewed the Lease, in microseconds since the Unix epoch. It is for
    /// people: clocks differ, so no candidate decides by it.
    pub renew_time: Option<i64>,
    /// How many terms there were before this one.
    pub transitions: i32,
    /// The strategy of a coordinated election, in which this crate does not take part.
    pub strategy: Option<String>,
    /// The holder that a coordinated election prefers.
    pub preferred_holder: Option<String>,
}

/// A Lease as a [`Lock`] returned it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Distinguishes a Lease from one that was deleted and created again.
    pub uid: String,
    /// The version that an update must name. Versions are compared as numbers, if they are numbers.
    pub resource_version: String,
    /// The record of the election.
    pub record: Record,
    /// The complete object, in any form that the lock understands. The elector passes it back to
    /// [`Lock::update`], so that other fields survive.
    pub object: String,
}

/// A place for the record of an election, which all candidates share. client-go's
/// `resourcelock.Interface`.
///
/// [`LeaseLock`] keeps it in a Lease. Implement this trait for tests and for
/// other backends. A lock has no state: the elector passes the last Lease to `update`.
///
/// Each method blocks until the backend has responded, or until `stop` is set; then it returns
/// promptly. A write whose result is unknown returns an error. A panic is caught, and is an error:
/// of [`LeaderElector::new`](super::LeaderElector::new) if `name` or `identity` panics, which are called
/// only there. A panic of `reference` is logged, and there is no event.
///
/// ```
/// use k8s_informer::Stop;
/// use k8s_informer::error::{Error, Status};
/// use k8s_informer_controller::leader_election::{
///     Ended, LeaderElectionOptions, LeaderElector, Lease, Lock, Record,
/// };
/// use std::sync::Mutex;
///
/// /// An election between the threads of a process.
/// #[derive(Default)]
/// struct Local(Mutex<Option<Lease>>);
///
/// fn refused(code: u16) -> Error {
///     let mut status = Status::default();
///     status.code = code;
///     Error::from_status(status)
/// }
///
/// impl Lock for Local {
///     fn name(&self) -> &str {
///         "local"
///     }
///
///     fn identity(&self) -> &str {
///         "a"
///     }
///
///     fn get(&self, _: &Stop) -> Result<Lease, Error> {
///         self.0.lock().unwrap().clone().ok_or_else(|| refused(404))
///     }
///
///     fn create(&self, record: &Record, _: &Stop) -> Result<Lease, Error> {
///         let mut stored = self.0.lock().unwrap();
///         if stored.is_some() {
///             return Err(refused(409));
///         }
///         let mut lease = Lease::default();
///         lease.record = record.clone();
///         lease.resource_version = "1".to_owned();
///         *stored = Some(lease.clone());
///         Ok(lease)
///     }
///
///     fn update(&self, record: &Record, last: &Lease, _: &Stop) -> Result<Lease, Error> {
///         let mut stored = self.0.lock().unwrap();
///         let lease = stored.as_mut().ok_or_else(|| refused(404))?;
///         if lease.resource_version != last.resource_version {
///             return Err(refused(409));
///         }
///         lease.record = record.clone();
///         lease.resource_version = format!("{}0", last.resource_version);
///         Ok(lease.clone())
///     }
/// }
///
/// let elector = LeaderElector::new(Local::default(), LeaderElectionOptions::new())?;
/// assert!(matches!(elector.run(|_| 7, &Stop::never())?, Ended::Finished(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Lock: Send + Sync + 'static {
    /// Returns the name of the lock for messages and threads, such as `kube-system/my-controller`.
    /// client-go's `Describe`.
    fn name(&self) -> &str;

    /// Returns the identity of this candidate. No other process may have the same.
    fn identity(&self) -> &str;

    /// Reads the Lease.
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if there is none. The elector then
    /// creates it.
    fn get(&self, stop: &Stop) -> Result<Lease, Error>;

    /// Creates the Lease with this record.
    ///
    /// # Errors
    ///
    /// Returns an error if it exists.
    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error>;

    /// Replaces the record of the Lease, and returns the Lease with its new version.
    ///
    /// # Errors
    ///
    /// Returns an error if the Lease is not the one of `last`, or has another resource version.
    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error>;

    /// Returns the object that the [events](super::LeaderElectionOptions::recorder) of the election
    /// are about. The default is `None`: no events.
    fn reference(&self, lease: &Lease) -> Option<ObjectReference> {
        let _ = lease;
        None
    }

    /// Watches the Lease until `stop` is set, and calls `on_free` whenever it has no holder or was
    /// deleted. A waiting candidate then tries at once.
    ///
    /// It may return at any time: candidates also poll. The default returns immediately.
    fn watch(&self, on_free: &mut dyn FnMut(), stop: &Stop) {
        let _ = (stop, on_free);
    }
}

/// Keeps the record of an election in a Lease (`coordination.k8s.io/v1`) on an API server.
/// client-go's `resourcelock.LeaseLock`.
///
/// The metadata of the Lease survive every write, such as annotations and foreign labels. The spec
/// is replaced. The candidates need the permissions `get`, `create` and `update` for Leases in the
/// namespace. With `watch`, a candidate takes over at once after a release.
///
/// The elector limits the time of its requests. If the client has a
/// [rate limit](k8s_informer::Config::rate_limit), renewals share it with all other requests, so give the
/// lock a separate client if your program uses up its limit.
pub struct LeaseLock {
    api: Api<DynamicObject>,
    lease_name: String,
    /// Namespace and name.
    name: String,
    identity: String,
    labels: BTreeMap<String, String>,
}

/// The spec of a Lease, as it is read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
    strategy: Option<String>,
    preferred_holder: Option<String>,
}

impl LeaseLock {
    /// Creates a lock for the Lease with this namespace and name. The identity is the name of the
    /// host and a random number.
    pub fn new(client: &Client, namespace: &str, name: &str) -> Self {
        let leases = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
        Self {
            api: client.dynamic_api(&leases, Some(namespace)),
            lease_name: name.to_owned(),
            name: format!("{namespace}/{name}"),
            identity: format!("{}_{:016x}{:016x}", host_name(), random(), random()),
            labels: BTreeMap::new(),
        }
    }

    /// Sets the identity of this candidate, which other candidates see.
    ///
    /// A candidate takes over a Lease with its own identity at once, so no two processes may have
    /// the same identity. The name of a Pod is unique, but its containers share it.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Adds a label, which every write sets on the Lease.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Watches until the server ends the watch.
    fn watch_once(&self, stop: &Stop, on_free: &mut dyn FnMut()) -> Result<(), Error> {
        let options = ListOptions::new()
            .field_selector(format!("metadata.name={}", self.lease_name))
            .timeout_seconds(300);
        for event in self.api.watch(&options, stop)? {
            let is_free = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    read_lease(&object)?.record.holder.is_none()
                }
                WatchEvent::Deleted(_) => true,
                _ => false,
            };
            if is_free {
                on_free();
            }
        }
        Ok(())
    }
}

impl Lock for LeaseLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn get(&self, stop: &Stop) -> Result<Lease, Error> {
        read_lease(&*self.api.get(&self.lease_name, stop)?)
    }

    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error> {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.lease_name,
                "namespace": self.api.namespace(),
                "labels": self.labels,
            },
            "spec": spec(record),
        });
        read_lease(&*self.api.create(&object, stop)?)
    }

    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error> {
        let invalid =
            |error: serde_json::Error| Error::invalid(format!("the Lease is invalid: {error}"));
        let mut object: DynamicObject = serde_json::from_str(&last.object).map_err(invalid)?;
        object
            .edit(|fields| {
                fields.insert("spec".to_owned(), spec(record));
                // Indexing creates absent labels. An object whose metadata or labels are of
                // another type is not a `DynamicObject`.
                let metadata = fields.entry("metadata").or_insert(Value::Null);
                for (key, value) in &self.labels {
                    metadata["labels"][key] = value.clone().into();
                }
            })
            .map_err(invalid)?;
        read_lease(&*self.api.replace(&Fetched::new(object), stop)?)
    }

    fn reference(&self, lease: &Lease) -> Option<ObjectReference> {
        let kind = GroupVersionKind::of("coordination.k8s.io/v1", "Lease");
        let namespace = self.api.namespace().unwrap_or_default();
        let mut reference = ObjectReference::named(&kind, namespace, &self.lease_name);
        reference.uid.clone_from(&lease.uid);
        reference
            .resource_version
            .clone_from(&lease.resource_version);
        Some(reference)
    }

    fn watch(&self, on_free: &mut dyn FnMut(), stop: &Stop) {
        let mut backoff = Backoff::default();
        while !stop.is_stopped() {
            match self.watch_once(stop, on_free) {
                Ok(()) => backoff.reset(),
                Err(error) if error.is_forbidden() || error.is_method_not_allowed() => {
                    log::info!("leader election {}: polling only: {error}", self.name);
                    return;
                }
                Err(error) => log::debug!("leader election {}: {error}", self.name),
            }
            RealClock.wait(backoff.step(), stop);
        }
    }
}

impl fmt::Debug for LeaseLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLock")
            .field("name", &self.name)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Reads a Lease. An empty text is the same as an absent one, as in client-go.
pub(crate) fn read_lease(object: &DynamicObject) -> Result<Lease, Error> {
    let invalid = |problem: String| {
        Error::invalid(format!(
            "the Lease {}/{} is invalid: {problem}",
            object.namespace(),
            object.name()
        ))
    };
    let spec: Spec = object
        .read("/spec")
        .map_err(|error| invalid(error.to_string()))?
        .unwrap_or_default();
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    let time = |field: &str, time: Option<String>| -> Result<Option<i64>, Error> {
        let time = time.map_or(Ok(None), |time| UnixTime::parse(&time));
        let time = time.map_err(|problem| invalid(format!("spec.{field} is {problem}")))?;
        Ok(time.map(UnixTime::as_micros))
    };
    Ok(Lease {
        uid: object.uid().to_owned(),
        resource_version: object.resource_version().to_owned(),
        record: Record {
            holder: text(spec.holder_identity),
            lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquire_time: time("acquireTime", spec.acquire_time)?,
            renew_time: time("renewTime", spec.renew_time)?,
            transitions: spec.lease_transitions.unwrap_or_default(),
            strategy: text(spec.strategy),
            preferred_holder: text(spec.preferred_holder),
        },
        object: object.json().to_owned(),
    })
}

fn spec(record: &Record) -> Value {
    let time = |micros: i64| {
        let time = UnixTime::from_micros(micros);
        // The server requires exactly six digits.
        rfc3339::microseconds(time.seconds, time.nanoseconds)
    };
    // client-go always sends both times, as null if they are not set, and a free Lease has an empty
    // holder.
    json!({
        "holderIdentity": record.holder.as_deref().unwrap_or_default(),
        "leaseDurationSeconds": record.lease_duration_seconds,
        "acquireTime": record.acquire_time.map(time),
        "renewTime": record.renew_time.map(time),
        "leaseTransitions": record.transitions,
    })
}

/// Returns a random number.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
