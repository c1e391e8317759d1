//! Names, labels and field selectors. The messages are those of kube-apiserver 1.36.

use k8s_informer::testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::embedded_api_server::client::Client;
use crate::embedded_api_server::{CONFIGMAPS, PODS};

const NAMESPACES: &str = "/api/v1/namespaces";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// Creates an object with this metadata. Returns the status, and the first message of a rejection
/// for each field.
fn create(server: &ApiServer, collection: &str, metadata: Value) -> (u16, Vec<(String, String)>) {
    let body = json!({ "metadata": metadata });
    let response = Client::connect(server).json("POST", collection, &body);
    let causes = response.json()["details"]["causes"].take();
    let causes = causes.as_array().into_iter().flatten().map(|cause| {
        let text = |field: &str| cause[field].as_str().unwrap().to_owned();
        let message = text("message");
        let why = message.split_once(": ").unwrap().1;
        let why = why.split_once(": ").map_or(why, |(_, why)| why);
        (
            text("field"),
            why.split(" (e.g.").next().unwrap().to_owned(),
        )
    });
    (response.status, causes.collect())
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character";
const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character";

#[test]
fn names_follow_the_rule_of_their_kind() {
    let server = ApiServer::start().unwrap();
    let (long, longer) = ("a".repeat(64), "a".repeat(254));
    let too_long = "must be no more than 63 characters";
    for (collection, name, why) in [
        (NAMESPACES, "a.b", Some("must not contain dots")),
        (NAMESPACES, "1.2.3.4", Some("must not contain dots")),
        (NAMESPACES, &*long, Some(too_long)),
        (NAMESPACES, "A", Some(LABEL)),
        (NAMESPACES, "1a", None),
        (SERVICES, "a.b", Some("must not contain dots")),
        (SERVICES, &long, Some(too_long)),
        (SERVICES, "a-", Some(LABEL)),
        (SERVICES, "1a", None),
        (STATEFUL_SETS, "a.b", Some("must not contain dots")),
        (CONFIGMAPS, "a.b", None),
        (CONFIGMAPS, &long, None),
        (CONFIGMAPS, "a_b", Some(SUBDOMAIN)),
        (
            CONFIGMAPS,
            &longer,
            Some("must be no more than 253 characters"),
        ),
        (ROLES, "A:b", None),
        (ROLES, "a%b", Some("may not contain '%'")),
        (BUDGETS, &longer, None),
        (CRON_JOBS, &long[..52], None),
        (JOBS, &long[..63], None),
        (
            CRON_JOBS,
            &long[..53],
            Some("must be no more than 52 characters"),
        ),
    ] {
        let expected = match why {
            None => (201, Vec::new()),
            Some(why) => (422, vec![("metadata.name".to_owned(), why.to_owned())]),
        };
        assert_eq!(
            create(&server, collection, json!({"name": name})),
            expected,
            "{collection} {name}"
        );
    }
    let label = (
        "spec.template.labels".to_owned(),
        "must be no more than 63 bytes".to_owned(),
    );
    let causes = vec![label.clone(), label];
    assert_eq!(create(&server, JOBS, json!({"name": long})), (422, causes));
}

#[test]
fn generated_names_and_their_prefixes_are_checked() {
    let server = ApiServer::start().unwrap();
    let prefix = |why: &str| ("metadata.generateName".to_owned(), why.to_owned());
    let name = |why: &str| ("metadata.name".to_owned(), why.to_owned());
    for (collection, generate, causes) in [
        (CONFIGMAPS, "a-", vec![]),
        (CONFIGMAPS, ".", vec![prefix(SUBDOMAIN), name(SUBDOMAIN)]),
        (CONFIGMAPS, "a.", vec![prefix(SUBDOMAIN)]),
        (
            CONFIGMAPS,
            &"a".repeat(254),
            vec![prefix("must be no more than 253 characters")],
        ),
        (ROLES, ".", vec![prefix("may not be '.'")]),
        (
            ROLES,
            "a/",
            vec![prefix("may not contain '/'"), name("may not contain '/'")],
        ),
        (ROLES, "A", vec![]),
        (
            SERVICES,
            "a.",
            vec![prefix(LABEL), name("must not contain dots")],
        ),
        (
            SERVICES,
            &"a".repeat(254),
            vec![prefix("must be no more than 63 characters")],
        ),
    ] {
        let status = if causes.is_empty() { 201 } else { 422 };
        let metadata = json!({ "generateName": generate });
        assert_eq!(
            create(&server, collection, metadata),
            (status, causes),
            "{collection} {generate}"
        );
    }
}

#[test]
fn labels_and_annotations_are_checked() {
    let server = ApiServer::start().unwrap();
    let long = "a".repeat(64);
    let three = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
        with an alphanumeric character";
    let prefix = format!("prefix part {SUBDOMAIN}");
    for (field, key, value, errors) in [
        ("labels", "a", "b c", vec![VALUE]),
        ("labels", "a", "-b", vec![VALUE]),
        ("labels", "a", &*long, vec!["must be no more than 63 bytes"]),
        ("labels", "a", "", vec![]),
        ("labels", "", "b", vec!["name part must be non-empty", KEY]),
        ("labels", "a b", "b", vec![KEY]),
        ("labels", "a/b/c", "b", vec![three]),
        ("labels", "A/b", "b", vec![&*prefix]),
        ("annotations", "A/b", "x y", vec![]),
        ("annotations", "a b", "x y", vec![KEY]),
        (
            "annotations",
            "",
            "x y",
            vec!["name part must be non-empty", KEY],
        ),
    ] {
        let status = if errors.is_empty() { 201 } else { 422 };
        let field_name = format!("metadata.{field}");
        let causes = errors
            .iter()
            .map(|why| (field_name.clone(), (*why).to_owned()));
        let metadata = json!({ "generateName": "a-", field: { key: value } });
        let expected = (status, causes.collect());
        assert_eq!(
            create(&server, CONFIGMAPS, metadata),
            expected,
            "{key:?}: {value:?}"
        );
    }
    for (size, status) in [((256 << 10) - 1, 201), (256 << 10, 422)] {
        let metadata = json!({"generateName": "a-", "annotations": {"a": "x".repeat(size)}});
        assert_eq!(create(&server, CONFIGMAPS, metadata).0, status, "{size}");
    }
    // An update is checked as well. Null is an empty string.
    let client = &mut Client::connect(&server);
    let created = client.json(
        "POST",
        CONFIGMAPS,
        &json!({"metadata": {"name": "n", "labels": {"a": null}}}),
    );
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["metadata"]["labels"], json!({"a": ""}));
    let path = format!("{CONFIGMAPS}/n");
    for (labels, status) in [(json!({"a": "b c"}), 422), (json!({"a": "b"}), 200)] {
        let patch = json!({"metadata": {"labels": labels}});
        assert_eq!(client.json("PATCH", &path, &patch).status, status);
    }
}

