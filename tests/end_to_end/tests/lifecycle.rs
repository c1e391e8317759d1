//! Informers from start to end.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::error::ShutdownError;
use k8s_informer::handler::{HandlerFuncs, HandlerOptions};
use k8s_informer::informer::{InformerQueue, InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::store::Transform;
use k8s_informer::time::Backoff;
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop, Stopper};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use serde_json::{Value, json};

use crate::cluster::{BOTH, Cluster, ListMethod, on_every_cluster};
use crate::interceptor::Interceptor;
use crate::support::{PATIENCE, cached, names, shut_down, synced, wait_until};

const SHORT_TIMEOUT: Duration = Duration::from_millis(20);

fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

#[test]
fn sync_timeout_lists_each_forbidden_informer() {
    on_every_cluster(BOTH, |cluster| {
        let Some(path) = cluster.unprivileged_kubeconfig() else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let client = Client::new(Config::from_kubeconfig(path, None).unwrap()).unwrap();
        let factory = SharedInformerFactory::with_options(client, cluster.factory_options());
        let here = InformerScope::all().namespace("default");
        let maps = factory.informer_for(Source::of::<ConfigMap>().scope(here.clone()));
        let (pods, nodes) = (factory.informer::<Pod>(), factory.informer::<Node>());
        let stop = Stopper::new();
        factory.start(&stop).unwrap();
        wait_until("all informers are forbidden", || {
            let statuses = [maps.status(), pods.status(), nodes.status()];
            let refused =
                statuses.map(|status| status.last_error.is_some_and(|error| error.is_forbidden()));
            (refused == [true; 3]).then_some(())
        });
        let error = factory
            .wait_for_cache_sync(SHORT_TIMEOUT, &stop)
            .unwrap_err();
        assert!(error.is_timed_out());
        let text = error.to_string();
        assert!(
            text.starts_with(
                "timed out after 20ms; not synced: configmaps in namespace \"default\" ("
            ),
            "{text}"
        );
        let what = [
            (
                "configmaps in namespace \"default\"",
                "configmaps",
                "in the namespace \"default\"",
            ),
            ("nodes", "nodes", "at the cluster scope"),
            ("pods", "pods", "at the cluster scope"),
        ];
        assert_eq!(error.unsynced().len(), what.len());
        for (unsynced, (name, resource, place)) in error.unsynced().iter().zip(what) {
            let reason = unsynced.last_error.as_ref().unwrap();
            assert!(
                unsynced.name == name && reason.is_forbidden(),
                "{unsynced:?}"
            );
            // A rejected watch-list is followed by a LIST, which is also rejected.
            let verbs: &[&str] = if cluster.list_method == ListMethod::List {
                &["list"]
            } else {
                &["list", "watch"]
            };
            let matches_verb = |verb: &&str| {
                let why = format!(
                    "{resource} is forbidden: User \"token-nobody\" cannot {verb} resource \"{resource}\" in \
                     API group \"\" {place} (403 Forbidden)"
                );
                let reason = reason.to_string();
                reason.starts_with(&format!("{verb} {name}: "))
                    && reason.ends_with(&why)
                    && text.contains(&why)
            };
            assert!(verbs.iter().any(matches_verb), "{reason}");
        }
        shut_down(&factory, "after forbidden requests");
    });
}

