//! Finds the proxy for a server in the environment, as `golang.org/x/net/http/httpproxy` does,
//! except for host names that are not ASCII.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::http::Uri;

use super::Proxy;
use crate::client::credential_data::config_error;
use crate::client::transport::authority::{host_and_port, without_brackets};
use crate::error::Error;

impl Proxy {
    /// Returns the proxy from `HTTPS_PROXY` or `HTTP_PROXY`, depending on the server's scheme,
    /// unless `NO_PROXY` matches the server.
    ///
    /// A lower-case variable is used if the upper-case one is not set or is empty. `variable` reads
    /// a variable.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL of the proxy can't be used (see [`Proxy::parse`]). Go ignores
    /// such a URL. Also returns an error if `HTTP_PROXY` is set in a CGI program, where the
    /// variable may come from an HTTP client.
    pub(in crate::client) fn from_environment(
        server: &Uri,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Error> {
        let get = |names: [&'static str; 2]| {
            let value = |name| Some((name, variable(name).filter(|value| !value.is_empty())?));
            names.into_iter().find_map(value)
        };
        let is_http = server.scheme_str() == Some("http");
        let Some((name, url)) = get(if is_http {
            ["HTTP_PROXY", "http_proxy"]
        } else {
            ["HTTPS_PROXY", "https_proxy"]
        }) else {
            return Ok(None);
        };
        if is_http && variable("REQUEST_METHOD").is_some_and(|method| !method.is_empty()) {
            return Err(config_error(format!(
                "{name} is not used in a CGI program (REQUEST_METHOD is set), because a client may have set it"
            )));
        }
        let except = get(["NO_PROXY", "no_proxy"]).map_or(String::new(), |(_, list)| list);
        if !uses_proxy(server, &except) {
            return Ok(None);
        }
        Self::parse_lenient(&url)
            .map(Some)
            .map_err(|error| error.context(name))
    }
}

/// Whether the server is reached through a proxy. `except` is the value of `NO_PROXY`.
fn uses_proxy(server: &Uri, except: &str) -> bool {
    let (host, port) = host_and_port(server);
    let host = without_brackets(host);
    if host == "localhost" {
        return false;
    }
    let address = host
        .split('%')
        .next()
        .and_then(|bare| bare.parse::<IpAddr>().ok());
    let address = address.map(|address| address.to_canonical());
    if address.is_some_and(|address| address.is_loopback()) {
        return false;
    }
    let (host, port) = (host.to_lowercase(), port.to_string());
    !except.split(',').any(|entry| {
        let entry = entry.trim().to_lowercase();
        match address {
            _ if entry == "*" => true,
            Some(address) => matches_address(&entry, address, &port),
            None => matches_name(&entry, &host, &port),
        }
    })
}

fn matches_address(entry: &str, address: IpAddr, port: &str) -> bool {
    if let Some((network, bits)) = cidr(entry) {
        return contains(network, bits, address);
    }
    let (host, entry_port) = split_host_port(entry).unwrap_or((entry, ""));
    host.parse::<IpAddr>()
        .is_ok_and(|host| host.to_canonical() == address)
        && (entry_port.is_empty() || entry_port == port)
}

/// `foo.com` matches itself and its subdomains. `.foo.com` and `*.foo.com` match only subdomains.
fn matches_name(entry: &str, host: &str, port: &str) -> bool {
    let (domain, entry_port) = split_host_port(entry).unwrap_or((entry, ""));
    if domain.is_empty() || cidr(entry).is_some() || domain.parse::<IpAddr>().is_ok() {
        return false;
    }
    let domain = domain
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(domain);
    let matches = match domain.strip_prefix('.') {
        Some(_) => host.ends_with(domain),
        None => host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
    };
    matches && (entry_port.is_empty() || entry_port == port)
}

/// Parses an address and a prefix length. As in Go, an IPv4 address can be written as an IPv6
/// address.
fn cidr(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = entry.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u32 = bits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| bits.parse().ok())??;
    match (address, address.to_canonical()) {
        (IpAddr::V4(_), _) if bits <= 32 => Some((address, bits)),
        (IpAddr::V6(_), IpAddr::V4(mapped)) if (96..=128).contains(&bits) => {
            Some((mapped.into(), bits - 96))
        }
        (IpAddr::V6(_), _) if bits <= 128 => Some((address, bits)),
        _ => None,
    }
}

