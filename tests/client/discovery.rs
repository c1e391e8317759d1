//! Discovery by the names that kubectl accepts, with recorded and with invalid responses.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use k8s_informer::client::discovery::Discovery;
use k8s_informer::object::{GroupVersionKind, GroupVersionResource, Scope};
use k8s_informer::{Client, Config, Stop};
use serde_json::{Value, json};

use super::server::{Reply, Server, reply};
use crate::log_capture;

/// The body of a recorded response.
fn sample(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/wire")
        .join(format!("{name}.http"));
    let text = fs::read_to_string(path).unwrap();
    let body = &text[text.find("\n{\n").unwrap()..];
    serde_json::from_str(body).unwrap()
}

pub(crate) fn ok(body: &Value) -> Vec<u8> {
    reply(
        "200 OK",
        "Content-Type: application/json\r\n",
        &body.to_string(),
    )
}

pub(crate) fn not_found() -> Vec<u8> {
    reply("404 Not Found", "", "404 page not found\n")
}

pub(crate) fn unavailable() -> Vec<u8> {
    reply(
        "503 Service Unavailable",
        "Content-Type: text/plain\r\n",
        "service unavailable\n",
    )
}

pub(crate) fn path_of(request: &str) -> &str {
    request.split(' ').nth(1).unwrap()
}

