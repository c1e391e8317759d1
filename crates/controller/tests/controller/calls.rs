//! The outcome of calls: retries, delays, panics and limits.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_informer::metrics::MetricsProvider;
use k8s_informer_controller::metrics::{
    ControllerMetrics, ControllerMetricsProvider, ReconcileResult,
};
use k8s_informer_testing::ControllerTest;
use parking_lot::Mutex;

use super::*;
use crate::log_capture::{self, LOGGER_PANICS};

/// Runs a controller of ConfigMaps, one of which exists: `a`.
fn start(
    cluster: &Cluster,
    name: &str,
    options: impl FnOnce(ControllerBuilder<ConfigMap>) -> ControllerBuilder<ConfigMap>,
) -> (Running<ConfigMap>, Calls) {
    log_capture::start();
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered();
    let controller = options(cluster.controller(name)).by(reconcile).unwrap();
    (Running::new(controller), calls)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn each_object_is_reconciled_after_the_sync() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "b");
    let (running, calls) = start(&cluster, "each", |builder| builder);
    let mut keys = [(); 2].map(|()| {
        let call = calls.next();
        assert_eq!(call.attempt, 1);
        let key = call.key.clone();
        call.done();
        key
    });
    keys.sort();
    assert_eq!(keys, ["default/a", "default/b"]);
    running.until_idle();
    calls.assert_none();
    running.end(calls);
}

#[test]
fn failed_key_is_retried_with_growing_delays() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "retries", |builder| builder);
    calls.next().fail("no 1");
    for (attempt, delay) in [(2, 5), (3, 10), (4, 20)] {
        running.until_delayed();
        cluster.advance(&running, millis(delay - 1));
        running.until_delayed();
        calls.assert_none();
        cluster.advance(&running, millis(1));
        let call = calls.next();
        assert_eq!(call.attempt, attempt);
        call.fail(&format!("no {attempt}"));
    }
    running.until_delayed();
    for (level, attempt) in [("WARN", 1), ("DEBUG", 4)] {
        let line = log_capture::wait_for(&["retries", &format!("no {attempt}")]);
        assert_eq!(
            line,
            format!(
                r#"{level} controller "retries", key "default/a", attempt {attempt}: no {attempt}; it will be retried"#
            )
        );
    }
    cluster.advance(&running, millis(40));
    calls.next().done();
    running.until_idle();
    cluster.touch(MAPS, "a", "1");
    let call = calls.next();
    assert_eq!(call.attempt, 1);
    call.fail("again");
    running.until_delayed();
    cluster.advance(&running, millis(5));
    assert_eq!(calls.next().attempt, 2);
    running.end(calls);
}

#[test]
fn failures_of_a_key_do_not_delay_other_keys() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "other keys", |builder| builder);
    calls.next().fail("no");
    running.until_delayed();
    cluster.create(MAPS, "b");
    let call = calls.next().is("default/b");
    assert_eq!(call.attempt, 1);
    call.done();
    running.until_delayed();
    running.end(calls);
}

#[test]
fn next_after_calls_again_at_that_time() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "after", |builder| builder);
    calls.next().answer(Ok(Next::After(30 * SECOND)));
    running.until_delayed();
    cluster.advance(&running, 29 * SECOND);
    running.until_delayed();
    calls.assert_none();
    cluster.advance(&running, SECOND);
    let call = calls.next();
    assert_eq!(call.attempt, 1);
    // Durations without a meaning are not an error.
    call.answer(Ok(Next::After(Duration::ZERO)));
    calls.next().answer(Ok(Next::After(Duration::MAX)));
    running.until_delayed();
    running.end(calls);
}

#[test]
fn change_takes_the_place_of_next_after() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "change", |builder| builder);
    calls.next().answer(Ok(Next::After(30 * SECOND)));
    running.until_delayed();
    cluster.touch(MAPS, "a", "1");
    calls.next().done();
    running.until_idle();
    cluster.advance(&running, 30 * SECOND);
    running.until_idle();
    calls.assert_none();
    running.end(calls);
}

