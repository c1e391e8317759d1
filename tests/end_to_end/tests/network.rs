//! Informers on a bad network.

use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::{ReflectorOptions, ReflectorState};
use k8s_informer::time::Backoff;
use k8s_informer::{Error, SharedIndexInformer, SharedInformerFactory, Stop};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, Cluster, ListMethod, Namespace, on_every_cluster};
use crate::interceptor::{Interceptor, RequestKind};
use crate::proxy::{Disturbance, Proxy};
use crate::support::{Follower, PATIENCE, shut_down, wait_until};

struct Scene<'a> {
    cluster: &'a Cluster,
    namespace: Namespace<'a>,
    proxy: Proxy,
    factory: SharedInformerFactory,
    maps: SharedIndexInformer<ConfigMap>,
    follower: Follower,
}

impl<'a> Scene<'a> {
    /// Creates the objects map-0 to map-29. Does not start the informer.
    fn new(cluster: &'a Cluster, options: ReflectorOptions) -> Self {
        let namespace = cluster.namespace("network");
        for n in 0..30 {
            namespace.create(&format!("map-{n}"), json!({}));
        }
        let proxy = cluster.proxy();
        let factory = SharedInformerFactory::with_options(
            cluster.client_through(&proxy),
            FactoryOptions::new()
                .reflector(options)
                .namespace(&namespace.name),
        );
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        Self {
            cluster,
            namespace,
            proxy,
            factory,
            maps,
            follower,
        }
    }

    fn sync(&self) {
        self.factory.start(&Stop::never()).unwrap();
        self.factory
            .wait_for_cache_sync(None, &Stop::never())
            .unwrap();
    }

    /// Waits until the follower matches the server, and checks its events.
    fn wait_until_equal(&self) {
        let truth = self.cluster.versions(&self.namespace);
        self.follower
            .wait("the follower equals the state of the server", |known| {
                known.versions == truth
            });
        assert_eq!(self.follower.known().problems, [""; 0]);
    }
}

#[test]
fn half_open_watch_ends_after_its_idle_timeout() {
    on_every_cluster(BOTH, |cluster| {
        let mut options = cluster.options();
        options.watch_idle_timeout = Some(Duration::from_millis(500));
        let scene = Scene::new(cluster, options);
        scene.sync();
        // An event shows that the watch is open.
        scene
            .namespace
            .patch("map-0", &json!({ "data": { "round": "1" } }));
        scene.wait_until_equal();
        for round in 0..2 {
            scene.proxy.stall();
            scene.namespace.create(&format!("new-{round}"), json!({}));
            scene.wait_until_equal();
        }
        let error = scene.maps.status().last_error.filter(Error::is_timeout);
        let error = error
            .unwrap_or_else(|| panic!("{:?}", scene.maps.status()))
            .to_string();
        assert!(
            error.starts_with("watch configmaps in namespace "),
            "{error}"
        );
        let lists = u64::from(cluster.list_method == ListMethod::List);
        assert_eq!(
            scene.maps.status().lists,
            lists,
            "the watch continues at its last version"
        );
        shut_down(&scene.factory, "after half-open watches");
    });
}

#[test]
fn informer_on_slow_connection_follows_without_relist() {
    on_every_cluster(BOTH, |cluster| {
        let scene = Scene::new(cluster, cluster.options());
        scene.proxy.plan([Disturbance::Drip(3)]);
        scene
            .proxy
            .plan(std::iter::repeat_n(Disturbance::Drip(50), 100));
        scene.sync();
        scene.wait_until_equal();
        scene
            .namespace
            .patch("map-0", &json!({ "data": { "round": "1" } }));
        scene.namespace.delete("map-1");
        scene.wait_until_equal();
        let status = scene.maps.status();
        assert_eq!(
            (status.lists, status.watches),
            (u64::from(cluster.list_method == ListMethod::List), 1),
            "{status:?}"
        );
        assert!(status.last_error.is_none(), "{status:?}");
        shut_down(&scene.factory, "on a slow connection");
    });
}

