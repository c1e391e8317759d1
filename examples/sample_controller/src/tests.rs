//! Tests of the controller on an API server inside this program, in virtual time.

use k8s_informer::informer::Source;
use k8s_informer_testing::{ApiServer, ControllerTest, Fault, Verb};
use serde_json::{Value, json};

use super::controller::{ERR_RESOURCE_EXISTS, Foo, SYNCED, build};

const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// The Foo `test` with a Deployment `web` of two replicas, and its key.
const FOO: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos/test";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const KEY: &str = "default/test";

struct Test {
    controller: ControllerTest<Foo>,
}

impl Test {
    fn new() -> Self {
        let server = ApiServer::builder().garbage_collection(true);
        let server = server.start().unwrap();
        let crd = serde_json::from_str(include_str!("../crd.json")).unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        server.create(definitions, crd).unwrap();
        let controller = ControllerTest::with_server(server, Source::of::<Foo>(), build).unwrap();
        Self { controller }
    }

    /// Creates a Foo, and runs the controller until it is idle.
    fn with_foo() -> Self {
        let mut test = Self::new();
        test.create_foo(json!({ "deploymentName": "web", "replicas": 2 }));
        test.run();
        test.controller.writes();
        test
    }

    fn create_foo(&self, spec: Value) {
        let object = json!({ "metadata": { "name": "test" }, "spec": spec });
        self.server().create(FOOS, object).unwrap();
    }

    fn server(&self) -> &ApiServer {
        self.controller.server()
    }

    /// Runs the controller until it is idle.
    fn run(&mut self) {
        self.controller.run_until_idle().unwrap();
    }
}

/// Returns a Deployment named `web` of someone else.
fn foreign() -> Value {
    let labels = json!({ "app": "web" });
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 7,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels } },
        },
    })
}

#[test]
fn new_foo_creates_an_owned_deployment() {
    let mut test = Test::new();
    test.create_foo(json!({ "deploymentName": "web", "replicas": 2 }));
    test.run();
    let expected = [
        "create deployments default/web",
        "patch foos/status default/test",
    ];
    assert_eq!(test.controller.writes(), expected);

    let (foo, deployment) = (test.server().get(FOO), test.server().get(DEPLOYMENT));
    let (foo, deployment) = (foo.unwrap(), deployment.unwrap());
    assert_eq!(deployment["spec"]["replicas"], 2);
    let owner = &deployment["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("Foo"), &json!(true))
    );
    assert_eq!(owner["uid"], foo["metadata"]["uid"]);
    assert_eq!(foo["status"]["availableReplicas"], 0);
    // The second one is about the Foo with its status.
    let synced = format!("Normal {SYNCED} Foo {KEY}: Foo synced successfully");
    assert_eq!(test.controller.events(), [&*synced, &synced]);
}

#[test]
fn unchanged_foo_writes_nothing_after_a_restart() {
    let mut test = Test::with_foo();
    test.controller.restart().unwrap();
    test.run();
    assert!(test.controller.writes().is_empty());
}

#[test]
fn foreign_deployment_is_reported_and_kept() {
    let mut test = Test::new();
    let before = test.server().create(DEPLOYMENTS, foreign()).unwrap();
    test.create_foo(json!({ "deploymentName": "web", "replicas": 2 }));
    assert!(test.controller.step().unwrap().is_some());
    let last = test.controller.controller().last_failure(KEY).unwrap();
    let message = "Resource \"web\" already exists and is not managed by Foo";
    assert_eq!(last.failure.to_string(), message);
    assert!(!last.failure.is_terminal());
    let event = format!("Warning {ERR_RESOURCE_EXISTS} Foo {KEY}: {message}");
    assert_eq!(test.controller.events(), [event]);
    assert!(test.controller.writes().is_empty());
    assert_eq!(test.server().get(DEPLOYMENT).unwrap(), before);

    // A retry succeeds after the conflict is resolved.
    test.server().delete(DEPLOYMENT).unwrap();
    test.run();
    assert_eq!(
        test.server().get(DEPLOYMENT).unwrap()["spec"]["replicas"],
        2
    );
}

#[test]
fn deployment_of_another_foo_is_kept() {
    let mut test = Test::with_foo();
    let other = json!({ "metadata": { "name": "other" }, "spec": { "deploymentName": "web" } });
    test.server().create(FOOS, other).unwrap();
    assert!(test.controller.step().unwrap().is_some());
    assert!(
        test.controller
            .controller()
            .last_failure("default/other")
            .is_some()
    );
    assert!(test.controller.writes().is_empty());
}

