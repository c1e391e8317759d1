//! `examples/node_agent` with the rights of its manifest and no others.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::client::api::Patch;
use k8s_informer::informer::Observation;
use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Client, Config, Object, Stop, Stopper};
use k8s_informer_testing::{ApiServer, Fault};
use serde_json::{Value, json};

use crate::cluster::{BOTH, Cluster, Namespace, merge_patch, on_every_cluster};
use crate::support::{Folder, PATIENCE, wait_until};

use self::health::Health;

#[path = "../../../examples/node_agent/src/agent.rs"]
mod agent;
#[path = "../../../examples/node_agent/src/health.rs"]
mod health;

const PODS: &str = "/api/v1/namespaces/default/pods";

const MANIFEST: &str = include_str!("../../../examples/node_agent/daemonset.yaml");

/// Returns the objects of the manifest, renamed and without the namespace.
fn objects(name: &str) -> Vec<Value> {
    let documents = MANIFEST
        .split("\n---\n")
        .map(|text| text.replace("node-agent", name));
    let parsed = documents.map(|text| serde_saphyr::from_str::<Value>(&text).unwrap());
    parsed
        .filter(|object| object["kind"] != "Namespace")
        .collect()
}

fn collection(object: &Value, namespace: &str) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    let resource = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    match object.pointer("/metadata/namespace") {
        Some(_) => format!("{root}/{version}/namespaces/{namespace}/{resource}"),
        None => format!("{root}/{version}/{resource}"),
    }
}

/// The applied manifest. Objects without a namespace are deleted on drop.
struct Applied<'a> {
    cluster: &'a Cluster,
    global: Vec<String>,
}

impl<'a> Applied<'a> {
    /// Does what `kubectl apply -f --server-side` does.
    fn new(cluster: &'a Cluster, name: &str) -> Self {
        let mut applied = Self {
            cluster,
            global: Vec::new(),
        };
        for object in objects(name) {
            let path = format!("{}/{name}", collection(&object, name));
            let request = Request::patch(&path)
                .query("fieldManager", "kubectl")
                .json(&object)
                .unwrap();
            cluster.send(request.content_type("application/apply-patch+yaml"));
            if object.pointer("/metadata/namespace").is_none() {
                applied.global.push(path);
            }
        }
        applied
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        for path in &self.global {
            if let Err(error) = self.cluster.try_send(Request::delete(path)) {
                println!("{path} was not deleted: {error}");
            }
        }
    }
}

/// Returns the client that the agent has in its Pod: with a token file of the service account.
fn client_of_the_agent(
    cluster: &Cluster,
    namespace: &Namespace<'_>,
    folder: &Folder,
) -> Option<Client> {
    let config = match cluster.embedded_server() {
        // Every token has all rights on the embedded server.
        Some(_) => Config::from_kubeconfig(cluster.reader_kubeconfig()?, None).unwrap(),
        None => {
            let name = &namespace.name;
            let account = format!("{}/{name}/token", namespace.path("serviceaccounts"));
            let request = json!({"spec": {"expirationSeconds": 600, "audiences": []}});
            let response = cluster.send(Request::post(account).json(&request).unwrap());
            let token = folder.write("token", response["status"]["token"].as_str().unwrap());
            Config::from_kubeconfig(cluster.unprivileged_kubeconfig()?, None)
                .unwrap()
                .token_file(token)
        }
    };
    Some(Client::new(config).unwrap())
}

/// Returns the response to a probe of the kubelet as status, colon and body.
fn probe(health: &Health, pods: &Observation<agent::Pod>, path: &str) -> String {
    let listener = health::listen(0).unwrap();
    let address = (Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()).into();
    let stop = Stopper::new();
    let response = thread::scope(|scope| {
        scope.spawn(|| health::serve(&listener, &stop, |path| health.reply(path, pods)));
        let response = health::get(address, path);
        stop.stop();
        response
    });
    response.unwrap()
}

