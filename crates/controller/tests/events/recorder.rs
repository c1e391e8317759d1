use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_informer::error::{Error, ShutdownError};
use k8s_informer::object::ObjectReference;
use k8s_informer::object::{Compact, GroupVersionKind, PartialObjectMetadata};
use k8s_informer::{DynamicObject, ObjectMeta, Stop, Stopper, impl_object};
use k8s_informer_controller::events::{EventError, EventRecorder, EventSink, EventType};
use k8s_informer_testing::FakeClock;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::sink::{Reply, SOON, Sink, pod, status};

#[test]
fn every_form_of_an_object_is_referred_to() {
    #[derive(serde::Deserialize)]
    struct Own {
        metadata: ObjectMeta,
    }
    impl_object!(Own, "example.com/v1", "Team", "teams", Namespaced);
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
    });
    let typed: Pod = serde_json::from_value(json.clone()).unwrap();
    let own: Own = serde_json::from_value(json.clone()).unwrap();
    let dynamic = DynamicObject::new(&json).unwrap();
    let compact = Compact::<Pod>::new(&json).unwrap();
    let partial: PartialObjectMetadata = serde_json::from_value(json).unwrap();
    let partial = ObjectReference::new(&GroupVersionKind::new("", "v1", "Pod"), &partial);
    let warning = EventType::Warning;
    recorder.event(&typed, warning, "Typed", "n").unwrap();
    recorder.event(&own, warning, "Own", "n").unwrap();
    recorder.event(&dynamic, warning, "Dynamic", "n").unwrap();
    recorder
        .event(&*Arc::new(compact), warning, "Compact", "n")
        .unwrap();
    recorder.event(&partial, warning, "Partial", "n").unwrap();
    recorder.flush(SOON).unwrap();
    let events = sink.events();
    assert_eq!(events.len(), 5);
    for event in events {
        let (api_version, kind) = match event["reason"].as_str().unwrap() {
            "Own" => ("example.com/v1", "Team"),
            _ => ("v1", "Pod"),
        };
        let wanted = json!({
            "apiVersion": api_version, "kind": kind, "namespace": "shop", "name": "web",
            "uid": "u1", "resourceVersion": "7",
        });
        assert_eq!(event["regarding"], wanted);
        assert_eq!(event["metadata"]["namespace"], "shop");
    }
}

#[test]
fn event_has_all_fields() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "worker-1"}})).unwrap();
    recorder
        .new_event(&node, EventType::Normal, "Drained", "all Pods are gone")
        .action("Drain")
        .related(&pod("web"))
        .annotation("example.com/by", "ops")
        .send()
        .unwrap();
    recorder.flush(SOON).unwrap();
    let event = &sink.events()[0];
    let time = event["eventTime"].as_str().unwrap();
    assert_eq!((time.len(), &time[19..20], &time[26..]), (27, ".", "Z"));
    let name = event["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("worker-1."), "{name}");
    let wanted = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {
            "name": name, "namespace": "default", "annotations": {"example.com/by": "ops"},
        },
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "worker-1"},
        "related": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "uid-web",
        },
        "type": "Normal", "reason": "Drained", "action": "Drain", "note": "all Pods are gone",
        "reportingController": "example.com/ctl", "reportingInstance": "ctl-0", "eventTime": time,
    });
    assert_eq!(event, &wanted);
}

#[test]
fn name_of_each_event_is_unique_and_valid() {
    let sink = Sink::new();
    let clock = FakeClock::new();
    let recorder = sink.recorder().clock(Arc::new(clock)).build().unwrap();
    for reason in ["A", "B", "C"] {
        recorder
            .event(&pod("p"), EventType::Normal, reason, "n")
            .unwrap();
    }
    recorder
        .event(&pod("Not:valid"), EventType::Normal, "A", "n")
        .unwrap();
    recorder.flush(SOON).unwrap();
    let events = sink.events();
    assert_eq!(events.len(), 4);
    let names = events
        .iter()
        .map(|event| event["metadata"]["name"].as_str().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("p.")).count(), 3);
}

