use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ureq::http::HeaderValue;

/// Returns the `Authorization` header for a bearer token, or a description of the problem with it.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, &'static str> {
    if token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err("contains whitespace or other characters that are not allowed in a token");
    }
    secret(format!("Bearer {token}")).ok_or("can't be sent")
}

/// Returns the `Authorization` header for a user name and a password. It can't fail, because base64
/// is always valid in a header.
pub(super) fn basic(user: &str, password: &str) -> HeaderValue {
    let pair = STANDARD.encode(format!("{user}:{password}"));
    secret(format!("Basic {pair}")).unwrap_or_else(|| HeaderValue::from_static("Basic"))
}

fn secret(value: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
