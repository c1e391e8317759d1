//! Dynamic objects, and typed objects that stay JSON: validation, decoding on demand, and size. The
//! fuzz target `dynamic_object` compares them with `serde_json` trees.

use std::borrow::Cow;
use std::sync::{Arc, mpsc};
use std::thread;

use k8s_informer::handler::{FilteringHandler, HandlerFuncs};
use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::object::{Compact, meta_namespace_key};
use k8s_informer::reflector::{Body, FieldPaths, ListOptions, ListWatch};
use k8s_informer::{DynamicObject, Object, Resource, SharedIndexInformer, Stop, Stopper};
use k8s_openapi::api::core::v1::Pod;
use serde_json::value::RawValue;
use serde_json::{Value, json};

fn dynamic(json: &str) -> DynamicObject {
    serde_json::from_str(json).unwrap()
}

/// Formats the API version, kind, namespace, name, UID, resource version and labels.
fn summary(object: &DynamicObject) -> String {
    let labels: Vec<_> = object
        .labels()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let (kind, version) = (object.kind(), object.api_version());
    let (name, namespace, uid) = (object.name(), object.namespace(), object.uid());
    format!(
        "{version}|{kind}|{namespace}/{name}|{uid}@{}|{}",
        object.resource_version(),
        labels.join(",")
    )
}