pub(crate) fn serve_paths(
    answers: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> Server {
    Server::start(move |request| Reply::Write(answers(path_of(request)).unwrap_or_else(not_found)))
}

/// A server that replays the recorded responses.
pub(crate) fn recorded_server() -> Server {
    serve_paths(|path| {
        Some(ok(&match path {
            "/api" => sample("12-api-aggregated"),
            "/apis" => sample("12-apis-aggregated"),
            _ => return None,
        }))
    })
}

pub(crate) fn client(server: &Server) -> Client {
    Client::new(Config::new(server.url())).unwrap()
}

fn discovery(server: &Server) -> Arc<Discovery> {
    client(server).discovery(&Stop::never()).unwrap()
}

/// Finds a resource in the form `deployments.v1.apps`.
fn find_resource(discovery: &Discovery, name: &str) -> Option<String> {
    discovery
        .find(name)
        .ok()
        .map(|found| found.resource.to_string())
}

/// Groups in the aggregated format, with two resources in each version.
pub(crate) fn aggregated(groups: &[(&str, &[&str])]) -> Value {
    let resource = |name: &str, kind: &str| {
        json!({
            "resource": name, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": "Namespaced",
            "singularResource": kind.to_lowercase(), "verbs": ["list", "watch"], "shortNames": [&name[..2]],
        })
    };
    let version = |version: &&str| {
        json!({"version": version, "freshness": "Current",
            "resources": [resource("widgets", "Widget"), resource("gadgets", "Gadget")]})
    };
    let groups = groups.iter().map(|(name, versions)| {
        let versions: Vec<Value> = versions.iter().map(version).collect();
        json!({"metadata": {"name": name}, "versions": versions})
    });
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": groups.collect::<Vec<_>>()})
}

/// A server that serves only `/apis`, as if it had no core group.
fn apis_server(apis: Value) -> Server {
    serve_paths(move |path| (path == "/apis").then(|| ok(&apis)))
}

#[test]
fn find_accepts_kubectl_resource_names() {
    let discovery = discovery(&recorded_server());
    for (name, expected) in [
        ("deployments", Some("deployments.v1.apps")),
        ("deployment", Some("deployments.v1.apps")),
        ("deploy", Some("deployments.v1.apps")),
        ("deployments.apps", Some("deployments.v1.apps")),
        ("deploy.apps", Some("deployments.v1.apps")),
        ("deployments.v1.apps", Some("deployments.v1.apps")),
        ("deploy.v1.apps", Some("deployments.v1.apps")),
        ("Deployment", Some("deployments.v1.apps")),
        ("DEPLOYMENTS", Some("deployments.v1.apps")),
        ("Deployment.apps", Some("deployments.v1.apps")),
        ("Deployment.v1.apps", Some("deployments.v1.apps")),
        ("pods", Some("pods.v1")),
        ("po", Some("pods.v1")),
        ("Pod", Some("pods.v1")),
        ("pods.v1.", Some("pods.v1")),
        ("Pod.v1.", Some("pods.v1")),
        ("pods.v1", Some("pods.v1")),
        // Two groups have these names: the core group takes precedence.
        ("events", Some("events.v1")),
        ("ev", Some("events.v1")),
        ("events.events.k8s.io", Some("events.v1.events.k8s.io")),
        ("ev.events.k8s.io", Some("events.v1.events.k8s.io")),
        // The resource of the preferred version, unless the name contains a version.
        ("hpa", Some("horizontalpodautoscalers.v2.autoscaling")),
        (
            "hpa.v1.autoscaling",
            Some("horizontalpodautoscalers.v1.autoscaling"),
        ),
        (
            "HorizontalPodAutoscaler.v1.autoscaling",
            Some("horizontalpodautoscalers.v1.autoscaling"),
        ),
        // A group may be abbreviated.
        (
            "ingresses.networking",
            Some("ingresses.v1.networking.k8s.io"),
        ),
        ("ing.networking", Some("ingresses.v1.networking.k8s.io")),
        (
            "storageclass.storage",
            Some("storageclasses.v1.storage.k8s.io"),
        ),
        ("endpoints", Some("endpoints.v1")),
        // Short names are lowercase. Unknown versions are not found.
        ("PO", None),
        ("Deploy", None),
        ("deployments.v9.apps", None),
        ("deploy.v9.apps", None),
        ("deployments.batch", None),
        ("pods/log", None),
        ("apps", None),
        ("", None),
        (".", None),
        ("..", None),
        (".v1.apps", None),
        ("deployments.", Some("deployments.v1.apps")),
    ] {
        assert_eq!(
            find_resource(&discovery, name).as_deref(),
            expected,
            "{name:?}"
        );
        if let Some(expected) = expected {
            assert_eq!(
                find_resource(&discovery, expected).as_deref(),
                Some(expected),
                "the displayed name must be found"
            );
        }
    }
}

#[test]
fn kind_with_different_singular_name_is_found() {
    // Modeled on `NetworkAttachmentDefinition`.
    let mut apis = aggregated(&[("k8s.cni.cncf.io", &["v1"]), ("example.com", &["v2", "v1"])]);
    let odd = &mut apis["items"][0]["versions"][0]["resources"][0];
    odd["resource"] = "net-attach-defs".into();
    odd["singularResource"] = "net-attach-def".into();
    odd["responseKind"]["kind"] = "NetworkAttachment".into();
    let discovery = discovery(&apis_server(apis));
    for name in [
        "net-attach-def",
        "NetworkAttachment",
        "networkattachment",
        "NetworkAttachment.k8s.cni.cncf.io",
    ] {
        assert_eq!(
            find_resource(&discovery, name).as_deref(),
            Some("net-attach-defs.v1.k8s.cni.cncf.io"),
            "{name}"
        );
    }
    assert_eq!(
        find_resource(&discovery, "NetworkAttachment.k8s.cni"),
        None,
        "the group of a kind must not be abbreviated"
    );
    // If two groups have the name, the first group is found. If two versions have it, the preferred
    // version is found.
    assert_eq!(
        find_resource(&discovery, "Gadget").as_deref(),
        Some("gadgets.v1.k8s.cni.cncf.io")
    );
    assert_eq!(
        find_resource(&discovery, "widgets").as_deref(),
        Some("widgets.v2.example.com")
    );
    assert_eq!(
        find_resource(&discovery, "widgets.v1.example.com").as_deref(),
        Some("widgets.v1.example.com")
    );
}

#[test]
fn discovery_describes_resources() {
    let discovery = discovery(&recorded_server());
    assert!(
        discovery.failures().is_empty(),
        "{:?}",
        discovery.failures()
    );
    let deployments = discovery.find("deploy").unwrap();
    assert_eq!(
        (&*deployments.resource.group, &*deployments.resource.version),
        ("apps", "v1")
    );
    assert_eq!(
        (&*deployments.resource.resource, &*deployments.singular),
        ("deployments", "deployment")
    );
    assert_eq!(deployments.kind.kind, "Deployment");
    assert_eq!(deployments.scope, Scope::Namespaced);
    assert_eq!(deployments.short_names, ["deploy"]);
    assert!(
        deployments.has_verb("watch") && !deployments.has_verb("fly") && deployments.is_preferred
    );
    assert!(discovery.find("nodes").unwrap().scope == Scope::Cluster);

    for resource in discovery.resources() {
        let (gvr, gvk) = (&resource.resource, &resource.kind);
        assert_eq!(discovery.by_resource(gvr).unwrap().kind, *gvk);
        assert_eq!(discovery.by_kind(gvk).unwrap().resource, *gvr);
    }
    let old = GroupVersionResource::new("autoscaling", "v1", "horizontalpodautoscalers");
    assert!(!discovery.by_resource(&old).unwrap().is_preferred);
    assert!(
        discovery
            .by_resource(&GroupVersionResource::new("", "v1", "pods/log"))
            .is_none()
    );
    assert!(
        discovery
            .by_kind(&GroupVersionKind::new("", "v1", "Deployment"))
            .is_none()
    );
}

#[test]
fn aggregated_discovery_is_requested_first() {
    let server = recorded_server();
    discovery(&server);
    for expected in ["GET /api HTTP/1.1", "GET /apis HTTP/1.1"] {
        let request = server.request();
        assert!(request.starts_with(expected), "{request}");
        let accept = request
            .lines()
            .find_map(|line| line.strip_prefix("accept: "))
            .unwrap();
        let forms: Vec<&str> = accept.split(',').collect();
        assert_eq!(
            forms,
            [
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                "application/json",
            ]
        );
    }
}

#[test]
fn group_that_stays_stale_is_logged_once_as_a_warning() {
    log_capture::start();
    let mut apis = aggregated(&[("repeated.example.com", &["v1"])]);
    apis["items"][0]["versions"][0]["freshness"] = "Stale".into();
    let server = apis_server(apis);
    let client = client(&server);
    for _ in 0..3 {
        client.rediscover(&Stop::never()).unwrap();
    }
    let levels: Vec<_> = log_capture::lines_with(&["discovery: repeated.example.com/v1"])
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(levels, ["WARN", "DEBUG", "DEBUG"]);
}

#[test]
fn stale_group_does_not_hide_other_groups() {
    let mut apis = aggregated(&[
        ("metrics.k8s.io", &["v1beta1"]),
        ("example.com", &["v2", "v1"]),
    ]);
    apis["items"][0]["versions"][0]["freshness"] = "Stale".into();
    // v2 is also stale. If it were fresh, it would be the preferred version of its group.
    apis["items"][1]["versions"][0]["freshness"] = "Stale".into();
    let discovery = discovery(&apis_server(apis));

    let failed: Vec<_> = discovery
        .failures()
        .iter()
        .map(|failure| (&*failure.group, &*failure.version))
        .collect();
    assert_eq!(
        failed,
        [("metrics.k8s.io", "v1beta1"), ("example.com", "v2")]
    );
    assert!(discovery.failures()[0].error.is_retryable());
    assert_eq!(
        find_resource(&discovery, "widgets").as_deref(),
        Some("widgets.v1.example.com")
    );

    // A resource of an unavailable group may exist, so the error is retryable.
    for name in [
        "widgets.metrics.k8s.io",
        "Widget.v1beta1.metrics.k8s.io",
        "wi.metrics.k8s.io",
    ] {
        let error = discovery.find(name).unwrap_err();
        assert!(error.is_retryable() && !error.is_no_match(), "{error:?}");
        assert!(
            error.to_string().contains(name) && error.to_string().contains("does not respond"),
            "{error}"
        );
    }
    let error = discovery.find("nothing").unwrap_err();
    assert!(error.is_no_match());
    assert!(
        error
            .to_string()
            .contains("discovery failed for metrics.k8s.io/v1beta1 (the API server"),
        "{error}"
    );
}

#[test]
fn unknown_name_error_has_names_of_other_groups() {
    let discovery = discovery(&recorded_server());
    for (name, near) in [
        ("deployments.batch", "similar names: deployments.apps"),
        (
            "Deployment.v1beta1.extensions",
            "similar names: deployments.apps",
        ),
        ("node", ""),
        ("PO", "similar names: pods"),
        (
            "persistentvolume.nowhere",
            "similar names: persistentvolumeclaims, persistentvolumes",
        ),
        (
            "event.nowhere",
            "similar names: events, events.events.k8s.io",
        ),
        (
            "customresource",
            "similar names: customresourcedefinitions.apiextensions.k8s.io",
        ),
    ] {
        let Err(error) = discovery.find(name) else {
            assert_eq!(near, "", "{name} was found");
            continue;
        };
        assert!(
            error.is_no_match() && !error.is_not_found() && !error.is_retryable(),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("the server has no resource {name:?}; ")),
            "{text}"
        );
        assert!(text.contains(near), "{text}");
        assert!(text.len() < 400, "{text}");
    }
    for name in [
        "deploymnets",
        "\u{1b}[31m\n",
        &"x".repeat(100_000),
        "ä.ö.ü",
        ".",
    ] {
        let text = discovery.find(name).unwrap_err().to_string();
        assert!(
            !text.contains("similar") && !text.contains(char::is_control),
            "{text:?}"
        );
        assert!(text.len() < 400, "{text}");
    }
}

