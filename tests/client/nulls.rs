//! A server may send `null` for any field. As in Go, it is the zero value.

use std::fmt::Debug;

use k8s_informer::error::{Status, StatusCause, StatusDetails};
use k8s_informer::object::{
    Compact, FullMetadata, FullObjectMeta, PartialObjectMetadata, ResourceVersion, StringMap,
};
use k8s_informer::{
    Client, Config, DynamicObject, Error, Object, ObjectMeta, Stop, Stopper, impl_full_metadata,
    impl_object,
};
use k8s_informer_testing::{ApiResource, ApiServer, Fault, Verb};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::discovery::{ok, serve_paths};

#[derive(Debug, Deserialize, PartialEq)]
struct Slim {
    metadata: ObjectMeta,
}
impl_object!(Slim, "example.com/v1", "Widget", "widgets", Namespaced);

#[derive(Debug, Deserialize, PartialEq)]
struct Full {
    metadata: FullObjectMeta,
}
impl_object!(Full, "example.com/v1", "Widget", "widgets", Namespaced);
impl_full_metadata!(Full);

/// Decodes both values, which must be equal.
#[track_caller]
fn same<T: DeserializeOwned + PartialEq + Debug>(with_nulls: &Value, expected: &Value) {
    let decoded: Result<T, _> = serde_json::from_str(&with_nulls.to_string());
    let decoded = decoded.unwrap_or_else(|error| panic!("{with_nulls}: {error}"));
    assert_eq!(decoded, serde_json::from_value(expected.clone()).unwrap());
}

/// Adds each of the fields as `null`, one by one and all together.
#[track_caller]
fn null_is_absent<T: DeserializeOwned + PartialEq + Debug>(rest: Value, fields: &[&str]) {
    let mut all = rest.clone();
    for field in fields {
        let mut one = rest.clone();
        one[*field] = Value::Null;
        same::<T>(&one, &rest);
        all[*field] = Value::Null;
    }
    same::<T>(&all, &rest);
}

const NAMES: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "labels"];
const OTHERS: [&str; 9] = [
    "generateName",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

#[test]
fn null_field_of_any_type_is_its_zero_value() {
    let texts = ["status", "message", "reason", "details", "code", "metadata"];
    null_is_absent::<Status>(json!({"kind": "Status"}), &texts);
    let details = [
        "name",
        "group",
        "kind",
        "uid",
        "causes",
        "retryAfterSeconds",
    ];
    null_is_absent::<StatusDetails>(json!({}), &details);
    null_is_absent::<StatusCause>(json!({}), &["reason", "message", "field"]);

    null_is_absent::<ObjectMeta>(json!({}), &NAMES);
    let all = [&NAMES[..], &OTHERS].concat();
    null_is_absent::<FullObjectMeta>(json!({}), &all);
    let parts = ["apiVersion", "kind", "metadata"];
    null_is_absent::<PartialObjectMetadata>(json!({}), &parts);
}

#[test]
fn null_in_a_list_or_map_is_the_zero_value() {
    same::<StringMap>(&Value::Null, &json!({}));
    same::<StringMap>(&json!({"a": null, "b": "x"}), &json!({"a": "", "b": "x"}));
    same::<StatusDetails>(&json!({"causes": [null]}), &json!({"causes": [{}]}));
    let owner = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let owner: Value = owner.iter().map(|field| (*field, Value::Null)).collect();
    let nulls = json!({"name": "a", "labels": {"a": null}, "annotations": {"b": null, "c": "d"},
        "ownerReferences": [null, owner], "finalizers": [null, "x"], "managedFields": [null]});
    let zeros = json!({"name": "a", "labels": {"a": ""}, "annotations": {"b": "", "c": "d"},
        "ownerReferences": [{}, {}], "finalizers": ["", "x"]});
    let object = |metadata: &Value| json!({ "metadata": metadata });
    same::<ObjectMeta>(&nulls, &zeros);
    same::<FullObjectMeta>(&nulls, &zeros);
    same::<PartialObjectMetadata>(&object(&nulls), &object(&zeros));
    same::<Slim>(&object(&nulls), &object(&zeros));
    same::<Full>(&object(&nulls), &object(&zeros));

    let dynamic = DynamicObject::new(&object(&nulls)).unwrap();
    assert_eq!(dynamic.label("a"), Some(""));
    let metadata = dynamic.full_metadata().unwrap().into_owned();
    assert_eq!(metadata, serde_json::from_value(zeros).unwrap());
    let compact = Compact::<Full>::new(&object(&nulls)).unwrap();
    assert_eq!(*compact.full_metadata().unwrap(), metadata);
}

#[test]
fn value_of_another_type_stays_an_error() {
    for metadata in [
        json!({"name": 7}),
        json!({"labels": {"a": 7}}),
        json!({"labels": {"a": {}}}),
        json!({"annotations": ["a"]}),
        json!({"finalizers": [7]}),
        json!({"generation": "7"}),
        json!({"generation": 1.5}),
    ] {
        let text = metadata.to_string();
        assert!(
            serde_json::from_str::<FullObjectMeta>(&text).is_err(),
            "{text}"
        );
    }
    for status in [
        json!({"code": "409"}),
        json!({"reason": 7}),
        json!({"details": {"causes": {}}}),
        json!({"details": {"retryAfterSeconds": 1.5}}),
    ] {
        let text = status.to_string();
        assert!(serde_json::from_str::<Status>(&text).is_err(), "{text}");
    }
}

#[test]
fn status_numbers_out_of_range_mean_nothing() {
    for (code, retry, expected) in [(409, -1, (409, 0)), (-1, 7, (0, 7)), (70_000, 0, (0, 0))] {
        let status = json!({"code": code, "details": {"retryAfterSeconds": retry}});
        let status: Status = serde_json::from_value(status).unwrap();
        let details = status.details.as_ref().unwrap();
        assert_eq!((status.code, details.retry_after_seconds), expected);
        let error = Error::from_status(status);
        assert_eq!(error.retry_after().is_some(), expected.1 > 0);
    }
}

#[test]
fn status_with_a_null_field_keeps_its_reason() {
    let full = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m",
        "reason": "AlreadyExists", "code": 409,
        "details": {"name": "a", "group": "g", "kind": "pods", "uid": "u", "retryAfterSeconds": 0,
            "causes": [{"reason": "r", "message": "m", "field": "f"}]},
    });
    let pointers = [
        "/metadata",
        "/status",
        "/message",
        "/code",
        "/details",
        "/details/name",
        "/details/group",
        "/details/kind",
        "/details/uid",
        "/details/retryAfterSeconds",
        "/details/causes",
        "/details/causes/0",
        "/details/causes/0/reason",
        "/details/causes/0/message",
        "/details/causes/0/field",
    ];
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let maps = client.api::<k8s_openapi::api::core::v1::ConfigMap>(Some("default"));
    for pointer in pointers {
        let mut status = full.clone();
        *status.pointer_mut(pointer).unwrap() = Value::Null;
        let conflict = Fault::response(409, "application/json", status.to_string());
        server.fail_next(conflict.on(Verb::Create));
        let map = json!({"metadata": {"name": "a"}});
        let error = maps.create(&map, &Stop::never()).unwrap_err();
        assert!(error.is_already_exists(), "{pointer}: {error}");
        assert!(!error.is_conflict(), "{pointer}: {error}");
        assert_eq!(error.status().unwrap().code, 409, "{pointer}");
    }
}

