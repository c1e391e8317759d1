//! Three replicas as processes, with the rights of the manifest; the leader is killed. On the API
//! server inside this program, and on a real one if `KUBEBUILDER_ASSETS` names its programs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{Client, Config, DynamicObject, Object, Stop, Stopper};
use k8s_informer_testing::{ApiServer, RealApiServer};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

/// A folder for the files of one run.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("website-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("hosts")).unwrap();
        Self(folder)
    }

    fn hosts(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("hosts")).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Replica {
    process: Child,
    address: String,
    log: PathBuf,
}

impl Replica {
    fn start(folder: &Path, number: usize) -> Self {
        let log = folder.join(format!("{number}.log"));
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = format!("127.0.0.1:{port}");
        let process = Command::new(env!("CARGO_BIN_EXE_website"))
            .args([folder.join("hosts").to_str().unwrap(), &address])
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self {
            process,
            address,
            log,
        }
    }

    /// Returns the body of a response with the status 200.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200 ").then(|| body.to_owned())
    }

    fn leads(&self) -> bool {
        let status: Option<Value> = self
            .get("/status")
            .and_then(|text| serde_json::from_str(&text).ok());
        status.is_some_and(|status| status["leader"]["isLeader"] == true)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            println!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

#[track_caller]
fn wait_until<R>(what: &str, condition: impl Fn() -> Option<R>) -> R {
    let start = Instant::now();
    loop {
        match condition() {
            Some(result) => return result,
            None if start.elapsed() > MINUTE => panic!("not in time: {what}"),
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn api(client: &Client, group: &str, resource: &str) -> Api<DynamicObject> {
    client.dynamic_api(
        &GroupVersionResource::new(group, "v1", resource),
        Some("default"),
    )
}

/// Applies the objects of the manifest, and returns a kubeconfig for its account.
fn apply_manifest(client: &Client, stop: &Stop) -> Value {
    for document in include_str!("../manifest.yaml").split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let (text, metadata) = (
            |value: &Value| value.as_str().unwrap().to_owned(),
            &object["metadata"],
        );
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let plural = format!("{}s", text(&object["kind"]).to_lowercase());
        let resource = GroupVersionResource::new(group, version, plural);
        let objects = client.dynamic_api(&resource, metadata["namespace"].as_str());
        let name = text(&metadata["name"]);
        objects
            .patch(&name, &Patch::apply("kubectl", object), stop)
            .unwrap();
    }
    let account = "/api/v1/namespaces/website-system/serviceaccounts/website-controller/token";
    let request = Request::post(account)
        .json(&json!({ "spec": { "audiences": [] } }))
        .unwrap();
    // The server inside the program has no accounts, and accepts every client.
    let token = client
        .request(&request, stop)
        .and_then(|response| response.json::<Value>());
    let user = token.map_or(
        json!({}),
        |token| json!({ "token": token["status"]["token"] }),
    );
    json!({
        "clusters": [{ "name": "a", "cluster": { "server": client.server(), "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "a", "user": user }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a", "namespace": "website-system" } }],
        "current-context": "a",
    })
}

fn run(name: &str, client: &Client, has_schemas: bool) {
    let (folder, stop) = (Folder::new(name), Stopper::new());
    let kubeconfig = apply_manifest(client, &stop);
    fs::write(folder.0.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let mut replicas: Vec<_> = (0..3)
        .map(|number| Replica::start(&folder.0, number))
        .collect();
    for replica in &replicas {
        wait_until("a replica is ready", || replica.get("/readyz"));
    }
    let leader = wait_until("a replica leads", || {
        replicas.iter().position(Replica::leads)
    });

    let websites = api(client, "example.com", "websites");
    let mut site: Value = serde_saphyr::from_str(include_str!("../website.yaml")).unwrap();
    let uid = websites.create(&site, &stop).unwrap().uid().to_owned();
    websites
        .wait_for_condition("blue", "Reconciling", "True", MINUTE, &stop)
        .unwrap();
    assert_eq!(folder.hosts(), ["blue.example.com"]);
    // The Pods start.
    let status = json!({ "observedGeneration": 1, "replicas": 2, "readyReplicas": 2 });
    let patch = Patch::merge(json!({ "status": status }));
    api(client, "apps", "deployments")
        .status()
        .patch("blue", &patch, &stop)
        .unwrap();
    websites
        .wait_for_condition("blue", "Ready", "True", MINUTE, &stop)
        .unwrap();
    let metrics = replicas[leader].get("/metrics").unwrap();
    assert!(
        metrics.contains("website_host_failures_total 0\n"),
        "{metrics}"
    );

    // The leader is killed. Another replica continues when the Lease has expired.
    drop(replicas.remove(leader));
    let pages = Patch::merge(json!({ "spec": { "pages": { "new.html": "News" } } }));
    websites.patch("blue", &pages, &stop).unwrap();
    let has_page = |map: Option<&DynamicObject>| {
        map.is_some_and(|map| {
            map.read::<String>("/data/new.html")
                .is_ok_and(|page| page.is_some())
        })
    };
    api(client, "", "configmaps")
        .wait_for("blue", has_page, MINUTE, &stop)
        .unwrap();
    assert!(replicas.iter().any(Replica::leads));
    let maps = api(client, "", "configmaps")
        .list(&Default::default(), &stop)
        .unwrap();
    assert_eq!(
        maps.items
            .iter()
            .filter(|map| map.label("app.kubernetes.io/name").is_some())
            .count(),
        1
    );
    let events = api(client, "events.k8s.io", "events")
        .list(&Default::default(), &stop)
        .unwrap();
    let reason = |event: &DynamicObject| event.read::<String>("/reason").unwrap();
    let mut reasons: Vec<_> = events.items.iter().filter_map(reason).collect();
    reasons.retain(|reason| reason.ends_with("Created"));
    reasons.sort();
    assert_eq!(
        reasons,
        ["ConfigMapCreated", "DeploymentCreated", "ServiceCreated"]
    );

    if has_schemas {
        let host = Patch::merge(json!({ "spec": { "host": "green.example.com" } }));
        let error = websites.patch("blue", &host, &stop).unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("the host can't change"),
            "{error}"
        );
        site["metadata"]["name"] = "many".into();
        site["spec"]["replicas"] = 21.into();
        assert!(websites.create(&site, &stop).unwrap_err().is_invalid());
    }
    websites
        .delete("blue", &DeleteOptions::default(), &stop)
        .unwrap();
    websites
        .wait_for_deletion("blue", Some(&uid), MINUTE, &stop)
        .unwrap();
    assert!(folder.hosts().is_empty());

    for replica in &mut replicas {
        let id = replica.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        assert!(replica.process.wait().unwrap().success());
        let log = fs::read_to_string(&replica.log).unwrap();
        assert!(!log.contains("forbidden") && !log.contains(" 403"), "{log}");
    }
    let leases = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
    let leases = client.dynamic_api(&leases, Some("website-system"));
    let lease = leases.get("website-controller", &stop).unwrap();
    let holder: Option<String> = lease.read("/spec/holderIdentity").unwrap();
    assert_eq!(holder.unwrap_or_default(), "", "the Lease is released");
}

#[test]
fn killed_leader_is_replaced_on_the_embedded_server() {
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    run("embedded", &client, false);
}

#[test]
fn killed_leader_is_replaced_on_a_real_server() {
    if !RealApiServer::is_configured() {
        return println!("skipped: KUBEBUILDER_ASSETS is not set");
    }
    let server = RealApiServer::start().unwrap();
    run("real", server.client(), true);
}
