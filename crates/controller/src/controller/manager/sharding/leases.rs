//! The Leases of the shards, as a replica sees them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;

use super::seen::{Seen, View};
use crate::controller::sources::division::ShardBy;
use crate::leader_election::{Clocks, Observation, read_lease};
use k8s_informer::__private::sync::thread;
use k8s_informer::__private::{StopOnDrop, named};
use k8s_informer::client::Client;
use k8s_informer::client::api::{Api, ObjectList};
use k8s_informer::error::Error;
use k8s_informer::object::{DynamicObject, GroupVersionResource, Object};
use k8s_informer::reflector::ListOptions;
use k8s_informer::stop::{Stop, Stopper};

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
    /// The time limit of a list, as that of each request of an election: half the renew deadline.
    limit: Duration,
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
        limit: Duration,
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
            limit,
            observed: Mutex::new(observed),
        }
    }

    pub(super) fn lease_name(&self, shard: u32) -> String {
        lease_name(&self.name, shard, self.count, self.by)
    }

    /// Reads all Leases, without a resource version: the answer has everything that was written
    /// before.
    pub(super) fn observe(&self, stop: &Stop) -> Result<View, Error> {
        let list = self.list(stop);
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

    /// Lists the Leases within the limit. A server that hangs must not keep a replica from its shard for
    /// as long as other requests may take.
    fn list(&self, stop: &Stop) -> Result<ObjectList<DynamicObject>, Error> {
        let options = ListOptions::new().label_selector(format!("{LABEL}={}", self.name));
        let (limited, listed) = (stop.child(), StopOnDrop(Stopper::new()));
        let list = thread::scope(|scope| {
            let of_limit = (limited.clone(), listed.0.clone());
            let wait = move || {
                let (limited, listed) = of_limit;
                if self.clocks.clock().wait(self.limit, &listed) {
                    limited.stop();
                }
            };
            // Without the thread, the limit is that of the client.
            drop(named("shards limit".to_owned(), None).spawn_scoped(scope, wait));
            let list = self.api.list(&options, &limited);
            drop(listed);
            list
        });
        match list {
            Err(error) if error.is_stopped() && !stop.is_stopped() => {
                let problem = format!("no list of the Leases within {:?}", self.limit);
                Err(io::Error::new(io::ErrorKind::TimedOut, problem).into())
            }
            list => list,
        }
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
