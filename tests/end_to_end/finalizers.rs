//! The JSON patches by which controllers add and remove finalizers, and the names of finalizers.

use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::object::{FullMetadata, FullObjectMeta};
use k8s_informer::{Error, Object, Stop};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::cluster::{Cluster, ListMethod, on_every_cluster};

/// Runs a test with one list method only, because these tests do not depend on how informers list.
const ONCE: &[ListMethod] = &[ListMethod::List];

struct Maps {
    api: Api<ConfigMap>,
    stop: Stop,
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
        let api = cluster.client().api(Some(&namespace.name));
        test(&Maps {
            api,
            stop: Stop::new(),
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
        maps.patch("a", json!([{"op": "test", "path": "/data"}]))
            .unwrap();
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
        let message = "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if \
            the object is being deleted, found new finalizers []string{\"b.example/x\"} (422 Invalid)";
        assert!(
            error.is_invalid() && error.to_string().ends_with(message),
            "{error}"
        );

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
        let unqualified = "is neither a standard finalizer name nor is it fully qualified";
        let name_part = "must consist of alphanumeric characters";
        let prefix = "prefix part a lowercase RFC 1123 subdomain must consist of lower case";
        for (name, message) in [
            ("x", unqualified),
            ("example.com", unqualified),
            ("", "name part must be non-empty"),
            ("example.com/", "name part must be non-empty"),
            ("/x", "prefix part must be non-empty"),
            (
                "example.com/a/b",
                "with an optional DNS subdomain prefix and '/'",
            ),
            ("Example.com/x", prefix),
            ("a_b.com/x", prefix),
            ("a..b/x", prefix),
            ("example.com/-x", name_part),
            ("example.com/x.", name_part),
            ("example.com/ü", name_part),
            (
                &format!("a/{}", "n".repeat(64)),
                "name part must be no more than 63 bytes",
            ),
            (
                &format!("{}/x", "d".repeat(254)),
                "prefix part must be no more than 253 bytes",
            ),
        ] {
            let error = create(name).unwrap_err();
            assert!(error.is_invalid(), "{name}: {error}");
            assert!(error.to_string().contains(message), "{name}: {error}");
        }
    });
}
