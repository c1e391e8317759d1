use crate::base::sync::Mutex;
use crate::stop::Stopper;

/// Whether the thread of a feed can soon return to its owner, for other threads that need that.
#[derive(Default)]
pub(super) struct Availability {
    /// An innermost lock.
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// Awaits a response or the rest of a list, which may take long.
    #[default]
    Busy,
    /// Works, and returns before it waits.
    Working,
    /// The same, and another thread relies on it.
    Requested,
    /// Waits for changes or for the next attempt. The stop ends this.
    Waiting(Stopper),
}

impl Availability {
    /// Requests a return to the owner, and ends the wait. Returns false if this may take long.
    pub(super) fn request(&self) -> bool {
        let interrupt = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Requested) {
                State::Busy => {
                    *state = State::Busy;
                    return false;
                }
                State::Working | State::Requested => None,
                State::Waiting(interrupt) => Some(interrupt),
            }
        };
        if let Some(interrupt) = interrupt {
            interrupt.stop();
        }
        true
    }

    /// The feed works from now on. It returns before it waits again.
    pub(super) fn set_working(&self) {
        *self.state.lock() = State::Working;
    }

    /// The feed is about to wait. Returns whether it must return to its owner first.
    pub(super) fn set_waiting(&self, interrupt: Stopper) -> bool {
        self.leave_work(State::Waiting(interrupt))
    }

    /// The feed is about to wait for a response. Returns whether it must return to its owner first.
    pub(super) fn set_busy(&self) -> bool {
        self.leave_work(State::Busy)
    }

    /// The state changes also if the feed returns instead of waiting. A request before its next step
    /// then ends a wait that has not begun.
    ///
    /// A request that came since the last wait is answered by the return, also if the owner has looked
    /// for work since: it may have looked before the request. A request from now on counts as one during
    /// the wait, so many of them do not keep the feed from waiting.
    fn leave_work(&self, next: State) -> bool {
        let before = std::mem::replace(&mut *self.state.lock(), next);
        matches!(before, State::Requested)
    }
}
