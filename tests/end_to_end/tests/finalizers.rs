//! The JSON patches by which controllers add, rename and remove finalizers, the names of
//! finalizers, and their removal for an uninstall.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::{FullMetadata, FullObjectMeta, GroupVersionResource};
use k8s_informer::{Client, DynamicObject, Error, Object, Stop, Stopper};
use k8s_informer_controller::{Controller, Next, remove_finalizers};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::cluster::{Cluster, ListMethod, merge_patch, on_every_cluster};
use crate::discovery::Definition;
use crate::leases::post;
use crate::support::{PATIENCE, wait_until};

/// Runs a test with one list method only, because these tests do not depend on how informers list.
const ONCE: &[ListMethod] = &[ListMethod::List];

struct Maps {
    client: Client,
    api: Api<ConfigMap>,
    minor: u32,
    stop: Stopper,
}

impl Maps {
    fn create(&self, name: &str, finalizers: Value) -> FullObjectMeta {
        let map = json!({"metadata": {"name": name, "finalizers": finalizers}});
        metadata(&self.api.create(&map, &self.stop).unwrap())
    }

    fn patch(&self, name: &str, operations: Value) -> Result<FullObjectMeta, Error> {
        let patched = self.api.patch(name, &Patch::json(operations), &self.stop);
        patched.map(|map| metadata(&map))
    }

    /// Checks that the patch is rejected as a whole, with 422 and no reason.
    #[track_caller]
    fn assert_rejected(&self, name: &str, operations: Value) {
        let before = metadata(&self.api.get(name, &self.stop).unwrap());
        let error = self.patch(name, operations.clone()).unwrap_err();
        assert!(error.is_invalid(), "{operations}: {error}");
        let message =
            "the server rejected our request due to an error in our request (422 Invalid)";
        assert!(error.to_string().ends_with(message), "{error}");
        assert_eq!(metadata(&self.api.get(name, &self.stop).unwrap()), before);
    }
}

fn metadata(map: &ConfigMap) -> FullObjectMeta {
    map.full_metadata().unwrap().into_owned()
}

fn on_every_server(purpose: &str, test: impl Fn(&Maps)) {
    on_every_cluster(ONCE, |cluster: &Cluster| {
        let namespace = cluster.namespace(purpose);
        let client = cluster.client();
        test(&Maps {
            api: client.api(Some(&namespace.name)),
            minor: cluster.minor(),
            client,
            stop: Stopper::new(),
        });
    });
}

#[test]
fn wr6_finalizer_is_added_only_to_the_tested_list() {
    on_every_server("add-finalizer", |maps| {
        for absent in [json!(null), json!([])] {
            let name = if absent.is_null() { "absent" } else { "empty" };
            let uid = maps.create(name, absent).uid;
            // A test for `null` passes if the field is absent.
            let first = |uid: &str| {
                json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "test", "path": "/metadata/finalizers", "value": null},
                    {"op": "add", "path": "/metadata/finalizers", "value": ["a.example/x"]},
                ])
            };
            maps.assert_rejected(name, first("another object"));
            let added = maps.patch(name, first(&uid)).unwrap();
            assert_eq!(added.finalizers, ["a.example/x"]);
            maps.assert_rejected(name, first(&uid));

            let second = |uid: &str| {
                json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "test", "path": "/metadata/finalizers", "value": ["a.example/x"]},
                    {"op": "add", "path": "/metadata/finalizers/-", "value": "b.example/x"},
                ])
            };
            maps.assert_rejected(name, second("another object"));
            let added = maps.patch(name, second(&uid)).unwrap();
            assert_eq!(added.finalizers, ["a.example/x", "b.example/x"]);
            maps.assert_rejected(name, second(&uid));
        }
    });
}

#[test]
fn test_for_null_passes_only_for_absent_fields() {
    on_every_server("test-null", |maps| {
        maps.create("a", json!(["a.example/x"]));
        let test = |path| json!([{"op": "test", "path": path, "value": null}]);
        for absent in ["/metadata/annotations", "/metadata/anything", "/data"] {
            maps.patch("a", test(absent)).unwrap();
        }
        // Without a value, servers before 1.35 close the connection.
        if maps.minor >= 35 {
            maps.patch("a", json!([{"op": "test", "path": "/data"}]))
                .unwrap();
        }
        for other in [
            "/metadata/finalizers",
            "/metadata/finalizers/1",
            "/metadata/finalizers/x",
            "/metadata/name/x",
            "/metadata/anything/deeper",
        ] {
            maps.assert_rejected("a", test(other));
        }
        maps.assert_rejected("a", json!([{"op": "test", "path": "/data", "value": {}}]));
    });
}

