//! A stop at every moment. Cases with an absent server are in `faults`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ReflectorOptions, ReflectorState};
use k8s_informer::{Client, Config, SharedInformerFactory, Stop, Stopper};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, ListMethod, on_every_cluster, on_the_embedded_server};
use crate::support::{Follower, PATIENCE, shut_down, wait_until};

#[test]
fn shutdown_during_a_silent_watch_is_prompt() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("silent");
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let maps = factory.informer::<ConfigMap>();
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        let stop = Stopper::new();
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        // The first event shows that the watch is open.
        namespace.create("a", json!({}));
        follower.wait_for_events(&["+a"]);
        assert_eq!(maps.status().state, ReflectorState::Watching);
        shut_down(&factory, "in a silent watch");
    });
}

#[test]
fn shutdown_during_backoff_is_prompt() {
    on_every_cluster(BOTH, |cluster| {
        // The path does not exist, so every request fails. The default waits are at least a second.
        let client =
            Client::new(Config::from_kubeconfig(&cluster.kubeconfigs()[0], None).unwrap()).unwrap();
        let mut options = ReflectorOptions::default();
        options.watch_list = cluster.list_method == ListMethod::WatchList;
        let factory =
            SharedInformerFactory::with_options(client, FactoryOptions::new().reflector(options));
        let nothing = factory.informer_for(Source::dynamic(GroupVersionResource::new(
            "", "v1", "nothings",
        )));
        factory.start(&Stop::never()).unwrap();
        let error = wait_until("the informer backs off", || {
            let status = nothing.status();
            status
                .last_error
                .filter(|_| status.state == ReflectorState::BackingOff)
        });
        assert!(
            error.is_not_found() && error.to_string().starts_with("list nothings: GET "),
            "{error}"
        );
        shut_down(&factory, "in a back-off");
    });
}

/// Stops the informer after different numbers of received objects: before the first object, within
/// the list, and within the events of a watch. More events are always in flight.
#[test]
fn shutdown_after_0_to_60_events_is_prompt() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("events");
        for n in 0..40 {
            namespace.create(&format!("map-{n}"), json!({}));
        }
        for enough in [0, 1, 2, 20, 39, 40, 41, 60] {
            let mut options = cluster.options();
            options.page_size = Some(7);
            let factory = cluster
                .factory_with(|factory| factory.reflector(options).namespace(&namespace.name));
            let maps = factory.informer::<ConfigMap>();
            let (reached, wait) = mpsc::channel();
            let reached_by_update = reached.clone();
            let (adds, updates) = (AtomicUsize::new(0), AtomicUsize::new(40));
            maps.add_event_handler(|handler| {
                handler
                    .on_add(move |_, _| {
                        if adds.fetch_add(1, Ordering::Relaxed) + 1 == enough {
                            let _ = reached.send(());
                        }
                    })
                    .on_update(move |_, _| {
                        if updates.fetch_add(1, Ordering::Relaxed) + 1 == enough {
                            let _ = reached_by_update.send(());
                        }
                    })
            })
            .unwrap();
            factory.start(&Stop::never()).unwrap();
            let done = Stopper::new();
            thread::scope(|scope| {
                // Writes until the shutdown, so that more events arrive than the test waits for.
                let writer = scope.spawn(|| {
                    for round in (0..).take_while(|_| !done.is_stopped()) {
                        namespace.patch(
                            &format!("map-{}", round % 40),
                            &json!({ "data": { "round": format!("{enough} {round}") } }),
                        );
                    }
                });
                if enough > 0 {
                    wait.recv_timeout(PATIENCE).unwrap();
                }
                shut_down(&factory, &format!("after {enough} events"));
                done.stop();
                writer.join().unwrap();
            });
        }
    });
}

#[test]
fn shutdown_after_stop_in_a_handler_is_prompt() {
    on_the_embedded_server(BOTH, |cluster, server| {
        server
            .create(
                "/api/v1/namespaces/default/configmaps",
                json!({ "metadata": { "name": "a" } }),
            )
            .unwrap();
        let factory = cluster.factory();
        let maps = factory.informer::<ConfigMap>();
        let stop = Stopper::new();
        let inner = stop.clone();
        maps.add_event_handler(|handler| handler.on_add(move |_, _| inner.stop()))
            .unwrap();
        factory.start(&stop).unwrap();
        stop.wait();
        shut_down(&factory, "from within a handler");
        assert!(maps.is_stopped());
    });
}

/// Stops the informer while the server is silent, before or within each part of a response.
#[test]
fn shutdown_while_the_server_is_silent_is_prompt() {
    let lists: &[(&str, &[u8])] = &[
        ("before the head of a list", b""),
        ("in the head of a list", b"HTTP/1.1 200 OK\r\nContent-"),
        (
            "in a list of a known length",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"kind\":\"ConfigMapList\",\"items\":[",
        ),
        (
            "in a list in chunks",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"kind\":\"ConfigMapList\",\"items\":[",
        ),
    ];
    let watch_lists: &[(&str, &[u8])] = &[
        ("before the head of a watch-list", b""),
        (
            "before the first object of a watch-list",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        (
            "in the first object of a watch-list",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"type\":\"ADDED\",\"object\":{\"kind\":",
        ),
    ];
    on_the_embedded_server(BOTH, |cluster, _| {
        let parts = if cluster.list_method == ListMethod::WatchList {
            watch_lists
        } else {
            lists
        };
        for &(part, bytes) in parts {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let factory = SharedInformerFactory::with_options(
                Client::new(Config::new(url)).unwrap(),
                cluster.factory_options(),
            );
            factory.informer::<ConfigMap>();
            thread::scope(|scope| {
                let (hanging, wait) = mpsc::channel();
                scope.spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                    stream.write_all(bytes).unwrap();
                    hanging.send(()).unwrap();
                    // Keep the connection open until the client closes it.
                    let _ = stream.read(&mut [0]);
                });
                factory.start(&Stop::never()).unwrap();
                wait.recv_timeout(PATIENCE).unwrap();
                shut_down(&factory, part);
            });
        }
    });
}
