//! Writes through every kind of client. The responses are the same from the embedded server and a
//! real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, DeleteOptions, Patch, PropagationPolicy, retry_on_conflict};
use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::object::{
    FullObjectMeta, GroupVersionResource, PartialObjectMetadata, ResourceVersion,
};
use k8s_informer::reflector::{ListOptions, ListerWatcherSource};
use k8s_informer::{
    Client, DynamicObject, Object, ObjectMeta, SharedIndexInformer, Stopper, impl_object,
};
use k8s_informer_testing::Verb;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as CoreNamespace, Node, Pod};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{BOTH, ListMethod, Namespace, on_every_cluster};
use crate::support::{Follower, PATIENCE, wait_until};

/// Runs a test with one list method only, because these tests do not depend on how informers list.
const ONCE: &[ListMethod] = &[ListMethod::List];

/// A type with a single field of a ConfigMap.
#[derive(Debug, Deserialize, Serialize)]
struct Round {
    metadata: ObjectMeta,
    data: RoundData,
}
#[derive(Debug, Deserialize, Serialize)]
struct RoundData {
    round: String,
}
impl_object!(Round, "v1", "ConfigMap", "configmaps", Namespaced);

fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

fn maps(client: &Client, namespace: &Namespace<'_>) -> Api<ConfigMap> {
    client.api(Some(&namespace.name))
}

fn data(map: &ConfigMap, key: &str) -> Option<String> {
    map.data.as_ref()?.get(key).cloned()
}

#[test]
fn object_is_created_read_replaced_and_deleted() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("writes");
        let maps = maps(&client, &namespace);

        let error = maps.get("a", &stop).unwrap_err();
        assert!(error.is_not_found() && !error.is_conflict(), "{error:?}");
        let url = format!("{}{}/a", cluster.url(), namespace.path("configmaps"));
        assert_eq!(
            error.to_string(),
            format!(
                "get configmaps \"a\" in namespace {:?}: GET {url}: configmaps \"a\" not found (404 NotFound)",
                namespace.name
            )
        );

        let body = json!({"metadata": {"name": "a"}, "data": {"round": "1"}});
        let created = maps.create(&body, &stop).unwrap();
        assert_eq!(
            (created.name(), created.namespace()),
            ("a", namespace.name.as_str())
        );
        let error = maps.create(&body, &stop).unwrap_err();
        assert!(
            error.is_already_exists() && !error.is_conflict(),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .starts_with("create configmaps \"a\" in namespace ")
                && error
                    .to_string()
                    .ends_with(": configmaps \"a\" already exists (409 AlreadyExists)"),
            "{error}"
        );
        let long = json!({"metadata": {"generateName": "m".repeat(100)}});
        assert_eq!(
            maps.dry_run().create(&long, &stop).unwrap().name().len(),
            63
        );
        let named = maps
            .create(&json!({"metadata": {"generateName": "made-"}}), &stop)
            .unwrap();
        assert!(
            named.name().len() > "made-".len() && named.name().starts_with("made-"),
            "{}",
            named.name()
        );

        // A fetched object can be changed and replaced once.
        let mut changed = maps.get("a", &stop).unwrap();
        assert_eq!(changed, created);
        changed
            .data
            .as_mut()
            .unwrap()
            .insert("round".into(), "2".into());
        let replaced = maps.replace(&changed, &stop).unwrap();
        assert_eq!(data(&replaced, "round").unwrap(), "2");
        let error = maps.replace(&changed, &stop).unwrap_err();
        assert!(
            error.is_conflict() && !error.is_already_exists(),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .starts_with("replace configmaps \"a\" in namespace "),
            "{error}"
        );
        // Without a version, the replace is unconditional.
        changed.metadata.resource_version = None;
        changed
            .data
            .as_mut()
            .unwrap()
            .insert("round".into(), "3".into());
        assert_ne!(
            maps.replace(&changed, &stop).unwrap().resource_version(),
            replaced.resource_version()
        );

        maps.delete("a", &DeleteOptions::default(), &stop).unwrap();
        let error = maps
            .delete("a", &DeleteOptions::default(), &stop)
            .unwrap_err();
        assert!(error.is_not_found(), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("delete configmaps \"a\" in namespace "),
            "{error}"
        );
        let error = maps.replace(&changed, &stop).unwrap_err();
        assert!(error.is_conflict() || error.is_not_found(), "{error:?}");
    });
}

