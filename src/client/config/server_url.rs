use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use ureq::http::Uri;

use super::{Config, ProxyChoice};
use crate::client::credential_data::config_error;
use crate::error::Error;

/// The URL of a server, not validated yet. `Debug` hides it if it may contain a password.
#[derive(Clone)]
pub(in crate::client) struct ServerUrl(pub(in crate::client) String);

impl Deref for ServerUrl {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.contains(['@', '?', '#']) {
            true => f.write_str("***"),
            false => self.0.fmt(f),
        }
    }
}

/// Returns the server's URL with a scheme. Rejects parts that would be ignored, and parts that
/// would put a secret into messages.
pub(in crate::client) fn server_url(config: &Config) -> Result<Uri, Error> {
    let given = config.server.trim();
    if given.is_empty() {
        return Err(config_error("the server's URL is empty"));
    }
    let authority = given.split_once("://").map_or(given, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next();
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(config_error(
            "the server's URL contains a user name or password, which is not supported",
        ));
    }
    if given.contains(['?', '#']) {
        return Err(config_error(
            "the server's URL has a query or a fragment, which is not supported",
        ));
    }
    // kubectl converts such a host itself.
    if authority.is_some_and(|authority| !authority.is_ascii()) {
        return Err(config_error(format!(
            "the host of the server's URL {:?} is not ASCII; write it as xn--…",
            ServerUrl(given.to_owned())
        )));
    }
    let url = match (given.contains("://"), config.has_tls_settings()) {
        (true, _) => given.to_owned(),
        (false, true) => format!("https://{given}"),
        (false, false) => format!("http://{given}"),
    };
    let invalid = || {
        config_error(format!(
            "{:?} is not a valid server URL; expected http(s)://host[:port][/path]",
            ServerUrl(given.to_owned())
        ))
    };
    let uri: Uri = url.parse().map_err(|_| invalid())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() && has_port_or_none(&uri) => {
            Ok(uri)
        }
        _ => Err(invalid()),
    }
}

impl Config {
    /// Whether all traffic stays on this machine.
    pub(in crate::client) fn server_is_local(&self) -> bool {
        // With a proxy, `localhost` or a loopback address means the machine of the proxy.
        if matches!(self.proxy, ProxyChoice::Url(_)) {
            return false;
        }
        let Ok(url) = self.server.trim().parse::<Uri>() else {
            return false;
        };
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        // Matches only this spelling: other spellings do not bypass the environment's proxy either,
        // as in Go.
        host == "localhost"
            || host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }
}

/// Returns whether the URL has a valid port or none. [`Uri`] treats an invalid port as missing, and
/// the client would connect to the default port.
fn has_port_or_none(uri: &Uri) -> bool {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let suffix = authority
        .strip_prefix(uri.host().unwrap_or_default())
        .unwrap_or(authority);
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    matches!(suffix, "" | ":") || suffix.strip_prefix(':').is_some_and(is_port)
}
