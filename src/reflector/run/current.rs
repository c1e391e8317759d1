//! Makes the store current, although its watch may be behind.

use std::time::{Duration, Instant};

use super::Reflector;
use crate::base::panic;
use crate::error::Error;
use crate::object::Object;
use crate::reflector::catch_up::read_version;
use crate::resource_version::is_at_least;
use crate::stop::{Done, Stop};

/// The pause between two checks whether the consumer of the queue has processed a list.
const PAUSE: Duration = Duration::from_millis(5);

impl<T: Object> Reflector<T> {
    /// Requests that the store receives everything that was committed before `since`. Returns the
    /// version to reach, and a signal that is set when the store has received it or a consistent
    /// list. Sends a consistent read unless one was sent after `since`.
    ///
    /// The watch may be far behind, and a quiet one does not tell. So it is opened again from its
    /// version, in a way that makes the server tell the version soon.
    pub(crate) fn catch_up(&self, since: Instant, stop: &Stop) -> Result<(Done, String), Error> {
        let reached = Done::new("reached");
        let known = {
            let state = self.catch_up.state.lock();
            if state.listed.is_some_and(|listed| listed >= since) {
                reached.set();
                return Ok((reached, String::new()));
            }
            state.read.clone().filter(|(began, _)| *began >= since)
        };
        let (began, version) = match known {
            Some(known) => known,
            None => (Instant::now(), self.read_version(stop)?),
        };
        let is_reached = is_at_least(&self.last_sync_resource_version(), &version);
        let mut state = self.catch_up.state.lock();
        state.read = Some((began, version.clone()));
        if is_reached {
            reached.set();
            return Ok((reached, version));
        }
        state.wanted = Some(version.clone());
        let reached = state.reached.get_or_insert(reached).clone();
        drop(state);
        self.catch_up.interrupt();
        Ok((reached, version))
    }

    /// Ends the wait for the server soon, because the consumer needs the thread of
    /// [`run_with`](Self::run_with).
    pub(crate) fn interrupt(&self) {
        self.catch_up.interrupt();
    }

    /// Returns the version of a consistent read. It is empty if versions can't tell whether the
    /// store has received what was read: they have no order, or the server was restored to an older
    /// state.
    fn read_version(&self, stop: &Stop) -> Result<String, Error> {
        let before = self.last_sync_resource_version();
        let read = || read_version(&*self.lister_watcher, stop);
        let read = panic::catch(read)
            .unwrap_or_else(|panic| Err(Error::other(format!("the lister-watcher {panic}"))));
        let version = read.map_err(|error| match error.is_stopped() {
            true => error,
            false => error.context(format!("list {} to learn the version", self.description())),
        })?;
        let has_order = before.is_empty() || is_at_least(&version, &before);
        Ok(if has_order { version } else { String::new() })
    }

    /// If the store has received a consistent list that began after `since`, waits until the
    /// consumer of the queue has processed it. Returns whether there is such a list.
    pub(crate) fn wait_for_list(&self, since: Instant, stop: &Stop) -> bool {
        let listed = self.catch_up.state.lock().listed;
        if listed.is_none_or(|listed| listed < since) {
            return false;
        }
        let is_processed = || {
            let staging = self.store.staging();
            staging.is_none_or(|staging| staging.is_settled())
        };
        while !stop.is_stopped() && !is_processed() {
            stop.wait_timeout(PAUSE);
        }
        true
    }
}
