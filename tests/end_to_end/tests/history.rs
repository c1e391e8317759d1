//! A server that lost its past (compaction) or its future (restore).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Error, SharedInformerFactory, Stop, Stopper};
use k8s_informer_testing::FakeClock;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, LIST, merge_patch, on_every_disposable_cluster};
use crate::proxy::Proxy;
use crate::support::{Follower, StopOnDrop, cached, shut_down, synced, wait_until};

#[test]
fn missed_changes_are_recovered_after_compaction() {
    on_every_disposable_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("compacted");
        for name in ["a", "b", "c"] {
            namespace.create(name, json!({}));
        }
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        namespace.patch("a", &json!({ "data": { "round": "1" } }));
        follower.wait("the change", |known| {
            known.events.contains(&"~a".to_owned())
        });

        cluster.kill();
        wait_until("the informer reports the failure", || {
            maps.status()
                .last_error
                .filter(Error::is_connection_refused)
        });
        let path = |name: &str| format!("{}/{name}", namespace.path("configmaps"));
        cluster.delete_unseen(&[path("b"), path("c")]);
        cluster.restart();
        namespace.create("d", json!({}));
        follower.wait("all missed changes", |known| {
            ["-b", "-c", "+d"]
                .iter()
                .all(|event| known.events.contains(&(*event).to_owned()))
        });
        let known = follower.known();
        assert_eq!(
            (known.events.len(), &known.problems[..], known.unknown.len()),
            (7, &[][..], 2)
        );
        assert_eq!(known.versions, cluster.versions(&namespace));
        assert_eq!(cached(&maps), known.versions);
        // A relist delivered the deletions. The last error is not compared, because it depends on
        // the restart.
        let status = maps.status();
        assert!(status.relists >= 1 && status.complete, "{status:?}");
        shut_down(&factory, "after a compaction");
    });
}

/// After a restart, the kube-apiserver rejects a watch from the informer's version, but etcd still
/// has the state at that version. The informer's pages must show the current state. Pages at
/// exactly that version would contain the old state, and the next watch would be rejected again.
#[test]
fn l9_pages_after_a_restart_show_the_current_state() {
    on_every_disposable_cluster(LIST, |cluster| {
        let namespace = cluster.namespace("pages");
        for name in ["a", "b", "c", "d", "e"] {
            namespace.create(name, json!({}));
        }
        let mut options = cluster.options();
        options.page_size = Some(2);
        let factory = SharedInformerFactory::with_options(
            cluster.client(),
            FactoryOptions::new()
                .reflector(options)
                .namespace(&namespace.name),
        );
        let maps = factory.informer::<ConfigMap>();
        let follower = synced(&factory, &maps);

        let stop = Stopper::new();
        thread::scope(|scope| {
            let _stop_on_drop = StopOnDrop(&stop);
            scope.spawn(|| {
                for round in 1.. {
                    let patch = json!({ "data": { "round": round.to_string() } });
                    let path = format!("{}/e", namespace.path("configmaps"));
                    // Ignore the result: the write fails while the server is down.
                    let _ = cluster.try_send(merge_patch(&path, &patch));
                    if stop.wait_timeout(Duration::from_millis(2)) {
                        break;
                    }
                }
            });
            for (name, compacted) in [("a", false), ("b", false), ("c", true)] {
                cluster.kill();
                wait_until("the informer reports the failure", || {
                    maps.status()
                        .last_error
                        .filter(Error::is_connection_refused)
                });
                cluster.delete_unseen(&[format!("{}/{name}", namespace.path("configmaps"))]);
                cluster.restart();
                if compacted {
                    cluster.compact();
                }
                follower.wait("the deletion", |known| {
                    known.events.contains(&format!("-{name}"))
                });
            }
        });
        let truth = cluster.versions(&namespace);
        wait_until("the cache equals the state of the server", || {
            (cached(&maps) == truth).then_some(())
        });
        let status = maps.status();
        println!("  {} pages, {} watches", status.lists, status.watches);
        assert!(status.complete && follower.known().problems.is_empty());
        shut_down(&factory, "after restarts");
    });
}

