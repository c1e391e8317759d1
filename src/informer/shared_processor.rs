use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handler::{KeyedNotification, Notification};
use super::listener::{Handler, ProcessorListener};
use super::reclaim::ReclaimQueue;
use crate::object::Key;
use crate::sync::RwLock;
use crate::threads::{Owner, Threads};

/// Hands each notification to every handler. client-go's `sharedProcessor`.
pub(super) struct SharedProcessor<T> {
    /// The handlers, and whether their threads run. Held for reading while a notification is handed over,
    /// which never waits for a handler; no callback runs under it. After the informer's `block_deltas`.
    listeners: RwLock<Listeners<T>>,
    threads: Threads,
    reclaim: Arc<ReclaimQueue<T>>,
}

struct Listeners<T> {
    started: bool,
    all: Vec<ProcessorListener<T>>,
}

impl<T: Send + Sync + 'static> SharedProcessor<T> {
    pub(super) fn new(informer: Arc<str>, owner: Owner) -> Self {
        let listeners = RwLock::new(Listeners {
            started: false,
            all: Vec::new(),
        });
        Self {
            listeners,
            threads: Threads::new(owner),
            reclaim: Arc::new(ReclaimQueue::new(informer)),
        }
    }

    /// Adds a handler, and starts its threads if those of the others run. `initial` is what it is told first.
    pub(super) fn add_listener(
        &self,
        listener: ProcessorListener<T>,
        initial: impl IntoIterator<Item = (Key, Arc<T>)>,
    ) -> std::io::Result<()> {
        if self.listeners.read().started {
            listener.start(&self.threads, &self.reclaim)?;
            for (key, object) in initial {
                listener.add(KeyedNotification {
                    key,
                    event: Notification::Added {
                        object,
                        is_in_initial_list: true,
                    },
                });
            }
            listener.flush();
        }
        self.listeners.write().all.push(listener);
        Ok(())
    }

    /// Starts the threads of all handlers. Before that nothing may be distributed.
    pub(super) fn start(&self) -> std::io::Result<()> {
        let mut listeners = self.listeners.write();
        listeners.started = true;
        listeners
            .all
            .iter()
            .try_for_each(|listener| listener.start(&self.threads, &self.reclaim))
    }

    /// Takes a handler out. Dropped, it loses what waits for it, and the call that it is in goes on (SP6,
    /// SP12).
    pub(super) fn remove_listener(&self, id: u64) -> Option<ProcessorListener<T>> {
        let mut listeners = self.listeners.write();
        let at = listeners.all.iter().position(|listener| listener.id == id);
        at.map(|at| listeners.all.remove(at))
    }

    /// Drops all handlers and waits until their threads have ended (SP4), not under the lock (SP5).
    pub(super) fn stop(&self) {
        let listeners = {
            let mut listeners = self.listeners.write();
            listeners.started = false;
            std::mem::take(&mut listeners.all)
        };
        drop(listeners);
        self.threads.join();
    }

    /// Adds a notification for all handlers, or, if it is of a resync of that reflector, for those that take
    /// part in it (SP3). It reaches them with others, at the next [`flush`](Self::flush) at the latest.
    pub(super) fn distribute(&self, notification: KeyedNotification<T>, sync_of: Option<usize>) {
        {
            let listeners = self.listeners.read();
            let takes_part = |listener: &&_| {
                sync_of.is_none_or(|part| ProcessorListener::is_syncing(listener, part))
            };
            let mut selected = listeners.all.iter().filter(takes_part);
            if let Some(mut listener) = selected.next() {
                for next in selected {
                    listener.add(notification.clone());
                    listener = next;
                }
                return listener.add(notification);
            }
        }
        self.reclaim.put(notification);
    }

    /// Where what has been told goes in the end.
    pub(super) fn reclaim(&self) -> &Arc<ReclaimQueue<T>> {
        &self.reclaim
    }

    /// Sends what has been distributed to the handlers' threads.
    pub(super) fn flush(&self) {
        self.listeners
            .read()
            .all
            .iter()
            .for_each(ProcessorListener::flush);
    }

    /// Everything of the initial list has been distributed.
    pub(super) fn set_upstream_synced(&self) {
        // Not under the lock: whoever waits for a handler's sync is called, and may remove the handler.
        let handlers: Vec<Arc<Handler>> = self
            .listeners
            .read()
            .all
            .iter()
            .map(|listener| Arc::clone(&listener.handler))
            .collect();
        for handler in handlers {
            handler.set_upstream_synced();
        }
    }

    /// The names of the handlers' threads that have not ended.
    pub(super) fn running_threads(&self) -> Vec<String> {
        self.threads.running()
    }

    /// Whether any handler wants to resync with this reflector now (SP2).
    pub(super) fn should_resync(&self, source: usize, now: Instant) -> bool {
        let listeners = self.listeners.read();
        // Every one has to be asked: asking sets its next time.
        listeners.all.iter().fold(false, |any, listener| {
            listener.should_resync(source, now) | any
        })
    }

    /// The informer's own period has changed (I9).
    pub(super) fn resync_period_changed(
        &self,
        effective: impl Fn(Duration) -> Duration,
        now: Instant,
    ) {
        for listener in &self.listeners.read().all {
            listener.resync_period_changed(&effective, now);
        }
    }
}
