//! Reads the parts of a certificate that webpki does not expose: its validity, the limits of an
//! authority, and names and keys for messages.

use std::net::IpAddr;

use rustls::pki_types::UnixTime;

use super::der::Der;
use crate::base::text::EscapedName;
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
    extensions: Der<'a>,
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
        const EXTENSIONS: u8 = 0xa3;
        let mut fields = Der::new(Der::sequence(der).element(Der::SEQUENCE)?);
        let version = fields.element(VERSION);
        fields.element(Der::INTEGER)?; // The serial number.
        fields.element(Der::SEQUENCE)?; // The signature algorithm.
        Some(Self {
            is_v3: version == Some(&[Der::INTEGER, 1, 2]),
            issuer: fields.element(Der::SEQUENCE)?,
            validity: Der::new(fields.element(Der::SEQUENCE)?),
            subject: fields.element(Der::SEQUENCE)?,
            key: fields.element(Der::SEQUENCE)?,
            extensions: fields
                .find(|(tag, _)| *tag == EXTENSIONS)
                .map_or(Der::new(&[]), |(_, content)| Der::sequence(content)),
        })
    }

    /// Whether the name of its issuer is that of `authority`.
    pub(super) fn is_issued_by(&self, authority: &Certificate<'_>) -> bool {
        self.issuer == authority.subject
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
    pub(super) fn check(mut self, now: UnixTime) -> Result<(), String> {
        const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
        const ANY: &[u8] = &[0x55, 0x1d, 37, 0];
        const REMEDY: &str = "renew it, or correct the clock of this machine";
        let mut time = || {
            let (tag, time) = self.validity.next()?;
            let text = rfc3339(tag, time)?;
            let seconds = time::UnixTime::parse(&text).ok()??.seconds;
            // A time before 1970 has always passed.
            Some((u64::try_from(seconds).unwrap_or(0), text))
        };
        let (Some(from), Some(until)) = (time(), time()) else {
            return Err("has no valid dates".to_owned());
        };
        if now.as_secs() < from.0 {
            return Err(format!(
                "is not valid yet, but from {} on; {REMEDY}",
                from.1
            ));
        }
        if now.as_secs() > until.0 {
            return Err(format!("has expired on {}; {REMEDY}", until.1));
        }
        let usages = self.extension(EXTENDED_KEY_USAGE).map(Der::sequence);
        let is_for_servers = usages.is_none_or(|mut usages| {
            usages.any(|it| it == (Der::OID, SERVER) || it == (Der::OID, ANY))
        });
        match is_for_servers {
            true => Ok(()),
            false => Err("is not for servers (extendedKeyUsage without serverAuth)".to_owned()),
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

    /// The first ten DNS names and addresses that it is for, for messages.
    pub(super) fn names(self) -> Option<String> {
        const DNS_NAME: u8 = 0x82;
        const ADDRESS: u8 = 0x87;
        let names = Der::sequence(self.extension(SUBJECT_ALT_NAME)?);
        let mut names = names.filter_map(|(tag, name)| match tag {
            DNS_NAME => Some(format!(
                "DNS:{}",
                EscapedName(&String::from_utf8_lossy(name))
            )),
            ADDRESS => {
                let v4 = <[u8; 4]>::try_from(name).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(name).map(IpAddr::from));
                Some(format!("IP:{}", address.ok()?))
            }
            _ => None,
        });
        let mut shown: Vec<String> = names.by_ref().take(10).collect();
        shown.extend(names.next().map(|_| "…".to_owned()));
        (!shown.is_empty()).then(|| shown.join(", "))
    }

    /// Says why a key is not supported, if it is of a known kind that is not.
    pub(super) fn key_problem(self) -> Option<String> {
        const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
        const P521: &[u8] = &[0x2b, 0x81, 4, 0, 0x23];
        let mut key = Der::new(self.key);
        let mut algorithm = Der::new(key.element(Der::SEQUENCE)?);
        match (algorithm.element(Der::OID)?, algorithm.element(Der::OID)) {
            (RSA, _) => {
                let bits = key.element(Der::BIT_STRING)?.get(1..)?;
                let modulus = Der::sequence(bits).element(Der::INTEGER)?;
                let unsigned = modulus.strip_prefix(&[0]).unwrap_or(modulus);
                let bits = 8 * unsigned.len() - unsigned.first()?.leading_zeros() as usize;
                (!(2048..=8192).contains(&bits))
                    .then(|| format!("has an RSA key of {bits} bits; supported are 2048 to 8192"))
            }
            (_, Some(P521)) => Some(
                "has a key on the curve P-521, which needs k8s-informer's feature aws-lc-rs"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// Converts a time of a certificate.
fn rfc3339(tag: u8, time: &[u8]) -> Option<String> {
    const UTC_TIME: u8 = 0x17;
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
