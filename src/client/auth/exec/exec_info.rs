//! Encodes the input of a credential plugin: the `ExecCredential` in its environment.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The environment variable with the encoded object.
pub(super) const VARIABLE: &str = "KUBERNETES_EXEC_INFO";

/// The data about the cluster for a plugin. The client-go counterpart is
/// `clientauthentication.Cluster`. client-go's field `Config` is not part of this struct; it is the
/// plugin's `cluster_config`. This struct has no `Debug`, because the URL of the proxy may contain
/// a password.
#[derive(Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::client) struct ClusterInfo {
    pub(in crate::client) server: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(in crate::client) tls_server_name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::client) insecure_skip_tls_verify: bool,
    /// The PEM data, even if the CA was configured as a file. Empty for the authorities of the
    /// system.
    #[serde(serialize_with = "base64", skip_serializing_if = "Vec::is_empty")]
    pub(in crate::client) certificate_authority_data: Vec<u8>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(in crate::client) proxy_url: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::client) disable_compression: bool,
}

/// Encodes the object as JSON. `cluster` is set only if the plugin requests information about the
/// cluster.
pub(super) fn encode(
    api_version: &str,
    interactive: bool,
    cluster: Option<(&ClusterInfo, Option<&Value>)>,
) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ExecCredential<'a> {
        kind: &'static str,
        api_version: &'a str,
        spec: Spec<'a>,
    }
    #[derive(Serialize)]
    struct Spec<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<Cluster<'a>>,
        interactive: bool,
    }
    #[derive(Serialize)]
    struct Cluster<'a> {
        #[serde(flatten)]
        info: &'a ClusterInfo,
        /// Written as `null` if absent, as Go does.
        config: Option<&'a Value>,
    }
    let cluster = cluster.map(|(info, config)| Cluster { info, config });
    serde_json::to_string(&ExecCredential {
        kind: "ExecCredential",
        api_version,
        spec: Spec {
            cluster,
            interactive,
        },
    })
}

fn base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exec_info_matches_client_go() {
        let version = "client.authentication.k8s.io/v1";
        assert_eq!(
            encode(version, true, None).unwrap(),
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":true}}"#
        );
        let bare = ClusterInfo {
            server: "https://api".to_owned(),
            ..ClusterInfo::default()
        };
        assert_eq!(
            encode(version, false, Some((&bare, None))).unwrap(),
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://api","config":null},"interactive":false}}"#
        );
        let full = ClusterInfo {
            server: "https://api".to_owned(),
            tls_server_name: "name".to_owned(),
            insecure_skip_tls_verify: true,
            certificate_authority_data: b"ca!".to_vec(),
            proxy_url: "http://proxy:3128".to_owned(),
            disable_compression: true,
        };
        let config = json!({"audience": "snorlax"});
        let written: Value =
            serde_json::from_str(&encode(version, false, Some((&full, Some(&config)))).unwrap())
                .unwrap();
        assert_eq!(
            written["spec"]["cluster"],
            json!({
                "server": "https://api",
                "tls-server-name": "name",
                "insecure-skip-tls-verify": true,
                "certificate-authority-data": "Y2Eh",
                "proxy-url": "http://proxy:3128",
                "disable-compression": true,
                "config": {"audience": "snorlax"},
            })
        );
    }
}