#[test]
fn invalid_discovery_entries_do_not_hide_valid_ones() {
    let good = || aggregated(&[("example.com", &["v1"])])["items"][0].clone();
    let in_group = |resource: Value| {
        let mut item = good();
        item["versions"][0]["resources"]
            .as_array_mut()
            .unwrap()
            .insert(0, resource);
        item
    };
    for (what, bad, failures) in [
        ("a number", json!(7), 1),
        ("null", json!(null), 0),
        ("a list", json!([]), 1),
        ("an empty object", json!({}), 0),
        (
            "no versions",
            json!({"metadata": {"name": "bad.example.com"}, "versions": []}),
            0,
        ),
        (
            "null for versions",
            json!({"metadata": {"name": "bad.example.com"}, "versions": null}),
            0,
        ),
        (
            "versions of a wrong type",
            json!({"metadata": {"name": "bad.example.com"}, "versions": 7}),
            1,
        ),
        (
            "a version of a wrong type",
            json!({"metadata": {"name": "bad.example.com"}, "versions": [7]}),
            1,
        ),
        (
            "a version without a name",
            json!({"metadata": {"name": "bad"}, "versions": [{"version": ""}]}),
            1,
        ),
        (
            "a name with path segments",
            json!({"metadata": {"name": "../../x"}, "versions": []}),
            1,
        ),
        (
            "a name with control characters",
            json!({"metadata": {"name": "a\u{0}\n\u{1b}"}, "versions": []}),
            1,
        ),
        (
            "a name that is too long",
            json!({"metadata": {"name": "x".repeat(10_000)}, "versions": []}),
            1,
        ),
        (
            "a name that is a number",
            json!({"metadata": {"name": 7}, "versions": []}),
            1,
        ),
        (
            "a version with path segments",
            json!({"metadata": {"name": "b"}, "versions": [{"version": "../v"}]}),
            1,
        ),
        ("a duplicate group", good(), 0),
        ("a resource of a wrong type", in_group(json!(7)), 1),
        (
            "a resource without a name",
            in_group(json!({"responseKind": {"kind": "X"}})),
            1,
        ),
        (
            "a resource without a kind",
            in_group(json!({"resource": "bads"})),
            0,
        ),
        (
            "a resource with an empty kind",
            in_group(json!({"resource": "bads", "responseKind": {"kind": ""}})),
            0,
        ),
        (
            "a resource with a kind of null",
            in_group(json!({"resource": "bads", "responseKind": {"kind": null}})),
            0,
        ),
        ("a null resource", in_group(json!(null)), 0),
        (
            "a resource with path segments",
            in_group(json!({"resource": "..", "responseKind": {"kind": "X"}})),
            1,
        ),
        (
            "verbs of a wrong type",
            in_group(json!({"resource": "x", "responseKind": {"kind": "X"}, "verbs": {}})),
            1,
        ),
        (
            "invalid subresources",
            in_group(json!({"resource": "x", "responseKind": {"kind": "X"},
            "subresources": [7, {}, {"subresource": "../.."}]})),
            0,
        ),
    ] {
        let mut apis = aggregated(&[]);
        apis["items"] = json!([bad, good(), {"metadata": {"name": "other.example.com"},
            "versions": good()["versions"]}]);
        let discovery = discovery(&apis_server(apis));
        assert_eq!(
            discovery.failures().len(),
            failures,
            "{what}: {:?}",
            discovery.failures()
        );
        for group in ["example.com", "other.example.com"] {
            for name in ["widgets", "gadgets"] {
                let name = format!("{name}.v1.{group}");
                assert_eq!(
                    find_resource(&discovery, &name).as_deref(),
                    Some(&*name),
                    "{what}"
                );
            }
        }
        let names: BTreeSet<_> = discovery
            .resources()
            .iter()
            .map(|found| found.resource.clone())
            .collect();
        assert_eq!(
            names.len(),
            discovery.resources().len(),
            "{what}: a resource is listed twice"
        );
    }
}

