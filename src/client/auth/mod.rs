//! Authentication: the headers of each request, and new credentials after a 401.

pub(crate) mod exec;
mod header;
mod id_token;
mod impersonate;
mod token_file;

use std::sync::Arc;

use ureq::http::HeaderValue;
use ureq::http::request::Builder;

use self::exec::{ClusterInfo, Credential, Plugin};
use self::header::{basic, bearer};
use self::id_token::ValidIdToken;
use self::impersonate::ImpersonationHeaders;
use self::token_file::TokenFile;
use super::config::{Config, ProxyChoice};
use super::credential_data::{Pem, PemSource, config_error, credentials_error};
use crate::error::Error;
use crate::stop::Stop;

/// The authentication of a client. [`Connections`](super::connections::Connections) handles
/// configured client certificates.
pub(super) struct Auth {
    method: AuthMethod,
    impersonation: Option<ImpersonationHeaders>,
    /// The credentials and their source, for messages: `with the token of user "jane"`.
    sent: String,
}

enum AuthMethod {
    /// No header: anonymous requests, or a configured client certificate.
    Anonymous,
    /// The same header for every request.
    Fixed(HeaderValue),
    TokenFile(TokenFile),
    IdToken(ValidIdToken),
    Exec(Plugin),
}

/// The credentials of one request.
#[derive(Default)]
pub(super) struct Identity {
    header: Option<HeaderValue>,
    /// The credential of a plugin, which can have a token (also in `header`), a certificate, or
    /// both.
    credential: Option<Arc<Credential>>,
}

impl Identity {
    fn pair(&self) -> Option<&exec::Identity> {
        self.credential.as_ref()?.certificate.as_ref()
    }

    /// Whether this identity and `other` send the same credentials to the server.
    pub(super) fn is_equivalent_to(&self, other: &Self) -> bool {
        self.header == other.header && self.pair() == other.pair()
    }
}

impl Auth {
    pub(super) fn new(config: &Config) -> Result<Self, Error> {
        let method = AuthMethod::new(config)?;
        let impersonation = config
            .impersonation
            .as_ref()
            .map(ImpersonationHeaders::new)
            .transpose()?;
        Ok(Self {
            sent: method.described(config),
            method,
            impersonation,
        })
    }

    /// Describes the credentials without their content.
    pub(super) fn sent(&self) -> &str {
        &self.sent
    }

    /// Returns the current credentials. Blocks while a plugin runs.
    pub(super) fn identity(&self, stop: &Stop) -> Result<Identity, Error> {
        let header = match &self.method {
            AuthMethod::Anonymous => None,
            AuthMethod::Fixed(header) => Some(header.clone()),
            AuthMethod::TokenFile(file) => file.header(),
            AuthMethod::IdToken(token) => Some(token.header()?),
            AuthMethod::Exec(plugin) => {
                let credential = plugin.credential(stop)?;
                let header = credential
                    .token
                    .as_ref()
                    .map(|token| bearer(&token.0))
                    .transpose();
                let header = header.map_err(|problem| {
                    plugin.reject(&credential);
                    let name = plugin.display_name();
                    credentials_error(format!("the token of {name} {problem}"))
                })?;
                return Ok(Identity {
                    header,
                    credential: Some(credential),
                });
            }
        };
        Ok(Identity {
            header,
            credential: None,
        })
    }

    /// The client certificate from a plugin and its key.
    pub(super) fn certificate(&self, identity: &Identity) -> Option<Result<(Pem, Pem), Error>> {
        let (AuthMethod::Exec(plugin), Some(pair)) = (&self.method, identity.pair()) else {
            return None;
        };
        let name = plugin.display_name();
        let pem =
            |what, bytes: &[u8]| PemSource::bytes(format!("the {what} of {name}"), bytes).read();
        Some(pem("certificate", &pair.chain).and_then(|chain| Ok((chain, pem("key", &pair.key)?))))
    }

    /// Marks the credentials as rejected. A plugin then runs again for the next request, unless it
    /// has already returned other credentials.
    pub(super) fn reject(&self, identity: &Identity) {
        if let (AuthMethod::Exec(plugin), Some(credential)) = (&self.method, &identity.credential) {
            plugin.reject(credential);
        }
    }

    /// Adds the headers to a request.
    pub(super) fn sign(&self, identity: &Identity, mut head: Builder) -> Builder {
        if let Some(header) = &identity.header {
            head = head.header(ureq::http::header::AUTHORIZATION, header);
        }
        match &self.impersonation {
            Some(impersonation) => impersonation.add_to(head),
            None => head,
        }
    }
}

impl AuthMethod {
    fn described(&self, config: &Config) -> String {
        let of = match &config.user {
            Some(user) => format!(" of user {user:?}"),
            None => String::new(),
        };
        match (self, &config.token_file, &config.client_certificate) {
            (Self::TokenFile(_), Some(file), _) => format!("with the token in {}", file.display()),
            (Self::Exec(plugin), ..) => format!("with the credential of {}", plugin.display_name()),
            (Self::IdToken(token), ..) => format!("with {}", token.what()),
            (Self::Anonymous, _, Some(certificate)) => format!("with {}", certificate.what),
            (Self::Anonymous, ..) => "without credentials".to_owned(),
            _ if config.basic.is_some() => format!("with the user name and password{of}"),
            _ => format!("with the token{of}"),
        }
    }

    fn new(config: &Config) -> Result<Self, Error> {
        let inline = match &config.token {
            Some(token) if !token.0.trim().is_empty() => {
                let header = bearer(token.0.trim());
                Some(header.map_err(|problem| config_error(format!("the token {problem}")))?)
            }
            _ => None,
        };
        if config.basic.is_some() && (inline.is_some() || config.token_file.is_some()) {
            return Err(config_error(
                "a user name and a token can't be used together",
            ));
        }
        if let Some((user, password)) = &config.basic {
            return Ok(Self::Fixed(basic(user, &password.0)));
        }
        if let Some(file) = &config.token_file {
            return Ok(Self::TokenFile(TokenFile::new(file, inline)?));
        }
        if let Some(header) = inline {
            return Ok(Self::Fixed(header));
        }
        match (&config.id_token, &config.exec) {
            (Some(_), Some(_)) => Err(config_error(
                "an id-token and an exec plugin can't be used together",
            )),
            (Some(token), None) => Ok(Self::IdToken(ValidIdToken::new(token)?)),
            // As in client-go, the plugin is not used if there is a client certificate.
            (None, Some(exec)) if config.client_certificate.is_none() => {
                let metrics = config.policy.metrics.clone();
                Ok(Self::Exec(Plugin::new(
                    exec,
                    cluster_info(config)?,
                    metrics,
                )?))
            }
            _ => Ok(Self::Anonymous),
        }
    }
}

fn cluster_info(config: &Config) -> Result<ClusterInfo, Error> {
    let ca = config.ca.as_ref().map(PemSource::read).transpose()?;
    Ok(ClusterInfo {
        server: config.server.to_string(),
        tls_server_name: config
            .tls_server_name
            .as_ref()
            .map_or_else(String::new, |setting| setting.name.clone()),
        insecure_skip_tls_verify: config.insecure,
        certificate_authority_data: ca.map(|ca| ca.bytes.to_vec()).unwrap_or_default(),
        proxy_url: match &config.proxy {
            ProxyChoice::Url(url) => url.0.clone(),
            ProxyChoice::Environment | ProxyChoice::Direct => String::new(),
        },
        disable_compression: !config.compression,
    })
}
