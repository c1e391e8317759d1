//! The Leases of the shards, as a replica sees them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::controller::division::ShardBy;
use crate::leader_election::{Lease, read_lease};
use k8s_informer::client::Client;
use k8s_informer::client::api::Api;
use k8s_informer::error::Error;
use k8s_informer::object::{DynamicObject, GroupVersionResource, Object};
use k8s_informer::reflector::ListOptions;
use k8s_informer::stop::Stop;
use k8s_informer::time::Clock;

/// The label of the Leases. Its value is the name of the set of shards.
pub(super) const LABEL: &str = "k8s-informer/shards-of";

/// The Leases of a set of shards, also those of other numbers of shards and of other kinds of
/// division. No lock is held while a request runs.
pub(super) struct Leases {
    api: Api<DynamicObject>,
    name: String,
    count: u32,
    by: ShardBy,
    pub(super) identity: String,
    clock: Arc<dyn Clock>,
    /// An innermost lock.
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    leases: BTreeMap<String, SeenLease>,
    is_listed: bool,
    last_error: Option<Error>,
}

struct SeenLease {
    uid: String,
    version: String,
    holder: String,
    /// When the Lease expires if it is not renewed. It counts from the time when this replica has
    /// first seen this version.
    expires: Instant,
}

/// The state of the Leases at one moment.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct View {
    /// The shards that can be taken.
    pub(super) free: Vec<u32>,
    /// The number of shards with a holder.
    pub(in crate::controller) held: usize,
    /// A Lease of another division that has a holder.
    pub(in crate::controller) other: Option<String>,
    pub(in crate::controller) last_error: Option<Error>,
}

impl Leases {
    pub(super) fn new(
        client: &Client,
        (namespace, name): (&str, &str),
        (count, by): (u32, ShardBy),
        identity: String,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let leases = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
        Self {
            api: client.dynamic_api(&leases, Some(namespace)),
            name: name.to_owned(),
            count,
            by,
            identity,
            clock,
            seen: Mutex::default(),
        }
    }

    /// Returns the name of the Lease of a shard. It has all that decides which objects are in the
    /// shard.
    pub(super) fn lease_name(&self, shard: u32) -> String {
        format!(
            "{}-{shard}-of-{}-by-{}",
            self.name,
            self.count,
            self.by.name()
        )
    }

    /// Reads all Leases, without a resource version: the answer has everything that was written
    /// before.
    pub(super) fn observe(&self, stop: &Stop) -> Result<View, Error> {
        let options = ListOptions::default()
            .with(|options| options.label_selector = format!("{LABEL}={}", self.name));
        let list = self.api.list(&options, stop);
        let leases = list.and_then(|list| {
            let leases = list.items.iter();
            let leases = leases.map(|object| Ok((object.name().to_owned(), read_lease(object)?)));
            leases.collect::<Result<BTreeMap<_, _>, Error>>()
        });
        let now = self.clock.now();
        let mut seen = self.seen.lock();
        match leases {
            Err(error) => {
                seen.last_error = Some(error.clone());
                return Err(error);
            }
            Ok(leases) => {
                let mut before = std::mem::take(&mut seen.leases);
                let leases = leases.into_iter().map(|(name, lease)| {
                    let same = before.remove(&name).filter(|before| before.is(&lease));
                    (name, same.unwrap_or_else(|| SeenLease::new(lease, now)))
                });
                *seen = Seen {
                    leases: leases.collect(),
                    is_listed: true,
                    last_error: None,
                };
            }
        }
        drop(seen);
        Ok(self.view())
    }

    /// Returns the state as of the last observation.
    pub(super) fn view(&self) -> View {
        let now = self.clock.now();
        let seen = self.seen.lock();
        let mut view = View {
            last_error: seen.last_error.clone(),
            ..View::default()
        };
        if !seen.is_listed {
            return view;
        }
        let own = (0..self.count).map(|shard| (self.lease_name(shard), shard));
        let own: BTreeMap<_, _> = own.collect();
        view.other = seen
            .leases
            .iter()
            .find(|(name, lease)| lease.is_held(now) && !own.contains_key(*name))
            .map(|(name, _)| name.clone());
        for (name, shard) in own {
            let lease = seen.leases.get(&name).filter(|lease| lease.is_held(now));
            view.held += usize::from(lease.is_some());
            if lease.is_none_or(|lease| lease.holder == self.identity) {
                view.free.push(shard);
            }
        }
        view
    }

    /// Whether a Lease that was just read can be taken.
    pub(super) fn is_free(&self, name: &str, lease: &Lease) -> bool {
        let holder = &lease.record.holder;
        let now = self.clock.now();
        let seen = self.seen.lock();
        let same = seen.leases.get(name).filter(|seen| seen.is(lease));
        holder.is_empty()
            || *holder == self.identity
            || same.is_some_and(|lease| !lease.is_held(now))
    }
}

impl SeenLease {
    fn new(lease: Lease, now: Instant) -> Self {
        let duration = u64::try_from(lease.record.lease_duration_seconds).unwrap_or(0);
        Self {
            uid: lease.uid,
            version: lease.resource_version,
            holder: lease.record.holder,
            expires: now
                .checked_add(Duration::from_secs(duration))
                .unwrap_or(now),
        }
    }

    fn is(&self, lease: &Lease) -> bool {
        self.uid == lease.uid && self.version == lease.resource_version
    }

    fn is_held(&self, now: Instant) -> bool {
        !self.holder.is_empty() && now < self.expires
    }
}
