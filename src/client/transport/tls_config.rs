//! Creates rustls configurations from PEM data. No rustls type is part of the public API.

#[cfg(all(unix, not(target_os = "macos")))]
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;

use super::authority::without_brackets;
use super::certificate::Certificate;
use super::pem::{Headers, certificates, private_key};
use super::tls_error::{Identity, PeerKind};
use super::verifier::{NOT_A_CERTIFICATE, Trusted, Verifier};
#[cfg(all(unix, not(target_os = "macos")))]
use crate::client::credential_data::PemSource;
use crate::client::credential_data::{Pem, config_error};
use crate::error::Error;
use crate::log;

/// The TLS settings that all connections to the server share, including resumable sessions.
#[derive(Debug)]
pub(in crate::client) struct Tls {
    pub(in crate::client) config: Arc<ClientConfig>,
    pub(in crate::client) server_name: ServerName<'static>,
    pub(super) identity: Arc<Identity>,
}

/// The name that the server's certificate must match, and the other settings that never change.
#[derive(Debug)]
pub(in crate::client) struct Peer {
    kind: PeerKind,
    server_name: ServerName<'static>,
    insecure: bool,
}

impl Peer {
    /// Creates the settings. `name` is a host as written in a URL, and `what` the setting that it
    /// comes from, for messages. With `insecure`, any certificate is accepted.
    pub(in crate::client) fn new(
        kind: PeerKind,
        what: &str,
        name: &str,
        insecure: bool,
    ) -> Result<Self, Error> {
        // Removes the zone, which is meaningful only on this machine and never part of a
        // certificate.
        let host = without_brackets(name).split('%').next().unwrap_or_default();
        let server_name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let hint = if !host.is_ascii() {
                ", such as xn--…"
            } else if host.contains('*') {
                "; set a name that the wildcard matches"
            } else {
                ""
            };
            config_error(format!(
                "{what}: {name:?} is not a valid server name for a certificate: it must be an \
                 address, or a DNS name in ASCII{hint}"
            ))
        })?;
        Ok(Self {
            kind,
            server_name,
            insecure,
        })
    }
}

/// The current PEM data: the trusted authorities and the client certificate.
#[derive(Clone, PartialEq)]
pub(in crate::client) struct Pems {
    /// `None` means the authorities of the system.
    pub(in crate::client) ca: Option<Pem>,
    /// A certificate chain and its key.
    pub(in crate::client) identity: Option<(Pem, Pem)>,
}

pub(in crate::client) fn server_tls(peer: &Peer, pems: &Pems) -> Result<Tls, Error> {
    tls(peer, pems.identity.as_ref(), || match &pems.ca {
        Some(ca) => configured(ca),
        None => system(),
    })
}

/// Loads a client certificate, with its description for messages. Checks that the key belongs to
/// it.
///
/// Only the server decides whether the certificate is valid.
fn load(
    provider: &CryptoProvider,
    certificate: &Pem,
    key: &Pem,
) -> Result<(Arc<CertifiedKey>, String), Error> {
    let accept = |der: CertificateDer<'static>| match Certificate::read(&der) {
        Some(_) => Ok(der),
        None => Err(NOT_A_CERTIFICATE),
    };
    let chain = certificates(certificate, Headers::Ignored, accept)?;
    let loaded = provider
        .key_provider
        .load_private_key(private_key(key)?)
        .map_err(|_| {
            config_error(format!(
                "{key}: the key is not supported in this form; use RSA with 2048, 3072 or 4096 \
                 bits, P-256, P-384 or Ed25519 (P-521 and other RSA need k8s-informer's feature \
                 aws-lc-rs), or try `openssl pkey`"
            ))
        })?;
    let identity = CertifiedKey::new(chain, loaded);
    let leaf = identity
        .cert
        .first()
        .and_then(|leaf| Certificate::read(leaf));
    // `CertifiedKey::keys_match` compares nothing if webpki cannot read the certificate, for
    // example one of X.509 version 1.
    if let (Some(leaf), Some(public)) = (leaf, identity.key.public_key())
        && !leaf.has_key(&public)
    {
        let algorithms = &provider.signature_verification_algorithms;
        return Err(config_error(match leaf.key_problem(algorithms) {
            // The same key can have several forms.
            Some(problem) => format!("{certificate} {problem}"),
            None => format!("{key} is not the key of {certificate}"),
        }));
    }
    let description = leaf.map_or_else(String::new, |leaf| leaf.describe(certificate));
    Ok((Arc::new(identity), description))
}

