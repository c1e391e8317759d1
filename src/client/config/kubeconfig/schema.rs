//! The structure of a kubeconfig. As in kubectl, unknown keys are ignored, `null` is the zero value,
//! and empty strings count as absent.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) kind: String,
    #[serde(rename = "apiVersion")]
    pub(super) api_version: String,
    #[serde(rename = "current-context")]
    pub(super) current_context: String,
    pub(super) clusters: Vec<NamedCluster>,
    pub(super) users: Vec<NamedUser>,
    pub(super) contexts: Vec<NamedContext>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedCluster {
    pub(super) name: String,
    pub(super) cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedUser {
    pub(super) name: String,
    pub(super) user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedContext {
    pub(super) name: String,
    pub(super) context: Context,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) tls_server_name: String,
    pub(super) proxy_url: String,
    pub(super) disable_compression: bool,
    pub(super) extensions: Vec<Extension>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) extension: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct User {
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: String,
    pub(super) client_key: String,
    pub(super) client_key_data: String,
    pub(super) token: String,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: String,
    pub(super) username: String,
    pub(super) password: String,
    pub(super) exec: Option<Exec>,
    pub(super) auth_provider: Option<AuthProvider>,
    #[serde(rename = "as")]
    pub(super) impersonate: String,
    pub(super) as_uid: String,
    pub(super) as_groups: Vec<String>,
    pub(super) as_user_extra: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Exec {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
    pub(super) api_version: String,
    pub(super) install_hint: String,
    pub(super) provide_cluster_info: bool,
    pub(super) interactive_mode: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AuthProvider {
    pub(super) name: String,
    pub(super) config: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) cluster: String,
    pub(super) user: String,
    pub(super) namespace: String,
}

/// The string, unless it is empty.
pub(super) fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