#[test]
fn every_object_type_can_be_written() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("types");

        // A struct with one field changes only that field.
        let rounds = client.api::<Round>(Some(&namespace.name));
        let mut meta = ObjectMeta::default();
        meta.name = "own".to_owned();
        rounds
            .create(
                &Round {
                    metadata: meta,
                    data: RoundData { round: "1".into() },
                },
                &stop,
            )
            .unwrap();
        let dynamic = client.dynamic_api(&configmaps(), Some(&namespace.name));
        dynamic
            .patch(
                "own",
                &Patch::merge(json!({"data": {"other": "kept"}})),
                &stop,
            )
            .unwrap();
        let own = rounds
            .patch("own", &Patch::merge(json!({"data": {"round": "2"}})), &stop)
            .unwrap();
        assert_eq!(own.data.round, "2");

        // A dynamic object keeps every field.
        let mut object = dynamic.get("own", &stop).unwrap();
        assert_eq!(object.read("/data/other").unwrap(), Some("kept".to_owned()));
        object
            .edit(|fields| fields["data"]["round"] = json!("3"))
            .unwrap();
        let replaced = dynamic.replace(&object, &stop).unwrap();
        assert_eq!(
            replaced.read("/data").unwrap(),
            Some(json!({"round": "3", "other": "kept"}))
        );
        assert_eq!(
            (replaced.api_version(), replaced.kind()),
            ("v1", "ConfigMap")
        );
        let change = |map: &mut DynamicObject| {
            map.edit(|fields| fields["data"]["round"] = json!("4"))
                .unwrap();
        };
        assert_eq!(
            dynamic
                .modify("own", change, &stop)
                .unwrap()
                .read("/data/other")
                .unwrap(),
            Some("kept".to_owned())
        );

        // A metadata client sends only metadata and can change it.
        let metadata = client.metadata_api(&configmaps(), Some(&namespace.name));
        let patch =
            Patch::merge(json!({"metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}}}));
        let object = metadata.patch("own", &patch, &stop).unwrap().into_inner();
        assert_eq!(
            (object.label("x"), &object.metadata.annotations["y"]),
            (Some("1"), "2")
        );
        assert_eq!(metadata.get("own", &stop).unwrap().into_inner(), object);
        assert!(
            !object
                .metadata
                .creation_timestamp
                .as_ref()
                .unwrap()
                .is_empty()
        );
        assert!(metadata.get("other", &stop).unwrap_err().is_not_found());
        metadata
            .delete("own", &DeleteOptions::same_object(&object), &stop)
            .unwrap();
        assert!(dynamic.get("own", &stop).unwrap_err().is_not_found());

        // A Namespace is an object without a namespace.
        let spaces = client.api::<CoreNamespace>(None);
        let space = spaces.get(&namespace.name, &stop).unwrap();
        assert_eq!(
            space.status.as_ref().unwrap().phase.as_deref(),
            Some("Active")
        );
        let error = client.api::<Node>(None).get("no-such", &stop).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("get nodes \"no-such\": GET http"),
            "{error}"
        );
    });
}

