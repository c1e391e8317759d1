//! A kind that is installed and removed while a controller runs.

use std::sync::mpsc::channel;
use std::thread;

use k8s_informer::client::Request;
use k8s_informer::informer::Source;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{DynamicObject, Stopper};
use k8s_informer_controller::{Manager, Next};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::on_every_cluster;
use crate::discovery::Definition;
use crate::support::{PATIENCE, wait_until};
use crate::verbs::ONCE;

/// A controller that creates a gizmo for each ConfigMap while there are gizmos.
#[test]
fn controller_follows_a_kind_that_comes_and_goes() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("optional");
        let group = format!("{}.example.com", namespace.name);
        let gizmos = GroupVersionResource::new(&*group, "v1", "gizmos");
        let manager = Manager::builder(cluster.client())
            .informers(cluster.factory_options().namespace(&namespace.name))
            .build()
            .unwrap();
        let (sender, seen) = channel();
        let (resource, api_version) = (gizmos.clone(), format!("{group}/v1"));
        let controller = manager
            .reconcile::<ConfigMap>("optional")
            .owns_optional(Source::dynamic(gizmos))
            .by(move |cx, _| {
                let Some(gizmos) = cx.optional::<DynamicObject>() else {
                    sender.send(None)?;
                    return Ok(Next::Done);
                };
                if cx.children::<DynamicObject>()?.is_empty() {
                    let gizmo = json!({"apiVersion": api_version, "kind": "Gizmo", "metadata": {"name": cx.name()}});
                    let api = cx.dynamic_api(&resource, Some(cx.namespace()));
                    api.create(&cx.owned(gizmo)?, cx.stop())?;
                }
                sender.send(Some(gizmos.list().len()))?;
                Ok(Next::Done)
            });
        let controller = controller.unwrap();
        namespace.create("a", json!({}));
        let stop = Stopper::new();
        let running = thread::spawn({
            let stop = stop.clone();
            move || manager.run(&stop)
        });
        let wait_for = |wanted: Option<usize>| {
            while seen.recv_timeout(PATIENCE).unwrap() != wanted {}
        };
        wait_for(None);
        for _ in 0..2 {
            let definition = Definition::create(cluster, &namespace.name);
            wait_for(Some(1));
            // The server deletes the gizmos of a definition first. Each deletion is real, and
            // creates the gizmo again, or fails because its kind is being removed.
            drop(definition);
            wait_for(None);
            let path = format!("/apis/{group}/v1/gizmos");
            wait_until("the kind is gone", || {
                let listed = cluster.try_send(Request::get(&*path));
                listed
                    .is_err_and(|error| error.is_not_found())
                    .then_some(())
            });
        }
        wait_until("no call fails any more", || {
            controller.failures().is_empty().then_some(())
        });
        stop.stop();
        running.join().unwrap().unwrap();
    });
}
