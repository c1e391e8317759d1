//! Parses the URLs of proxies, following Go: `url.Parse`, clientcmd's `parseProxyURL` for URLs in a
//! configuration, and httpproxy's `parseProxy` for URLs in the environment.

use super::{Proxy, Scheme, User};
use crate::base::text::percent_decoded;
use crate::client::credential_data::config_error;
use crate::error::Error;

impl Scheme {
    fn of(name: &str) -> Option<Self> {
        [Self::Http, Self::Https, Self::Socks5, Self::Socks5h]
            .into_iter()
            .find(|scheme| scheme.name().eq_ignore_ascii_case(name))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
            Self::Socks5h => "socks5h",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks5 | Self::Socks5h => 1080,
        }
    }
}

impl Proxy {
    /// Parses a URL from a configuration: `scheme://[user[:password]@]host[:port]`.
    ///
    /// As in kubectl, the scheme is required. Anything after the port is ignored. The user and the
    /// password are percent-decoded.
    ///
    /// # Errors
    ///
    /// Returns a description of the problem without the user and the password.
    pub(in crate::client) fn parse(url: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = split(url) else {
            return Err(config_error(
                "the proxy's URL has no scheme; http://, https://, socks5:// and socks5h:// are supported",
            ));
        };
        let scheme = Scheme::of(scheme).ok_or_else(|| {
            config_error(format!(
                "the proxy's URL has the scheme {scheme:?}; http, https, socks5 and socks5h are supported"
            ))
        })?;
        let authority = authority(rest);
        // Splits at the last `@`: a password should escape its `@`, but Go accepts it unescaped.
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let user = match user.map(User::parse) {
            None => None,
            Some(Some(user)) => Some(user),
            Some(None) => {
                return Err(config_error(
                    "the proxy's URL has an invalid % escape before the @",
                ));
            }
        };
        // The messages do not show the host and port, because they can be a part of a password
        // that contains a `/`.
        if !place.is_ascii() {
            return Err(config_error(
                "the proxy's URL has a host that is not ASCII; write it as xn--…",
            ));
        }
        let (host, port) = host_and_port(place)
            .ok_or_else(|| config_error("the proxy's URL has an invalid host or port"))?;
        let is_socks = matches!(scheme, Scheme::Socks5 | Scheme::Socks5h);
        if let (true, Some(User { name, password })) = (is_socks, &user)
            && (name.is_empty() || name.len() > 255 || password.len() > 255)
        {
            return Err(config_error(
                "a SOCKS proxy requires a user name of 1 to 255 bytes and a password of at most 255 bytes",
            ));
        }
        Ok(Self {
            scheme,
            host,
            port: port.unwrap_or(scheme.default_port()),
            user,
            tls: None,
        })
    }

    /// Parses a value from the environment. The default scheme is `http`.
    ///
    /// # Errors
    ///
    /// The same as for [`Proxy::parse`].
    pub(super) fn parse_lenient(value: &str) -> Result<Self, Error> {
        match split(value) {
            Some(_) => Self::parse(value),
            None => Self::parse(&format!("http://{value}")),
        }
    }
}

/// Splits the URL into the scheme and the part after `://`.
fn split(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, rest))
}

/// The part before the path, the query or the fragment.
fn authority(rest: &str) -> &str {
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn host_and_port(place: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match place
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((address, port)) => {
            // The `%` before a zone is percent-encoded.
            let address = address.replacen("%25", "%", 1);
            let (bare, _zone) = address.split_once('%').unwrap_or((&address, ""));
            bare.parse::<std::net::Ipv6Addr>().ok()?;
            (format!("[{address}]"), port)
        }
        None => {
            let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            (!host.is_empty() && host.bytes().all(is_host)).then(|| (host.to_owned(), port))?
        }
    };
    let port = match port.strip_prefix(':') {
        // As in Go, a colon without a port is ignored.
        Some("") => None,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(port.parse().ok().filter(|port| *port != 0)?)
        }
        None if port.is_empty() => None,
        _ => return None,
    };
    Some((host, port))
}

