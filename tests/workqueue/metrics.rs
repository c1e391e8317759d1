use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_informer::testing::FakeClock;
use k8s_informer::workqueue::{DelayingQueue, WorkQueue, WorkQueueMetrics};

use super::support::*;

#[derive(Default)]
struct Noted(Mutex<Figures>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Figures {
    depth: usize,
    adds: usize,
    retries: usize,
    queued: Vec<Duration>,
    worked: Vec<Duration>,
    unfinished: Duration,
    longest: Duration,
    refreshed: usize,
}

impl Noted {
    fn note(&self, note: impl FnOnce(&mut Figures)) {
        note(&mut self.0.lock().unwrap());
    }

    fn figures(&self) -> Figures {
        self.0.lock().unwrap().clone()
    }
}

impl WorkQueueMetrics for Noted {
    fn depth(&self, items: usize) {
        self.note(|figures| figures.depth = items);
    }
    fn added(&self) {
        self.note(|figures| figures.adds += 1);
    }
    fn queue_duration(&self, waited: Duration) {
        self.note(|figures| figures.queued.push(waited));
    }
    fn work_duration(&self, worked: Duration) {
        self.note(|figures| figures.worked.push(worked));
    }
    fn unfinished_work(&self, total: Duration) {
        self.note(|figures| figures.unfinished = total);
    }
    fn longest_running_processor(&self, longest: Duration) {
        self.note(|figures| {
            figures.longest = longest;
            figures.refreshed += 1;
        });
    }
    fn retried(&self) {
        self.note(|figures| figures.retries += 1);
    }
}

fn queue() -> (DelayingQueue<&'static str>, Arc<Noted>, FakeClock) {
    let (noted, clock) = (Arc::new(Noted::default()), FakeClock::new());
    let builder = WorkQueue::builder()
        .name("pods")
        .clock(Arc::new(clock.clone()))
        .metrics(noted.clone());
    (builder.build_delaying().unwrap(), noted, clock)
}

#[test]
fn q18_depth_adds_and_how_long_items_wait_and_take() {
    let (queue, noted, clock) = queue();
    queue.add("a");
    queue.add("b");
    clock.advance(millis(30));
    queue.add("a");
    assert_eq!(
        (noted.figures().depth, noted.figures().adds),
        (2, 2),
        "it waits already"
    );
    let item = queue.take().unwrap();
    assert_eq!(
        (noted.figures().depth, noted.figures().queued),
        (1, vec![millis(30)])
    );
    clock.advance(millis(20));
    queue.add("a");
    queue.add("a");
    assert_eq!(
        (noted.figures().depth, noted.figures().adds),
        (2, 3),
        "it will wait"
    );
    clock.advance(millis(5));
    drop(item);
    assert_eq!(
        (noted.figures().depth, noted.figures().worked),
        (2, vec![millis(25)])
    );
    drop(queue.take());
    drop(queue.take());
    assert_eq!(
        noted.figures().queued,
        [30, 55, 5].map(millis),
        "from when it was added"
    );
    assert_eq!(
        (noted.figures().depth, noted.figures().worked.len()),
        (0, 3)
    );
    queue.done(&"a");
    assert_eq!(
        noted.figures().worked.len(),
        3,
        "it was not being processed"
    );
}

#[test]
fn q18_each_delay_is_a_retry_and_what_is_due_is_an_add() {
    let (queue, noted, clock) = queue();
    queue.add_after("a", millis(10));
    queue.add_after("a", millis(20));
    queue.add_after("b", Duration::ZERO);
    assert_eq!(
        (
            noted.figures().retries,
            noted.figures().adds,
            noted.figures().depth
        ),
        (3, 1, 1)
    );
    clock.advance(millis(10));
    assert_eq!(queue.len(), 2);
    assert_eq!(
        (
            noted.figures().retries,
            noted.figures().adds,
            noted.figures().depth
        ),
        (3, 2, 2)
    );
    queue.shut_down();
    queue.add_after("c", millis(10));
    assert_eq!(noted.figures().retries, 3);
}

#[test]
fn q18_unfinished_work_is_measured_twice_a_second() {
    let (queue, noted, clock) = queue();
    assert!(clock.until_waits(1, PATIENCE));
    queue.add("a");
    let a = queue.take();
    clock.advance(millis(400));
    queue.add("b");
    let b = queue.take();
    assert_eq!(noted.figures().refreshed, 0);
    clock.advance(millis(100));
    assert!(clock.until_waits(2, PATIENCE));
    let figures = noted.figures();
    assert_eq!(
        (figures.unfinished, figures.longest, figures.refreshed),
        (millis(600), millis(500), 1)
    );
    drop(a);
    clock.advance(millis(500));
    assert!(clock.until_waits(3, PATIENCE));
    assert_eq!(
        (noted.figures().unfinished, noted.figures().longest),
        (millis(600), millis(600))
    );
    drop(b);
    clock.advance(millis(500));
    assert!(clock.until_waits(4, PATIENCE));
    assert_eq!(
        (noted.figures().unfinished, noted.figures().longest),
        (Duration::ZERO, Duration::ZERO)
    );
    queue.shut_down();
    let refreshed = noted.figures().refreshed;
    clock.advance(millis(500));
    assert_eq!(
        (noted.figures().refreshed, clock.waits()),
        (refreshed, vec![millis(500); 4])
    );
}

#[test]
fn q18_a_queue_that_nobody_measures_asks_no_clock() {
    struct NoClock;
    impl k8s_informer::time::Clock for NoClock {
        fn now(&self) -> std::time::Instant {
            panic!("nobody wants to know")
        }
        fn wait(&self, _: Duration, _: &k8s_informer::Stop) -> bool {
            panic!("there is nothing to wait for")
        }
    }
    let queue = WorkQueue::builder()
        .clock(Arc::new(NoClock))
        .build()
        .unwrap();
    queue.add("a");
    drop(queue.take());
    queue.shut_down();
    assert_eq!(queue.get(), None);
}

#[test]
fn metrics_that_panic_or_hold_the_queue_hurt_nobody() {
    #[derive(Default)]
    struct Broken(Mutex<Option<Arc<WorkQueue<&'static str>>>>);
    impl WorkQueueMetrics for Broken {
        fn depth(&self, _: usize) {
            panic!("depth")
        }
        fn added(&self) {
            panic!("added")
        }
        fn unfinished_work(&self, _: Duration) {
            // Drops the last reference to the queue on the queue's own thread.
            drop(self.0.lock().unwrap().take());
        }
    }
    in_time(|| {
        let (broken, clock) = (Arc::new(Broken::default()), FakeClock::new());
        let builder = WorkQueue::builder()
            .clock(Arc::new(clock.clone()))
            .metrics(broken.clone());
        let queue = Arc::new(builder.build().unwrap());
        queue.add("a");
        drop(queue.take());
        assert!(clock.until_waits(1, PATIENCE));
        *broken.0.lock().unwrap() = Some(queue);
        clock.advance(millis(500));
        while Arc::strong_count(&broken) > 1 {
            std::thread::yield_now();
        }
    });
}
