//! How far a queue has been processed, for those who wait for it.

use std::cmp::Ordering;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::debug_as_display;
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::sync::{Condvar, Mutex};

/// The resourceVersion up to which everything that a queue was told has been processed: what the consumer
/// fills is at least as new.
///
/// Clones are the same watermark. A queue [tells its own](super::Queue::processed).
///
/// It is empty at first. It follows what the server tells, in that order: after a list that is older than
/// what came before, as from an etcd that was restored, it is lower than it was. After a list without a
/// version it is empty again.
///
/// Versions are compared as apimachinery does since 1.35: decimal numbers of any length, without a leading
/// zero.
///
/// ```
/// use k8s_informer::Stop;
/// use k8s_informer::queue::{WaitError, Watermark};
/// use std::time::Duration;
///
/// let (watermark, stop) = (Watermark::new(), Stop::new());
/// let consumer = std::thread::spawn({ let watermark = watermark.clone(); move || watermark.set("42") });
/// watermark.wait("41", Duration::from_secs(10), &stop)?;
/// assert_eq!(watermark.current(), "42");
/// consumer.join().unwrap();
///
/// stop.stop();
/// let stopped = watermark.wait("43", Duration::from_secs(10), &stop);
/// assert_eq!(stopped, Err(WaitError::Stopped { reached: "42".to_owned() }));
/// # Ok::<(), WaitError>(())
/// ```
#[derive(Clone, Default)]
pub struct Watermark {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Innermost: a queue sets it under its own lock, and nothing else is locked under it.
    reached: Mutex<ResourceVersion>,
    /// Waits are here. All are woken when `reached` changes, and one's own `Stop` wakes all.
    changed: Condvar,
}

impl Watermark {
    /// Nothing has been processed.
    pub fn new() -> Self {
        Self::default()
    }

    /// The version that has been reached; empty if none has, or if the server tells none.
    pub fn current(&self) -> String {
        self.shared.reached.lock().to_string()
    }

    /// Everything up to this version has been processed. Of use for queues of your own; those of the crate do
    /// so themselves.
    pub fn set(&self, version: &str) {
        self.reach(version.into());
    }

    pub(super) fn reach(&self, version: ResourceVersion) {
        *self.shared.reached.lock() = version;
        self.shared.changed.notify_all();
    }

    /// Blocks until this version, or a later one, has been reached; at most for this long, by the real clock.
    ///
    /// # Errors
    ///
    /// [`WaitError::NotComparable`] at once if the version is no such number, or as soon as what has been
    /// reached is none; [`WaitError::Timeout`]; [`WaitError::Stopped`] if `stop` is given. What has been
    /// reached already is never one of the latter two.
    pub fn wait(&self, version: &str, timeout: Duration, stop: &Stop) -> Result<(), WaitError> {
        Self::wait_all([self], version, timeout, stop)
    }

