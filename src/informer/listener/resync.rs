use std::time::{Duration, Instant};

use crate::base::sync::Mutex;

/// The schedule of a handler's resyncs.
pub(crate) struct Resync {
    /// An innermost lock.
    state: Mutex<State>,
}

struct State {
    /// The requested period, zero for no resyncs.
    requested: Duration,
    /// The effective period.
    period: Duration,
    /// The state for each reflector.
    by_source: Vec<SourceResync>,
}

struct SourceResync {
    /// The time of the next resync, `None` if it exceeds the range of the clock.
    next: Option<Instant>,
    /// Whether the handler takes part in the current resync. Initially true (SP1).
    syncing: bool,
}

impl Resync {
    /// Creates the schedule of a handler of an informer with this number of reflectors. `check` is
    /// the informer's own period.
    pub(crate) fn new(requested: Duration, check: Duration, sources: usize, now: Instant) -> Self {
        let period = effective_period(requested, check);
        let source = || SourceResync {
            next: now.checked_add(period),
            syncing: true,
        };
        Self {
            state: Mutex::new(State {
                requested,
                period,
                by_source: std::iter::repeat_with(source).take(sources).collect(),
            }),
        }
    }

    /// Whether the handler takes part in the current resync of this reflector.
    pub(crate) fn is_syncing(&self, source: usize) -> bool {
        self.state.lock().by_source[source].syncing
    }

    /// Whether a resync with this reflector is due. If so, the handler takes part in it, and the
    /// next resync is scheduled (SP2).
    pub(crate) fn should_resync(&self, source: usize, now: Instant) -> bool {
        let mut state = self.state.lock();
        let period = state.period;
        let source = &mut state.by_source[source];
        source.syncing = !period.is_zero() && source.next.is_some_and(|next| now >= next);
        if source.syncing {
            source.next = now.checked_add(period);
        }
        source.syncing
    }

    /// Adjusts the schedule after the informer's own period has changed to `check` (I9).
    pub(crate) fn period_changed(&self, check: Duration, now: Instant) {
        let mut state = self.state.lock();
        state.period = effective_period(state.requested, check);
        let next = now.checked_add(state.period);
        for source in &mut state.by_source {
            source.next = next;
        }
    }
}

/// Returns the effective resync period of a handler. `check` is the informer's period (I10).
fn effective_period(requested: Duration, check: Duration) -> Duration {
    if requested.is_zero() || check.is_zero() {
        Duration::ZERO
    } else {
        requested.max(check)
    }
}
