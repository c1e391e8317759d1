//! The Leases of the shards, as a replica sees them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::seen::{Seen, View};
use crate::controller::sources::division::ShardBy;
use crate::leader_election::{Clocks, Observation, read_lease};
use k8s_informer::client::Client;
use k8s_informer::client::api::Api;
use k8s_informer::error::Error;
use k8s_informer::object::{DynamicObject, GroupVersionResource, Object};
use k8s_informer::reflector::ListOptions;
use k8s_informer::stop::Stop;

/// The label of the Leases. Its value is the name of the set of shards.
pub(super) const LABEL: &str = "k8s-informer/shards-of";

/// The Leases of a set of shards. No lock is held while a request runs.
pub(super) struct Leases {
    api: Api<DynamicObject>,
    name: String,
    count: u32,
    by: ShardBy,
    pub(super) identity: String,
    /// Also those of the electors, which get what was observed on them.
    pub(super) clocks: Clocks,
    /// An innermost lock.
    observed: Mutex<Observed>,
}

struct Observed {
    seen: Seen,
    /// The error of the last list.
    last_error: Option<Error>,
}

impl Leases {
    pub(super) fn new(
        client: &Client,
        (namespace, name): (&str, &str),
        (count, by): (u32, ShardBy),
        identity: String,
        clocks: Clocks,
    ) -> Self {
        let leases = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
        let own = (0..count).map(|shard| (lease_name(name, shard, count, by), shard));
        let observed = Observed {
            seen: Seen::new(&identity, own.collect()),
            last_error: None,
        };
        Self {
            api: client.dynamic_api(&leases, Some(namespace)),
            name: name.to_owned(),
            count,
            by,
            identity,
            clocks,
            observed: Mutex::new(observed),
        }
    }

    pub(super) fn lease_name(&self, shard: u32) -> String {
        lease_name(&self.name, shard, self.count, self.by)
    }

    /// Reads all Leases, without a resource version: the answer has everything that was written
    /// before.
    pub(super) fn observe(&self, stop: &Stop) -> Result<View, Error> {
        let options = ListOptions::new().label_selector(format!("{LABEL}={}", self.name));
        let list = self.api.list(&options, stop);
        let leases = list.and_then(|list| {
            let leases = list.items.iter();
            let leases = leases.map(|object| {
                let mut lease = read_lease(object)?;
                // An elector reads the object again before it writes.
                lease.object = String::new();
                Ok((object.name().to_owned(), lease))
            });
            leases.collect::<Result<BTreeMap<_, _>, Error>>()
        });
        let now = self.clocks.now().elapsed;
        let mut observed = self.observed.lock();
        observed.last_error = leases.as_ref().err().cloned();
        observed.seen.list(leases?, now);
        Ok(observed.seen.view())
    }

    /// Returns the state as of the last list, and the error of a later one.
    pub(super) fn view(&self) -> View {
        let observed = self.observed.lock();
        let mut view = observed.seen.view();
        view.last_error.clone_from(&observed.last_error);
        view
    }

    /// Returns what this replica has seen of the Lease of a shard.
    pub(super) fn observation(&self, shard: u32) -> Option<Observation> {
        let observed = self.observed.lock();
        observed.seen.observation(&self.lease_name(shard)).cloned()
    }

    /// Adds what an attempt has seen of the Lease that it could not take.
    pub(super) fn add(&self, shard: u32, mut observation: Observation) {
        // As in `observe`: the next attempt reads the object again.
        observation.lease.object = String::new();
        let name = self.lease_name(shard);
        self.observed.lock().seen.add(name, observation);
    }
}

/// Returns the name of the Lease of a shard. It has all that decides which objects are in the
/// shard.
fn lease_name(name: &str, shard: u32, count: u32, by: ShardBy) -> String {
    format!("{name}-{shard}-of-{count}-by-{}", by.name())
}