#[test]
fn node_agent_with_own_account_sees_only_pods_of_its_node() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("node-agent");
        let _applied = Applied::new(cluster, &namespace.name);
        let folder = Folder::new();
        let Some(client) = client_of_the_agent(cluster, &namespace, &folder) else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let pods = namespace.path("pods");
        // Node names that only this test uses.
        let node = |name: &str| format!("{}-{name}", namespace.name);
        let create = |name: &str, on: &str| {
            let spec =
                json!({"nodeName": node(on), "containers": [{"name": "main", "image": "busybox"}]});
            let pod = json!({"metadata": {"name": name}, "spec": spec});
            cluster.send(Request::post(&pods).json(&pod).unwrap());
        };
        create("here", "one");
        create("elsewhere", "two");

        let (sender, lines) = mpsc::channel();
        let stop = Stopper::new();
        let agent = agent::watch_node(client.clone(), &node("one"), move |line| {
            sender.send(line).unwrap();
        })
        .unwrap();
        agent
            .wait_for_sync(PATIENCE, &stop)
            .unwrap_or_else(|error| panic!("{error}"));
        // After a LIST, objects reach the handler before the watch is open.
        wait_until("the informer watches", || {
            Some(agent.status().state).filter(|s| *s == ReflectorState::Watching)
        });
        let health = Health::new(PATIENCE);
        for path in probe_paths() {
            let response = probe(&health, &agent, &path);
            assert!(
                response.starts_with("200 OK: watching at version "),
                "{path}: {response}"
            );
        }
        let names: Vec<_> = agent
            .lister()
            .list()
            .iter()
            .map(|pod| pod.name().to_owned())
            .collect();
        assert_eq!(names, ["here"]);

        create("also-elsewhere", "two");
        let running = json!({"status": {"phase": "Running"}});
        cluster.send(merge_patch(&format!("{pods}/here/status"), &running));
        create("also-here", "one");
        cluster.send(
            Request::delete(format!("{pods}/here"))
                .json(&json!({"gracePeriodSeconds": 0}))
                .unwrap(),
        );
        let name = &namespace.name;
        // Group the lines by Pod. The lines of one Pod are in order. The lines of different Pods
        // may not be, because a queue that groups the changes of an object does not order objects.
        let mut received: Vec<_> = (0..4)
            .map(|_| lines.recv_timeout(PATIENCE).unwrap())
            .collect();
        received.sort_by_key(|line| line.contains("/also-here "));
        let expected = [
            "+ NAME/here Pending",
            "~ NAME/here Running",
            "- NAME/here",
            "+ NAME/also-here Pending",
        ];
        assert_eq!(received, expected.map(|line| line.replace("NAME", name)));
        drop(agent);

        // The agent has only the rights that it needs.
        if cluster.embedded_server().is_none() {
            let api = client.api::<k8s_openapi::api::core::v1::Pod>(Some(name));
            for error in [
                api.get("also-here", &stop).map(drop).unwrap_err(),
                api.patch("also-here", &Patch::merge(json!({})), &stop)
                    .map(drop)
                    .unwrap_err(),
                client
                    .request(&Request::get("/api/v1/secrets"), &stop)
                    .map(drop)
                    .unwrap_err(),
            ] {
                assert!(error.is_forbidden(), "{error}");
                let who = format!("User \"system:serviceaccount:{name}:{name}\" cannot ");
                assert!(error.to_string().contains(&who), "{error}");
            }
        }
    });
}

/// Returns the paths of the manifest's probes: startup, liveness, readiness.
fn probe_paths() -> [String; 3] {
    let objects = objects("node-agent");
    let set = objects
        .iter()
        .find(|object| object["kind"] == "DaemonSet")
        .unwrap();
    let container = set.pointer("/spec/template/spec/containers/0").unwrap();
    assert_eq!(
        container["ports"],
        json!([{"name": "health", "containerPort": 8080}])
    );
    ["startupProbe", "livenessProbe", "readinessProbe"].map(|probe| {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["port"], "health", "{probe}");
        get["path"].as_str().unwrap().to_owned()
    })
}

