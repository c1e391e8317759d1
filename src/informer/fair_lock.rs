use std::collections::VecDeque;

use crate::base::sync::Mutex;
use crate::stop::{DoneSetter, Stop};

/// A lock that threads get in the order of their calls, and whose waits end with a stop.
///
/// It makes the threads of an informer without handler threads take turns. Each thread has one
/// namespace. The owner of the lock changes the cache and calls the handlers, and the others wait
/// before their next change. So handlers need no buffers, the cache is not ahead of a running call,
/// and a namespace waits for one item of each other one. A handler may take long, so a stop must end
/// these waits.
pub(super) struct FairLock {
    /// An innermost lock.
    state: Mutex<State>,
    /// Set by the stop of the informer, before any callback of that stop runs.
    ended: Stop,
}

#[derive(Default)]
struct State {
    is_locked: bool,
    /// The threads that wait, oldest first. The signal of the first one is set when it gets the
    /// lock.
    waiting: VecDeque<DoneSetter>,
}

/// Owns a [`FairLock`]. Dropping it passes the lock on.
pub(super) struct FairGuard<'l>(&'l FairLock);

impl FairLock {
    /// `ended` ends all waits. After it, no thread gets the lock.
    pub(super) fn new(ended: Stop) -> Self {
        Self {
            state: Mutex::default(),
            ended,
        }
    }

    /// Waits until the threads that called this method earlier have had the lock. Returns `None`
    /// after the stop.
    pub(super) fn lock(&self) -> Option<FairGuard<'_>> {
        let granted = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.is_locked, true) {
                let granted = DoneSetter::new("lock");
                state.waiting.push_back(granted.clone());
                Some(granted)
            } else {
                None
            }
        };
        if let Some(granted) = granted
            && granted.wait_until_either(None, &self.ended).is_err()
            && self.withdraw(&granted)
        {
            return None;
        }
        // This thread has the lock now. If a stop came at the same time, the guard passes it on.
        let guard = FairGuard(self);
        (!self.ended.is_stopped()).then_some(guard)
    }

    /// Returns `None` if another thread has the lock, and after the stop.
    pub(super) fn try_lock(&self) -> Option<FairGuard<'_>> {
        let was_locked = std::mem::replace(&mut self.state.lock().is_locked, true);
        let guard = (!was_locked).then(|| FairGuard(self));
        guard.filter(|guard| !guard.is_ended())
    }

    /// Ends a wait. Returns false if the waiting thread has the lock already.
    fn withdraw(&self, granted: &DoneSetter) -> bool {
        let waiting = &mut self.state.lock().waiting;
        let at = waiting.iter().position(|other| other.is(granted));
        at.and_then(|at| waiting.remove(at)).is_some()
    }
}

impl Drop for FairGuard<'_> {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.state.lock();
            let next = state.waiting.pop_front();
            // The lock goes to the next thread without being free in between, so no thread that
            // comes later gets it first.
            state.is_locked = next.is_some();
            next
        };
        if let Some(next) = next {
            next.set();
        }
    }
}

impl FairGuard<'_> {
    /// Whether the informer has been stopped. No handler is called from then on.
    pub(super) fn is_ended(&self) -> bool {
        self.0.ended.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::stop::Stopper;

    /// Waits until this number of threads wait for the lock.
    fn until_waiting(lock: &FairLock, count: usize) {
        while lock.state.lock().waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn threads_get_the_lock_in_the_order_of_their_calls() {
        let lock = FairLock::new(Stop::never());
        let (sender, order) = channel();
        thread::scope(|scope| {
            let guard = lock.lock().unwrap();
            for number in 0..3 {
                let (lock, sender) = (&lock, sender.clone());
                scope.spawn(move || {
                    let _guard = lock.lock().unwrap();
                    sender.send(number).unwrap();
                });
                until_waiting(lock, number + 1);
            }
            drop(guard);
        });
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(lock.lock().is_some());
    }

    #[test]
    fn stop_ends_the_waits_without_the_lock() {
        let stop = Stopper::new();
        let lock = FairLock::new(stop.signal());
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| lock.lock().is_none()));
            until_waiting(&lock, 2);
            // The callback holds up the other callbacks of this stop, but not these waits.
            let (wake, woken) = channel::<()>();
            let _blocks = stop.on_stop(move || {
                let _ = woken.recv_timeout(Duration::from_secs(60));
            });
            scope.spawn(|| stop.stop());
            for thread in waiting {
                assert!(thread.join().unwrap());
            }
            drop(wake);
        });
        drop(guard);
        assert!(lock.lock().is_none());
    }
}
