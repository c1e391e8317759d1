use crate::stop::{Stop, Stopper};

/// How other threads end the open watch, or the wait, before its time.
pub(super) enum Interrupt {
    /// They set this signal.
    Armed(Stopper),
    /// They have ended a watch, which was opened again. They can't end the first read of the new one,
    /// whose signal this is. That read is short: frequent interrupts must not prevent progress.
    Used(Stopper),
}

impl Interrupt {
    pub(super) fn new() -> Self {
        Self::Armed(Stopper::new())
    }

    /// The signal that ends the watch or the wait.
    pub(super) fn stop(&self) -> &Stopper {
        match self {
            Self::Armed(stop) | Self::Used(stop) => stop,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop().is_stopped()
    }

    /// Whether other threads may set the signal.
    pub(super) fn is_armed(&self) -> bool {
        matches!(self, Self::Armed(_))
    }

    /// Begins another watch or wait, which also ends with `parent`.
    pub(super) fn renew(&mut self, parent: &Stop) {
        *self = match self {
            Self::Armed(_) => Self::Armed(parent.child()),
            Self::Used(_) => Self::Used(parent.child()),
        };
    }

    /// Records that the signal has ended a watch.
    pub(super) fn use_up(&mut self) {
        *self = Self::Used(self.stop().clone());
    }

    /// Begins a read, which other threads can end from the next one on. Returns whether they can't
    /// end this one.
    pub(super) fn arm(&mut self) -> bool {
        let was_used = !self.is_armed();
        *self = Self::Armed(self.stop().clone());
        was_used
    }
}
