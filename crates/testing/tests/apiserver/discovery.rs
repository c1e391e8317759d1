//! Discovery of the embedded server, compared with a real server.

use std::fs;
use std::path::Path;

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::{Client, Response};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

fn sample(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/wire")
        .join(format!("{name}.http"));
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str(&text[text.find("\n{\n").unwrap()..]).unwrap()
}

fn request(server: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let headers: Vec<_> = headers
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let mut client = Client::connect(server);
    client.send(method, path, &headers, "");
    client.response()
}

fn get(server: &ApiServer, path: &str, accept: &str) -> Value {
    let response = request(server, "GET", path, &[("Accept", accept)]);
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.json()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn find_by<'a>(
    items: &'a Value,
    name: impl Fn(&Value) -> &Value,
    expected: &Value,
) -> Option<&'a Value> {
    list(items).iter().find(|item| name(item) == expected)
}

/// Asserts that each field of `ours` has the same value in `real`. `ours` may have fewer
/// subresources.
#[track_caller]
fn assert_within(ours: &Value, real: &Value) {
    for (field, value) in ours.as_object().unwrap() {
        if field == "subresources" {
            for subresource in list(value) {
                let same = find_by(
                    &real[field],
                    |item| &item["subresource"],
                    &subresource["subresource"],
                );
                assert_within(
                    subresource,
                    same.unwrap_or_else(|| panic!("{subresource} is not in {real}")),
                );
            }
        } else {
            assert_eq!(value, &real[field], "{field} of {ours}");
        }
    }
    for field in ["shortNames", "categories"] {
        assert_eq!(ours[field], real[field], "{field} of {ours}");
    }
}

#[test]
fn aggregated_discovery_matches_real_server() {
    let server = ApiServer::start().unwrap();
    for (path, recorded) in [
        ("/api", "12-api-aggregated"),
        ("/apis", "12-apis-aggregated"),
    ] {
        let (ours, real) = (get(&server, path, AGGREGATED), sample(recorded));
        assert_eq!(
            (&ours["kind"], &ours["apiVersion"]),
            (&real["kind"], &real["apiVersion"])
        );
        let mut positions = Vec::new();
        for group in list(&ours["items"]) {
            let name = &group["metadata"];
            let position = list(&real["items"])
                .iter()
                .position(|real| real["metadata"] == *name);
            let position =
                position.unwrap_or_else(|| panic!("the real server has no group {name}"));
            positions.push(position);
            for version in list(&group["versions"]) {
                let real = &real["items"][position]["versions"];
                let real = find_by(real, |item| &item["version"], &version["version"]).unwrap();
                assert_eq!(version["freshness"], real["freshness"]);
                for resource in list(&version["resources"]) {
                    let real = find_by(
                        &real["resources"],
                        |item| &item["resource"],
                        &resource["resource"],
                    );
                    assert_within(
                        resource,
                        real.unwrap_or_else(|| {
                            panic!("the real server has no resource {resource}")
                        }),
                    );
                }
            }
        }
        assert!(
            positions.is_sorted() && !positions.is_empty(),
            "the groups are not in the real order: {positions:?}"
        );
    }
}

#[test]
fn discovery_lists_added_resources() {
    let widgets = ApiResource::new("example.com", "v1beta1", "widgets", "Widget").short_name("wdg");
    let newer = ApiResource::new("example.com", "v1", "widgets", "Widget")
        .cluster_scoped()
        .without_status();
    let server = ApiServer::builder()
        .resource(widgets)
        .resource(newer)
        .start()
        .unwrap();
    let groups = get(&server, "/apis", "");
    let last = list(&groups["items"]).last().unwrap();
    assert_eq!(last["metadata"]["name"], "example.com");
    let [first, beta] = list(&last["versions"]) else {
        panic!("{last}");
    };
    assert_eq!(
        (&first["version"], &beta["version"]),
        (&json!("v1"), &json!("v1beta1"))
    );
    assert_eq!(first["resources"][0]["subresources"], Value::Null);
    let beta = &beta["resources"][0];
    assert_eq!(beta["shortNames"], json!(["wdg"]));
    assert_eq!(beta["subresources"][0]["subresource"], "status");
}

#[test]
fn declared_resource_hides_a_built_in_one() {
    let pods = ApiResource::new("", "v1", "pods", "OtherPod");
    let server = ApiServer::builder().resource(pods).start().unwrap();
    let core = get(&server, "/api", "");
    let resources = list(&core["items"][0]["versions"][0]["resources"]);
    let kinds: Vec<_> = resources
        .iter()
        .filter(|resource| resource["resource"] == "pods")
        .map(|resource| &resource["responseKind"]["kind"])
        .collect();
    assert_eq!(kinds, ["OtherPod"]);
}

#[test]
fn discovery_requires_authentication() {
    let server = ApiServer::builder()
        .token("good")
        .token_without_rights("nobody", "nobody")
        .start()
        .unwrap();
    for (token, expected) in [("good", 200), ("nobody", 200), ("bad", 401)] {
        let headers = [("Authorization", &*format!("Bearer {token}"))];
        assert_eq!(
            request(&server, "GET", "/apis", &headers).status,
            expected,
            "{token}"
        );
    }
    let anonymous = request(&server, "GET", "/apis", &[]);
    assert_eq!(anonymous.status, 403);
    assert!(
        anonymous.json()["message"]
            .as_str()
            .unwrap()
            .contains("cannot get path \"/apis\"")
    );
}
