use std::path::{Path, PathBuf};

use ureq::http::HeaderValue;

use super::header::bearer;
use crate::client::credential_data::{config_error, read_trimmed};
use crate::error::Error;
use crate::sync::Mutex;

/// A bearer token in a file, as kubelets and pods have it: another one each hour or so.
pub(super) struct TokenFile {
    path: PathBuf,
    /// What does until the file could be read once.
    inline: Option<HeaderValue>,
    /// The last good token, and what is wrong with the file since. Innermost; held for a copy.
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    token: Option<HeaderValue>,
    problem: Option<String>,
}

impl TokenFile {
    pub(super) fn new(path: &Path, inline: Option<HeaderValue>) -> Result<Self, Error> {
        let file = Self {
            path: path.to_owned(),
            inline,
            last: Mutex::default(),
        };
        match file.read() {
            Ok(token) => file.last.lock().token = Some(token),
            // As in client-go, the token that stands beside it does until the file can be read.
            Err(problem) if file.inline.is_some() => {
                log::warn!("{problem}; using the inline token");
            }
            Err(problem) => return Err(config_error(problem)),
        }
        Ok(file)
    }

    /// What to send. The file is read each time: it is small, a request is not, and so a rotated token is
    /// never used past the next request.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let read = self.read();
        let mut last = self.last.lock();
        let problem = match read {
            Ok(token) => {
                *last = Last {
                    token: Some(token),
                    problem: None,
                };
                None
            }
            // Once, not with every request.
            Err(problem) if last.problem.as_ref() == Some(&problem) => None,
            Err(problem) => Some(last.problem.insert(problem).clone()),
        };
        let token = last.token.clone().or_else(|| self.inline.clone());
        // A logger may make requests itself.
        drop(last);
        if let Some(problem) = problem {
            log::error!("{problem}; using the last good token");
        }
        token
    }

    fn read(&self) -> Result<HeaderValue, String> {
        let path = self.path.display();
        match read_trimmed(&self.path) {
            Ok(token) if token.is_empty() => Err(format!("the token file {path} is empty")),
            Ok(token) => bearer(&token).map_err(|problem| format!("the token in {path} {problem}")),
            Err(error) => Err(format!("can't read the token file {path}: {error}")),
        }
    }
}
