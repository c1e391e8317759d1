//! What the server would refuse (EV5, EV20).

use k8s_informer::object::ObjectReference;
use k8s_informer::{Client, Config};
use k8s_informer_controller::events::{EventError, EventRecorder, EventType};
use k8s_informer_testing::ApiServer;

use super::sink::{SOON, Sink, pod};

const NORMAL: EventType = EventType::Normal;

fn field(result: Result<(), EventError>) -> &'static str {
    match result {
        Ok(()) => "",
        Err(EventError::Invalid { field, .. }) => field,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn ev5_events_that_a_server_refuses_are_errors() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    let long = "x".repeat(129);
    let event = |reason: &str| field(recorder.event(&pod("p"), NORMAL, reason, "n"));
    assert_eq!(
        [event(""), event(&long), event(&long[1..])],
        ["reason", "reason", ""]
    );
    let action = |action: &str| {
        let draft = recorder
            .new_event(&pod("p"), NORMAL, "A", "n")
            .action(action);
        field(draft.send())
    };
    assert_eq!(
        [action(""), action(&long), action("Run")],
        ["action", "action", ""]
    );
    let about = |change: fn(&mut ObjectReference)| {
        let mut object = pod("p");
        change(&mut object);
        field(recorder.event(&object, NORMAL, "A", "n"))
    };
    assert_eq!(
        about(|object| object.kind.clear()),
        "the kind of the object"
    );
    assert_eq!(
        about(|object| object.name.clear()),
        "the name of the object"
    );
    assert_eq!(about(|object| object.namespace.clear()), "");
    let stats = recorder.stats();
    assert_eq!((stats.recorded, stats.refused), (3, 6));
    recorder.flush(SOON).unwrap();
}

#[test]
fn invalid_namespace_counts_as_failed() {
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let recorder = EventRecorder::builder(&client, "c").build().unwrap();
    let mut object = pod("p");
    object.namespace = "../x".to_owned();
    recorder.event(&object, NORMAL, "A", "n").unwrap();
    recorder.flush(SOON).unwrap();
    assert_eq!(recorder.stats().failed, 1);
    let error = recorder.last_error().unwrap().to_string();
    assert!(error.contains("namespace"), "{error}");
}

#[test]
fn ev20_long_note_is_cut_at_a_character() {
    let sink = Sink::new();
    let recorder = sink.recorder().build().unwrap();
    let note = format!("x{}", "ü".repeat(1000));
    recorder.event(&pod("p"), NORMAL, "A", note).unwrap();
    recorder.flush(SOON).unwrap();
    let note = sink.events()[0]["note"].as_str().unwrap().to_owned();
    assert_eq!(note, format!("x{}", "ü".repeat(511)));
}

#[test]
fn recorder_with_invalid_name_is_an_error() {
    for (controller, instance, wrong) in [
        ("", "i", "reportingController"),
        ("two words", "i", "reportingController"),
        ("c", "", "reportingInstance"),
        ("c", &"x".repeat(129), "reportingInstance"),
    ] {
        let builder = EventRecorder::with_sink(Sink::new(), controller);
        let error = builder.instance(instance).build().unwrap_err();
        assert_eq!(field(Err(error)), wrong);
    }
}