#[test]
fn each_patch_type_is_applied() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("patches");
        let maps = maps(&client, &namespace);
        maps.create(
            &json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}}),
            &stop,
        )
        .unwrap();

        let map = maps
            .patch(
                "a",
                &Patch::merge(json!({"data": {"x": "2", "y": null}})),
                &stop,
            )
            .unwrap();
        assert_eq!(
            (data(&map, "x").as_deref(), data(&map, "y")),
            (Some("2"), None)
        );
        let stale = json!({"metadata": {"resourceVersion": "1"}, "data": {"x": "3"}});
        assert!(
            maps.patch("a", &Patch::merge(stale), &stop)
                .unwrap_err()
                .is_conflict()
        );

        let operations = json!([
            {"op": "test", "path": "/data/x", "value": "2"},
            {"op": "replace", "path": "/data/x", "value": "3"},
        ]);
        let map = maps.patch("a", &Patch::json(&operations), &stop).unwrap();
        assert_eq!(data(&map, "x").as_deref(), Some("3"));
        let error = maps
            .patch("a", &Patch::json(&operations), &stop)
            .unwrap_err();
        assert!(error.is_invalid() && !error.is_conflict(), "{error:?}");

        let map = maps
            .patch(
                "a",
                &Patch::strategic_merge(json!({"data": {"z": "4"}})),
                &stop,
            )
            .unwrap();
        assert_eq!(
            (data(&map, "x").as_deref(), data(&map, "z").as_deref()),
            (Some("3"), Some("4"))
        );

        for patch in [
            Patch::merge(json!({})),
            Patch::json(json!([])),
            Patch::strategic_merge(json!({})),
        ] {
            let error = maps.patch("none", &patch, &stop).unwrap_err();
            assert!(error.is_not_found(), "{error:?}");
            assert!(
                error
                    .to_string()
                    .starts_with("patch configmaps \"none\" in namespace "),
                "{error}"
            );
        }
    });
}

#[test]
fn applied_fields_are_owned_by_their_manager() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("apply");
        let maps = maps(&client, &namespace);
        let wanted =
            |data: Value| json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": data});
        let apply = |manager: &str, fields: Value| {
            maps.patch("a", &Patch::apply(manager, wanted(fields)), &stop)
        };

        // The first apply creates the object. The same apply again changes nothing.
        let made = apply("one", json!({"x": "1", "y": "1"})).unwrap();
        assert_eq!(made.label("l"), Some("1"));
        let same = apply("one", json!({"x": "1", "y": "1"})).unwrap();
        assert_eq!(same.resource_version(), made.resource_version());

        // Another manager adds its own fields and shares fields with equal values.
        let both = apply("two", json!({"y": "1", "z": "2"})).unwrap();
        assert_eq!(both.data.as_ref().unwrap().len(), 3);
        let error = apply("two", json!({"x": "2", "z": "2"})).unwrap_err();
        assert!(error.is_conflict(), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("apply configmaps \"a\" in namespace ")
                && text.ends_with(
                    "Apply failed with 1 conflict: conflict with \"one\": .data.x (409 Conflict)"
                ),
            "{text}"
        );
        let causes = &error.status().unwrap().details.as_ref().unwrap().causes;
        assert_eq!(
            (causes[0].reason.as_str(), causes[0].field.as_str()),
            ("FieldManagerConflict", ".data.x")
        );
        let forced = Patch::apply("two", wanted(json!({"x": "2", "y": "1", "z": "2"}))).force(true);
        assert_eq!(
            data(&maps.patch("a", &forced, &stop).unwrap(), "x").as_deref(),
            Some("2")
        );

        // A field without managers is removed. A field of another manager stays.
        let left = apply("two", json!({"x": "2"})).unwrap();
        assert_eq!(
            left.data.as_ref().unwrap().keys().collect::<Vec<_>>(),
            ["x", "y"]
        );
        // A manager that lost a field cannot remove it.
        let left = apply("one", json!({"y": "2"})).unwrap();
        assert_eq!(
            left.data.as_ref().unwrap().keys().collect::<Vec<_>>(),
            ["x", "y"]
        );
        let error = apply("one", json!({"x": "3", "y": "2"})).unwrap_err();
        assert!(
            error.to_string().contains("conflict with \"two\": .data.x"),
            "{error}"
        );

        let error = apply("three", json!({"x": "0", "y": "0"})).unwrap_err();
        let causes = &error.status().unwrap().details.as_ref().unwrap().causes;
        assert_eq!(causes.len(), 2);
        let error = maps
            .patch("b", &Patch::apply("one", wanted(json!({}))), &stop)
            .unwrap_err();
        assert!(error.is_bad_request(), "the name differs: {error:?}");
        let error = maps
            .patch("a", &Patch::apply("", wanted(json!({}))), &stop)
            .unwrap_err();
        assert!(error.is_invalid(), "no manager: {error:?}");
        let kind = json!({"kind": "Secret", "metadata": {"name": "a"}});
        assert!(
            maps.patch("a", &Patch::apply("one", kind), &stop)
                .unwrap_err()
                .is_bad_request()
        );
        let read = maps.get("a", &stop).unwrap();
        assert!(
            maps.patch("a", &Patch::apply("one", &*read), &stop)
                .unwrap_err()
                .is_bad_request()
        );
    });
}