#[test]
fn terminal_failure_waits_for_the_next_change() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "terminal", |builder| builder);
    calls.next().answer(Err(Failure::terminal("never")));
    running.until_idle();
    let last = running.controller.last_failure("default/a").unwrap();
    assert!(last.failure.is_terminal());
    log_capture::wait_for(&["ERROR", "terminal", "attempt 1: never; it is not retried"]);
    cluster.touch(MAPS, "a", "1");
    calls.next().done();
    running.until_idle();
    assert!(running.controller.last_failure("default/a").is_none());
    running.end(calls);
}

#[test]
fn last_failure_is_readable_until_a_success() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "last", |builder| builder);
    calls.next().fail("one");
    running.until_delayed();
    cluster.advance(&running, SECOND);
    calls.next().fail("two");
    running.until_delayed();
    let last = running.controller.last_failure("default/a").unwrap();
    assert_eq!((last.failure.to_string(), last.attempts), ("two".into(), 2));
    assert_eq!(running.controller.status().failing, 1);
    let failures = running.controller.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(&*failures[0].0, "default/a");
    cluster.advance(&running, SECOND);
    calls.next().done();
    running.until_idle();
    assert!(running.controller.last_failure("default/a").is_none());
    assert_eq!(running.controller.status().failing, 0);
    running.end(calls);
}

#[test]
fn last_failure_of_a_deleted_object_is_removed() {
    let cluster = Cluster::new();
    let (gone, keys) = unbounded();
    let (running, calls) = start(&cluster, "forgotten", |builder| {
        builder.on_gone(move |key| gone.send(Key::clone(key)).unwrap())
    });
    calls.next().answer(Err(Failure::terminal("no")));
    running.until("a key fails", |status| status.failing == 1);
    cluster.server.delete(&format!("{MAPS}/a")).unwrap();
    assert_eq!(&*keys.recv_timeout(LIMIT).unwrap(), "default/a");
    running.until("no key fails", |status| status.failing == 0);
    calls.assert_none();
    running.end(calls);
}

#[test]
fn key_has_one_call_at_a_time() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "exclusive", |builder| builder.workers(3));
    let a = calls.next().is("default/a");
    cluster.create(MAPS, "b");
    let b = calls.next().is("default/b");
    for key in ["default/a", "default/b", "default/a"] {
        running.enqueue(key);
    }
    cluster.create(MAPS, "c");
    let c = calls.next().is("default/c");
    let mut keys: Vec<_> = running.controller.status().running;
    keys.sort();
    let keys: Vec<_> = keys.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["default/a", "default/b", "default/c"]);
    a.done();
    calls.next().is("default/a").done();
    b.done();
    calls.next().is("default/b").done();
    c.done();
    running.until_idle();
    calls.assert_none();
    running.end(calls);
}

#[test]
fn enqueued_keys_are_called() {
    let cluster = Cluster::new();
    let (gone, keys) = unbounded();
    let (running, calls) = start(&cluster, "handle", |builder| {
        builder.on_gone(move |key| gone.send(Key::clone(key)).unwrap())
    });
    calls.next().done();
    running.until_idle();
    // A key without an object, for work that belongs to none (WR10).
    running.enqueue("_all_");
    assert_eq!(&*keys.recv_timeout(LIMIT).unwrap(), "_all_");
    running.enqueue("default/a");
    calls.next().done();
    running.controller.enqueue_after("default/a", 5 * SECOND);
    running.until_delayed();
    cluster.advance(&running, 5 * SECOND);
    calls.next().done();
    running.end(calls);
}

#[test]
fn panic_costs_one_call() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "panics", |builder| builder);
    calls.next().run(|_| panic!("boom"));
    running.until_delayed();
    let last = running.controller.last_failure("default/a").unwrap();
    assert_eq!(
        last.failure.to_string(),
        "the reconcile function panicked: boom"
    );
    cluster.advance(&running, SECOND);
    let call = calls.next();
    assert_eq!(call.attempt, 2);
    call.done();
    running.until_idle();
    running.end(calls);
}

