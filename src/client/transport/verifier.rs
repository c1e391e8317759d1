//! Verifies the certificates of servers and proxies as kubectl does. The authentication page of the
//! guide lists the differences.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use super::certificate::Certificate;
use super::tls_error::{PeerKind, refused};
use crate::base::derive::debug_fields;

pub(super) const NOT_A_CERTIFICATE: &str = "not a well-formed X.509 certificate";

/// A certificate that the user or the system trusts.
pub(super) struct Trusted {
    certificate: CertificateDer<'static>,
    /// The source, for messages.
    from: Arc<str>,
}

impl Trusted {
    pub(super) fn new(
        certificate: CertificateDer<'static>,
        from: &Arc<str>,
    ) -> Result<Self, &'static str> {
        // webpki reads version 1 and 3, and checks the form.
        webpki::anchor_from_trusted_cert(&certificate).map_err(|_| NOT_A_CERTIFICATE)?;
        Ok(Self {
            certificate,
            from: from.clone(),
        })
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.certificate
    }

    fn read(&self) -> Option<Certificate<'_>> {
        Certificate::read(&self.certificate)
    }
}

/// Accepts a certificate that is signed by a trusted authority, or that is itself trusted.
pub(super) struct Verifier {
    peer: PeerKind,
    /// `None` with insecure-skip-tls-verify: accepts every certificate, also one that can't be
    /// read, such as X.509 version 1.
    ///
    /// The signature of the handshake is not verified either. It would prove that the server has
    /// the key of its certificate, but anyone can create a certificate that would be accepted.
    algorithms: Option<WebPkiSupportedAlgorithms>,
    trusted: Vec<Trusted>,
    /// The source of `trusted`, for messages.
    from: String,
    /// The anchors of `trusted`, in the same order.
    anchors: Vec<TrustAnchor<'static>>,
}

impl Verifier {
    pub(super) fn new(
        peer: PeerKind,
        algorithms: Option<WebPkiSupportedAlgorithms>,
        (trusted, from): (Vec<Trusted>, String),
    ) -> Self {
        let anchors = trusted
            .iter()
            .filter_map(|it| webpki::anchor_from_trusted_cert(&it.certificate).ok());
        Self {
            peer,
            algorithms,
            anchors: anchors.map(|anchor| anchor.to_owned()).collect(),
            trusted,
            from,
        }
    }

