use serde_json::Value;

use super::entry::Entry;
use super::schema::{Cluster, non_empty};
use crate::base::text::Reason;
use crate::client::config::{Config, ProxyChoice, TlsServerName};
use crate::client::credential_data::Secret;

/// The extension of a cluster that holds data for a credential plugin.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

impl Entry<Cluster> {
    /// Sets the proxy and the compression. The client-go counterparts are `validateClusterInfo` and
    /// the first half of `ClientConfig`.
    pub(super) fn connection(&self, config: &mut Config) -> Result<(), Reason> {
        if let Some(url) = non_empty(&self.value.proxy_url) {
            // Only the scheme is checked here. The rest of the URL is checked when the client is
            // created.
            let scheme = url
                .split_once(':')
                .map(|(scheme, _)| scheme.to_ascii_lowercase());
            if !matches!(scheme.as_deref(), Some("http" | "https" | "socks5")) {
                return Err(format!(
                    "the proxy-url of the cluster {:?} does not begin with http://, https:// or socks5://",
                    self.name
                ).into());
            }
            config.proxy = ProxyChoice::Url(Secret(url.to_owned()));
        }
        config.compression = !self.value.disable_compression;
        Ok(())
    }

    /// Sets the TLS options. `renamed` means that the URL was overridden, so that the cluster's
    /// `tls-server-name` does not apply.
    pub(super) fn trust(&self, config: &mut Config, renamed: bool) -> Result<(), Reason> {
        // Destructured so that a new field can't be forgotten.
        let Cluster {
            server: _,
            certificate_authority,
            certificate_authority_data,
            insecure_skip_tls_verify,
            tls_server_name,
            proxy_url: _,
            disable_compression: _,
            extensions: _,
        } = &self.value;
        config.ca = self.pem_source(
            "cluster",
            "certificate-authority",
            certificate_authority_data,
            certificate_authority,
        )?;
        config.insecure = *insecure_skip_tls_verify;
        if !renamed {
            config.tls_server_name = non_empty(tls_server_name).map(|name| TlsServerName {
                what: format!("tls-server-name of cluster {:?}", self.name),
                name: name.to_owned(),
            });
        }
        Ok(())
    }

    /// The cluster's data for the credential plugin of the user.
    pub(super) fn exec_config(&self) -> Option<Value> {
        let mut extensions = self.value.extensions.iter();
        let extension = extensions.find(|extension| extension.name == EXEC_EXTENSION)?;
        extension.extension.clone()
    }
}