/// An error whose message panics, on the worker's thread.
#[derive(Debug)]
struct Hostile;

impl fmt::Display for Hostile {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("the message panics")
    }
}

impl std::error::Error for Hostile {}

#[test]
fn panics_outside_the_call_do_not_end_the_worker() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "outside", |builder| builder);
    calls.next().answer(Err(Hostile.into()));
    running.until_delayed();
    log_capture::wait_for(&["ERROR", "outside", "default/a", "the message panics"]);
    cluster.advance(&running, SECOND);
    calls.next().fail(LOGGER_PANICS);
    running.until_delayed();
    cluster.advance(&running, SECOND);
    calls.next().done();
    running.until_idle();
    running.end(calls);
}

#[test]
fn time_limit_ends_the_call_and_is_reported_at_once() {
    let cluster = Cluster::new();
    let metrics = Metrics::default();
    let (running, calls) = start(&cluster, "limited", |builder| {
        builder
            .time_limit(30 * SECOND)
            .metrics(Arc::new(metrics.clone()))
    });
    let call = calls.next();
    cluster.wait_for_waits(30 * SECOND, 1);
    cluster.advance(&running, 29 * SECOND);
    assert!(!call.stop.is_stopped());
    cluster.advance(&running, SECOND);
    assert!(call.stop.wait_timeout(LIMIT));
    let line = log_capture::wait_for(&["limited", "time limit"]);
    assert_eq!(
        line,
        r#"WARN controller "limited", key "default/a", attempt 1: the call exceeds its time limit of 30s"#
    );
    until("the metrics have the excess", || {
        metrics.0.timed_out.load(Ordering::Relaxed) == 1
    });
    assert_eq!(running.controller.status().running.len(), 1);
    call.done();
    running.until_idle();
    // The limit of the first call does not concern the next one.
    running.enqueue("default/a");
    let call = calls.next();
    cluster.advance(&running, 29 * SECOND);
    assert!(!call.stop.is_stopped());
    call.done();
    running.end(calls);
    assert_eq!(metrics.0.timed_out.load(Ordering::Relaxed), 1);
}

/// Metrics that panic at each result.
#[derive(Clone, Default)]
struct Metrics(Arc<Counts>);

#[derive(Default)]
struct Counts {
    timed_out: AtomicUsize,
    panicked: AtomicUsize,
    active: Mutex<Vec<usize>>,
    results: Mutex<Vec<ReconcileResult>>,
}

impl ControllerMetrics for Counts {
    fn reconciled(&self, result: ReconcileResult, _: Duration) {
        self.results.lock().push(result);
        panic!("metrics failure");
    }

    fn panicked(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }

    fn timed_out(&self) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }

    fn active_workers(&self, workers: usize) {
        self.active.lock().push(workers);
    }
}

impl MetricsProvider for Metrics {}

impl ControllerMetricsProvider for Metrics {
    fn controller_metrics(&self, _: &str) -> Option<Arc<dyn ControllerMetrics>> {
        Some(Arc::clone(&self.0) as Arc<dyn ControllerMetrics>)
    }
}

