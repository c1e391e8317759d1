use super::*;

fn target(path: &str) -> (String, Option<String>, Option<String>, bool) {
    let resources = Resources::new(vec![ApiResource::new(
        "example.com",
        "v1",
        "widgets",
        "Widget",
    )]);
    match resources.route(path) {
        Route::Object(Target {
            resource,
            namespace,
            name,
            status,
            sub: None,
            ..
        }) => (resource.kind.clone(), namespace, name, status),
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn paths_route_to_collections_objects_and_status() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(target("/api/v1/pods"), ("Pod".into(), None, None, false));
    assert_eq!(
        target("/api/v1/namespaces/a/pods"),
        ("Pod".into(), some("a"), None, false)
    );
    assert_eq!(
        target("/api/v1/namespaces/a/pods/b"),
        ("Pod".into(), some("a"), some("b"), false)
    );
    assert_eq!(
        target("/api/v1/namespaces/a/pods/b/status"),
        ("Pod".into(), some("a"), some("b"), true)
    );
    assert_eq!(
        target("/api/v1/namespaces/a"),
        ("Namespace".into(), None, some("a"), false)
    );
    assert_eq!(
        target("/api/v1/namespaces/a/status"),
        ("Namespace".into(), None, some("a"), true)
    );
    assert_eq!(
        target("/api/v1/nodes/n%31"),
        ("Node".into(), None, some("n1"), false)
    );
    assert_eq!(
        target("/apis/example.com/v1/widgets"),
        ("Widget".into(), None, None, false)
    );
}

#[test]
fn unknown_resource_and_unknown_path_have_different_routes() {
    let resources = Resources::new(Vec::new());
    for path in [
        "/api/v1/nothings",
        "/api/v1/pods/b",
        "/api/v1/namespaces/a/nodes",
        "/apis/apps/v1/pods",
    ] {
        assert_eq!(resources.route(path), Route::NoSuchResource, "{path}");
    }
    for path in [
        "",
        "/",
        "pods",
        "/nope",
        "/apis/nope.example.com/v1/things",
        "/api/v2/pods",
    ] {
        assert_eq!(resources.route(path), Route::NotFound, "{path}");
    }
    assert_eq!(resources.route("/readyz/ping"), Route::Health);
    assert_eq!(resources.route("/version"), Route::Version);
}
