//! TLS over a socket or over a tunnel through a proxy.

use std::io::{self, Read, Write};

use rustls::{ClientConnection, StreamOwned};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Either, NextTimeout, Transport, TransportAdapter, time,
};

use super::buffers::ConnectionBuffers;
use super::deadline::left_to_connect;
use super::sizes::SMALL_INPUT;
use super::tcp::{TcpTransport, free_input};
use super::tls_config::Tls;
use crate::base::derive::debug_fields;

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
    let mut connection = ClientConnection::new(tls.config.clone(), tls.server_name.clone())
        .map_err(io::Error::other)?;
    let mut inner = adapter(inner, details)?;
    connection.complete_io(&mut inner)?;
    let stream = StreamOwned::new(connection, inner);
    Ok(TlsTransport {
        stream,
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

pub(super) struct TlsTransport<T: Transport> {
    stream: StreamOwned<ClientConnection, TransportAdapter<T>>,
    buffers: ConnectionBuffers,
}

impl<T: Transport> Transport for TlsTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(free_input(&mut self.buffers)?)?;
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
