use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Statistics of a handler, returned by
/// [`HandlerRegistration::stats`](crate::handler::HandlerRegistration::stats). With a
/// [`FilteringHandler`](crate::handler::FilteringHandler), they also count the events that it does
/// not pass on.
///
/// ```
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
/// use std::sync::Arc;
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
/// let handler = informer.add_event_handler(|handler| handler.on_add(|_, _| panic!("not this one")))?;
/// let stop = Stopper::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| informer.run(&stop));
///     handler.synced().wait();
///     stop.stop();
/// });
/// let stats = handler.stats();
/// assert_eq!((stats.received, stats.delivered, stats.panics, stats.waiting), (1, 1, 1, 0));
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerStats {
    /// The number of events that have been passed to the handler's queue.
    pub received: u64,
    /// The number of events that wait for the handler. It excludes a batch of at most 64 events
    /// that is being passed to the handler's thread. If the informer runs on [one
    /// thread](crate::informer::SharedIndexInformerOptions::one_thread), further changes wait on the
    /// connection to the server, and are not counted.
    pub waiting: usize,
    /// The highest value of `waiting` so far.
    pub most_waiting: usize,
    /// The number of events that were not delivered because they were merged with others or
    /// canceled.
    pub merged: u64,
    /// The number of finished calls, including those that panicked.
    pub delivered: u64,
    /// The number of calls that panicked.
    pub panics: u64,
}

/// The counters behind [`HandlerStats`]. They are read one by one, not as a consistent snapshot.
#[derive(Debug, Default)]
pub(super) struct Counters {
    // Written by the adding thread.
    received: AtomicU64,
    // Written by the pop thread, or under the lock of the added events if there is none.
    buffered: AtomicUsize,
    most_waiting: AtomicUsize,
    merged: AtomicU64,
    /// The number of events that the run thread has taken out of the buffer.
    taken: AtomicUsize,
    // Written by the run thread.
    /// The number of taken events for which the call has begun.
    begun: AtomicUsize,
    delivered: AtomicU64,
    panics: AtomicU64,
}

impl Counters {
    pub(super) fn received(&self, events: usize) {
        self.received.fetch_add(events as u64, Ordering::Relaxed);
    }

    /// Records the number of events in the buffer.
    pub(super) fn set_buffered(&self, buffered: usize) {
        self.buffered.store(buffered, Ordering::Relaxed);
        let waiting = self.waiting();
        if waiting > self.most_waiting.load(Ordering::Relaxed) {
            self.most_waiting.store(waiting, Ordering::Relaxed);
        }
    }

    fn waiting(&self) -> usize {
        let in_hand = self
            .taken
            .load(Ordering::Relaxed)
            .saturating_sub(self.begun.load(Ordering::Relaxed));
        self.buffered.load(Ordering::Relaxed) + in_hand
    }

    pub(super) fn merged(&self, events: usize) {
        self.merged.fetch_add(events as u64, Ordering::Relaxed);
    }

    /// Records that the run thread has taken this number of events out of the buffer.
    pub(super) fn taken(&self, events: usize) {
        self.taken.fetch_add(events, Ordering::Relaxed);
    }

    /// Records the beginning of a call. Returns the number of events that wait after this one.
    pub(super) fn begin(&self) -> usize {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.waiting()
    }

    /// Records that the waiting events have been dropped.
    pub(super) fn clear_waiting(&self) {
        self.buffered.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
    }

    pub(super) fn delivered(&self, panicked: bool) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        self.panics
            .fetch_add(u64::from(panicked), Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> HandlerStats {
        HandlerStats {
            received: self.received.load(Ordering::Relaxed),
            waiting: self.waiting(),
            most_waiting: self.most_waiting.load(Ordering::Relaxed),
            merged: self.merged.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            panics: self.panics.load(Ordering::Relaxed),
        }
    }
}
