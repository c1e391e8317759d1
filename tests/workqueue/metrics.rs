use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

use k8s_informer::error::ShutdownError;
use k8s_informer::workqueue::{
    AddOptions, AnyWorkQueue, DelayingQueue, WorkQueue, WorkQueueMetrics,
    default_controller_rate_limiter,
};
use k8s_informer_testing::FakeClock;

use super::support::*;

#[derive(Default)]
struct RecordedMetrics(Mutex<Figures>);

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

impl RecordedMetrics {
    fn record(&self, record: impl FnOnce(&mut Figures)) {
        record(&mut self.0.lock().unwrap());
    }

    fn figures(&self) -> Figures {
        self.0.lock().unwrap().clone()
    }
}

impl WorkQueueMetrics for RecordedMetrics {
    fn depth(&self, items: usize) {
        self.record(|figures| figures.depth = items);
    }
    fn added(&self) {
        self.record(|figures| figures.adds += 1);
    }
    fn queue_duration(&self, waited: Duration) {
        self.record(|figures| figures.queued.push(waited));
    }
    fn work_duration(&self, worked: Duration) {
        self.record(|figures| figures.worked.push(worked));
    }
    fn unfinished_work(&self, total: Duration) {
        self.record(|figures| figures.unfinished = total);
    }
    fn longest_running_processor(&self, longest: Duration) {
        self.record(|figures| {
            figures.longest = longest;
            figures.refreshed += 1;
        });
    }
    fn retried(&self) {
        self.record(|figures| figures.retries += 1);
    }
}

fn queue() -> (DelayingQueue<&'static str>, Arc<RecordedMetrics>, FakeClock) {
    let (recorded, clock) = (Arc::new(RecordedMetrics::default()), FakeClock::new());
    let builder = WorkQueue::builder()
        .name("pods")
        .clock(Arc::new(clock.clone()))
        .metrics(recorded.clone());
    (builder.build_delaying().unwrap(), recorded, clock)
}

#[test]
fn priority_queue_counts_items_when_they_become_ready() {
    let (recorded, clock) = (Arc::new(RecordedMetrics::default()), FakeClock::new());
    let queue = WorkQueue::builder()
        .clock(Arc::new(clock.clone()))
        .metrics(recorded.clone())
        .build_priority(default_controller_rate_limiter())
        .unwrap();
    let figures = || {
        let figures = recorded.figures();
        (figures.depth, figures.adds, figures.retries)
    };
    let low = AddOptions::new().priority(-100);
    queue.add_with("a", low);
    queue.add_with("a", low.after(millis(5)));
    queue.add_with("b", AddOptions::new().after(millis(5)));
    assert_eq!(figures(), (1, 1, 2));
    clock.advance(millis(5));
    assert_eq!(queue.len(), 2);
    assert_eq!(figures(), (2, 2, 2));
    clock.advance(millis(5));
    assert_eq!(queue.get_with_priority(), Some(("b", 0)));
    assert_eq!(figures(), (1, 2, 2));
    assert_eq!(recorded.figures().queued, [millis(5)]);
}

#[test]
fn q18_metrics_report_depth_adds_and_durations() {
    let (queue, recorded, clock) = queue();
    queue.add("a");
    queue.add("b");
    clock.advance(millis(30));
    queue.add("a");
    assert_eq!(
        (recorded.figures().depth, recorded.figures().adds),
        (2, 2),
        "a is already queued"
    );
    let item = queue.take().unwrap();
    assert_eq!(
        (recorded.figures().depth, recorded.figures().queued),
        (1, vec![millis(30)])
    );
    clock.advance(millis(20));
    queue.add("a");
    queue.add("a");
    assert_eq!(
        (recorded.figures().depth, recorded.figures().adds),
        (2, 3),
        "a will be queued again"
    );
    clock.advance(millis(5));
    drop(item);
    assert_eq!(
        (recorded.figures().depth, recorded.figures().worked),
        (2, vec![millis(25)])
    );
    drop(queue.take());
    drop(queue.take());
    assert_eq!(
        recorded.figures().queued,
        [30, 55, 5].map(millis),
        "durations start at the add"
    );
    assert_eq!(
        (recorded.figures().depth, recorded.figures().worked.len()),
        (0, 3)
    );
    queue.done(&"a");
    assert_eq!(
        recorded.figures().worked.len(),
        3,
        "a was not being processed"
    );
}

#[test]
fn q18_delayed_adds_count_as_retries_and_due_items_as_adds() {
    let (queue, recorded, clock) = queue();
    queue.add_after("a", millis(10));
    queue.add_after("a", millis(20));
    queue.add_after("b", Duration::ZERO);
    assert_eq!(
        (
            recorded.figures().retries,
            recorded.figures().adds,
            recorded.figures().depth
        ),
        (3, 1, 1)
    );
    clock.advance(millis(10));
    assert_eq!(queue.len(), 2);
    assert_eq!(
        (
            recorded.figures().retries,
            recorded.figures().adds,
            recorded.figures().depth
        ),
        (3, 2, 2)
    );
    queue.stop();
    queue.add_after("c", millis(10));
    assert_eq!(recorded.figures().retries, 3);
}

