//! Checks that no user code runs and no user object is dropped under a lock. Every user function
//! that the structure under test calls takes the lock of that structure. If the structure already
//! holds it, the target hangs, and the fuzzer reports a timeout.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::time::Clock;
use k8s_informer_testing::FakeClock;

thread_local! {
    static TOUCH: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// While this value lives, [`touch`] takes the lock of one structure.
pub struct Probe;

impl Probe {
    /// Registers a structure. `with` takes its lock, for writing if there is a choice, and changes
    /// nothing.
    pub fn of<S: 'static>(structure: &Arc<S>, with: fn(&S)) -> Self {
        let structure: Weak<S> = Arc::downgrade(structure);
        // The upgrade fails while the structure itself is dropped.
        let touch = move || {
            structure
                .upgrade()
                .iter()
                .for_each(|structure| with(structure));
        };
        TOUCH.with(|probe| *probe.borrow_mut() = Some(Box::new(touch)));
        Self
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        TOUCH.with(|probe| *probe.borrow_mut() = None);
    }
}

/// Takes and releases the lock of the structure under test. All user code that the structure runs
/// calls this function. The target therefore hangs if the structure runs user code under its lock.
pub fn touch() {
    TOUCH.with(|probe| {
        if let Some(touch) = &*probe.borrow() {
            touch();
        }
    });
}

/// A fake clock that calls [`touch`]: the user can implement `Clock`, so the structure must not
/// call it under its lock.
#[derive(Clone)]
pub struct TouchyClock(pub FakeClock);

impl Clock for TouchyClock {
    fn now(&self) -> Instant {
        touch();
        self.0.now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.0.wait(duration, stop)
    }
}
