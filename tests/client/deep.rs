//! Objects with the maximum nesting are decoded on any thread without a stack overflow.

use std::thread;

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, WatchEvent};
use k8s_informer::object::Compact;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, DynamicObject, Error, Object, Stopper};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::server::{Reply, Server, reply};
use crate::own_process;

/// The default stack size of the standard library, which handler threads have.
const STACK: usize = 2 << 20;

/// The innermost value of a definition, valid or of a wrong type.
const GOOD: &str = "{}";
const BAD: &str = r#"{"maxLength":"s3cret"}"#;

/// A definition with `levels` levels of braces and brackets.
fn definition(levels: usize, innermost: &str) -> String {
    let nots = levels - 6;
    format!(
        r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{{"name":"a","resourceVersion":"5"}},"spec":{{"group":"g","names":{{"kind":"K","plural":"p"}},"scope":"Namespaced","versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{}{innermost}{}}}}}]}}}}"#,
        r#"{"not":"#.repeat(nots),
        "}".repeat(nots)
    )
}

/// Decodes the object with every API that decodes on the thread of the caller.
fn decode_everywhere(
    levels: usize,
    innermost: &'static str,
) -> Vec<(&'static str, Result<(), String>)> {
    let server = Server::start(move |request| {
        let object = definition(levels, innermost);
        let body = match request {
            watch if watch.contains("watch=true") => {
                format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n")
            }
            one if one.contains("definitions/a ") => object,
            _ => format!(
                r#"{{"kind":"List","metadata":{{"resourceVersion":"7"}},"items":[{object}]}}"#
            ),
        };
        Reply::Write(reply("200 OK", "", &body))
    });
    let client = Client::new(Config::new(server.url())).unwrap();
    let (api, stop) = (client.api::<CustomResourceDefinition>(None), Stopper::new());
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a";
    let compact = || {
        serde_json::from_str::<Compact<CustomResourceDefinition>>(&definition(levels, innermost))
    };
    let message = |error: Error| error.to_string();
    let decoding = |error: serde_json::Error| error.to_string();
    let dynamic = |api: Api<DynamicObject>| -> Result<CustomResourceDefinition, String> {
        api.get("a", &stop)
            .map_err(message)?
            .decode()
            .map_err(decoding)
    };
    let watched = || match api.watch(&ListOptions::default(), &stop)?.next().unwrap()? {
        WatchEvent::Added(object) => {
            assert_eq!(object.name(), "a");
            Ok(())
        }
        other => panic!("{other:?}"),
    };
    vec![
        ("get", api.get("a", &stop).map(drop).map_err(message)),
        (
            "list",
            api.list(&ListOptions::default(), &stop)
                .map(drop)
                .map_err(message),
        ),
        ("watch", watched().map_err(message)),
        ("json", {
            let response = client.request(&Request::get(path), &stop).unwrap();
            response
                .json::<CustomResourceDefinition>()
                .map(drop)
                .map_err(message)
        }),
        (
            "Compact::decode",
            compact()
                .and_then(|compact| compact.decode())
                .map(drop)
                .map_err(decoding),
        ),
        ("Compact::read", {
            let versions = |compact: Compact<_>| {
                compact
                    .read::<serde_json::Value>("/spec/versions")
                    .map(drop)
            };
            compact().and_then(versions).map_err(decoding)
        }),
        (
            "DynamicObject::decode",
            dynamic(client.dynamic_api(api.resource(), None)).map(drop),
        ),
    ]
}

#[test]
fn deep_decode_error_has_field_path_on_a_small_stack() {
    if !own_process::is_alone(
        module_path!(),
        "deep_decode_error_has_field_path_on_a_small_stack",
    ) {
        return;
    }
    let small = thread::Builder::new().stack_size(STACK);
    let levels = [16, 17, 32, 127];
    let all = small
        .spawn(move || levels.map(|levels| (levels, decode_everywhere(levels, BAD))))
        .unwrap();
    for (levels, results) in all.join().unwrap() {
        let nots = ".not".repeat(levels - 6);
        let path = format!("spec.versions[0].schema.openAPIV3Schema{nots}.maxLength: ");
        for (what, result) in results
            .into_iter()
            .filter(|(what, _)| *what != "Compact::read")
        {
            let error = result.expect_err(what);
            let expected = format!("{path}invalid type: string, expected i64");
            assert!(
                error.contains(&expected) && !error.contains("s3cret"),
                "{what}: {error}"
            );
        }
    }
}

#[test]
fn deep_object_is_decoded_on_a_small_stack() {
    if !own_process::is_alone(module_path!(), "deep_object_is_decoded_on_a_small_stack") {
        return;
    }
    let small = thread::Builder::new().stack_size(STACK);
    let all = small
        .spawn(|| [33, 127].map(|levels| decode_everywhere(levels, GOOD)))
        .unwrap()
        .join()
        .unwrap();
    for (what, result) in all.into_iter().flatten() {
        println!("{what}");
        result.expect(what);
    }
    for (what, result) in decode_everywhere(128, GOOD) {
        let error = result.expect_err(what);
        let expected = match what {
            "Compact::decode" | "Compact::read" | "DynamicObject::decode" => {
                "nested deeper than 127 levels"
            }
            _ => "recursion limit exceeded",
        };
        assert!(error.contains(expected), "{what}: {error}");
    }
}