#[test]
fn field_selectors_follow_the_rules_of_kubernetes() {
    let things = ApiResource::new("example.com", "v1", "things", "Thing").cluster_scoped();
    let server = ApiServer::builder().resource(things).start().unwrap();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
    server.create(PODS, pod).unwrap();
    for (name, status) in [("new", json!({})), ("done", json!({"succeeded": 2}))] {
        let job = json!({"metadata": {"name": name}, "status": status});
        server.create(JOBS, job).unwrap();
    }
    let client = &mut Client::connect(&server);
    let mut list = |collection: &str, selector: &str| {
        let selector = selector
            .replace('\\', "%5C")
            .replace('=', "%3D")
            .replace(' ', "%20");
        let response = client.get(&format!("{collection}?fieldSelector={selector}"));
        match response.status {
            200 => Ok(response.names()),
            _ => Err(response.json()["message"].as_str().unwrap().to_owned()),
        }
    };
    for (selector, found) in [
        ("spec.host=n1", 1),
        ("spec.host!=n1", 0),
        ("status.podIPs=1", 0),
        ("status.podIPs=", 1),
        ("=", 1),
        ("!=,metadata.name=b", 0),
        (r"metadata.name=a\,b", 0),
        (r"metadata.name!=a\=b", 1),
        (r"metadata.name!=a\\", 1),
    ] {
        let names = list(PODS, selector).unwrap();
        assert_eq!(names.len(), found, "{selector}");
    }
    let unescaped = "invalid field selector: unescaped character in value: 61";
    for (selector, message) in [
        (
            r"metadata.name=a\",
            r"invalid field selector: invalid escape sequence: \",
        ),
        (
            r"metadata.name=\a",
            r"invalid field selector: invalid escape sequence: \a",
        ),
        ("metadata.name=a=b", unescaped),
        ("metadata.name==a=b", unescaped),
        ("metadata.name=a!=b", unescaped),
        ("metadata.name!=a=b", unescaped),
        ("spec.x=1", "field label not supported: spec.x"),
        ("=a", "field label not supported: "),
        (
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
    ] {
        assert_eq!(list(PODS, selector).unwrap_err(), message, "{selector}");
    }
    for (selector, name) in [
        ("status.successful=0", "new"),
        ("status.successful=2", "done"),
    ] {
        assert_eq!(list(JOBS, selector).unwrap(), [name]);
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let things = "/apis/example.com/v1/things";
    let unknown =
        "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    let unsupported = "field label not supported: metadata.namespace";
    for (collection, selector, error) in [
        (definitions, "metadata.namespace=x", None),
        (definitions, "spec.x=1", Some(unknown)),
        ("/api/v1/nodes", "metadata.namespace=x", Some(unsupported)),
        (things, "metadata.namespace=x", Some(unsupported)),
        (
            JOBS,
            "spec.x=1",
            Some("field label \"spec.x\" not supported for Job"),
        ),
        (
            things,
            "spec.x=1",
            Some("field label not supported: spec.x"),
        ),
    ] {
        assert_eq!(
            list(collection, selector).err().as_deref(),
            error,
            "{collection} {selector}"
        );
    }
}

#[test]
fn halves_of_surrogate_pairs_are_read_as_in_go() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    let mut send = |method: &str, path: &str, media: &str, text: &str| {
        let body = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"a":"{text}"}}}}"#);
        let headers = [("Content-Type".to_owned(), media.to_owned())];
        client.send(method, path, &headers, &body);
        let response = client.response();
        match response.status {
            200 | 201 => Ok(response.json()["data"]["a"].take()),
            status => Err(status),
        }
    };
    let path = format!("{CONFIGMAPS}/a");
    let created = send("POST", CONFIGMAPS, "application/json", r"\ud800");
    assert_eq!(created, Ok(json!("\u{fffd}")));
    for (text, read) in [
        (r"x\udc00y", Ok(json!("x\u{fffd}y"))),
        (r"\ud83d\ude00", Ok(json!("😀"))),
        (r"\ud83d\ud83d\ude00", Ok(json!("\u{fffd}😀"))),
        (r"\ud800\u0041\\ud800", Ok(json!("\u{fffd}A\\ud800"))),
        (r"\ud800\é", Err(400)),
        (r"\ud8", Err(400)),
    ] {
        for (method, media) in [
            ("PUT", "application/json"),
            ("PATCH", "application/merge-patch+json"),
        ] {
            assert_eq!(send(method, &path, media, text), read, "{method} {text}");
        }
    }
}
