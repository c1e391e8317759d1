//! Makes the store current, although its watch may be behind.

use std::time::Instant;

use super::Reflector;
use crate::base::panic;
use crate::error::Error;
use crate::object::Object;
use crate::reflector::catch_up::{Target, Waiting, read_version};
use crate::resource_version::Comparable;
use crate::stop::Stop;

impl<T: Object> Reflector<T> {
    /// Requests that the store receives everything that was committed before `since`. Returns a wait
    /// that ends when the store has received it or a consistent list. Sends a consistent read unless
    /// one was sent after `since`.
    ///
    /// The watch may be far behind, and a quiet one does not tell. So it is opened again from its
    /// version, in a way that makes the server tell the version soon.
    pub(crate) fn catch_up(&self, since: Instant, stop: &Stop) -> Result<Waiting<'_>, Error> {
        if self.core.catch_up.is_listed_since(since) {
            return Ok(self.core.catch_up.over());
        }
        let read = match self.core.catch_up.read_since(since) {
            Some(known) => known,
            None => (Instant::now(), self.read(stop)?),
        };
        // Register first: the feed publishes its version before it looks for waits, so one of
        // the two sides sees the other.
        let waiting = self.core.catch_up.wait(since, read);
        if waiting
            .target
            .is_reached(self.last_sync_resource_version().as_ref())
        {
            waiting.reached.set();
        } else {
            self.core.catch_up.interrupt();
        }
        #[cfg(simulation)]
        crate::base::hash::wait_began();
        Ok(waiting)
    }

    /// Requests that the thread of the feed returns to its owner, and ends its wait for changes or for
    /// the next attempt. Returns false if that may take long, because the thread awaits the response
    /// to a request.
    pub(crate) fn request_return(&self) -> bool {
        self.core.availability.request()
    }

    /// Sends a consistent read, and returns its version. Versions can't tell whether the store has
    /// received what was read if they have no order, or if the server was restored to an older
    /// state: then only a list will do.
    fn read(&self, stop: &Stop) -> Result<Target, Error> {
        let before = self.last_sync_resource_version();
        let read = || read_version(&*self.core.lister_watcher, stop);
        let read = panic::catch(read)
            .unwrap_or_else(|panic| Err(Error::other(format!("the lister-watcher {panic}"))));
        let version = read.map_err(|error| match error.is_stopped() {
            true => error,
            false => error.context(format!("list {} to learn the version", self.description())),
        })?;
        let is_later = |version: &Comparable| {
            let before = before.as_ref();
            before.is_none_or(|before| version.version().is_at_least(before))
        };
        let version = version.and_then(Comparable::new).filter(is_later);
        Ok(version.map_or(Target::ConsistentList, Target::Version))
    }

    /// Whether the store has received a consistent list that began after `since`. The consumer of the
    /// queue may not have processed it yet.
    pub(crate) fn is_listed_since(&self, since: Instant) -> bool {
        self.core.catch_up.is_listed_since(since)
    }
}
