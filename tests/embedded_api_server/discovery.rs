//! Discovery of the embedded server, compared with a real server.

use std::fs;
use std::path::Path;

use k8s_informer::testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::embedded_api_server::client::{Client, Response};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

fn sample(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/wire")
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
fn legacy_discovery_matches_real_server() {
    let server = ApiServer::start().unwrap();
    assert_eq!(
        get(&server, "/api", "")["versions"],
        sample("12-api")["versions"]
    );
    let (ours, real) = (get(&server, "/apis", "application/json"), sample("12-apis"));
    for group in list(&ours["groups"]) {
        let real = find_by(&real["groups"], |item| &item["name"], &group["name"]).unwrap();
        let others = ["autoscaling"].contains(&group["name"].as_str().unwrap());
        assert!(group == real || others, "{group} differs from {real}");
        let path = format!("/apis/{}", group["name"].as_str().unwrap());
        let alone = get(&server, &path, "");
        assert_eq!(
            (&alone["kind"], &alone["versions"]),
            (&json!("APIGroup"), &group["versions"])
        );
    }
    let (ours, real) = (get(&server, "/api/v1", ""), sample("12-api-v1"));
    assert_eq!(
        (&ours["kind"], &ours["groupVersion"]),
        (&real["kind"], &real["groupVersion"])
    );
    for resource in list(&ours["resources"]) {
        let real = find_by(&real["resources"], |item| &item["name"], &resource["name"]);
        assert_within(
            resource,
            real.unwrap_or_else(|| panic!("the real server has no resource {resource}")),
        );
    }
    assert_eq!(get(&server, "/apis/apps/v1", "")["groupVersion"], "apps/v1");
}

#[test]
fn discovery_with_matching_etag_returns_304() {
    let server = ApiServer::start().unwrap();
    let first = request(&server, "GET", "/apis", &[("Accept", AGGREGATED)]);
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(
        first.header("content-type"),
        Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    );
    let headers = [("Accept", AGGREGATED), ("If-None-Match", &*etag)];
    let same = request(&server, "GET", "/apis", &headers);
    assert_eq!((same.status, same.body.len()), (304, 0));
}

#[test]
fn discovery_lists_added_resources_and_404s_unknown_paths() {
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
    let last = list(&groups["groups"]).last().unwrap();
    assert_eq!(last["name"], "example.com");
    assert_eq!(last["preferredVersion"]["version"], "v1");
    let beta = get(&server, "/apis/example.com/v1beta1", "");
    assert_eq!(beta["resources"][0]["shortNames"], json!(["wdg"]));
    assert_eq!(beta["resources"][1]["name"], "widgets/status");
    assert_eq!(
        list(&get(&server, "/apis/example.com/v1", "")["resources"]).len(),
        1
    );
    for path in [
        "/apis/example.com/v2",
        "/apis/nothing.example.com",
        "/api/v2",
    ] {
        assert_eq!(request(&server, "GET", path, &[]).status, 404, "{path}");
    }
    assert_eq!(request(&server, "POST", "/apis/apps/v1", &[]).status, 405);
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