#[test]
fn fa6_stopping_one_informer_leaves_the_others_running() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("one");
        namespace.create("a", json!({}));
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let dynamic = factory.informer_for(Source::dynamic(configmaps()));
        let of_dynamic = synced(&factory, &dynamic);
        namespace.create("b", json!({}));
        of_dynamic.wait_for_events(&["+a", "+b"]);
        let maps = factory.informer::<ConfigMap>();
        let follower = synced(&factory, &maps);
        factory.shut_down_informer(&maps, None).unwrap();
        assert!(maps.is_stopped() && maps.ended().is_done() && maps.has_synced());
        if let Some(server) = cluster.embedded_server() {
            server.wait_for_watches(1, PATIENCE).unwrap();
        }

        namespace.delete("a");
        namespace.create("c", json!({}));
        of_dynamic.wait_for_events(&["+a", "+b", "-a", "+c"]);
        assert_eq!(
            (names(&maps), follower.known().events.len()),
            (vec!["a".into(), "b".into()], 2)
        );
        // After the shutdown of an informer, the factory returns a new one.
        let again = factory.informer::<ConfigMap>();
        assert!(!again.is_same(&maps));
        let follower = synced(&factory, &again);
        assert_eq!(
            (names(&again), follower.known().initial),
            (vec!["b".into(), "c".into()], 2)
        );
        factory
            .shut_down_informer(&maps, None)
            .expect("a stopped informer can be stopped again");
        namespace.delete("b");
        follower.wait("the watch continues", |known| {
            known.events.contains(&"-b".to_owned())
        });
        shut_down(&factory, "after one informer was stopped alone");
        assert!(factory.start(&Stop::never()).is_err());
    });
}

#[test]
fn shutdown_timeout_names_the_stuck_callback() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("stuck");
        namespace.create("a", json!({}));
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let maps = factory.informer::<ConfigMap>();
        let dynamic = factory.informer_for(Source::dynamic(configmaps()));
        let (finish, finished) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let slow = HandlerFuncs::new().on_add(move |_: &Arc<ConfigMap>, _| {
            begin.send(()).unwrap();
            let _ = finished.recv();
        });
        let options = HandlerOptions::new().name("slow");
        let registration = maps.add_handler_with_options(slow, options).unwrap();
        let follower = synced(&factory, &dynamic);
        begun.recv_timeout(PATIENCE).unwrap();
        // A blocked handler delays neither the cache nor another handler.
        namespace.create("b", json!({}));
        follower.wait_for_events(&["+a", "+b"]);
        wait_until("the cache receives the new object", || {
            (names(&maps) == ["a", "b"]).then_some(())
        });

        // On a busy machine, the other threads may need longer than `SHORT_TIMEOUT` to end.
        let error = wait_until("only the handler thread is left", || {
            let error = factory.shut_down(SHORT_TIMEOUT).unwrap_err();
            let ShutdownError::TimedOut { stuck, .. } = &error else {
                panic!("{error}")
            };
            (*stuck == ["slow run"]).then_some(error)
        });
        assert_eq!(
            error.to_string(),
            "timed out after 20ms; unfinished: slow run"
        );
        assert!(dynamic.ended().is_done() && maps.is_stopped() && !maps.ended().is_done());
        drop(finish);
        factory.shut_down(PATIENCE).unwrap();
        assert!(maps.ended().is_done() && registration.ended().is_done());
    });
}

#[test]
fn relist_delivers_recreation_as_update_or_delete_and_add() {
    on_every_cluster(BOTH, |cluster| {
        for (queue, as_delete_and_add, one_thread) in [
            (InformerQueue::DeltaFifo, true, false),
            (InformerQueue::DeltaFifo, false, true),
            (InformerQueue::RealFifo, true, true),
            (InformerQueue::RealFifo, false, false),
        ] {
            let namespace = cluster.namespace("reborn");
            let first = namespace.create("reborn", json!({}));
            namespace.create("other", json!({}));
            // The watch delivers no events of "reborn" from its deletion until the watch expires.
            let factory = SharedInformerFactory::with_options(
                Interceptor::losing(cluster.client(), "reborn"),
                cluster
                    .factory_options()
                    .queue(queue)
                    .namespace(&namespace.name)
                    .recreation_as_delete_and_add(as_delete_and_add)
                    .one_thread(one_thread),
            );
            let maps = factory.informer::<ConfigMap>();
            let follower = synced(&factory, &maps);
            namespace.delete("reborn");
            let second = namespace.create("reborn", json!({}));
            assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
            namespace.create("trigger", json!({}));
            follower.wait("the relist", |known| {
                known.events.contains(&"+trigger".to_owned())
            });
            follower.wait("the follower equals the state of the server", |known| {
                known.versions == cluster.versions(&namespace)
            });

            let known = follower.known();
            let delivered: Vec<_> = known
                .events
                .iter()
                .filter(|event| event.ends_with("reborn"))
                .collect();
            let (events, unknown): (&[&str], _) = match as_delete_and_add {
                true => (&["+reborn", "-reborn", "+reborn"], 1),
                false => (&["+reborn", "~reborn"], 0),
            };
            assert_eq!(delivered, events, "{queue:?}");
            assert_eq!(known.unknown.len(), unknown, "{queue:?}");
            assert_eq!(known.problems, [""; 0], "{queue:?}");
            let cached = maps.lister().get(&namespace.name, "reborn").unwrap();
            assert_eq!(cached.uid(), second["metadata"]["uid"].as_str().unwrap());
            shut_down(&factory, &format!("after a recreation, with {queue:?}"));
        }
    });
}

