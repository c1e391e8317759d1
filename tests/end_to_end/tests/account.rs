//! A service account of a test. Its tokens can be revoked one by one.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_informer::Config;
use k8s_informer::client::Request;
use serde_json::json;

use crate::cluster::{ADMIN, Cluster, Namespace};
use crate::reader::READER;

const NAME: &str = "tester";

/// A service account with all rights on the ConfigMaps of its namespace.
pub(crate) struct Account<'a> {
    cluster: &'a Cluster,
    namespace: &'a Namespace<'a>,
    /// The kubeconfig of another account, which has no rights. [`config`](Self::config) removes its
    /// credentials.
    kubeconfig: PathBuf,
    /// The valid tokens.
    tokens: Mutex<Vec<Token>>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// The Secret to which the token is bound.
    secret: String,
}

impl<'a> Account<'a> {
    /// Creates the account. Returns `None` if the cluster has no kubeconfig that works without a
    /// client certificate.
    pub(crate) fn new(cluster: &'a Cluster, namespace: &'a Namespace<'a>) -> Option<Self> {
        let kubeconfig = cluster.unprivileged_kubeconfig()?;
        if cluster.embedded_server().is_none() {
            let rbac = format!(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{}",
                namespace.name
            );
            let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] });
            let subject =
                json!({ "kind": "ServiceAccount", "name": NAME, "namespace": namespace.name });
            let role =
                json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME });
            let metadata = json!({ "name": NAME });
            for (path, object) in [
                (
                    namespace.path("serviceaccounts"),
                    json!({ "metadata": metadata }),
                ),
                (
                    format!("{rbac}/roles"),
                    json!({ "metadata": metadata, "rules": [rule] }),
                ),
                (
                    format!("{rbac}/rolebindings"),
                    json!({ "metadata": metadata, "roleRef": role, "subjects": [subject] }),
                ),
            ] {
                cluster.send(Request::post(path).json(&object).unwrap());
            }
        }
        Some(Self {
            cluster,
            namespace,
            kubeconfig,
            tokens: Mutex::default(),
        })
    }

    /// Returns a configuration without credentials for the server.
    pub(crate) fn config(&self) -> Config {
        Config::from_kubeconfig(&self.kubeconfig, None)
            .unwrap()
            .token("")
    }

    /// Creates a token.
    pub(crate) fn token(&self) -> Token {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let secret = format!("token-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let text = match self.cluster.embedded_server() {
            Some(_) => format!("embedded-{secret}"),
            None => {
                let metadata = json!({ "metadata": { "name": secret } });
                let made = Request::post(self.namespace.path("secrets"))
                    .json(&metadata)
                    .unwrap();
                let made = self.cluster.send(made);
                let bound = json!({
                    "apiVersion": "v1", "kind": "Secret", "name": secret, "uid": made["metadata"]["uid"],
                });
                let spec = json!({ "spec": { "audiences": [], "boundObjectRef": bound } });
                let path = format!("{}/{NAME}/token", self.namespace.path("serviceaccounts"));
                let response = self.cluster.send(Request::post(path).json(&spec).unwrap());
                response["status"]["token"].as_str().unwrap().to_owned()
            }
        };
        let token = Token { text, secret };
        self.tokens.lock().unwrap().push(token.clone());
        self.update_embedded_server();
        token
    }

    /// Revokes the token. A real server may accept it for ten more seconds.
    pub(crate) fn revoke(&self, token: &Token) {
        self.tokens.lock().unwrap().retain(|valid| valid != token);
        self.update_embedded_server();
        if self.cluster.embedded_server().is_none() {
            self.cluster.send(Request::delete(format!(
                "{}/{}",
                self.namespace.path("secrets"),
                token.secret
            )));
        }
    }

    fn update_embedded_server(&self) {
        if let Some(server) = self.cluster.embedded_server() {
            let tokens = self.tokens.lock().unwrap();
            let valid = tokens.iter().map(|token| token.text.as_str());
            server.set_tokens(valid.chain([ADMIN, READER]));
        }
    }
}