#[test]
fn wr6_finalizer_is_removed_only_at_the_tested_position() {
    on_every_server("remove-finalizer", |maps| {
        let uid = maps
            .create("a", json!(["a.example/x", "b.example/x", "a.example/x"]))
            .uid;
        let remove = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/finalizers/2", "value": "a.example/x"},
            {"op": "remove", "path": "/metadata/finalizers/2"},
            {"op": "test", "path": "/metadata/finalizers/0", "value": "a.example/x"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]);
        let removed = maps.patch("a", remove.clone()).unwrap();
        assert_eq!(removed.finalizers, ["b.example/x"]);
        maps.assert_rejected("a", remove);

        let remove_last = |uid: &str| {
            json!([
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {"op": "test", "path": "/metadata/finalizers/0", "value": "b.example/x"},
                {"op": "remove", "path": "/metadata/finalizers/0"},
            ])
        };
        maps.assert_rejected("a", remove_last("another object"));
        assert!(
            maps.patch("a", remove_last(&uid))
                .unwrap()
                .finalizers
                .is_empty()
        );
        maps.assert_rejected("a", remove_last(&uid));
    });
}

#[test]
fn finalizers_of_a_deleted_object_are_only_removed() {
    on_every_server("deleted-finalizer", |maps| {
        let uid = maps.create("a", json!(["a.example/x"])).uid;
        maps.api
            .delete("a", &DeleteOptions::default(), &maps.stop)
            .unwrap();
        let error = maps
            .patch(
                "a",
                json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "test", "path": "/metadata/finalizers", "value": ["a.example/x"]},
                    {"op": "add", "path": "/metadata/finalizers/-", "value": "b.example/x"},
                ]),
            )
            .unwrap_err();
        assert!(error.is_invalid(), "{error}");

        let remove = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/finalizers/0", "value": "a.example/x"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]);
        let removed = maps.patch("a", remove.clone()).unwrap();
        assert_eq!((removed.name(), removed.finalizers.len()), ("a", 0));
        assert!(maps.patch("a", remove).unwrap_err().is_not_found());
    });
}

#[test]
fn finalizer_names_need_a_domain_and_a_name() {
    on_every_server("finalizer-names", |maps| {
        let create = |name: &str| {
            let map = json!({"metadata": {"name": "a", "finalizers": [name]}});
            maps.api.dry_run().create(&map, &maps.stop)
        };
        let longest = format!("{}/{}", "d".repeat(253), "n".repeat(63));
        for name in [
            "example.com/x",
            "a/x",
            "1.example/1",
            "a-b.example/A_b.c-d",
            &longest,
        ] {
            create(name).unwrap();
        }
        for name in [
            "x",
            "example.com",
            "",
            "example.com/",
            "/x",
            "example.com/a/b",
            "Example.com/x",
            "a_b.com/x",
            "a..b/x",
            "example.com/-x",
            "example.com/x.",
            "example.com/ü",
            &format!("a/{}", "n".repeat(64)),
            &format!("{}/x", "d".repeat(254)),
        ] {
            let error = create(name).unwrap_err();
            assert!(error.is_invalid(), "{name}: {error}");
        }
    });
}

