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

use super::certificate::{Certificate, SubjectAltName};
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
        webpki::anchor_from_trusted_cert(&certificate).map_err(|_| {
            let read = Certificate::read(&certificate);
            read.and_then(|it| it.unsupported_part())
                .unwrap_or(NOT_A_CERTIFICATE)
        })?;
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

/// Why certificates are refused. [`Verifier::explain`] has the texts.
enum Problem {
    NoCertificate,
    UnreadableAuthority,
    /// Of the peer's own certificate, which is the subject of the text.
    Leaf(Cow<'static, str>),
    /// Of an authority above it, which is the subject of the text.
    Authority {
        name: String,
        /// The source, if it is a trusted one.
        from: Option<Arc<str>>,
        problem: Cow<'static, str>,
    },
    /// The chain begins with the certificate of this authority.
    AuthorityFirst(String),
    SelfSigned,
    /// There is a trusted authority of this name, but its key did not sign.
    OtherKey(String),
    UnknownAuthority(String),
    NoName {
        host: String,
    },
    OtherName {
        host: String,
        names: String,
        remedy: NameRemedy,
    },
    Malformed(webpki::Error),
}

/// What to do if the certificate is for other names.
enum NameRemedy {
    OneOfThem,
    /// Some are wildcards, which are no names. This name matches.
    Matching(String),
    /// Nothing matches, for example a wildcard with one label after it.
    NewCertificate,
}

const UNTRUSTED: &str = "is not signed by a trusted authority";

impl Problem {
    fn leaf(problem: impl Into<Cow<'static, str>>) -> Self {
        Self::Leaf(problem.into())
    }

    /// Describes an error of webpki that is not about a single authority.
    fn of_webpki(error: webpki::Error) -> Self {
        use webpki::Error as Webpki;
        Self::leaf(match error {
            Webpki::CaUsedAsEndEntity => {
                "is a CA certificate (CA:TRUE), which must only sign others. Issue one with \
                 CA:FALSE, or, to trust exactly this certificate, add it to certificate-authority"
            }
            Webpki::NameConstraintViolation => {
                "has a name that an authority above it must not sign (nameConstraints)"
            }
            Webpki::UnsupportedCertVersion => {
                "or one above it is not X.509 version 3, and can have no subjectAltName (SAN); \
                 issue it again"
            }
            Webpki::UnsupportedCriticalExtension => {
                "or one above it has a critical extension that is not supported; issue it again \
                 without it"
            }
            Webpki::RequiredEkuNotFoundContext(_) => {
                "or one above it is not for servers; issue it again with serverAuth in its \
                 extendedKeyUsage"
            }
            // The limits of webpki.
            Webpki::MaximumPathDepthExceeded
            | Webpki::MaximumPathBuildCallsExceeded
            | Webpki::MaximumSignatureChecksExceeded
            | Webpki::MaximumNameConstraintComparisonsExceeded => {
                "has more than 6 authorities above it, or too many names or authorities of one name"
            }
            _ => return Self::Malformed(error),
        })
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
    ) -> Result<(), Problem> {
        let certificates = std::iter::once(leaf).chain(intermediates);
        let chain: Vec<_> = certificates.map_while(|it| Certificate::read(it)).collect();
        let Some(read) = chain.first() else {
            return Err(Problem::NoCertificate);
        };
        let diagnose = |error| self.diagnose(error, &chain, algorithms, now);
        let end_entity = EndEntityCert::try_from(leaf).map_err(diagnose)?;
        if self.trusted.iter().any(|it| it.certificate == *leaf) {
            // webpki would look for an issuer, and it rejects the certificate of an authority.
            read.check(now)
                .map_err(|reason| Problem::leaf(String::from(reason)))?;
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
                .map_err(|error| rejected.take().unwrap_or_else(|| diagnose(error)))?;
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
            false => Err(name_problem(&end_entity, &chain, &name.to_str())),
        }
    }

    /// Checks what webpki does not check of the authorities of a path.
    fn verify_authorities(&self, path: &VerifiedPath<'_>, now: UnixTime) -> Result<(), Problem> {
        let mut count = 0;
        for intermediate in path.intermediate_certificates() {
            let der = intermediate.der();
            let authority = Certificate::read(&der).ok_or(Problem::UnreadableAuthority)?;
            check_authority(authority, count, now, None)?;
            count += 1;
        }
        // webpki returns a reference to one of these anchors.
        let mut all = self.anchors.iter().zip(&self.trusted);
        let found = all.find(|(anchor, _)| std::ptr::eq(*anchor, path.anchor()));
        let trusted = found.map(|(_, trusted)| trusted);
        let authority = trusted.and_then(Trusted::read);
        let authority = authority.ok_or(Problem::UnreadableAuthority)?;
        check_authority(authority, count, now, trusted.map(|it| &it.from))
    }

