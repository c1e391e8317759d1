use std::path::{Path, PathBuf};

use ureq::http::HeaderValue;

use super::header::bearer;
use crate::base::sync::Mutex;
use crate::base::text::Reason;
use crate::client::credential_data::{config_error, read_trimmed};
use crate::error::Error;
use crate::log;

/// A bearer token in a file that is rotated about once an hour, such as the token of a kubelet or a
/// pod.
pub(super) struct TokenFile {
    path: PathBuf,
    /// The token to use until the file has been read successfully once.
    inline: Option<HeaderValue>,
    /// The last valid token, and the current problem with the file. Innermost lock, held only to
    /// copy the token.
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    token: Option<HeaderValue>,
    problem: Option<Reason>,
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
            // As in client-go, the inline token is used until the file can be read.
            Err(problem) if file.inline.is_some() => {
                log::warn!("{problem}; using the inline token");
            }
            Err(problem) => return Err(config_error(problem.to_string())),
        }
        Ok(file)
    }

    /// Returns the header to send, or `None` if there is no token.
    ///
    /// The file is read for every call. This is cheap compared with a request, and the next request
    /// after a rotation uses the new token.
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
            // Each problem is logged once, not for every request.
            Err(problem) if last.problem.as_ref() == Some(&problem) => None,
            Err(problem) => Some(last.problem.insert(problem).clone()),
        };
        let (token, fallback) = match &last.token {
            Some(_) => (last.token.clone(), "using the last good token"),
            None => (self.inline.clone(), "using the token of the configuration"),
        };
        // The logger may make requests itself, so the lock is released first.
        drop(last);
        if let Some(problem) = problem {
            log::error!("{problem}; {fallback}");
        }
        token
    }

    fn read(&self) -> Result<HeaderValue, Reason> {
        let path = self.path.display();
        match read_trimmed(&self.path) {
            Ok(token) if token.is_empty() => Err(format!("the token file {path} is empty").into()),
            Ok(token) => {
                bearer(&token).map_err(|problem| format!("the token in {path} {problem}").into())
            }
            Err(error) => Err(format!("can't read the token file {path}: {error}").into()),
        }
    }
}
