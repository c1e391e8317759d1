use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lock::Lock;
use super::record::{Lease, Record};
use crate::events::{ObjectReference, host_name};
use crate::log;
use crate::rfc3339;
use k8s_informer::__private::UnixTime;
use k8s_informer::client::Client;
use k8s_informer::client::api::{Api, Fetched, WatchEvent};
use k8s_informer::error::Error;
use k8s_informer::object::{DynamicObject, GroupVersionKind, GroupVersionResource, Object};
use k8s_informer::reflector::ListOptions;
use k8s_informer::stop::Stop;
use k8s_informer::time::{Backoff, Clock, RealClock};

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

/// The spec of a Lease.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
    #[serde(skip_serializing)]
    strategy: Option<String>,
    #[serde(skip_serializing)]
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
            identity: unique_identity(),
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
        let options = ListOptions::default().with(|options| {
            options.field_selector = format!("metadata.name={}", self.lease_name);
            options.timeout_seconds = Some(300);
        });
        for event in self.api.watch(&options, stop)? {
            let is_free = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    lease(&object)?.record.holder.is_empty()
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
        lease(&*self.api.get(&self.lease_name, stop)?)
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
            "spec": spec(record)?,
        });
        lease(&*self.api.create(&object, stop)?)
    }

    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error> {
        let invalid =
            |error: serde_json::Error| Error::invalid(format!("the Lease is invalid: {error}"));
        let mut object: DynamicObject = serde_json::from_str(&last.object).map_err(invalid)?;
        let spec = spec(record)?;
        object
            .edit(|fields| {
                fields.insert("spec".to_owned(), spec);
                // Indexing creates absent labels. An object whose metadata or labels are of
                // another type is not a `DynamicObject`.
                let metadata = fields.entry("metadata").or_insert(Value::Null);
                for (key, value) in &self.labels {
                    metadata["labels"][key] = value.clone().into();
                }
            })
            .map_err(invalid)?;
        lease(&*self.api.replace(&Fetched::new(object), stop)?)
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

    fn watch(&self, stop: &Stop, on_free: &mut dyn FnMut()) {
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

/// Reads a Lease. Absent fields are empty, as in client-go.
fn lease(object: &DynamicObject) -> Result<Lease, Error> {
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
    let time = |field: &str, time: Option<String>| -> Result<Option<i64>, Error> {
        let time = time.map_or(Ok(None), |time| UnixTime::parse(&time));
        let time = time.map_err(|problem| invalid(format!("spec.{field} is {problem}")))?;
        Ok(time.map(UnixTime::as_micros))
    };
    Ok(Lease {
        uid: object.uid().to_owned(),
        resource_version: object.resource_version().to_owned(),
        record: Record {
            holder: spec.holder_identity.unwrap_or_default(),
            lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquire_time: time("acquireTime", spec.acquire_time)?,
            renew_time: time("renewTime", spec.renew_time)?,
            transitions: spec.lease_transitions.unwrap_or_default(),
            strategy: spec.strategy.unwrap_or_default(),
            preferred_holder: spec.preferred_holder.unwrap_or_default(),
        },
        object: object.json().to_owned(),
    })
}

fn spec(record: &Record) -> Result<Value, Error> {
    let invalid =
        |error: String| Error::other(format!("the record of an election is invalid: {error}"));
    let time = |micros: i64| {
        let time = UnixTime::from_micros(micros);
        // The server requires exactly six digits.
        rfc3339::microseconds(time.seconds, time.nanoseconds)
    };
    let spec = Spec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: Some(record.lease_duration_seconds),
        acquire_time: record.acquire_time.map(time),
        renew_time: record.renew_time.map(time),
        lease_transitions: Some(record.transitions),
        ..Spec::default()
    };
    serde_json::to_value(spec).map_err(|error| invalid(error.to_string()))
}

/// The name of the host and a random number.
fn unique_identity() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{}_{:016x}{:016x}", host_name(), random(), random())
}
