//! Reads the parts of a certificate that webpki does not expose: its validity, the limits of an
//! authority, and names and keys for messages.

use std::net::IpAddr;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{SubjectPublicKeyInfoDer, UnixTime};

use super::der::Der;
use crate::base::text::EscapedName;
use crate::base::text::Reason;
use crate::client::credential_data::Pem;
use crate::time;

/// A certificate, read without any checks.
#[derive(Clone, Copy)]
pub(super) struct Certificate<'a> {
    is_v3: bool,
    issuer: &'a [u8],
    subject: &'a [u8],
    validity: Der<'a>,
    /// The algorithm and the bits of the public key.
    key: &'a [u8],
    /// Whether it has an issuerUniqueID or a subjectUniqueID.
    has_unique_id: bool,
    extensions: Der<'a>,
}

// The algorithms of public keys.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];

/// The tag of a date with a year of two digits.
const UTC_TIME: u8 = 0x17;

/// A name for which a certificate is valid.
pub(super) enum SubjectAltName<'a> {
    /// Perhaps a wildcard, or no valid name at all.
    Dns(&'a [u8]),
    Address(IpAddr),
}

// The last arcs of the ids of extensions, which start with `2.5.29`.
const KEY_USAGE: u8 = 15;
const SUBJECT_ALT_NAME: u8 = 17;
const BASIC_CONSTRAINTS: u8 = 19;
const EXTENDED_KEY_USAGE: u8 = 37;
/// The extensions that can be critical in an authority: the ones above, name constraints, CRL
/// distribution points and policies. Policies are not evaluated.
const KNOWN: [u8; 10] = [15, 17, 19, 30, 31, 32, 33, 36, 37, 54];