fn contains(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    // For a prefix length of 0, `checked_shr` returns `None`, because it cannot shift out all bits.
    // Then every address matches.
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differ = Ipv4Addr::to_bits(network) ^ Ipv4Addr::to_bits(address);
            differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differ = Ipv6Addr::to_bits(network) ^ Ipv6Addr::to_bits(address);
            differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Go's `net.SplitHostPort`. The port is not validated.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':')?)
        }
        None => text.split_once(':')?,
    };
    let is_bare = !host.contains(['[', ']']) && !port.contains([':', '[', ']']);
    is_bare.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy for a server's URL with these variables (`NAME=value`), or `direct`.
    fn proxy(variables: &[&str], server: &str) -> Result<String, Error> {
        let variable = |name: &str| {
            let value = |line: &&str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
            variables.iter().find_map(value)
        };
        let proxy = Proxy::from_environment(&server.parse().unwrap(), variable)?;
        Ok(proxy.map_or("direct".to_owned(), |proxy| proxy.to_string()))
    }

    const HTTP: &str = "http://example.com";

    /// The table of httpproxy's `TestProxyForURL`, without its schemes `foo` and `ftp` and without
    /// names that are not ASCII. The port is always shown here.
    #[test]
    fn proxy_variables_match_go() {
        for (variables, server, expected) in [
            (
                &["HTTP_PROXY=127.0.0.1:8080"][..],
                HTTP,
                "http://127.0.0.1:8080",
            ),
            (
                &["HTTP_PROXY=cache.corp.example.com:1234"],
                HTTP,
                "http://cache.corp.example.com:1234",
            ),
            (
                &["HTTP_PROXY=cache.corp.example.com"],
                HTTP,
                "http://cache.corp.example.com:80",
            ),
            (&["HTTP_PROXY=localhost"], HTTP, "http://localhost:80"),
            (
                &["HTTP_PROXY=https://cache.corp.example.com"],
                HTTP,
                "https://cache.corp.example.com:443",
            ),
            (
                &["HTTP_PROXY=http://127.0.0.1:8080"],
                HTTP,
                "http://127.0.0.1:8080",
            ),
            (
                &["HTTP_PROXY=https://127.0.0.1:8080"],
                HTTP,
                "https://127.0.0.1:8080",
            ),
            (
                &["HTTP_PROXY=socks5://127.0.0.1"],
                HTTP,
                "socks5://127.0.0.1:1080",
            ),
            (
                &["HTTP_PROXY=http.proxy.tld", "HTTPS_PROXY=secure.proxy.tld"],
                "http://insecure.tld/",
                "http://http.proxy.tld:80",
            ),
            (
                &["HTTP_PROXY=http.proxy.tld", "HTTPS_PROXY=secure.proxy.tld"],
                "https://secure.tld/",
                "http://secure.proxy.tld:80",
            ),
            (
                &[
                    "HTTP_PROXY=http.proxy.tld",
                    "HTTPS_PROXY=https://secure.proxy.tld",
                ],
                "https://secure.tld/",
                "https://secure.proxy.tld:443",
            ),
            (
                &["HTTP_PROXY=http.proxy.tld"],
                "https://secure.tld/",
                "direct",
            ),
            (
                &["HTTPS_PROXY=https://secure.proxy.tld", "REQUEST_METHOD=GET"],
                "https://secure.tld/",
                "https://secure.proxy.tld:443",
            ),
            (&[], HTTP, "direct"),
            (
                &["NO_PROXY=example.com", "HTTP_PROXY=proxy"],
                "http://example.com/",
                "direct",
            ),
            (
                &["NO_PROXY=.example.com", "HTTP_PROXY=proxy"],
                "http://example.com/",
                "http://proxy:80",
            ),
            (
                &["NO_PROXY=ample.com", "HTTP_PROXY=proxy"],
                "http://example.com/",
                "http://proxy:80",
            ),
            (
                &["NO_PROXY=example.com", "HTTP_PROXY=proxy"],
                "http://foo.example.com/",
                "direct",
            ),
            (
                &["NO_PROXY=.foo.com", "HTTP_PROXY=proxy"],
                "http://example.com/",
                "http://proxy:80",
            ),
        ] {
            assert_eq!(
                proxy(variables, server).unwrap(),
                expected,
                "{variables:?} {server}"
            );
        }
    }

    #[test]
    fn uppercase_proxy_variables_win_and_empty_ones_are_ignored() {
        for (variables, server, expected) in [
            (
                &["HTTPS_PROXY=a", "https_proxy=b"][..],
                "https://api:6443",
                "http://a:80",
            ),
            (
                &["HTTPS_PROXY=", "https_proxy=b"],
                "https://api:6443",
                "http://b:80",
            ),
            (&["http_proxy=b"], HTTP, "http://b:80"),
            (
                &["https_proxy=b", "NO_PROXY=", "no_proxy=api"],
                "https://api:6443",
                "direct",
            ),
            (
                &["https_proxy=b", "NO_PROXY=x", "no_proxy=api"],
                "https://api:6443",
                "http://b:80",
            ),
            (
                &["ALL_PROXY=a", "all_proxy=a"],
                "https://api:6443",
                "direct",
            ),
            (
                &["HTTPS_PROXY=me:s3cret@a:1"],
                "https://api:6443",
                "http://a:1",
            ),
        ] {
            assert_eq!(
                proxy(variables, server).unwrap(),
                expected,
                "{variables:?} {server}"
            );
        }
    }

    /// httpproxy's `TestUseProxy`.
    #[test]
    fn no_proxy_hosts_match_go() {
        const EXCEPT: &str = "NO_PROXY=foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, \
             192.168.1.3:80, 10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, \
             2002:db8:a::45/64";
        for (host, expected) in [
            ("localhost", false),
            ("127.0.0.1", false),
            ("127.0.0.2", false),
            ("[::1]", false),
            ("[::2]", true),
            ("192.168.1.1", false),
            ("192.168.1.2", true),
            ("192.168.1.3", false),
            ("192.168.1.4", true),
            ("10.0.0.2", false),
            ("[2001:db8::52:0:1]", false),
            ("[2001:db8::52:0:2]", true),
            ("[2001:db8::52:0:3]", false),
            ("[2002:db8:a::123]", false),
            ("[fe80::424b:c8be:1643:a1b6]", true),
            ("barbaz.net", true),
            ("www.barbaz.net", false),
            ("foobar.com", false),
            ("www.foobar.com", false),
            ("foofoobar.com", true),
            ("baz.com", true),
            ("localhost.net", true),
            ("local.localhost", true),
            ("barbarbaz.net", true),
            ("wildcard.io", true),
            ("nested.wildcard.io", false),
            ("awildcard.io", true),
        ] {
            for (except, expected) in [
                (EXCEPT, expected),
                ("NO_PROXY=*", false),
                ("NO_PROXY=a,*", false),
            ] {
                let proxy = proxy(&["HTTP_PROXY=p", except], &format!("http://{host}:80")).unwrap();
                assert_eq!(proxy == "http://p:80", expected, "{host} {except}");
            }
        }
    }

    #[test]
    fn no_proxy_accepts_ports_networks_and_wildcards() {
        for (except, server, expected) in [
            (":1", "https://example.com", true),
            ("", "https://example.com", true),
            (",, ,", "https://example.com", true),
            ("api.corp:6443", "https://api.corp:6443", false),
            ("api.corp:443", "https://api.corp", false),
            ("api.corp:6443", "https://api.corp", true),
            ("CORP", "https://API.corp", false),
            ("corp:https", "https://api.corp", true),
            ("*corp", "https://api.corp", true),
            ("api.*", "https://api.corp", true),
            ("*.corp:6443", "https://api.corp:6443", false),
            ("0.0.0.0/0", "https://10.1.2.3", false),
            ("0.0.0.0/0", "https://[fd00::1]", true),
            ("0.0.0.0/0", "https://api.corp", true),
            ("::/0", "https://[fd00::1]", false),
            ("::/0", "https://10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "https://10.1.2.3", false),
            ("::ffff:10.1.2.3", "https://10.1.2.3", false),
            ("10.1.2.3", "https://[::ffff:10.1.2.3]", false),
            ("", "https://[::ffff:127.0.0.1]", false),
            ("10.0.0.0/33", "https://10.0.0.0", true),
            ("10.0.0.0/+8", "https://10.0.0.0", true),
            ("10.0.0.0/", "https://10.0.0.0", true),
            ("10.0.0.0/99999999999", "https://10.0.0.0", true),
            ("10.1.2.3:6443", "https://10.1.2.3:6443", false),
            ("[fd00::1]", "https://[fd00::1]", true),
            ("[fd00::1]:443", "https://[fd00::1]", false),
            ("[fd00::1", "https://[fd00::1]", true),
            // As in Go, the port is ignored, and only the lower-case spelling is localhost.
            ("", "https://LOCALHOST", true),
            ("", "https://localhost:6443", false),
        ] {
            let except = format!("NO_PROXY={except}");
            let proxy = proxy(&["HTTPS_PROXY=p", &except], server).unwrap();
            assert_eq!(proxy == "http://p:80", expected, "{except} {server}");
        }
    }

    #[test]
    fn invalid_proxy_error_names_the_variable() {
        for (variables, server, expected) in [
            (
                &["HTTP_PROXY=http://10.1.2.3:8080", "REQUEST_METHOD=GET"][..],
                HTTP,
                "HTTP_PROXY is not used in a CGI program",
            ),
            (
                &[
                    "http_proxy=10.1.2.3:8080",
                    "REQUEST_METHOD=GET",
                    "NO_PROXY=*",
                ],
                HTTP,
                "http_proxy is not used in a CGI program",
            ),
            (
                &["HTTPS_PROXY=foo://me:s3cret@host"],
                "https://api",
                r#"HTTPS_PROXY: configuration: the proxy's URL has the scheme "foo""#,
            ),
            (
                &["https_proxy=me:s3cret@proxy:port"],
                "https://api",
                "https_proxy: configuration: the proxy's URL has an invalid host or port",
            ),
            (
                &["https_proxy=http://"],
                "https://api",
                "https_proxy: configuration: the proxy's URL has an invalid host or port",
            ),
        ] {
            let error = proxy(variables, server).unwrap_err();
            assert!(error.is_config(), "{error:?}");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
        // A URL that is not needed is not validated.
        assert_eq!(
            proxy(&["HTTPS_PROXY=foo://host", "NO_PROXY=api"], "https://api").unwrap(),
            "direct"
        );
    }
}
