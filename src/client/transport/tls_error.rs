//! Describes TLS errors: the cause, the place and the remedy.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription as Alert, CertificateError, InvalidMessage, OtherError, PeerIncompatible,
    SignatureScheme,
};

use crate::error::{Error, ErrorKind};

/// The other side of a TLS connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) enum PeerKind {
    Server,
    Proxy,
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "the server",
            Self::Proxy => "the proxy",
        })
    }
}

/// Returns the error of a verifier that rejects a certificate for this reason. rustls passes it on.
pub(super) fn refused(reason: String) -> rustls::Error {
    let reason = Box::<dyn std::error::Error + Send + Sync>::from(reason);
    CertificateError::Other(OtherError(reason.into())).into()
}

/// The client certificate of connections to one peer. Describes the errors of these connections.
#[derive(Debug)]
pub(super) struct Identity {
    peer: PeerKind,
    key: Option<(Arc<CertifiedKey>, String)>,
    /// What the latest handshake did with the key.
    state: AtomicU8,
}

const NOT_REQUESTED: u8 = 0;
const SENT: u8 = 1;
const UNUSABLE: u8 = 2;

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let key = self.key.as_ref().map(|(key, _)| key);
        let usable = key.filter(|key| key.key.choose_scheme(schemes).is_some());
        let state = if usable.is_some() { SENT } else { UNUSABLE };
        self.state.store(state, Ordering::Relaxed);
        usable.cloned()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

impl Identity {
    /// `key` is the chain and the key, and its description for messages.
    pub(super) fn new(peer: PeerKind, key: Option<(Arc<CertifiedKey>, String)>) -> Self {
        Self {
            peer,
            key,
            state: AtomicU8::default(),
        }
    }

    /// Called at the start of a handshake.
    pub(super) fn begin(&self) {
        self.state.store(NOT_REQUESTED, Ordering::Relaxed);
    }

    /// Converts a TLS error that is wrapped in an IO error to our own error type, which
    /// `error::from_io` unwraps again.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => io::Error::other(Error::new(ErrorKind::Tls(self.text(error)))),
            None => error,
        }
    }

    fn text(&self, error: &rustls::Error) -> String {
        use rustls::Error as Tls;
        let peer = self.peer;
        let cause = match error {
            Tls::InvalidCertificate(CertificateError::Other(OtherError(reason))) => {
                return reason.to_string();
            }
            Tls::InvalidCertificate(_) => {
                "does not have the key of its certificate, or signs with an algorithm that does \
                 not fit it"
            }
            Tls::InvalidMessage(InvalidMessage::InvalidContentType) => {
                "does not speak TLS on this port; should its URL start with http:// instead of \
                 https://?"
            }
            Tls::InvalidMessage(
                InvalidMessage::HandshakePayloadTooLarge
                | InvalidMessage::CertificatePayloadTooLarge,
            ) => "sends more than 64 KiB of certificates; it must send fewer, or smaller ones",
            Tls::AlertReceived(Alert::ProtocolVersion)
            | Tls::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => "supports neither TLS 1.2 nor TLS 1.3; it must be updated or reconfigured",
            Tls::AlertReceived(
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::CertificateRequired,
            ) => return self.rejected(error),
            Tls::AlertReceived(Alert::HandshakeFailure)
                if self.state.load(Ordering::Relaxed) != NOT_REQUESTED =>
            {
                return self.rejected(error);
            }
            // Without a client certificate, this alert is about the handshake as a whole.
            Tls::AlertReceived(Alert::DecryptError)
                if self.state.load(Ordering::Relaxed) == SENT =>
            {
                return self.rejected(error);
            }
            Tls::PeerIncompatible(
                PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
            ) => return self.rejected(error),
            Tls::AlertReceived(Alert::HandshakeFailure | Alert::InsufficientSecurity) => {
                "has no cipher suite, curve or key in common with this client. It needs ECDHE with \
                 AES-GCM or ChaCha20 (not CBC), X25519, P-256 or P-384, and a key of RSA, P-256, \
                 P-384 or Ed25519 (P-521 needs k8s-informer's feature aws-lc-rs)"
            }
            Tls::PeerIncompatible(PeerIncompatible::ExtendedMasterSecretExtensionRequired) => {
                "does not support TLS 1.3 or the extended master secret, which FIPS requires"
            }
            Tls::AlertReceived(Alert::UnrecognisedName) => {
                "has no certificate for the requested name, that of its URL or tls-server-name"
            }
            Tls::AlertReceived(Alert::NoApplicationProtocol) => "does not offer HTTP/1.1",
            Tls::AlertReceived(_) => return format!("{peer} ended the TLS connection ({error})"),
            // Errors on this side.
            Tls::FailedToGetCurrentTime
            | Tls::FailedToGetRandomBytes
            | Tls::General(_)
            | Tls::Other(_) => return error.to_string(),
            _ => {
                return format!(
                    "{peer}, or a device on the path, violates the TLS protocol ({error})"
                );
            }
        };
        format!("{peer} {cause}")
    }

    /// Describes the rejection of the client certificate.
    fn rejected(&self, error: &rustls::Error) -> String {
        let peer = self.peer;
        let Some((_, description)) = &self.key else {
            let remedy = match peer {
                PeerKind::Server => "and none is configured (client-certificate)",
                PeerKind::Proxy => "which is sent only to servers",
            };
            return format!("{peer} requires a client certificate, {remedy}");
        };
        if self.state.load(Ordering::Relaxed) == UNUSABLE {
            return format!(
                "{peer} accepts no signature of the key of the client certificate {description}"
            );
        }
        let reason = match error {
            rustls::Error::AlertReceived(Alert::UnknownCA) => "its issuer is not trusted there",
            rustls::Error::AlertReceived(Alert::CertificateExpired) => {
                "it has expired, or is not valid yet"
            }
            rustls::Error::AlertReceived(Alert::DecryptError) => {
                "the signature is not that of its key"
            }
            _ => {
                "it is revoked, malformed, not for clients (extendedKeyUsage) or otherwise not \
                 accepted"
            }
        };
        format!("{peer} rejects the client certificate {description}: {reason}")
    }
}
