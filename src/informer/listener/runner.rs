use std::sync::Arc;
use std::time::Duration;

use super::callee::{Batch, Callee, Handler};
use crate::base::panic;
use crate::log;
use crate::reflector::{ReclaimQueue, drop_each};

/// A slow call is logged only if more than this number of events wait when it begins (SP14).
const MANY: usize = 1024;

/// A call of a handler counts as slow if it takes longer than this.
const SLOW: Duration = Duration::from_millis(100);

/// `after_changes` of a handler is called after this number of events even if more are ready.
const MANY_CHANGES: usize = 1024;

/// Calls a handler. At most one thread has it at a time.
pub(super) struct Runner<T> {
    callee: Callee<T>,
    pub(super) handler: Arc<Handler>,
    pub(super) reclaim: Arc<ReclaimQueue<T>>,
    /// The number of events since the last call of `after_changes`.
    changes: usize,
    /// Whether `after_changes` was called since the handler has synced.
    reported_sync: bool,
}

impl<T> Runner<T> {
    pub(super) fn new(
        callee: Callee<T>,
        handler: Arc<Handler>,
        reclaim: Arc<ReclaimQueue<T>>,
    ) -> Self {
        Self {
            callee,
            handler,
            reclaim,
            changes: 0,
            reported_sync: false,
        }
    }

    pub(super) fn callee(&self) -> &Callee<T> {
        &self.callee
    }

    /// Calls `begin` of the handler. Comes before [`deliver`](Self::deliver), and happens once.
    pub(super) fn begin(&mut self) {
        let Self {
            callee, handler, ..
        } = self;
        if let Err(panic) = panic::catch(|| callee.handler.begin(&handler.removed)) {
            log::error!("{handler}: `begin` {panic}");
        }
    }

    /// Calls the handler for each event. Returns false once the handler was removed: the pop thread
    /// may not have noticed the removal yet.
    pub(super) fn deliver(&mut self, dropped_initial_adds: usize, events: Batch<T>) -> bool {
        let Self {
            callee,
            handler,
            reclaim,
            changes,
            ..
        } = self;
        *changes += events.len();
        let Handler {
            counters, tracker, ..
        } = &**handler;
        let mut events = events.into_iter();
        // Count the dropped adds before the first event is delivered: counting may run a callback
        // of `synced`, which may remove the handler.
        if !handler.removed.is_stopped() {
            (0..dropped_initial_adds).for_each(|_| tracker.finished());
        }
        // Each call may remove the handler, and another thread may do so at any time: look before
        // each event.
        while !handler.removed.is_stopped()
            && let Some(notification) = events.next()
        {
            let is_in_initial_list = notification.event.is_in_initial_list();
            let waiting = counters.begin();
            // Reads the clock only if SP14 needs it. Catches its panics, because it is user code as well.
            let now = || panic::catch(|| callee.clock.now()).ok();
            let began = (waiting > MANY).then(now).flatten();
            let called = panic::catch(|| notification.event.deliver(&mut *callee.handler));
            // A separate catch: a destructor that panics during the unwind of another panic would
            // abort the process.
            reclaim.put(notification.event.into_objects(), &**handler);
            counters.delivered(called.is_err());
            if let Err(panic) = called {
                log::error!("{handler} {panic}; continuing with the next event");
            }
            let took = began.and_then(|began| Some(now()?.duration_since(began)));
            if let Some(took) = took.filter(|took| *took > SLOW) {
                log::warn!(
                    "{handler} took {} ms for an event; waiting events: {waiting}",
                    took.as_millis()
                );
            }
            // Count the add even if the handler panicked, so that one bad object does not keep the
            // handler unsynced forever (SP13).
            if is_in_initial_list {
                tracker.finished();
            }
        }
        drop_each(events, &**handler);
        !handler.removed.is_stopped()
    }

    /// Whether there were events since the last call of `after_changes`, or the sync of the handler.
    pub(super) fn has_changes(&self) -> bool {
        self.changes > 0 || !self.reported_sync && self.handler.synced().is_done()
    }

    /// Calls `after_changes` of the handler if there were any. Call this when no event is ready.
    pub(super) fn after_changes(&mut self) {
        if !self.has_changes() || self.handler.removed.is_stopped() {
            return;
        }
        let handler = &self.handler;
        let is_synced = handler.synced().is_done();
        (self.changes, self.reported_sync) = (0, is_synced);
        if let Err(panic) = panic::catch(|| self.callee.handler.after_changes(is_synced)) {
            log::error!("{handler}: `after_changes` {panic}");
        }
    }

    /// Like [`after_changes`](Self::after_changes), if there were many. Call this when more events are
    /// ready: they may never end.
    pub(super) fn after_many_changes(&mut self) {
        if self.changes >= MANY_CHANGES {
            self.after_changes();
        }
    }

    /// Drops the handler, after its last call.
    pub(super) fn end(self) {
        end(self.callee, &self.handler);
    }
}

/// Drops a handler that is not called any more, or was never called, and then signals its end. Call
/// this without locks: the destructor of the handler is user code.
pub(super) fn end<T>(callee: Callee<T>, handler: &Handler) {
    // As a thread of the handler, so that a wait of the destructor for `ended` returns. A panic of
    // the destructor must not keep other threads waiting for `ended`.
    if let Err(panic) = panic::catch(|| handler.owner.adopt(|| drop(callee))) {
        log::error!("{handler}: the destructor {panic}");
    }
    handler.ended.set();
}
