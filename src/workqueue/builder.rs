use std::io;
use std::sync::Arc;

use super::core::Core;
use super::order::ArrivalOrder;
use super::priority::{PriorityOrder, RankedOrder, Unranked};
use super::shared::Shared;
use super::state::State;
use super::{
    DelayingQueue, Item, Order, PriorityQueue, RateLimiter, RateLimitingQueue, WorkQueue,
    WorkQueueMetrics,
};
use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::log;
use crate::metrics::MetricsProvider;
use crate::time::{Clock, RealClock};

/// Options for work queues. They correspond to client-go's `TypedQueueConfig`,
/// `TypedDelayingQueueConfig` and `TypedRateLimitingQueueConfig`.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue, default_controller_rate_limiter};
///
/// let limiter = default_controller_rate_limiter();
/// let queue = WorkQueue::builder().name("pods").build_rate_limiting(limiter)?;
/// queue.add_rate_limited("a");
/// assert_eq!((queue.name(), queue.requeues(&"a")), (Some("pods"), 1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct WorkQueueBuilder<T> {
    name: Option<String>,
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<dyn WorkQueueMetrics>>,
    provider: Option<Arc<dyn MetricsProvider>>,
    order: Option<Box<dyn RankedOrder<T>>>,
    starvation_limit: usize,
    has_priorities: bool,
}

impl<T: Item> WorkQueue<T> {
    /// Creates a queue in order of arrival, without metrics. client-go's `NewTyped`.
    pub fn new() -> Self {
        Self::builder().assemble(false)
    }

    /// Returns a builder for a queue with options, with delays or with rate limits. client-go's
    /// `TypedQueueConfig`.
    pub fn builder() -> WorkQueueBuilder<T> {
        WorkQueueBuilder::new()
    }
}

impl<T: Item> WorkQueueBuilder<T> {
    fn new() -> Self {
        Self {
            name: None,
            clock: Arc::new(RealClock),
            metrics: None,
            provider: None,
            order: None,
            starvation_limit: usize::MAX,
            has_priorities: false,
        }
    }

    /// Sets the name for metrics, logs and the queue's thread. Logs and the thread show `workqueue` if
    /// there is none.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the clock that delays and metrics use. The default is the system clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the metrics of the queue. There are none by default.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<dyn WorkQueueMetrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Sets a provider for [metrics](Self::metrics). It is used only if the queue has a name and no
    /// metrics were set.
    ///
    /// ```
    /// use k8s_informer::metrics::MetricsProvider;
    /// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue, WorkQueueMetrics};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// #[derive(Default)]
    /// struct Depth(AtomicUsize);
    ///
    /// impl WorkQueueMetrics for Depth {
    ///     fn depth(&self, items: usize) {
    ///         self.0.store(items, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// #[derive(Default)]
    /// struct Provider(Arc<Depth>);
    ///
    /// impl MetricsProvider for Provider {
    ///     fn work_queue_metrics(&self, name: &str) -> Option<Arc<dyn WorkQueueMetrics>> {
    ///         assert_eq!(name, "pods");
    ///         Some(self.0.clone())
    ///     }
    /// }
    ///
    /// let provider = Arc::new(Provider::default());
    /// let queue = WorkQueue::builder().metrics_provider(provider.clone()).name("pods").build()?;
    /// queue.add("a");
    /// assert_eq!(provider.0.0.load(Ordering::Relaxed), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn metrics_provider(mut self, provider: Arc<dyn MetricsProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Sets the order in which the queue returns items. The default is the order of arrival, or of
    /// a [`PriorityQueue`] the order by priority.
    #[must_use]
    pub fn order(mut self, order: impl Order<T>) -> Self {
        self.order = Some(Box::new(Unranked(order)));
        self
    }

    /// Limits how long items with a high priority delay others. It concerns only a
    /// [`PriorityQueue`] without a custom [order](Self::order).
    ///
    /// After `items` in a row that left the queue while others with a lower priority were ready, the
    /// first of those others comes next. With two priorities, at most `(n + 1) * (items + 1) - 1`
    /// items leave the queue before an item that `n` others of its priority precede. The minimum is
    /// 1. By default there is no limit, as in controller-runtime.
    ///
    /// With a limit, each choice of an overtaken item takes time in proportion to the number of
    /// different priorities in the queue.
    ///
    /// ```
    /// use k8s_informer::workqueue::{AddOptions, AnyWorkQueue, WorkQueue, default_controller_rate_limiter};
    ///
    /// let queue = WorkQueue::builder()
    ///     .starvation_limit(2)
    ///     .build_priority(default_controller_rate_limiter())?;
    /// queue.add_with("low", AddOptions::new().priority(-100));
    /// for item in ["a", "b", "c"] {
    ///     queue.add(item);
    /// }
    /// assert_eq!([(); 4].map(|()| queue.get().unwrap()), ["a", "b", "low", "c"]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn starvation_limit(mut self, items: usize) -> Self {
        self.starvation_limit = items.max(1);
        self
    }

    /// Builds a queue. It starts a thread only if it has metrics. client-go's `NewTypedWithConfig`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn build(self) -> io::Result<WorkQueue<T>> {
        self.start(false)
    }

    /// Builds a queue with delays. client-go's `NewTypedDelayingQueueWithConfig`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn build_delaying(self) -> io::Result<DelayingQueue<T>> {
        Ok(DelayingQueue {
            queue: self.start(true)?,
        })
    }

    /// Builds a queue with delays from a rate limiter. client-go's
    /// `NewTypedRateLimitingQueueWithConfig`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn build_rate_limiting(
        self,
        limiter: impl RateLimiter<T>,
    ) -> io::Result<RateLimitingQueue<T>> {
        Ok(RateLimitingQueue {
            queue: self.build_delaying()?,
            limiter: Box::new(limiter),
        })
    }

    /// Builds a queue with priorities. controller-runtime's `priorityqueue.New`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn build_priority(mut self, limiter: impl RateLimiter<T>) -> io::Result<PriorityQueue<T>> {
        self.has_priorities = true;
        Ok(PriorityQueue {
            queue: self.build_rate_limiting(limiter)?,
        })
    }

    fn start(self, delaying: bool) -> io::Result<WorkQueue<T>> {
        let queue = self.assemble(delaying);
        queue.core.start()?;
        Ok(queue)
    }

    /// Builds the queue without starting its thread.
    fn assemble(self, delaying: bool) -> WorkQueue<T> {
        let Self {
            name,
            clock,
            mut metrics,
            provider,
            order,
            starvation_limit,
            has_priorities,
        } = self;
        if let (None, Some(name), Some(provider)) = (&metrics, &name, provider) {
            metrics = catch(|| provider.work_queue_metrics(name)).unwrap_or_else(|panic| {
                log::error!("work queue {name:?}: the metrics provider {panic}");
                None
            });
        }
        let order = order.unwrap_or_else(|| match has_priorities {
            true => Box::new(PriorityOrder::new(starvation_limit)),
            false => Box::new(Unranked(ArrivalOrder::new())),
        });
        let state = State::new(order, has_priorities);
        let shared = Shared::new(name, clock, delaying, metrics, state);
        WorkQueue {
            core: Core::new(shared),
        }
    }
}

debug_fields!(WorkQueueBuilder<T>, this,
    name: this.name,
    metrics: this.metrics.is_some() || this.provider.is_some()
);