/// After the restore, the server does not have the state that the informer saw. It assigns the same
/// versions to other objects.
#[test]
fn cache_follows_a_server_restored_from_backup() {
    on_every_disposable_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("restored");
        for name in ["kept", "changed", "deleted"] {
            namespace.create(name, json!({}));
        }
        let backup = cluster.backup();
        let proxy = Proxy::to(cluster.url());
        let factory = SharedInformerFactory::with_options(
            cluster.client_through(&proxy),
            cluster.factory_options().namespace(&namespace.name),
        );
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        for round in 1..=20 {
            namespace.patch(
                "changed",
                &json!({ "data": { "round": round.to_string() } }),
            );
        }
        namespace.delete("deleted");
        namespace.create("lost", json!({}));
        follower.wait("the last change", |known| {
            known.events.contains(&"+lost".to_owned())
        });
        let ahead = cached(&maps);

        cluster.restore(&backup);
        namespace.create("new", json!({}));
        namespace.patch("changed", &json!({ "data": { "round": "other" } }));
        let truth = cluster.versions(&namespace);
        assert_ne!(truth, ahead);
        // A watch from a future version is silent. Cutting the watches makes the informer notice.
        wait_until("the cache equals the state of the server", || {
            if maps.status().state == ReflectorState::Watching {
                proxy.cut();
            }
            (cached(&maps) == truth).then_some(())
        });
        let lister = maps.lister();
        let round = |name: &str| {
            lister
                .get(&namespace.name, name)
                .unwrap()
                .data
                .clone()
                .unwrap()["round"]
                .clone()
        };
        assert_eq!(
            (round("changed"), round("kept")),
            ("other".to_owned(), "0".to_owned())
        );

        wait_until("the informer watches", || {
            (maps.status().state == ReflectorState::Watching).then_some(())
        });
        namespace.patch("kept", &json!({ "data": { "round": "1" } }));
        follower.wait("the watch continues", |known| {
            known.events.contains(&"~kept".to_owned())
        });
        assert_eq!(follower.known().versions, cluster.versions(&namespace));
        let status = maps.status();
        println!(
            "  {} lists, {} watches, {:?}",
            status.lists, status.watches, status.last_error
        );
        shut_down(&factory, "after a restore");
    });
}

/// With an idle timeout, the informer reopens the watch at a future version again and again. After
/// two minutes of silence it relists. A fake clock skips the wait.
#[test]
fn silent_restored_server_is_detected_by_idle_timeout() {
    on_every_disposable_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("silent");
        namespace.create("kept", json!({}));
        let backup = cluster.backup();
        let clock = FakeClock::new();
        let mut options = cluster.options();
        options.watch_idle_timeout = Some(Duration::from_millis(200));
        options.clock = Arc::new(clock.clone());
        let factory = SharedInformerFactory::with_options(
            cluster.client(),
            FactoryOptions::new()
                .reflector(options)
                .namespace(&namespace.name),
        );
        let maps = factory.informer::<ConfigMap>();
        factory.start(&Stop::never()).unwrap();
        // After its restart, the server can reject the first list. The informer then backs off.
        wait_until("the informer has synced", || {
            clock.advance(Duration::from_secs(1));
            maps.has_synced().then_some(())
        });
        for round in 1..=20 {
            namespace.patch("kept", &json!({ "data": { "round": round.to_string() } }));
        }
        namespace.create("lost", json!({}));
        wait_until("the last change", || {
            maps.lister().get(&namespace.name, "lost")
        });

        cluster.restore(&backup);
        let truth = cluster.versions(&namespace);
        wait_until("the cache equals the state of the server", || {
            clock.advance(Duration::from_secs(1));
            (cached(&maps) == truth).then_some(())
        });
        let status = maps.status();
        println!(
            "  {} lists, {} watches, {:?}",
            status.lists, status.watches, status.last_error
        );
        shut_down(&factory, "after a silence");
    });
}