/// Each connection ends, or delivers garbage, after a different number of bytes: within an event,
/// between two events or within the framing.
#[test]
fn connections_broken_anywhere_lose_no_event() {
    type Kind = fn(usize) -> Disturbance;
    let kinds: [(&str, Kind); 3] = [
        ("cut", Disturbance::Cut),
        ("reset", Disturbance::Reset),
        ("garbage", |at| Disturbance::Garbage(at, b"\r\n\0{]\xff")),
    ];
    on_every_cluster(BOTH, |cluster| {
        // Run all kinds in parallel: after a few failures in a row, a watch starts only once a
        // second.
        thread::scope(|scope| {
            for (name, kind) in kinds {
                scope.spawn(move || break_connections(cluster, name, kind));
            }
        });
    });
}

fn break_connections(cluster: &Cluster, name: &str, kind: fn(usize) -> Disturbance) {
    let mut options = cluster.options();
    options.backoff = Backoff::new(Duration::from_millis(5))
        .factor(2.0)
        .cap(Duration::from_millis(20))
        .jitter(1.0);
    let scene = Scene::new(cluster, options);
    scene.sync();
    scene.wait_until_equal();
    // The next twelve connections fail after the handshake and the first objects, each after a
    // different number of bytes.
    scene.proxy.plan((0..12).map(|n| kind(30_000 + 211 * n)));
    scene.proxy.reset();
    let start = Instant::now();
    let mut round = 0;
    while scene.proxy.planned() > 0 {
        round += 1;
        assert!(
            start.elapsed() < PATIENCE,
            "{} planned disturbances are left",
            scene.proxy.planned()
        );
        // With large events, a connection reaches its disturbance soon. Only three objects are
        // large, so that the initial objects arrive before the disturbance.
        scene.namespace.patch(
            &format!("map-{}", round % 3),
            &json!({ "data": { "round": format!("{round:02000}") } }),
        );
    }
    scene.namespace.delete("map-3");
    scene.wait_until_equal();
    println!(
        "  {name}: {round} rounds, {} connections",
        scene.proxy.connections()
    );
    shut_down(&scene.factory, "after broken connections");
}

#[test]
fn w15_garbage_line_causes_rewatch_and_repeated_one_relist() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("garbage");
        namespace.create("a", json!({}));
        let interceptor = Interceptor::new(cluster.client(), |_, _, line| {
            // Replaces the ADDED event of the object "garbled". A list then delivers that object.
            let is = |name: &str| line.contains(&format!(r#""{name}""#)) && line.contains("ADDED");
            if is("garbled") {
                "{\"type\": s3cret}\n".to_owned()
            } else {
                line
            }
        });
        let factory = SharedInformerFactory::with_options(
            interceptor.clone(),
            cluster.factory_options().namespace(&namespace.name),
        );
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        follower.wait_for_events(&["+a"]);

        namespace.create("garbled", json!({}));
        follower.wait_for_events(&["+a", "+garbled"]);
        namespace.create("b", json!({}));
        follower.wait_for_events(&["+a", "+garbled", "+b"]);
        wait_until("the informer watches", || {
            (maps.status().state == ReflectorState::Watching).then_some(())
        });
        let expected: &[RequestKind] = match cluster.list_method {
            // The interceptor also replaces the ADDED event of "garbled" in the new watch-list, so
            // the reflector falls back to a LIST.
            ListMethod::WatchList => &[
                RequestKind::WatchList,
                RequestKind::Watch,
                RequestKind::WatchList,
                RequestKind::List,
                RequestKind::Watch,
            ],
            ListMethod::List => &[
                RequestKind::List,
                RequestKind::Watch,
                RequestKind::Watch,
                RequestKind::List,
                RequestKind::Watch,
            ],
        };
        assert_eq!(interceptor.requests(), expected);
        let error = maps.status().last_error.unwrap();
        assert!(
            error.is_decode() && !error.to_string().contains("s3cret"),
            "{error}"
        );
        shut_down(&factory, "after garbage");
    });
}
