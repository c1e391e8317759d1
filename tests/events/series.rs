use std::sync::Arc;
use std::time::Duration;

use k8s_informer::events::EventType;
use k8s_informer::testing::FakeClock;

use super::sink::{SOON, Sink, pod};

const NORMAL: EventType = EventType::Normal;

#[test]
fn er1_series_survives_a_new_resource_version() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    for version in ["7", "8", "9"] {
        let mut pod = pod("p");
        pod.resource_version = version.to_owned();
        recorder.event(&pod, NORMAL, "A", "n").unwrap();
    }
    assert!(recorder.flush(SOON));
    let events = sink.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["regarding"]["resourceVersion"], "7");
    assert_eq!(events[0]["series"]["count"], 3);
}

#[test]
fn er1_different_notes_are_not_merged() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    for note in ["one", "two", "one"] {
        recorder.event(&pod("p"), NORMAL, "A", note).unwrap();
    }
    assert!(recorder.flush(SOON));
    let counts = sink.counts();
    assert_eq!((counts.len(), counts["one"], counts["two"]), (2, 2, 1));
}

#[test]
fn er1_notes_are_merged_on_request() {
    let sink = Sink::new();
    let recorder = sink.recorder().merge_notes().build().unwrap();
    for note in ["one", "two", "one"] {
        recorder.event(&pod("p"), NORMAL, "A", note).unwrap();
    }
    assert!(recorder.flush(SOON));
    let counts = sink.counts();
    assert_eq!((counts.len(), counts["one"]), (1, 3));
}

#[test]
fn ec2_many_notes_are_combined() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    for number in 0..3000 {
        let note = format!("note {number}");
        recorder.event(&pod("p"), NORMAL, "A", note).unwrap();
    }
    assert!(recorder.flush(SOON));
    let counts = sink.counts();
    assert_eq!(counts.len(), 10);
    assert_eq!(counts["(combined from similar events): note 9"], 2991);
    let stats = recorder.stats();
    assert_eq!((stats.filtered, stats.dropped, stats.pending), (0, 0, 0));
    assert_eq!(stats.written + stats.merged, 3000);
}

#[test]
fn ec4_new_series_of_one_object_are_filtered() {
    let sink = Sink::new();
    let clock = FakeClock::new();
    let recorder = sink
        .recorder()
        .clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    for number in 0..30 {
        recorder
            .event(&pod("p"), NORMAL, format!("R{number}"), "n")
            .unwrap();
    }
    // A known series is not filtered.
    recorder.event(&pod("p"), NORMAL, "R0", "n").unwrap();
    assert!(recorder.flush(SOON));
    assert_eq!(sink.events().len(), 25);
    assert_eq!(recorder.stats().filtered, 5);
    clock.advance(Duration::from_secs(301));
    recorder.event(&pod("p"), NORMAL, "R29", "n").unwrap();
    recorder.event(&pod("p"), NORMAL, "R28", "n").unwrap();
    assert!(recorder.flush(SOON));
    assert_eq!((sink.events().len(), recorder.stats().filtered), (26, 6));
}

#[test]
fn er2_count_is_written_when_doubled_and_when_due() {
    let sink = Sink::new();
    let clock = FakeClock::new();
    let recorder = sink
        .recorder()
        .clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    let emit = || recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
    for (requests, pending) in [
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
        (3, 2),
        (3, 3),
        (4, 0),
    ] {
        emit();
        sink.until_requests(requests);
        until(|| recorder.stats().pending == pending);
    }
    assert_eq!(sink.verbs(), ["create", "patch", "patch", "patch"]);
    emit();
    assert_eq!((sink.counts()["n"], recorder.stats().pending), (8, 1));
    clock.advance(Duration::from_secs(30));
    sink.until_requests(5);
    assert!(recorder.flush(SOON));
    assert_eq!((sink.counts()["n"], recorder.stats().pending), (9, 0));
    // A series without new events costs no requests (ER3).
    clock.advance(Duration::from_secs(3600));
    assert!(recorder.flush(SOON));
    assert_eq!(sink.requests().len(), 5);
}

#[test]
fn er4_series_ends_after_six_minutes() {
    let sink = Sink::new();
    let clock = FakeClock::new();
    let recorder = sink
        .recorder()
        .clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    for seconds in [0, 300, 361] {
        clock.advance(Duration::from_secs(seconds));
        recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
        assert!(recorder.flush(SOON));
    }
    let counts: Vec<bool> = sink
        .events()
        .iter()
        .map(|event| event["series"].is_null())
        .collect();
    assert_eq!(counts, [false, true]);
}

#[test]
fn expired_event_is_created_again_with_its_count() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
    assert!(recorder.flush(SOON));
    sink.expire();
    recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
    assert!(recorder.flush(SOON));
    assert_eq!(sink.verbs(), ["create", "patch", "create"]);
    assert_eq!(sink.counts()["n"], 2);
}

#[test]
fn evicted_series_is_written_first() {
    let sink = Sink::new();
    let recorder = sink.recorder().cache_size(1).build().unwrap();
    for pending in [0, 0, 1] {
        recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
        until(|| recorder.stats().pending == pending);
    }
    recorder.event(&pod("q"), NORMAL, "A", "other").unwrap();
    until(|| recorder.stats().pending == 0);
    assert_eq!(sink.counts()["n"], 3);
}

fn until(condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + SOON;
    while !condition() {
        assert!(
            std::time::Instant::now() < deadline,
            "the condition is not reached"
        );
        std::thread::yield_now();
    }
}
