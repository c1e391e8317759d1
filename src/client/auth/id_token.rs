use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use ureq::http::HeaderValue;

use super::header::bearer;
use crate::client::config::IdToken;
use crate::client::credential_data::config_error;
use crate::error::{Error, ErrorKind};

/// The id-token of an OIDC provider, used until it expires. The client does not refresh it; use a
/// credential plugin for that.
pub(super) struct ValidIdToken {
    what: String,
    header: HeaderValue,
    /// `None` if the token has no expiry.
    until: Option<SystemTime>,
}

impl ValidIdToken {
    pub(super) fn new(IdToken { what, token }: &IdToken) -> Result<Self, Error> {
        let token = token.0.trim();
        let until = expiry(token).map_err(|problem| config_error(format!("{what} {problem}")))?;
        let header = bearer(token).map_err(|problem| config_error(format!("{what} {problem}")))?;
        Ok(Self {
            what: what.clone(),
            header,
            until,
        })
    }

    /// The name of the token in messages.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    pub(super) fn header(&self) -> Result<HeaderValue, Error> {
        match self.until {
            Some(until) if until <= SystemTime::now() => {
                Err(Error::new(ErrorKind::Expired(format!(
                    "{} has expired, and this crate does not refresh it: log in again, or use an exec plugin \
                 (such as kubelogin) to get tokens",
                    self.what
                ))))
            }
            _ => Ok(self.header.clone()),
        }
    }
}

/// Returns the expiry from the claims, which are the second of the three parts of a token. The
/// signature is not verified here; the server does that.
fn expiry(token: &str) -> Result<Option<SystemTime>, &'static str> {
    #[derive(Deserialize)]
    struct Claims {
        exp: Option<f64>,
    }
    const BAD: &str = "is not a JSON web token";
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(BAD);
    };
    let claims = URL_SAFE_NO_PAD
        .decode(claims.trim_end_matches('='))
        .map_err(|_| BAD)?;
    let claims: Claims = serde_json::from_slice(&claims).map_err(|_| BAD)?;
    // A time that can't be represented means no expiry.
    Ok(claims
        .exp
        .and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
        .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::credential_data::Secret;

    fn token(claims: &str) -> Result<ValidIdToken, Error> {
        let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        ValidIdToken::new(&IdToken {
            what: "the id-token of user \"jane\"".to_owned(),
            token: Secret(token),
        })
    }

    #[test]
    fn id_token_is_used_until_expiry() {
        for valid in [r#"{"exp": 99999999999}"#, "{}", r#"{"exp": 1e300}"#] {
            assert!(token(valid).unwrap().header().unwrap().is_sensitive());
        }
        for expired in [
            r#"{"exp": 1700000000}"#,
            r#"{"exp": 1700000000.5}"#,
            r#"{"exp": -5}"#,
        ] {
            let error = token(expired).unwrap().header().unwrap_err();
            assert!(error.is_credentials(), "{error}");
            assert!(
                error.to_string().contains("of user \"jane\" has expired"),
                "{error}"
            );
        }
    }

    #[test]
    fn malformed_id_token_is_rejected() {
        for bad in ["[]", r#"{"exp": "soon"}"#, "{"] {
            let error = token(bad).map(drop).unwrap_err().to_string();
            assert_eq!(
                error,
                "configuration: the id-token of user \"jane\" is not a JSON web token"
            );
        }
        for bad in ["", "a.b", "a.b.c.d", "a.%.c"] {
            let token = IdToken {
                what: "it".to_owned(),
                token: Secret(bad.to_owned()),
            };
            assert!(ValidIdToken::new(&token).is_err(), "{bad}");
        }
    }
}
