//! Who asks: what goes into the head of each request, and whether there is something else to try after a 401.

// The client asks it from where credentials are put into requests.
#[allow(dead_code)]
pub(super) mod exec;
mod id_token;
mod impersonate;
mod token_file;

use base64::Engine;
use ureq::http::HeaderValue;
use ureq::http::request::Builder;

use self::id_token::ValidIdToken;
use self::impersonate::Impersonating;
use self::token_file::TokenFile;
use super::config::Config;
use super::material::config_error;
use crate::error::Error;
use crate::stop::Stop;

/// How a client authenticates. Client certificates are [`Connections`](super::connections::Connections)'.
pub(super) struct Auth {
    how: How,
    impersonating: Option<Impersonating>,
}

enum How {
    /// Anonymous, or by a client certificate.
    Nothing,
    /// The same for every request.
    Fixed(HeaderValue),
    TokenFile(TokenFile),
    IdToken(ValidIdToken),
}

/// What one request authenticates with.
#[derive(Clone, PartialEq)]
pub(super) struct Identity {
    header: Option<HeaderValue>,
}

impl Auth {
    pub(super) fn new(config: &Config) -> Result<Self, Error> {
        let how = How::new(config)?;
        let impersonating = config.impersonation.as_ref().map(Impersonating::new).transpose()?;
        Ok(Self { how, impersonating })
    }

    /// What to authenticate with now.
    pub(super) fn identity(&self, _stop: &Stop) -> Result<Identity, Error> {
        let header = match &self.how {
            How::Nothing => None,
            How::Fixed(header) => Some(header.clone()),
            How::TokenFile(file) => file.header(),
            How::IdToken(token) => Some(token.header()?),
        };
        Ok(Identity { header })
    }

    /// Puts it into the head of a request.
    pub(super) fn sign(&self, identity: &Identity, mut head: Builder) -> Builder {
        if let Some(header) = &identity.header {
            head = head.header(ureq::http::header::AUTHORIZATION, header);
        }
        match &self.impersonating {
            Some(impersonating) => impersonating.add_to(head),
            None => head,
        }
    }
}

impl How {
    fn new(config: &Config) -> Result<Self, Error> {
        let inline = match &config.token {
            Some(token) if !token.0.trim().is_empty() => {
                let header = bearer(token.0.trim());
                Some(header.map_err(|problem| config_error(format!("the token {problem}")))?)
            }
            _ => None,
        };
        if config.basic.is_some() && (inline.is_some() || config.token_file.is_some()) {
            return Err(config_error("a user name and a token exclude each other"));
        }
        if let Some((user, password)) = &config.basic {
            return Ok(Self::Fixed(basic(user, &password.0)));
        }
        if let Some(file) = &config.token_file {
            return Ok(Self::TokenFile(TokenFile::new(file, inline)?));
        }
        if let Some(header) = inline {
            return Ok(Self::Fixed(header));
        }
        match &config.id_token {
            Some(token) => Ok(Self::IdToken(ValidIdToken::new(token)?)),
            None => Ok(Self::Nothing),
        }
    }
}

fn bearer(token: &str) -> Result<HeaderValue, &'static str> {
    if token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err("holds blanks, line breaks or characters that a token can't have");
    }
    secret(format!("Bearer {token}")).ok_or("can't be sent")
}

/// Whatever they hold, base64 can be sent.
fn basic(user: &str, password: &str) -> HeaderValue {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    secret(format!("Basic {pair}")).unwrap_or_else(|| HeaderValue::from_static("Basic"))
}

fn secret(value: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
