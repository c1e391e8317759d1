//! `RealApiServer`, which the other tests use to start their real server.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, process};

use k8s_informer::client::Request;
use k8s_informer::client::crds::InstallOptions;
use k8s_informer::informer::SharedInformerFactory;
use k8s_informer::{Client, Config, Stop};
use k8s_informer_testing::RealApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::cluster::assert_expected_version;
use crate::proxy::authority;
use crate::support::{shut_down, synced, wait_until};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn is_configured() -> bool {
    let is_configured = RealApiServer::is_configured();
    if !is_configured {
        println!("skipped: KUBEBUILDER_ASSETS is not set to start a real server");
    }
    is_configured
}

fn send(client: &Client, request: Request) -> Value {
    let response = client.request(&request, &Stop::never()).unwrap();
    response.json().unwrap()
}

fn create(client: &Client, path: &str, object: &Value) -> Value {
    send(client, Request::post(path).json(object).unwrap())
}

#[test]
fn two_servers_have_their_own_data_and_addresses() {
    if !is_configured() {
        return;
    }
    let servers = [(); 2].map(|()| RealApiServer::start().unwrap());
    let [one, other] = &servers;
    assert_expected_version(one.client());
    assert_ne!(one.client().server(), other.client().server());
    assert_ne!(one.folder(), other.folder());
    create(one.client(), MAPS, &json!({ "metadata": { "name": "a" } }));
    assert_eq!(count(one.client(), "a"), 1);
    assert_eq!(count(other.client(), "a"), 0);
    // The servers do not accept the tokens and certificates of each other.
    let foreign = Client::new(one.config().ca_file(other.folder().join("apiserver.crt"))).unwrap();
    let list = Request::get(MAPS).retries(0);
    assert!(foreign.request(&list, &Stop::never()).unwrap_err().is_tls());
    let debug = format!("RealApiServer({})", one.folder().display());
    assert_eq!(format!("{one:?}"), debug, "no token");
}

fn count(client: &Client, name: &str) -> usize {
    let maps = send(client, Request::get(MAPS));
    let maps = maps["items"].as_array().unwrap();
    maps.iter()
        .filter(|map| map["metadata"]["name"] == name)
        .count()
}

#[test]
fn account_has_exactly_its_current_rules() {
    if !is_configured() {
        return;
    }
    let server = RealApiServer::start().unwrap();
    let rule =
        |resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": ["list"] });
    let client = |rules: &[Value]| Client::new(server.account("team:ops", rules).unwrap()).unwrap();
    let secrets = Request::get("/api/v1/namespaces/default/secrets");
    let maps = Request::get(MAPS);
    let refused = |client: &Client, request: &Request| {
        let error = client.request(request, &Stop::never()).unwrap_err();
        assert!(
            error.is_forbidden() && error.to_string().contains("team:ops"),
            "{error}"
        );
    };
    for _ in 0..5 {
        let ops = client(&[rule("configmaps")]);
        ops.request(&maps, &Stop::never()).unwrap();
        refused(&ops, &secrets);
        let ops = client(&[rule("secrets")]);
        ops.request(&secrets, &Stop::never()).unwrap();
        refused(&ops, &maps);
    }
    refused(&client(&[]), &maps);
    let error = server
        .account("other", &[json!({ "verbs": "list" })])
        .unwrap_err();
    assert!(error.to_string().contains("clusterroles"), "{error}");
}

#[test]
fn definitions_are_validated_with_their_rules() {
    if !is_configured() {
        return;
    }
    let server = RealApiServer::start().unwrap();
    let schema = json!({ "type": "object", "properties": { "spec": {
        "type": "object", "properties": { "size": { "type": "integer" } },
        "x-kubernetes-validations": [{ "rule": "self.size < 10", "message": "too large" }],
    } } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    });
    let options = InstallOptions::new("test");
    server
        .client()
        .install_crds([definition], &options, &Stop::never())
        .unwrap();
    let widget = |size: u64| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": { "name": format!("w{size}") }, "spec": { "size": size },
        })
    };
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    create(server.client(), path, &widget(9));
    let request = Request::post(path).json(&widget(10)).unwrap();
    let error = server
        .client()
        .request(&request, &Stop::never())
        .unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().contains("too large"),
        "{error}"
    );
}

#[test]
fn dropped_server_ends_watches_and_leaves_nothing() {
    if !is_configured() {
        return;
    }
    let server = RealApiServer::start().unwrap();
    create(
        server.client(),
        MAPS,
        &json!({ "metadata": { "name": "a" } }),
    );
    let factory = SharedInformerFactory::new(server.client().clone());
    let maps = factory.informer::<ConfigMap>();
    synced(&factory, &maps);
    server.pause();
    server.pause_etcd();
    server.resume().unwrap();
    create(
        server.client(),
        MAPS,
        &json!({ "metadata": { "name": "b" } }),
    );
    assert_eq!(count(server.client(), "a"), 1, "the data survives a pause");

    let (folder, urls) = (server.folder().to_owned(), urls(&server));
    drop(server);
    assert_gone(&folder, &urls);
    wait_until("the informer reports that the server is gone", || {
        maps.status()
            .last_error
            .filter(|error| error.is_connection())
    });
    shut_down(&factory, "without a server");
}

fn urls(server: &RealApiServer) -> [String; 2] {
    [
        server.client().server().to_owned(),
        server.etcd_url().to_owned(),
    ]
}

/// Waits until no process listens and the folder is removed.
fn assert_gone(folder: &Path, urls: &[String]) {
    wait_until("the folder is removed", || (!folder.exists()).then_some(()));
    for url in urls {
        let refused = || TcpStream::connect(authority(url)).is_err().then_some(());
        wait_until("the server has ended", refused);
    }
}

/// The environment variable of a process that is to be killed.
const VICTIM: &str = "E2E_REAL_SERVER_VICTIM";

#[test]
fn killed_test_process_leaves_neither_server_nor_folder() {
    if !is_configured() {
        return;
    }
    if let Ok(state) = env::var(VICTIM) {
        let server = RealApiServer::start().unwrap();
        if state == "paused" {
            server.pause();
        }
        let [url, etcd_url] = urls(&server);
        println!("\nvictim {} {url} {etcd_url}", server.folder().display());
        io::stdout().flush().unwrap();
        // Ends with the other process.
        let _ = io::stdin().read_line(&mut String::new());
        process::exit(1);
    }
    for state in ["running", "paused"] {
        let mut victim = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "real_server::killed_test_process_leaves_neither_server_nor_folder",
            ])
            .arg("--nocapture")
            .env(VICTIM, state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let line = lines
            .map_while(Result::ok)
            .find(|line| line.starts_with("victim "));
        let line = line.expect("the process has started its server");
        let [folder, url, etcd_url] = line["victim ".len()..].split(' ').collect::<Vec<_>>()[..]
        else {
            panic!("{line}");
        };
        let folder = Path::new(folder);
        assert!(folder.join("etcd-data").exists());
        let etcd = Client::new(Config::new(etcd_url)).unwrap();
        etcd.request(&Request::get("/version"), &Stop::never())
            .unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_gone(folder, &[url.to_owned(), etcd_url.to_owned()]);
    }
}
