use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::time::{Backoff, Clock, RealClock};

/// What is called when a LIST, or the request for a WATCH, has failed. client-go's `WatchErrorHandler`.
pub type WatchErrorHandler = Arc<dyn Fn(&Error) + Send + Sync>;

/// How a reflector goes about it. client-go's `ReflectorOptions`, and what it keeps in fields.
///
/// ```
/// use k8s_informer::{Backoff, ReflectorOptions};
/// use std::time::Duration;
///
/// let mut options = ReflectorOptions::default();
/// options.page_size = Some(100);
/// options.backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(60), 0.5);
/// assert_eq!((options.resync_period, options.min_watch_timeout), (Duration::ZERO, Duration::from_secs(300)));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// Stands in logs and in the names of threads; the lister-watcher's description if empty.
    pub name: String,
    /// How often the store is asked to tell everything once more; zero for never, which is the default.
    pub resync_period: Duration,
    /// Asked at each resync whether anybody wants it; `None` for always.
    pub should_resync: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// How many objects a page of a LIST has. `None`, the default: 500, and everything at once where the
    /// list comes from the server's watch cache on a relist (L9).
    pub page_size: Option<u32>,
    /// The shortest time after which the server is asked to end a watch; each asks for a random time between
    /// that and twice that. 5 minutes, and less is not taken (W1).
    pub min_watch_timeout: Duration,
    /// The waits after failures.
    pub backoff: Backoff,
    /// Tells the time and waits.
    pub clock: Arc<dyn Clock>,
    /// Called on the reflector's thread with the failed lists and the failed requests for a watch, instead
    /// of logging them.
    pub watch_error_handler: Option<WatchErrorHandler>,
}

impl ReflectorOptions {
    /// Shorter watches are not asked for.
    pub(crate) const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(300);
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            resync_period: Duration::ZERO,
            should_resync: None,
            page_size: None,
            min_watch_timeout: Self::MIN_WATCH_TIMEOUT,
            backoff: Backoff::default(),
            clock: Arc::new(RealClock),
            watch_error_handler: None,
        }
    }
}

impl fmt::Debug for ReflectorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorOptions")
            .field("name", &self.name)
            .field("resync_period", &self.resync_period)
            .field("page_size", &self.page_size)
            .field("min_watch_timeout", &self.min_watch_timeout)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// How a reflector stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReflectorStatus {
    /// What it is doing.
    pub state: ReflectorState,
    /// The version of the last list, event or bookmark; empty before the first.
    pub resource_version: String,
    /// Whether a whole list has reached the store since it runs.
    pub listed: bool,
    /// How many objects of the current or last list have come.
    pub received: usize,
    /// How many objects it has in all, where the server tells: paged lists without a selector.
    pub expected: Option<usize>,
    /// Requests for a LIST so far, pages counted one by one.
    pub lists: u64,
    /// Requests for a WATCH so far.
    pub watches: u64,
    /// What went wrong last, whatever came after.
    pub last_error: Option<Error>,
}

/// What a reflector is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReflectorState {
    /// It has not been started.
    #[default]
    Created,
    /// It lists.
    Listing,
    /// It watches.
    Watching,
    /// Something failed; it waits before it tries again.
    BackingOff,
    /// It was stopped.
    Stopped,
}
