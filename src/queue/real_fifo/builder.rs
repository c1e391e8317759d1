use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::{RealFifo, State};
use crate::metrics::{InformerMetrics, Meter};
use crate::object::Accessor;
use crate::queue::timing::Timing;
use crate::queue::version_tracker::VersionTracker;
use crate::stop::Done;
use crate::store::{KnownObjects, Transform};
use crate::sync::{Condvar, Mutex};
use crate::time::{Clock, RealClock};

/// How a [`RealFifo`] queues lists and resyncs. client-go takes these settings as independent
/// options, and panics if they do not fit together.
///
/// ```
/// use k8s_informer::Indexer;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Delta, RealFifo, RealFifoMode};
/// use k8s_informer::store::{Indexers, ReflectorStore};
/// use std::sync::Arc;
///
/// let accessor = Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into()));
/// let two = || vec![Arc::new("a".to_owned()), Arc::new("b".to_owned())];
///
/// let mode = RealFifoMode::Atomic { unlock_while_processing: false, bookmarks: false };
/// let atomic = RealFifo::builder(accessor.clone(), mode).build();
/// atomic.replace(two(), "7")?;
/// assert!(matches!(atomic.list()[0].newest(), Some(Delta::ReplacedAll(list)) if list.objects.len() == 2));
///
/// let store = Arc::new(Indexer::new(accessor.clone(), Indexers::new()));
/// let in_order = RealFifo::builder(accessor, RealFifoMode::InOrder(store)).build();
/// in_order.replace(two(), "7")?;
/// assert_eq!(in_order.list_keys(), ["a".into(), "b".into()]);
/// # Ok::<(), k8s_informer::store::StoreError>(())
/// ```
pub enum RealFifoMode<T> {
    /// A list or a resync is queued as one change.
    Atomic {
        /// Whether writers may write while a callback runs. If 2000 or more changes are left in the
        /// queue, they always wait for the callback.
        unlock_while_processing: bool,
        /// Whether bookmarks are queued.
        bookmarks: bool,
    },
    /// A list or a resync is queued as one change for each object. The queue reads this store,
    /// which the consumer fills, to find the objects that are missing from a list and to resync.
    InOrder(Arc<dyn KnownObjects<T>>),
}

impl<T> fmt::Debug for RealFifoMode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Atomic {
                unlock_while_processing,
                bookmarks,
            } => f
                .debug_struct("Atomic")
                .field("unlock_while_processing", unlock_while_processing)
                .field("bookmarks", bookmarks)
                .finish(),
            Self::InOrder(_) => f.debug_tuple("InOrder").finish(),
        }
    }
}

/// Options for a [`RealFifo`]. client-go's `RealFIFOOptions`.
#[must_use]
pub struct RealFifoBuilder<T> {
    accessor: Accessor<T>,
    mode: RealFifoMode<T>,
    transform: Option<Transform<T>>,
    cache: Option<Arc<dyn KnownObjects<T>>>,
    name: String,
    metrics: Option<Arc<dyn InformerMetrics>>,
    clock: Arc<dyn Clock>,
}

impl<T> RealFifo<T> {
    /// Creates a builder with the default options.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, Indexer};
    /// use k8s_informer::object::Accessor;
    /// use k8s_informer::queue::{Queue, RealFifo, RealFifoMode};
    /// use k8s_informer::store::ReflectorStore;
    /// use std::sync::Arc;
    ///
    /// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    /// let mode = RealFifoMode::InOrder(store);
    /// let queue = RealFifo::builder(Accessor::object(), mode).name("pods").build();
    /// queue.replace(Vec::new(), "7")?;
    /// assert!(queue.has_synced() && queue.synced().name() == "pods");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(accessor: Accessor<T>, mode: RealFifoMode<T>) -> RealFifoBuilder<T> {
        RealFifoBuilder {
            accessor,
            mode,
            transform: None,
            cache: None,
            name: "RealFifo".to_owned(),
            metrics: None,
            clock: Arc::new(RealClock),
        }
    }
}

impl<T> RealFifoBuilder<T> {
    /// Sets a transform that changes every object before it is queued. By default there is none.
    pub fn transform(mut self, transform: Transform<T>) -> Self {
        self.transform = Some(transform);
        self
    }

    /// Sets the store of the consumer, for [`RealFifoMode::Atomic`]. On a relist, a reflector takes
    /// unchanged objects from it instead of decoding them. In [`RealFifoMode::InOrder`], the
    /// reflector takes them from the known objects. By default there is no cache.
    pub fn cache(mut self, cache: Arc<dyn KnownObjects<T>>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Sets the metrics that receive the number of waiting items and the processing times. By
    /// default there are none.
    pub fn metrics(mut self, metrics: Arc<dyn InformerMetrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Sets the clock that measures processing times for the metrics and the log. The queue logs
    /// slow processing if more than ten items wait. By default this is the real clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the name of the queue in the log, and of [`synced`](crate::queue::Queue::synced) in
    /// reports. The default is `RealFifo`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Creates the queue, empty and open.
    pub fn build(self) -> RealFifo<T> {
        let Self {
            accessor,
            mode,
            transform,
            cache,
            name,
            metrics,
            clock,
        } = self;
        RealFifo {
            accessor,
            mode,
            transform,
            cache,
            synced: Done::new(name.as_str()),
            timing: Timing {
                name,
                meter: Meter::new(metrics),
                clock,
            },
            state: Mutex::new(State {
                items: VecDeque::new(),
                in_flight: None,
                populated: false,
                initial_population: 0,
                synced: false,
                closed: false,
                versions: VersionTracker::default(),
            }),
            changed: Condvar::new(),
            flight_ended: Condvar::new(),
        }
    }
}

impl<T> fmt::Debug for RealFifoBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealFifoBuilder")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
