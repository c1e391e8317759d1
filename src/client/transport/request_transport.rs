//! The connection as ureq uses it: above TLS and the tunnel of a proxy.

use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

use super::cancel::Call;
use crate::base::derive::debug_fields;

/// A connection whose output is requests, and nothing else: neither a handshake nor the request for a
/// tunnel. So a call can be asked before the first byte of its request leaves.
pub(super) struct RequestTransport<T>(T);

impl<T: Transport> RequestTransport<T> {
    pub(super) fn new(connection: T) -> Self {
        Self(connection)
    }
}

impl<T: Transport> Transport for RequestTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        if let Some(call) = Call::current() {
            call.before_output()?;
        }
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.0.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}

debug_fields!(RequestTransport<T: Transport>:);
