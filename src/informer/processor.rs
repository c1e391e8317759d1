use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handler::Notification;
use super::listener::ProcessorListener;
use crate::panic;
use crate::sync::RwLock;
use crate::threads::{Owner, Threads};

/// Hands each notification to every handler. client-go's `sharedProcessor`.
pub(super) struct SharedProcessor<T> {
    /// The handlers, and whether their threads run. Held for reading while a notification is handed over, which never waits for a
    /// handler; no callback runs under it. After the informer's `block_deltas`.
    listeners: RwLock<Listeners<T>>,
    threads: Threads,
}

struct Listeners<T> {
    started: bool,
    all: Vec<ProcessorListener<T>>,
}

impl<T: Send + Sync + 'static> SharedProcessor<T> {
    pub(super) fn new(owner: Owner) -> Self {
        let listeners = RwLock::new(Listeners { started: false, all: Vec::new() });
        Self { listeners, threads: Threads::new(owner) }
    }

    /// Adds a handler, and starts its threads if those of the others run. `initial` is what it is told first.
    pub(super) fn add_listener(
        &self,
        listener: ProcessorListener<T>,
        initial: impl IntoIterator<Item = Arc<T>>,
    ) -> std::io::Result<()> {
        if self.listeners.read().started {
            listener.start(&self.threads)?;
            for object in initial {
                listener.add(Notification::Add { object, is_in_initial_list: true });
            }
        }
        self.listeners.write().all.push(listener);
        Ok(())
    }

    /// Starts the threads of all handlers. Before that nothing may be distributed.
    pub(super) fn start(&self) -> std::io::Result<()> {
        let mut listeners = self.listeners.write();
        listeners.started = true;
        listeners.all.iter().try_for_each(|listener| listener.start(&self.threads))
    }

    /// Drops a handler with what waits for it; the call that it is in goes on (SP6, SP12). Says whether it was there.
    pub(super) fn remove_listener(&self, id: u64) -> bool {
        let removed = {
            let mut listeners = self.listeners.write();
            let at = listeners.all.iter().position(|listener| listener.id == id);
            at.map(|at| listeners.all.remove(at))
        };
        let found = removed.is_some();
        drop_quietly(removed);
        found
    }

    /// Drops all handlers and waits until their threads have ended (SP4), not under the lock (SP5).
    pub(super) fn stop(&self) {
        let listeners = {
            let mut listeners = self.listeners.write();
            listeners.started = false;
            std::mem::take(&mut listeners.all)
        };
        drop_quietly(listeners);
        self.threads.join();
    }

    /// Hands a notification to all handlers, or, if it is of a resync, to those that take part in it (SP3).
    pub(super) fn distribute(&self, notification: Notification<T>, sync: bool) {
        let listeners = self.listeners.read();
        let mut selected = listeners.all.iter().filter(|listener| !sync || listener.is_syncing());
        let Some(mut listener) = selected.next() else { return };
        for next in selected {
            listener.add(notification.clone());
            listener = next;
        }
        listener.add(notification);
    }

    /// Everything of the initial list has been distributed.
    pub(super) fn upstream_has_synced(&self) {
        for listener in &self.listeners.read().all {
            listener.tracker.upstream_has_synced();
        }
    }

    /// Whether any handler wants to resync now (SP2).
    pub(super) fn should_resync(&self, now: Instant) -> bool {
        let listeners = self.listeners.read();
        // Every one has to be asked: asking sets its next time.
        listeners.all.iter().fold(false, |any, listener| listener.should_resync(now) | any)
    }

    /// The informer's own period has changed (I9).
    pub(super) fn resync_period_changed(&self, effective: impl Fn(Duration) -> Duration, now: Instant) {
        for listener in &self.listeners.read().all {
            listener.resync_period_changed(&effective, now);
        }
    }
}

/// Drops listeners, not under a lock: handlers that never ran go with them, and their destructors are a user's code.
fn drop_quietly<L>(listeners: L) {
    if let Err(panic) = panic::catch(|| drop(listeners)) {
        log::error!("a handler, being dropped, {panic}");
    }
}