/// Replaces a random part of `value`.
fn corrupt(value: &mut Value, next: &mut impl FnMut(usize) -> usize) {
    let inner = match value {
        Value::Array(items) if !items.is_empty() => {
            let at = next(items.len());
            Some(&mut items[at])
        }
        Value::Object(fields) if !fields.is_empty() => {
            let at = next(fields.len());
            fields.values_mut().nth(at)
        }
        _ => None,
    };
    match inner {
        Some(inner) if next(8) > 0 => corrupt(inner, next),
        _ => {
            let others = [
                json!(null),
                json!(7),
                json!("../\u{0}"),
                json!([]),
                json!({}),
                json!([null]),
            ];
            *value = others[next(others.len())].clone();
        }
    }
}

#[test]
fn corrupted_discovery_is_an_error_or_partial_result() {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let served = bytes.clone();
    let server = serve_paths(move |path| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            served.lock().unwrap().len()
        );
        (path == "/apis").then(|| [head.as_bytes(), &served.lock().unwrap()].concat())
    });
    let client = client(&server);
    let whole = sample("12-apis-aggregated");
    let mut random = 7_u64;
    let mut next = move |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    let (mut errors, mut failures) = (0, 0);
    for round in 0..300 {
        let mut value = whole.clone();
        for _ in 0..=next(3) {
            corrupt(&mut value, &mut next);
        }
        let mut changed = value.to_string().into_bytes();
        if round % 4 == 0 {
            let at = next(changed.len());
            match next(3) {
                0 => changed[at] = br#"{}[]",:0n\"#[next(10)],
                1 => drop(changed.drain(at..(at + next(40)).min(changed.len()))),
                _ => changed.truncate(at),
            }
        }
        *bytes.lock().unwrap() = changed;
        match client.rediscover(&Stop::never()) {
            Err(error) => {
                assert!(error.is_decode(), "{error:?}");
                errors += 1;
            }
            Ok(discovery) => {
                failures += discovery.failures().len();
                for name in ["deploy", "Deployment.v1.apps", "hpa", "nothing"] {
                    let _ = discovery.find(name);
                }
            }
        }
    }
    assert!(
        errors > 10 && failures > 10,
        "{errors} errors, {failures} failures"
    );
}