#[test]
fn q18_unfinished_work_is_measured_twice_a_second() {
    let (queue, recorded, clock) = queue();
    clock.wait_for_waits(1, TIMEOUT).unwrap();
    queue.add("a");
    let a = queue.take();
    clock.advance(millis(400));
    queue.add("b");
    let b = queue.take();
    assert_eq!(recorded.figures().refreshed, 0);
    clock.advance(millis(100));
    clock.wait_for_waits(2, TIMEOUT).unwrap();
    let figures = recorded.figures();
    assert_eq!(
        (figures.unfinished, figures.longest, figures.refreshed),
        (millis(600), millis(500), 1)
    );
    drop(a);
    clock.advance(millis(500));
    clock.wait_for_waits(3, TIMEOUT).unwrap();
    assert_eq!(
        (recorded.figures().unfinished, recorded.figures().longest),
        (millis(600), millis(600))
    );
    drop(b);
    clock.advance(millis(500));
    clock.wait_for_waits(4, TIMEOUT).unwrap();
    assert_eq!(
        (recorded.figures().unfinished, recorded.figures().longest),
        (Duration::ZERO, Duration::ZERO)
    );
    queue.stop();
    let refreshed = recorded.figures().refreshed;
    clock.advance(millis(500));
    assert_eq!(
        (recorded.figures().refreshed, clock.waits()),
        (refreshed, vec![millis(500); 4])
    );
}

#[test]
fn q18_queue_without_metrics_does_not_use_the_clock() {
    struct NoClock;
    impl k8s_informer::time::Clock for NoClock {
        fn now(&self) -> std::time::Instant {
            panic!("the clock must not be read")
        }
        fn wait(&self, _: Duration, _: &k8s_informer::Stop) -> bool {
            panic!("the clock must not wait")
        }
    }
    let queue = WorkQueue::builder()
        .clock(Arc::new(NoClock))
        .build()
        .unwrap();
    queue.add("a");
    drop(queue.take());
    queue.stop();
    assert_eq!(queue.get(), None);
}

/// Blocks the thread of the queue, and then shuts the queue down on it.
struct Blocking {
    begun: mpsc::Sender<()>,
    finish: Mutex<mpsc::Receiver<()>>,
    queue: Mutex<Weak<WorkQueue<&'static str>>>,
    response: mpsc::Sender<Result<(), ShutdownError>>,
}

impl WorkQueueMetrics for Blocking {
    fn unfinished_work(&self, _: Duration) {
        self.begun.send(()).unwrap();
        let _ = self.finish.lock().unwrap().recv();
        if let Some(queue) = self.queue.lock().unwrap().upgrade() {
            self.response.send(queue.shut_down(None)).unwrap();
        }
    }
}

#[test]
fn q6_shut_down_joins_the_thread_and_stop_does_not() {
    with_timeout(|| {
        let (begun, begins) = mpsc::channel();
        let (finished, finish) = mpsc::channel();
        let (response, responses) = mpsc::channel();
        let metrics = Arc::new(Blocking {
            begun,
            finish: Mutex::new(finish),
            queue: Mutex::default(),
            response,
        });
        let clock = FakeClock::new();
        let builder = WorkQueue::builder().name("pods").metrics(metrics.clone());
        let queue = builder.clock(Arc::new(clock.clone())).build().unwrap();
        let queue = Arc::new(queue);
        *metrics.queue.lock().unwrap() = Arc::downgrade(&queue);
        clock.wait_for_waits(1, TIMEOUT).unwrap();
        clock.advance(millis(500));
        begins.recv().unwrap();

        // The thread is in user code, so a shutdown from elsewhere times out.
        let timed_out = ShutdownError::TimedOut {
            after: millis(1),
            stuck: vec!["pods timer".to_owned()],
        };
        assert_eq!(queue.shut_down(millis(1)), Err(timed_out));
        assert!(queue.is_stopped());
        queue.stop();
        finished.send(()).unwrap();
        assert_eq!(responses.recv().unwrap(), Err(ShutdownError::FromWithin));
        assert_eq!(queue.shut_down(None), Ok(()));
    });
}

#[test]
fn metrics_may_panic_or_drop_the_queue() {
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
    with_timeout(|| {
        let (broken, clock) = (Arc::new(Broken::default()), FakeClock::new());
        let builder = WorkQueue::builder()
            .clock(Arc::new(clock.clone()))
            .metrics(broken.clone());
        let queue = Arc::new(builder.build().unwrap());
        queue.add("a");
        drop(queue.take());
        clock.wait_for_waits(1, TIMEOUT).unwrap();
        *broken.0.lock().unwrap() = Some(queue);
        clock.advance(millis(500));
        while Arc::strong_count(&broken) > 1 {
            std::thread::yield_now();
        }
    });
}
