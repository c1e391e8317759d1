//! Every path segment is checked before a request is sent.

use k8s_informer::client::Request;
use k8s_informer::informer::{FactoryOptions, InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ListOptions, ListerWatcherSource};
use k8s_informer::{Client, Config, Error, SharedInformerFactory, Stop, Stopper};
use serde_json::json;

use super::server::{SOON, Server};

/// The segments that apimachinery's `IsValidPathSegmentName` rejects, and the empty segment.
const BAD: [&str; 7] = ["", ".", "..", "a/b", "../kube-system", "a%2fb", "%2e%2e"];

fn client(server: &Server) -> Client {
    Client::new(Config::new(server.url())).unwrap()
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

/// Resources with one invalid part, the name of the part, and its value.
fn bad_resources() -> Vec<(GroupVersionResource, &'static str, &'static str)> {
    let bad = |segment| {
        [
            (
                GroupVersionResource::new(segment, "v1", "widgets"),
                "group",
                segment,
            ),
            (
                GroupVersionResource::new("example.com", segment, "widgets"),
                "version",
                segment,
            ),
            (
                GroupVersionResource::new("example.com", "v1", segment),
                "resource",
                segment,
            ),
        ]
    };
    // The empty group is the core group.
    BAD.into_iter()
        .flat_map(bad)
        .filter(|(_, what, segment)| (*what, *segment) != ("group", ""))
        .collect()
}

fn assert_rejected(error: &Error, what: &str, segment: &str) {
    let text = error.to_string();
    assert!(
        !error.is_retryable() && error.status().is_none(),
        "{error:?}"
    );
    assert!(
        text.contains(&format!("{what} {segment:?} can't be part of a path")),
        "{text}"
    );
}

#[test]
fn lister_watcher_bad_segment_is_rejected() {
    let server = Server::answering("{}");
    let (client, stop) = (client(&server), Stopper::new());
    let namespaces = BAD.into_iter().filter(|namespace| !namespace.is_empty());
    let namespaces = namespaces.map(|namespace| (pods(), Some(namespace), "namespace", namespace));
    let resources = bad_resources()
        .into_iter()
        .map(|(resource, what, bad)| (resource, None, what, bad));
    for (resource, namespace, what, bad) in namespaces.chain(resources) {
        for lister_watcher in [
            client.lister_watcher(&resource, namespace),
            client.metadata_lister_watcher(&resource, namespace),
        ] {
            for (verb, result) in [
                ("list ", lister_watcher.list(&ListOptions::default(), &stop)),
                (
                    "watch ",
                    lister_watcher.watch(&ListOptions::default(), &stop),
                ),
            ] {
                let error = result.expect_err(bad);
                assert_rejected(&error, what, bad);
                assert!(error.to_string().starts_with(verb), "{error}");
            }
        }
        assert_rejected(&resource.path(namespace).unwrap_err(), what, bad);
    }
    assert_eq!(server.accepted(), 0, "a request was sent");
}

#[test]
fn api_bad_resource_is_rejected() {
    let server = Server::answering("{}");
    let (client, stop) = (client(&server), Stopper::new());
    for (resource, what, bad) in bad_resources() {
        let api = client.dynamic_api(&resource, Some("n"));
        let object = json!({"metadata": {"name": "a"}});
        for error in [
            api.get("a", &stop).map(drop).expect_err(bad),
            api.create(&object, &stop).map(drop).expect_err(bad),
            api.list(&ListOptions::default(), &stop)
                .map(drop)
                .expect_err(bad),
            api.path("a", "status").map(drop).expect_err(bad),
        ] {
            assert_rejected(&error, what, bad);
        }
    }
    assert_eq!(server.accepted(), 0, "a request was sent");
}

#[test]
fn request_with_dot_segments_is_rejected() {
    let server = Server::answering("{}");
    let client = client(&server);
    for path in [
        "/api/v1/namespaces/../pods",
        "/api/v1/namespaces/./pods",
        "/api/v1/namespaces/%2e%2E/pods",
        "/api/v1/namespaces/.%2e/pods",
        "/api/v1/pods/..",
        "..",
    ] {
        let error = client
            .request(&Request::get(path), &Stop::never())
            .map(drop)
            .expect_err(path);
        assert!(
            !error.is_retryable() && error.to_string().contains(r#""." or "..""#),
            "{error}"
        );
    }
    assert_eq!(server.accepted(), 0, "a request was sent");
    client
        .request(&Request::get("/a..b/.c/...?x=/../"), &Stop::never())
        .unwrap();
    assert!(
        server.request().starts_with("GET /a..b/.c/...?x=/../ "),
        "dots inside a path segment must be accepted"
    );
}

#[test]
fn names_are_escaped_as_in_go() {
    let server = Server::answering(r#"{"metadata":{"name":"system:node@a b"}}"#);
    let roles = GroupVersionResource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
    let roles = client(&server).dynamic_api(&roles, None);
    roles.get("system:node@a b", &Stop::never()).unwrap();
    // The result of Go's `url.URL.EscapedPath` for "system:node@a b".
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node@a%20b";
    assert!(server.request().starts_with(&format!("GET {path} ")));
    assert_eq!(roles.path("system:node@a b", "").unwrap(), path);
    let escaped = roles.path(r#"$&+,:;=@-_.~!'()*"?#é"#, "").unwrap();
    assert!(
        escaped.ends_with("/$&+,:;=@-_.~%21%27%28%29%2A%22%3F%23%C3%A9"),
        "{escaped}"
    );
}

#[test]
fn scope_with_invalid_namespace_fails_to_start() {
    let server = Server::answering("{}");
    let long = "a".repeat(64);
    for bad in [
        "Bad/NS", "..", "Upper", "-a", "a-", "a.b", "a_b", "é", &long,
    ] {
        let factory = SharedInformerFactory::new(client(&server));
        let good = factory.informer_for(Source::dynamic(GroupVersionResource::new(
            "", "v1", "nodes",
        )));
        let scope = InformerScope::all().namespace("good").namespace(bad);
        let informer = factory.informer_for(Source::dynamic(pods()).scope(scope.clone()));
        let error = factory.start(&Stop::never()).expect_err(bad).to_string();
        assert!(
            error.contains("pods") && error.contains("not a DNS label"),
            "{error}"
        );
        assert!(error.contains(&format!("namespace {bad:?}")), "{error}");
        assert!(!informer.has_synced() && !good.is_stopped());
        let error = factory
            .wait_for_cache_sync(SOON, &Stop::never())
            .unwrap_err();
        assert!(
            error.unsynced().iter().all(|one| one.not_started),
            "{error}"
        );

        let observed = SharedInformerFactory::new(client(&server))
            .observe(Source::dynamic(pods()))
            .scope(scope)
            .start();
        assert!(
            observed
                .unwrap_err()
                .to_string()
                .contains("not a DNS label")
        );
    }
    for (resource, what, bad) in bad_resources() {
        let factory = SharedInformerFactory::new(client(&server));
        factory.informer_for(Source::dynamic(resource));
        let error = factory.start(&Stop::never()).expect_err(bad).to_string();
        assert!(
            error.contains(&format!("{what} {bad:?} can't be part of a path")),
            "{error}"
        );
    }
    assert_eq!(server.accepted(), 0, "a request was sent");
    let longest = "a".repeat(63);
    let factory = SharedInformerFactory::with_options(
        client(&server),
        FactoryOptions::new().namespace("a-1").namespace(longest),
    );
    factory.informer_for(Source::dynamic(pods()));
    factory.start(&Stop::never()).unwrap();
    factory.shut_down(None).unwrap();
}
