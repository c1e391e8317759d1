//! The initial objects come from a watch-list, or from a LIST where watch-lists fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Object, SharedInformerFactory, Stop, Stopper};
use k8s_informer_testing::{Fault, RequestRecord, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{
    BOTH, Cluster, LIST, ListMethod, Namespace, WATCH_LIST, on_every_cluster,
    on_every_cluster_without_watch_lists, on_the_embedded_server,
};
use crate::interceptor::{Interceptor, RequestKind};
use crate::proxy::Disturbance;
use crate::support::{Follower, shut_down, wait_until};

/// Returns a factory with this source and the cluster's list method.
fn through(
    source: Interceptor,
    cluster: &Cluster,
    namespace: &Namespace<'_>,
) -> SharedInformerFactory {
    SharedInformerFactory::with_options(
        source,
        cluster.factory_options().namespace(&namespace.name),
    )
}

/// Where a server lacks watch-lists, their tests are skipped. This test fails if they are skipped
/// on a version of `.ci/kubernetes_versions` that has them by default.
#[test]
fn watch_lists_are_supported_as_in_the_version() {
    on_every_cluster(LIST, |cluster| {
        if env::var_os("EXPECTED_KUBERNETES").is_some() {
            let minor = cluster.minor();
            assert_eq!(cluster.has_watch_lists(), minor > 33);
        }
    });
}

#[test]
fn wl2_one_watch_serves_the_first_sync_and_later_events() {
    on_every_cluster(WATCH_LIST, |cluster| {
        let namespace = cluster.namespace("watch-list");
        for name in ["a", "b"] {
            namespace.create(name, json!({}));
        }
        let before = cluster
            .embedded_server()
            .map_or(0, |server| server.requests().len());
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        let registration = maps.add_handler(follower.clone()).unwrap();
        let stop = Stopper::new();
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        registration.synced().wait();
        assert_eq!(
            (follower.known().initial, maps.lister().list().len()),
            (2, 2)
        );
        namespace.create("c", json!({}));
        namespace.patch("a", &json!({ "data": { "round": "1" } }));
        namespace.delete("b");
        follower.wait("the changes", |known| known.events.len() == 5);
        let known = follower.known();
        assert_eq!(
            (&known.events[2..], known.initial),
            (&["+c", "~a", "-b"].map(String::from)[..], 2)
        );
        assert_eq!(known.problems, [""; 0]);
        assert_eq!(known.versions, cluster.versions(&namespace));

        wait_until("the informer watches", || {
            (maps.status().state == ReflectorState::Watching).then_some(())
        });
        let status = maps.status();
        assert_eq!(
            (status.lists, status.watches, status.unreadable),
            (0, 1, 0),
            "{status:?}"
        );
        assert!(
            status.listed && status.complete && status.last_error.is_none(),
            "{status:?}"
        );
        if let Some(server) = cluster.embedded_server() {
            let requests = server.requests().split_off(before);
            let of_informer =
                |request: &&RequestRecord| matches!(request.verb(), Verb::List | Verb::Watch);
            let requests: Vec<_> = requests.iter().filter(of_informer).collect();
            let param = |name| requests[0].param(name);
            assert_eq!(param("sendInitialEvents"), Some("true"));
            assert_eq!(param("resourceVersionMatch"), Some("NotOlderThan"));
            assert_eq!(param("allowWatchBookmarks"), Some("true"));
            assert_eq!(
                param("resourceVersion").unwrap_or_default(),
                "",
                "the most recent state is requested"
            );
        }
        shut_down(&factory, "with a watch-list");
    });
}

#[test]
fn informer_of_an_empty_namespace_syncs() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("nothing");
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        assert!(maps.lister().list().is_empty());
        namespace.create("a", json!({}));
        follower.wait_for_events(&["+a"]);
        assert_eq!(follower.known().initial, 0);
        shut_down(&factory, "with an empty namespace");
    });
}

