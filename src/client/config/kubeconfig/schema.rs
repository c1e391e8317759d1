//! The structure of a kubeconfig. As in kubectl, unknown keys are ignored. `null` and empty strings
//! count as absent.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) kind: Option<String>,
    #[serde(rename = "apiVersion")]
    pub(super) api_version: Option<String>,
    #[serde(rename = "current-context")]
    pub(super) current_context: Option<String>,
    pub(super) clusters: List<NamedCluster>,
    pub(super) users: List<NamedUser>,
    pub(super) contexts: List<NamedContext>,
}

/// A list whose items can be `null`.
pub(super) type List<T> = Option<Vec<Option<T>>>;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedCluster {
    pub(super) name: Option<String>,
    pub(super) cluster: Option<Cluster>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedUser {
    pub(super) name: Option<String>,
    pub(super) user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedContext {
    pub(super) name: Option<String>,
    pub(super) context: Option<Context>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<Flag>,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy_url: Option<String>,
    pub(super) disable_compression: Option<Flag>,
    pub(super) extensions: List<Extension>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    pub(super) name: Option<String>,
    pub(super) extension: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct User {
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    pub(super) client_key_data: Option<String>,
    pub(super) token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) exec: Option<Exec>,
    pub(super) auth_provider: Option<AuthProvider>,
    #[serde(rename = "as")]
    pub(super) impersonate: Option<String>,
    pub(super) as_uid: Option<String>,
    pub(super) as_groups: List<String>,
    pub(super) as_user_extra: Option<BTreeMap<String, List<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Exec {
    pub(super) command: Option<String>,
    pub(super) args: List<String>,
    pub(super) env: List<Variable>,
    pub(super) api_version: Option<String>,
    pub(super) install_hint: Option<String>,
    pub(super) provide_cluster_info: Option<Flag>,
    pub(super) interactive_mode: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: Option<String>,
    pub(super) value: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AuthProvider {
    pub(super) name: Option<String>,
    pub(super) config: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) cluster: Option<String>,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<String>,
}

/// A boolean. A string such as `"true"` is an error.
pub(super) struct Flag(bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FlagVisitor;
        impl Visitor<'_> for FlagVisitor {
            type Value = Flag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a boolean")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Flag, E> {
                Ok(Flag(value))
            }
        }
        deserializer.deserialize_any(FlagVisitor)
    }
}

/// Whether the flag is present and true.
pub(super) fn is_set(flag: &Option<Flag>) -> bool {
    flag.as_ref().is_some_and(|flag| flag.0)
}

/// The string, unless it is absent or empty.
pub(super) fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// The items of a list, which may be absent.
pub(super) fn items<T>(list: &List<T>) -> impl Iterator<Item = Option<&T>> {
    list.iter().flatten().map(Option::as_ref)
}

/// The strings of a list. A `null` item is an empty string.
pub(super) fn strings(list: &List<String>) -> impl Iterator<Item = &str> {
    items(list).map(|text| text.map_or("", String::as_str))
}
