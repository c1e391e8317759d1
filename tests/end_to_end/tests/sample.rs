//! `examples/sample_controller`: its own tests, and a manager with leader election on every
//! cluster.

use std::thread;

use k8s_informer::Stopper;
use k8s_informer::client::Request;
use k8s_informer_controller::Manager;
use serde_json::{Value, json};

use crate::cluster::{BOTH, Cluster, merge_patch, on_every_cluster};
use crate::discovery::create_definition;
use crate::support::wait_until;

#[path = "../../../examples/sample_controller/src/controller.rs"]
mod controller;
#[path = "../../../examples/sample_controller/src/tests.rs"]
mod tests;

const CRD: &str = include_str!("../../../examples/sample_controller/crd.json");
const FOO: &str = include_str!("../../../examples/sample_controller/foo.json");

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LEASE: &str = "sample-controller";

/// The definition of Foos. It is deleted on drop.
struct Definition<'a>(&'a Cluster);

impl<'a> Definition<'a> {
    fn create(cluster: &'a Cluster) -> Self {
        let definition: Value = serde_json::from_str(CRD).unwrap();
        create_definition(cluster, &definition);
        Self(cluster)
    }
}

impl Drop for Definition<'_> {
    fn drop(&mut self) {
        let path = format!("{DEFINITIONS}/foos.samplecontroller.k8s.io");
        let _ = self.0.try_send(Request::delete(path));
    }
}

/// Stops the manager on drop, also if the test fails.
struct StopOnDrop<'a>(&'a Stopper);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn manager_with_a_lease_runs_the_sample_controller() {
    on_every_cluster(BOTH, |cluster| {
        let _definition = Definition::create(cluster);
        let namespace = cluster.namespace("sample");
        let in_namespace = |group: &str, resource: &str| {
            format!("/apis/{group}/namespaces/{}/{resource}", namespace.name)
        };
        let foos = in_namespace("samplecontroller.k8s.io/v1alpha1", "foos");
        let deployment = in_namespace("apps/v1", "deployments/example-foo");
        let lease = in_namespace("coordination.k8s.io/v1", &format!("leases/{LEASE}"));
        let events = in_namespace("events.k8s.io/v1", "events");
        let wait_for = |path: &str, pointer: &str, expected: Value| {
            wait_until(&format!("{pointer} of {path} is {expected}"), || {
                let object = cluster.try_send(Request::get(path)).ok()?;
                (object.pointer(pointer) == Some(&expected)).then_some(())
            });
        };

        let manager = Manager::builder(cluster.client())
            .leader_election(&*namespace.name, LEASE)
            .informers(cluster.factory_options())
            .build()
            .unwrap();
        controller::build(manager.reconcile(controller::NAME)).unwrap();
        let stop = Stopper::new();
        thread::scope(|scope| {
            let running = scope.spawn(|| manager.run(&stop).unwrap());
            let _stop_on_drop = StopOnDrop(&stop);
            let foo: Value = serde_json::from_str(FOO).unwrap();
            cluster.send(Request::post(&*foos).json(&foo).unwrap());
            wait_for(&deployment, "/spec/replicas", json!(1));
            let change = json!({ "spec": { "replicas": 5 } });
            cluster.send(merge_patch(&deployment, &change));
            wait_for(&deployment, "/spec/replicas", json!(1));
            let status =
                json!({ "status": { "replicas": 1, "availableReplicas": 1, "readyReplicas": 1 } });
            cluster.send(merge_patch(&format!("{deployment}/status"), &status));
            wait_for(
                &format!("{foos}/example-foo"),
                "/status/availableReplicas",
                json!(1),
            );
            stop.stop();
            running.join().unwrap();
        });
        wait_for(&lease, "/spec/holderIdentity", json!(""));
        let events = cluster.send(Request::get(events));
        let events = events["items"].as_array().unwrap();
        assert!(
            events
                .iter()
                .any(|event| event["reason"] == controller::SYNCED),
            "{events:?}"
        );
    });
}