#[test]
fn invalid_group_list_is_an_error() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        "",
        "null",
        "[]",
        "{",
        "7",
        r#"{"kind": 7}"#,
        r#"{"kind": "PodList", "items": []}"#,
        r#"{"kind": "APIGroupDiscoveryList", "items": {}}"#,
        r#"{"kind": "APIGroupDiscoveryList", "kind": "APIGroupDiscoveryList"}"#,
        r#"{"kind": "APIGroupList", "groups": []}"#,
        "s3cret\u{1b}",
        &deep,
    ] {
        let reply = reply("200 OK", "", body);
        let error = client(&serve_paths(move |_| Some(reply.clone())))
            .discovery(&Stop::never())
            .unwrap_err();
        assert!(error.is_decode(), "{body:.40}: {error:?}");
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("discover: GET http://") && !text.contains("s3cret"),
            "{text}"
        );
    }
    let html = reply("200 OK", "Content-Type: text/html\r\n", "<p>Log in</p>");
    let error = client(&serve_paths(move |_| Some(html.clone())))
        .discovery(&Stop::never())
        .unwrap_err();
    assert!(
        error.is_decode() && error.to_string().contains("is there a proxy in between?"),
        "{error}"
    );

    // Missing permission is an error. A server without resources is not.
    let forbidden = reply("403 Forbidden", "", "no");
    let error = client(&serve_paths(move |_| Some(forbidden.clone())))
        .discovery(&Stop::never())
        .unwrap_err();
    assert!(error.is_forbidden(), "{error:?}");
    assert!(discovery(&serve_paths(|_| None)).resources().is_empty());
}

#[test]
fn too_large_discovery_response_is_rejected() {
    let mut endless = b"HTTP/1.1 200 OK\r\nContent-Length: 70000000\r\n\r\n".to_vec();
    endless.resize(endless.len() + 70_000_000, b' ');
    let server = Server::start(move |_| Reply::WriteAndClose(endless.clone()));
    let error = client(&server).discovery(&Stop::never()).unwrap_err();
    assert!(
        error.is_decode() && error.to_string().contains("larger than 64 MiB"),
        "{error}"
    );
}

#[test]
fn many_groups_do_not_take_quadratic_time() {
    let resource = |index: usize| json!({"resource": format!("things{index}"), "responseKind": {"kind": format!("Thing{index}")}});
    let group = |index: usize| {
        json!({"metadata": {"name": format!("g{index}.example.com")},
            "versions": [{"version": "v1", "resources": [resource(index)]}]})
    };
    let mut apis = aggregated(&[]);
    apis["items"] = (0..20_000).map(group).collect();
    let discovery = discovery(&apis_server(apis));
    assert_eq!(discovery.resources().len(), 20_000);
    assert_eq!(
        find_resource(&discovery, "thing19999").as_deref(),
        Some("things19999.v1.g19999.example.com")
    );
    let error = discovery.find("things7.nowhere").unwrap_err();
    assert!(error.to_string().contains("things7."), "{error}");
}