#[test]
fn wl8_server_without_watch_lists_is_listed() {
    on_every_cluster_without_watch_lists(|cluster| {
        let namespace = cluster.namespace("refused");
        namespace.create("a", json!({}));
        let interceptor = Interceptor::expiring(cluster.client());
        let factory = through(interceptor.clone(), cluster, &namespace);
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        follower.wait_for_events(&["+a"]);
        namespace.create("trigger", json!({}));
        follower.wait_for_events(&["+a", "+trigger"]);
        namespace.create("b", json!({}));
        follower.wait_for_events(&["+a", "+trigger", "+b"]);
        assert_eq!(
            interceptor.requests(),
            [
                RequestKind::WatchList,
                RequestKind::List,
                RequestKind::Watch,
                RequestKind::List,
                RequestKind::Watch
            ],
            "one rejected watch-list is enough"
        );
        assert_eq!(follower.known().initial, 1);
        shut_down(&factory, "with a server without watch-lists");
    });
}

#[test]
fn wl12_missing_bookmark_falls_back_to_list() {
    on_every_cluster(WATCH_LIST, |cluster| {
        let namespace = cluster.namespace("no-bookmark");
        for name in ["a", "b"] {
            namespace.create(name, json!({}));
        }
        let interceptor = Interceptor::new(cluster.client(), |kind, _, line| match kind {
            RequestKind::WatchList if line.contains(r#""type":"BOOKMARK""#) => String::new(),
            _ => line,
        });
        // The reflector waits for the bookmark in reads of ten seconds each. It counts each idle
        // timeout of the request as one such read.
        let interceptor = interceptor.idle_timeout(Duration::from_millis(100));
        let factory = through(interceptor.clone(), cluster, &namespace);
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        wait_until("the first objects are received", || {
            let status = maps.status();
            (status.received == 2 && status.state == ReflectorState::Listing).then_some(())
        });
        assert!(
            maps.lister().list().is_empty(),
            "the cache must stay empty until the list is complete"
        );
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        assert_eq!(maps.lister().list().len(), 2);
        follower.wait("both", |known| known.events.len() == 2);
        assert_eq!(follower.known().initial, 2);
        namespace.create("c", json!({}));
        follower.wait("the watch continues", |known| {
            known.events.contains(&"+c".to_owned())
        });
        let requests = interceptor.requests();
        assert_eq!(
            requests[..3],
            [
                RequestKind::WatchList,
                RequestKind::List,
                RequestKind::Watch
            ]
        );
        assert!(
            requests[3..].iter().all(|kind| *kind == RequestKind::Watch),
            "{requests:?}"
        );
        shut_down(&factory, "without a bookmark");
    });
}

/// Ends the writers, also if the test panics.
struct IsOver<'a>(&'a AtomicBool);