#[test]
fn recreation_during_a_cut_is_delivered_by_the_next_watch() {
    on_every_cluster(BOTH, |cluster| {
        for as_delete_and_add in [true, false] {
            let namespace = cluster.namespace("reborn");
            namespace.create("reborn", json!({}));
            let proxy = cluster.proxy();
            let factory = SharedInformerFactory::with_options(
                cluster.client_through(&proxy),
                cluster
                    .factory_options()
                    .namespace(&namespace.name)
                    .recreation_as_delete_and_add(as_delete_and_add),
            );
            let maps = factory.informer::<ConfigMap>();
            let follower = synced(&factory, &maps);
            namespace.create("watched", json!({}));
            follower.wait_for_events(&["+reborn", "+watched"]);
            proxy.stall();
            namespace.delete("reborn");
            namespace.create("reborn", json!({}));
            proxy.cut();
            // The new watch starts at the last version: no event is lost, and no final state is
            // unknown.
            follower.wait_for_events(&["+reborn", "+watched", "-reborn", "+reborn"]);
            let known = follower.known();
            assert_eq!(
                (known.unknown.len(), known.echoes, &known.problems[..]),
                (0, 0, &[][..])
            );
            assert_eq!(cached(&maps), cluster.versions(&namespace));
            shut_down(&factory, "after a watch that was cut");
        }
    });
}

#[test]
fn cache_and_events_have_transformed_objects() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("transform");
        namespace.create("listed", json!({}));
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let maps = factory.informer::<ConfigMap>();
        maps.set_transform(Transform::in_place(|map: &mut ConfigMap| {
            map.data = None;
            map.metadata.managed_fields = None;
        }))
        .unwrap();
        let (sender, delivered) = mpsc::channel();
        maps.add_event_handler(|handler| {
            let on_update = sender.clone();
            handler
                .on_add(move |map, _| sender.send(Arc::clone(map)).unwrap())
                .on_update(move |_, map| on_update.send(Arc::clone(map)).unwrap())
        })
        .unwrap();
        synced(&factory, &maps);
        assert!(
            maps.set_transform(Transform::in_place(|_| {})).is_err(),
            "a running informer must reject a transform"
        );
        namespace.create("watched", json!({}));
        namespace.patch("watched", &json!({ "data": { "round": "1" } }));
        for _ in 0..3 {
            let map = delivered.recv_timeout(PATIENCE).unwrap();
            assert!(
                map.data.is_none() && map.metadata.managed_fields.is_none(),
                "{map:?}"
            );
        }
        assert_eq!(cached(&maps), cluster.versions(&namespace));
        for map in maps.lister().list() {
            assert!(
                map.data.is_none() && map.metadata.managed_fields.is_none(),
                "{map:?}"
            );
        }
        shut_down(&factory, "with a transform");
    });
}