    /// Blocks until each of several has reached this version, as [`wait`](Self::wait), with one timeout for
    /// all of them. At the end each has been there, though it may have gone back meanwhile.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait): the first one's that has any.
    pub(crate) fn wait_all<'a>(
        watermarks: impl IntoIterator<Item = &'a Self>,
        version: &str,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let wanted = ResourceVersion::from(version);
        if !wanted.is_comparable() {
            return Err(WaitError::NotComparable {
                version: version.to_owned(),
            });
        }
        let deadline = Instant::now().checked_add(timeout);
        watermarks
            .into_iter()
            .try_for_each(|watermark| watermark.wait_until(&wanted, deadline, stop))
    }

    /// The lowest of several that are there: what all have reached. Empty if one has reached none, or if they
    /// can't be compared.
    pub(crate) fn lowest<'a>(watermarks: impl IntoIterator<Item = &'a Self>) -> String {
        let mut reached = watermarks
            .into_iter()
            .map(|watermark| watermark.shared.reached.lock().clone());
        let first = reached.next().unwrap_or_default();
        let lower = |a: ResourceVersion, b: ResourceVersion| match a.compare(&b)? {
            Ordering::Greater => Some(b),
            _ => Some(a),
        };
        reached
            .try_fold(first, lower)
            .unwrap_or_default()
            .to_string()
    }

    fn wait_until(
        &self,
        wanted: &ResourceVersion,
        deadline: Option<Instant>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let Shared { reached, changed } = &*self.shared;
        let has_reached = |reached: &ResourceVersion| match reached.compare(wanted) {
            Some(order) => Ok(order.is_ge()),
            None if !reached.is_known() => Ok(false),
            None => Err(WaitError::NotComparable {
                version: reached.to_string(),
            }),
        };
        // Most have it already, and need no subscription.
        if has_reached(&reached.lock())? {
            return Ok(());
        }
        let _stopped = stop.on_stop({
            let shared = Arc::clone(&self.shared);
            // With the lock, so that nobody looks before and sleeps after.
            move || {
                let _reached = shared.reached.lock();
                shared.changed.notify_all();
            }
        });
        let mut reached = reached.lock();
        let mut timed_out = false;
        loop {
            if has_reached(&reached)? {
                return Ok(());
            }
            if stop.is_stopped() {
                return Err(WaitError::Stopped {
                    reached: reached.to_string(),
                });
            }
            if timed_out {
                return Err(WaitError::Timeout {
                    reached: reached.to_string(),
                });
            }
            match deadline {
                Some(deadline) => {
                    timed_out = changed.wait_until(&mut reached, deadline).timed_out();
                }
                None => changed.wait(&mut reached),
            }
        }
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watermark")
            .field("current", &self.current())
            .finish()
    }
}

/// Why a wait for a resourceVersion, or for an object, ended without it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The version that was asked for, or the one that the server tells, is no decimal number, or it begins
    /// with a zero: which of two is later can't be told.
    NotComparable {
        /// Which one.
        version: String,
    },
    /// The time is over.
    Timeout {
        /// How far it came; empty if nothing has been processed.
        reached: String,
    },
    /// The `Stop` was given.
    Stopped {
        /// How far it came; empty if nothing has been processed.
        reached: String,
    },
    /// The informer does not watch the namespace of the object.
    OtherNamespace {
        /// The object's.
        namespace: String,
        /// The namespaces that the informer watches.
        watched: Vec<String>,
    },
    /// The version was processed, but the cache still has an older state of the object: the new one could not
    /// be decoded, or a transform or an index function rejected it.
    NotStored {
        /// The object's key.
        key: String,
        /// The version that was waited for.
        version: String,
        /// The version that the cache has.
        cached: String,
    },
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotComparable { version } => {
                write!(f, "the resourceVersion {version:?} can't be compared")
            }
            Self::Timeout { reached } => {
                write!(
                    f,
                    "in time only the resourceVersion {reached:?} was reached"
                )
            }
            Self::Stopped { reached } => write!(f, "stopped at the resourceVersion {reached:?}"),
            Self::OtherNamespace { namespace, watched } => write!(
                f,
                "the informer does not watch the namespace {namespace:?}, but only: {}",
                watched.join(", ")
            ),
            Self::NotStored {
                key,
                version,
                cached,
            } => write!(
                f,
                "the cache has not taken the resourceVersion {version:?} of {key} and still has {cached:?}: \
                 it could not be decoded, or a transform or an index function rejected it (see the log)"
            ),
        }
    }
}

impl Error for WaitError {}

debug_as_display!(WaitError);

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::Watermark;
    use crate::stop::Stop;

    #[test]
    fn lowest_is_what_all_have_reached() {
        let several = [Watermark::new(), Watermark::new(), Watermark::new()];
        assert_eq!(Watermark::lowest(&several), "");
        several
            .iter()
            .zip(["10", "9", "11"])
            .for_each(|(one, version)| one.set(version));
        assert_eq!(Watermark::lowest(&several), "9");
        assert_eq!(Watermark::lowest([]), "");
        assert_eq!(Watermark::lowest(&several[..1]), "10");
        Watermark::wait_all(&several, "9", Duration::ZERO, &Stop::new()).unwrap();
        several[1].set("abc");
        assert_eq!(Watermark::lowest(&several), "");
    }
}