    fn verify(
        &self,
        algorithms: &WebPkiSupportedAlgorithms,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), String> {
        let certificates = std::iter::once(leaf).chain(intermediates);
        let chain: Vec<_> = certificates.map_while(|it| Certificate::read(it)).collect();
        let Some(read) = chain.first() else {
            return Err(format!("{} presents what is not a certificate", self.peer));
        };
        let end_entity =
            EndEntityCert::try_from(leaf).map_err(|error| self.problem(&error, &chain, now))?;
        if self.trusted.iter().any(|it| it.certificate == *leaf) {
            // webpki would look for an issuer, and it rejects the certificate of an authority.
            read.check(now)
                .map_err(|problem| format!("{}'s certificate {problem}", self.peer))?;
        } else {
            // The reason why a path that is valid for webpki is rejected.
            let rejected = Cell::new(None);
            let verify_path = |path: &VerifiedPath<'_>| {
                self.verify_authorities(path, now).map_err(|problem| {
                    rejected.set(Some(problem));
                    webpki::Error::UnknownIssuer
                })
            };
            end_entity
                .verify_for_usage(
                    algorithms.all,
                    &self.anchors,
                    intermediates,
                    now,
                    KeyUsage::server_auth(),
                    None,
                    Some(&verify_path),
                )
                .map_err(|error| {
                    let rejected = rejected.take();
                    rejected.unwrap_or_else(|| self.problem(&error, &chain, now))
                })?;
        }
        // Go compares an IPv4 address with its IPv6 form as equal.
        let other_form = match name {
            ServerName::IpAddress(address) => match IpAddr::from(*address) {
                IpAddr::V4(address) => Some(IpAddr::V6(address.to_ipv6_mapped())),
                IpAddr::V6(address) => address.to_ipv4_mapped().map(IpAddr::V4),
            },
            _ => None,
        };
        let mut names = std::iter::once(name.clone()).chain(other_form.map(ServerName::from));
        match names.any(|name| end_entity.verify_is_valid_for_subject_name(&name).is_ok()) {
            true => Ok(()),
            false => Err(self.name_problem(read, &name.to_str())),
        }
    }

    /// Checks what webpki does not check of the authorities of a path.
    fn verify_authorities(&self, path: &VerifiedPath<'_>, now: UnixTime) -> Result<(), String> {
        let mut count = 0;
        for intermediate in path.intermediate_certificates() {
            let der = intermediate.der();
            self.check_authority(Certificate::read(&der), count, now, "")?;
            count += 1;
        }
        // webpki returns a reference to one of these anchors.
        let mut all = self.anchors.iter().zip(&self.trusted);
        let found = all.find(|(anchor, _)| std::ptr::eq(*anchor, path.anchor()));
        let (_, trusted) = found.ok_or("the trusted authority can't be found")?;
        let from = format!(", from {},", trusted.from);
        self.check_authority(trusted.read(), count, now, &from)
    }

    fn check_authority(
        &self,
        authority: Option<Certificate<'_>>,
        intermediates: usize,
        now: UnixTime,
        from: &str,
    ) -> Result<(), String> {
        let authority = authority.ok_or("an authority can't be read")?;
        let checked = authority.check(now);
        checked
            .and_then(|()| Ok(authority.check_authority(intermediates)?))
            .map_err(|problem| {
                let (name, peer) = (authority.name(), self.peer);
                format!("the authority {name} above {peer}'s certificate{from} {problem}")
            })
    }

    fn name_problem(&self, leaf: &Certificate<'_>, host: &str) -> String {
        let peer = self.peer;
        let Some(names) = leaf.names() else {
            return format!(
                "{peer}'s certificate has no DNS name and no address in its subjectAltName (SAN); \
                 issue it again with the SAN {host:?}, because the common name is not used"
            );
        };
        let remedy = match peer {
            PeerKind::Server => "set tls-server-name to one of them",
            PeerKind::Proxy => "use one of them in the URL of the proxy",
        };
        format!(
            "{peer}'s certificate is for another name: not for {host}, but for {names}. \
             If this is the right host, {remedy}"
        )
    }

    /// Describes an error of webpki for these certificates.
    fn problem(&self, error: &webpki::Error, chain: &[Certificate<'_>], now: UnixTime) -> String {
        use webpki::Error as Webpki;
        let (peer, from) = (self.peer, &self.from);
        let (leaf, above) = (&chain[0], &chain[1..]);
        let trusted = || self.trusted.iter().filter_map(Trusted::read);
        let is_trusted = |it: &Certificate<'_>| trusted().any(|by| it.is_issued_by(&by));
        let is_issuer = |it: &Certificate<'_>| chain.iter().any(|below| below.is_issued_by(it));
        let weak = || {
            let mut issuers = trusted().chain(above.iter().copied()).filter(is_issuer);
            let (name, problem) = issuers.find_map(|it| Some((it.name(), it.key_problem()?)))?;
            Some(format!(
                "the authority {name} above {peer}'s certificate {problem}"
            ))
        };
        let own = || {
            if let Err(problem) = leaf.check(now) {
                return Some(format!("{peer}'s certificate {problem}"));
            }
            let mut above = above.iter().enumerate();
            above.find_map(|(count, it)| self.check_authority(Some(*it), count, now, "").err())
        };
        let (found, problem): (_, Cow<'_, str>) = match error {
            Webpki::UnknownIssuer | Webpki::InvalidSignatureForPublicKey => {
                // Its issuer is neither trusted nor sent, or is only a root that is sent.
                let is_sent = |it: &&Certificate<'_>| {
                    let mut above = above.iter();
                    above.any(|by| it.is_issued_by(by) && !by.is_issued_by(by))
                };
                let mut all = chain.iter();
                let unknown = all.find(|it| !is_trusted(it) && !is_sent(it));
                let named = || chain.iter().find(|it| is_trusted(it));
                let issuer = unknown.or_else(named).unwrap_or(leaf).issuer_name();
                let detail = if leaf.is_issued_by(leaf) {
                    format!(
                        "it is self-signed, and not in {from}. To trust exactly this certificate, \
                         add it to certificate-authority"
                    )
                } else if unknown.is_none() {
                    format!(
                        "the authority {issuer} has another key than the one of this name in \
                         {from}. If this is the right host, configure the new one"
                    )
                } else {
                    format!(
                        "the authority {issuer} is not in {from}. If this is the right host, add \
                         it to certificate-authority, or let {peer} send its intermediate \
                         certificates"
                    )
                };
                let problem = format!("is not signed by a trusted authority: {detail}");
                (weak(), problem.into())
            }
            Webpki::UnsupportedSignatureAlgorithmContext(_)
            | Webpki::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
                let problem = "is signed with an algorithm that is not supported, such as SHA-1; \
                               issue it again with SHA-256 or SHA-384";
                (weak(), problem.into())
            }
            // Errors that are not listed concern dates, limits of authorities, and the encoding.
            _ => {
                let problem = match error {
                    Webpki::CaUsedAsEndEntity => {
                        "is a CA certificate (CA:TRUE), which must only sign others. Issue one \
                         with CA:FALSE, or, to trust exactly this certificate, add it to \
                         certificate-authority"
                    }
                    Webpki::NameConstraintViolation => {
                        "has a name that an authority above it must not sign (nameConstraints)"
                    }
                    Webpki::UnsupportedCertVersion => {
                        "or one above it is not X.509 version 3, and can have no subjectAltName \
                         (SAN); issue it again"
                    }
                    Webpki::UnsupportedCriticalExtension => {
                        "or one above it has a critical extension that is not supported; issue it \
                         again without it"
                    }
                    Webpki::RequiredEkuNotFoundContext(_) => {
                        "or one above it is not for servers; issue it again with serverAuth in its \
                         extendedKeyUsage"
                    }
                    // The limits of webpki, such as `MaximumPathDepthExceeded`.
                    _ if error.to_string().starts_with("Maximum") => {
                        "has more than 6 authorities above it, or too many names or authorities of \
                         one name"
                    }
                    _ => {
                        let malformed = || format!("{peer}'s chain is malformed ({error})");
                        return own().unwrap_or_else(malformed);
                    }
                };
                (own(), problem.into())
            }
        };
        found.unwrap_or_else(|| format!("{peer}'s certificate {problem}"))
    }

    fn verify_signature(
        &self,
        leaf: &CertificateDer<'_>,
        verify: impl FnOnce(
            &WebPkiSupportedAlgorithms,
        ) -> Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let Some(algorithms) = &self.algorithms else {
            return Ok(HandshakeSignatureValid::assertion());
        };
        verify(algorithms).map_err(|error| {
            match Certificate::read(leaf).and_then(|leaf| leaf.key_problem()) {
                Some(problem) => refused(format!("{}'s certificate {problem}", self.peer)),
                None => error,
            }
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(algorithms) = &self.algorithms {
            self.verify(algorithms, leaf, intermediates, name, now)
                .map_err(refused)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(leaf, |all| {
            verify_tls12_signature(message, leaf, signed, all)
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_signature(leaf, |all| {
            verify_tls13_signature(message, leaf, signed, all)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        use SignatureScheme as Scheme;
        match &self.algorithms {
            Some(algorithms) => algorithms.supported_schemes(),
            // The schemes that Go offers: the server needs one for its key.
            None => vec![
                Scheme::RSA_PSS_SHA256,
                Scheme::ECDSA_NISTP256_SHA256,
                Scheme::ED25519,
                Scheme::RSA_PSS_SHA384,
                Scheme::RSA_PSS_SHA512,
                Scheme::RSA_PKCS1_SHA256,
                Scheme::RSA_PKCS1_SHA384,
                Scheme::RSA_PKCS1_SHA512,
                Scheme::ECDSA_NISTP384_SHA384,
                Scheme::ECDSA_NISTP521_SHA512,
                Scheme::RSA_PKCS1_SHA1,
                Scheme::ECDSA_SHA1_Legacy,
            ],
        }
    }
}

debug_fields!(Verifier: peer);
