//! Finds the blocks of PEM data. One broken block does not affect the others, as in Go's
//! `encoding/pem`.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use memchr::memmem;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::der::Der;
use crate::client::credential_data::{Pem, config_error};
use crate::error::Error;
use crate::log;

/// Like Go's decoder, accepts non-zero bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

struct Block<'a> {
    /// The number of the block, starting with 1.
    number: usize,
    label: &'a [u8],
    /// The lines `Name: value` before the content, with blank lines around them.
    headers: &'a [u8],
    /// `None` if the block has no end or is not valid base64.
    content: Option<Vec<u8>>,
}

impl Block<'_> {
    fn has_headers(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Whether a header says that the content is encrypted: `Proc-Type: 4,ENCRYPTED`.
    fn is_encrypted(&self) -> bool {
        let mut lines = self.headers.split(is_line_break);
        let is_encrypted = |line: &[u8]| {
            let header = line.trim_ascii_start().strip_prefix(b"Proc-Type:");
            header.is_some_and(|value| memmem::find(value, b"ENCRYPTED").is_some())
        };
        lines.any(is_encrypted)
    }
}

fn is_line_break(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn blocks(pem: &[u8]) -> impl Iterator<Item = Block<'_>> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let mut starts = memmem::find_iter(pem, BEGIN)
        .filter(move |start| *start == 0 || is_line_break(&pem[start - 1]))
        .peekable();
    (1..).map_while(move |number| {
        let start = starts.next()? + BEGIN.len();
        let text = &pem[start..starts.peek().copied().unwrap_or(pem.len())];
        let line = text.split(is_line_break).next().unwrap_or_default();
        let (headers, body) = split_headers(&text[line.len()..]);
        let label = line.trim_ascii_end().strip_suffix(b"-----");
        let content = label.and_then(|label| {
            let end = memmem::find(body, &[b"-----END ", label, b"-----"].concat())?;
            let mut base64 = body[..end].to_vec();
            base64.retain(|byte| !byte.is_ascii_whitespace());
            BASE64.decode(base64).ok()
        });
        Some(Block {
            number,
            label: label.unwrap_or(line),
            headers,
            content,
        })
    })
}

/// Splits the headers off the lines after the label. As in Go, a header is a line with a colon,
/// which base64 does not have.
fn split_headers(lines: &[u8]) -> (&[u8], &[u8]) {
    let mut rest = lines;
    loop {
        let next = rest.trim_ascii_start();
        let length = next.iter().position(is_line_break).unwrap_or(next.len());
        let (line, after) = next.split_at(length);
        if !line.contains(&b':') {
            return lines.split_at(lines.len() - rest.len());
        }
        rest = after;
    }
}

/// What headers of a certificate mean.
#[derive(Clone, Copy)]
pub(super) enum Headers {
    /// They are ignored, as Go's `X509KeyPair` does in a chain.
    Ignored,
    /// The block is skipped, as Go's `AppendCertsFromPEM` does among authorities.
    Skipped,
}

/// Reads the certificates. A broken block, or one that `accept` rejects with a reason, is skipped
/// with a warning that has its number.
///
/// # Errors
///
/// Returns an error if no certificate is left.
pub(super) fn certificates<T>(
    pem: &Pem,
    headers: Headers,
    accept: impl Fn(CertificateDer<'static>) -> Result<T, &'static str>,
) -> Result<Vec<T>, Error> {
    let mut certificates = Vec::new();
    let mut last_problem = "no certificate in PEM form".to_owned();
    for block in blocks(&pem.bytes).filter(|block| block.label == b"CERTIFICATE") {
        let content = match headers {
            Headers::Skipped if block.has_headers() => {
                Err("has headers before its content, which an authority must not have")
            }
            Headers::Ignored | Headers::Skipped => block.content.ok_or("not valid PEM"),
        };
        match content.and_then(|der| accept(der.into())) {
            Ok(certificate) => certificates.push(certificate),
            Err(problem) => {
                last_problem = format!("block {}: {problem}", block.number);
                log::warn!("{pem}: skipped {last_problem}");
            }
        }
    }
    match certificates.is_empty() {
        false => Ok(certificates),
        true => Err(config_error(format!("{pem}: {last_problem}"))),
    }
}

/// Reads the first private key. Its label only has to end with `PRIVATE KEY`: the format is
/// detected from the content, as in Go.
pub(super) fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, Error> {
    const ENCRYPTED: &str = "encrypted keys are not supported";
    let mut problem = "no private key in PEM form";
    for block in blocks(&pem.bytes).filter(|block| block.label.ends_with(b"PRIVATE KEY")) {
        if block.is_encrypted() {
            problem = ENCRYPTED;
            continue;
        }
        let Some(der) = block.content else {
            problem = match block.label.starts_with(b"ENCRYPTED") {
                true => ENCRYPTED,
                false => "not valid PEM",
            };
            continue;
        };
        problem = ENCRYPTED;
        // Each format is a sequence that starts with a version. Next is an algorithm in PKCS#8, a
        // modulus in PKCS#1, and a key in SEC1. An encrypted key starts with an algorithm.
        let mut tags = Der::sequence(&der).map(|(tag, _)| tag);
        return Ok(match (tags.next(), tags.next()) {
            (Some(Der::SEQUENCE), _) => break,
            (_, Some(Der::INTEGER)) => PrivateKeyDer::Pkcs1(der.into()),
            (_, Some(Der::OCTET_STRING)) => PrivateKeyDer::Sec1(der.into()),
            _ => PrivateKeyDer::Pkcs8(der.into()),
        });
    }
    Err(config_error(format!("{pem}: {problem}")))
}
