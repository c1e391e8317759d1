//! Three informers with one shard each hold every object exactly once, whether the server filters
//! by shard or not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_informer::client::Request;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::Shard;
use k8s_informer::{Object, SharedIndexInformer, SharedInformerFactory, Stop, Stopper};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{
    BOTH, Cluster, ListMethod, Namespace, on_every_cluster_with_and_without_shards, versions,
};
use crate::discovery::Definition;
use crate::interceptor::{GONE, Interceptor};
use crate::leases::post;
use crate::support::{Follower, Versions, cached, shut_down, synced, wait_until};

/// Enough objects that none of three shards is empty.
const OBJECTS: usize = 40;

fn shards() -> [Shard; 3] {
    [0, 1, 2].map(|index| Shard::new(index, 3).unwrap())
}

fn name(n: usize) -> String {
    format!("map-{n}")
}

fn create(namespace: &Namespace<'_>) {
    for n in 0..OBJECTS {
        namespace.create(&name(n), json!({}));
    }
}

/// Merges the parts. Panics if two parts have the same key.
#[track_caller]
fn merge_disjoint(parts: impl IntoIterator<Item = Versions>) -> Versions {
    let mut all = Versions::new();
    for (key, version) in parts.into_iter().flatten() {
        assert!(
            all.insert(key.clone(), version).is_none(),
            "{key} is in two shards"
        );
    }
    all
}

fn delivered(followers: &[Follower]) -> Versions {
    merge_disjoint(followers.iter().map(|follower| follower.known().versions))
}

/// Waits until `shard_applied` has the expected value.
#[track_caller]
fn assert_applied<T: Object>(cluster: &Cluster, informers: &[SharedIndexInformer<T>]) {
    let expected = match (cluster.supports_shards(), cluster.list_method) {
        (true, ListMethod::List) => Some(true),
        // A watch-list does not report whether the server filters, and a server that filters sends
        // no object of another shard.
        (true, ListMethod::WatchList) => None,
        (false, _) => Some(false),
    };
    for informer in informers {
        wait_until(&format!("shard_applied becomes {expected:?}"), || {
            (informer.status().shard_applied == expected).then_some(())
        });
    }
}

#[test]
fn sh4_three_shards_hold_each_object_once() {
    on_every_cluster_with_and_without_shards(BOTH, |cluster| {
        let namespace = cluster.namespace("shards");
        create(&namespace);
        let factory = cluster.factory();
        let informers = shards().map(|shard| {
            factory.informer_for(
                Source::of::<ConfigMap>()
                    .scope(InformerScope::all().namespace(&namespace.name).shard(shard)),
            )
        });
        let followers = informers
            .each_ref()
            .map(|informer| synced(&factory, informer));
        assert_eq!(
            merge_disjoint(informers.iter().map(cached)),
            cluster.versions(&namespace)
        );
        assert_eq!(delivered(&followers), cluster.versions(&namespace));
        assert_applied(cluster, &informers);
        for (informer, follower) in informers.iter().zip(&followers) {
            let own = follower.known().initial;
            assert!((1..OBJECTS).contains(&own), "{own}");
            // The number of objects that the server sent.
            let sent = if cluster.supports_shards() {
                own
            } else {
                OBJECTS
            };
            wait_until(&format!("{sent} objects are received"), || {
                (informer.status().received == sent).then_some(())
            });
            assert_eq!(informer.status().unreadable, 0);
        }

        for n in 0..OBJECTS {
            if n % 4 == 0 {
                namespace.delete(&name(n));
            } else if n % 2 == 0 {
                namespace.patch(&name(n), &json!({ "data": { "round": "1" } }));
            }
        }
        for n in OBJECTS..OBJECTS + 10 {
            namespace.create(&name(n), json!({}));
        }
        // Wait for the deletion before the object is created again. The new object has another UID
        // and may belong to another shard, whose watch may be faster than the watch with the
        // deletion.
        let recreated = format!("{}/{}", namespace.name, name(0));
        wait_until("the deletion is delivered", || {
            (!delivered(&followers).contains_key(&recreated)).then_some(())
        });
        namespace.create(&name(0), json!({}));
        let truth = cluster.versions(&namespace);
        wait_until("all changes are delivered", || {
            (delivered(&followers) == truth).then_some(())
        });
        assert_eq!(merge_disjoint(informers.iter().map(cached)), truth);
        let known = followers.each_ref().map(Follower::known);
        assert_eq!(
            known.iter().map(|known| known.events.len()).sum::<usize>(),
            OBJECTS + 20 + 10 + 1
        );
        assert_eq!(known.each_ref().map(|known| known.problems.len()), [0; 3]);
        assert_applied(cluster, &informers);
        shut_down(&factory, "with three shards");
    });
}

