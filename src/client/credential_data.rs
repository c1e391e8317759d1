//! Certificates, keys and tokens: their sources in a configuration, and the data that was read.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

pub(super) fn config_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config(message.into()))
}

pub(super) fn credentials_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Credentials(message.into()))
}

/// A string that `Debug` does not show.
#[derive(Clone)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A source of PEM data, in memory or in a file. `what` names it in messages:
/// `client-key of user "admin"`.
#[derive(Clone)]
pub(super) struct PemSource {
    pub(super) what: String,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Bytes(Arc<[u8]>),
    File(PathBuf),
}

impl PemSource {
    pub(super) fn bytes(what: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            what: what.into(),
            source: Source::Bytes(bytes.into().into()),
        }
    }

    pub(super) fn file(what: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            what: what.into(),
            source: Source::File(path.into()),
        }
    }

    /// Reads the current content.
    pub(super) fn read(&self) -> Result<Pem, Error> {
        let bytes = match &self.source {
            Source::Bytes(bytes) => bytes.clone(),
            Source::File(path) => match read(path) {
                Ok(bytes) => bytes.into(),
                Err(error) => return Err(config_error(format!("{self}: {error}"))),
            },
        };
        Ok(Pem {
            what: self.to_string().into(),
            bytes,
        })
    }
}

impl fmt::Display for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Source::Bytes(_) => Ok(()),
            Source::File(path) => write!(f, " ({})", path.display()),
        }
    }
}

impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Source::File(path) => path.fmt(f),
        }
    }
}

/// PEM data that was read from a source. Equality compares only the bytes.
#[derive(Clone)]
pub(super) struct Pem {
    what: Arc<str>,
    pub(super) bytes: Arc<[u8]>,
}

impl PartialEq for Pem {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Reads a small text file and trims white space.
pub(super) fn read_trimmed(path: &Path) -> io::Result<String> {
    match String::from_utf8(read(path)?) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(_) => Err(io::Error::other("not UTF-8 text")),
    }
}

/// The maximum size of a file: more than ten times the size of a bundle of all public authorities.
const FILE_LIMIT: u64 = 4 << 20;

/// Reads a small file.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Checked before the file is opened: opening a named pipe blocks until its other end is open,
    // and a stop could not end this wait.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(io::Error::other(format!(
            "larger than {} MiB",
            FILE_LIMIT >> 20
        )));
    }
    Ok(bytes)
}