#[test]
fn lists_and_events_with_nulls_are_read() {
    let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    let server = ApiServer::builder().resource(widgets).start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let maps = client.api::<Slim>(Some("default"));
    let (options, stop) = (Default::default(), Stopper::new());
    let metadata = json!({"name": "a", "namespace": "default", "uid": null, "labels": {"x": null},
        "annotations": null, "managedFields": null});
    let list = json!({"kind": "WidgetList", "apiVersion": null, "metadata": {"resourceVersion": "7",
        "selfLink": null, "continue": null, "remainingItemCount": null, "shardInfo": null},
        "items": [{"kind": null, "apiVersion": null, "metadata": metadata, "spec": null}]});
    let list = Fault::response(200, "application/json", list.to_string());
    server.fail_next(list.on(Verb::List));
    let list = maps.list(&options, &stop).unwrap();
    assert_eq!(list.resource_version, ResourceVersion::new("7"));
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].label("x"), Some(""));

    let events = [
        json!({"type": "ADDED", "object": {"kind": null, "metadata": metadata}}),
        json!({"type": "ERROR", "object": {"kind": "Status", "message": null, "details": null,
            "reason": "Expired", "code": 410, "metadata": null}}),
    ];
    let events: Vec<_> = events.iter().map(|event| format!("{event}\n")).collect();
    let watch = Fault::response(200, "application/json", events.concat());
    server.fail_next(watch.on(Verb::Watch));
    let mut events = maps.watch(&options, &stop).unwrap();
    events.next().unwrap().unwrap();
    assert!(events.next().unwrap().unwrap_err().is_gone());
}

#[test]
fn discovery_with_nulls_finds_the_resources() {
    let kind = json!({"group": null, "version": null, "kind": "Widget"});
    let nothing = json!({"singularResource": null, "verbs": null, "shortNames": null,
        "categories": null, "subresources": null});
    let mut widgets = json!({"resource": "widgets", "responseKind": kind, "scope": "Namespaced",
        "singularResource": null, "verbs": ["list", null], "shortNames": [null, "wd"],
        "categories": null, "subresources": [null, {"subresource": "status", "responseKind": kind,
            "verbs": null, "acceptedTypes": null}]});
    widgets["acceptedTypes"] = Value::Null;
    let mut gadgets = nothing;
    gadgets["resource"] = "gadgets".into();
    gadgets["scope"] = Value::Null;
    gadgets["responseKind"] = json!({"group": "", "version": "", "kind": "Gadget"});
    let version =
        |resources: Value| json!({"version": "v1", "freshness": null, "resources": resources});
    let aggregated = json!({"kind": "APIGroupDiscoveryList", "apiVersion": null, "metadata": null,
        "items": [null, {"metadata": {"name": "example.com", "creationTimestamp": null},
            "versions": [null, version(json!([null, widgets, gadgets]))]},
            {"metadata": {"name": "empty.example.com"}, "versions": null}]});
    let core = json!({"kind": "APIGroupDiscoveryList", "items": null});
    let server = serve_paths(move |path| match path {
        "/api" => Some(ok(&core)),
        "/apis" => Some(ok(&aggregated)),
        _ => None,
    });
    check_widgets(&server.url());
}

#[track_caller]
fn check_widgets(url: &str) {
    let client = Client::new(Config::new(url)).unwrap();
    let discovery = client.discovery(&Stop::never()).unwrap();
    assert!(
        discovery.failures().is_empty(),
        "{:?}",
        discovery.failures()
    );
    let widgets = discovery.find("wd").unwrap();
    assert_eq!(widgets.verbs, ["list"]);
    assert_eq!(widgets.singular, "widget");
    let gadgets = discovery.find("gadgets").unwrap();
    assert_eq!(gadgets.scope, k8s_informer::object::Scope::Cluster);
}