impl Drop for IsOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Before 1.32, kube-apiserver sends changes between the initial events and their bookmark. They must
/// not count as those of a server that ignores watch-lists.
#[test]
fn wl12_watch_lists_of_a_busy_kind_are_not_replaced() {
    const WRITERS: usize = 4;
    const MAPS: usize = 10;
    on_every_cluster(WATCH_LIST, |cluster| {
        let namespace = cluster.namespace("busy");
        let name = |writer, n| format!("map-{writer}-{n}");
        for (writer, n) in (0..WRITERS).flat_map(|writer| (0..MAPS).map(move |n| (writer, n))) {
            namespace.create(&name(writer, n), json!({}));
        }
        let (is_over, writes) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let _is_over = IsOver(&is_over);
            for writer in 0..WRITERS {
                let (namespace, is_over, writes) = (&namespace, &is_over, &writes);
                scope.spawn(move || {
                    for round in 0.. {
                        for n in 0..MAPS {
                            if is_over.load(Ordering::SeqCst) {
                                return;
                            }
                            let name = name(writer, n);
                            if round % 5 == n % 5 {
                                namespace.delete(&name);
                                namespace.create(&name, json!({}));
                            }
                            let data = json!({ "data": { "round": round.to_string() } });
                            namespace.patch(&name, &data);
                            writes.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            for _ in 0..10 {
                let before = writes.load(Ordering::SeqCst);
                let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
                let maps = factory.informer::<ConfigMap>();
                factory.start(&Stop::never()).unwrap();
                factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
                wait_until("more writes", || {
                    (writes.load(Ordering::SeqCst) > before + 10).then_some(())
                });
                let status = maps.status();
                assert_eq!((status.lists, status.watches), (0, 1), "{status:?}");
                assert!(status.last_error.is_none(), "{status:?}");
                factory.shut_down(None).unwrap();
            }
        });
    });
}

/// Creates enough objects to fill several reads.
fn create_many(namespace: &Namespace<'_>) {
    for n in 0..MANY {
        let filling = incompressible(n);
        namespace.create(&format!("map-{n}"), json!({}));
        namespace.patch(
            &format!("map-{n}"),
            &json!({ "data": { "filling": filling } }),
        );
    }
}

/// Returns a text whose length barely changes under compression.
fn incompressible(seed: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    let mut state = seed as u64;
    let letter = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(LETTERS[(state >> 58) as usize])
    };
    (0..2000).map(letter).collect()
}

const MANY: usize = 60;
/// A number of server bytes that ends after any handshake and before the last initial object.
const MIDDLE: usize = 60_000;

#[test]
fn wl9_broken_initial_events_are_retried_then_listed() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("half");
        create_many(&namespace);
        let ends = [
            Disturbance::Cut(MIDDLE),
            Disturbance::Reset(MIDDLE),
            Disturbance::Garbage(MIDDLE, b"\r\nxx\r\n"),
        ];
        for (times, end) in (1..=4).flat_map(|times| ends.map(|end| (times, end))) {
            let proxy = cluster.proxy();
            proxy.plan(std::iter::repeat_n(end, times));
            let factory = SharedInformerFactory::with_options(
                cluster.client_through(&proxy),
                cluster.factory_options().namespace(&namespace.name),
            );
            let maps = factory.informer::<ConfigMap>();
            let follower = Follower::default();
            let registration = maps.add_handler(follower.clone()).unwrap();
            factory.start(&Stop::never()).unwrap();
            factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
            registration.synced().wait();
            let known = follower.known();
            assert_eq!(
                (known.initial, known.events.len(), &known.problems[..]),
                (MANY, MANY, &[][..])
            );
            assert_eq!(
                (proxy.planned(), known.versions),
                (0, cluster.versions(&namespace))
            );

            let (status, times) = (maps.status(), times as u64);
            let lists = match cluster.list_method {
                ListMethod::WatchList => times.saturating_sub(2),
                ListMethod::List => times + 1,
            };
            match end {
                // Garbage within an event costs only that event. At any other position it costs the
                // connection or the watch-list.
                Disturbance::Garbage(..) => {
                    assert!(status.lists <= times + 1, "{times}: {status:?}");
                }
                // The number of lists varies. A reset may discard all unread bytes, and after a
                // watch-list that ends before its first event, the reflector lists at once.
                Disturbance::Reset(_) if cluster.list_method == ListMethod::WatchList => {
                    assert!(status.lists <= times, "{times}: {status:?}");
                }
                // After the third broken watch-list in a row, the reflector lists.
                _ => assert_eq!(status.lists, lists, "{end:?} {times}: {status:?}"),
            }
            shut_down(&factory, "after broken connections");
        }
    });
}

#[test]
fn wl7_cache_is_kept_until_the_new_state_is_complete() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("relist");
        create_many(&namespace);
        let proxy = cluster.proxy();
        let interceptor = Interceptor::expiring(cluster.client_through(&proxy));
        let factory = through(interceptor.clone(), cluster, &namespace);
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        let registration = maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        registration.synced().wait();

        proxy.plan([Disturbance::Stall(MIDDLE)]);
        namespace.create("trigger", json!({}));
        wait_until("the relist is stuck in the middle", || {
            let status = maps.status();
            (status.state == ReflectorState::Listing && (1..MANY).contains(&status.received))
                .then_some(())
        });
        namespace.delete("map-1");
        namespace.create("new", json!({}));
        assert_eq!(
            maps.lister().list().len(),
            MANY,
            "the cache must keep its objects"
        );
        assert!(maps.has_synced());
        proxy.cut();
        follower.wait("all missed changes", |known| {
            ["+trigger", "-map-1", "+new"]
                .iter()
                .all(|event| known.events.contains(&(*event).to_owned()))
        });
        let known = follower.known();
        assert_eq!(
            (known.events.len(), &known.problems[..]),
            (MANY + 3, &[][..]),
            "no other events may be delivered"
        );
        assert_eq!(known.versions, cluster.versions(&namespace));
        let begin = if cluster.list_method == ListMethod::WatchList {
            RequestKind::WatchList
        } else {
            RequestKind::List
        };
        assert!(
            interceptor
                .requests()
                .iter()
                .filter(|kind| **kind == begin)
                .count()
                >= 3
        );
        shut_down(&factory, "after a stuck relist");
    });
}

