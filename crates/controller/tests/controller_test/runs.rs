//! Runs without faults: the recorded writes, time, steps and restarts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_informer::object::Key;
use k8s_informer::time::Clock;
use k8s_informer_controller::Next;
use k8s_informer_testing::Verb;
use serde_json::json;

use super::{MAPS, MINUTE, TEAMS, TestResult, create_team, maps, reconcile, team, test_of};

#[test]
fn writes_are_recorded_in_order() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "b", &["x"]);
    create_team(&test, "a", &["x", "y"]);
    test.run_until_idle()?;
    let writes = test.writes();
    let expected = [
        "create configmaps default/a-x",
        "create configmaps default/a-y",
        "patch teams/status default/a",
        "create configmaps default/b-x",
        "patch teams/status default/b",
    ];
    assert_eq!(writes, expected);
    assert_eq!(writes[0].verb, Verb::Create);
    assert_eq!(
        writes[0].body["metadata"]["ownerReferences"][0]["name"],
        "a"
    );
    assert_eq!(
        (&*writes[2].resource, writes[2].subresource),
        ("teams", "status")
    );
    assert_eq!((test.calls("default/a"), test.calls("default/c")), (2, 0));

    test.run_until_idle()?;
    assert!(test.writes().is_empty());
    Ok(())
}

#[test]
fn writes_of_the_test_are_not_recorded() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    test.run_until_idle()?;
    test.writes();
    test.server().delete(&format!("{MAPS}/a-x"))?;
    test.run_until_idle()?;
    assert_eq!(test.writes(), ["create configmaps default/a-x"]);
    Ok(())
}

#[test]
fn runs_are_repeatable() -> TestResult {
    let run = || {
        let mut test = test_of(|builder| {
            builder
                .workers(4)
                .owns(k8s_informer::informer::Source::of::<
                    k8s_openapi::api::core::v1::ConfigMap,
                >())
                .by(reconcile)
        });
        for name in ["c", "a", "b"] {
            create_team(&test, name, &["x", "y"]);
        }
        test.run_until_idle().unwrap();
        test.restart().unwrap();
        test.server().delete(&format!("{MAPS}/b-x")).unwrap();
        test.run_until_idle().unwrap();
        let calls = ["default/a", "default/b", "default/c"].map(|key| test.calls(key));
        (
            test.writes()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            calls,
        )
    };
    let first = run();
    assert_eq!(first.0.len(), 10);
    for _ in 0..10 {
        assert_eq!(run(), first);
    }
    Ok(())
}

#[test]
fn next_after_runs_when_time_advances() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    assert_eq!(test.calls("default/a"), 1);
    test.advance(10 * MINUTE - Duration::from_secs(1))?;
    assert_eq!(test.calls("default/a"), 1);
    test.advance(Duration::from_secs(1))?;
    assert_eq!(test.calls("default/a"), 2);
    test.advance(24 * 60 * MINUTE)?;
    assert_eq!(test.calls("default/a"), 2 + 144);
    Ok(())
}

#[test]
fn delayed_calls_have_their_own_times() -> TestResult {
    let times = Arc::new(Mutex::new(Vec::new()));
    let clock = Arc::new(Mutex::new(None::<k8s_informer_testing::FakeClock>));
    let (seen, reader) = (Arc::clone(&times), Arc::clone(&clock));
    let mut test = test_of(move |builder| {
        let (seen, reader) = (Arc::clone(&seen), Arc::clone(&reader));
        builder.by(move |cx, _| {
            let now = reader.lock().unwrap().as_ref().unwrap().now();
            seen.lock().unwrap().push((cx.name().to_owned(), now));
            let minutes = if cx.name() == "a" { 2 } else { 3 };
            Ok(Next::After(minutes * MINUTE))
        })
    });
    *clock.lock().unwrap() = Some(test.clock().clone());
    create_team(&test, "a", &[]);
    create_team(&test, "b", &[]);
    let start = test.clock().now();
    test.advance(6 * MINUTE)?;
    let times = times.lock().unwrap();
    let minutes: Vec<_> = times
        .iter()
        .map(|(name, at)| (&**name, (*at - start).as_secs() / 60))
        .collect();
    let expected = [
        ("a", 0),
        ("b", 0),
        ("a", 2),
        ("b", 3),
        ("a", 4),
        ("a", 6),
        ("b", 6),
    ];
    assert_eq!(minutes, expected);
    Ok(())
}

