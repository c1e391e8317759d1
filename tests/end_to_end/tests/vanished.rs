//! Objects that the server removes although a finalizer was added a moment before
//! (kubernetes/kubernetes#77988). kube-apiserver is provoked until it happens; the embedded server does
//! it on purpose.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::api::DeleteOptions;
use k8s_informer::informer::InformerScope;
use k8s_informer::object::{Deleted, FullMetadata};
use k8s_informer::{Object, Stop};
use k8s_informer_controller::{Manager, Next};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::on_every_cluster;
use crate::support::{PATIENCE, wait_until};
use crate::verbs::ONCE;

const FINALIZER: &str = "example.com/vanishes";

/// The objects that are created and deleted at once, by each of so many threads, until one vanishes.
const MOST: usize = 4_000;
const THREADS: usize = 4;

fn is_held(map: &ConfigMap) -> bool {
    map.full_metadata().is_ok_and(|metadata| {
        !metadata.is_being_deleted() && metadata.finalizers.iter().any(|name| name == FINALIZER)
    })
}

#[test]
fn cr14_each_object_that_vanishes_is_cleaned_up_once() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("vanished");
        let client = cluster.client();
        let scope = InformerScope::all().namespace(&namespace.name);
        let manager = Manager::builder(client.clone())
            .informers(cluster.factory_options().scope(scope))
            .build()
            .unwrap();
        // What the watch says of each deletion.
        let vanished = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = Arc::clone(&vanished);
        let maps = manager.factory().informer::<ConfigMap>();
        maps.add_event_handler(|handler| {
            handler.on_delete(move |deleted| {
                if let Deleted::Final(map) = deleted
                    && is_held(map)
                {
                    seen.lock().unwrap().insert(map.uid().to_owned());
                }
            })
        })
        .unwrap();
        let (sender, cleanups) = channel();
        manager
            .reconcile::<ConfigMap>("maps")
            .workers(8)
            .finalizer(
                FINALIZER,
                |map| map.name().starts_with("map-"),
                move |cx, map: &Arc<ConfigMap>| {
                    sender.send((map.uid().to_owned(), cx.has_vanished()))?;
                    Ok(Next::Done)
                },
            )
            .by(|_, _| Ok(Next::Done))
            .unwrap();
        let stop = k8s_informer::Stopper::new();
        let running = {
            let (manager, stop) = (manager.clone(), stop.clone());
            thread::spawn(move || manager.run(&stop))
        };
        assert!(maps.synced().wait_timeout(PATIENCE));
        let api = client.api::<ConfigMap>(Some(&namespace.name));
        let has_one = || !vanished.lock().unwrap().is_empty();
        if let Some(server) = cluster.embedded_server() {
            api.create(&json!({"metadata": {"name": "map-0"}}), &Stop::never())
                .unwrap();
            wait_until("the object has its finalizer", || {
                let map = maps.lister().get(&namespace.name, "map-0");
                map.filter(|map| is_held(map))
            });
            server
                .vanish(&format!("{}/map-0", namespace.path("configmaps")))
                .unwrap();
        } else {
            let deadline = Instant::now() + 4 * PATIENCE;
            thread::scope(|scope| {
                for of in 0..THREADS {
                    let (api, has_one) = (api.clone(), &has_one);
                    scope.spawn(move || {
                        for number in 0..MOST {
                            if has_one() || Instant::now() > deadline {
                                return;
                            }
                            let name = format!("map-{of}-{number}");
                            let map = json!({"metadata": {"name": name}});
                            api.create(&map, &Stop::never()).unwrap();
                            // About when the finalizer is added.
                            Stop::never()
                                .wait_timeout(Duration::from_micros(number as u64 % 40 * 250));
                            api.delete(&name, &DeleteOptions::new(), &Stop::never())
                                .unwrap();
                        }
                    });
                }
            });
        }
        wait_until("an object vanishes", || has_one().then_some(()));
        // All deletions have ended: the objects whose finalizer was added in time have been cleaned up.
        wait_until("all objects are gone", || {
            let left = api.list(&Default::default(), &Stop::never()).unwrap();
            let left = left
                .items
                .iter()
                .filter(|map| map.name().starts_with("map-"));
            (left.count() == 0
                && maps
                    .lister()
                    .list()
                    .iter()
                    .all(|map| !map.name().starts_with("map-")))
            .then_some(())
        });
        let mut cleaned = Vec::new();
        let vanished = vanished.lock().unwrap().clone();
        wait_until("the cleanups are called", || {
            cleaned.extend(cleanups.try_iter().filter(|(_, vanished)| *vanished));
            (cleaned.len() >= vanished.len()).then_some(())
        });
        stop.stop();
        running.join().unwrap().unwrap();
        cleaned.extend(cleanups.try_iter().filter(|(_, vanished)| *vanished));
        println!("{} objects have vanished", vanished.len());
        let uids: BTreeSet<_> = cleaned.iter().map(|(uid, _)| uid.clone()).collect();
        assert_eq!(uids, vanished);
        assert_eq!(cleaned.len(), vanished.len());
    });
}
