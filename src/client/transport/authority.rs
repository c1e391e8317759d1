//! The host and the port of a URL.

use ureq::http::Uri;

/// The host as written in the URL, and the port.
pub(super) fn host_and_port(uri: &Uri) -> (&str, u16) {
    let port = match (uri.port_u16(), uri.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("https")) => 443,
        (None, _) => 80,
    };
    (uri.host().unwrap_or_default(), port)
}

/// The host without the brackets of an IPv6 address.
pub(super) fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}
