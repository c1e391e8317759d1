use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delivery::Delivery;
use super::fair_lock::{FairGuard, FairLock};
use super::handler::KeyedNotification;
use super::listener::{Further, Handler, Inline, ProcessorListener, Replay, Threaded};
use crate::base::sync::RwLock;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::threads::{Owner, Threads};
use crate::entry::Entry;
use crate::reflector::ReclaimQueue;
use crate::stop::Stopper;

/// Distributes notifications to all handlers. client-go's `sharedProcessor`.
pub(super) struct SharedProcessor<T> {
    /// Locked for reading while a notification is distributed, which never waits for a handler. No
    /// callback runs under this lock. In the lock order it comes after the informer's
    /// `block_deltas`.
    listeners: RwLock<Listeners<T>>,
    /// The lock of the calls of inline handlers. Its owner may call them and change the
    /// cache, so unlike the other locks it is held while user code runs. It comes before all other
    /// locks of the informer, and no method that a callback may call takes it.
    calls: FairLock,
    /// Whether the owner of `calls` is changing the cache. It then delivers whatever waits: with its
    /// change, or in [`deliver_waiting`](Self::deliver_waiting) afterwards.
    is_changing: AtomicBool,
    /// Set by the stop of the informer. Ends the waits for `calls`.
    stopped: Stopper,
    /// Whether a thread was started that has yet to begin with [`deliver_late`](Self::deliver_late).
    has_delivery: AtomicBool,
    /// Whether a callback of the informer has added a handler since the last delivery began.
    was_added_in_call: AtomicBool,
    threads: Threads,
    reclaim: Arc<ReclaimQueue<T>>,
}

/// Owns the calls of inline handlers while it changes the cache.
pub(super) struct Changing<'p> {
    guard: FairGuard<'p>,
    is_changing: &'p AtomicBool,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Before the guard passes the lock on.
        self.is_changing.store(false, Ordering::Release);
    }
}

struct Listeners<T> {
    /// The delivery of all handlers. `None` before the start, and after the stop.
    delivery: Option<Delivery>,
    all: Vec<ProcessorListener<T>>,
}

