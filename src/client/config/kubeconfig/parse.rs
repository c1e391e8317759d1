//! Reads and parses one kubeconfig.

use std::borrow::Cow;
use std::fs::File as OpenFile;
use std::io::{self, Read};
use std::path::Path;

use super::schema::File;
use crate::base::text::Reason;
use crate::client::yaml;

/// The maximum size of a kubeconfig, enough for a thousand clusters with inline certificates.
pub(super) const MAX_SIZE: usize = 8 << 20;

/// Reads a file. Returns `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Reason> {
    let file = match OpenFile::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string().into()),
    };
    let mut bytes = Vec::new();
    // Reads one byte more than allowed: `parse` then detects a file that is too large, and an
    // endless file is not read to its end.
    file.take(MAX_SIZE as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(Some(bytes))
}

/// Parses a kubeconfig.
pub(super) fn parse(bytes: &[u8]) -> Result<File, Reason> {
    if bytes.len() > MAX_SIZE {
        return Err(format!(
            "larger than {} MiB, too large for a kubeconfig",
            MAX_SIZE >> 20
        )
        .into());
    }
    yaml::decode(&decode(bytes)?).map_err(|problem| problem.to_string().into())
}

/// Decodes UTF-8, with or without a byte order mark, and UTF-16 with a byte order mark.
/// Redirections in PowerShell write UTF-16.
fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, Reason> {
    let units = |unit: fn([u8; 2]) -> u16| {
        let (units, odd) = bytes.as_chunks::<2>();
        let units: Vec<u16> = units.iter().skip(1).map(|bytes| unit(*bytes)).collect();
        match (String::from_utf16(&units), odd) {
            (Ok(text), []) => Ok(Cow::Owned(text)),
            _ => Err("a UTF-16 byte order mark, but no valid UTF-16 text".into()),
        }
    };
    match bytes {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text))),
            Err(error) => {
                let good = &bytes[..error.valid_up_to()];
                let lines = good.iter().filter(|byte| **byte == b'\n').count();
                Err(format!("line {} is not UTF-8 text", lines + 1).into())
            }
        },
    }
}
