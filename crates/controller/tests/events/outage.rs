//! A server that hangs, fails, and recovers (ER6, EV1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_informer::Error;
use k8s_informer::error::{ShutdownError, Status, WaitCause};
use k8s_informer_controller::events::{EventRecorder, EventStats, EventType};
use k8s_informer_testing::FakeClock;
use serde_json::json;

use super::sink::{Reply, SOON, Sink, connection, pod, status};

const WARNING: EventType = EventType::Warning;

fn sum(stats: EventStats) -> u64 {
    stats.written + stats.merged + stats.dropped + stats.failed + stats.pending
}

#[test]
fn er6_counts_are_exact_after_a_hanging_server() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    let emit = |key: u32| {
        let name = format!("pod-{key}");
        let result = recorder.event(&pod(&name), WARNING, "Failed", name);
        result.unwrap();
    };
    sink.hang(true);
    let begin = Instant::now();
    emit(0);
    sink.until_requests(1);
    for number in 1..3000 {
        emit(number % 50);
    }
    assert!(begin.elapsed() < SOON, "the calls blocked");
    assert_eq!(recorder.stats().pending, 3000);
    sink.hang(false);
    recorder.flush(SOON).unwrap();
    let counts = sink.counts();
    assert_eq!(counts.len(), 50);
    assert!(counts.values().all(|count| *count == 60), "{counts:?}");
    let stats = recorder.stats();
    assert_eq!((stats.written + stats.merged, stats.pending), (3000, 0));
    // One request for each event, and another one for the event that hung.
    assert_eq!(sink.requests().len(), 51);
}

#[test]
fn ev1_distinct_events_add_up_when_the_queue_is_full() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    sink.hang(true);
    for number in 0..3000 {
        let name = format!("pod-{number}");
        recorder
            .event(&pod(&name), WARNING, "Failed", name)
            .unwrap();
    }
    let stats = recorder.stats();
    assert_eq!(
        (stats.recorded, stats.pending, stats.dropped),
        (3000, 1000, 2000)
    );
    sink.hang(false);
    recorder.flush(SOON).unwrap();
    let stats = recorder.stats();
    assert_eq!((sum(stats), stats.written, stats.pending), (3000, 1000, 0));
    assert_eq!(sink.events().len(), 1000);
    // The count of a dropped event goes on.
    recorder
        .event(&pod("pod-2999"), WARNING, "Failed", "pod-2999")
        .unwrap();
    recorder.flush(SOON).unwrap();
    assert_eq!(sink.counts()["pod-2999"], 2);
}

#[test]
fn sums_hold_while_callers_and_faults_interfere() {
    let sink = Sink::new();
    let recorder = sink
        .recorder()
        .queue_size(20)
        .cache_size(30)
        .build()
        .unwrap();
    sink.answer((0..40).map(|number| match number % 4 {
        0 => Reply::Fail(status(403, "Forbidden")),
        1 => Reply::Fail(status(422, "Invalid")),
        2 => Reply::Panic,
        _ => Reply::Fail(status(409, "AlreadyExists")),
    }));
    std::thread::scope(|scope| {
        for caller in 0..4_usize {
            let recorder = &recorder;
            scope.spawn(move || {
                for number in 0..1000 {
                    let name = format!("pod-{}", (number * 7 + caller) % 60);
                    recorder.event(&pod(&name), WARNING, "Failed", "n").unwrap();
                    let stats = recorder.stats();
                    assert_eq!(sum(stats), stats.recorded);
                }
            });
        }
    });
    recorder.flush(SOON).unwrap();
    let stats = recorder.stats();
    assert_eq!((stats.recorded, sum(stats), stats.pending), (4000, 4000, 0));
}

#[test]
fn ev15_shutdown_ends_in_time_if_the_server_hangs() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    sink.hang(true);
    for _ in 0..3 {
        recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    }
    let begin = Instant::now();
    let timeout = Duration::from_millis(50);
    let result = recorder.shut_down(timeout);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    let lost = ShutdownError::TimedOut {
        after: timeout,
        stuck: vec!["3 events unsent".to_owned()],
    };
    assert_eq!(result, Err(lost));
    let stats = recorder.stats();
    assert_eq!((stats.pending, sum(stats)), (3, 3));
}

/// Starts a recorder on a fake clock, whose only waits are pauses.
fn paused(answers: impl IntoIterator<Item = Reply>) -> (Arc<Sink>, FakeClock, EventRecorder) {
    let (sink, clock) = (Sink::new(), FakeClock::new());
    sink.answer(answers);
    let recorder = sink.recorder().clock(Arc::new(clock.clone()));
    (sink, clock, recorder.build().unwrap())
}