#[test]
fn status_and_spec_are_written_separately() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("status");
        let pods = client.api::<Pod>(Some(&namespace.name));
        let containers = json!([{"name": "c", "image": "none"}]);
        let pod = json!({
            "metadata": {"name": "p"}, "spec": {"containers": containers}, "status": {"message": "mine"},
        });
        let pod = pods.create(&pod, &stop).unwrap();
        let message = |pod: &Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.message.clone())
        };
        // Pods have generations since 1.33.
        let generation = |number| (cluster.minor() >= 33).then_some(number);
        let deadline = |pod: &Pod| pod.spec.as_ref().unwrap().active_deadline_seconds;
        assert_eq!(
            (message(&pod), pod.metadata.generation),
            (None, generation(1))
        );

        let patch =
            Patch::merge(json!({"spec": {"activeDeadlineSeconds": 9}, "status": {"message": "a"}}));
        let pod = pods.status().patch("p", &patch, &stop).unwrap();
        assert_eq!(
            (
                message(&pod).as_deref(),
                deadline(&pod),
                pod.metadata.generation
            ),
            (Some("a"), None, generation(1))
        );
        let pod = pods.patch("p", &patch, &stop).unwrap();
        assert_eq!(
            (message(&pod).as_deref(), deadline(&pod)),
            (Some("a"), Some(9))
        );
        assert_eq!(pod.metadata.generation, generation(2));

        let mut changed = pods.status().get("p", &stop).unwrap();
        changed.status.as_mut().unwrap().message = Some("b".into());
        changed.spec.as_mut().unwrap().active_deadline_seconds = Some(8);
        let replaced = pods.status().replace(&changed, &stop).unwrap();
        assert_eq!(
            (message(&replaced).as_deref(), deadline(&replaced)),
            (Some("b"), Some(9))
        );
        let error = pods.status().replace(&changed, &stop).unwrap_err();
        assert!(error.is_conflict(), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("replace pods/status \"p\" in namespace "),
            "{error}"
        );
        let change = |pod: &mut Pod| pod.status.as_mut().unwrap().message = Some("c".into());
        let pod = pods.status().modify("p", change, &stop).unwrap();
        assert_eq!(message(&pod).as_deref(), Some("c"));
        let wanted = json!({"metadata": {"name": "p"}, "status": {"message": "d"}});
        let pod = pods
            .status()
            .patch("p", &Patch::apply("me", wanted).force(true), &stop)
            .unwrap();
        assert_eq!(
            (message(&pod).as_deref(), deadline(&pod)),
            (Some("d"), Some(9))
        );
        assert_eq!(pod.metadata.generation, generation(2));

        let missing_pod = json!({"metadata": {"name": "q"}, "status": {"message": "d"}});
        let error = pods
            .status()
            .patch("q", &Patch::apply("me", missing_pod), &stop)
            .unwrap_err();
        assert!(
            error.is_not_found(),
            "a status patch must not create an object: {error:?}"
        );
        let maps = maps(&client, &namespace);
        maps.create(&json!({"metadata": {"name": "a"}}), &stop)
            .unwrap();
        assert!(
            maps.status().get("a", &stop).unwrap_err().is_not_found(),
            "a ConfigMap has no status"
        );
    });
}

