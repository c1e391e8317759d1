//! Sources of kinds that may be missing.
//!
//! The informer of such a source always runs. While its kind is missing, its lists fail. The kind
//! exists for the controller once a complete list is in the cache, so no call sees a part of it. It
//! is missing once lists fail with 404 and discovery has lacked it for `SETTLE`.

use std::sync::Arc;
use std::time::Duration;

use super::presence::{CHECK, Presence, SETTLE, is_served};
use super::reconcile_loop::{LOW_PRIORITY, ReconcileLoop};
use super::source::AnySource;
use crate::log;

impl ReconcileLoop {
    pub(super) fn has_optional(&self) -> bool {
        let mut sources = self.calls.sources.iter();
        sources.any(|source| source.presence().is_some())
    }

    /// The presence of an optional source, by the position of the source.
    fn presence(&self, at: usize) -> Option<(&Arc<dyn AnySource>, &Presence)> {
        let source = &self.calls.sources[at];
        Some((source, source.presence()?))
    }

    /// Checks an optional source after a delay, on the thread of these checks. Replaces the check
    /// that was planned before. Does nothing for other sources.
    pub(super) fn check_optional_after(self: &Arc<Self>, at: usize, delay: Duration) {
        let Some((_, presence)) = self.presence(at) else {
            return;
        };
        // Cancelled first: the new check can run at once, and plan another one.
        let planned = presence.state.lock().timer.take();
        planned.inspect(|timer| self.optional.cancel(*timer));
        let this = Arc::downgrade(self);
        let timer = self.optional.after(delay, move || {
            this.upgrade().inspect(|this| this.check_optional(at));
        });
        presence.state.lock().timer = timer;
    }

    /// Checks whether the kind of an optional source has appeared or is gone.
    pub(super) fn check_optional(self: &Arc<Self>, at: usize) {
        let Some((source, presence)) = self.presence(at) else {
            return;
        };
        if !presence.exists() {
            let was_gone = presence.state.lock().was_gone;
            return match was_gone {
                false if source.synced().is_done() => self.set_exists(at, true),
                // The signal of the first list causes the next check.
                false => {}
                true if source.is_listed() => self.set_exists(at, true),
                // Later lists have no signal.
                true => self.check_optional_after(at, SETTLE),
            };
        }
        let is_absent = !source.is_listed()
            && is_served(&self.calls.client, source.resource(), &self.optional_stop) == Some(false);
        let now = self.calls.clock.now();
        let since = {
            let since = &mut presence.state.lock().absent_since;
            *since = is_absent.then(|| since.unwrap_or(now));
            *since
        };
        match since {
            Some(since) if now.saturating_duration_since(since) >= SETTLE => {
                self.set_exists(at, false);
            }
            Some(_) => self.check_optional_after(at, CHECK),
            // The next failed list causes the next check.
            None => {}
        }
    }

    fn set_exists(self: &Arc<Self>, at: usize, exists: bool) {
        let Some((source, presence)) = self.presence(at) else {
            return;
        };
        {
            let state = &mut *presence.state.lock();
            state.absent_since = None;
            state.was_gone |= !exists;
        }
        presence.set(exists);
        let is = if exists { "exists" } else { "is gone" };
        log::info!(
            "controller {:?}: the optional kind {} {is}",
            self.calls.controller,
            source.resource()
        );
        if !exists {
            self.postponed.resume_all();
            self.check_optional_after(at, SETTLE);
        }
        self.enqueue(self.calls.sources[0].keys(), LOW_PRIORITY);
    }
}