#[test]
fn er6_connection_errors_are_retried_with_back_off() {
    let failures = (0..20).map(|_| Reply::Fail(connection()));
    let (sink, clock, recorder) = paused(failures);
    recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    for number in 1..=20 {
        clock.wait_for_waits(number, SOON).unwrap();
        // New events do not shorten a pause.
        recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
        assert_eq!(sink.requests().len(), number);
        clock.advance(*clock.waits().last().unwrap());
    }
    recorder.flush(SOON).unwrap();
    assert_eq!(sink.counts()["n"], 21);
    let waits = clock.waits();
    assert!(waits[0] >= Duration::from_millis(500) && waits[0] <= Duration::from_millis(750));
    assert!(waits[10] >= Duration::from_secs(30) && waits[10] <= Duration::from_secs(45));
    assert_eq!((recorder.stats().written, recorder.stats().merged), (1, 20));
}

#[test]
fn er6_overload_is_retried_after_the_requested_time() {
    let json =
        json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 7}});
    let overload = Error::from_status(serde_json::from_value::<Status>(json).unwrap());
    let (sink, clock, recorder) = paused([Reply::Fail(overload)]);
    recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    clock.wait_for_waits(1, SOON).unwrap();
    assert_eq!(clock.waits(), [Duration::from_secs(7)]);
    assert!(recorder.last_error().unwrap().is_too_many_requests());
    clock.advance(Duration::from_secs(7));
    sink.until_requests(2);
    recorder.flush(SOON).unwrap();
    assert_eq!(sink.counts()["n"], 1);
}

#[test]
fn er6_internal_errors_end_after_twelve_tries() {
    let failures = (0..20).map(|_| Reply::Fail(status(500, "InternalError")));
    let (sink, clock, recorder) = paused(failures);
    recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    for number in 1..12 {
        clock.wait_for_waits(number, SOON).unwrap();
        clock.advance(Duration::from_secs(60));
    }
    recorder.flush(SOON).unwrap();
    assert_eq!((sink.requests().len(), recorder.stats().failed), (12, 1));
}

#[test]
fn flush_ends_a_pause_and_restarts_the_back_off() {
    let failures = (0..9).map(|_| Reply::Fail(connection()));
    let (sink, clock, recorder) = paused(failures);
    recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    for number in 1..=7 {
        clock.wait_for_waits(number, SOON).unwrap();
        clock.advance(Duration::from_secs(60));
    }
    clock.wait_for_waits(8, SOON).unwrap();
    // The ninth failure is that of the flush.
    let unwritten = recorder.flush(Duration::ZERO).unwrap_err();
    assert_eq!(unwritten.cause(), &WaitCause::TimedOut(Duration::ZERO));
    assert_eq!(unwritten.to_string(), "timed out after 0ns writing 1 event");
    clock.wait_for_waits(9, SOON).unwrap();
    let waits = clock.waits();
    assert!(waits[7] >= Duration::from_secs(30), "{waits:?}");
    assert!(waits[8] < Duration::from_secs(1), "{waits:?}");
    recorder.flush(SOON).unwrap();
    assert_eq!(sink.requests().len(), 10);
}

#[test]
fn er6_create_in_doubt_is_not_written_twice() {
    let sink = Sink::new();
    sink.answer([Reply::Lose(connection())]);
    let recorder = sink.recorder().build().unwrap();
    recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    sink.until_requests(1);
    recorder.flush(SOON).unwrap();
    // The server has the event already, so the second create is refused.
    assert_eq!(sink.verbs(), ["create", "create"]);
    assert_eq!((sink.counts()["n"], recorder.stats().written), (1, 1));
}

#[test]
fn er6_create_in_doubt_is_patched_to_its_count() {
    let sink = Sink::new();
    sink.answer([Reply::Lose(connection())]);
    let recorder = sink.recorder().build().unwrap();
    sink.hang(true);
    recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    sink.until_requests(1);
    for _ in 0..9 {
        recorder.event(&pod("p"), WARNING, "Failed", "n").unwrap();
    }
    sink.hang(false);
    while sink.counts().get("n") != Some(&10) {
        recorder.flush(SOON).unwrap();
    }
    let stats = recorder.stats();
    assert_eq!((stats.written + stats.merged, stats.failed), (10, 0));
}
