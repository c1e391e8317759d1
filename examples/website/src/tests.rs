//! Tests of the controller on an API server inside this program, in virtual time.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use k8s_informer::informer::Source;
use k8s_informer_controller::MetricsRegistry;
use k8s_informer_testing::{ApiServer, ControllerTest, Fault, Verb};
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::api::Website;
use crate::controller::build;
use crate::hosts::Hosts;

const WEBSITES: &str = "/apis/example.com/v1/namespaces/default/websites";
const BLUE: &str = "/apis/example.com/v1/namespaces/default/websites/blue";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/blue";

/// Hosts in memory, which can fail.
#[derive(Default)]
struct Memory(Mutex<State>);

#[derive(Default)]
struct State {
    hosts: BTreeMap<String, String>,
    failures: usize,
}

impl Memory {
    /// Fails if a failure is left.
    fn call(&self) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.0.lock().unwrap();
        match state.failures.checked_sub(1) {
            Some(left) => {
                state.failures = left;
                Err(ErrorKind::TimedOut.into())
            }
            None => Ok(state),
        }
    }
}

impl Hosts for Memory {
    fn register(&self, host: &str, address: &str) -> Result<(), Error> {
        let hosts = &mut self.call()?.hosts;
        match hosts.entry(host.to_owned()).or_insert(address.to_owned()) == address {
            true => Ok(()),
            false => Err(ErrorKind::AlreadyExists.into()),
        }
    }

    fn remove(&self, host: &str, address: &str) -> Result<(), Error> {
        self.call()?
            .hosts
            .retain(|other, of| other != host || of != address);
        Ok(())
    }
}

struct Test {
    controller: ControllerTest<Website>,
    hosts: Arc<Memory>,
    metrics: MetricsRegistry,
}

impl Test {
    fn new() -> Self {
        let server = ApiServer::builder()
            .garbage_collection(true)
            .start()
            .unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        server.create(definitions, json!(Website::crd())).unwrap();
        let (hosts, metrics) = (Arc::new(Memory::default()), MetricsRegistry::new());
        let build = {
            let (hosts, metrics) = (Arc::clone(&hosts), metrics.clone());
            move |builder| build(builder, hosts.clone(), &metrics)
        };
        let controller = ControllerTest::with_server(server, Source::of::<Website>(), build);
        Self {
            controller: controller.unwrap(),
            hosts,
            metrics,
        }
    }

    /// A Website that is served.
    fn with_website() -> Self {
        let mut test = Self::new();
        test.create("blue", "blue.example.com");
        test.run();
        test.start_pods(2);
        test.controller.writes();
        test.controller.events();
        test
    }

    fn create(&self, name: &str, host: &str) {
        let spec = json!({ "host": host, "image": "nginx:1.29", "replicas": 2, "pages": { "index.html": "Hello" } });
        let site = json!({ "metadata": { "name": name }, "spec": spec });
        self.server().create(WEBSITES, site).unwrap();
    }

    fn server(&self) -> &ApiServer {
        self.controller.server()
    }

    fn run(&mut self) {
        self.controller.run_until_idle().unwrap();
    }

    /// Reports Pods as ready, as the Deployment controller does.
    fn start_pods(&mut self, ready: i32) {
        let generation = self.get(DEPLOYMENT)["metadata"]["generation"].clone();
        let status = json!({ "observedGeneration": generation, "readyReplicas": ready });
        let path = format!("{DEPLOYMENT}/status");
        self.server()
            .patch(&path, json!({ "status": status }))
            .unwrap();
        self.run();
    }

    fn get(&self, path: &str) -> Value {
        self.server().get(path).unwrap()
    }

    /// Returns the condition `Ready` of a Website as status, reason and message, and the other
    /// conditions that are true.
    fn state(&self, name: &str) -> String {
        let status = self.get(&format!("{WEBSITES}/{name}"))["status"].clone();
        let text = |of: &Value, field: &str| of[field].as_str().unwrap().to_owned();
        let mut state = String::new();
        for of in status["conditions"].as_array().unwrap() {
            let [type_, status, reason, message] =
                ["type", "status", "reason", "message"].map(|field| text(of, field));
            match (&*type_, &*status) {
                ("Ready", _) => state = format!("{status} {reason}: {message}{state}"),
                (_, "True") => state += &format!("; {type_}: {message}"),
                _ => {}
            }
        }
        state
    }

    fn hosts(&self) -> Vec<(String, String)> {
        self.hosts
            .0
            .lock()
            .unwrap()
            .hosts
            .clone()
            .into_iter()
            .collect()
    }
}

#[test]
fn new_website_is_served_when_its_pods_are_ready() {
    let mut test = Test::new();
    test.create("blue", "blue.example.com");
    test.run();
    assert_eq!(
        test.controller.writes(),
        [
            "patch websites default/blue",
            "patch configmaps default/blue",
            "patch deployments default/blue",
            "patch services default/blue",
            "patch websites/status default/blue",
        ]
    );
    assert_eq!(
        test.controller.events(),
        [
            "Normal ConfigMapCreated Website default/blue: has the wanted fields",
            "Normal DeploymentCreated Website default/blue: has the wanted fields",
            "Normal ServiceCreated Website default/blue: has the wanted fields",
        ]
    );
    assert_eq!(
        test.hosts(),
        [("blue.example.com".to_owned(), "blue.default.svc".to_owned())]
    );
    assert_eq!(
        test.state("blue"),
        "False Starting: 0 of 2 replicas are ready; Reconciling: 0 of 2 replicas are ready"
    );
    test.start_pods(1);
    assert_eq!(
        test.state("blue"),
        "False Starting: 1 of 2 replicas are ready; Reconciling: 1 of 2 replicas are ready"
    );
    test.start_pods(2);
    assert_eq!(
        test.state("blue"),
        "True Serving: 2 of 2 replicas are ready"
    );
    // The status of the Deployment has changed twice, and no child was sent again.
    let writes = test.controller.writes();
    assert_eq!(
        writes,
        [
            "patch websites/status default/blue",
            "patch websites/status default/blue"
        ]
    );
    assert!(test.controller.events().is_empty());
}

