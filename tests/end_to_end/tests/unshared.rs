//! An informer with one handler, without sharing.

use std::sync::Arc;
use std::thread;

use k8s_informer::informer::{InformerOptions, new_indexer_informer};
use k8s_informer::object::{GroupVersionResource, meta_namespace_key};
use k8s_informer::store::{Indexers, Store};
use k8s_informer::{Object, Stopper};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, on_every_cluster};
use crate::support::{Follower, PATIENCE, StopOnDrop, Versions};

#[test]
fn unshared_informer_keeps_its_store_equal_to_the_server() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("unshared");
        for name in ["a", "b"] {
            namespace.create(name, json!({}));
        }
        let maps = GroupVersionResource::new("", "v1", "configmaps");
        let maps = cluster
            .client()
            .lister_watcher(&maps, Some(&namespace.name));
        let follower = Follower::default();
        let mut options = InformerOptions::<ConfigMap>::new(maps, follower.clone());
        options.reflector = cluster.options();
        options.indexers = Indexers::new().with_namespace();
        let (store, controller) = new_indexer_informer(options);
        let stop = Stopper::new();
        thread::scope(|scope| {
            let running = scope.spawn(|| controller.run(&stop));
            let stopping = StopOnDrop(&stop);
            assert!(controller.synced().wait_timeout(PATIENCE));
            namespace.create("c", json!({}));
            namespace.patch("a", &json!({ "data": { "n": "1" } }));
            namespace.delete("b");
            let truth = cluster.versions(&namespace);
            follower.wait("the handler has the last state", |known| {
                known.versions == truth
            });
            assert_eq!(follower.known().problems, [""; 0]);
            let version = |map: &Arc<ConfigMap>| {
                (
                    meta_namespace_key(&**map).to_string(),
                    map.resource_version().to_owned(),
                )
            };
            // The store is written before the handler is called.
            let stored = store.by_index("namespace", &namespace.name).unwrap();
            assert_eq!(stored.iter().map(version).collect::<Versions>(), truth);
            assert_eq!(Store::list(&*store).len(), truth.len());
            drop(stopping);
            running.join().unwrap().unwrap();
        });
    });
}