#[test]
fn liveness_probes_pass_without_a_server() {
    assert_eq!(probe_paths(), ["/healthz", "/healthz", "/readyz"]);
    let server = ApiServer::start().unwrap();
    server
        .create(
            PODS,
            json!({"metadata": {"name": "a"}, "spec": {"nodeName": "one"}}),
        )
        .unwrap();
    server.fail_next(Fault::status(403).times(1000));
    let client = Client::new(Config::new(server.url())).unwrap();
    let pods = agent::watch_node(client, "one", |_| {}).unwrap();
    let health = Health::new(Duration::ZERO);
    wait_until("a list was rejected", || pods.status().last_error);
    let response = probe(&health, &pods, "/readyz");
    assert!(
        response.starts_with("503 Service Unavailable: ") && response.contains("403"),
        "{response}"
    );
    let response = probe(&health, &pods, "/healthz");
    assert!(
        response.starts_with("200 OK: ") && response.contains(", not synced yet; "),
        "{response}"
    );

    server.clear_faults();
    pods.wait_for_sync(PATIENCE, &Stop::never())
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(probe(&health, &pods, "/readyz").starts_with("200 OK: "));
    server.pause();
    wait_until("the watch is broken", || {
        Some(pods.status()).filter(|status| status.failures > 0)
    });
    for path in probe_paths() {
        let response = probe(&health, &pods, &path);
        assert!(
            response.starts_with("200 OK: ") && response.contains("; failures "),
            "{path}: {response}"
        );
    }
    assert_eq!(
        probe(&health, &pods, "/metrics?x"),
        "404 Not Found: the paths are /healthz and /readyz"
    );
}

/// A user who may create Pods must not be able to take all agents out of service.
#[test]
fn readyz_succeeds_while_an_object_is_unreadable() {
    let server = ApiServer::start().unwrap();
    for (name, phase) in [("good", json!("Running")), ("bad", json!(7))] {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": "one"}, "status": {"phase": phase}});
        server.create(PODS, pod).unwrap();
    }
    let pods = agent::watch_node(
        Client::new(Config::new(server.url())).unwrap(),
        "one",
        |_| {},
    )
    .unwrap();
    pods.wait_for_sync(PATIENCE, &Stop::never())
        .unwrap_or_else(|error| panic!("{error}"));
    let health = Health::new(PATIENCE);
    let response = probe(&health, &pods, "/readyz");
    assert!(response.starts_with("200 OK: "), "{response}");
    assert!(response.contains("; incomplete; unreadable "), "{response}");
    assert!(probe(&health, &pods, "/healthz").starts_with("200 OK: "));
}

#[test]
fn healthz_fails_when_a_handler_is_stuck() {
    let server = ApiServer::start().unwrap();
    let create = |name: &str| {
        server
            .create(
                PODS,
                json!({"metadata": {"name": name}, "spec": {"nodeName": "one"}}),
            )
            .unwrap();
    };
    create("a");
    let (entered, enters) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let client = Client::new(Config::new(server.url())).unwrap();
    let pods = agent::watch_node(client, "one", move |_| {
        let _ = entered.send(());
        let _ = released.lock().unwrap().recv();
    });
    let pods = pods.unwrap();
    enters.recv_timeout(PATIENCE).unwrap();
    let health = Health::new(Duration::ZERO);
    for _ in 0..2 {
        let response = probe(&health, &pods, "/healthz");
        assert!(
            response.starts_with("200 OK: "),
            "no event is queued behind the handler: {response}"
        );
    }
    create("b");
    wait_until("an event is queued", || {
        Some(pods.stats().waiting).filter(|waiting| *waiting > 0)
    });
    assert!(
        probe(&health, &pods, "/healthz").starts_with("200 OK: "),
        "the first probe that sees the event must pass"
    );
    let response = probe(&health, &pods, "/healthz");
    assert_eq!(
        response,
        "503 Service Unavailable: a handler has not returned for 0ns"
    );
    assert!(
        probe(&health, &pods, "/readyz").starts_with("503 "),
        "the handler has not synced"
    );

    drop(release);
    wait_until("no event is queued", || {
        Some(pods.stats()).filter(|stats| stats.waiting == 0)
    });
    assert!(probe(&health, &pods, "/healthz").starts_with("200 OK: "));
}

#[test]
fn node_name_rejects_invalid_names() {
    for name in [
        "",
        " ",
        "a,b",
        "a=b",
        "a!=b",
        "Node",
        "-a",
        "a-",
        "a..b",
        ".",
        "a/b",
        "a\n",
        "ä",
        &"a".repeat(254),
    ] {
        let error = agent::node_name("--node", name).unwrap_err();
        assert!(
            error.starts_with(&format!("--node is {name:?}; ")),
            "{error}"
        );
    }
    for name in [
        "a",
        "worker-1",
        "ip-10-0-0-1.eu-west-1.compute.internal",
        "1",
        &"a".repeat(253),
    ] {
        assert_eq!(agent::node_name("$NODE_NAME", name).as_deref(), Ok(name));
    }
}
