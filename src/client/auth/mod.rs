//! The bearer token of a request.

// The client asks it from where credentials are put into requests.
#[allow(dead_code)]
pub(super) mod exec;

use std::path::PathBuf;

use ureq::http::HeaderValue;

use super::config::Config;
use super::material::{config_error, read_trimmed};
use crate::error::Error;
use crate::sync::Mutex;

pub(super) struct Auth {
    inline: Option<HeaderValue>,
    file: Option<TokenFile>,
}

struct TokenFile {
    path: PathBuf,
    /// The last good token. Innermost; held for a copy.
    last: Mutex<Option<HeaderValue>>,
}

impl Auth {
    pub(super) fn new(config: &Config) -> Result<Self, Error> {
        let inline = match &config.token {
            Some(token) if !token.0.trim().is_empty() => {
                Some(bearer(token.0.trim()).map_err(|problem| config_error(format!("the token {problem}")))?)
            }
            _ => None,
        };
        let file = match &config.token_file {
            None => None,
            Some(path) => {
                let file = TokenFile { path: path.clone(), last: Mutex::default() };
                match file.read() {
                    Ok(token) => *file.last.lock() = Some(token),
                    // As in client-go, the token that stands beside it does until the file can be read.
                    Err(problem) if inline.is_some() => log::warn!("{problem}; using the inline token"),
                    Err(problem) => return Err(config_error(problem)),
                }
                Some(file)
            }
        };
        Ok(Self { inline, file })
    }

    /// What to send, if anything. The file is read each time: it is small, a request is not, and so a rotated
    /// token is never used past the next request.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let Some(file) = &self.file else { return self.inline.clone() };
        let last = match file.read() {
            Ok(token) => {
                *file.last.lock() = Some(token.clone());
                Some(token)
            }
            Err(problem) => {
                log::error!("{problem}; using the last good token");
                file.last.lock().clone()
            }
        };
        last.or_else(|| self.inline.clone())
    }
}

impl TokenFile {
    fn read(&self) -> Result<HeaderValue, String> {
        let path = self.path.display();
        match read_trimmed(&self.path) {
            Ok(token) if token.is_empty() => Err(format!("the token file {path} is empty")),
            Ok(token) => bearer(&token).map_err(|problem| format!("the token in {path} {problem}")),
            Err(error) => Err(format!("can't read the token file {path}: {error}")),
        }
    }
}

fn bearer(token: &str) -> Result<HeaderValue, &'static str> {
    if token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err("holds blanks, line breaks or characters that a token can't have");
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| "can't be sent")?;
    value.set_sensitive(true);
    Ok(value)
}