/// Returns the TLS settings for an `https` proxy. `host` is its host as written in the URL.
///
/// The certificate must match this host and be trusted by the system or configured. The client
/// certificate and `tls-server-name` apply only to the server. insecure-skip-tls-verify applies to
/// the proxy and the server.
pub(in crate::client) fn proxy_tls(
    host: &str,
    insecure: bool,
    ca: Option<&Pem>,
) -> Result<Tls, Error> {
    let what = "the host of the proxy's URL";
    let peer = Peer::new(PeerKind::Proxy, what, host, insecure)?;
    tls(&peer, None, || match (ca, system()) {
        (None, system) => system,
        (Some(ca), Err(_)) => configured(ca),
        (Some(ca), Ok((mut trusted, from))) => {
            trusted.extend(configured(ca)?.0);
            Ok((trusted, format!("{ca} and {from}")))
        }
    })
}

/// Returns settings with this client certificate. They trust these certificates, or any certificate
/// if the peer is [insecure](Peer::new).
fn tls(
    peer: &Peer,
    identity: Option<&(Pem, Pem)>,
    trusted: impl FnOnce() -> Result<Trust, Error>,
) -> Result<Tls, Error> {
    let provider = provider()?;
    let (algorithms, trust) = match peer.insecure {
        true => (None, Trust::default()),
        false => (Some(provider.signature_verification_algorithms), trusted()?),
    };
    let verifier = Verifier::new(peer.kind, algorithms, trust);
    let key = identity.map(|(certificate, key)| load(&provider, certificate, key));
    let identity = Arc::new(Identity::new(peer.kind, key.transpose()?));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| config_error(format!("TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(identity.clone());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls {
        config: Arc::new(config),
        server_name: peer.server_name.clone(),
        identity,
    })
}

/// Returns the crypto provider that the program has installed, or else that of the enabled feature.
/// If both features are enabled, that is `aws-lc-rs`, because it supports all that `ring` does.
///
/// The provider is always set explicitly, because rustls panics if it has to choose.
fn provider() -> Result<Arc<CryptoProvider>, Error> {
    if let Some(installed) = CryptoProvider::get_default() {
        return Ok(installed.clone());
    }
    #[cfg(feature = "aws-lc-rs")]
    return Ok(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    Err(config_error(
        "https needs k8s-informer's feature `ring` or `aws-lc-rs`, or an installed CryptoProvider \
         of rustls; this program has none",
    ))
}

/// Trusted certificates, and their source for messages.
type Trust = (Vec<Trusted>, String);

fn configured(ca: &Pem) -> Result<Trust, Error> {
    let from = ca.to_string();
    let shared = from.as_str().into();
    let accept = |der| Trusted::new(der, &shared);
    Ok((certificates(ca, Headers::Skipped, accept)?, from))
}

fn system() -> Result<Trust, Error> {
    let mut trusted = system_certificates();
    // The folders usually have the certificates of the bundle, each under several names.
    trusted.sort_unstable_by(|one, other| one.der().cmp(other.der()));
    trusted.dedup_by(|one, other| one.der() == other.der());
    if trusted.is_empty() {
        return Err(config_error(format!(
            "no certificate authority is configured, and {SYSTEM} have no certificate; configure \
             a CA, or set SSL_CERT_FILE or SSL_CERT_DIR"
        )));
    }
    Ok((trusted, SYSTEM.to_owned()))
}

const SYSTEM: &str = "the authorities of the system";

/// Reads the system's bundle and folders. As in Go, `SSL_CERT_FILE` replaces only the bundle, and
/// `SSL_CERT_DIR` only the folders. Files that can't be read are skipped.
#[cfg(all(unix, not(target_os = "macos")))]
fn system_certificates() -> Vec<Trusted> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut found = Vec::<Trusted>::new();
    let mut read = |path: &Path| {
        let read = PemSource::file(SYSTEM, path).read();
        read.and_then(|pem| configured(&pem))
            .map(|(trusted, _)| found.extend(trusted))
    };
    let bundle = match variable("SSL_CERT_FILE") {
        Some(file) => Some(file.into()),
        None => openssl_probe::probe().cert_file,
    };
    if let Some(Err(error)) = bundle.map(|bundle| read(&bundle)) {
        log::warn!("{error}");
    }
    let folders = match variable("SSL_CERT_DIR") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => openssl_probe::probe().cert_dir,
    };
    for folder in folders {
        match std::fs::read_dir(&folder) {
            // A folder can have other files.
            Ok(files) => files.flatten().for_each(|file| drop(read(&file.path()))),
            Err(error) => log::warn!("{SYSTEM} ({}): {error}", folder.display()),
        }
    }
    found
}

/// Reads the keychain of macOS or the certificate stores of Windows, or only what `SSL_CERT_FILE`
/// and `SSL_CERT_DIR` name.
#[cfg(not(all(unix, not(target_os = "macos"))))]
fn system_certificates() -> Vec<Trusted> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        log::warn!("{SYSTEM}: {error}");
    }
    let from = SYSTEM.into();
    let certificates = found.certs.into_iter();
    certificates
        .filter_map(|certificate| Trusted::new(certificate, &from).ok())
        .collect()
}
