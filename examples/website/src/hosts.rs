//! The external service, which maps host names to addresses in the cluster.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

/// A service for host names. Both calls may be repeated.
pub(crate) trait Hosts: Send + Sync + 'static {
    /// Maps a host to an address. Fails with `AlreadyExists` if it is mapped to another one.
    fn register(&self, host: &str, address: &str) -> Result<(), Error>;

    /// Removes the mapping of a host to this address, if there is one.
    fn remove(&self, host: &str, address: &str) -> Result<(), Error>;
}

/// A folder with a file for each host, in place of a DNS service.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Hosts for Folder {
    fn register(&self, host: &str, address: &str) -> Result<(), Error> {
        match fs::read_to_string(self.0.join(host)) {
            Ok(own) if own == address => Ok(()),
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) => fs::write(self.0.join(host), address),
        }
    }

    fn remove(&self, host: &str, address: &str) -> Result<(), Error> {
        match fs::read_to_string(self.0.join(host)) {
            Ok(own) if own == address => fs::remove_file(self.0.join(host)),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
