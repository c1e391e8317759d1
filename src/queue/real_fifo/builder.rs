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

/// What a list and a resync are in a [`RealFifo`]. client-go takes these as options, and panics if they don't
/// go together (R4).
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
    /// One change each.
    Atomic {
        /// Whether writers need not wait for the processing, as long as fewer than 2000 changes are left
        /// (R19).
        unlock_while_processing: bool,
        /// Whether bookmarks are queued (R11).
        bookmarks: bool,
    },
    /// Many changes, one for each object, which takes knowing what the consumer has kept: the store that it
    /// fills.
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

/// Options of a [`RealFifo`]. client-go's `RealFIFOOptions`.
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
    /// With options.
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
    /// Changes every object before it is queued. Default: none.
    pub fn transform(mut self, transform: Transform<T>) -> Self {
        self.transform = Some(transform);
        self
    }

    /// Where the consumer keeps the objects, in atomic mode: a reflector then takes from there what has not
    /// changed in a relist, and need not decode it. In order, the known objects are asked for that. Default:
    /// nowhere.
    pub fn cache(mut self, cache: Arc<dyn KnownObjects<T>>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Is told how much waits and how long its processing takes (R22). Default: nobody is.
    pub fn metrics(mut self, metrics: Arc<dyn InformerMetrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// By which processing is timed: for the metrics and, where more than ten items wait meanwhile, for a
    /// line in the log about a slow one (R23). Default: the real clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What [`synced`](crate::queue::Queue::synced) is called in reports, and the queue in the log. Default:
    /// `RealFifo`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The queue, empty and open.
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
            landed: Condvar::new(),
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
