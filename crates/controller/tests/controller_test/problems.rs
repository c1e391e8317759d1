//! Controllers that do not become idle, and wrong uses.

use std::time::{Duration, Instant};

use k8s_informer::client::api::Patch;
use k8s_informer::informer::Source;
use k8s_informer::{Client, Config};
use k8s_informer_controller::{Controller, Failure, Next};
use k8s_informer_testing::{ApiServer, ControllerTest, FakeClock, Fault, RequestRecord, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::{Team, TestResult, create_team, reconcile, server, team, test_of};

/// A timeout that elapses in each test that sets it.
const SHORT: Duration = Duration::from_secs(1);

#[test]
fn endless_writes_are_an_error() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(|cx, team| {
            let members = json!({"status": {"members": team.status.members + 1}});
            let teams = cx.api::<Team>(Some(cx.namespace()));
            teams
                .status()
                .patch(cx.name(), &Patch::merge(members), cx.stop())?;
            Ok(Next::Done)
        })
    });
    create_team(&test, "a", &[]);
    let error = test.run_until_idle().unwrap_err().to_string();
    let writes =
        "patch teams/status default/a, patch teams/status default/a, patch teams/status default/a";
    assert_eq!(
        error,
        format!(
            "controller \"teams\": not idle after 100 calls for default/a; the last writes: {writes}"
        )
    );
    Ok(())
}

#[test]
fn endless_failures_are_an_error() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(|cx, _| match cx.name() {
            "bad" => Err(Failure::new("no such bucket")),
            _ => Ok(Next::Done),
        })
    });
    create_team(&test, "bad", &[]);
    create_team(&test, "good", &[]);
    let error = test.run_until_idle().unwrap_err().to_string();
    assert_eq!(
        error,
        "controller \"teams\": not idle after 100 calls for default/bad\n\
         the last call for default/bad, attempt 100, failed: no such bucket"
    );
    assert_eq!(test.calls("default/good"), 1);
    Ok(())
}

#[test]
fn terminal_failure_is_idle() -> TestResult {
    let mut test = test_of(|builder| builder.by(|_, _| Err(Failure::terminal("too many members"))));
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    assert_eq!(test.calls("default/a"), 1);
    assert!(
        test.controller()
            .last_failure("default/a")
            .unwrap()
            .failure
            .is_terminal()
    );
    Ok(())
}

#[test]
fn panic_is_retried() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(|cx, _| match cx.attempt() {
            1 => panic!("a bug"),
            _ => Ok(Next::Done),
        })
    });
    create_team(&test, "a", &[]);
    test.run_until_idle()?;
    assert_eq!(test.calls("default/a"), 2);
    Ok(())
}

#[test]
fn hanging_call_is_an_error_and_ends_with_the_test() -> TestResult {
    let mut test = test_of(|builder| {
        builder.by(|cx, _| {
            cx.stop().wait();
            Err(Failure::new("stopped"))
        })
    });
    test.run_until_idle()?;
    create_team(&test, "a", &[]);
    test.set_timeout(SHORT);
    let error = test.run_until_idle().unwrap_err().to_string();
    assert_eq!(
        error,
        "controller \"teams\": a call has not returned within 1s: default/a"
    );
    let began = Instant::now();
    drop(test);
    assert!(began.elapsed() < Duration::from_secs(10));
    Ok(())
}

#[test]
fn time_limit_ends_a_call_in_virtual_time() -> TestResult {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut test = test_of(|builder| {
        builder
            .owns(Source::of::<ConfigMap>())
            .time_limit(HOUR)
            .by(reconcile)
    });
    create_team(&test, "a", &["x"]);
    let clock = test.clock().clone();
    let hour_passes = move |_: &RequestRecord| {
        clock.advance(HOUR);
        true
    };
    let stall = Fault::stall().on(Verb::Create).when(hour_passes);
    test.server().fail_next(stall);
    test.run_until_idle()?;
    let expected = [
        "create configmaps default/a-x",
        "patch teams/status default/a",
    ];
    assert_eq!(test.writes(), expected);
    assert_eq!(test.calls("default/a"), 3);
    Ok(())
}

#[test]
fn stalled_watch_is_an_error_with_the_cache() -> TestResult {
    let mut test = test_of(team);
    test.run_until_idle()?;
    assert_eq!(
        test.server()
            .fail_watches(&Fault::stall().on(Verb::Watch).resource("configmaps")),
        1
    );
    create_team(&test, "a", &["x"]);
    test.set_timeout(SHORT);
    let error = test.run_until_idle().unwrap_err().to_string();
    assert!(
        error.starts_with("controller \"teams\": the cache of configmaps has not reached version"),
        "{error}"
    );
    Ok(())
}

#[test]
fn unknown_resource_is_an_error_with_the_cache() -> TestResult {
    let server = ApiServer::start()?;
    let mut test = ControllerTest::with_server(server, Source::of::<Team>(), team)?;
    test.set_timeout(SHORT);
    let error = test.run_until_idle().unwrap_err().to_string();
    assert!(
        error.contains("the cache of teams.example.com has not reached version"),
        "{error}"
    );
    assert!(error.contains("404"), "{error}");
    Ok(())
}

#[test]
fn other_builder_or_clock_is_an_error() -> TestResult {
    let error = ControllerTest::with_server(server(), Source::of::<Team>(), |builder| {
        builder
            .clock(std::sync::Arc::new(FakeClock::new()))
            .by(|_, _| Ok(Next::Done))
    });
    let expected = "controller \"teams\": the function must use the builder that it receives, and must not set its clock";
    assert_eq!(error.unwrap_err().to_string(), expected);

    let error = ControllerTest::with_server(server(), Source::of::<Team>(), |_| {
        let client = Client::new(Config::new("http://127.0.0.1:1")).unwrap();
        Controller::builder(&client, Source::of::<Team>(), "teams").by(|_, _| Ok(Next::Done))
    });
    assert_eq!(error.unwrap_err().to_string(), expected);
    Ok(())
}

#[test]
fn build_error_is_returned() -> TestResult {
    let error = ControllerTest::with_server(server(), Source::of::<Team>(), |builder| {
        builder.workers(0).by(|_, _| Ok(Next::Done))
    });
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "controller \"teams\": 0 workers would reconcile nothing: use at least 1"
    );
    Ok(())
}
