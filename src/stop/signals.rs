//! Waiting for SIGINT and SIGTERM.

use std::io;

use signal_hook::consts::{SIGINT, SIGTERM};

pub(super) const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

#[cfg(unix)]
pub(super) struct Signals(signal_hook::iterator::Signals);

#[cfg(unix)]
impl Signals {
    pub(super) fn register() -> io::Result<Self> {
        signal_hook::iterator::Signals::new(SIGNALS).map(Self)
    }

    /// Blocks until one of the signals arrives.
    pub(super) fn wait(&mut self) {
        self.0.forever().next();
    }
}

/// On other systems, `signal_hook` has no blocking wait, so the wait polls a flag.
#[cfg(not(unix))]
pub(super) struct Signals(std::sync::Arc<std::sync::atomic::AtomicBool>);

#[cfg(not(unix))]
impl Signals {
    pub(super) fn register() -> io::Result<Self> {
        let arrived = std::sync::Arc::default();
        for signal in SIGNALS {
            signal_hook::flag::register(signal, std::sync::Arc::clone(&arrived))?;
        }
        Ok(Self(arrived))
    }

    /// Blocks until one of the signals arrives.
    pub(super) fn wait(&mut self) {
        const POLL: std::time::Duration = std::time::Duration::from_millis(50);
        while !self.0.swap(false, std::sync::atomic::Ordering::AcqRel) {
            std::thread::sleep(POLL);
        }
    }
}
