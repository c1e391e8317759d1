use std::io;
use std::sync::Arc;

use ureq::unversioned::transport::{ConnectionDetails, Connector, Either};

use super::authority::host_and_port;
use super::cancel::{Call, Socket};
use super::deadline::left_to_connect;
use super::proxy::Proxy;
use super::request_transport::RequestTransport;
use super::resolve::NameResolver;
use super::sizes::BUFFER;
use super::tcp::{DialError, TcpTransport, dial};
use super::tls_config::Tls;
use super::tls_transport::{Route, TlsTransport, handshake};

/// Opens connections to one server in up to three steps: TCP to the server or its proxy, the tunnel
/// through the proxy, and TLS with the server.
#[derive(Debug)]
pub(super) struct ServerConnector {
    names: NameResolver,
    proxy: Option<Proxy>,
    tls: Option<Tls>,
}

impl ServerConnector {
    pub(super) fn new(tls: Option<Tls>, proxy: Option<Proxy>) -> Self {
        Self {
            names: NameResolver::default(),
            proxy,
            tls,
        }
    }

    /// Connects to the proxy and opens a tunnel through it.
    fn tunnel(&self, proxy: &Proxy, details: &ConnectionDetails<'_>) -> Result<Route, ureq::Error> {
        let socket = self.socket(proxy.host_and_port(), details)?;
        let under_tls = proxy.is_https() || details.needs_tls();
        proxy.tunnel(TcpTransport::new(socket, under_tls), details)
    }

    fn socket(
        &self,
        (host, port): (&str, u16),
        details: &ConnectionDetails<'_>,
    ) -> Result<Arc<Socket>, ureq::Error> {
        let left = || left_to_connect(details);
        let call = Call::current();
        let stop = call.as_ref().map(|call| call.stop());
        let addresses = match self.names.resolve(host, port, left()?, stop) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(ureq::Error::Timeout(ureq::Timeout::Resolve));
            }
            addresses => addresses?,
        };
        dial(&addresses, left, call.as_deref()).map_err(|error| match error {
            DialError::Silent => ureq::Error::Timeout(details.timeout.reason),
            DialError::Failed(error) => error,
        })
    }
}

impl Connector for ServerConnector {
    type Out = RequestTransport<Either<Route, Box<TlsTransport<Route>>>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let route = match &self.proxy {
            Some(proxy) => self
                .tunnel(proxy, details)
                .map_err(|error| proxy.proxy_error(error))?,
            None => {
                let socket = self.socket(host_and_port(details.uri), details)?;
                Either::A(TcpTransport::new(socket, details.needs_tls()))
            }
        };
        if !details.needs_tls() {
            return Ok(Some(RequestTransport::new(Either::A(route))));
        }
        let Some(tls) = &self.tls else {
            return Err(ureq::Error::TlsRequired);
        };
        match (handshake(tls, route, details, BUFFER), &self.proxy) {
            (Ok(transport), _) => {
                let transport = Either::B(Box::new(transport));
                Ok(Some(RequestTransport::new(transport)))
            }
            (Err(error), None) => Err(error),
            // Name the proxy in the error, because some proxies terminate TLS and present their own
            // certificate.
            (Err(error), Some(proxy)) => Err(proxy.tunnel_error(error)),
        }
    }
}