#[test]
fn metrics_have_each_result_and_may_panic() {
    let cluster = Cluster::new();
    let metrics = Metrics::default();
    let (running, calls) = start(&cluster, "counted", |builder| {
        builder.metrics(Arc::new(metrics.clone()))
    });
    calls.next().fail("no");
    running.until_delayed();
    cluster.advance(&running, SECOND);
    calls.next().run(|_| panic!("boom"));
    running.until_delayed();
    cluster.advance(&running, SECOND);
    calls.next().answer(Err(Failure::terminal("never")));
    running.until_idle();
    running.enqueue("default/a");
    calls.next().answer(Ok(Next::After(SECOND)));
    running.until_delayed();
    cluster.advance(&running, SECOND);
    calls.next().done();
    running.until_idle();
    running.end(calls);
    use ReconcileResult::{Error, RequeueAfter, Success, TerminalError};
    let results = metrics.0.results.lock().clone();
    assert_eq!(
        results,
        [Error, Error, TerminalError, RequeueAfter, Success]
    );
    assert_eq!(metrics.0.panicked.load(Ordering::Relaxed), 1);
    assert_eq!(*metrics.0.active.lock(), [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
}

/// The lines of a level that contain `part`, without the level.
fn logged(level: &str, part: &str) -> Vec<String> {
    let level = format!("{level} ");
    let lines = log_capture::lines_with(&[part]);
    let lines = lines.iter().filter_map(|line| line.strip_prefix(&level));
    lines.map(str::to_owned).collect()
}

/// Runs a controller of this number of ConfigMaps whose calls fail for a time. `name` is part of
/// their keys and of the error.
fn outage(name: &'static str, maps: usize, duration: Duration) -> ControllerTest<ConfigMap> {
    log_capture::start();
    let began = Arc::new(OnceLock::new());
    let mut test = ControllerTest::new(Source::of::<ConfigMap>(), move |builder| {
        let began = Arc::clone(&began);
        builder.by(move |cx, _| {
            let now = cx.clock().now();
            match now.duration_since(*began.get_or_init(|| now)) < duration {
                true => Err(Failure::new(format!("{name} is down"))),
                false => Ok(Next::Done),
            }
        })
    })
    .unwrap();
    for map in 0..maps {
        let map = json!({"metadata": {"name": format!("{name}-{map:03}")}});
        test.server().create(MAPS, map).unwrap();
    }
    test.run_until_idle().unwrap();
    test
}

#[test]
fn outage_of_2_seconds_logs_each_key_once() {
    let test = outage("bucket", 24, 2 * SECOND);
    let warnings = logged("WARN", "bucket is down");
    assert_eq!(warnings.len(), 24, "{warnings:#?}");
    assert!(warnings.contains(
        &r#"controller "configmaps", key "default/bucket-007", attempt 1: bucket is down; it will be retried"#
            .to_owned()
    ));
    assert!(logged("DEBUG", "bucket is down").len() > 100);
    let recoveries = logged("INFO", "default/bucket-");
    assert_eq!(recoveries.len(), 24, "{recoveries:#?}");
    assert!(recoveries.contains(
        &r#"controller "configmaps", key "default/bucket-007", attempt 10: recovered (failed calls: 9)"#
            .to_owned()
    ));
    assert_eq!(test.calls("default/bucket-007"), 10);
}

#[test]
fn failures_of_a_key_are_logged_at_growing_intervals() {
    drop(outage("database", 1, 2500 * SECOND));
    let attempt = |line: &String| {
        let (_, rest) = line.split_once("attempt ").unwrap();
        rest.split_once(':').unwrap().0.parse::<usize>().unwrap()
    };
    let warnings = logged("WARN", "database is down");
    let attempts: Vec<_> = warnings.iter().map(attempt).collect();
    // The attempts begin after 0, 82, 328, 655, 1311 and 2311 seconds.
    assert_eq!(attempts, [1, 15, 17, 18, 19, 20]);
    let recovered = logged("INFO", "default/database-000");
    assert_eq!(
        recovered,
        [
            r#"controller "configmaps", key "default/database-000", attempt 21: recovered (failed calls: 20)"#
        ]
    );
}

#[test]
fn many_failing_keys_are_limited_to_32_lines() {
    let _test = outage("cloud", 100, SECOND);
    let warnings = logged("WARN", "cloud is down");
    assert_eq!(warnings.len(), 32, "{warnings:#?}");
    let note = "; for up to 10 minutes, further failures of this controller are at level debug";
    let noted = |line: &&String| line.ends_with(note);
    assert_eq!(warnings.iter().filter(noted).count(), 1, "{warnings:#?}");
    assert!(warnings[31].ends_with(note), "{warnings:#?}");
    assert_eq!(logged("INFO", "default/cloud-").len(), 32);
    // 68 keys with 8 failed calls each.
    let recovered = logged(
        "INFO",
        "no key fails any more (failures at level debug: 544)",
    );
    assert_eq!(recovered.len(), 1, "{recovered:#?}");
}

#[test]
fn later_line_has_the_number_of_hidden_failures() {
    log_capture::start();
    let counts = Arc::new(Mutex::new(HashMap::<Key, usize>::new()));
    let mut test = ControllerTest::new(Source::of::<ConfigMap>(), move |builder| {
        let counts = Arc::clone(&counts);
        builder.by(move |cx, _| {
            let mut counts = counts.lock();
            let count = counts.entry(Key::clone(cx.key())).or_default();
            *count += 1;
            match *count {
                3 => Ok(Next::After(100 * SECOND)),
                6 => Ok(Next::After(600 * SECOND)),
                8 => Ok(Next::Done),
                _ => Err(Failure::new("the queue is down")),
            }
        })
    })
    .unwrap();
    for map in 0..33 {
        let map = json!({"metadata": {"name": format!("queue-{map}")}});
        test.server().create(MAPS, map).unwrap();
    }
    test.run_until_idle().unwrap();
    let lines = || logged("WARN", "the queue is down");
    assert_eq!(lines().len(), 32);
    // The period of ten minutes has no more lines.
    test.advance(101 * SECOND).unwrap();
    assert_eq!(lines().len(), 32);
    test.advance(601 * SECOND).unwrap();
    assert_eq!(lines().len(), 64);
    // 33 keys with 2 failed calls each. The first outage was reported with its recovery.
    assert!(
        lines()[32].ends_with("; earlier failures at level debug: 66"),
        "{:#?}",
        lines()
    );
    assert_eq!(
        logged("INFO", "no key fails any more (failures at level debug: 2)").len(),
        1
    );
}

#[test]
fn time_limit_is_logged_at_growing_intervals() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "slow", |builder| builder.time_limit(30 * SECOND));
    let mut call = calls.next();
    for attempt in 1..=4 {
        cluster.wait_for_waits(30 * SECOND, attempt);
        cluster.advance(&running, 30 * SECOND);
        assert!(call.stop.wait_timeout(LIMIT));
        log_capture::wait_for(&["\"slow\"", &format!("attempt {attempt}: the call exceeds")]);
        call.fail("stopped");
        running.until_delayed();
        cluster.advance(&running, SECOND);
        call = calls.next();
    }
    call.done();
    running.end(calls);
    // After 30, 61, 92 and 123 seconds.
    let attempts =
        [1, 3].map(|attempt| format!("controller \"slow\", key \"default/a\", attempt {attempt}"));
    let warnings = |part| {
        logged("WARN", part)
            .into_iter()
            .filter(|line| line.contains("\"slow\""))
    };
    for (part, text) in [
        ("exceeds", "the call exceeds its time limit of 30s"),
        ("stopped", "stopped; it will be retried"),
    ] {
        let expected = attempts.iter().map(|call| format!("{call}: {text}"));
        assert!(
            warnings(part).eq(expected),
            "{:#?}",
            logged("WARN", "\"slow\"")
        );
    }
}

#[test]
fn blocked_stop_callback_does_not_stop_time_limits() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "b");
    let (running, calls) = start(&cluster, "blocked", |builder| {
        builder.time_limit(30 * SECOND).workers(2)
    });
    let [first, second] = [calls.next(), calls.next()];
    let blocked = BlockedCallback::new(&first.stop);
    cluster.wait_for_waits(30 * SECOND, 1);
    cluster.advance(&running, 30 * SECOND);
    assert!(blocked.is_running.wait_timeout(LIMIT));
    assert!(
        second.stop.wait_timeout(LIMIT),
        "the other call has not ended"
    );
    first.done();
    second.done();
    running.until_idle();
    // Time limits of later calls as well.
    running.enqueue("default/a");
    let third = calls.next();
    cluster.wait_for_waits(30 * SECOND, 2);
    cluster.advance(&running, 30 * SECOND);
    assert!(
        third.stop.wait_timeout(LIMIT),
        "the next call has not ended"
    );
    third.done();
    drop(blocked);
    running.end(calls);
}
