use std::sync::Arc;
use std::time::Duration;

use k8s_informer_controller::events::EventType;
use k8s_informer_testing::FakeClock;

use super::sink::{SOON, Sink, pod};

const NORMAL: EventType = EventType::Normal;

#[test]
fn er1_each_part_of_the_key_tells_events_apart() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    let mut newer = pod("p");
    newer.resource_version = "8".to_owned();
    recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
    recorder.event(&newer, NORMAL, "A", "n").unwrap();
    recorder.event(&pod("q"), NORMAL, "A", "n").unwrap();
    recorder
        .event(&pod("p"), EventType::Warning, "A", "n")
        .unwrap();
    let action = recorder.new_event(&pod("p"), NORMAL, "A", "n");
    action.action("Act").send().unwrap();
    let related = recorder.new_event(&pod("p"), NORMAL, "A", "n");
    related.related(&pod("q")).send().unwrap();
    recorder
        .new_event(&pod("p"), NORMAL, "B", "n")
        .action("A")
        .send()
        .unwrap();
    recorder.flush(SOON).unwrap();
    assert_eq!(sink.verbs(), ["create"; 7]);
}

#[test]
fn er1_series_keeps_the_first_note() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    for note in ["one", "two", "one"] {
        recorder.event(&pod("p"), NORMAL, "A", note).unwrap();
    }
    recorder.flush(SOON).unwrap();
    let counts = sink.counts();
    assert_eq!((counts.len(), counts["one"]), (1, 3));
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
    recorder.flush(SOON).unwrap();
    assert_eq!((sink.counts()["n"], recorder.stats().pending), (9, 0));
    // A series without new events costs no requests (ER3).
    clock.advance(Duration::from_secs(3600));
    recorder.flush(SOON).unwrap();
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
        recorder.flush(SOON).unwrap();
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
    recorder.flush(SOON).unwrap();
    sink.expire();
    recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
    recorder.flush(SOON).unwrap();
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

#[test]
fn full_cache_forgets_the_series_unseen_for_longest() {
    let sink = Sink::new();
    let recorder = sink.recorder().cache_size(2).build().unwrap();
    for name in ["p", "q", "p", "r", "p", "q"] {
        recorder.event(&pod(name), NORMAL, "A", "n").unwrap();
        recorder.flush(SOON).unwrap();
    }
    assert_eq!(
        sink.verbs(),
        ["create", "create", "patch", "create", "patch", "create"]
    );
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
