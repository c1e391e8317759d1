//! Faults: failed requests, unknown outcomes and broken watches.

use std::time::Duration;

use k8s_informer::time::Clock;
use k8s_informer_testing::{Fault, Verb};

use super::{MAPS, TestResult, create_team, maps, team, test_of};

#[test]
fn ten_failures_are_retried_in_virtual_time() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    let create = Fault::status(403).on(Verb::Create).resource("configmaps");
    test.server().fail_next(create.times(10));
    let start = test.clock().now();
    test.run_until_idle()?;
    assert_eq!(test.server().pending_faults(), 0);
    assert_eq!(
        test.writes(),
        [
            "create configmaps default/a-x",
            "patch teams/status default/a"
        ],
    );
    assert_eq!(
        test.calls("default/a"),
        12,
        "ten failures, the success, and its own writes"
    );
    // 5 ms, and twice as much after each further failure.
    assert_eq!(
        test.clock().now() - start,
        Duration::from_millis(5 * (1024 - 1))
    );
    assert!(test.controller().failures().is_empty());
    Ok(())
}

#[test]
fn server_error_is_retried() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    test.server()
        .fail_next(Fault::status(500).on(Verb::Create).times(3));
    test.run_until_idle()?;
    assert_eq!(
        test.writes(),
        [
            "create configmaps default/a-x",
            "patch teams/status default/a"
        ],
    );
    assert_eq!(test.calls("default/a"), 5);
    Ok(())
}

#[test]
fn conflict_is_retried() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    test.server()
        .fail_next(Fault::status(409).on(Verb::Patch).resource("teams"));
    test.run_until_idle()?;
    assert_eq!(
        test.writes(),
        [
            "create configmaps default/a-x",
            "patch teams/status default/a"
        ],
    );
    Ok(())
}

#[test]
fn reset_before_the_write_is_retried() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    test.server().fail_next(Fault::reset().on(Verb::Create));
    test.run_until_idle()?;
    assert_eq!(
        test.writes(),
        [
            "create configmaps default/a-x",
            "patch teams/status default/a"
        ],
    );
    assert_eq!(maps(&test), ["a-x"]);
    Ok(())
}

#[test]
fn reset_after_the_write_creates_no_second_child() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    test.server()
        .fail_next(Fault::reset().after_bytes(0).on(Verb::Create));
    test.run_until_idle()?;
    let expected = [
        "create configmaps default/a-x",
        "patch teams/status default/a",
    ];
    assert_eq!(test.writes(), expected);
    assert_eq!(test.server().pending_faults(), 0);
    Ok(())
}

#[test]
fn restart_after_an_unknown_outcome_creates_no_second_child() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    test.server()
        .fail_next(Fault::close().after_bytes(0).on(Verb::Create));
    test.step()?;
    test.restart()?;
    test.run_until_idle()?;
    let expected = [
        "create configmaps default/a-x",
        "patch teams/status default/a",
    ];
    assert_eq!(test.writes(), expected);
    Ok(())
}

#[test]
fn broken_watches_are_repaired_before_the_next_call() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    test.run_until_idle()?;
    test.writes();

    test.server().pause();
    test.server().delete(&format!("{MAPS}/a-x"))?;
    test.server().compact();
    test.server().resume()?;
    test.run_until_idle()?;
    assert_eq!(test.writes(), ["create configmaps default/a-x"]);

    test.server().cut_watches();
    create_team(&test, "b", &["x"]);
    test.run_until_idle()?;
    assert_eq!(maps(&test), ["a-x", "b-x"]);
    Ok(())
}

#[test]
fn restored_server_is_reconciled_after_a_restart() -> TestResult {
    let mut test = test_of(team);
    create_team(&test, "a", &["x"]);
    let backup = test.server().backup();
    test.run_until_idle()?;
    test.writes();
    test.server().restore(&backup)?;
    test.set_timeout(Duration::from_secs(1));
    let error = test.run_until_idle().unwrap_err().to_string();
    assert!(
        error.ends_with("the caches are newer than the restored server: call `restart`"),
        "{error}"
    );
    test.set_timeout(Duration::from_secs(10));
    test.restart()?;
    test.run_until_idle()?;
    let expected = [
        "create configmaps default/a-x",
        "patch teams/status default/a",
    ];
    assert_eq!(test.writes(), expected);
    Ok(())
}
