//! Waits for versions, and reads of one's own writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::informer::InformerQueue;
use k8s_informer::queue::WaitError;
use k8s_informer::{Object, SharedIndexInformer, SharedInformerFactory, Stop};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, Cluster, on_every_cluster};
use crate::support::{PATIENCE, cached, shut_down, synced, wait_until};

const QUEUES: [InformerQueue; 3] = [
    InformerQueue::DeltaFifo,
    InformerQueue::RealFifoAtomic,
    InformerQueue::RealFifoInOrder,
];

const WRITERS: usize = 4;
const KEYS: usize = 5;
const ROUNDS: usize = 40;

/// Whether `version` is at least `expected`.
fn has_reached(version: &str, expected: &str) -> bool {
    version.parse::<u64>().unwrap() >= expected.parse().unwrap()
}

/// Writes to its own keys while other writers write. After each write it waits and finds the write
/// in the cache.
fn write_and_check(writer: usize, api: &Api<ConfigMap>, maps: &SharedIndexInformer<ConfigMap>) {
    let stop = Stop::new();
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
            maps.wait_for_resource_version(response.resource_version(), PATIENCE, &stop)
                .unwrap();
            assert!(has_reached(
                &maps.store_resource_version(),
                response.resource_version()
            ));
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
            let factory = cluster
                .factory()
                .queue(queue)
                .namespace(&namespace.name)
                .build();
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
        let version = map["metadata"]["resourceVersion"].as_str().unwrap();
        for queue in QUEUES {
            let factory = cluster
                .factory()
                .queue(queue)
                .namespace(&namespace.name)
                .build();
            let maps = factory.informer::<ConfigMap>();
            let (stop, moment) = (Stop::new(), Duration::from_millis(1));
            let wait = |version: &str| maps.wait_for_resource_version(version, moment, &stop);
            let timeout = |reached: &str| {
                Err(WaitError::Timeout {
                    reached: reached.to_owned(),
                })
            };
            // The informer has not started yet.
            assert_eq!(
                (maps.store_resource_version().as_str(), wait(version)),
                ("", timeout(""))
            );
            synced(&factory, &maps);
            wait(version).unwrap();
            let reached = maps.store_resource_version();
            assert!(has_reached(&reached, version), "{reached}, {version}");
            for none in ["", "abc", "0x7", "-1", "007", "1.5"] {
                let error = WaitError::NotComparable {
                    version: none.to_owned(),
                };
                assert_eq!(wait(none), Err(error), "{queue:?}");
            }
            // A version with more digits than fit into an integer is comparable.
            let Err(WaitError::Timeout { reached }) = wait(&"9".repeat(40)) else {
                panic!("{queue:?}")
            };
            assert!(has_reached(&reached, version));

            // The end of the informer ends all waits.
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    maps.wait_for_resource_version("99999999999999999999", PATIENCE, &Stop::new())
                });
                shut_down(&factory, "during a wait for a version");
                let error = waiter.join().unwrap().unwrap_err();
                assert!(
                    matches!(error, WaitError::Stopped { .. }),
                    "{queue:?}: {error}"
                );
            });
            // A reached version stays reached.
            wait(version).unwrap();
        }
    });
}

fn round(map: &ConfigMap) -> &str {
    &map.data.as_ref().unwrap()["round"]
}

#[test]
fn m1_own_writes_are_read_before_the_watch_delivers_them() {
    on_every_cluster(BOTH, |cluster| {
        for queue in QUEUES {
            read_your_writes(cluster, queue);
        }
    });
}

fn read_your_writes(cluster: &Cluster, queue: InformerQueue) {
    let namespace = cluster.namespace("mutations");
    for name in ["changed", "overtaken", "deleted"] {
        namespace.create(name, json!({}));
    }
    let proxy = cluster.proxy();
    let builder = SharedInformerFactory::builder(cluster.client_through(&proxy)).queue(queue);
    let factory = builder
        .reflector_options(cluster.options())
        .namespace(&namespace.name)
        .build();
    let maps = factory.informer::<ConfigMap>();
    let fresh = maps
        .mutation_cache(|cache| cache.include_adds(true))
        .unwrap();
    let follower = synced(&factory, &maps);
    namespace.create("watched", json!({}));
    follower.wait("the informer watches", |known| {
        known.events.contains(&"+watched".to_owned())
    });

    // From here on the watch delivers nothing.
    proxy.stall();
    let (api, stop) = (
        cluster.client().api::<ConfigMap>(Some(&namespace.name)),
        Stop::new(),
    );
    let key = |name: &str| format!("{}/{name}", namespace.name);
    let read = |name: &str| fresh.get_by_key(&key(name)).unwrap();
    let cached_round = |name: &str| {
        maps.lister()
            .get(&namespace.name, name)
            .map(|map| round(&map).to_owned())
    };
    let write = |name: &str, to: &str| {
        let patch = Patch::merge(json!({ "data": { "round": to } }));
        let written = Arc::new(api.patch(name, &patch, &stop).unwrap().into_inner());
        fresh.mutation(Arc::clone(&written)).unwrap();
        written
    };
    let mut last = None;
    for to in ["1", "2", "3"] {
        for name in ["changed", "overtaken", "deleted"] {
            last = Some(write(name, to));
            assert_eq!(round(&read(name).unwrap()), to);
            assert_eq!(
                cached_round(name).as_deref(),
                Some("0"),
                "the cache must not have the write yet"
            );
        }
    }
    let body = json!({ "metadata": { "name": "added" }, "data": { "round": "1" } });
    fresh
        .mutation(Arc::new(api.create(&body, &stop).unwrap().into_inner()))
        .unwrap();
    assert_eq!(
        (round(&read("added").unwrap()), cached_round("added")),
        ("1", None)
    );
    let behind = maps
        .wait_for_object(&last.unwrap(), Duration::ZERO, &stop)
        .unwrap_err();
    assert!(matches!(behind, WaitError::Timeout { .. }), "{behind}");

    // Another client writes. The watch then delivers newer states than those in the mutation cache.
    namespace.patch("overtaken", &json!({ "data": { "round": "others" } }));
    namespace.delete("deleted");
    let end = api
        .create(&json!({ "metadata": { "name": "end" } }), &stop)
        .unwrap();
    assert_eq!(round(&read("overtaken").unwrap()), "3");
    proxy.cut();
    maps.wait_for_object(&end, PATIENCE, &stop).unwrap();
    assert_eq!(round(&read("changed").unwrap()), "3");
    assert_eq!(round(&read("added").unwrap()), "1");
    assert_eq!(round(&read("overtaken").unwrap()), "others");
    // The mutation cache removes the object when its handler is notified of the deletion.
    wait_until("the mutation cache drops the deleted object", || {
        read("deleted").is_none().then_some(())
    });
    assert_eq!(cached(&maps), cluster.versions(&namespace), "{queue:?}");
    shut_down(
        &factory,
        &format!("after reading own writes, with {queue:?}"),
    );
}