#[test]
fn delete_preconditions_protect_changed_and_recreated_objects() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("delete");
        let maps = maps(&client, &namespace);
        let body = json!({"metadata": {"name": "a"}});
        let first = maps.create(&body, &stop).unwrap();
        maps.patch("a", &Patch::merge(json!({"data": {"x": "1"}})), &stop)
            .unwrap();
        let error = maps
            .delete("a", &DeleteOptions::unchanged(&*first), &stop)
            .unwrap_err();
        assert!(error.is_conflict(), "{error:?}");
        let mut options = DeleteOptions::same_object(&*first);
        options.propagation_policy = Some(PropagationPolicy::Background);
        options.grace_period_seconds = Some(0);
        maps.delete("a", &options, &stop).unwrap();

        let second = maps.create(&body, &stop).unwrap();
        let error = maps.delete("a", &options, &stop).unwrap_err();
        assert!(error.is_conflict(), "the object was recreated: {error:?}");
        // Metadata without a UID matches no object.
        let error = maps
            .delete(
                "a",
                &DeleteOptions::same_object(&ObjectMeta::default()),
                &stop,
            )
            .unwrap_err();
        assert!(error.is_conflict(), "{error:?}");
        maps.delete("a", &DeleteOptions::unchanged(&*second), &stop)
            .unwrap();

        // A finalizer delays the deletion. The metadata shows the finalizer and that the object is
        // being deleted.
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        maps.create(&held, &stop).unwrap();
        maps.delete("held", &DeleteOptions::default(), &stop)
            .unwrap();
        let metadata = client.metadata_api(&configmaps(), Some(&namespace.name));
        let held: FullObjectMeta = metadata.get("held", &stop).unwrap().into_inner().metadata;
        assert!(
            held.is_being_deleted() && held.finalizers == ["example.com/hold"],
            "{held:?}"
        );
        let release = Patch::json(json!([
            {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/hold"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]));
        metadata.patch("held", &release, &stop).unwrap();
        wait_until("the object is deleted", || {
            maps.get("held", &stop)
                .is_err_and(|error| error.is_not_found())
                .then_some(())
        });
    });
}

#[test]
fn concurrent_modify_calls_lose_no_update() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 5;
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("modify");
        let maps = maps(&client, &namespace);
        maps.create(
            &json!({"metadata": {"name": "count"}, "data": {"n": "0"}}),
            &stop,
        )
        .unwrap();
        let calls = AtomicUsize::new(0);
        let add_one = |map: &mut ConfigMap| {
            calls.fetch_add(1, Ordering::Relaxed);
            let count = map.data.as_mut().unwrap().get_mut("n").unwrap();
            *count = (count.parse::<usize>().unwrap() + 1).to_string();
        };
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        // Call `modify` again after a conflict: other writers may win more often
                        // than one call retries.
                        let deadline = std::time::Instant::now() + PATIENCE;
                        while let Err(error) = maps.modify("count", add_one, &stop) {
                            assert!(error.is_conflict(), "{error}");
                            assert!(std::time::Instant::now() < deadline, "{error}");
                        }
                    }
                });
            }
        });
        assert_eq!(
            data(&maps.get("count", &stop).unwrap(), "n").unwrap(),
            (WRITERS * ROUNDS).to_string()
        );
        println!(
            "  {} calls for {} changes",
            calls.into_inner(),
            WRITERS * ROUNDS
        );

        // A writer that always uses an old version gets the conflict.
        let mut tries = 0;
        let error = retry_on_conflict(
            || {
                tries += 1;
                let mut map = maps.get("count", &stop)?;
                map.metadata.resource_version = Some("1".into());
                maps.replace(&map, &stop)
            },
            &stop,
        )
        .unwrap_err();
        assert!(error.is_conflict() && tries == 5, "{tries}: {error}");
    });
}

#[test]
fn terminating_namespace_rejects_creates() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("going");
        client
            .api::<CoreNamespace>(None)
            .delete(&namespace.name, &DeleteOptions::default(), &stop)
            .unwrap();
        let error = maps(&client, &namespace)
            .create(&json!({"metadata": {"name": "late"}}), &stop)
            .unwrap_err();
        // A cluster with controllers may have deleted the namespace already.
        assert!(
            error.is_namespace_terminating() && error.is_forbidden() || error.is_not_found(),
            "{error:?}"
        );
    });
}

