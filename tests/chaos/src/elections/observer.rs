//! Watches the Leases and the guarded objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use k8s_informer::client::api::{Api, WatchEvent};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, DynamicObject, Error, Object, Stopper};

use super::group::Feed;
use super::history::{History, LeaseState};
use super::protocol::NAMESPACE;

/// The feeds, by the name of the group, of its Lease and of its guarded object.
type Feeds = BTreeMap<String, Arc<Feed>>;

/// Starts a thread for each of the two resources. They end with the process.
pub(crate) fn start(client: &Client, feeds: &Feeds) {
    let leases = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
    let maps = GroupVersionResource::new("", "v1", "configmaps");
    let resources: [(_, Record); 2] = [(leases, record_lease), (maps, record_write)];
    for (resource, record) in resources {
        let api = client.dynamic_api(&resource, Some(NAMESPACE));
        let feeds = feeds.clone();
        thread::spawn(move || {
            loop {
                // The server was killed, or has no history from before its restart.
                if follow(&api, &feeds, record).is_err() {
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
    }
}

type Invalid = serde_json::Error;

type Record = fn(&DynamicObject, u64, &mut History) -> Result<(), Invalid>;

/// Lists and watches until the watch ends.
fn follow(api: &Api<DynamicObject>, feeds: &Feeds, record: Record) -> Result<(), Error> {
    let stop = Stopper::new();
    let keep = |object: &DynamicObject| {
        let Some(feed) = feeds.get(object.name()) else {
            return;
        };
        let history = &mut feed.lock().history;
        let version = object.resource_version().parse().expect("a number");
        if let Err(error) = record(object, version, history) {
            history.violation(format!("the server has an invalid object: {error}"));
        }
    };
    let list = api.list(&ListOptions::default(), &stop)?;
    list.items.iter().for_each(keep);
    let mut options = ListOptions::default();
    options.resource_version = list.resource_version;
    for event in api.watch(&options, &stop)? {
        match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => keep(&object),
            _ => {}
        }
    }
    Ok(())
}

fn record_lease(
    object: &DynamicObject,
    version: u64,
    history: &mut History,
) -> Result<(), Invalid> {
    let text = |pointer| {
        object
            .read::<String>(pointer)
            .map(Option::unwrap_or_default)
    };
    let acquired = text("/spec/acquireTime")?.parse::<Timestamp>();
    let state = LeaseState {
        uid: object.uid().to_owned(),
        holder: text("/spec/holderIdentity")?,
        term: object.read("/spec/leaseTransitions")?.unwrap_or_default(),
        acquired: acquired.ok().map(Timestamp::as_microsecond),
    };
    history.observe_lease(version, state);
    Ok(())
}

fn record_write(
    object: &DynamicObject,
    version: u64,
    history: &mut History,
) -> Result<(), Invalid> {
    // It is absent before the first write.
    if let Some(write) = object.read::<String>("/data/write")? {
        history.observe_write(version, serde_json::from_str(&write)?);
    }
    Ok(())
}
