//! The status of a reflector, and its log lines about errors.

use std::sync::Arc;
use std::time::Duration;

use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
use k8s_informer::{DynamicObject, Error, Indexer};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};

use crate::reflector::support::{
    Running, connection_refused, error_event, event, list, logged, logging, refused,
    run_until_read_with,
};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn repeated_failure_is_logged_once_and_counted_on_recovery() {
    logging();
    let answers = [
        refused(403, "Forbidden"),
        refused(403, "Forbidden"),
        connection_refused(),
        refused(403, "Forbidden"),
        list("10", &[]),
        Answer::open(event("ADDED", "a", "11")),
    ];
    let it = Running::with(answers, |options| {
        options.name = Some("once".to_owned());
        options.watch_error_handler = None;
    });
    for wait in 1..=4 {
        it.wait_for_waits(wait);
        assert_eq!(it.status().failures, wait as u64);
        assert_eq!(it.status().state, ReflectorState::BackingOff);
        it.advance_wait(MINUTE);
    }
    assert!(
        it.calls(2).contains(&"add a@11".to_owned()),
        "{:?}",
        it.calls(2)
    );
    let lines = logged("once: ");
    let levels: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(levels, ["WARN", "WARN", "INFO"], "{lines:?}");
    assert!(
        lines[0].contains("Forbidden") && lines[1].contains("refused"),
        "{lines:?}"
    );
    assert!(
        lines[2].starts_with("INFO once: recovered after "),
        "{lines:?}"
    );
    assert!(
        lines[2].contains("3 × ") && lines[2].contains("; 1 × ") | lines[2].contains("after 1 × "),
        "{lines:?}"
    );
    let status = it.status();
    assert_eq!(
        (status.failures, status.state),
        (0, ReflectorState::Watching)
    );
    assert!(
        status.last_error.is_some(),
        "the last error stays available"
    );
}

#[test]
fn unreadable_object_is_logged_once_until_complete_list() {
    logging();
    let broken = r#"{"metadata": {"resourceVersion": "3"}}"#;
    let with_broken = |version: &str| {
        let metadata = format!(r#"{{"resourceVersion": "{version}"}}"#);
        Answer::body(format!(
            r#"{{"kind": "List", "metadata": {metadata}, "items": [{broken}]}}"#
        ))
    };
    let expired = || Answer::body(error_event(410, "Expired"));
    let answers = [
        with_broken("10"),
        expired(),
        with_broken("20"),
        expired(),
        list("30", &[]),
        expired(),
        with_broken("40"),
        Answer::open(event("ADDED", "a", "41")),
    ];
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let script = ScriptedListerWatcher::new(answers);
    let status = run_until_read_with(&store, &script, 5, |options| {
        options.name = Some("unreadable".to_owned());
    });
    assert_eq!(
        (status.unreadable, status.complete, status.relists),
        (3, false, 3)
    );
    let lines = logged("unreadable: ");
    let lines: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("WARN "))
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn status_has_last_error_last_contact_and_list_count() {
    let answers = [
        connection_refused(),
        list("10", &["a"]),
        Answer::body(error_event(410, "Expired")),
        refused(500, "InternalError"),
        list("20", &["a"]),
        Answer::open(event("ADDED", "b", "21")),
    ];
    let it = Running::new(answers);
    it.wait_for_waits(1);
    let first = it.status();
    assert_eq!(first.last_contact, None, "no server responded yet");
    assert!(first.last_error_at.is_some());
    it.advance_wait(MINUTE);
    it.wait_for_waits(2);
    let second = it.status();
    assert!(second.last_error_at > first.last_error_at);
    assert!(
        second.last_contact >= second.last_error_at,
        "the stream with the error came from the server"
    );
    assert_eq!((second.relists, second.listed), (0, true));
    it.advance_wait(MINUTE);
    it.wait_for_waits(3);
    let third = it.status();
    assert!(
        third.last_contact > second.last_contact,
        "an error response counts as contact"
    );
    it.advance_wait(MINUTE);
    it.calls(3);
    let last = it.status();
    assert_eq!((last.relists, last.lists, last.watches), (1, 4, 2));
    assert_eq!(
        last.last_error_at, third.last_error_at,
        "no error occurred since"
    );
}

#[test]
fn status_display_has_no_object_content() {
    let it = Running::new([connection_refused()]);
    it.wait_for_waits(1);
    let line = it.status().to_string();
    let expected = "backing off, not synced yet; objects listed 0, lists 1, watches 0, relists 0; \
                    no contact yet; failures 1; last error ";
    assert!(
        line.starts_with(expected) && line.contains("s ago: ") && line.contains("refused"),
        "{line}"
    );

    let broken = r#"{"metadata": {"resourceVersion": "3"}, "data": {"key": "secret-value"}}"#;
    let body = format!(
        r#"{{"kind": "List", "metadata": {{"resourceVersion": "10"}}, "items": [{broken}]}}"#
    );
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let script =
        ScriptedListerWatcher::new([Answer::body(body), Answer::open(event("ADDED", "a", "11"))]);
    let line = run_until_read_with(&store, &script, 2, |_| {}).to_string();
    let expected =
        "stopped at version 11; objects listed 0, lists 1, watches 1, relists 0; last contact ";
    assert!(
        line.starts_with(expected) && line.contains("; incomplete; unreadable 1; last error "),
        "{line}"
    );
    assert!(
        line.ends_with("the object has no name") && !line.contains("secret-value"),
        "{line}"
    );
}

#[test]
fn status_display_of_a_hostile_error_is_one_line() {
    let mut status = ReflectorStatus::default();
    status.state = ReflectorState::Listing;
    status.resource_version = ResourceVersion::new("7\n8");
    (status.received, status.expected) = (500, Some(1200));
    status.last_error = Some(Error::other("first\nsecond\x1b[31m"));
    let expected = "listing at version 7 8, not synced yet; objects listed 500 of 1200, lists 0, watches 0, relists 0; \
                    no contact yet; last error: first second\\u{1b}[31m";
    assert_eq!(status.to_string(), expected);
}