#[test]
fn step_runs_one_call() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    create_team(&test, "b", &["x"]);
    assert_eq!(test.step()?.as_deref(), Some("default/a"));
    assert_eq!(maps(&test), ["a-x"]);
    // The writes of the first call have queued the key again, in alphabetical order.
    assert_eq!(test.step()?.as_deref(), Some("default/a"));
    assert_eq!(test.step()?.as_deref(), Some("default/b"));
    assert_eq!(test.step()?.as_deref(), Some("default/b"));
    assert_eq!(test.step()?, None);
    Ok(())
}

#[test]
fn restart_continues_with_the_same_server() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    create_team(&test, "b", &["x"]);
    test.step()?;
    test.restart()?;
    test.run_until_idle()?;
    let expected = [
        "create configmaps default/a-x",
        "patch teams/status default/a",
        "create configmaps default/b-x",
        "patch teams/status default/b",
    ];
    assert_eq!(test.writes(), expected);
    assert_eq!(
        test.calls("default/a"),
        2,
        "calls before and after the restart"
    );
    Ok(())
}

#[test]
fn calls_of_several_workers_do_not_overlap() -> TestResult {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let overlap = Arc::clone(&most);
    let mut test = test_of(move |builder| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&overlap));
        builder.workers(8).by(move |_, _| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Next::Done)
        })
    });
    for name in 0..50 {
        create_team(&test, &format!("team-{name}"), &[]);
    }
    test.run_until_idle()?;
    assert_eq!(most.load(Ordering::SeqCst), 0);
    Ok(())
}

#[test]
fn deletion_calls_on_gone() -> TestResult {
    let gone = Arc::new(Mutex::new(Vec::new()));
    let keys = Arc::clone(&gone);
    let mut test = test_of(move |builder| {
        let keys = Arc::clone(&keys);
        let on_gone = move |key: &Key| keys.lock().unwrap().push(key.to_string());
        builder.on_gone(on_gone).by(|_, _| Ok(Next::Done))
    });
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    test.server().delete(&format!("{TEAMS}/a"))?;
    test.run_until_idle()?;
    assert_eq!(*gone.lock().unwrap(), ["default/a"]);
    // The events of an object that is gone before the run are processed as well.
    create_team(&test, "b", &[]);
    test.server().delete(&format!("{TEAMS}/b"))?;
    test.run_until_idle()?;
    assert_eq!(test.calls("default/b"), 1);
    Ok(())
}

#[test]
fn children_are_deleted_with_their_owner() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x", "y"]);
    create_team(&test, "b", &["x"]);
    test.run_until_idle()?;
    test.writes();
    test.server().delete(&format!("{TEAMS}/a"))?;
    test.run_until_idle()?;
    assert_eq!(maps(&test), ["b-x"]);
    assert!(
        test.writes().is_empty(),
        "the garbage collector is not the controller"
    );
    Ok(())
}

#[test]
fn finalizer_is_added_and_removed() -> TestResult {
    let mut test = test_of(|builder| {
        let cleanup = |cx: &k8s_informer_controller::Context, _: &Arc<super::Team>| {
            let maps = cx.api::<k8s_openapi::api::core::v1::ConfigMap>(Some(cx.namespace()));
            maps.create(&json!({"metadata": {"name": "cleaned"}}), cx.stop())?;
            Ok(Next::Done)
        };
        builder
            .finalizer("example.com/team", |_| true, cleanup)
            .by(|_, _| Ok(Next::Done))
    });
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    assert_eq!(test.writes(), ["patch teams default/a"]);
    test.server().delete(&format!("{TEAMS}/a"))?;
    test.run_until_idle()?;
    assert_eq!(
        test.writes(),
        ["create configmaps default/cleaned", "patch teams default/a"]
    );
    assert!(test.server().get(&format!("{TEAMS}/a")).unwrap_err().code() == 404);
    Ok(())
}
