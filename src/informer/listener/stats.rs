use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How a handler stands: [`HandlerRegistration::stats`](crate::handler::HandlerRegistration::stats).
///
/// ```
/// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stop};
/// use std::sync::Arc;
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
/// let handler = informer.add_event_handler(|handler| handler.on_add(|_, _| panic!("not this one")))?;
/// let stop = Stop::new();
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
    /// How many events have been handed to it so far.
    pub received: u64,
    /// How many events wait for it now, but for those that are just being handed over, 64 at most.
    pub waiting: usize,
    /// The most that ever did.
    pub most_waiting: usize,
    /// How many events it was spared because they were merged with others, or came to nothing.
    pub merged: u64,
    /// How many calls of it have returned or panicked.
    pub delivered: u64,
    /// How many calls of it panicked.
    pub panics: u64,
}

/// The same, being counted: the first by who adds, the next four by the pop thread, the others by the run
/// thread. Each is read by itself.
#[derive(Debug, Default)]
pub(super) struct Counters {
    received: AtomicU64,
    buffered: AtomicUsize,
    most_waiting: AtomicUsize,
    merged: AtomicU64,
    /// How many the run thread has taken.
    taken: AtomicUsize,
    /// How many of them it has begun with.
    begun: AtomicUsize,
    delivered: AtomicU64,
    panics: AtomicU64,
}

impl Counters {
    pub(super) fn received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// So many are in the buffer.
    pub(super) fn waits(&self, buffered: usize) {
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

    /// The run thread has taken so many out of the buffer.
    pub(super) fn taken(&self, events: usize) {
        self.taken.fetch_add(events, Ordering::Relaxed);
    }

    /// The run thread begins with one of those that it has. Answers how many wait behind it.
    pub(super) fn begin(&self) -> usize {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.waiting()
    }

    /// Whatever there is will not be told any more.
    pub(super) fn nothing_waits(&self) {
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
