use crate::stop::Done;
use crate::sync::Mutex;

/// Tells when a handler has seen the initial list: all of it has been handed over, and nothing of it is still
/// on its way. client-go's `SingleFileTracker` (T1).
#[derive(Debug)]
pub(super) struct SyncTracker {
    synced: Done,
    /// Innermost: `synced` is set after it.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Initial adds that were handed over and whose callback has not returned.
    waiting: usize,
    upstream: bool,
}

impl SyncTracker {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self {
            synced: Done::new(name),
            state: Mutex::default(),
        }
    }

    /// Happens when the handler is synced; stays (SP11).
    pub(super) fn synced(&self) -> &Done {
        &self.synced
    }

    /// One more of the initial list is on its way: called before it is handed over.
    pub(super) fn start(&self) {
        self.state.lock().waiting += 1;
    }

    /// The handler is through with one of the initial list.
    pub(super) fn finished(&self) {
        self.change(|state| state.waiting -= 1);
    }

    /// Everything of the initial list has been handed over.
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
    fn t1_synced_when_upstream_is_and_nothing_is_on_its_way() {
        let tracker = SyncTracker::new("handler");
        tracker.start();
        tracker.start();
        tracker.finished();
        tracker.set_upstream_synced();
        assert!(!tracker.synced().is_done());
        tracker.finished();
        assert!(tracker.synced().is_done());
    }

    #[test]
    fn t1_t3_empty_list_syncs_with_upstream_and_stays_synced() {
        let tracker = SyncTracker::new("handler");
        assert!(!tracker.synced().is_done());
        tracker.set_upstream_synced();
        tracker.start();
        assert!(tracker.synced().is_done());
    }
}