/// A custom resource: servers accept finalizers without a domain for it.
#[test]
fn wr5_former_finalizers_are_renamed_or_cleaned_up() {
    const NEW: &str = "new.example.com/x";
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("former-finalizer");
        let definition = Definition::create(cluster, &namespace.name);
        let group = &*definition.group;
        let path = format!("/apis/{group}/v1/namespaces/{}/gizmos", namespace.name);
        let create = |name: &str, finalizers: Value| {
            let gizmo = json!({
                "apiVersion": format!("{group}/v1"), "kind": "Gizmo",
                "metadata": {"name": name, "finalizers": finalizers},
            });
            cluster.send(post(&path, &gizmo));
        };
        create("renamed", json!(["a.example/x", "old", "b.example/x"]));
        create("both", json!([NEW, "old.example.com/x"]));
        create(
            "cleaned",
            json!(["old", "a.example/x", "old.example.com/x"]),
        );
        create("removed", json!(["old.example.com/x"]));
        for name in ["cleaned", "removed"] {
            cluster.send(Request::delete(format!("{path}/{name}")));
        }
        let (sender, steps) = channel();
        let cleaned = sender.clone();
        let source = Source::dynamic(GroupVersionResource::new(group, "v1", "gizmos"));
        let factory = cluster.factory_with(|options| {
            options.scope(InformerScope::all().namespace(&*namespace.name))
        });
        let controller = Controller::builder(&cluster.client(), source, "gizmos")
            .factory(&factory)
            .finalizer(
                NEW,
                |_| false,
                move |cx, _| {
                    cleaned.send(format!("clean {}", cx.name()))?;
                    Ok(Next::Done)
                },
            )
            .former_finalizers(["old", "old.example.com/x"])
            .by(move |cx, gizmo: &Arc<DynamicObject>| {
                let finalizers = gizmo.full_metadata()?.finalizers.join(" ");
                sender.send(format!("call {}: {finalizers}", cx.name()))?;
                Ok(Next::Done)
            })
            .unwrap();
        let stop = Stopper::new();
        let running = thread::spawn({
            let stop = stop.clone();
            move || controller.run(&stop)
        });
        let mut missing = vec![
            format!("call both: {NEW}"),
            format!("call renamed: a.example/x {NEW} b.example/x"),
            "clean cleaned".to_owned(),
            "clean removed".to_owned(),
        ];
        while !missing.is_empty() {
            let step = steps.recv_timeout(PATIENCE).unwrap();
            assert!(!step.contains("old"), "{step}");
            missing.retain(|expected| *expected != step);
        }
        wait_until("the deleted objects are released", || {
            let cleaned = cluster.send(Request::get(format!("{path}/cleaned")));
            let removed = cluster.try_send(Request::get(format!("{path}/removed")));
            let is_released = cleaned["metadata"]["finalizers"] == json!(["a.example/x"]);
            (is_released && removed.is_err_and(|error| error.is_not_found())).then_some(())
        });
        stop.stop();
        running.join().unwrap().unwrap();
        factory.shut_down(None).unwrap();

        // The uninstall: nothing of the controller is left.
        let free = |name: &str| {
            let free = json!({"metadata": {"finalizers": null}});
            cluster.send(merge_patch(&format!("{path}/{name}"), &free));
        };
        free("cleaned");
        let resource = GroupVersionResource::new(group, "v1", "gizmos");
        let scope = InformerScope::all().namespace(&*namespace.name);
        let source = Source::dynamic(resource).scope(scope);
        let removed = remove_finalizers(&cluster.client(), &source, [NEW], &Stop::never()).unwrap();
        assert_eq!((removed.listed, removed.changed), (2, 2));
        let gizmos = cluster.send(Request::get(&*path));
        let finalizers = |name: &str| {
            let mut gizmos = gizmos["items"].as_array().unwrap().iter();
            let gizmo = gizmos.find(|gizmo| gizmo["metadata"]["name"] == name);
            gizmo.unwrap()["metadata"]["finalizers"].clone()
        };
        assert_eq!(finalizers("renamed"), json!(["a.example/x", "b.example/x"]));
        let left = finalizers("both");
        assert!(left.is_null() || left == json!([]), "{left}");
        free("renamed");
    });
}

#[test]
fn uninstall_releases_all_objects_of_the_scope() {
    const NAME: &str = "example.com/x";
    on_every_server("uninstall", |maps| {
        maps.create("a", json!([NAME, "a.example/x", NAME]));
        maps.create("b", json!(["a.example/x"]));
        maps.create("c", json!(["former.example.com/x", NAME]));
        let delete = |name| maps.api.delete(name, &DeleteOptions::default(), &maps.stop);
        delete("c").unwrap();
        let scope = InformerScope::all().namespace(maps.api.namespace().unwrap());
        let resource = maps.api.resource().clone();
        let names = [NAME, "former.example.com/x"];
        let remove = |source: &Source<ConfigMap>| {
            let removed = remove_finalizers(&maps.client, source, names, &maps.stop).unwrap();
            (removed.listed, removed.changed)
        };
        let source = Source::of::<ConfigMap>().scope(scope.clone());
        // A namespace of a real server has another ConfigMap: kube-root-ca.crt.
        let (listed, changed) = remove(&source);
        assert!(listed >= 3 && changed == 2, "{listed} {changed}");
        assert!(maps.api.get("c", &maps.stop).unwrap_err().is_not_found());
        let finalizers = |name| metadata(&maps.api.get(name, &maps.stop).unwrap()).finalizers;
        assert_eq!(finalizers("a"), ["a.example/x"]);
        assert_eq!(finalizers("b"), ["a.example/x"]);
        assert_eq!(remove(&source).1, 0);

        let source = Source::metadata(resource).scope(scope);
        let removed = remove_finalizers(&maps.client, &source, ["a.example/x"], &maps.stop);
        assert_eq!(removed.unwrap().changed, 2);
        for name in ["a", "b"] {
            delete(name).unwrap();
            assert!(maps.api.get(name, &maps.stop).unwrap_err().is_not_found());
        }
    });
}
