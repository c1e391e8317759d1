//! The metrics and logs of a queue: depth, latency and slow processing.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::metrics::InformerMetrics;
use k8s_informer::queue::{DeltaFifo, DeltaFifoOptions, Deltas, Queue, RealFifo, RealFifoOptions};
use k8s_informer::store::ReflectorStore;
use k8s_informer::time::Clock;
use k8s_informer_testing::FakeClock;

use super::things::*;
use crate::log_capture::{self, LOGGER_PANICS};

#[derive(Default)]
struct RecordedMetrics {
    levels: Mutex<Vec<usize>>,
    latencies: Mutex<Vec<u64>>,
}

impl InformerMetrics for RecordedMetrics {
    fn queued_items(&self, items: usize) {
        self.levels.lock().unwrap().push(items);
        assert!(items < 5, "the metrics panic on purpose");
    }

    fn processing_latency(&self, latency: Duration) {
        self.latencies
            .lock()
            .unwrap()
            .push(latency.as_millis() as u64);
    }
}

/// A queue of each type, with the name in its log lines.
fn queues(
    name: &str,
    recorded: Option<&Arc<RecordedMetrics>>,
    clock: &FakeClock,
) -> Vec<(String, Arc<dyn Queue<Thing>>)> {
    let names = [format!("delta {name}"), format!("real {name}")];
    let clock = || Arc::new(clock.clone());
    let mut delta = DeltaFifoOptions::new()
        .name(names[0].as_str())
        .clock(clock());
    let mut real = RealFifoOptions::new()
        .name(names[1].as_str())
        .clock(clock());
    if let Some(recorded) = recorded {
        delta = delta.metrics(recorded.clone());
        real = real.metrics(recorded.clone());
    }
    let queues: [Arc<dyn Queue<Thing>>; 2] = [
        Arc::new(DeltaFifo::with_options(accessor(), delta)),
        Arc::new(RealFifo::with_options(accessor(), real)),
    ];
    names.into_iter().zip(queues).collect()
}

#[test]
fn r22_metrics_report_depth_and_latency() {
    let clock = FakeClock::new();
    for at in 0..2 {
        let recorded = Arc::new(RecordedMetrics::default());
        let (name, queue) = queues("r22", Some(&recorded), &clock).swap_remove(at);
        let level = || *recorded.levels.lock().unwrap().last().unwrap();
        queue.add(thing("a", 1)).unwrap();
        queue.add(thing("b", 1)).unwrap();
        assert_eq!(level(), 2, "{name}");
        queue
            .pop(&mut |_, _| {
                assert_eq!(level(), 1, "{name}: the item in process must not count");
                clock.advance(Duration::from_millis(30));
                Ok(())
            })
            .unwrap();
        let failed = queue.pop(&mut |_, _| Err("no".into()));
        assert!(failed.is_err());
        assert_eq!(
            (level(), recorded.latencies.lock().unwrap().clone()),
            (0, vec![30, 0]),
            "{name}"
        );
        queue.bookmark(Some(version("7"))).unwrap();
        assert_eq!(level(), 0, "{name}: r11, a bookmark is not an item");
        for key in ["a", "b", "c", "d", "e", "f"] {
            queue.add(thing(key, 1)).unwrap();
        }
        assert!(level() >= 6, "{name}");
    }
}

/// A resync changes the depth without a write or a pop.
#[test]
fn r22_resync_reports_the_depth() {
    let recorded = Arc::new(RecordedMetrics::default());
    let level = || recorded.levels.lock().unwrap().last().copied();
    let queue =
        RealFifo::with_options(accessor(), RealFifoOptions::new().metrics(recorded.clone()));
    queue.resync().unwrap();
    assert_eq!(level(), Some(1));
}

#[test]
fn d14_r23_slow_processing_is_logged_if_many_items_wait() {
    log_capture::start();
    let clock = FakeClock::new();
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    for (name, queue) in queues("d14", None, &clock) {
        let pop = |millis| {
            let before = lines_about(&name);
            queue
                .pop(&mut |_, _| {
                    clock.advance(Duration::from_millis(millis));
                    Ok(())
                })
                .unwrap();
            lines_about(&name) - before
        };
        keys.iter()
            .for_each(|key| queue.add(thing(key, 1)).unwrap());
        assert_eq!(pop(101), 1, "{name}: eleven items wait");
        assert_eq!(pop(101), 0, "{name}: ten items wait");
        ["x", "y"]
            .iter()
            .for_each(|key| queue.add(thing(key, 1)).unwrap());
        assert_eq!(pop(100), 0, "{name}: 100 ms is not slow");
    }
    let (name, queue) = queues("batch", None, &clock).swap_remove(1);
    keys.iter()
        .for_each(|key| queue.add(thing(key, 1)).unwrap());
    keys.iter()
        .for_each(|key| queue.add(thing(key, 2)).unwrap());
    let mut slow = |_: &[_], _| {
        clock.advance(Duration::from_millis(1001));
        Ok(())
    };
    queue.pop_batch(&mut slow, &mut |_, _| Ok(())).unwrap();
    assert_eq!(lines_about(&name), 1);
}

/// A logger may panic, for example one that prints when its output is closed. A clock is user code
/// and may also panic.
#[test]
fn panicking_logger_or_clock_leaves_queue_working() {
    struct Broken;

    impl Clock for Broken {
        fn now(&self) -> Instant {
            panic!("the clock")
        }
        fn wait(&self, _: Duration, _: &Stop) -> bool {
            true
        }
    }

    log_capture::start();
    with_timeout(|| {
        let slow = FakeClock::new();
        let clocks: [Arc<dyn Clock>; 2] = [Arc::new(Broken), Arc::new(slow.clone())];
        for clock in clocks {
            let delta = DeltaFifoOptions::new()
                .name(LOGGER_PANICS)
                .clock(Arc::clone(&clock));
            let real = RealFifoOptions::new().name(LOGGER_PANICS).clock(clock);
            let queues: [Arc<dyn Queue<Thing>>; 2] = [
                Arc::new(DeltaFifo::with_options(accessor(), delta)),
                Arc::new(RealFifo::with_options(accessor(), real)),
            ];
            for queue in queues {
                let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
                keys.iter()
                    .for_each(|key| queue.add(thing(key, 1)).unwrap());
                let mut process = |_: &Deltas<Thing>, _| {
                    slow.advance(Duration::from_secs(1));
                    Ok(())
                };
                queue.pop(&mut process).unwrap();
                queue.pop(&mut process).unwrap();
            }
        }
    });
}

/// Returns the number of log lines that contain `name`.
fn lines_about(name: &str) -> usize {
    log_capture::lines_with(&[name]).len()
}
