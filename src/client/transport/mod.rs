//! Sockets, TLS and proxies below ureq. All code that uses `ureq::unversioned` is in this
//! directory.
//!
//! ureq may change `unversioned` in any minor release, so Cargo.toml allows only minor versions
//! that have passed the tests. To allow another one, build with it and run
//! `cargo test --test client`. This table lists the behavior that the crate relies on, and the
//! tests in `tests/client` that would detect a change:
//!
//! | ureq | tests |
//! |---|---|
//! | calls our `Connector` for each connection that is not pooled, and passes its errors on | `stop::stop_ends_connecting`, `http::refused_or_unresolvable_server_is_a_connection_error` |
//! | passes each read its own deadline, and loses no byte when a read times out | `timeouts::body_is_complete_despite_read_timeouts` |
//! | returns from a read as soon as one chunk has arrived | `sizes::watch_in_one_byte_chunks_arrives_unchanged` |
//! | uses buffers of our size, which limit the head of a response | `sizes::response_head_above_32_kib_is_rejected` |
//! | returns a connection to the pool after the last byte of a body, and checks with our transport whether it is still open | `http::connection_is_reused_after_body_is_read`, `stop::stop_of_earlier_request_does_not_end_the_next_one` |
//! | writes the bytes of a request, and no others, with `transmit_output` | `gate::refused_request_sends_no_byte` |
//! | lets our error end a blocked connect, handshake, write or read | the other tests of `stop` |
//! | accepts no addresses from our `Resolver`, and leaves names and proxies to our `Connector` | `proxy::localhost_is_reached_at_its_ipv6_address`, `proxy::names_are_resolved_by_the_proxy` |
//!
//! Each file imports only files that come before it in this order: sizes, authority; buffers,
//! deadline, cancel, der; pem, certificate, resolve, tcp, tls_error; verifier; tls_config; error,
//! tls_transport; proxy; request_transport, connector; this file, with the agents; connections.

mod authority;
mod buffers;
pub(crate) mod cancel;
mod certificate;
pub(super) mod connections;
mod connector;
mod deadline;
mod der;
pub(super) mod error;
mod pem;
mod proxy;
mod request_transport;
mod resolve;
mod sizes;
mod tcp;
mod tls_config;
mod tls_error;
mod tls_transport;
mod verifier;

use std::time::Duration;

use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::{Agent, http::Uri};

use self::connector::ServerConnector;
use self::proxy::Proxy;
pub(super) use self::sizes::{BUFFER, SMALL_OUTPUT};
use self::tls_config::Tls;
use crate::log;

/// The maximum idle time of a pooled connection. It equals the idle time after which TCP keepalive
/// probes would start.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// Creates an agent for one server, directly or through a proxy.
fn agent(tls: Option<Tls>, proxy: Option<Proxy>) -> Agent {
    let config = Agent::config_builder()
        // The connector handles proxies, because ureq's SOCKS opens sockets that a stop can't end.
        // Without this line, ureq uses the proxy of the environment.
        .proxy(None)
        // Keeps the body of an error response, which is its `Status`.
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .accept_encoding("identity")
        // `ConnectionBuffers` limits the head to `BUFFER`. ureq's own limit is out of reach,
        // because it would count several interim responses as one head.
        .max_response_header_size(buffers::LARGEST)
        // There is only one host, so this equals the total limit.
        .max_idle_connections_per_host(10)
        .max_idle_age(MAX_IDLE)
        .build();
    if let Some(proxy) = &proxy {
        log::debug!("connections to the server use the proxy {proxy}");
    }
    Agent::with_parts(config, ServerConnector::new(tls, proxy), NoResolver)
}

/// Resolves nothing. ureq resolves the name for every request, but only a new connection needs
/// addresses, and the connector looks them up.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}
