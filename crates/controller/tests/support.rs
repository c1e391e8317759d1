use std::thread;
use std::time::{Duration, Instant};

/// Polls until `condition` returns `true`, for conditions without a notification.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        thread::yield_now();
    }
}

/// A kind that can be installed and removed.
pub(crate) mod widgets {
    use k8s_informer::DynamicObject;
    use k8s_informer::informer::Source;
    use k8s_informer::object::GroupVersionResource;
    use k8s_informer_testing::{ApiServer, Fault};
    use serde_json::{Value, json};

    pub(crate) const WIDGETS: &str = "/apis/optional.example.com/v1/namespaces/default/widgets";
    pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    pub(crate) fn resource() -> GroupVersionResource {
        GroupVersionResource::new("optional.example.com", "v1", "widgets")
    }

    pub(crate) fn source() -> Source<DynamicObject> {
        Source::dynamic(resource())
    }

    /// Returns the definition of a kind, such as `Widget` with the plural name `widgets`.
    pub(crate) fn definition(group: &str, plural: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        })
    }

    pub(crate) fn install(server: &ApiServer) {
        let definition = definition("optional.example.com", "widgets", "Widget");
        server.create(DEFINITIONS, definition).unwrap();
    }

    pub(crate) fn create(server: &ApiServer, name: &str) {
        let widget = json!({"metadata": {"name": name}});
        server.create(WIDGETS, widget).unwrap();
    }

    pub(crate) fn uninstall(server: &ApiServer) {
        let path = format!("{DEFINITIONS}/widgets.optional.example.com");
        server.delete(&path).unwrap();
    }

    /// Lets discovery answer with this until the faults are cleared.
    pub(crate) fn discovery(fault: Fault) -> Fault {
        fault.when(|request| request.path() == "/apis").always()
    }

    /// Discovery without the kind, although it exists.
    pub(crate) fn discovery_without_widgets() -> Fault {
        let version = json!({"version": "v1", "freshness": "Current", "resources": [
            {"resource": "deployments", "responseKind": {"group": "", "version": "", "kind": "Deployment"},
             "scope": "Namespaced", "singularResource": "deployment", "verbs": ["list", "watch"]},
        ]});
        let document = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
            "items": [{"metadata": {"name": "apps"}, "versions": [version]}],
        });
        let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        discovery(Fault::response(200, content_type, document.to_string()))
    }
}
