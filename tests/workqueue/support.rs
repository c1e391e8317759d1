use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::workqueue::{DelayingQueue, Order, WorkQueue};
use k8s_informer_testing::FakeClock;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs a test that would hang if a lock were held or a wake-up were lost.
pub(crate) fn with_timeout(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    let outcome = finished.recv_timeout(TIMEOUT);
    if outcome != Err(mpsc::RecvTimeoutError::Timeout) {
        thread.join().unwrap();
    }
    outcome.unwrap();
}

/// A delaying queue and its clock.
pub(crate) fn delaying<T>() -> (DelayingQueue<T>, FakeClock)
where
    T: Clone + Eq + std::hash::Hash + Send + 'static,
{
    let clock = FakeClock::new();
    (
        WorkQueue::builder()
            .clock(Arc::new(clock.clone()))
            .build_delaying()
            .unwrap(),
        clock,
    )
}

/// A first-in, first-out order that records the touched items.
pub(crate) struct Recording {
    waiting: VecDeque<&'static str>,
    touches: Touches,
}

pub(crate) type Touches = Arc<Mutex<Vec<&'static str>>>;

pub(crate) fn recording() -> (Recording, Touches) {
    let touches = Touches::default();
    (
        Recording {
            waiting: VecDeque::new(),
            touches: Arc::clone(&touches),
        },
        touches,
    )
}

impl Order<&'static str> for Recording {
    fn touch(&mut self, item: &&'static str) {
        self.touches.lock().unwrap().push(item);
    }

    fn push(&mut self, item: &'static str) {
        assert!(!self.waiting.contains(&item), "{item} is queued twice");
        self.waiting.push_back(item);
    }

    fn pop(&mut self) -> Option<&'static str> {
        self.waiting.pop_front()
    }
}
