//! A server that has forgotten what was, or what will be.

use k8s_informer::{Error, ReflectorState, SharedInformerFactory, Stop};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, on_every_cluster_of_our_own};
use crate::proxy::Proxy;
use crate::support::{Follower, cached, shut_down, wait_until};

#[test]
fn after_a_compaction_what_was_missed_is_made_up_for() {
    on_every_cluster_of_our_own(BOTH, |cluster| {
        let namespace = cluster.namespace("compacted");
        for name in ["a", "b", "c"] {
            namespace.create(name, json!({}));
        }
        let factory = cluster.factory().namespace(&namespace.name).build();
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::new()).unwrap();
        factory.wait_for_cache_sync(&Stop::new()).unwrap();
        namespace.patch("a", &json!({ "data": { "round": "1" } }));
        follower.wait("the change", |known| known.events.contains(&"~a".to_owned()));

        cluster.kill();
        wait_until("it has noticed", || maps.status().last_error.filter(Error::is_connection_refused));
        let path = |name: &str| format!("{}/{name}", namespace.path("configmaps"));
        cluster.delete_unseen(&[path("b"), path("c")]);
        cluster.restart();
        namespace.create("d", json!({}));
        follower.wait("all of it", |known| {
            ["-b", "-c", "+d"].iter().all(|event| known.events.contains(&(*event).to_owned()))
        });
        let known = follower.known();
        assert_eq!((known.events.len(), &known.problems[..], known.unknown.len()), (7, &[][..], 2));
        assert_eq!(known.versions, cluster.versions(&namespace));
        assert_eq!(cached(&maps), known.versions);
        let error = maps.status().last_error.unwrap();
        assert!(error.is_gone(), "{error}");
        shut_down(&factory, "after a compaction");
    });
}

/// What it has seen has never been. The versions of then are given again, to other things.
#[test]
fn a_server_that_was_restored_has_its_way() {
    on_every_cluster_of_our_own(BOTH, |cluster| {
        let namespace = cluster.namespace("restored");
        for name in ["kept", "changed", "deleted"] {
            namespace.create(name, json!({}));
        }
        let backup = cluster.backup();
        let proxy = Proxy::to(cluster.url());
        let builder = SharedInformerFactory::builder(cluster.client_through(&proxy));
        let factory = builder.reflector_options(cluster.options()).namespace(&namespace.name).build();
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::new()).unwrap();
        factory.wait_for_cache_sync(&Stop::new()).unwrap();
        for round in 1..=20 {
            namespace.patch("changed", &json!({ "data": { "round": round.to_string() } }));
        }
        namespace.delete("deleted");
        namespace.create("lost", json!({}));
        follower.wait("the last of it", |known| known.events.contains(&"+lost".to_owned()));
        let ahead = cached(&maps);

        cluster.restore(&backup);
        namespace.create("new", json!({}));
        namespace.patch("changed", &json!({ "data": { "round": "other" } }));
        let truth = cluster.versions(&namespace);
        assert_ne!(truth, ahead);
        // A watch from a version that is yet to come is silent. One that breaks off at once is no watch.
        wait_until("it is as the server", || {
            if maps.status().state == ReflectorState::Watching {
                proxy.cut();
            }
            (cached(&maps) == truth).then_some(())
        });
        let lister = maps.lister();
        let round =
            |name: &str| lister.get(&namespace.name, name).unwrap().data.clone().unwrap()["round"].clone();
        assert_eq!((round("changed"), round("kept")), ("other".to_owned(), "0".to_owned()));

        wait_until("it watches", || (maps.status().state == ReflectorState::Watching).then_some(()));
        namespace.patch("kept", &json!({ "data": { "round": "1" } }));
        follower.wait("it goes on", |known| known.events.contains(&"~kept".to_owned()));
        assert_eq!(follower.known().versions, cluster.versions(&namespace));
        let status = maps.status();
        println!("  {} lists, {} watches, {:?}", status.lists, status.watches, status.last_error);
        shut_down(&factory, "after a restore");
    });
}