impl User {
    fn parse(text: &str) -> Option<Self> {
        let (name, password) = text.split_once(':').unwrap_or((text, ""));
        Some(Self {
            name: percent_decoded(name)?,
            password: percent_decoded(password)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(proxy: &Proxy) -> Option<(&[u8], &[u8])> {
        proxy
            .user
            .as_ref()
            .map(|user| (&*user.name, &*user.password))
    }

    #[test]
    fn url_without_port_has_default_port_of_scheme() {
        for (url, expected) in [
            ("http://proxy", "http://proxy:80"),
            (
                "HTTP://Proxy.corp:3128/path?query#fragment",
                "http://Proxy.corp:3128",
            ),
            ("https://proxy", "https://proxy:443"),
            ("https://proxy:", "https://proxy:443"),
            ("socks5://10.0.0.1", "socks5://10.0.0.1:1080"),
            ("socks5h://127.0.0.1:9050", "socks5h://127.0.0.1:9050"),
            ("http://[::1]:3128", "http://[::1]:3128"),
            ("http://[fe80::1%25eth0]", "http://[fe80::1%eth0]:80"),
            ("http://user:s3cret@proxy:3128", "http://proxy:3128"),
        ] {
            let proxy = Proxy::parse(url).unwrap();
            assert_eq!(proxy.to_string(), expected, "{url}");
            assert_eq!(format!("{proxy:?}"), format!("Proxy({expected})"));
        }
    }

    #[test]
    fn proxy_url_user_and_password_are_decoded() {
        for (url, expected) in [
            ("http://proxy", None),
            ("http://me@proxy", Some((&b"me"[..], &b""[..]))),
            ("http://me:@proxy", Some((b"me", b""))),
            ("http://:pass@proxy", Some((b"", b"pass"))),
            (
                "http://m%40e:a%3Ab%2f+%ff:c@proxy",
                Some((b"m@e", b"a:b/+\xff:c")),
            ),
            ("http://me:p@ss@proxy", Some((b"me", b"p@ss"))),
        ] {
            assert_eq!(user(&Proxy::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn invalid_url_error_omits_user_and_password() {
        let long = format!("socks5://s3cret{}:s3cret@proxy", "x".repeat(255));
        for (url, expected) in [
            ("", "has no scheme"),
            ("proxy", "has no scheme"),
            ("127.0.0.1:3128", "has no scheme"),
            ("s3cret:s3cret@proxy:3128", "has no scheme"),
            ("s3cret/s3cret@x://proxy", "has no scheme"),
            ("ftp://s3cret@proxy", r#"has the scheme "ftp""#),
            ("socks4://proxy", r#"has the scheme "socks4""#),
            ("http://", "invalid host or port"),
            ("http:///proxy", "invalid host or port"),
            ("http://:3128", "invalid host or port"),
            ("http://s3cret:s3cret@", "invalid host or port"),
            ("http://s3cret:s3cret@pro xy", "invalid host or port"),
            ("http://s3cret@proxy:port", "invalid host or port"),
            ("http://proxy:65536", "invalid host or port"),
            ("http://proxy:0", "invalid host or port"),
            ("http://proxy:+1", "invalid host or port"),
            ("http://[::1", "invalid host or port"),
            ("http://[::1]3128", "invalid host or port"),
            ("http://[proxy]", "invalid host or port"),
            ("http://::1", "invalid host or port"),
            ("http://s3cret@prôxy", "write it as xn--…"),
            ("http://s3cret%zz@proxy", "invalid % escape"),
            ("http://s3cret%4@proxy", "invalid % escape"),
            ("http://s3cret%é@proxy", "invalid % escape"),
            ("socks5://:s3cret@proxy", "a user name of 1 to 255 bytes"),
            (&long, "a user name of 1 to 255 bytes"),
        ] {
            let error = Proxy::parse(url).unwrap_err();
            assert!(error.is_config(), "{error:?}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(expected), "{url}: {text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
        // A `/` in a password ends the authority, so the part before it could be taken for a host.
        let error = Proxy::parse("http://me:s3cret/s3cret@proxy:3128")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
