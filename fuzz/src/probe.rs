//! No user code runs, and no user object is dropped, under a lock: whatever the structure under test calls of
//! ours takes its lock. If it is held already, the target hangs, and the fuzzer reports that.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::testing::FakeClock;
use k8s_informer::time::Clock;

thread_local! {
    static TOUCH: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// While it lives, [`touch`] does something with one structure.
pub struct Probe;

impl Probe {
    /// `with` takes the structure's lock, for writing if there is a choice, and changes nothing.
    pub fn of<S: 'static>(structure: &Arc<S>, with: fn(&S)) -> Self {
        let structure: Weak<S> = Arc::downgrade(structure);
        // While it is dropped itself, nobody can ask it anything.
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

/// To be called by whatever the structure under test calls.
pub fn touch() {
    TOUCH.with(|probe| {
        if let Some(touch) = &*probe.borrow() {
            touch();
        }
    });
}

/// A fake clock, which is user code as well.
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
