//! Waits for versions.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::error::WaitCause;
use k8s_informer::informer::InformerQueue;
use k8s_informer::object::ResourceVersion;
use k8s_informer::{Object, SharedIndexInformer, Stop, Stopper};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, on_every_cluster};
use crate::support::{PATIENCE, cached, shut_down, synced};

const QUEUES: [InformerQueue; 2] = [InformerQueue::DeltaFifo, InformerQueue::RealFifo];

const WRITERS: usize = 4;
const KEYS: usize = 5;
const ROUNDS: usize = 40;

/// Writes to its own keys while other writers write. After each write it waits and finds the write
/// in the cache.
fn write_and_check(writer: usize, api: &Api<ConfigMap>, maps: &SharedIndexInformer<ConfigMap>) {
    let stop = Stopper::new();
    let namespace = api.namespace().unwrap();
    // The version of each name that this writer wrote.
    let mut written = BTreeMap::new();
    for round in 0..ROUNDS {
        let name = format!("map-{writer}-{}", round * 7 % KEYS);
        let key = format!("{namespace}/{name}");
        if round % 5 == 4 && written.remove(&key).is_some() {
            // A delete returns no version. At the version of the next write, the object is gone.
            api.delete(&name, &DeleteOptions::default(), &stop).unwrap();
            continue;
        }
        let data = json!({ "round": format!("{round}") });
        let response = if written.contains_key(&key) {
            api.patch(&name, &Patch::merge(json!({ "data": data })), &stop)
        } else {
            api.create(
                &json!({ "metadata": { "name": name }, "data": data }),
                &stop,
            )
        };
        let response = response.unwrap();
        written.insert(key, response.resource_version().to_owned());
        if round % 2 == 0 {
            let version = ResourceVersion::new(response.resource_version()).unwrap();
            maps.wait_for_resource_version(&version, PATIENCE, &stop)
                .unwrap();
            assert!(maps.store_resource_version().unwrap() >= version);
        } else {
            maps.wait_for_object(&response, PATIENCE, &stop).unwrap();
        }
        // The cache contains not only this write but all earlier writes of this writer, including
        // deletions.
        let own_prefix = format!("{namespace}/map-{writer}-");
        let cached = cached(maps)
            .into_iter()
            .filter(|(key, _)| key.starts_with(&own_prefix));
        assert_eq!(
            cached.collect::<BTreeMap<_, _>>(),
            written,
            "round {round} of writer {writer}"
        );
    }
}

#[test]
fn cache_has_a_write_after_waiting_for_its_version() {
    on_every_cluster(BOTH, |cluster| {
        for queue in QUEUES {
            let namespace = cluster.namespace("waits");
            let factory =
                cluster.factory_with(|options| options.queue(queue).namespace(&namespace.name));
            let maps = factory.informer::<ConfigMap>();
            // A slow index function makes changes of many keys queue up.
            maps.add_index("slow", |_| {
                thread::park_timeout(Duration::from_micros(500));
                Vec::new()
            })
            .unwrap();
            let follower = synced(&factory, &maps);
            let client = cluster.client();
            thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (api, maps) = (client.api::<ConfigMap>(Some(&namespace.name)), &maps);
                    scope.spawn(move || write_and_check(writer, &api, maps));
                }
            });
            let truth = cluster.versions(&namespace);
            // The last writes were deletions, for which no writer waited.
            follower.wait("the handler has received all changes", |known| {
                known.versions == truth
            });
            assert_eq!(cached(&maps), truth, "{queue:?}");
            assert_eq!(follower.known().problems, [""; 0], "{queue:?}");
            shut_down(&factory, &format!("after waits, with {queue:?}"));
        }
    });
}

#[test]
fn version_waits_end_if_the_version_cannot_be_reached() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("waits");
        let map = namespace.create("a", json!({}));
        let version = map["metadata"]["resourceVersion"].as_str();
        let version = version.and_then(ResourceVersion::new).unwrap();
        for queue in QUEUES {
            let factory =
                cluster.factory_with(|options| options.queue(queue).namespace(&namespace.name));
            let maps = factory.informer::<ConfigMap>();
            let (stop, moment) = (Stopper::new(), Duration::from_millis(1));
            let wait =
                |version: &ResourceVersion| maps.wait_for_resource_version(version, moment, &stop);
            // The informer has not started yet.
            assert_eq!(maps.store_resource_version(), None);
            let error = wait(&version).unwrap_err();
            assert_eq!(error.cause(), &WaitCause::TimedOut(moment), "{queue:?}");
            assert_eq!(error.last_seen(), None);
            synced(&factory, &maps);
            wait(&version).unwrap();
            let reached = maps.store_resource_version();
            assert!(reached.as_ref() >= Some(&version), "{reached:?}, {version}");
            for text in ["abc", "0x7", "-1", "007", "1.5"] {
                let other = ResourceVersion::new(text);
                let error = wait(other.as_ref().unwrap()).unwrap_err();
                assert_eq!(error.cause(), &WaitCause::NotComparable(other), "{queue:?}");
            }
            // A version with more digits than fit into an integer is comparable.
            let long = ResourceVersion::new(&"9".repeat(40)).unwrap();
            let error = wait(&long).unwrap_err();
            assert_eq!(error.cause(), &WaitCause::TimedOut(moment), "{queue:?}");
            let reached = error.last_seen().and_then(ResourceVersion::new);
            assert!(reached.as_ref() >= Some(&version), "{reached:?}, {version}");

            // The end of the informer ends all waits.
            thread::scope(|scope| {
                let waiter =
                    scope.spawn(|| maps.wait_for_resource_version(&long, PATIENCE, &Stop::never()));
                shut_down(&factory, "during a wait for a version");
                let error = waiter.join().unwrap().unwrap_err();
                assert_eq!(error.cause(), &WaitCause::Ended, "{queue:?}: {error}");
            });
            // A reached version stays reached.
            wait(&version).unwrap();
        }
    });
}
