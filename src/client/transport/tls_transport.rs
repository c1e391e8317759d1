//! TLS over a socket or over a tunnel through a proxy.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::{ClientConnection, StreamOwned};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Either, NextTimeout, Transport, TransportAdapter, time,
};

use super::buffers::ConnectionBuffers;
use super::deadline::left_to_connect;
use super::sizes::SMALL_INPUT;
use super::tcp::{TcpTransport, free_input};
use super::tls_config::Tls;
use super::tls_error::Identity;
use crate::base::derive::debug_fields;
use crate::error::Error;

/// The connection to the server below TLS: a socket, or a tunnel through a proxy, which may use TLS
/// with the proxy.
pub(super) type Route = Either<TcpTransport, Box<TlsTransport<TcpTransport>>>;

/// Completes the handshake. Blocks for at most the time left to connect. `output` is the size of
/// the output buffer.
pub(super) fn handshake<T: Transport>(
    tls: &Tls,
    inner: T,
    details: &ConnectionDetails<'_>,
    output: usize,
) -> Result<TlsTransport<T>, ureq::Error> {
    let identity = tls.identity.clone();
    identity.begin();
    let mut connection = ClientConnection::new(tls.config.clone(), tls.server_name.clone())
        .map_err(|error| identity.explain(io::Error::other(error)))?;
    let mut inner = adapter(inner, details)?;
    let done = connection.complete_io(&mut inner);
    done.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let text = "the connection was closed during the TLS handshake";
            io::Error::other(Error::connection(text))
        }
        _ => identity.explain(alert_before(error, &mut connection, &mut inner)),
    })?;
    Ok(TlsTransport {
        stream: StreamOwned::new(connection, inner),
        identity,
        buffers: ConnectionBuffers::new(SMALL_INPUT, output),
    })
}

/// Wraps a transport for reads and writes that are limited by the time left to connect.
pub(super) fn adapter<T: Transport>(
    transport: T,
    details: &ConnectionDetails<'_>,
) -> Result<TransportAdapter<T>, ureq::Error> {
    let mut adapter = TransportAdapter::new(transport, details.current_time.clone());
    let after =
        left_to_connect(details)?.map_or(time::Duration::NotHappening, time::Duration::Exact);
    adapter.set_timeout(NextTimeout {
        after,
        ..details.timeout
    });
    Ok(adapter)
}

/// Returns the alert that the server sent before it closed the connection, if a write failed
/// because of that.
fn alert_before(
    error: io::Error,
    connection: &mut ClientConnection,
    stream: &mut impl Read,
) -> io::Error {
    use io::ErrorKind as Kind;
    if matches!(
        error.kind(),
        Kind::BrokenPipe | Kind::ConnectionReset | Kind::ConnectionAborted
    ) {
        while connection.read_tls(stream).is_ok_and(|read| read > 0) {
            if let Err(alert) = connection.process_new_packets() {
                return io::Error::other(alert);
            }
        }
    }
    error
}

pub(super) struct TlsTransport<T: Transport> {
    stream: StreamOwned<ClientConnection, TransportAdapter<T>>,
    /// Explains errors. In TLS 1.3, the server rejects a client certificate after the handshake.
    identity: Arc<Identity>,
    buffers: ConnectionBuffers,
}

impl<T: Transport> Transport for TlsTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let written = self.stream.write_all(&self.buffers.output()[..amount]);
        Ok(written.map_err(|error| {
            let StreamOwned { conn, sock } = &mut self.stream;
            self.identity.explain(alert_before(error, conn, sock))
        })?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let read = self.stream.read(free_input(&mut self.buffers)?);
        let amount = read.map_err(|error| self.identity.explain(error))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.buffers.release();
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

debug_fields!(TlsTransport<T: Transport>:);