impl<'a> Certificate<'a> {
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        const VERSION: u8 = 0xa0;
        const ISSUER_UNIQUE_ID: u8 = 0x81;
        const SUBJECT_UNIQUE_ID: u8 = 0x82;
        const EXTENSIONS: u8 = 0xa3;
        let mut fields = Der::new(Der::sequence(der).element(Der::SEQUENCE)?);
        let version = fields.element(VERSION);
        fields.element(Der::INTEGER)?; // The serial number.
        fields.element(Der::SEQUENCE)?; // The signature algorithm.
        let issuer = fields.element(Der::SEQUENCE)?;
        let validity = Der::new(fields.element(Der::SEQUENCE)?);
        let subject = fields.element(Der::SEQUENCE)?;
        let key = fields.element(Der::SEQUENCE)?;
        let issuer_id = fields.element(ISSUER_UNIQUE_ID);
        let subject_id = fields.element(SUBJECT_UNIQUE_ID);
        Some(Self {
            is_v3: version == Some(&[Der::INTEGER, 1, 2]),
            issuer,
            validity,
            subject,
            key,
            has_unique_id: issuer_id.or(subject_id).is_some(),
            extensions: fields
                .find(|(tag, _)| *tag == EXTENSIONS)
                .map_or(Der::new(&[]), |(_, content)| Der::sequence(content)),
        })
    }

    /// Whether the name of its issuer is that of `authority`.
    pub(super) fn is_issued_by(&self, authority: &Certificate<'_>) -> bool {
        self.issuer == authority.subject
    }

    /// Whether its public key is this one. Compares the keys without their algorithms, which have
    /// several forms.
    pub(super) fn has_key(&self, public: &SubjectPublicKeyInfoDer<'_>) -> bool {
        let bits = |mut key: Der<'_>| {
            key.element(Der::SEQUENCE)?;
            key.element(Der::BIT_STRING).map(<[u8]>::to_vec)
        };
        bits(Der::new(self.key)) == bits(Der::sequence(public))
    }

    /// Names a part of the certificate that webpki refuses in every certificate.
    pub(super) fn unsupported_part(&self) -> Option<&'static str> {
        self.has_unique_id.then_some(
            "has an issuerUniqueID or a subjectUniqueID, which is not supported; issue it again \
             without it",
        )
    }

    /// Says that it has a date that webpki cannot read. This does not matter in a trusted
    /// certificate, of which webpki reads no dates.
    pub(super) fn date_problem(&self) -> Option<&'static str> {
        let mut dates = self.validity;
        let is_supported = |(tag, date): (u8, &[u8])| match tag {
            // The years 50 to 69 are before 1970.
            UTC_TIME => date.len() == 13 && date.ends_with(b"Z") && !matches!(date[0], b'5' | b'6'),
            _ => date.len() == 15 && date.ends_with(b"Z") && date[..4] >= b"1970"[..],
        };
        (!dates.all(is_supported)).then_some(
            "has a date before 1970, without seconds or in another time zone than UTC; issue it \
             again with other dates",
        )
    }

    /// The id, the criticality and the value of each extension. The id is that of an extension of
    /// RFC 5280, or `None`.
    fn extensions(self) -> impl Iterator<Item = (Option<u8>, bool, &'a [u8])> {
        self.extensions.filter_map(|(_, extension)| {
            let mut fields = Der::new(extension);
            let id = match fields.element(Der::OID)? {
                [0x55, 0x1d, id] => Some(*id),
                _ => None,
            };
            let critical = fields
                .element(Der::BOOLEAN)
                .is_some_and(|value| value != [0]);
            Some((id, critical, fields.element(Der::OCTET_STRING)?))
        })
    }

    fn extension(self, wanted: u8) -> Option<&'a [u8]> {
        self.extensions()
            .find_map(|(id, _, value)| (id == Some(wanted)).then_some(value))
    }

    /// Checks that the certificate may sign others in a chain with this many intermediate
    /// certificates below it. These are the checks of Go, for trusted certificates as well as for
    /// intermediate ones. webpki checks nothing of a trusted certificate but its key and its name
    /// constraints, and ignores the key usage of intermediate ones.
    pub(super) fn check_authority(self, intermediates: usize) -> Result<(), &'static str> {
        const MALFORMED: &str = "has a malformed extension";
        match self.extension(BASIC_CONSTRAINTS).map(Der::sequence) {
            None if self.is_v3 => return Err("may not sign others (no basicConstraints)"),
            None => {}
            Some(mut constraints) => {
                match constraints.element(Der::BOOLEAN) {
                    Some([0xff]) => {}
                    None | Some([0]) => return Err("may not sign others (CA:FALSE)"),
                    Some(_) => return Err(MALFORMED),
                }
                match constraints.next() {
                    None => {}
                    Some((Der::INTEGER, [limit @ ..=0x7f]))
                        if usize::from(*limit) < intermediates =>
                    {
                        return Err("allows fewer intermediate certificates (pathlen)");
                    }
                    // Also above 127, without superfluous zeros.
                    Some((Der::INTEGER, [..=0x7f] | [0, 0x80..=0xff, ..] | [1..=0x7f, _, ..])) => {}
                    Some(_) => return Err(MALFORMED),
                }
            }
        }
        if let Some(usage) = self.extension(KEY_USAGE) {
            const CERT_SIGN: u8 = 0x04;
            // The first byte is the number of unused bits. Go ignores a usage without any bit.
            match Der::new(usage).element(Der::BIT_STRING) {
                Some([..=7, bits, ..]) if bits & CERT_SIGN != 0 => {}
                Some([..=7, bits @ ..]) if bits.iter().all(|bits| *bits == 0) => {}
                Some([..=7, ..]) => {
                    return Err("may not sign others (keyUsage without keyCertSign)");
                }
                _ => return Err(MALFORMED),
            }
        }
        if self
            .extensions()
            .any(|(id, critical, _)| critical && !id.is_some_and(|id| KNOWN.contains(&id)))
        {
            return Err("has a critical extension that is not supported");
        }
        Ok(())
    }

    /// Checks the validity period, and that an extended key usage includes servers.
    pub(super) fn check(mut self, now: UnixTime) -> Result<(), Reason> {
        const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
        const ANY: &[u8] = &[0x55, 0x1d, 37, 0];
        const REMEDY: &str = "renew it, or correct the clock of this machine";
        let mut time = || {
            let (tag, time) = self.validity.next()?;
            let text = rfc3339(tag, time)?;
            // A time before 1970 has always passed. Go writes its zero time, which is `None`, if a
            // date is not set.
            let time = time::UnixTime::parse(&text).ok()?;
            let seconds = time.and_then(|time| u64::try_from(time.seconds).ok());
            Some((seconds.unwrap_or(0), text))
        };
        let (Some(from), Some(until)) = (time(), time()) else {
            return Err("has no valid dates".into());
        };
        if now.as_secs() < from.0 {
            return Err(format!("is not valid yet, but from {} on; {REMEDY}", from.1).into());
        }
        if now.as_secs() > until.0 {
            return Err(format!("has expired on {}; {REMEDY}", until.1).into());
        }
        let usages = self.extension(EXTENDED_KEY_USAGE).map(Der::sequence);
        let is_for_servers = usages.is_none_or(|mut usages| {
            usages.any(|it| it == (Der::OID, SERVER) || it == (Der::OID, ANY))
        });
        match is_for_servers {
            true => Ok(()),
            false => Err("is not for servers (extendedKeyUsage without serverAuth)".into()),
        }
    }

    /// Describes the certificate and its source, for messages.
    pub(super) fn describe(&self, source: &Pem) -> String {
        let expiry = self
            .validity
            .last()
            .and_then(|(tag, time)| rfc3339(tag, time));
        let (name, issuer, expiry) = (self.name(), self.issuer_name(), expiry.unwrap_or_default());
        format!("{name} (from {source}, issued by {issuer}, valid until {expiry})")
    }

    /// The name of the certificate in quotes, for messages.
    pub(super) fn name(&self) -> String {
        quoted_name(self.subject)
            .or_else(|| self.names())
            .unwrap_or_else(|| "without a name".to_owned())
    }

    /// The name of the issuer in quotes, for messages.
    pub(super) fn issuer_name(&self) -> String {
        quoted_name(self.issuer).unwrap_or_else(|| "without a name".to_owned())
    }

    /// The DNS names and addresses that it is for.
    pub(super) fn subject_alt_names(self) -> impl Iterator<Item = SubjectAltName<'a>> {
        const DNS_NAME: u8 = 0x82;
        const ADDRESS: u8 = 0x87;
        let names = self.extension(SUBJECT_ALT_NAME).map(Der::sequence);
        names
            .into_iter()
            .flatten()
            .filter_map(|(tag, name)| match tag {
                DNS_NAME => Some(SubjectAltName::Dns(name)),
                ADDRESS => {
                    let v4 = <[u8; 4]>::try_from(name).map(IpAddr::from);
                    let address = v4.or_else(|_| <[u8; 16]>::try_from(name).map(IpAddr::from));
                    Some(SubjectAltName::Address(address.ok()?))
                }
                _ => None,
            })
    }

    /// The first ten DNS names and addresses that it is for, for messages.
    pub(super) fn names(self) -> Option<String> {
        let mut names = self.subject_alt_names().map(|name| match name {
            SubjectAltName::Dns(name) => {
                format!("DNS:{}", EscapedName(&String::from_utf8_lossy(name)))
            }
            SubjectAltName::Address(address) => format!("IP:{address}"),
        });
        let mut shown: Vec<String> = names.by_ref().take(10).collect();
        shown.extend(names.next().map(|_| "…".to_owned()));
        (!shown.is_empty()).then(|| shown.join(", "))
    }

    /// Says why its key is not supported: its kind, its size or its form. `None` if nothing is
    /// wrong with it.
    pub(super) fn key_problem(self, supported: &WebPkiSupportedAlgorithms) -> Option<String> {
        let mut key = Der::new(self.key);
        let algorithm = key.element(Der::SEQUENCE)?;
        // The first byte is the number of unused bits.
        let bits = key.element(Der::BIT_STRING)?.get(1..)?;
        let mut supported = supported.all.iter();
        if !supported.any(|known| known.public_key_alg_id().as_ref() == algorithm) {
            return Some(unsupported_kind(Der::new(algorithm)));
        }
        match Der::new(algorithm).element(Der::OID)? {
            RSA => {
                let modulus = Der::sequence(bits).element(Der::INTEGER)?;
                let unsigned = modulus.strip_prefix(&[0]).unwrap_or(modulus);
                let bits = 8 * unsigned.len() - unsigned.first()?.leading_zeros() as usize;
                (!(2048..=8192).contains(&bits))
                    .then(|| format!("has an RSA key of {bits} bits; supported are 2048 to 8192"))
            }
            EC => match bits.first()? {
                2 | 3 => Some(
                    "has an EC key in compressed form, which is not supported; issue it again with \
                     the uncompressed key"
                        .to_owned(),
                ),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Describes the algorithm of a public key, which the provider does not support.
fn unsupported_kind(mut algorithm: Der<'_>) -> String {
    const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
    const P224: &[u8] = &[0x2b, 0x81, 4, 0, 0x21];
    const P521: &[u8] = &[0x2b, 0x81, 4, 0, 0x23];
    const SECP256K1: &[u8] = &[0x2b, 0x81, 4, 0, 0x0a];
    let kind = match (algorithm.element(Der::OID), algorithm.next()) {
        (Some(EC), Some((Der::OID, P521))) => {
            return "has a key on the curve P-521, which needs k8s-informer's feature aws-lc-rs"
                .to_owned();
        }
        (Some(EC), Some((Der::OID, P224))) => "a key on the curve P-224, which is not supported",
        (Some(EC), Some((Der::OID, SECP256K1))) => {
            "a key on the curve secp256k1, which is not supported"
        }
        (Some(EC), Some((Der::SEQUENCE, _))) => {
            "an EC key with explicit parameters of its curve, which is not supported"
        }
        (Some(EC), _) => "a key on a curve that is not supported",
        (Some(RSA_PSS), _) => "an RSA key for PSS signatures only, which is not supported",
        _ => "a key of a kind that is not supported",
    };
    format!("has {kind}; use RSA, P-256, P-384 or Ed25519")
}

/// Converts a time of a certificate.
fn rfc3339(tag: u8, time: &[u8]) -> Option<String> {
    let time = str::from_utf8(time).ok()?;
    let (century, time) = match tag {
        // Years of two digits are from 1950 to 2049.
        UTC_TIME if *time.as_bytes().first()? < b'5' => ("20", time),
        UTC_TIME => ("19", time),
        _ => time.split_at_checked(2)?,
    };
    // Old certificates can lack the seconds.
    let mut parts = ["00"; 6];
    let mut rest = time.strip_suffix('Z')?;
    for part in &mut parts {
        if rest.is_empty() {
            break;
        }
        (*part, rest) = rest.split_at_checked(2)?;
    }
    let [year, month, day, hour, minute, second] = parts;
    Some(format!(
        "{century}{year}-{month}-{day}T{hour}:{minute}:{second}Z"
    ))
}

/// The last common name in quotes, or else the last attribute.
fn quoted_name(distinguished_name: &[u8]) -> Option<String> {
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    let attributes = Der::new(distinguished_name).filter_map(|(_, set)| {
        let mut attribute = Der::sequence(set);
        let is_common_name = attribute.element(Der::OID)? == COMMON_NAME;
        Some((is_common_name, attribute.next()?.1))
    });
    // Returns the last one of several maxima.
    let (_, name) = attributes.max_by_key(|(is_common_name, _)| *is_common_name)?;
    Some(format!(
        "\"{}\"",
        EscapedName(&String::from_utf8_lossy(name))
    ))
}
