//! Tests against a real API server: `USE_EXISTING_CLUSTER=true KUBECONFIG=… cargo test`.

use std::io::Read;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::object::{GroupVersionResource, ResourceVersion};
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Stop, Stopper};

fn existing_cluster() -> Option<PathBuf> {
    match (
        std::env::var("USE_EXISTING_CLUSTER").as_deref(),
        std::env::var_os("KUBECONFIG"),
    ) {
        (Ok("true"), Some(path)) => Some(path.into()),
        _ => {
            println!("skipped: USE_EXISTING_CLUSTER and KUBECONFIG are not set");
            None
        }
    }
}

fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

/// `.ci/kubernetes_versions` sets the version. Without this check, it could test one version twice.
#[test]
fn server_has_the_expected_version() {
    let Some(main) = existing_cluster() else {
        return;
    };
    let Ok(expected) = std::env::var("EXPECTED_KUBERNETES") else {
        println!("skipped: EXPECTED_KUBERNETES is not set");
        return;
    };
    let client = Client::new(Config::from_kubeconfig(&main, None).unwrap()).unwrap();
    let version: serde_json::Value = client
        .request(&Request::get("/version"), &Stop::never())
        .unwrap()
        .json()
        .unwrap();
    let version = version["gitVersion"].as_str().unwrap();
    assert!(version.starts_with(&format!("v{expected}.")), "{version}");
}

#[test]
fn kubeconfig_keys_of_all_formats_and_token_authenticate() {
    let Some(main) = existing_cluster() else {
        return;
    };
    for name in [
        "kubeconfig",
        "kubeconfig-pkcs1",
        "kubeconfig-ec",
        "kubeconfig-ec-sec1",
        "kubeconfig-token",
    ] {
        let path = main.with_file_name(name);
        if !path.exists() {
            println!("skipped: {} does not exist", path.display());
            continue;
        }
        let client = Client::new(Config::from_kubeconfig(&path, None).unwrap()).unwrap();
        let stop = Stopper::new();
        let version: serde_json::Value = client
            .request(&Request::get("/version"), &stop)
            .unwrap()
            .json()
            .unwrap();
        assert!(
            version["gitVersion"].as_str().unwrap().starts_with('v'),
            "{version}"
        );
        let body = client
            .lister_watcher(&configmaps(), None)
            .list(&ListOptions::default(), &stop)
            .unwrap();
        let list: serde_json::Value = serde_json::from_reader(body).unwrap();
        assert_eq!(list["kind"], "ConfigMapList", "{name}");
    }
}

#[test]
fn try_default_uses_the_environment() {
    let Some(_) = existing_cluster() else { return };
    let client = Client::try_default().unwrap();
    client
        .request(&Request::get("/version"), &Stop::never())
        .unwrap();
}

#[test]
fn user_without_rights_is_forbidden() {
    let Some(main) = existing_cluster() else {
        return;
    };
    let path = main.with_file_name("kubeconfig-nobody");
    if !path.exists() {
        println!("skipped: {} does not exist", path.display());
        return;
    }
    let client = Client::new(Config::from_kubeconfig(&path, None).unwrap()).unwrap();
    let watcher = client.lister_watcher(&configmaps(), Some("default"));
    let error = watcher
        .list(&ListOptions::default(), &Stop::never())
        .unwrap_err();
    assert!(error.is_forbidden(), "{error:?}");
    let status = error.status().unwrap();
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    assert!(
        error
            .to_string()
            .starts_with("list configmaps in namespace \"default\": GET https://"),
        "{error}"
    );
    assert!(
        watcher
            .watch(&ListOptions::default(), &Stop::never())
            .unwrap_err()
            .is_forbidden()
    );
}

