use ureq::http::request::Builder;
use ureq::http::{HeaderName, HeaderValue};

use crate::base::text::percent_encoded;
use crate::client::config::Impersonation;
use crate::client::credential_data::config_error;
use crate::error::Error;

/// The characters that a header name may contain besides letters and digits. `%` is not included,
/// because it is the escape character.
const TOKEN: &[u8] = b"!#$&'*+-.^_`|~";

/// The headers for an [`Impersonation`].
pub(super) struct ImpersonationHeaders(Vec<(HeaderName, HeaderValue)>);

impl ImpersonationHeaders {
    pub(super) fn new(impersonation: &Impersonation) -> Result<Self, Error> {
        // Destructured so that a new field can't be forgotten.
        let Impersonation {
            user,
            uid,
            groups,
            extra,
        } = impersonation;
        if user.is_empty() {
            return Err(config_error("impersonation requires a user name"));
        }
        let mut headers = vec![(
            HeaderName::from_static("impersonate-user"),
            value("user", user)?,
        )];
        if let Some(uid) = uid {
            headers.push((
                HeaderName::from_static("impersonate-uid"),
                value("uid", uid)?,
            ));
        }
        for group in groups {
            headers.push((
                HeaderName::from_static("impersonate-group"),
                value("group", group)?,
            ));
        }
        for (key, text) in extra {
            let name = format!(
                "impersonate-extra-{}",
                percent_encoded(&key.to_lowercase(), TOKEN)
            );
            let name = HeaderName::try_from(name).map_err(|_| {
                config_error(format!(
                    "{key:?} is not a valid key of the extra fields to impersonate"
                ))
            })?;
            headers.push((name, value("extra", text)?));
        }
        Ok(Self(headers))
    }

    pub(super) fn add_to(&self, head: Builder) -> Builder {
        self.0
            .iter()
            .fold(head, |head, (name, value)| head.header(name, value))
    }
}

/// Returns the header value for a text: raw UTF-8, as other clients send it.
fn value(what: &str, text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
        config_error(format!(
            "the {what} to impersonate contains characters that are not allowed in a header"
        ))
    })
}