#[test]
fn metadata_is_found_at_any_position_and_spelling() {
    for (json, expected) in [
        (
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"app":"web","tier":"1"}},"spec":{}}"#,
            "v1|Pod|n/a|u@7|app=web,tier=1",
        ),
        (
            " { \"spec\" : { \"metadata\" : { \"name\" : \"no\" } , \"kind\" : \"}{\" } ,\n \"metadata\" : { \"annotations\" : { \"name\" : \"no\" , \"uid\" : \"\\\"}\" } , \"labels\" : { \"b\" : \"2\" , \"a\" : \"1\" } , \"name\" : \"a\" } } ",
            "||/a|@|b=2,a=1",
        ),
        (
            r#"{"k\u0069nd":"P\u006fd","m\u0065tadata":{"n\u0061me":"\u0061","labels":{"\u0061":"\"1\""}}}"#,
            "|Pod|/a|@|a=\"1\"",
        ),
        (
            r#"{"metadata":{"name":"ä","labels":{"ö":"ü"}}}"#,
            "||/ä|@|ö=ü",
        ),
        (
            r#"{"metadata":{"name":null,"labels":null},"kind":null}"#,
            "||/|@|",
        ),
        (r#"{"metadata":{"labels":{}}}"#, "||/|@|"),
        (r#"{"metadata":{"labels":{"a":null}}}"#, "||/|@|a="),
        (r#"{"metadata":null}"#, "||/|@|"),
        ("{}", "||/|@|"),
        // As in a `serde_json` tree, the last of several duplicate keys counts.
        (
            r#"{"metadata":{"name":"a","labels":{"x":"1","a":"2","x":"3"}}}"#,
            "||/a|@|a=2,x=3",
        ),
    ] {
        let object = dynamic(json);
        assert_eq!(summary(&object), expected, "{json}");
        // The object keeps its original JSON text.
        assert_eq!(object.json(), json.trim());
        let tree: Value = serde_json::from_str(json).unwrap();
        assert_eq!(Value::Object(object.to_map().unwrap()), tree);
        assert!(meta_namespace_key(&object).ends_with(object.name()));
        for (key, value) in object.labels() {
            assert_eq!(object.label(key), Some(value));
        }
        assert_eq!(object.label("other"), None);
        assert_eq!(json!(object), tree);
        assert_eq!(
            serde_json::from_value::<DynamicObject>(tree.clone()).unwrap(),
            object
        );
        assert_eq!(Compact::<Pod>::new(&tree).unwrap(), object.into());
    }
}

#[test]
fn invalid_metadata_is_rejected_with_its_position() {
    for (json, expected) in [
        (
            r#"{"metadata":{"name":5}}"#,
            "metadata.name: invalid type: integer, expected a string at line 1 column 21",
        ),
        (
            r#"{"metadata":{"labels":{"a":{}}}}"#,
            "metadata.labels[…]: invalid type: map, expected a string at line 1 column 27",
        ),
        (
            r#"{"metadata":{"labels":["a"]}}"#,
            "metadata.labels: invalid type: sequence, expected a map at line 1 column 22",
        ),
        (
            r#"{"metadata":["a"]}"#,
            "metadata: invalid type: sequence, expected an object as metadata at line 1 column 13",
        ),
        (
            r#"{"kind":["Pod"]}"#,
            "kind: invalid type: sequence, expected a string at line 1 column 8",
        ),
        (
            r#"{"metadata":{"uid":"a","uid":"a"}}"#,
            "metadata: duplicate field `uid` at line 1 column 28",
        ),
        (
            r#"{"metadata":{},"metadata":{}}"#,
            "duplicate field `metadata` at line 1 column 25",
        ),
        (
            r#"["v1","Pod",{"name":"a"}]"#,
            "invalid type: something else, expected a Kubernetes object",
        ),
        (
            "null",
            "invalid type: something else, expected a Kubernetes object",
        ),
    ] {
        assert_eq!(
            serde_json::from_str::<DynamicObject>(json)
                .unwrap_err()
                .to_string(),
            expected,
            "{json}"
        );
    }
    assert!(serde_json::from_str::<DynamicObject>(r#"{"metadata":{"name":"\ud800"}}"#).is_err());
    assert!(Compact::<Pod>::new(&7).is_err());
}

#[test]
fn truncated_json_is_rejected() {
    let json = r#"{"metadata":{"n\u0061me":"a","labels":{"é":"1"}},"spec":[{"a":-1.5e3},null,true,"\"\\"]}"#;
    for end in 0..json.len() {
        assert!(
            serde_json::from_slice::<DynamicObject>(&json.as_bytes()[..end]).is_err(),
            "at {end}"
        );
    }
    assert_eq!(dynamic(json).name(), "a");
    assert!(serde_json::from_str::<DynamicObject>(&format!("{json}}}")).is_err());
    assert!(serde_json::from_slice::<DynamicObject>(b"{\"spec\":\"\xff\"}").is_err());
}

#[test]
fn list_item_inherits_and_serializes_the_type_of_the_list() {
    for (json, expected) in [
        ("{}", r#"{"kind":"Pod","apiVersion":"v1"}"#),
        ("{ }", r#"{"kind":"Pod","apiVersion":"v1"}"#),
        (
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
        ),
        (r#"{ "x":1}"#, r#"{"kind":"Pod","apiVersion":"v1", "x":1}"#),
        (
            r#"{"kind":null,"x":[1,2],"apiVersion":""}"#,
            r#"{"kind":"Pod","apiVersion":"v1","x":[1,2]}"#,
        ),
        (
            r#"{"metadata":{"name":"\u0061"}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"\u0061"}}"#,
        ),
        (
            r#"{"k\u0069nd":null}"#,
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
        ),
        (r#"{"kind":"Node"}"#, r#"{"kind":"Node"}"#),
        (r#"{"apiVersion":"v2"}"#, r#"{"apiVersion":"v2"}"#),
    ] {
        let mut object = dynamic(json);
        object.set_type_meta("v1", "Pod");
        assert_eq!(object.json(), expected);
        assert_eq!(summary(&object), summary(&dynamic(expected)));
        object.set_type_meta("v9", "Other");
        assert_eq!(object.json(), expected);
    }
    let mut object = dynamic(r#"{"metadata":{"name":"a","labels":{"b":"c"}}}"#);
    object.set_type_meta("", "");
    assert_eq!(object.json().find("kind"), None);
    object.set_type_meta("", "a \"kind\"");
    assert_eq!(summary(&object), "|a \"kind\"|/a|@|b=c");
}

#[test]
fn read_matches_a_json_tree_and_null_is_none() {
    let json = r#"{"a/b":{"m~n":[1,[2,{"":3}],"x"]},"~1":4,"0":{"00":5},"n":null,"twice":{"a":6},"twice":{"b":7},"\u0061":8}"#;
    let (object, tree) = (dynamic(json), serde_json::from_str::<Value>(json).unwrap());
    for pointer in [
        "",
        "/",
        "a",
        "/a~1b",
        "/a~1b/m~0n",
        "/a~1b/m~0n/0",
        "/a~1b/m~0n/1/1/",
        "/a~1b/m~0n/01",
        "/a~1b/m~0n/+1",
        "/a~1b/m~0n/-",
        "/a~1b/m~0n/3",
        "/a~1b/m~0n/2",
        "/a~1b/m~0n/2/0",
        "/~01",
        "/0/00",
        "/0/0",
        "/twice/a",
        "/twice/b",
        "/a",
        "/n/n",
        "/a~1b/m~0n/99999999999999999999",
    ] {
        assert_eq!(
            object.read::<Value>(pointer).unwrap().as_ref(),
            tree.pointer(pointer),
            "{pointer}"
        );
    }
    assert_eq!(object.read::<Value>("/n").unwrap(), None);
    assert_eq!(object.read::<Option<u8>>("/n").unwrap(), None);
    assert_eq!(
        object
            .read::<&RawValue>("/a~1b/m~0n")
            .unwrap()
            .unwrap()
            .get(),
        r#"[1,[2,{"":3}],"x"]"#
    );
}

#[test]
fn unescaped_string_can_be_borrowed() {
    let object = dynamic(r#"{"plain": "a", "odd": "\u0061"}"#);
    assert_eq!(object.read::<&str>("/plain").unwrap(), Some("a"));
    assert!(object.read::<&str>("/odd").is_err());
    assert_eq!(
        object.read::<Cow<'_, str>>("/odd").unwrap().as_deref(),
        Some("a")
    );
    assert_eq!(object.read::<String>("/odd").unwrap().as_deref(), Some("a"));
}

#[test]
fn nesting_of_more_than_127_levels_is_rejected() {
    let nested = |levels: usize| {
        let (opening, closing) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"metadata":{{"name":"a"}},"spec":{opening}{closing}}}"#)
    };
    let object = dynamic(&nested(126));
    assert_eq!(object.name(), "a");
    assert!(object.read::<Value>("/spec").unwrap().is_some());
    assert!(object.to_map().is_ok());
    // Many brackets side by side are not nested, so they do not exceed the nesting limit.
    let flat = format!(r#"{{"spec":[{}[]],"metadata":{{}}}}"#, "[],".repeat(500));
    assert!(dynamic(&flat).to_map().is_ok());
    for levels in [127, 128, 200_000] {
        let error = serde_json::from_str::<DynamicObject>(&nested(levels)).unwrap_err();
        assert!(
            error.to_string().contains("nested deeper than 127 levels"),
            "{error}"
        );
    }
}

#[test]
fn unreadable_value_fails_only_when_read() {
    let mut object = dynamic(r#"{"metadata":{"name":"a"},"spec":{"large":1e999,"odd":"\ud800"}}"#);
    let before = object.json().to_owned();
    assert!(object.to_map().is_err());
    assert!(object.edit(|fields| fields.clear()).is_err());
    assert!(object.read::<f64>("/spec/large").is_err());
    assert!(object.read::<String>("/spec/odd").is_err());
    assert_eq!(object.read("/metadata/name").unwrap(), Some("a"));
    assert!(serde_json::to_string(&object).is_err());
    assert_eq!(object.json(), before);
    assert_eq!(object, object.clone());
}

#[test]
fn edit_keeps_the_value_of_untouched_numbers() {
    for (number, value) in [
        (
            "10000000000000016126584147974145818",
            1.000_000_000_000_001_6e34,
        ),
        (
            "0.1000000000000000055511151231257827021181583404541015625",
            0.1,
        ),
        ("9007199254740993", 9_007_199_254_740_992.0),
        ("2.2250738585072014e-308", f64::MIN_POSITIVE),
    ] {
        let mut object = dynamic(&format!(r#"{{"spec": {{"ratio": {number}}}}}"#));
        object.edit(|_| ()).unwrap();
        let read = object.read::<f64>("/spec/ratio").unwrap();
        assert_eq!(read.map(f64::to_bits), Some(value.to_bits()), "{number}");
    }
}

#[test]
fn edit_that_breaks_the_metadata_changes_nothing() {
    let mut object = dynamic(r#"{"metadata":{"name":"a"},"spec":{"size":3}}"#);
    for wrong in [
        json!("no object"),
        json!({"name": 7}),
        json!({"labels": {"a": 1}}),
    ] {
        let error = object
            .edit(|fields| fields.insert("metadata".to_owned(), wrong))
            .unwrap_err();
        assert!(error.to_string().starts_with("metadata"), "{error}");
        assert_eq!(
            object.json(),
            r#"{"metadata":{"name":"a"},"spec":{"size":3}}"#
        );
    }
    let old = object.edit(|fields| fields.insert("metadata".to_owned(), json!({"name": "b"})));
    assert_eq!(old.unwrap(), Some(json!({"name": "a"})));
    assert_eq!(
        (object.name(), object.read("/spec/size").unwrap()),
        ("b", Some(3))
    );
}

#[test]
fn debug_shows_no_secret() {
    let object = dynamic(
        r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"},"data":{"token":"hunter2"}}"#,
    );
    let shown =
        r#"DynamicObject { namespace: "n", name: "a", resource_version: "7", bytes: 90, .. }"#;
    assert_eq!(format!("{object:?}"), shown);
    assert_eq!(format!("{:?}", Compact::<Pod>::from(object)), shown);
}

#[test]
fn objects_with_equal_fields_are_equal_in_any_spelling() {
    let object = dynamic(r#"{"kind":"Pod","metadata":{"name":"a"}}"#);
    assert_eq!(
        object,
        dynamic(r#"{"metadata": {"name":"\u0061"}, "kind":"Pod"}"#)
    );
    assert_ne!(object, dynamic(r#"{"kind":"Pod","metadata":{"name":"b"}}"#));
    assert_eq!(DynamicObject::default(), dynamic(" { } "));
}

/// Dynamic objects in YAML and in an untagged enum.
#[test]
fn dynamic_object_decodes_from_yaml_and_untagged_enum() {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u32),
        Object(DynamicObject),
    }
    let object = dynamic(r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{"ports":[1,2]}}"#);
    let yaml = "kind: Pod\nmetadata:\n  name: a\nspec:\n  ports: [1, 2]\n";
    assert_eq!(
        serde_saphyr::from_str::<DynamicObject>(yaml).unwrap(),
        object
    );
    match serde_json::from_str(object.json()).unwrap() {
        Either::Object(found) => assert_eq!(found, object),
        Either::Number(number) => panic!("{number}"),
    }
    assert!(serde_saphyr::from_str::<DynamicObject>("- no object").is_err());
}

#[test]
fn dynamic_object_overhead_is_80_bytes_with_a_shared_type() {
    assert_eq!(size_of::<DynamicObject>(), size_of::<Compact<Pod>>());
    if size_of::<usize>() == 8 {
        assert_eq!(size_of::<DynamicObject>(), 80);
    }
    assert_eq!(
        Compact::<Pod>::group_version_resource(),
        Pod::group_version_resource()
    );
    assert_eq!(
        Compact::<Pod>::group_version_kind(),
        Pod::group_version_kind()
    );
}

const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
    {"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"3","managedFields":[{"manager":"m"}]},"spec":{"nodeName":"one","containers":[]}},
    {"metadata":{"name":"b","namespace":"n","uid":"2","resourceVersion":"4","labels":{"app":"web"}},"spec":{"containers":[]}},
    {"metadata":{"name":"odd","namespace":"n","uid":7,"resourceVersion":"5"}}]}"#;

const CHANGED: &str = r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"n","uid":"2","resourceVersion":"6","labels":{"app":"web"},"managedFields":[]},"spec":{"nodeName":"two","containers":[]}}}
"#;

#[test]
fn informer_of_typed_compact_objects_indexes_and_filters() {
    let stop = Stopper::new();
    let until = stop.signal();
    let lister_watcher = ListWatch::new(
        |_: &ListOptions, _: &Stop| Ok(Body::from(LIST)),
        move |_: &ListOptions, _: &Stop| {
            let silence = Silence(until.clone());
            Ok(Body::new(std::io::Read::chain(CHANGED.as_bytes(), silence)))
        },
    );
    let mut options = SharedIndexInformerOptions::<Compact<Pod>>::default();
    options.reflector.skip = FieldPaths::managed_fields();
    options.reflector.expected_kind = Some(Compact::<Pod>::group_version_kind());
    let informer = SharedIndexInformer::new(Arc::new(lister_watcher), options);
    informer
        .add_index("node", |pod| {
            pod.read("/spec/nodeName").into_iter().flatten().collect()
        })
        .unwrap();
    let (sender, events) = mpsc::channel();
    let added = sender.clone();
    let handler = HandlerFuncs::new()
        .on_add(move |pod: &Arc<Compact<Pod>>, _| added.send(format!("+{}", pod.name())).unwrap())
        .on_update(move |old, new| {
            let node = |pod: &Compact<Pod>| pod.decode().unwrap().spec.unwrap().node_name;
            sender
                .send(format!("~{} {:?} {:?}", new.name(), node(old), node(new)))
                .unwrap();
        });
    informer
        .add_handler(FilteringHandler::new(
            |pod: &Compact<Pod>| pod.label("app").is_some(),
            handler,
        ))
        .unwrap();
    let runner = thread::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        move || informer.run(&stop).unwrap()
    });
    assert_eq!(events.recv().unwrap(), "+b");
    assert_eq!(events.recv().unwrap(), "~b None Some(\"two\")");
    let (one, two) = (
        informer.lister().by_index("node", "one").unwrap(),
        informer.lister().get("n", "b").unwrap(),
    );
    assert_eq!(
        one[0].json(),
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"3"},"spec":{"nodeName":"one","containers":[]}}"#
    );
    assert_eq!(two.read::<Value>("/metadata/managedFields").unwrap(), None);
    assert_eq!(
        informer.lister().list().len(),
        2,
        "the pod that cannot be decoded is skipped"
    );
    stop.stop();
    runner.join().unwrap();
}

/// A body that is silent until the stop.
struct Silence(Stop);

impl std::io::Read for Silence {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.0.wait();
        Ok(0)
    }
}
