use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ureq::http::HeaderValue;

/// The `Authorization` of a bearer token; otherwise what is wrong with the token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, &'static str> {
    if token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err("holds blanks, line breaks or characters that a token can't have");
    }
    secret(format!("Bearer {token}")).ok_or("can't be sent")
}

/// The `Authorization` of a user and a password. Whatever they hold, base64 can be sent.
pub(super) fn basic(user: &str, password: &str) -> HeaderValue {
    let pair = STANDARD.encode(format!("{user}:{password}"));
    secret(format!("Basic {pair}")).unwrap_or_else(|| HeaderValue::from_static("Basic"))
}

fn secret(value: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