impl<T: Send + Sync + 'static> SharedProcessor<T> {
    pub(super) fn new(informer: Arc<str>, owner: Owner) -> Self {
        let listeners = RwLock::new(Listeners {
            delivery: None,
            all: Vec::new(),
        });
        let stopped = Stopper::new();
        Self {
            listeners,
            calls: FairLock::new(stopped.signal()),
            is_changing: AtomicBool::new(false),
            stopped,
            has_delivery: AtomicBool::new(false),
            was_added_in_call: AtomicBool::new(false),
            threads: Threads::new(owner),
            reclaim: Arc::new(ReclaimQueue::new(informer)),
        }
    }

    /// Adds a handler. If the processor has started, the handler receives `initial` first: with
    /// threads, this starts them and returns a replay of `initial`, and inline, the next delivery
    /// begins with `initial`. The caller keeps the processor from starting or stopping meanwhile.
    pub(super) fn add_listener(
        &self,
        mut listener: ProcessorListener<T>,
        initial: Vec<Entry<T>>,
    ) -> std::io::Result<Option<Replay<T>>> {
        // Start before the lock for writing, because starting threads takes long, and before the
        // handler is in the list, because then it gets notifications. Changes of the cache wait
        // meanwhile: the caller holds `block_deltas`. Without a delivery, the informer has not started.
        let delivery = self.listeners.read().delivery;
        let replay = match delivery {
            Some(delivery) => {
                listener.start(delivery, &self.threads, &self.reclaim)?;
                listener.replay(initial)
            }
            None => None,
        };
        self.listeners.write().all.push(listener);
        Ok(replay)
    }

    /// Creates the routes of all handlers, and starts their threads if they have any. Handlers that
    /// are added later get the same delivery. Call this once, before the first
    /// [`distribute`](Self::distribute).
    pub(super) fn start(&self, delivery: Delivery) -> std::io::Result<()> {
        let mut listeners = self.listeners.write();
        listeners.delivery = Some(delivery);
        listeners
            .all
            .iter_mut()
            .try_for_each(|listener| listener.start(delivery, &self.threads, &self.reclaim))
    }

    /// Removes a handler. Dropping the returned listener drops its pending notifications; a running
    /// call continues (SP12).
    pub(super) fn remove_listener(&self, handler: &Arc<Handler>) -> Option<ProcessorListener<T>> {
        let mut listeners = self.listeners.write();
        let mut all = listeners.all.iter();
        let at = all.position(|listener| Arc::ptr_eq(&listener.handler, handler))?;
        Some(listeners.all.remove(at))
    }

    /// Drops all handlers and waits until their threads have ended. The wait is not under the lock,
    /// because a callback may remove a handler (SP5).
    pub(super) fn stop(&self) {
        // For a run that ended without a stop: a thread of a late handler may wait for the calls.
        self.stopped.stop();
        let listeners = {
            let mut listeners = self.listeners.write();
            listeners.delivery = None;
            std::mem::take(&mut listeners.all)
        };
        drop(listeners);
        self.threads.join();
        // The feeds have ended, and so have the threads that defer objects.
        self.reclaim.free_all();
    }

    /// Adds a notification for all handlers. `sync_of` is `Some` if the notification belongs to a
    /// resync of that reflector; it then goes only to the handlers that take part in the resync.
    /// The handlers receive it with the next [`flush`](Self::flush) at the latest. Returns it if it
    /// is for no handler: the destructors of its objects must not run under `block_deltas`.
    pub(super) fn distribute(
        &self,
        notification: KeyedNotification<T>,
        sync_of: Option<usize>,
    ) -> Option<KeyedNotification<T>> {
        let listeners = self.listeners.read();
        let mut selected = listeners.all.iter().filter(|listener| match sync_of {
            Some(part) => listener.resync.is_syncing(part),
            None => true,
        });
        let Some(mut listener) = selected.next() else {
            return Some(notification);
        };
        for next in selected {
            listener.add(notification.clone());
            listener = next;
        }
        listener.add(notification);
        None
    }

    /// Returns the queue for delivered notifications.
    pub(super) fn reclaim(&self) -> &Arc<ReclaimQueue<T>> {
        &self.reclaim
    }

    /// Sends the distributed notifications to the handlers' threads.
    pub(super) fn flush(&self) {
        self.listeners
            .read()
            .all
            .iter()
            .for_each(ProcessorListener::flush);
    }

    /// Waits until no other thread is in an inline handler. Until the guard is dropped, only this
    /// thread may change the cache and deliver. Returns `None` after the stop.
    ///
    /// Call [`deliver_waiting`](Self::deliver_waiting) afterwards.
    pub(super) fn begin_change(&self) -> Option<Changing<'_>> {
        let guard = self.calls.lock()?;
        self.is_changing.store(true, Ordering::Release);
        Some(Changing {
            guard,
            is_changing: &self.is_changing,
        })
    }

    /// Calls the inline handlers with the distributed notifications, and the handlers that these calls
    /// add. Ends early after the stop.
    pub(super) fn deliver(&self, changing: &Changing<'_>) {
        self.deliver_before(Further::MayBeReady, &changing.guard);
    }

    fn deliver_before(&self, further: Further, guard: &FairGuard<'_>) {
        loop {
            for route in self.routes_with_work(further) {
                // A handler that was added after the stop does not get the signal that ends a call.
                if guard.is_ended() {
                    return;
                }
                route.deliver(further);
            }
            // Only then: if other threads add handlers all the time, they must not keep this one.
            if !self.was_added_in_call.swap(false, Ordering::AcqRel) {
                return;
            }
        }
    }

    /// Repeats the delivery in progress, or the next one, because a callback has added a handler.
    pub(super) fn repeat_delivery(&self) {
        self.was_added_in_call.store(true, Ordering::Release);
    }

    /// Delivers what waits for inline handlers: they may have been added late, or not have begun, and
    /// `after_changes` may be due. Does not wait for a thread that changes the cache, and if no event
    /// waits, for none.
    pub(super) fn deliver_waiting(&self) {
        let has_work = |further| !self.routes_with_work(further).is_empty();
        if !has_work(Further::NotReady) {
            return;
        }
        let guard = if let Some(guard) = self.calls.try_lock() {
            Some(guard)
        } else if self.is_changing.load(Ordering::Acquire) {
            // The owner of the calls delivers what waits, which may be its own change. It may be in a
            // handler for long: if this thread waited for it, nothing would be read meanwhile.
            None
        } else if has_work(Further::MayBeReady) {
            // The owner only delivers. It may have looked for work before this event was added.
            self.calls.lock()
        } else {
            None
        };
        if let Some(guard) = guard {
            self.deliver_before(Further::NotReady, &guard);
        }
    }

    /// Returns the inline handlers that have not begun, or that have not received all notifications.
    fn routes_with_work(&self, further: Further) -> Vec<Arc<Inline<T>>> {
        let listeners = self.listeners.read();
        listeners
            .all
            .iter()
            .filter_map(ProcessorListener::inline)
            .filter(|route| route.has_work(further))
            .cloned()
            .collect()
    }

    /// Returns the signal after which no inline handler is called. The run sets it with its
    /// stop.
    pub(super) fn stopped(&self) -> &Stopper {
        &self.stopped
    }

    /// Starts a thread that calls [`deliver_late`](Self::deliver_late) and ends, unless one has yet
    /// to begin with that. [`stop`](Self::stop) joins it, so do not call this method later.
    pub(super) fn start_delivery(
        &self,
        name: String,
        stack: usize,
        deliver_late: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        // However many handlers are added meanwhile, one thread waits for the handlers that are busy.
        if self.has_delivery.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let started = self.threads.spawn(name, Some(stack), deliver_late);
        if started.is_err() {
            self.has_delivery.store(false, Ordering::Release);
        }
        started
    }

    /// Delivers what waits for inline handlers.
    pub(super) fn deliver_late(&self) {
        if let Some(guard) = self.calls.lock() {
            // A handler that is added from now on may be too late for this delivery.
            self.has_delivery.swap(false, Ordering::AcqRel);
            self.deliver_before(Further::NotReady, &guard);
        }
    }

    /// Marks the initial list as completely distributed.
    pub(super) fn set_upstream_synced(&self) {
        // Signal the handlers after the unlock: this runs the callbacks of their `synced`, which
        // may remove a handler.
        let handlers = self.handlers();
        handlers.iter().for_each(|of| of.set_upstream_synced());
        self.wake();
    }

    /// Lets the threads of handlers look whether they have synced. Inline handlers do when the informer
    /// is idle.
    pub(super) fn wake(&self) {
        let routes: Vec<Arc<Threaded<T>>> = {
            let listeners = self.listeners.read();
            let routes = listeners.all.iter().filter_map(ProcessorListener::threaded);
            routes.cloned().collect()
        };
        routes.iter().for_each(|route| route.wake());
    }

    /// Lets each inline handler return, because the informer stops.
    pub(super) fn end_calls(&self) {
        let handlers = self.handlers();
        handlers.iter().for_each(|handler| handler.remove());
    }

    fn handlers(&self) -> Vec<Arc<Handler>> {
        let listeners = self.listeners.read();
        let handlers = listeners.all.iter().map(|of| Arc::clone(&of.handler));
        handlers.collect()
    }

    /// Returns the names of the handlers' threads that have not ended.
    pub(super) fn running_threads(&self) -> Vec<String> {
        self.threads.running()
    }

    /// Whether any handler resyncs with this reflector now.
    pub(super) fn should_resync(&self, source: usize, now: Instant) -> bool {
        let listeners = self.listeners.read();
        // No short circuit: each call also schedules the handler's next resync.
        listeners.all.iter().fold(false, |any, listener| {
            listener.resync.should_resync(source, now) | any
        })
    }

    /// Recomputes the handlers' resync periods after the informer's period has changed to `check`.
    pub(super) fn resync_period_changed(&self, check: Duration, now: Instant) {
        for listener in &self.listeners.read().all {
            listener.resync.period_changed(check, now);
        }
    }
}