/// Asserts the number of lists and watches until the informer has synced and watches, if the first
/// watch-list fails.
#[test]
fn wl8_first_watch_list_failure_is_retried_or_listed() {
    on_the_embedded_server(WATCH_LIST, |cluster, server| {
        let path = "/api/v1/namespaces/default/configmaps";
        for name in ["a", "b", "c"] {
            server
                .create(path, json!({ "metadata": { "name": name } }))
                .unwrap();
        }
        let garbage = |bytes: &str| Fault::garbage(bytes.as_bytes());
        // All cases end with the same state. They differ in the number of lists and watches and in
        // the error.
        for (fault, lists, watches, expected_error) in [
            // Unreachable or overloaded: the reflector waits and sends the same request again.
            (Fault::close(), 0, 2, ""),
            (Fault::status(429).retry_after(1), 0, 2, "429"),
            (Fault::status(429).after_events(1), 0, 2, "429"),
            (Fault::reset().after_events(2), 0, 2, ""),
            (Fault::close().after_events(2).after_bytes(30), 0, 2, ""),
            (
                Fault::end_watch().after_events(2),
                0,
                2,
                "before the bookmark",
            ),
            (Fault::status(410).after_events(1), 0, 2, "410"),
            // Rejected or broken: the reflector falls back to a LIST.
            (Fault::status_with_message(403, "not so"), 1, 2, "not so"),
            (Fault::status(404), 1, 2, "404"),
            (Fault::status(422), 1, 2, "422"),
            (Fault::status(500), 1, 2, "500"),
            (Fault::status(500).after_events(2), 1, 2, "500"),
            (
                Fault::response(500, "text/plain", "etcd is not well"),
                1,
                2,
                "etcd is not well",
            ),
            (
                Fault::response(200, "text/html", "<html>Please log in</html>"),
                1,
                2,
                "",
            ),
            (Fault::end_watch(), 1, 2, "very short watch"),
            (
                garbage("{\"type\": s3cret}\n").after_events(2),
                1,
                2,
                "event 3 (no version yet)",
            ),
            (garbage("7\n").after_events(0), 1, 2, "event 1"),
            // An invalid object in a complete event costs only that event.
            (
                garbage("{\"type\":\"ADDED\",\"object\":{\"metadata\":[7]}}\n").after_events(1),
                0,
                1,
                "",
            ),
        ] {
            let case = format!("{fault:?}");
            server.fail_next(fault.on(Verb::Watch).resource("configmaps"));
            let factory = cluster.factory_with(|options| options.namespace("default"));
            let maps = factory.informer::<ConfigMap>();
            let follower = Follower::default();
            let registration = maps.add_handler(follower.clone()).unwrap();
            factory.start(&Stop::never()).unwrap();
            factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
            registration.synced().wait();
            wait_until("the informer watches", || {
                (maps.status().state == ReflectorState::Watching).then_some(())
            });
            let status = maps.status();
            assert_eq!(
                (status.lists, status.watches),
                (lists, watches),
                "{case}: {status:?}"
            );
            assert_eq!(
                (server.pending_faults(), follower.known().initial),
                (0, 3),
                "{case}"
            );
            let error = status.last_error.unwrap().to_string();
            println!("  {error}");
            assert!(error.contains(expected_error), "{case}: {error}");
            assert!(
                error.starts_with("watch configmaps in namespace \"default\": "),
                "{case}: {error}"
            );
            assert!(
                !error.contains("s3cret") && !error.contains("log in"),
                "{case}: {error}"
            );
            let names = maps
                .lister()
                .list()
                .iter()
                .map(|map| map.name().to_owned())
                .collect::<Vec<_>>();
            assert_eq!(names.len(), 3, "{case}: {names:?}");
            factory.shut_down(None).unwrap();
        }
    });
}
