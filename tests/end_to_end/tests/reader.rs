//! An account that may list and watch ConfigMaps only in namespaces that allow it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_informer::Client;
use k8s_informer::client::Request;
use k8s_informer_testing::{Fault, RequestRecord, Verb};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace};
use crate::proxy::Proxy;

/// The account's token on the embedded server. That server grants a token all rights or none, so
/// faults reject the requests that the account may not make.
pub(crate) const READER: &str = "embedded-reader";

pub(crate) struct Reader<'a> {
    cluster: &'a Cluster,
    client: Client,
    allowed: Arc<Mutex<BTreeSet<String>>>,
}

impl<'a> Reader<'a> {
    /// Creates an account without rights in `namespaces` that connects through `proxy`. Returns
    /// `None` if the cluster has no such account.
    pub(crate) fn of(
        cluster: &'a Cluster,
        proxy: &Proxy,
        namespaces: &[&Namespace<'_>],
    ) -> Option<Self> {
        let path = cluster.reader_kubeconfig()?;
        let client = cluster.client_of(&path, proxy);
        let allowed = Arc::<Mutex<BTreeSet<String>>>::default();
        if let Some(server) = cluster.embedded_server() {
            for (namespace, verb) in namespaces
                .iter()
                .flat_map(|one| [(one, Verb::List), (one, Verb::Watch)])
            {
                let (name, path, allowed) = (
                    &namespace.name,
                    namespace.path("configmaps"),
                    Arc::clone(&allowed),
                );
                let message = format!(
                    "configmaps is forbidden: User \"token-nobody\" cannot {} resource \"configmaps\" in \
                     API group \"\" in the namespace {name:?}",
                    if verb == Verb::List { "list" } else { "watch" }
                );
                let name = name.clone();
                let applies = move |request: &RequestRecord| {
                    let is_reader =
                        request.header("authorization") == Some(&format!("Bearer {READER}"));
                    let is_allowed = allowed
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .contains(&name);
                    is_reader && request.path() == path && !is_allowed
                };
                server.fail_next(
                    Fault::status_with_message(403, message)
                        .on(verb)
                        .when(applies)
                        .always(),
                );
            }
        }
        Some(Self {
            cluster,
            client,
            allowed,
        })
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Grants the rights in `namespace`.
    pub(crate) fn allow(&self, namespace: &Namespace<'_>) {
        self.allowed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(namespace.name.clone());
        if self.cluster.embedded_server().is_some() {
            return;
        }
        let rule =
            json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] });
        grant(self.cluster, &namespace.name, &rule);
    }

    /// Revokes the rights in `namespace`. An open watch continues.
    pub(crate) fn deny(&self, namespace: &Namespace<'_>) {
        self.allowed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&namespace.name);
        if self.cluster.embedded_server().is_none() {
            let binding = format!("{}/reader", bindings(&namespace.name));
            self.cluster.send(Request::delete(binding));
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if self.cluster.embedded_server().is_some() {
            return;
        }
        for name in &*self.allowed.lock().unwrap_or_else(PoisonError::into_inner) {
            revoke_all(self.cluster, name);
        }
    }
}

/// Grants `token-nobody` the rights of a rule in a namespace of a real server.
pub(crate) fn grant(cluster: &Cluster, namespace: &str, rule: &Value) {
    let role = json!({ "metadata": { "name": "reader" }, "rules": [rule] });
    // Ignore the result: the role already exists if the rights were granted before.
    let _ = cluster.try_send(Request::post(roles(namespace)).json(&role).unwrap());
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": "reader" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "token-nobody" }],
    });
    cluster.send(Request::post(bindings(namespace)).json(&binding).unwrap());
}

/// Deletes all roles in a namespace of a real server.
pub(crate) fn revoke_all(cluster: &Cluster, namespace: &str) {
    let _ = cluster.try_send(Request::delete(bindings(namespace)));
    let _ = cluster.try_send(Request::delete(roles(namespace)));
}

fn roles(namespace: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles")
}

fn bindings(namespace: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")
}