    /// Finds out why webpki refuses these certificates. Its error alone does not name the
    /// certificate, and it is not always that of the path that should have been valid.
    fn diagnose(
        &self,
        error: webpki::Error,
        chain: &[Certificate<'_>],
        algorithms: &WebPkiSupportedAlgorithms,
        now: UnixTime,
    ) -> Problem {
        use webpki::Error as Webpki;
        match error {
            // webpki also returns these errors if it can't use the certificate or the key of the
            // right authority. Without this check, the error would name a wrong signer.
            Webpki::UnknownIssuer | Webpki::InvalidSignatureForPublicKey => self
                .unsupported_authority(chain, algorithms)
                .unwrap_or_else(|| self.unknown_issuer(chain)),
            Webpki::UnsupportedSignatureAlgorithmContext(_)
            | Webpki::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => self
                .unsupported_authority(chain, algorithms)
                .unwrap_or_else(|| {
                    Problem::leaf(
                        "is signed with an algorithm that is not supported, such as SHA-1; issue \
                         it again with SHA-256 or SHA-384",
                    )
                }),
            // It comes before the limits of authorities: the next certificate is none.
            Webpki::CaUsedAsEndEntity if sends_authority_first(chain) => {
                Problem::AuthorityFirst(chain[0].name())
            }
            // The other errors concern dates, limits of authorities, and the encoding.
            _ => sent_problem(chain, now).unwrap_or_else(|| Problem::of_webpki(error)),
        }
    }

    /// Finds an authority above one of these certificates that webpki can't use: its key, or all of
    /// it.
    fn unsupported_authority(
        &self,
        chain: &[Certificate<'_>],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Option<Problem> {
        let trusted = self.trusted.iter().filter_map(Trusted::read);
        let sent = chain[1..].iter().copied();
        let is_issuer = |it: &Certificate<'_>| chain.iter().any(|below| below.is_issued_by(it));
        trusted.chain(sent).filter(is_issuer).find_map(|authority| {
            let part = authority.unsupported_part().map(Cow::Borrowed);
            Some(Problem::Authority {
                name: authority.name(),
                from: None,
                problem: part.or_else(|| Some(authority.key_problem(algorithms)?.into()))?,
            })
        })
    }

    /// Finds the authority that is missing, because no path leads to a trusted one.
    fn unknown_issuer(&self, chain: &[Certificate<'_>]) -> Problem {
        let (leaf, above) = (&chain[0], &chain[1..]);
        let is_trusted = |it: &&Certificate<'_>| {
            let mut trusted = self.trusted.iter().filter_map(Trusted::read);
            trusted.any(|by| it.is_issued_by(&by))
        };
        // Its issuer is neither trusted nor sent, or is only a root that is sent.
        let is_unknown = |it: &&Certificate<'_>| {
            let mut above = above.iter();
            let is_sent = above.any(|by| it.is_issued_by(by) && !by.is_issued_by(by));
            !is_trusted(it) && !is_sent
        };
        if leaf.is_issued_by(leaf) {
            return Problem::SelfSigned;
        }
        match chain.iter().find(is_unknown) {
            Some(it) => Problem::UnknownAuthority(it.issuer_name()),
            None => {
                let named = chain.iter().find(is_trusted).unwrap_or(leaf);
                Problem::OtherKey(named.issuer_name())
            }
        }
    }

    /// Describes a problem, with the remedy.
    fn explain(&self, problem: Problem) -> String {
        let (peer, from) = (self.peer, &self.from);
        match problem {
            Problem::NoCertificate => format!("{peer} presents what is not a certificate"),
            Problem::UnreadableAuthority => "an authority can't be read".to_owned(),
            Problem::Leaf(problem) => format!("{peer}'s certificate {problem}"),
            Problem::Authority {
                name,
                from,
                problem,
            } => {
                let from = from.map_or_else(String::new, |from| format!(", from {from},"));
                format!("the authority {name} above {peer}'s certificate{from} {problem}")
            }
            Problem::AuthorityFirst(name) => format!(
                "{peer} sends the certificate of the authority {name} first. It must send its own \
                 certificate first, and then those of the authorities above it"
            ),
            Problem::SelfSigned => format!(
                "{peer}'s certificate {UNTRUSTED}: it is self-signed, and not in {from}. To trust \
                 exactly this certificate, add it to certificate-authority"
            ),
            Problem::OtherKey(authority) => format!(
                "{peer}'s certificate {UNTRUSTED}: the authority {authority} has another key than \
                 the one of this name in {from}. If this is the right host, configure the new one"
            ),
            Problem::UnknownAuthority(authority) => format!(
                "{peer}'s certificate {UNTRUSTED}: the authority {authority} is not in {from}. If \
                 this is the right host, add it to certificate-authority, or let {peer} send its \
                 intermediate certificates"
            ),
            Problem::NoName { host } => format!(
                "{peer}'s certificate has no DNS name and no address in its subjectAltName (SAN); \
                 issue it again with the SAN {host:?}, because the common name is not used"
            ),
            Problem::OtherName {
                host,
                names,
                remedy,
            } => {
                let remedy = match (remedy, peer) {
                    (NameRemedy::OneOfThem, PeerKind::Server) => {
                        "set tls-server-name to one of them".to_owned()
                    }
                    (NameRemedy::OneOfThem, PeerKind::Proxy) => {
                        "use one of them in the URL of the proxy".to_owned()
                    }
                    (NameRemedy::Matching(name), PeerKind::Server) => {
                        format!("set tls-server-name to a name that matches, such as {name}")
                    }
                    (NameRemedy::Matching(_), PeerKind::Proxy) => {
                        "use a name that matches in the URL of the proxy".to_owned()
                    }
                    (NameRemedy::NewCertificate, _) => {
                        format!("issue it again with the SAN {host:?}")
                    }
                };
                format!(
                    "{peer}'s certificate is for another name: not for {host}, but for {names}. If \
                     this is the right host, {remedy}"
                )
            }
            Problem::Malformed(error) => format!("{peer}'s chain is malformed ({error})"),
        }
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
            let leaf = Certificate::read(leaf);
            match leaf.and_then(|leaf| leaf.key_problem(algorithms)) {
                Some(problem) => refused(self.explain(Problem::leaf(problem))),
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
                .map_err(|problem| refused(self.explain(problem)))?;
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

fn check_authority(
    authority: Certificate<'_>,
    intermediates: usize,
    now: UnixTime,
    from: Option<&Arc<str>>,
) -> Result<(), Problem> {
    let checked = authority.check(now);
    let checked = checked.map_err(|reason| Cow::Owned(reason.into()));
    checked
        .and_then(|()| Ok(authority.check_authority(intermediates)?))
        .map_err(|problem| Problem::Authority {
            name: authority.name(),
            from: from.cloned(),
            problem,
        })
}

/// Finds what is wrong with a certificate of the chain by itself, from the bottom up.
fn sent_problem(chain: &[Certificate<'_>], now: UnixTime) -> Option<Problem> {
    let unreadable = |it: &Certificate<'_>| it.unsupported_part().or_else(|| it.date_problem());
    let leaf = &chain[0];
    if let Some(problem) = unreadable(leaf) {
        return Some(Problem::leaf(problem));
    }
    if let Err(reason) = leaf.check(now) {
        return Some(Problem::leaf(String::from(reason)));
    }
    issuers(chain).into_iter().find_map(|(count, authority)| {
        if let Some(problem) = unreadable(&authority) {
            return Some(Problem::Authority {
                name: authority.name(),
                from: None,
                problem: problem.into(),
            });
        }
        check_authority(authority, count, now, None).err()
    })
}

/// Returns the certificates of the chain that are above the first one, whatever their order, with
/// the number of authorities between. Others in the chain have no meaning.
fn issuers<'a>(chain: &[Certificate<'a>]) -> Vec<(usize, Certificate<'a>)> {
    let (mut below, mut rest) = (vec![chain[0]], chain[1..].to_vec());
    let mut found = Vec::new();
    for count in 0.. {
        let is_above = |it: &Certificate<'_>| below.iter().any(|below| below.is_issued_by(it));
        let (above, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_above);
        if above.is_empty() {
            break;
        }
        found.extend(above.iter().map(|it| (count, *it)));
        (below, rest) = (above, others);
    }
    found
}

/// Whether the first certificate is that of an authority, which has signed another one of the chain.
fn sends_authority_first(chain: &[Certificate<'_>]) -> bool {
    let is_below = |it: &Certificate<'_>| it.is_issued_by(&chain[0]) && !it.is_issued_by(it);
    chain[1..].iter().any(is_below)
}

/// Finds out why no name of the certificate matches the host.
fn name_problem(end_entity: &EndEntityCert<'_>, chain: &[Certificate<'_>], host: &str) -> Problem {
    /// The maximum number of names that are tried for the remedy.
    const TRIED: usize = 100;
    let (leaf, host) = (&chain[0], host.to_owned());
    // An authority that is itself configured gets here, although it is no server's certificate.
    if sends_authority_first(chain) {
        return Problem::AuthorityFirst(leaf.name());
    }
    let Some(names) = leaf.names() else {
        return Problem::NoName { host };
    };
    // The remedy must work: a wildcard is no valid setting, and a certificate can have names that
    // webpki never matches.
    let is_valid = |name: &String| {
        let name = ServerName::try_from(&**name);
        name.is_ok_and(|name| end_entity.verify_is_valid_for_subject_name(&name).is_ok())
    };
    let (wildcards, plain): (Vec<_>, Vec<_>) = leaf
        .subject_alt_names()
        .take(TRIED)
        .map(|name| match name {
            SubjectAltName::Dns(name) => String::from_utf8_lossy(name).into_owned(),
            SubjectAltName::Address(address) => address.to_string(),
        })
        .partition(|name| name.starts_with('*'));
    let has_wildcards = !wildcards.is_empty();
    let matching = wildcards
        .iter()
        .map(|name| name.replacen('*', "kubernetes", 1));
    let remedy = match plain.into_iter().chain(matching).find(is_valid) {
        Some(name) if has_wildcards => NameRemedy::Matching(name),
        Some(_) => NameRemedy::OneOfThem,
        None => NameRemedy::NewCertificate,
    };
    Problem::OtherName {
        host,
        names,
        remedy,
    }
}