#[test]
fn restart_sends_no_change() {
    let mut test = Test::with_website();
    let before = test.get(DEPLOYMENT);
    test.controller.restart().unwrap();
    test.run();
    assert_eq!(test.get(DEPLOYMENT), before);
    assert!(test.controller.events().is_empty());
}

#[test]
fn changed_page_changes_only_the_map() {
    let mut test = Test::with_website();
    let before = test.get(DEPLOYMENT);
    let pages = json!({ "index.html": null, "new.html": "News" });
    test.server()
        .patch(BLUE, json!({ "spec": { "pages": pages } }))
        .unwrap();
    test.run();
    let events = ["Normal ConfigMapUpdated Website default/blue: has the wanted fields"];
    assert_eq!(test.controller.events(), events);
    let map = test.get("/api/v1/namespaces/default/configmaps/blue");
    assert_eq!(map["data"], json!({ "new.html": "News" }));
    assert_eq!(test.get(DEPLOYMENT), before);
}

#[test]
fn edit_of_a_child_is_taken_back() {
    let mut test = Test::with_website();
    let edit = json!({ "spec": { "replicas": 7, "paused": true } });
    test.server().patch(DEPLOYMENT, edit).unwrap();
    test.run();
    let spec = &test.get(DEPLOYMENT)["spec"];
    // The field that the operator does not set stays.
    assert_eq!(
        (&spec["replicas"], &spec["paused"]),
        (&json!(2), &json!(true))
    );
    let events = ["Normal DeploymentUpdated Website default/blue: has the wanted fields"];
    assert_eq!(test.controller.events(), events);
}

#[test]
fn failing_host_service_is_retried_and_reported() {
    let mut test = Test::new();
    test.hosts.0.lock().unwrap().failures = 3;
    test.create("blue", "blue.example.com");
    assert!(test.controller.step().unwrap().is_some());
    let expected = "False Failed: 0 of 2 replicas are ready; Stalled: can't register the host \"blue.example.com\": timed out";
    assert_eq!(test.state("blue"), expected);
    test.run();
    let failed = "Warning FailedRegister Website default/blue: can't register the host \"blue.example.com\": timed out";
    assert!(test.controller.events()[0].starts_with(failed));
    assert_eq!(
        test.state("blue"),
        "False Starting: 0 of 2 replicas are ready; Reconciling: 0 of 2 replicas are ready"
    );
    let metrics = test.metrics.render();
    assert!(
        metrics.contains("website_host_failures_total 3\n"),
        "{metrics}"
    );
}

#[test]
fn host_of_another_website_is_waited_for() {
    let mut test = Test::with_website();
    test.create("green", "blue.example.com");
    assert_eq!(
        test.controller.step().unwrap().as_deref(),
        Some("default/green")
    );
    let expected = "False Failed: 0 of 2 replicas are ready; Stalled: can't register the host \"blue.example.com\": entity already exists";
    assert_eq!(test.state("green"), expected);
    test.server().delete(BLUE).unwrap();
    test.run();
    let green = (
        "blue.example.com".to_owned(),
        "green.default.svc".to_owned(),
    );
    assert_eq!(test.hosts(), [green]);
    assert!(test.state("green").starts_with("False Starting"));
}

#[test]
fn deletion_removes_the_host_and_the_children() {
    let mut test = Test::with_website();
    test.hosts.0.lock().unwrap().failures = 2;
    test.server().delete(BLUE).unwrap();
    test.run();
    assert_eq!(test.hosts(), []);
    assert_eq!(test.server().get(BLUE).unwrap_err().reason(), "NotFound");
    assert_eq!(
        test.server().get(DEPLOYMENT).unwrap_err().reason(),
        "NotFound"
    );
}

#[test]
fn foreign_service_is_reported_and_kept() {
    let mut test = Test::new();
    let services = "/api/v1/namespaces/default/services";
    let foreign =
        json!({ "metadata": { "name": "blue" }, "spec": { "ports": [{ "port": 8080 }] } });
    let before = test.server().create(services, foreign).unwrap();
    test.create("blue", "blue.example.com");
    test.run();
    assert_eq!(test.get(&format!("{services}/blue")), before);
    assert!(
        test.state("blue")
            .contains("; Stalled: services.v1 \"default/blue\" exists and has no controller"),
        "{}",
        test.state("blue")
    );
}

#[test]
fn failed_writes_are_repeated() {
    let mut test = Test::new();
    test.server()
        .fail_next(Fault::status(503).on(Verb::Patch).times(12));
    test.create("blue", "blue.example.com");
    test.run();
    assert_eq!(test.controller.events().len(), 3);
    test.controller.advance(Duration::from_secs(3600)).unwrap();
    assert!(test.controller.events().is_empty());
}

/// `Conditions` has no schema itself: the status names that of `metav1.Condition`.
#[test]
fn definition_has_the_schema_of_conditions() {
    let definition = json!(Website::crd());
    let version = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let conditions = &version["properties"]["status"]["properties"]["conditions"];
    assert_eq!(conditions["type"], "array");
    let properties = conditions["items"]["properties"].as_object().unwrap();
    for field in ["type", "status", "reason", "message", "lastTransitionTime"] {
        assert!(properties.contains_key(field), "{field} in {conditions}");
    }
}
