use std::path::{Component, Path, PathBuf};

use super::schema::non_empty;
use crate::base::text::Reason;
use crate::client::credential_data::PemSource;
use crate::client::yaml::decode_base64;

/// A named cluster, user or context. Relative paths in it are relative to `folder`.
pub(super) struct Entry<T> {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) value: T,
}

/// The directory of a kubeconfig as an absolute path, so that a later change of the working
/// directory has no effect.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    absolute(path.parent().unwrap_or_else(|| Path::new("")))
}

pub(super) fn absolute(folder: &Path) -> PathBuf {
    // `std::path::absolute` fails for an empty path, which here means the working directory.
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

impl<T> Entry<T> {
    /// Resolves the path of a file that the entry names. As in clientcmd, `..` removes the last
    /// component of the path text, even if that is a symbolic link.
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

    /// The PEM data from the field `FIELD-data`, or from the file that `FIELD` names.
    pub(super) fn pem_source(
        &self,
        owner: &str,
        field: &str,
        data: &str,
        file: &str,
    ) -> Result<Option<PemSource>, Reason> {
        let Some(data) = non_empty(data) else {
            let what = format!("{field} of {owner} {:?}", self.name);
            return Ok(non_empty(file).map(|file| PemSource::file(what, self.path(file))));
        };
        if !file.is_empty() {
            return Err(format!(
                "the {owner} {:?} has both {field} and {field}-data",
                self.name
            )
            .into());
        }
        let what = format!("{field}-data of {owner} {:?}", self.name);
        match decode_base64(data) {
            Some(bytes) if bytes.is_empty() => Ok(None),
            Some(bytes) => Ok(Some(PemSource::bytes(what, bytes))),
            None => Err(format!("{what} is not base64").into()),
        }
    }
}
