//! Objects that do not fit their type. The error names the field and contains no value.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::object::{Compact, GroupVersionResource};
use k8s_informer::reflector::{ListOptions, ReflectorOptions};
use k8s_informer::{
    Client, Config, DynamicObject, Error, ObjectMeta, SharedIndexInformer, SharedInformerFactory,
    Stopper, impl_object,
};
use k8s_informer_testing::{Answer, ApiServer, ScriptedListerWatcher};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// A Pod type with a wrong field type.
#[derive(Debug, Deserialize)]
struct MistypedPod {
    metadata: ObjectMeta,
    #[serde(rename = "spec")]
    _spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Spec {
    #[serde(rename = "containers")]
    _containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
struct Container {
    #[serde(rename = "image")]
    _image: u32,
}

impl_object!(MistypedPod, "v1", "Pod", "pods", Namespaced);

const FIELD: &str = "spec.containers[0].image: invalid type: string, expected u32";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "s3cret"}]}})
}

fn cluster() -> (ApiServer, Client) {
    let server = ApiServer::start().unwrap();
    for name in ["a", "b"] {
        server
            .create("/api/v1/namespaces/default/pods", pod(name))
            .unwrap();
    }
    let client = Client::new(Config::new(server.url())).unwrap();
    (server, client)
}

#[track_caller]
fn assert_names_field(error: &Error) {
    let text = format!("{error} {error:?}");
    assert!(
        error.is_decode() && text.contains(FIELD) && !text.contains("s3cret"),
        "{text}"
    );
}

#[test]
fn api_decode_error_names_field_without_value() {
    let (_server, client) = cluster();
    let (pods, stop) = (client.api::<MistypedPod>(Some("default")), Stopper::new());
    assert_names_field(&pods.get("a", &stop).unwrap_err());
    assert_names_field(&pods.create(&pod("c"), &stop).unwrap_err());
    assert_names_field(&pods.list(&ListOptions::default(), &stop).unwrap_err());
    assert_names_field(
        &pods
            .pages(&ListOptions::default(), &stop)
            .next()
            .unwrap()
            .unwrap_err(),
    );
    assert_names_field(
        &pods
            .watch(&ListOptions::default(), &stop)
            .unwrap()
            .next()
            .unwrap()
            .unwrap_err(),
    );
}

#[test]
fn informer_decode_error_names_field_without_value() {
    let (_server, client) = cluster();
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer::<MistypedPod>();
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    let error = factory
        .wait_for_cache_sync(None, &stop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(FIELD) && !error.contains("s3cret"),
        "{error}"
    );
    assert_names_field(&pods.status().undecodable.unwrap());
    assert_names_field(&pods.status().last_error.unwrap());
    factory.shut_down(None).unwrap();
}

#[test]
fn kept_object_decode_error_names_field_without_value() {
    let (_server, client) = cluster();
    let stop = Stopper::new();
    let compact = client
        .api::<Compact<MistypedPod>>(Some("default"))
        .get("a", &stop)
        .unwrap();
    let resource = GroupVersionResource::new("", "v1", "pods");
    let dynamic = client
        .dynamic_api(&resource, Some("default"))
        .get("a", &stop)
        .unwrap();
    let dynamic: &DynamicObject = &dynamic;
    let errors = [
        compact.decode().unwrap_err(),
        dynamic.decode::<MistypedPod>().unwrap_err(),
    ];
    for error in errors {
        let text = format!("{error} {error:?}");
        assert!(
            error.is_data() && text.contains(FIELD) && !text.contains("s3cret"),
            "{text}"
        );
    }
    let text = "/spec: containers[0].image: invalid type: string, expected u32";
    let error = dynamic.read::<Spec>("/spec").unwrap_err();
    assert!(
        error.to_string().starts_with(&format!("{text} at line 1")) && error.column() > 0,
        "{error}"
    );
}

#[derive(Debug, Deserialize)]
struct Picky {
    metadata: ObjectMeta,
    #[serde(rename = "word", deserialize_with = "good_word")]
    _word: String,
}

impl_object!(Picky, "v1", "Picky", "pickies", Namespaced);

fn good_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let word = String::deserialize(deserializer)?;
    // This message imitates an error of serde.
    Err(serde::de::Error::custom(format!(
        "invalid type: string, expected a word better than {word}"
    )))
}

fn picky_error(change: impl FnOnce(&mut ReflectorOptions)) -> String {
    let item = |name: &str| json!({"metadata": {"name": name}, "word": "s3cret"});
    let list = json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [item("a"), item("b")]});
    let source = ScriptedListerWatcher::new([Answer::body(list.to_string()), Answer::open("")]);
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.watch_list = false;
    change(&mut options.reflector);
    let informer = SharedIndexInformer::<Picky>::new(Arc::new(source), options);
    let stop = Stopper::new();
    thread::scope(|scope| {
        scope.spawn(|| informer.run(&stop));
        informer
            .wait_for_sync(Duration::from_secs(20), &stop)
            .unwrap_err();
        stop.stop();
    });
    informer.status().undecodable.unwrap().to_string()
}

#[test]
fn custom_decode_error_is_shown_only_if_enabled() {
    let hidden = picky_error(|_| {});
    let expected = "a: unexpected response: word: rejected by a custom deserializer (message hidden) at line 1";
    assert!(
        hidden.contains(expected) && !hidden.contains("s3cret"),
        "{hidden}"
    );
    let shown = picky_error(|options| options.show_custom_decode_errors = true);
    let expected = "a: unexpected response: word: invalid type: string, expected a word better than s3cret at line 1";
    assert!(shown.contains(expected), "{shown}");
}
