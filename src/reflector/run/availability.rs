use crate::base::sync::Mutex;
use crate::stop::Stop;

/// Whether the thread of a session can soon call the consumer, for other threads that need that.
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
    /// Works, and calls the consumer before it waits.
    Working,
    /// The same, and another thread relies on it.
    Requested,
    /// Waits for changes or for the next attempt. The stop ends this, and the consumer is called.
    Waiting(Stop),
}

impl Availability {
    /// Requests a call of the consumer, and ends the wait of the session. Returns false if the call
    /// may take long.
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

    /// The session works from now on. It calls the consumer before it waits again.
    pub(super) fn set_working(&self) {
        *self.state.lock() = State::Working;
    }

    /// The session is about to wait. Returns whether it must call the consumer first.
    pub(super) fn set_waiting(&self, interrupt: Stop) -> bool {
        self.leave_work(State::Waiting(interrupt))
    }

    /// The session is about to wait for a response. Returns whether it must call the consumer first.
    pub(super) fn set_busy(&self) -> bool {
        self.leave_work(State::Busy)
    }

    fn leave_work(&self, next: State) -> bool {
        let before = std::mem::replace(&mut *self.state.lock(), next);
        matches!(before, State::Requested)
    }
}
