//! A gate between the pops of the process loop, so the test can see whether the loop waits, and
//! can hold it.
//!
//! The queue calls the metrics and the clock on the thread of the loop, without a lock. The loop
//! waits in the call that ends a pop, until an item is available and the gate is open. The queue then
//! is as it is before the next pop, except that the last pop has not ended: the queue syncs only
//! after that. [`Fillers`](super::source::Fillers) get the loop to the gate.

use std::thread;
use std::time::Duration;

use k8s_informer::Stop;
use k8s_informer::metrics::InformerMetrics;

use super::world::{Gate, ProcessLoop, State, World};

impl InformerMetrics for World {
    fn queued_items(&self, items: usize) {
        let thread = thread::current().id();
        self.change(|state| {
            state.queued = items;
            // The first pop has taken its items.
            if state.process == ProcessLoop::Awaits && state.process_thread == Some(thread) {
                state.process = ProcessLoop::HasFirst;
            }
        });
    }

    fn processing_latency(&self, _: Duration) {
        self.pass_gate(ProcessLoop::Waits);
    }
}

impl World {
    /// Called by the clock before the first items are processed.
    pub(super) fn begin_first_pop(&self) {
        match self.look(|state| state.holds_first) {
            true => self.pass_gate(ProcessLoop::Begins),
            false => self.change(|state| state.process = ProcessLoop::Busy),
        }
    }

    /// Blocks until the next item may be processed or the informer stops.
    pub(super) fn pass_gate(&self, waiting: ProcessLoop) {
        self.change(|state| state.process = waiting);
        self.wait_until(&Stop::never(), State::may_pop, |state| {
            state.process = ProcessLoop::Busy;
            if let Gate::Closed { passes } = &mut state.gate {
                *passes = passes.saturating_sub(1);
            }
        });
    }
}
