//! What a recorder logs. The log is that of the process, so each recorder has its own name.

use std::sync::Arc;
use std::time::Duration;

use k8s_informer_controller::events::{EventRecorder, EventType};
use k8s_informer_testing::FakeClock;

use super::sink::{Reply, SOON, Sink, connection, pod, status};
use crate::log_capture;

#[test]
fn lasting_problem_is_logged_once() {
    log_capture::start();
    let (sink, clock) = (Sink::new(), FakeClock::new());
    let refused = || Reply::Fail(status(403, "Forbidden"));
    let lost = || Reply::Fail(connection());
    sink.answer([refused(), refused(), lost(), lost(), refused()]);
    let recorder = EventRecorder::with_sink(sink, "lasting")
        .clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        recorder
            .event(&pod(name), EventType::Normal, "A", "n")
            .unwrap();
        if name == "c" {
            for pauses in 1..=2 {
                clock.wait_for_waits(pauses, SOON).unwrap();
                clock.advance(Duration::from_secs(60));
            }
        }
        recorder.flush(SOON).unwrap();
    }
    log_capture::wait_for(&["recorder lasting", "events are written again"]);
    let lines = log_capture::lines_with(&["recorder lasting", "could not be written"]);
    let levels: Vec<&str> = lines.iter().map(|line| &line[..5]).collect();
    assert_eq!(
        levels,
        ["WARN ", "DEBUG", "WARN ", "DEBUG", "WARN "],
        "{lines:#?}"
    );
}

#[test]
fn ev1_dropped_events_are_logged_once_a_minute() {
    log_capture::start();
    let (sink, clock) = (Sink::new(), FakeClock::new());
    sink.hang(true);
    let recorder = EventRecorder::with_sink(sink, "dropping")
        .queue_size(1)
        .clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    for second in 0..100 {
        recorder
            .event(&pod(&format!("p{second}")), EventType::Normal, "A", "n")
            .unwrap();
        clock.advance(Duration::from_secs(1));
    }
    recorder.shut_down(Duration::ZERO).unwrap_err();
    let lines = log_capture::lines_with(&["recorder dropping", "dropped"]);
    let numbers: Vec<&str> = lines
        .iter()
        .map(|line| line.split(": ").nth(2).unwrap().split(';').next().unwrap())
        .collect();
    assert_eq!(numbers, ["1", "60", "38"], "{lines:#?}");
    let lost = log_capture::lines_with(&["recorder dropping", "events lost"]);
    assert_eq!(lost.len(), 1, "{lost:#?}");
}
