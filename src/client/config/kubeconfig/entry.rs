use std::path::{Component, Path, PathBuf};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::schema::filled;
use crate::client::credential_data::PemSource;

/// As Go's, which does not look at the bits that the last character has too many.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A cluster, a user or a context by its name, and what relative paths in it are relative to.
pub(super) struct Entry<T> {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) value: T,
}

/// The folder of a kubeconfig, whichever folder this process is in later on.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    absolute(path.parent().unwrap_or_else(|| Path::new("")))
}

pub(super) fn absolute(folder: &Path) -> PathBuf {
    // The only one that it can't make of the empty path is the current one.
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

impl<T> Entry<T> {
    /// A file that is named in it. As clientcmd does it, `..` goes back in the text of the path, wherever
    /// links lead.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        let file = Path::new(file);
        if file.is_absolute() {
            return file.to_owned();
        }
        let mut path = PathBuf::new();
        for part in self.folder.join(file).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => drop(path.pop()),
                part => path.push(part),
            }
        }
        path
    }

    /// What stands in its field `FIELD-data`, or in the file that its field names.
    pub(super) fn pem_source(
        &self,
        owner: &str,
        field: &str,
        data: &Option<String>,
        file: &Option<String>,
    ) -> Result<Option<PemSource>, String> {
        let Some(data) = filled(data) else {
            let what = format!("{field} of {owner} {:?}", self.name);
            return Ok(filled(file).map(|file| PemSource::file(what, self.path(file))));
        };
        if filled(file).is_some() {
            return Err(format!(
                "the {owner} {:?} has both {field} and {field}-data",
                self.name
            ));
        }
        let what = format!("{field}-data of {owner} {:?}", self.name);
        // A block scalar has line breaks.
        let data: Vec<u8> = data
            .bytes()
            .filter(|byte| !matches!(byte, b'\r' | b'\n'))
            .collect();
        match BASE64.decode(data) {
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => Ok(Some(PemSource::bytes(what, bytes))),
            Err(_) => Err(format!("{what} is not base64")),
        }
    }
}
