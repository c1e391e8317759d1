//! Interleaving tests of [`Done`] and [`Stop`].

use super::*;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::{any, check, join_all, thread};

/// Counts the calls of a callback. Each callback holds a clone, so leaked callbacks are visible.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn callback(&self) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn holders(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A kept callback runs exactly once, and a dropped one at most once, whenever the stop happens.
/// None of them leaks.
#[test]
fn callback_runs_once_or_is_unregistered() {
    check(|| {
        let stop = Stopper::new();
        let (kept, dropped) = (Calls::default(), Calls::default());
        let stoppers = [(); 2].map(|()| {
            let stop = stop.clone();
            thread::spawn(move || stop.stop())
        });
        let subscriber = thread::spawn({
            let (stop, kept, dropped) = (stop.clone(), kept.clone(), dropped.clone());
            move || {
                let subscription = stop.on_stop(kept.callback());
                drop(stop.on_stop(dropped.callback()));
                subscription
            }
        });
        let subscription = subscriber.join().unwrap();
        join_all(stoppers);
        assert_eq!(kept.count(), 1);
        assert!(dropped.count() <= 1);
        assert_eq!(
            (kept.holders(), dropped.holders()),
            (0, 0),
            "the stop or the subscription still holds a callback"
        );
        drop(subscription);
    });
}

/// A callback that is dropped before the stop does not run, even if others register at the same
/// time.
#[test]
fn unregistered_callback_does_not_run() {
    check(|| {
        let stop = Stopper::new();
        let (early, other) = (Calls::default(), Calls::default());
        let subscription = stop.on_stop(early.callback());
        let others = thread::spawn({
            let (stop, other) = (stop.clone(), other.clone());
            move || stop.on_stop(other.callback())
        });
        drop(subscription);
        stop.stop();
        let other_subscription = others.join().unwrap();
        assert_eq!((early.count(), other.count()), (0, 1));
        drop(other_subscription);
    });
}

/// Every kind of wait ends, and returns `true` only if the signal is set.
#[test]
fn set_and_stop_end_every_wait() {
    check(|| {
        let (done, stop) = (DoneSetter::new("done"), Stopper::new());
        let waiters = [
            thread::spawn({
                let done = done.clone();
                move || done.wait()
            }),
            thread::spawn({
                let stop = stop.child();
                move || stop.wait()
            }),
            thread::spawn({
                let (done, stop) = (done.clone(), stop.clone());
                move || {
                    let is_set = done.wait_or_stop(None, &stop).is_ok();
                    assert!(done.is_done() || stop.is_stopped());
                    assert!(!is_set || done.is_done());
                }
            }),
            thread::spawn({
                let done = done.clone();
                move || assert!(!done.wait_timeout(Duration::ZERO) || done.is_done())
            }),
        ];
        let setter = thread::spawn({
            let done = done.clone();
            move || done.set()
        });
        stop.stop();
        setter.join().unwrap();
        join_all(waiters);
    });
}

/// A wait for two signals ends when either signal is set, and leaves no callback behind.
#[test]
fn wait_or_stop_ends_on_either_signal() {
    check(|| {
        let (done, stop, set) = (DoneSetter::new("done"), Stopper::new(), any(2) == 0);
        let waiter = thread::spawn({
            let (done, stop) = (done.clone(), stop.clone());
            move || done.wait_or_stop(None, &stop).is_ok()
        });
        if set {
            done.set();
        } else {
            stop.stop();
        }
        assert_eq!(waiter.join().unwrap(), set);
        assert!(
            done.shared.state.lock().callbacks.is_empty()
                && stop.done.shared.state.lock().callbacks.is_empty()
        );
    });
}

/// The first of two signals ends a wait for either, also if it is set before the wait.
#[test]
fn either_of_two_stops_ends_a_wait() {
    check(|| {
        let (first, second) = (Stopper::new(), Stopper::new());
        let waiter = thread::spawn({
            let (first, second) = (first.signal(), second.signal());
            move || first.or(&second).wait()
        });
        let set = if any(2) == 0 { &first } else { &second };
        set.stop();
        waiter.join().unwrap();
        for stop in [first, second] {
            assert!(stop.done.shared.state.lock().callbacks.is_empty());
        }
    });
}

/// A signal that is set without callbacks is set for its children and waits. Its callbacks run once,
/// at the stop or at their registration.
#[test]
fn callbacks_run_once_after_a_stop_without_callbacks() {
    check(|| {
        let (stop, calls) = (Stopper::new(), Calls::default());
        let child = stop.child();
        let subscriber = thread::spawn({
            let (stop, calls) = (stop.clone(), calls.clone());
            move || stop.on_stop(calls.callback())
        });
        let waiter = thread::spawn({
            let child = child.child();
            move || child.wait()
        });
        stop.stop_without_callbacks();
        assert!(stop.is_stopped() && child.is_stopped());
        stop.stop();
        drop(subscriber.join().unwrap());
        waiter.join().unwrap();
        assert_eq!((calls.count(), calls.holders()), (1, 0));
    });
}

/// A stop reaches children created at the same time, and their children. The stop of a child does
/// not affect its parent. A dropped child leaves no callback behind.
#[test]
fn stop_reaches_children_created_concurrently() {
    check(|| {
        let stop = Stopper::new();
        let family = thread::spawn({
            let stop = stop.clone();
            move || {
                let grandchild = stop.child().child();
                let sibling = stop.child();
                drop(stop.child());
                sibling.stop();
                (grandchild, sibling)
            }
        });
        let other = thread::spawn({
            let stop = stop.clone();
            move || {
                let child = stop.child();
                child.stop();
                child
            }
        });
        let child = other.join().unwrap();
        assert!(
            child.is_stopped() && !stop.is_stopped(),
            "the parent is not stopped yet"
        );
        stop.stop();
        let (grandchild, sibling) = family.join().unwrap();
        assert!(grandchild.is_stopped() && sibling.is_stopped());
        assert!(stop.done.shared.state.lock().callbacks.is_empty());
    });
}