#[test]
fn failed_transform_affects_only_its_object() {
    on_every_cluster(BOTH, |cluster| {
        for queue in [InformerQueue::DeltaFifo, InformerQueue::RealFifo] {
            fail_in_transform(cluster, queue);
        }
    });
}

fn fail_in_transform(cluster: &Cluster, queue: InformerQueue) {
    let namespace = cluster.namespace("transform");
    for name in ["a", "b", "never"] {
        namespace.create(name, json!({}));
    }
    namespace.patch("never", &json!({ "data": { "round": "bad" } }));
    // The first list of an informer may return an older state, so wait until such a list includes
    // the last change.
    wait_until("lists of any version have the last change", || {
        let request = Request::get(namespace.path("configmaps")).query("resourceVersion", "0");
        let list = cluster.send(request);
        let is_bad = |map: &Value| map["data"]["round"] == "bad";
        list["items"].as_array()?.iter().any(is_bad).then_some(())
    });
    // A long back-off prevents relists, which would report the other objects again and change the
    // last error.
    let mut options = cluster.options();
    options.backoff = Backoff::new(Duration::from_secs(600));
    let factory = cluster.factory_with(|factory| {
        factory
            .reflector(options)
            .queue(queue)
            .namespace(&namespace.name)
    });
    let maps = factory.informer::<ConfigMap>();
    maps.set_transform(Transform::new(|map: Arc<ConfigMap>| {
        match map
            .data
            .as_ref()
            .and_then(|data| data.get("round"))
            .map(String::as_str)
        {
            Some("bad") => Err("this one can't be used"),
            Some("worse") => panic!("this one is worse"),
            _ => Ok(map),
        }
    }))
    .unwrap();
    // The informer syncs without the object that never transformed.
    let follower = synced(&factory, &maps);
    assert_eq!(
        (names(&maps), follower.known().initial),
        (vec!["a".into(), "b".into()], 2)
    );
    let report = |name: &str, why: &str| {
        wait_until(&format!("{name} is reported"), || {
            let error = maps.status().last_error?.to_string();
            (error.contains(&format!("{}/{name}", namespace.name)) && error.contains(why))
                .then_some(())
        });
    };
    report("never", "this one can't be used");
    let round = |name: &str, to: &str| namespace.patch(name, &json!({ "data": { "round": to } }));
    // If an object turns bad, its cached state stays. The others continue.
    round("a", "bad");
    report("a", "this one can't be used");
    round("b", "worse");
    report("b", "this one is worse");
    namespace.create("c", json!({}));
    follower.wait("other objects are still delivered", |known| {
        known.events.contains(&"+c".to_owned())
    });
    let lister = maps.lister();
    let cached_round = |name: &str| {
        lister
            .get(&namespace.name, name)
            .unwrap()
            .data
            .as_ref()
            .unwrap()["round"]
            .clone()
    };
    assert_eq!(
        (cached_round("a"), cached_round("b")),
        ("0".to_owned(), "0".to_owned())
    );
    let status = maps.status();
    assert!(!status.complete && status.unreadable >= 3, "{status:?}");
    // A recovered object is delivered, and a deleted object is removed.
    round("a", "good");
    namespace.delete("b");
    namespace.delete("never");
    namespace.create("d", json!({}));
    follower.wait("the end", |known| known.events.contains(&"+d".to_owned()));
    let known = follower.known();
    // A RealFIFO also delivers the deletion of an unknown object (P3).
    let expected: &[&str] = match queue {
        InformerQueue::DeltaFifo => &["+c", "~a", "-b", "+d"],
        _ => &["+c", "~a", "-b", "-never", "+d"],
    };
    assert_eq!(known.events[2..], *expected, "{queue:?}");
    assert_eq!(known.problems, [""; 0], "{queue:?}");
    assert_eq!(cached(&maps), cluster.versions(&namespace), "{queue:?}");
    shut_down(
        &factory,
        &format!("with a transform that fails, with {queue:?}"),
    );
}