#[test]
fn replicas_changed_by_hand_are_restored() {
    let mut test = Test::with_foo();
    let change = json!({ "spec": { "replicas": 5, "paused": true } });
    test.server().patch(DEPLOYMENT, change).unwrap();
    test.run();
    assert_eq!(test.controller.writes(), ["patch deployments default/web"]);
    let spec = &test.server().get(DEPLOYMENT).unwrap()["spec"];
    assert_eq!(
        (&spec["replicas"], &spec["paused"]),
        (&json!(2), &json!(true))
    );
}

#[test]
fn replicas_of_the_foo_change_the_deployment() {
    let mut test = Test::with_foo();
    test.server()
        .patch(FOO, json!({ "spec": { "replicas": 3 } }))
        .unwrap();
    test.run();
    assert_eq!(
        test.server().get(DEPLOYMENT).unwrap()["spec"]["replicas"],
        3
    );

    // Without a number, the Deployment keeps its own.
    test.server()
        .patch(FOO, json!({ "spec": { "replicas": null } }))
        .unwrap();
    test.server()
        .patch(DEPLOYMENT, json!({ "spec": { "replicas": 9 } }))
        .unwrap();
    test.run();
    assert_eq!(
        test.server().get(DEPLOYMENT).unwrap()["spec"]["replicas"],
        9
    );
}

#[test]
fn deleted_deployment_is_created_again() {
    let mut test = Test::with_foo();
    test.server().delete(DEPLOYMENT).unwrap();
    test.run();
    assert_eq!(test.controller.writes(), ["create deployments default/web"]);
}

#[test]
fn empty_deployment_name_is_not_retried() {
    let mut test = Test::new();
    test.create_foo(json!({ "replicas": 2 }));
    test.run();
    let last = test.controller.controller().last_failure(KEY).unwrap();
    assert!(last.failure.is_terminal() && test.controller.calls(KEY) == 1);
    assert!(test.controller.writes().is_empty());

    test.server()
        .patch(FOO, json!({ "spec": { "deploymentName": "web" } }))
        .unwrap();
    test.run();
    assert!(test.controller.controller().last_failure(KEY).is_none());
    assert_eq!(
        test.server().get(DEPLOYMENT).unwrap()["spec"]["replicas"],
        2
    );
}

#[test]
fn available_replicas_are_copied_to_the_status() {
    let mut test = Test::with_foo();
    let status = json!({ "status": { "replicas": 2, "availableReplicas": 2 } });
    test.server()
        .patch(&format!("{DEPLOYMENT}/status"), status)
        .unwrap();
    test.run();
    assert_eq!(test.controller.writes(), ["patch foos/status default/test"]);
    assert_eq!(
        test.server().get(FOO).unwrap()["status"]["availableReplicas"],
        2
    );
}

#[test]
fn changed_foreign_deployment_causes_no_call() {
    let mut test = Test::with_foo();
    let mut other = foreign();
    other["metadata"]["name"] = "other".into();
    let path = format!("{DEPLOYMENTS}/other");
    let calls = test.controller.calls(KEY);
    test.server().create(DEPLOYMENTS, other).unwrap();
    test.run();
    test.server()
        .patch(&path, json!({ "spec": { "replicas": 8 } }))
        .unwrap();
    test.run();
    test.server().delete(&path).unwrap();
    test.run();
    assert_eq!(test.controller.calls(KEY), calls);
    assert!(test.controller.writes().is_empty());
}

#[test]
fn failed_requests_are_retried() {
    let mut test = Test::new();
    let fail = |verb, resource| Fault::status(500).on(verb).resource(resource).times(2);
    test.server().fail_next(fail(Verb::Create, "deployments"));
    test.server().fail_next(fail(Verb::Patch, "foos"));
    test.create_foo(json!({ "deploymentName": "web", "replicas": 2 }));
    test.run();
    let expected = [
        "create deployments default/web",
        "patch foos/status default/test",
    ];
    assert_eq!(test.controller.writes(), expected);
    assert_eq!(test.server().pending_faults(), 0);
}

/// With `kubectl delete --cascade=foreground`, the Deployment goes first.
#[test]
fn foo_that_is_being_deleted_gets_no_deployment() {
    let mut test = Test::with_foo();
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    test.server().patch(FOO, hold).unwrap();
    test.server().delete(FOO).unwrap();
    test.server().delete(DEPLOYMENT).unwrap();
    test.run();
    assert!(test.controller.writes().is_empty());
    assert!(test.server().get(FOO).is_ok());
}

#[test]
fn deleted_foo_takes_its_deployment_with_it() {
    let mut test = Test::with_foo();
    test.server().delete(FOO).unwrap();
    test.run();
    assert!(test.controller.writes().is_empty());
    assert_eq!(
        test.server().get(DEPLOYMENT).unwrap_err().reason(),
        "NotFound"
    );
}
