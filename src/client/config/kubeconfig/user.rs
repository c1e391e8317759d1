use serde_json::Value;

use super::entry::Entry;
use super::schema::{AuthProvider, Exec, User, Variable, non_empty};
use crate::base::text::Reason;
use crate::client::config::{Config, ExecConfig, IdToken, Impersonation, InteractiveMode};
use crate::client::credential_data::Secret;

impl Entry<User> {
    /// Sets the credentials of the user. `cluster` is the cluster's data for the credential plugin.
    /// The client-go counterparts are `validateAuthInfo` and `getUserIdentificationPartialConfig`.
    pub(super) fn authenticate(
        &self,
        config: &mut Config,
        cluster: Option<Value>,
    ) -> Result<(), Reason> {
        // Destructured so that a new field can't be forgotten.
        let User {
            client_certificate,
            client_certificate_data,
            client_key,
            client_key_data,
            token,
            token_file,
            username,
            password,
            exec,
            auth_provider,
            impersonate: _,
            as_uid: _,
            as_groups: _,
            as_user_extra: _,
        } = &self.value;
        let basic = !username.is_empty() || !password.is_empty();
        if basic && !token.is_empty() {
            return Err(self.problem(
                "has both a token and a username or password: only one of them is allowed",
            ));
        }
        if exec.is_some() && auth_provider.is_some() {
            return Err(
                self.problem("has both exec and auth-provider: only one of them is allowed")
            );
        }
        config.client_certificate = self.pem_source(
            "user",
            "client-certificate",
            client_certificate_data,
            client_certificate,
        )?;
        // As in kubectl, a key without a certificate is ignored.
        if config.client_certificate.is_some() {
            config.client_key =
                self.pem_source("user", "client-key", client_key_data, client_key)?;
            if config.client_key.is_none() {
                return Err(self.problem(
                    "has a client-certificate but neither client-key nor client-key-data",
                ));
            }
        }
        config.token = non_empty(token).map(|token| Secret(token.to_owned()));
        config.token_file = non_empty(token_file).map(|file| self.path(file));
        config.basic = non_empty(username).map(|name| (name.to_owned(), Secret(password.clone())));
        config.exec = exec
            .as_ref()
            .map(|exec| self.plugin(exec, cluster))
            .transpose()?;
        config.id_token = auth_provider
            .as_ref()
            .map(|provider| self.id_token(provider))
            .transpose()?;
        Ok(())
    }

    pub(super) fn impersonation(&self) -> Result<Option<Impersonation>, Reason> {
        let User {
            impersonate,
            as_uid,
            as_groups,
            as_user_extra,
            ..
        } = &self.value;
        let Some(user) = non_empty(impersonate) else {
            if as_uid.is_empty() && as_groups.is_empty() && as_user_extra.is_empty() {
                return Ok(None);
            }
            return Err(self.problem(
                "has as-uid, as-groups or as-user-extra, but no as: set it to the user to impersonate",
            ));
        };
        let mut impersonation = Impersonation::user(user);
        impersonation.uid = non_empty(as_uid).map(str::to_owned);
        impersonation.groups.clone_from(as_groups);
        for (key, values) in as_user_extra {
            let pairs = values.iter().map(|value| (key.clone(), value.clone()));
            impersonation.extra.extend(pairs);
        }
        Ok(Some(impersonation))
    }

    fn plugin(&self, exec: &Exec, cluster: Option<Value>) -> Result<ExecConfig, Reason> {
        let Exec {
            command,
            args,
            env,
            api_version,
            install_hint,
            provide_cluster_info,
            interactive_mode,
        } = exec;
        let Some(command) = non_empty(command) else {
            return Err(self.problem("has exec without a command"));
        };
        let Some(api_version) = non_empty(api_version) else {
            return Err(self.problem("has exec without an apiVersion"));
        };
        let mode = match (non_empty(interactive_mode), api_version) {
            (Some("Never"), _) => InteractiveMode::Never,
            (Some("IfAvailable"), _) => InteractiveMode::IfAvailable,
            (Some("Always"), _) => InteractiveMode::Always,
            (Some(_), _) => {
                return Err(self.problem(
                    "has exec with an unknown interactiveMode: use Never, IfAvailable or Always",
                ));
            }
            (
                None,
                "client.authentication.k8s.io/v1beta1" | "client.authentication.k8s.io/v1alpha1",
            ) => InteractiveMode::IfAvailable,
            (None, _) => {
                return Err(self.problem(
                    "has exec without an interactiveMode, which its apiVersion requires: Never, IfAvailable \
                     or Always",
                ));
            }
        };
        // Only a name without a separator is looked up in `PATH`.
        let command = match command.contains(std::path::MAIN_SEPARATOR) {
            true => self.path(command),
            false => command.into(),
        };
        let mut plugin = ExecConfig::new(command)
            .args(args)
            .api_version(api_version)
            .interactive_mode(mode)
            .install_hint(install_hint)
            .provide_cluster_info(*provide_cluster_info);
        for Variable { name, value } in env {
            if name.is_empty() {
                return Err(self.problem("has exec with a variable in env that has no name"));
            }
            plugin = plugin.env(name, value);
        }
        Ok(match cluster {
            Some(cluster) => plugin.cluster_config(cluster),
            None => plugin,
        })
    }

    fn id_token(&self, provider: &AuthProvider) -> Result<IdToken, Reason> {
        let AuthProvider { name, config } = provider;
        match &**name {
            "oidc" => match config.get("id-token").and_then(|token| non_empty(token)) {
                Some(token) => Ok(IdToken {
                    what: format!("the id-token of user {:?}", self.name),
                    token: Secret(token.to_owned()),
                }),
                None => Err(self.problem(
                    "has the auth-provider oidc without an id-token, and this crate does not fetch one: log in \
                     first, or use an exec plugin such as kubelogin (kubectl oidc-login) to get tokens",
                )),
            },
            "gcp" => Err(self.problem(
                "has the auth-provider gcp, which Kubernetes has removed: use the exec plugin \
                 gke-gcloud-auth-plugin (gcloud container clusters get-credentials)",
            )),
            "azure" => Err(self.problem(
                "has the auth-provider azure, which Kubernetes has removed: use the exec plugin kubelogin \
                 (kubelogin convert-kubeconfig)",
            )),
            other => Err(self.problem(&format!(
                "has the auth-provider {other:?}, which is not supported: use oidc or an exec plugin"
            ))),
        }
    }

    fn problem(&self, what: &str) -> Reason {
        format!("the user {:?} {what}", self.name).into()
    }
}
