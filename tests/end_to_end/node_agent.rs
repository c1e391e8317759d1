//! `examples/node_agent` with what its manifest gives it, and no right more.

use std::sync::mpsc;

use k8s_informer::{Client, Config, Object, Patch, Request, Stop};
use serde_json::{Value, json};

use crate::cluster::{BOTH, Cluster, Namespace, merge_patch, on_every_cluster};
use crate::support::{Folder, PATIENCE};

#[path = "../../examples/node_agent/agent.rs"]
mod agent;

const MANIFEST: &str = include_str!("../../examples/node_agent/daemonset.yaml");

/// The objects of the manifest, but for its namespace, with another name.
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

/// What is in no namespace goes with the test, too.
struct Applied<'a> {
    cluster: &'a Cluster,
    global: Vec<String>,
}

impl<'a> Applied<'a> {
    /// kubectl apply -f --server-side
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
                println!("{path} stays: {error}");
            }
        }
    }
}

/// The client that the agent has in its Pod: a token in a file, which is one of the service account's.
fn client_of_the_agent(
    cluster: &Cluster,
    namespace: &Namespace<'_>,
    folder: &Folder,
) -> Option<Client> {
    let config = match cluster.embedded_server() {
        // Who has a token there may do everything.
        Some(_) => Config::from_kubeconfig(cluster.kubeconfig_of_reader()?, None).unwrap(),
        None => {
            let name = &namespace.name;
            let account = format!("{}/{name}/token", namespace.path("serviceaccounts"));
            let request = json!({"spec": {"expirationSeconds": 600, "audiences": []}});
            let answer = cluster.send(Request::post(account).json(&request).unwrap());
            let token = folder.write("token", answer["status"]["token"].as_str().unwrap());
            Config::from_kubeconfig(cluster.kubeconfig_of_nobody()?, None)
                .unwrap()
                .token_file(token)
        }
    };
    Some(Client::new(config).unwrap())
}

#[test]
fn an_agent_sees_the_pods_of_its_node_as_its_service_account() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("node-agent");
        let _applied = Applied::new(cluster, &namespace.name);
        let folder = Folder::new();
        let Some(client) = client_of_the_agent(cluster, &namespace, &folder) else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let pods = namespace.path("pods");
        // Nodes that nobody else has.
        let node = |name: &str| format!("{}-{name}", namespace.name);
        let create = |name: &str, on: &str| {
            let spec =
                json!({"nodeName": node(on), "containers": [{"name": "main", "image": "busybox"}]});
            let pod = json!({"metadata": {"name": name}, "spec": spec});
            cluster.send(Request::post(&pods).json(&pod).unwrap());
        };
        create("here", "one");
        create("elsewhere", "two");

        let (told, lines) = mpsc::channel();
        let stop = Stop::new();
        let agent = agent::watch_node(client.clone(), &node("one"), move |line| {
            told.send(line).unwrap()
        })
        .unwrap();
        agent
            .wait_for_sync(&stop, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}"));
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
        // In order for each Pod. A queue that keeps the changes of a Pod together promises nothing across them.
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

        // It may do what it does, and nothing else.
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
