//! Sockets, TLS and proxies under ureq. All that touches `ureq::unversioned`, which is outside ureq's semver
//! promise, stands here.
//!
//! A connection is made in three steps: TCP to the server or its proxy, the tunnel through the proxy if there
//! is one, and TLS with the server if it wants that.

mod buffers;
pub(super) mod cancel;
pub(super) mod deadline;
pub(super) mod proxy;
mod resolve;
mod secure;
mod tcp;
pub(super) mod tls;

use std::sync::Arc;
use std::time::Duration;

use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, Either, NextTimeout, time};
use ureq::{Agent, http::Uri};

use self::proxy::{Proxy, ProxyConnector};
use self::secure::{TlsConnector, TlsTransport};
use self::tcp::{TcpConnector, TcpTransport};
use self::tls::Tls;

/// The largest head of an answer, and the longest header line of a request: 32 KiB. A long token has 10 KiB.
pub(super) const BUFFER: usize = 32 * 1024;

/// How much is read at once to begin with.
const SMALL_INPUT: usize = 8 * 1024;

/// What is sent at once under TLS: one record, and what it has around it.
const RECORD_BUFFER: usize = 17 * 1024;

/// How much is read at once under TLS to begin with: as much as rustls takes.
const RECORD_INPUT: usize = 4 * 1024;

/// How long an unused connection stays in the pool: as long as a keepalive would find it alive without
/// asking.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// What leads to the server: TCP, or a tunnel through a proxy, which may want TLS for itself.
type Way = Either<TcpTransport, Box<TlsTransport<TcpTransport>>>;

/// An agent for one server, directly or through a proxy.
pub(super) fn agent(tls: Option<Tls>, proxy: Option<Proxy>) -> Agent {
    let config = Agent::config_builder()
        // Ours is not ureq's, whose SOCKS makes sockets that no stop would end. Without this ureq takes one
        // from the environment.
        .proxy(None)
        // Otherwise the body of a failure, its Status, is lost.
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .accept_encoding("identity")
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        // The buffers look to the head. ureq takes all that has come for one, also many interim answers.
        .max_response_header_size(buffers::LARGEST)
        // All of them: there is one host.
        .max_idle_connections_per_host(10)
        .max_idle_age(MAX_IDLE)
        .build();
    if let Some(proxy) = &proxy {
        log::debug!("the way to the server leads through the proxy {proxy}");
    }
    let proxy = proxy.map(Arc::new);
    let connector = TcpConnector::new(proxy.clone())
        .chain(ProxyConnector::new(proxy.clone()))
        .chain(TlsConnector::new(tls, proxy));
    Agent::with_parts(config, connector, Later)
}

/// Resolves nothing: ureq asks for every request, but only a new connection needs addresses.
#[derive(Debug)]
struct Later;

impl Resolver for Later {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

/// The host as it stands in the URL, and the port.
fn place(uri: &Uri) -> (&str, u16) {
    let port = match (uri.port_u16(), uri.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("https")) => 443,
        (None, _) => 80,
    };
    (uri.host().unwrap_or_default(), port)
}

/// The host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

/// What is left of the time to connect; zero is an error.
fn left(details: &ConnectionDetails<'_>) -> Result<Option<Duration>, ureq::Error> {
    let time::Duration::Exact(limit) = details.timeout.after else {
        return Ok(None);
    };
    let (time::Instant::Exact(start), time::Instant::Exact(now)) =
        (details.now, (details.current_time)())
    else {
        return Ok(Some(limit));
    };
    match limit.saturating_sub(now.saturating_duration_since(start)) {
        Duration::ZERO => Err(ureq::Error::Timeout(details.timeout.reason)),
        left => Ok(Some(left)),
    }
}
