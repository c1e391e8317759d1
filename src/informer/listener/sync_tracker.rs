use crate::base::sync::Mutex;
use crate::stop::{Done, DoneSetter};

/// Detects when a handler has processed the initial list: the whole list has been added, and no
/// call for one of its objects is pending. client-go's `SingleFileTracker` (T1).
#[derive(Debug)]
pub(super) struct SyncTracker {
    synced: DoneSetter,
    /// An innermost lock. It is released before `synced` is set, because that runs callbacks.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of initial adds whose call has not returned.
    waiting: usize,
    upstream: bool,
}

impl SyncTracker {
    /// Creates a tracker that sets `synced`.
    pub(super) fn new(synced: DoneSetter) -> Self {
        Self {
            synced,
            state: Mutex::default(),
        }
    }

    /// Returns the signal that is set when the handler is synced. It stays set (SP11).
    pub(super) fn synced(&self) -> &Done {
        &self.synced
    }

    /// Counts initial adds. Called before the adds are sent.
    pub(super) fn start(&self, adds: usize) {
        self.state.lock().waiting += adds;
    }

    /// Counts a processed initial add.
    pub(super) fn finished(&self) {
        self.change(|state| state.waiting -= 1);
    }

    /// Records that the whole initial list has been added.
    pub(super) fn set_upstream_synced(&self) {
        self.change(|state| state.upstream = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let synced = {
            let mut state = self.state.lock();
            change(&mut state);
            state.upstream && state.waiting == 0
        };
        if synced {
            self.synced.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_synced_when_upstream_synced_and_none_pending() {
        let tracker = SyncTracker::new(DoneSetter::new("handler"));
        tracker.start(2);
        tracker.finished();
        tracker.set_upstream_synced();
        assert!(!tracker.synced().is_done());
        tracker.finished();
        assert!(tracker.synced().is_done());
    }

    #[test]
    fn t1_t3_empty_list_syncs_with_upstream_and_stays_synced() {
        let tracker = SyncTracker::new(DoneSetter::new("handler"));
        assert!(!tracker.synced().is_done());
        tracker.set_upstream_synced();
        tracker.start(1);
        assert!(tracker.synced().is_done());
    }
}
