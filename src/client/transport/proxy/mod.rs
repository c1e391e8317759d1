//! Proxies: a tunnel to the server with HTTP CONNECT or SOCKS5, over sockets that a stop can end.

mod connect;
mod environment;
mod socks;
mod url;

use std::fmt;
use std::io;
use std::sync::Arc;

use ureq::unversioned::transport::{ConnectionDetails, Either, Transport};

use super::authority::host_and_port;
use super::error::{from_io, from_ureq};
use super::sizes::{BUFFER, RECORD_BUFFER};
use super::tcp::TcpTransport;
use super::tls_config::{self, Tls};
use super::tls_transport::{Route, adapter, handshake};
use crate::client::credential_data::Pem;
use crate::error::{Error, ErrorKind};

/// A proxy from its URL. `Debug` and `Display` hide the user and the password.
#[derive(Clone)]
pub(in crate::client) struct Proxy {
    scheme: Scheme,
    /// As in a URL, with brackets around an IPv6 address.
    host: String,
    port: u16,
    user: Option<User>,
    /// The settings for TLS with an `https` proxy. The tunnel is opened inside this TLS connection.
    tls: Option<Arc<Tls>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    /// As in Go, the proxy resolves names for `socks5` as well as for `socks5h`.
    Socks5,
    Socks5h,
}

/// A user name and a password. They are bytes, because a percent escape in a URL can be any byte.
#[derive(Clone, PartialEq, Eq)]
struct User {
    name: Vec<u8>,
    password: Vec<u8>,
}

impl Proxy {
    /// Adds the TLS settings of an `https` proxy. The proxy's certificate must match the proxy's
    /// host and be signed by an authority of the system or by the configured authority. The client
    /// certificate is only for the server.
    pub(in crate::client) fn secured(
        &self,
        insecure: bool,
        ca: Option<&Pem>,
    ) -> Result<Self, Error> {
        let tls = match self.scheme {
            Scheme::Https => Some(Arc::new(tls_config::proxy_tls(&self.host, insecure, ca)?)),
            _ => None,
        };
        Ok(Self {
            tls,
            ..self.clone()
        })
    }

    pub(super) fn is_https(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// The host and port to connect to.
    pub(super) fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Converts an error before the tunnel is open to a message that names the proxy. The result
    /// wraps our own error type, which `error::from_io` unwraps again.
    pub(super) fn proxy_error(&self, error: ureq::Error) -> ureq::Error {
        let kind = match error {
            ureq::Error::Timeout(ureq::Timeout::Resolve) => ErrorKind::Timeout(format!(
                "the name of the proxy {self} was not resolved in time"
            )),
            ureq::Error::Timeout(_) => ErrorKind::Timeout(format!(
                "the tunnel through the proxy {self} was not established in time"
            )),
            ureq::Error::HostNotFound => {
                ErrorKind::Connection(format!("the name of the proxy {self} has no address"))
            }
            // An error of TLS.
            ureq::Error::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<Error>()) => {
                let error = from_io(error).context(format!("the proxy {self}"));
                return io::Error::other(error).into();
            }
            ureq::Error::Io(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    ErrorKind::Refused(format!("the proxy {self}: {error}"))
                }
                io::ErrorKind::UnexpectedEof => ErrorKind::Connection(format!(
                    "the proxy {self} closed the connection before it responded"
                )),
                _ => ErrorKind::Connection(format!("the proxy {self}: {error}")),
            },
            other => ErrorKind::Connection(format!("the proxy {self}: {other}")),
        };
        io::Error::other(Error::new(kind)).into()
    }

    /// Converts an error of a connection inside the tunnel.
    pub(super) fn tunnel_error(&self, error: ureq::Error) -> ureq::Error {
        io::Error::other(from_ureq(error).context(format!("through the proxy {self}"))).into()
    }

    /// Opens the tunnel. Blocks until it is open.
    pub(super) fn tunnel(
        &self,
        socket: TcpTransport,
        details: &ConnectionDetails<'_>,
    ) -> Result<Route, ureq::Error> {
        let stream = match (self.scheme, &self.tls) {
            (Scheme::Https, Some(tls)) => {
                let output = if details.needs_tls() {
                    RECORD_BUFFER
                } else {
                    BUFFER
                };
                Either::B(Box::new(handshake(tls, socket, details, output)?))
            }
            (Scheme::Https, None) => return Err(ureq::Error::TlsRequired),
            _ => Either::A(socket),
        };
        let (host, port) = host_and_port(details.uri);
        let mut stream = adapter(stream, details)?;
        match self.scheme {
            Scheme::Http | Scheme::Https => {
                connect::open(&mut stream, host, port, self.user.as_ref())?;
            }
            Scheme::Socks5 | Scheme::Socks5h => {
                socks::open(&mut stream, host, port, self.user.as_ref())?;
            }
        }
        let mut stream = stream.into_inner();
        // The server does not send before the client does, so there must be no input yet.
        match stream.buffers().input() {
            [] => Ok(stream),
            _ => Err(io::Error::other("data arrived after the response").into()),
        }
    }
}

/// Shows `scheme://host:port`, without the user and the password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.name(), self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}
