//! Resolves names to addresses. `getaddrinfo` can't be interrupted, so it runs on a detached
//! thread. Concurrent requests for the same name wait for the same lookup and its single thread.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::authority::without_brackets;
use crate::base::deadline::Deadline;
use crate::base::derive::debug_fields;
use crate::base::sync::Mutex;
use crate::stop::{DoneSetter, Stop};

type Addresses = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

struct Lookup {
    host: String,
    port: u16,
    /// Set once, before `done`.
    addresses: OnceLock<Addresses>,
    done: DoneSetter,
}

/// Resolves names. Remembers only the latest lookup, because a client has one server and so usually
/// resolves only one name.
#[derive(Default)]
pub(super) struct NameResolver {
    /// The latest lookup. Innermost lock, held while the thread of the lookup is started.
    pending: Mutex<Option<Arc<Lookup>>>,
}

impl NameResolver {
    /// Returns the addresses of a host. Blocks for at most `timeout`, or until the stop.
    pub(super) fn resolve(
        &self,
        host: &str,
        port: u16,
        timeout: Option<Duration>,
        stop: Option<&Stop>,
    ) -> io::Result<Vec<SocketAddr>> {
        // The `%` before a zone is percent-encoded in a URL.
        let host = &*without_brackets(host).replacen("%25", "%", 1);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let lookup = self.lookup(host, port)?;
        let deadline = Deadline::after(timeout);
        lookup
            .done
            .wait_until(deadline, &stop.cloned().unwrap_or_else(Stop::never));
        match lookup.addresses.get() {
            Some(Ok(addresses)) => Ok(addresses.clone()),
            Some(Err((kind, message))) => Err(io::Error::new(*kind, message.clone())),
            None if stop.is_some_and(Stop::is_stopped) => Err(io::Error::other("stopped")),
            None => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the name {host:?} was not resolved in time"),
            )),
        }
    }

    fn lookup(&self, host: &str, port: u16) -> io::Result<Arc<Lookup>> {
        let mut pending = self.pending.lock();
        if let Some(lookup) = &*pending
            && lookup.host == host
            && lookup.port == port
            && !lookup.done.is_done()
        {
            return Ok(lookup.clone());
        }
        let lookup = Arc::new(Lookup {
            host: host.to_owned(),
            port,
            addresses: OnceLock::new(),
            done: DoneSetter::new("name resolution"),
        });
        let pending_lookup = lookup.clone();
        thread::Builder::new()
            .name("k8s-informer resolve".to_owned())
            .spawn(move || {
                let addresses =
                    match (pending_lookup.host.as_str(), pending_lookup.port).to_socket_addrs() {
                        Ok(addresses) => Ok(addresses.collect()),
                        Err(error) => Err((
                            error.kind(),
                            format!("resolve {:?}: {error}", pending_lookup.host),
                        )),
                    };
                let _ = pending_lookup.addresses.set(addresses);
                pending_lookup.done.set();
            })?;
        // Published only after the thread has started. Otherwise other requests could wait for a
        // lookup that never ends.
        *pending = Some(lookup.clone());
        Ok(lookup)
    }
}

debug_fields!(NameResolver:);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stopper;

    #[test]
    fn ip_address_is_resolved_without_lookup() {
        let names = NameResolver::default();
        let resolve = |host| names.resolve(host, 6443, None, None).unwrap();
        assert_eq!(resolve("10.0.0.1"), ["10.0.0.1:6443".parse().unwrap()]);
        assert_eq!(resolve("[fd00::1]"), ["[fd00::1]:6443".parse().unwrap()]);
        assert!(names.pending.lock().is_none());
    }

    #[test]
    fn host_name_is_resolved() {
        let addresses = NameResolver::default()
            .resolve("localhost", 80, None, Some(&Stop::never()))
            .unwrap();
        assert!(
            addresses.iter().all(|address| address.ip().is_loopback()),
            "{addresses:?}"
        );
    }

    #[test]
    fn stop_and_timeout_end_wait_for_hanging_lookup() {
        let names = NameResolver::default();
        // A lookup that never ends.
        *names.pending.lock() = Some(Arc::new(Lookup {
            host: "api".to_owned(),
            port: 443,
            addresses: OnceLock::new(),
            done: DoneSetter::new("name resolution"),
        }));
        let error = names
            .resolve("api", 443, Some(Duration::from_millis(1)), None)
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let stop = Stopper::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| names.resolve("api", 443, None, Some(&stop)));
            stop.stop();
            assert_eq!(waiter.join().unwrap().unwrap_err().to_string(), "stopped");
        });
    }
}
