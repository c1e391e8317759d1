//! The events that a controller has recorded.

use std::time::Duration;

use k8s_informer::object::ObjectReference;
use k8s_informer_controller::events::EventError;
use k8s_informer_controller::events::EventType::{Normal, Warning};
use k8s_informer_controller::{Failure, Next};
use k8s_informer_testing::{Fault, Verb};
use serde_json::json;

use super::{MINUTE, TEAMS, TestResult, create_team, test_of};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

#[test]
fn events_are_counted_in_the_order_of_first_occurrence() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(|cx, team| {
            let events = cx.events()?;
            for n in 0..100 {
                events.event(&**team, Warning, "Slow", format!("attempt {n}"))?;
            }
            events.event(&**team, Normal, "Seen", "it exists")?;
            match cx.attempt() {
                1..=2 => Err(Failure::new("not yet")),
                _ => Ok(Next::Done),
            }
        })
    });
    create_team(&test, "b", &[]);
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    let expected = [
        "Warning Slow Team default/a: attempt 0 (x300)",
        "Normal Seen Team default/a: it exists (x3)",
        "Warning Slow Team default/b: attempt 0 (x300)",
        "Normal Seen Team default/b: it exists (x3)",
    ];
    assert_eq!(test.events(), expected);
    assert_eq!(test.events(), [""; 0]);
    assert!(test.writes().is_empty());

    // A series that goes on is returned again, with its count.
    test.controller().enqueue("default/b");
    test.run_until_idle()?;
    let expected = [
        "Warning Slow Team default/b: attempt 0 (x600)",
        "Normal Seen Team default/b: it exists (x6)",
    ];
    assert_eq!(test.events(), expected);

    // A series ends after six minutes, in virtual time.
    test.advance(10 * MINUTE)?;
    test.controller().enqueue("default/a");
    test.run_until_idle()?;
    let expected = [
        "Warning Slow Team default/a: attempt 0 (x300)",
        "Normal Seen Team default/a: it exists (x3)",
    ];
    assert_eq!(test.events(), expected);
    Ok(())
}

#[test]
fn burst_of_different_events_is_complete() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(|cx, _| {
            for n in 0..2500 {
                let mut pod = ObjectReference::default();
                (pod.kind, pod.name) = ("Pod".into(), format!("p{n}"));
                cx.events()?.event(&pod, Normal, "Seen", "it exists")?;
            }
            Ok(Next::Done)
        })
    });
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    let events = test.events();
    assert_eq!(events.len(), 2500);
    assert_eq!(events[1499], "Normal Seen Pod p1499: it exists");
    Ok(())
}

#[test]
fn events_survive_a_restart_and_ignore_faults() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(|cx, team| {
            cx.events()?
                .new_event(&**team, Normal, "Seen", "it exists")
                .action("See")
                .send()?;
            Ok(Next::Done)
        })
    });
    test.server()
        .fail_next(Fault::status(403).on(Verb::Create).always());
    test.server()
        .create(TEAMS, json!({"metadata": {"name": "a"}}))?;
    test.run_until_idle()?;
    test.restart()?;
    test.run_until_idle()?;
    let event = "Normal Seen Team default/a: it exists";
    assert_eq!(test.events(), [event, event], "a new program counts again");
    assert_eq!(test.server().list(EVENTS)?["items"], json!([]));
    Ok(())
}

#[test]
fn invalid_event_fails_the_call() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(
            |cx, team| match cx.events()?.event(&**team, Normal, "", "") {
                Err(error @ EventError::Invalid { .. }) => {
                    Err(Failure::terminal(error.to_string()))
                }
                other => panic!("{other:?}"),
            },
        )
    });
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    let last = test.controller().last_failure("default/a").unwrap();
    assert_eq!(last.failure.to_string(), "invalid event: reason is empty");
    assert_eq!(test.events(), [""; 0]);
    test.advance(Duration::from_secs(3600))?;
    Ok(())
}