#[test]
fn metadata_alone_can_be_listed_and_watched() {
    fn names(list: &Value) -> Vec<&str> {
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap())
            .collect()
    }
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("metadata");
        namespace.create("a", json!({"x": "1"}));
        let source: &dyn ListerWatcherSource = &client;
        let watcher = source.metadata_lister_watcher(&configmaps(), Some(&namespace.name));
        let options = ListOptions::new().label_selector("x=1");
        let body = watcher.list(&options, &stop).unwrap();
        let list: Value = serde_json::from_reader(body).unwrap();
        assert_eq!(
            (&list["kind"], names(&list)),
            (&json!("PartialObjectMetadataList"), vec!["a"])
        );
        assert_eq!(list["items"][0].get("data"), None, "{list}");

        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let options = ListOptions::new()
            .resource_version(ResourceVersion::new(version))
            .timeout_seconds(30);
        let mut events =
            serde_json::Deserializer::from_reader(watcher.watch(&options, &stop).unwrap())
                .into_iter::<Event>();
        namespace.patch("a", &json!({"data": {"round": "1"}}));
        namespace.delete("a");
        for kind in ["MODIFIED", "DELETED"] {
            let event = events.next().unwrap().unwrap();
            assert_eq!((event.kind.as_str(), event.object.name()), (kind, "a"));
            assert_eq!(event.object.label("x"), Some("1"));
        }
        assert!(
            watcher
                .description()
                .starts_with("configmaps in namespace ")
        );
    });
}

#[test]
fn metadata_informer_delivers_add_update_and_delete() {
    on_every_cluster(BOTH, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("partial");
        namespace.create("a", json!({"x": "1"}));
        let follower = Follower::default();
        let watcher = client.metadata_lister_watcher(&configmaps(), Some(&namespace.name));
        let options = SharedIndexInformerOptions::new().reflector(cluster.options());
        let informer = SharedIndexInformer::new(watcher, options);
        informer.add_handler(follower.clone()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| informer.run(&stop).unwrap());
            follower.wait_for_events(&["+a"]);
            let annotate = Patch::merge(json!({"metadata": {"annotations": {"y": "2"}}}));
            let metadata = client.metadata_api(&configmaps(), Some(&namespace.name));
            let written = metadata.patch("a", &annotate, &stop).unwrap().into_inner();
            follower.wait_for_events(&["+a", "~a"]);
            let objects: Vec<Arc<PartialObjectMetadata>> = informer.lister().list();
            assert_eq!(*objects[0], written);
            namespace.delete("a");
            follower.wait_for_events(&["+a", "~a", "-a"]);
            stop.stop();
        });
        assert_eq!(follower.known().problems, Vec::<String>::new());
        if let Some(server) = cluster.embedded_server() {
            let reads = server.requests();
            let reads = reads
                .iter()
                .filter(|request| [Verb::List, Verb::Watch].contains(&request.verb()));
            let own_reads =
                reads.filter(|request| request.path().ends_with(&namespace.path("configmaps")));
            for request in own_reads {
                let accept = request.header("accept").unwrap();
                assert!(accept.contains("as=PartialObjectMetadata"), "{accept}");
            }
        }
    });
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: PartialObjectMetadata,
}

#[test]
fn invalid_names_are_rejected_before_sending() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("names");
        let maps = maps(&client, &namespace);
        maps.create(&json!({"metadata": {"name": "a"}}), &stop)
            .unwrap();
        for name in ["", ".", "..", "a/status", "%61", "../configmaps/a"] {
            assert!(
                maps.delete(name, &DeleteOptions::default(), &stop).is_err(),
                "{name}"
            );
            assert!(maps.get(name, &stop).is_err(), "{name}");
        }
        // Unusual names are sent unchanged.
        assert!(maps.get("a?b#c d", &stop).unwrap_err().is_not_found());
        maps.get("a", &stop).unwrap();
        let all = cluster.send(Request::get(namespace.path("configmaps")));
        assert!(!all["items"].as_array().unwrap().is_empty());
    });
}