#[test]
fn ev15_shutdown_writes_what_waits() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    sink.hang(true);
    for _ in 0..3 {
        recorder
            .event(&pod("p"), EventType::Normal, "A", "n")
            .unwrap();
    }
    sink.until_requests(1);
    let shutdown = std::thread::spawn({
        let recorder = recorder.clone();
        move || recorder.shut_down(SOON)
    });
    sink.hang(false);
    shutdown.join().unwrap().unwrap();
    assert_eq!(recorder.stats().pending, 0);
    assert_eq!(sink.counts()["n"], 3);
    let error = recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap_err();
    assert!(matches!(error, EventError::Stopped));
    assert_eq!(
        (recorder.stats().recorded, recorder.stats().refused),
        (3, 1)
    );
    assert_eq!(recorder.shut_down(SOON), Ok(()));
}

#[test]
fn dropped_recorder_writes_what_waits() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    for _ in 0..5 {
        recorder
            .event(&pod("p"), EventType::Normal, "A", "n")
            .unwrap();
    }
    drop(recorder.clone());
    drop(recorder);
    assert_eq!(sink.counts()["n"], 5);
}

#[test]
fn stop_ends_recorder_without_writing() {
    let (sink, stop) = (Sink::new(), Stopper::new());
    let recorder = sink.recorder().stop(&stop).build().unwrap();
    sink.hang(true);
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    recorder
        .event(&pod("q"), EventType::Normal, "A", "n")
        .unwrap();
    sink.until_requests(1);
    stop.stop();
    let unwritten = recorder.flush(SOON).unwrap_err();
    assert!(unwritten.is_stopped());
    let stuck = vec!["2 events unsent".to_owned()];
    let lost = ShutdownError::Interrupted { stuck };
    assert_eq!(recorder.shut_down(SOON), Err(lost));
    assert_eq!(recorder.stats().pending, 2);
    assert!(
        recorder
            .event(&pod("p"), EventType::Normal, "A", "n")
            .is_err()
    );
}

#[test]
fn panic_of_the_sink_counts_as_a_failure() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    sink.answer([Reply::Panic]);
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    recorder
        .event(&pod("q"), EventType::Normal, "B", "n")
        .unwrap();
    recorder.flush(SOON).unwrap();
    let stats = recorder.stats();
    assert_eq!((stats.failed, stats.written), (1, 1));
    let error = recorder.last_error().unwrap().to_string();
    assert_eq!(error, "the event sink panicked: boom");
}

#[test]
fn refusal_is_counted_and_readable() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    assert!(recorder.last_error().is_none());
    sink.answer([Reply::Fail(status(403, "Forbidden"))]);
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    recorder.flush(SOON).unwrap();
    assert_eq!(recorder.stats().failed, 1);
    assert!(recorder.last_error().unwrap().is_forbidden());
    // The next one is a patch of what was never created, and then creates it.
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    recorder.flush(SOON).unwrap();
    assert_eq!(sink.verbs(), ["create", "patch", "create"]);
    assert_eq!(sink.counts()["n"], 2);
}

#[test]
fn flush_without_events_returns_at_once() {
    let recorder = Sink::new().recorder().build().unwrap();
    recorder.flush(Duration::ZERO).unwrap();
    recorder.shut_down(SOON).unwrap();
}

/// Shuts its recorder down during the first request.
struct ShutsDown {
    recorder: Mutex<Option<EventRecorder>>,
    results: Sender<Result<(), ShutdownError>>,
}

impl EventSink for ShutsDown {
    fn create(&self, _: &str, _: &Value, _: &Stop) -> Result<(), Error> {
        let recorder = self.recorder.lock().unwrap().take().unwrap();
        self.results.send(recorder.shut_down(None)).unwrap();
        Ok(())
    }

    fn patch(&self, _: &str, _: &str, _: &Value, _: &Stop) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn ev15_shutdown_from_the_sink_does_not_wait() {
    let (results, result) = channel();
    let sink = Arc::new(ShutsDown {
        recorder: Mutex::default(),
        results,
    });
    let recorder = EventRecorder::with_sink(sink.clone(), "within").build();
    let recorder = recorder.unwrap();
    // The sink has the recorder before the request can begin.
    *sink.recorder.lock().unwrap() = Some(recorder.clone());
    recorder
        .event(&pod("p"), EventType::Normal, "A", "n")
        .unwrap();
    let from_within = Err(ShutdownError::FromWithin);
    assert_eq!(result.recv_timeout(SOON), Ok(from_within));
    assert_eq!(recorder.shut_down(SOON), Ok(()));
}