#[test]
fn sh3_custom_resources_and_metadata_are_not_confirmed() {
    on_every_cluster_with_and_without_shards(BOTH, |cluster| {
        let namespace = cluster.namespace("shards");
        let definition = Definition::create(cluster, &namespace.name);
        let (group, name) = (&definition.group, &namespace.name);
        let path = format!("/apis/{group}/v1/namespaces/{name}/gizmos");
        for n in 0..OBJECTS {
            cluster.send(post(
                &path,
                &json!({
                    "apiVersion": format!("{group}/v1"), "kind": "Gizmo",
                    "metadata": {"name": format!("gizmo-{n}")},
                }),
            ));
            cluster.wait_until_listed(&format!("{path}/gizmo-{n}"));
        }
        create(&namespace);
        let (factory, [shard, ..]) = (cluster.factory(), shards());
        let scope = InformerScope::all().namespace(name).shard(shard.clone());
        let gizmos = GroupVersionResource::new(&**group, "v1", "gizmos");
        let maps = GroupVersionResource::new("", "v1", "configmaps");
        let metadata = [&gizmos, &maps].map(|resource| {
            factory.informer_for(Source::metadata(resource.clone()).scope(scope.clone()))
        });
        let whole = factory.informer_for(Source::dynamic(gizmos).scope(scope));
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        // An informer's status is updated after its list has reached the cache.
        let expected = (!cluster.supports_shards()).then_some(false);
        let sent = |own| if expected.is_none() { own } else { OBJECTS };
        let statuses = || {
            let metadata = metadata
                .iter()
                .map(|it| (it.status(), it.lister().list().len()));
            metadata.chain([(whole.status(), whole.lister().list().len())])
        };
        wait_until("each status has the shard", || {
            statuses()
                .all(|(status, own)| {
                    assert!(own > 0 && own < OBJECTS, "{own}");
                    status.shard_applied == expected && status.received == sent(own)
                })
                .then_some(())
        });
        shut_down(&factory, "with a shard of custom resources");
    });
}

#[test]
fn sh4_three_shards_hold_each_object_once_after_relists() {
    on_every_cluster_with_and_without_shards(BOTH, |cluster| {
        let namespace = cluster.namespace("shards");
        create(&namespace);
        let expire = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let factories = expire.each_ref().map(|expire| {
            let expire = Arc::clone(expire);
            // The watches drop all deletions. After `expire` is set, the next line ends the watch.
            let source = Interceptor::new(cluster.client(), move |_, _, line| {
                if line.contains(r#""type":"DELETED""#) {
                    String::new()
                } else if expire.swap(false, Ordering::Relaxed) {
                    GONE.to_owned()
                } else {
                    line
                }
            });
            SharedInformerFactory::with_options(source, cluster.factory_options())
        });
        let scope = InformerScope::all().namespace(&namespace.name);
        let of = |(factory, shard): (&SharedInformerFactory, Shard)| {
            let informer =
                factory.informer_for(Source::of::<ConfigMap>().scope(scope.clone().shard(shard)));
            let follower = synced(factory, &informer);
            (informer, follower)
        };
        let (informers, followers): (Vec<_>, Vec<_>) =
            factories.iter().zip(shards()).map(of).unzip();
        assert_eq!(delivered(&followers), cluster.versions(&namespace));
        for n in 0..10 {
            namespace.delete(&name(n));
        }
        // The watches deliver the new object but no deletions. The relists below deliver the
        // deletions.
        namespace.create("new", json!({}));
        wait_until("the watches continue", || {
            delivered(&followers)
                .contains_key(&format!("{}/new", namespace.name))
                .then_some(())
        });
        assert_eq!(
            delivered(&followers).len(),
            OBJECTS + 1,
            "the deletions are not delivered yet"
        );
        expire
            .iter()
            .for_each(|expire| expire.store(true, Ordering::Relaxed));
        for n in 10..OBJECTS {
            namespace.patch(&name(n), &json!({ "data": { "round": "1" } }));
        }
        let truth = cluster.versions(&namespace);
        wait_until("all missed changes are delivered", || {
            (delivered(&followers) == truth).then_some(())
        });
        assert_eq!(merge_disjoint(informers.iter().map(cached)), truth);
        assert_applied(cluster, &informers);
        for informer in &informers {
            wait_until("the status has the relist", || {
                let status = informer.status();
                (status.relists == 1 && status.last_error.is_some_and(|error| error.is_gone()))
                    .then_some(())
            });
        }
        let known: Vec<_> = followers.iter().map(Follower::known).collect();
        assert_eq!(
            known.iter().map(|known| known.unknown.len()).sum::<usize>(),
            10
        );
        assert!(known.iter().all(|known| known.problems.is_empty()));
        factories
            .iter()
            .for_each(|factory| shut_down(factory, "with shards after a relist"));
    });
}

#[test]
fn sh1_sharding_by_namespace_keeps_namespaces_whole() {
    on_every_cluster_with_and_without_shards(BOTH, |cluster| {
        let namespaces: Vec<_> = (0..6)
            .map(|n| cluster.namespace(&format!("shard-{n}")))
            .collect();
        let run = &namespaces[0].name;
        for namespace in &namespaces {
            for name in ["a", "b"] {
                namespace.create(name, json!({ "run": run }));
            }
        }
        // An existing cluster may have other users.
        let scope = InformerScope::all().label_selector(format!("run={run}").parse().unwrap());
        let (factory, stop) = (cluster.factory(), Stopper::new());
        let informers = shards().map(|shard| {
            factory.informer_for(
                Source::of::<ConfigMap>().scope(scope.clone().shard(shard.by_namespace())),
            )
        });
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        for namespace in &namespaces {
            namespace.create("late", json!({ "run": run }));
            namespace.delete("b");
        }
        let path = format!("/api/v1/configmaps?labelSelector=run%3D{run}");
        let truth = versions(&cluster.send(Request::get(path)));
        wait_until("all changes are cached", || {
            (merge_disjoint(informers.iter().map(cached)) == truth).then_some(())
        });
        let mut shard_of = BTreeMap::new();
        for (index, informer) in informers.iter().enumerate() {
            for map in informer.lister().list() {
                let before = shard_of.insert(map.namespace().to_owned(), index);
                assert!(
                    before.is_none_or(|before| before == index),
                    "namespace {} is in two shards",
                    map.namespace()
                );
            }
        }
        assert_eq!(shard_of.len(), namespaces.len());
        shut_down(&factory, "with shards by namespace");
    });
}