#[test]
fn wrong_ca_is_a_tls_error() {
    let Some(main) = existing_cluster() else {
        return;
    };
    let config = Config::from_kubeconfig(&main, None)
        .unwrap()
        .ca_pem(super::tls::Authority::new().pem);
    let error = Client::new(config)
        .unwrap()
        .request(&Request::get("/version"), &Stop::never())
        .unwrap_err();
    assert!(error.is_tls(), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("not signed by a trusted authority"),
        "{error}"
    );
}

#[test]
fn missing_object_or_path_is_not_found() {
    let Some(main) = existing_cluster() else {
        return;
    };
    let client = Client::new(Config::from_kubeconfig(&main, None).unwrap()).unwrap();
    let get = |path: &str| {
        client
            .request(&Request::get(path), &Stop::never())
            .unwrap_err()
    };
    let error = get("/api/v1/namespaces/default/configmaps/no-such");
    assert!(error.is_not_found(), "{error:?}");
    assert_eq!(error.status().unwrap().reason, "NotFound");
    // For an unknown path, the body of the response is plain text, not a `Status`.
    let error = get("/no/such/path");
    assert!(error.is_not_found(), "{error:?}");
    // The server redirects this path to `/api/v1/namespaces`.
    println!("{}", get("/api/v1/../v1/namespaces"));
}

#[test]
fn watch_delivers_create_update_delete_and_stops_at_once() {
    let Some(main) = existing_cluster() else {
        return;
    };
    let client = Client::new(Config::from_kubeconfig(&main, None).unwrap()).unwrap();
    let namespace = format!("client-test-{}", std::process::id());
    let stop = Stopper::new();
    let send = |request: Request| {
        client
            .request(&request, &stop)
            .unwrap()
            .json::<serde_json::Value>()
            .unwrap()
    };
    let namespaced = serde_json::json!({"metadata": {"name": namespace}});
    send(
        Request::post("/api/v1/namespaces")
            .json(&namespaced)
            .unwrap(),
    );

    let watcher = client.lister_watcher(&configmaps(), Some(&namespace));
    let list: serde_json::Value =
        serde_json::from_reader(watcher.list(&ListOptions::default(), &stop).unwrap()).unwrap();
    let mut options = ListOptions::default();
    options.resource_version = list["metadata"]["resourceVersion"]
        .as_str()
        .and_then(ResourceVersion::new);
    let watch_stop = stop.child();
    let mut body = watcher.watch(&options, &watch_stop).unwrap();

    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = serde_json::json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    send(Request::post(&path).json(&map).unwrap());
    let mut buffer = [0; 16];
    body.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, br#"{"type":"ADDED","#);
    let patch = serde_json::json!({"data": {"k": "2"}});
    let patch = Request::patch(format!("{path}/a")).json(&patch).unwrap();
    let patched = send(patch.content_type("application/merge-patch+json"));
    assert_eq!(patched["data"]["k"], "2");
    send(Request::put(format!("{path}/a")).json(&patched).unwrap());
    let precondition = serde_json::json!({"preconditions": {"uid": patched["metadata"]["uid"]}});
    send(
        Request::delete(format!("{path}/a"))
            .json(&precondition)
            .unwrap(),
    );

    let reader = thread::spawn(move || body.read_to_end(&mut Vec::new()));
    // Gives the reader time to block.
    watch_stop.wait_timeout(Duration::from_millis(50));
    let start = Instant::now();
    watch_stop.stop();
    reader.join().unwrap().unwrap_err();
    println!("the watch stopped after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(2));
    // A bare API server has no controller that finalizes namespaces.
    let mut leaving = send(Request::delete(format!("/api/v1/namespaces/{namespace}")));
    if leaving["kind"] == "Namespace" {
        leaving["spec"]["finalizers"] = serde_json::json!([]);
        let finalize = Request::put(format!("/api/v1/namespaces/{namespace}/finalize"))
            .json(&leaving)
            .unwrap();
        // Ignore the result: a namespace controller may have removed the finalizers first.
        let _ = client.request(&finalize, &stop);
    }
}
