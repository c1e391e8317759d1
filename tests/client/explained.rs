//! Errors that name the mistake of a new user: a wrong plural, a wrong scope, a wrong token.

use std::time::Duration;

use k8s_informer::client::{ExecConfig, KubeconfigOptions};
use k8s_informer::informer::Source;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{
    Client, Config, Error, ObjectMeta, SharedInformerFactory, Stop, Stopper, impl_object,
};
use k8s_informer_testing::{ApiServer, RequestRecord};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde_json::json;

use super::folder::Folder;
use super::server::{Reply, Server, reply};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A namespaced kind that is declared as cluster-scoped.
#[derive(Debug, Deserialize)]
struct WrongScope {
    metadata: ObjectMeta,
}
impl_object!(WrongScope, "v1", "ConfigMap", "configmaps", Cluster);

fn world() -> (ApiServer, Client, Stopper) {
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    (server, client, Stopper::new())
}

fn get(client: &Client, resource: [&str; 3], namespace: Option<&str>) -> String {
    let [group, version, plural] = resource;
    let resource = GroupVersionResource::new(group, version, plural);
    let api = client.dynamic_api(&resource, namespace);
    let error = api.get("a", &Stop::never()).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    error.to_string()
}

fn discoveries(server: &ApiServer) -> usize {
    let is_discovery = |request: &&RequestRecord| ["/api", "/apis"].contains(&request.path());
    server.requests().iter().filter(is_discovery).count()
}

#[test]
fn unknown_resource_error_names_similar_ones() {
    let (_server, client, _) = world();
    let text = get(&client, ["", "v1", "podz"], Some("default"));
    let end = "; the server has no resource \"podz.v1\"";
    assert!(text.ends_with(end), "{text}");
    let text = get(
        &client,
        ["extensions", "v1", "deployments"],
        Some("default"),
    );
    assert!(
        text.ends_with("; similar names: deployments.apps"),
        "{text}"
    );
    let text = get(&client, ["apps", "v1beta1", "deployments"], Some("default"));
    let end = "; the server has \"deployments\" only in the version v1";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn wrong_scope_error_names_the_right_one() {
    let (_server, client, stop) = world();
    let text = get(&client, ["", "v1", "nodes"], Some("default"));
    assert!(
        text.ends_with("; Node is cluster-scoped: use no namespace"),
        "{text}"
    );
    let namespaced =
        "; ConfigMap is namespaced: use a namespace, and `Namespaced` as the scope of the type";
    let text = get(&client, ["", "v1", "configmaps"], None);
    assert!(text.ends_with(namespaced), "{text}");
    let maps = client.api::<WrongScope>(None);
    let map = json!({"metadata": {"name": "a"}});
    for error in [
        maps.get("a", &stop).unwrap_err(),
        maps.create(&map, &stop).unwrap_err(),
        maps.delete("a", &Default::default(), &stop).unwrap_err(),
    ] {
        assert!(error.to_string().ends_with(namespaced), "{error}");
    }
    let declared = client.api::<WrongScope>(Some("default"));
    let text = declared.get("a", &stop).unwrap_err().to_string();
    assert!(text.ends_with("correct the scope of the type"), "{text}");
}

#[test]
fn discovery_is_read_only_to_explain_an_error() {
    let (server, client, stop) = world();
    let maps = client.api::<ConfigMap>(Some("default"));
    maps.create(&json!({"metadata": {"name": "a"}}), &stop)
        .unwrap();
    maps.list(&Default::default(), &stop).unwrap();
    assert!(maps.get("b", &stop).unwrap_err().is_not_found());
    assert_eq!(discoveries(&server), 0);
    for _ in 0..3 {
        get(&client, ["", "v1", "podz"], Some("default"));
        get(&client, ["", "v1", "nodes"], Some("default"));
    }
    assert_eq!(discoveries(&server), 2);
}

#[test]
fn informer_error_names_similar_resources() {
    let (_server, client, stop) = world();
    let factory = SharedInformerFactory::new(client);
    let informer = factory.informer_for(Source::dynamic(GroupVersionResource::new(
        "batch",
        "v1",
        "deployments",
    )));
    factory.start(&stop).unwrap();
    let error = factory.wait_for_cache_sync(TIMEOUT, &stop).unwrap_err();
    let similar = "similar names: deployments.apps";
    assert!(error.to_string().contains(similar), "{error}");
    let last = informer.status().last_error.unwrap();
    assert!(last.to_string().ends_with(similar), "{last}");
    factory.shut_down(None).unwrap();
}

fn unauthorized(config: Config) -> String {
    let client = Client::new(config).unwrap();
    let maps = client.api::<ConfigMap>(Some("default"));
    let error: Error = maps.get("a", &Stop::never()).unwrap_err();
    assert!(error.is_unauthorized(), "{error}");
    let text = error.to_string();
    assert!(!text.contains("s3cret"), "{text}");
    text
}

#[test]
fn unauthorized_error_names_the_credential_that_was_sent() {
    let server = Server::start(|_| Reply::Write(reply("401 Unauthorized", "", "no")));
    let url = server.url();
    let config = || Config::new(&*url);
    let folder = Folder::new("explained");
    let file = folder.write("token", "s3cret");
    let in_file = format!("; sent with the token in {}", file.display());
    let user = |user: serde_json::Value| {
        let text = json!({
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "jane"}}],
            "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "jane", "user": user}],
        });
        KubeconfigOptions::new()
            .load_bytes(text.to_string(), "")
            .unwrap()
    };
    let oidc = json!({"name": "oidc", "config": {"id-token": "e30.e30.s3cret"}});
    for (config, end) in [
        (config(), "; sent without credentials"),
        (config().token("s3cret"), "; sent with the token"),
        (config().token_file(&file), &*in_file),
        (
            config().basic_auth("jane", "s3cret"),
            "; sent with the user name and password",
        ),
        (
            user(json!({"token": "s3cret"})),
            "; sent with the token of user \"jane\"",
        ),
        (
            user(json!({"token": "x"})).token("s3cret"),
            "; sent with the token",
        ),
        (
            user(json!({"username": "s", "password": "s3cret"})),
            "; sent with the user name and password of user \"jane\"",
        ),
        (user(json!({"tokenFile": file})), &*in_file),
        (
            user(json!({"auth-provider": oidc})),
            "; sent with the id-token of user \"jane\"",
        ),
    ] {
        let text = unauthorized(config);
        assert!(text.ends_with(end), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn unauthorized_error_names_the_plugin() {
    let server = ApiServer::builder().token("right").start().unwrap();
    let output = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "s3cret"}});
    let echo = ExecConfig::new("echo").args([output.to_string()]);
    let text = unauthorized(Config::new(server.url()).exec(echo));
    let end = "; sent with the credential of exec plugin \"echo\"";
    assert!(text.ends_with(end), "{text}");
}
