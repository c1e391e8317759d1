//! Sockets, TLS and proxies under ureq. Everything that touches `ureq::unversioned` is in this folder.
//!
//! ureq may change `unversioned` in any minor release, so Cargo.toml admits only minors that the tests passed with.
//! To admit another one, build with it and run `cargo test --test client`. What the crate relies on, and the tests
//! in `tests/client` that would notice a change:
//!
//! | ureq | tests |
//! |---|---|
//! | calls our `Connector` for each connection that is not pooled, and hands on its errors | `stop::while_connecting`, `http::nobody_listens` |
//! | passes each read its own deadline, and loses no byte when a read gives up | `timeouts::every_byte_arrives_whatever_reads_gave_up_in_between` |
//! | returns from a read as soon as one chunk is there | `sizes::a_watch_in_chunks_of_one_byte_is_as_good_as_any` |
//! | takes buffers of our size, which limit the head of an answer | `sizes::a_head_may_be_so_large_and_no_larger_whatever_comes_with_it` |
//! | returns a connection to the pool after the last byte of a body, and asks our transport whether it is still open | `http::a_body_that_is_read_to_its_end_gives_its_connection_back`, `stop::stop_of_earlier_request_spares_next_on_same_connection` |
//! | lets a blocked connect, handshake, write or read end with an error of ours | the other tests of `stop` |
//! | leaves names to our `Resolver`, and proxies to our `Connector` | `proxy::a_name_is_reached_by_any_of_its_addresses`, `proxy::names_are_resolved_by_the_proxy` |
//!
//! Files import only files above them: sizes, authority; buffers, deadline, cancel; resolve, tcp, tls_config; error,
//! tls_transport; proxy; connector.

mod authority;
mod buffers;
pub(super) mod cancel;
mod connector;
mod deadline;
pub(super) mod error;
pub(super) mod proxy;
mod resolve;
mod sizes;
mod tcp;
pub(super) mod tls_config;
mod tls_transport;

use std::time::Duration;

use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::{Agent, http::Uri};

use self::connector::ServerConnector;
use self::proxy::Proxy;
pub(super) use self::sizes::BUFFER;
use self::tls_config::Tls;

/// How long an unused connection stays in the pool: as long as a keepalive would find it alive without
/// asking.
const MAX_IDLE: Duration = Duration::from_secs(30);

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
    Agent::with_parts(config, ServerConnector::new(tls, proxy), NoResolver)
}

/// Resolves nothing: ureq asks for every request, but only a new connection needs addresses.
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
