//! Creates rustls configurations from PEM data. No rustls type is part of the public API.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, InconsistentKeys, RootCertStore,
    SignatureScheme,
};

use super::authority::without_brackets;
use crate::client::credential_data::{Pem, PemSource, config_error};
use crate::error::Error;
use crate::log;

/// The TLS settings that all connections to the server share, including resumable sessions.
#[derive(Debug)]
pub(in crate::client) struct Tls {
    pub(in crate::client) config: Arc<ClientConfig>,
    pub(in crate::client) server_name: ServerName<'static>,
}

impl Tls {
    fn new(mut config: ClientConfig, peer: &Peer) -> Self {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            config: Arc::new(config),
            server_name: peer.server_name.clone(),
        }
    }
}

/// The name that the server's certificate must match, and the other settings that never change.
#[derive(Debug)]
pub(in crate::client) struct Peer {
    server_name: ServerName<'static>,
    insecure: bool,
}

impl Peer {
    /// Creates the settings. `name` is a host as written in a URL. With `insecure`, any certificate
    /// is accepted.
    pub(in crate::client) fn new(name: &str, insecure: bool) -> Result<Self, Error> {
        // Removes the zone, which is meaningful only on this machine and never part of a
        // certificate.
        let host = without_brackets(name).split('%').next().unwrap_or_default();
        let server_name = ServerName::try_from(host.to_owned()).map_err(|_| {
            config_error(format!(
                "{name:?} is not a valid server name for a certificate"
            ))
        })?;
        Ok(Self {
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
    let builder = builder_with_roots(peer, || match &pems.ca {
        Some(ca) => authorities(ca),
        None => system_authorities(),
    })?;
    let tls = match &pems.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let identity = identity(builder.crypto_provider(), certificate, key)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
        }
    };
    Ok(Tls::new(tls, peer))
}

/// Loads a client certificate and checks that the key belongs to it.
///
/// Only the server decides whether the certificate is valid. A certificate that this code can't
/// parse, such as X.509 version 1, may be valid for the server.
fn identity(
    provider: &CryptoProvider,
    certificate: &Pem,
    key: &Pem,
) -> Result<CertifiedKey, Error> {
    let chain = certificates(certificate)?;
    let parsed = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| match error {
        _ if is_encrypted(&key.bytes) => {
            config_error(format!("{key}: encrypted keys are not supported"))
        }
        pem::Error::NoItemsFound => config_error(format!("{key}: no private key in PEM form")),
        // The message of the original error is omitted, because it would quote the data.
        _ => config_error(format!("{key}: not valid PEM")),
    })?;
    let parsed = provider
        .key_provider
        .load_private_key(parsed)
        .map_err(|_| {
            let other = if cfg!(feature = "ring") {
                "; P-521 needs the feature aws-lc-rs instead of ring"
            } else {
                ""
            };
            config_error(format!(
                "{key}: the type or size of the key is not supported; use RSA, P-256, P-384 or Ed25519{other}"
            ))
        })?;
    let identity = CertifiedKey::new(chain, parsed);
    match identity.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(config_error(
            format!("{key} is not the key of {certificate}"),
        )),
        _ => Ok(identity),
    }
}

/// Returns the TLS settings for an `https` proxy. `host` is its host as written in the URL.
///
/// The certificate must match this host and be signed by an authority of the system or by the
/// configured authority. The client certificate and `tls-server-name` apply only to the server.
/// insecure-skip-tls-verify applies to the proxy and the server.
pub(in crate::client) fn proxy_tls(
    host: &str,
    insecure: bool,
    ca: Option<&Pem>,
) -> Result<Tls, Error> {
    let peer = Peer::new(host, insecure)?;
    let builder = builder_with_roots(&peer, || match (ca, system_authorities()) {
        (None, system) => system,
        (Some(ca), Err(_)) => authorities(ca),
        (Some(ca), Ok(mut system)) => {
            system.roots.extend(authorities(ca)?.roots);
            Ok(system)
        }
    })?;
    Ok(Tls::new(builder.with_no_client_auth(), &peer))
}

/// Returns a builder that trusts these authorities, or any certificate if the peer is
/// [insecure](Peer::new).
fn builder_with_roots(
    peer: &Peer,
    authorities: impl FnOnce() -> Result<RootCertStore, Error>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let provider = provider()?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| config_error(format!("TLS: {error}")))?;
    Ok(match peer.insecure {
        true => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider))),
        false => builder.with_root_certificates(authorities()?),
    })
}

/// Returns the crypto provider of the enabled feature; `ring` if both are enabled. It is always set
/// explicitly, because rustls panics if it has to choose between two linked providers.
fn provider() -> Result<Arc<CryptoProvider>, Error> {
    #[cfg(feature = "ring")]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(all(feature = "aws-lc-rs", not(feature = "ring")))]
    return Ok(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    Err(config_error(
        "https needs k8s-informer's feature `ring` or `aws-lc-rs`; this program has neither",
    ))
}

fn is_encrypted(key: &[u8]) -> bool {
    let key = String::from_utf8_lossy(key);
    key.contains("BEGIN ENCRYPTED PRIVATE KEY") || key.contains("Proc-Type: 4,ENCRYPTED")
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(config_error(format!("{pem}: no certificate in PEM form")))
        }
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(config_error(format!("{pem}: not valid PEM"))),
    }
}

fn authorities(pem: &Pem) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (_, ignored) = roots.add_parsable_certificates(certificates(pem)?);
    if roots.is_empty() {
        return Err(config_error(format!(
            "{pem}: no certificate can be used as an authority"
        )));
    }
    if ignored > 0 {
        log::warn!(
            "{pem}: certificates ignored because they can't be used as an authority: {ignored}"
        );
    }
    Ok(roots)
}

/// Loads the system's bundle of certificate authorities from the file in `SSL_CERT_FILE`, or else
/// from the first of the usual paths that exists.
fn system_authorities() -> Result<RootCertStore, Error> {
    const BUNDLES: [&str; 6] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
        "/usr/local/etc/ssl/cert.pem",
    ];
    const WHAT: &str = "the certificate authorities of the system";
    if let Some(file) = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
        return authorities(&PemSource::file(format!("{WHAT} (SSL_CERT_FILE)"), file).read()?);
    }
    match BUNDLES.iter().find(|bundle| Path::new(bundle).exists()) {
        Some(bundle) => authorities(&PemSource::file(WHAT, *bundle).read()?),
        None => Err(config_error(
            "no certificate authority is configured, and no certificate bundle of the system was found \
             (/etc/ssl/certs/ca-certificates.crt, /etc/pki/tls/certs/ca-bundle.crt, /etc/ssl/cert.pem …); configure a CA or set SSL_CERT_FILE",
        )),
    }
}

/// insecure-skip-tls-verify: accepts any certificate of any authority for any name, as long as the
/// server has the certificate's key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
