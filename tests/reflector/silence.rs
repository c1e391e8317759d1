//! Silent watches, and the release of response bodies (W4, W12).

use std::time::Duration;

use k8s_informer::reflector::ReflectorState;
use k8s_informer::time::Clock;
use k8s_informer_testing::{Answer, ScriptedRequest};

use crate::reflector::support::{
    Recorder, Running, SECOND, SILENCE, Server, TICK, bookmark, connection_refused, error_event,
    event, initial_events_end, list, refused, refused_with, too_large_version,
};

/// Returns the timeout that a request sets for the server.
fn timeout_of(request: &ScriptedRequest) -> Duration {
    Duration::from_secs(request.options().timeout_seconds.unwrap().into())
}

#[test]
fn w4_silent_watch_is_reopened_at_last_version() {
    let it = Running::new([
        list("10", &[]),
        Answer::open(event("ADDED", "a", "11") + SILENCE + &event("ADDED", "late", "99")),
        Answer::open(SILENCE),
        Answer::open(event("ADDED", "b", "12")),
    ]);
    assert_eq!(
        it.requests(4),
        ["list 0 limit 500", "watch 10", "watch 11", "watch 11"]
    );
    assert_eq!(it.calls(2), ["replace [] at 10", "add a@11", "add b@12"]);
    assert_eq!((it.waited(), it.handled_errors()), (vec![], 0));
    let error = it.last_error();
    assert!(
        error.is_timeout() && error.to_string().contains("no data arrived for"),
        "{error}"
    );
    let limits: Vec<_> = it.options(4)[1..]
        .iter()
        .map(|request| Some(timeout_of(request) + 30 * SECOND))
        .collect();
    assert_eq!(
        it.server.read_timeouts(),
        limits,
        "the read timeout exceeds the server's timeout by 30 s"
    );
    assert_eq!(it.server.open_bodies_at_request(), 0);
}

#[test]
fn w4_missing_bookmarks_restart_watch_then_list() {
    let minute = TICK.repeat(60);
    let bookmarks = bookmark("11", "{}") + &minute + &bookmark("12", "{}");
    let it = Running::new([
        list("10", &["a"]),
        Answer::open(bookmarks + SILENCE),
        Answer::open(SILENCE),
        refused_with(too_large_version()),
        list("7", &["b"]),
        Answer::open(event("ADDED", "c", "8")),
    ]);
    // As after a restore: the server has no events for a version in the future.
    assert_eq!(it.requests(3), ["list 0 limit 500", "watch 10", "watch 12"]);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(6)[3..],
        ["list 12", "list most recent", "watch 7"]
    );
    assert!(
        it.calls(3)
            .ends_with(&["replace [b@1] at 7".to_owned(), "add c@8".to_owned()])
    );
    let timeouts = it.server.read_timeouts();
    assert_eq!(
        timeouts[1..3],
        [Some(180 * SECOND); 2],
        "a bookmark each minute shortens the timeout to 180 s"
    );
    assert_eq!(
        timeouts[3],
        Some(180 * SECOND),
        "the timeout stays after the list"
    );
}

/// The case for which the list exists: after a restore, there are no bookmarks for a future version.
#[test]
fn w4_list_after_missing_bookmarks_doubles_the_time() {
    let bookmarks = bookmark("11", "{}") + &TICK.repeat(60) + &bookmark("12", "{}");
    let silent = |count| (0..count).map(|_| Answer::open(SILENCE));
    let server = Server::new(
        [list("10", &["a"]), Answer::open(bookmarks + SILENCE)]
            .into_iter()
            .chain(silent(1))
            .chain([list("12", &["a"])])
            .chain(silent(4))
            .chain([list("12", &["a"]), Answer::open("")]),
    );
    let (clock, began) = (server.clock.clone(), server.clock.now());
    let it = Running::start(server, Recorder::default(), |_| {});
    let elapsed = || (clock.now() - began).as_secs();
    it.wait_for_waits(1);
    assert_eq!(elapsed(), 7 * 60, "a minute between the bookmarks, and six");
    it.advance_wait(SECOND);
    it.wait_for_waits(2);
    assert_eq!(elapsed(), 7 * 60 + 1 + 12 * 60);
    it.advance_wait(2 * SECOND);
    let is_list = |request: &String| request.starts_with("list");
    let requests = it.requests(10);
    let lists = requests.iter().enumerate().filter(|(_, it)| is_list(it));
    assert_eq!(lists.map(|(at, _)| at).collect::<Vec<_>>(), [0, 3, 8]);
}

#[test]
fn w4_silence_before_the_last_event_does_not_count() {
    let minute = TICK.repeat(60);
    let bookmarks = bookmark("11", "{}") + &minute + &bookmark("12", "{}");
    let it = Running::new([
        list("10", &["a"]),
        Answer::open(bookmarks + SILENCE),
        Answer::body(event("MODIFIED", "a", "13")),
        Answer::open(SILENCE),
        Answer::open(""),
    ]);
    let requests = [
        "list 0 limit 500",
        "watch 10",
        "watch 12",
        "watch 13",
        "watch 13",
    ];
    assert_eq!(it.requests(5), requests);
}

#[test]
fn w4_watch_idle_timeout_option_replaces_the_default() {
    let answers = || {
        [
            list("10", &[]),
            Answer::open(TICK.to_owned() + SILENCE),
            Answer::open(""),
        ]
    };
    let it = Running::with(answers(), |options| {
        options.watch_idle_timeout = Some(120 * SECOND);
    });
    it.calls(2);
    assert_eq!(it.requests(3), ["list 0 limit 500", "watch 10", "watch 10"]);
    assert_eq!(it.server.read_timeouts(), [Some(120 * SECOND); 2]);
    assert!(
        it.last_error()
            .to_string()
            .ends_with("no data arrived for 120 s"),
        "{}",
        it.last_error()
    );

    let it = Running::with(answers(), |options| {
        options.watch_idle_timeout = Some(Duration::ZERO);
    });
    it.calls(2);
    let timeout = timeout_of(&it.options(2)[1]);
    assert_eq!(
        it.server.read_timeouts()[0],
        Some(timeout + 30 * SECOND),
        "a timeout of zero is ignored"
    );
}

#[test]
fn w4_body_without_read_timeouts_does_not_time_out() {
    let server = Server::new([list("10", &[]), Answer::open("")]).without_read_timeouts();
    let it = Running::start(server, Recorder::default(), |options| {
        options.watch_idle_timeout = Some(SECOND);
    });
    it.calls(2);
    it.clock.advance(1000 * SECOND);
    let status = it.status();
    assert_eq!(
        (it.request_count(), status.state),
        (2, ReflectorState::Watching)
    );
    assert!(status.last_error.is_none(), "{:?}", status.last_error);
}

#[test]
fn w4_watch_after_watch_list_uses_the_watch_idle_timeout() {
    let server = Server::new([Answer::open(
        event("ADDED", "a", "1") + SILENCE + &initial_events_end("10") + SILENCE,
    )]);
    let it = Running::start(server.with_watch_list(), Recorder::default(), |options| {
        options.watch_idle_timeout = Some(120 * SECOND);
    });
    assert_eq!(it.requests(2), ["watch-list most recent", "watch 10"]);
    assert_eq!(
        it.server.read_timeouts()[..2],
        [Some(10 * SECOND), Some(120 * SECOND)]
    );
}

#[test]
fn l3_watch_silent_after_an_event_is_healthy() {
    for (watch, last) in [
        (event("ADDED", "a", "11") + SILENCE, 1),
        (SILENCE.to_owned(), 4),
    ] {
        let failed = || refused(500, "InternalError");
        let it = Running::new([
            failed(),
            failed(),
            list("10", &[]),
            Answer::open(&*watch),
            connection_refused(),
        ]);
        for _ in 0..3 {
            it.advance_wait(60 * SECOND);
        }
        assert_eq!(it.waited(), [1, 2, last]);
    }
}

#[test]
fn w12_watch_body_is_dropped_before_the_wait_or_next_request() {
    let bodies = [
        vec![list("10", &[]), Answer::open(error_event(410, "Expired"))],
        vec![
            list("10", &[]),
            Answer::open(error_event(429, "TooManyRequests")),
        ],
        vec![list("10", &[]), Answer::body("")],
        vec![
            list("10", &[]),
            Answer::open("garbage\n"),
            Answer::open("garbage\n"),
        ],
        vec![
            list("10", &[]),
            Answer::open(event("ADDED", "a", "11") + SILENCE),
            refused(403, "Forbidden"),
        ],
        vec![
            list("10", &[]),
            Answer::broken(event("ADDED", "a", "11")),
            refused(403, "Forbidden"),
        ],
    ];
    for bodies in bodies {
        let case = format!("{bodies:?}");
        let it = Running::new(bodies);
        it.wait_for_waits(1);
        assert_eq!(it.server.open_bodies(), 0, "during the wait: {case}");
        assert_eq!(
            it.server.open_bodies_at_request(),
            0,
            "at the next request: {case}"
        );
    }
    let it = Running::new([list("10", &[]), Answer::open("")]);
    it.calls(2);
    assert_eq!(it.server.open_bodies(), 1);
    let server = it.server.clone();
    drop(it);
    assert_eq!(server.open_bodies(), 0, "after the stop");
}

#[test]
fn w12_watch_list_body_is_dropped_unless_it_becomes_watch() {
    for stream in [
        Answer::open(event("ADDED", "a", "1") + &error_event(429, "TooManyRequests")),
        Answer::open(
            event("ADDED", "a", "1") + &initial_events_end("10") + &error_event(410, "Expired"),
        ),
    ] {
        let it = Running::watch_list([stream]);
        it.wait_for_waits(1);
        assert_eq!(it.server.open_bodies(), 0);
    }
    let it = Running::watch_list([Answer::open(initial_events_end("10"))]);
    it.calls(1);
    assert_eq!((it.server.open_bodies(), it.request_count()), (1, 1));
}

/// Returns a body that is silent for this time and then ends normally.
fn quiet_for(seconds: usize) -> Answer {
    Answer::body(TICK.repeat(seconds))
}

#[test]
fn w4_idle_timeouts_trigger_list_after_two_bookmark_intervals() {
    let silent = || Answer::open(SILENCE);
    for (timeout, watches) in [(5, 24), (40, 3), (100, 2)] {
        let answers = [list("10", &["a"])]
            .into_iter()
            .chain((0..watches).map(|_| silent()));
        // As after a restore: the server has no events for a version in the future.
        let restored = [
            refused_with(too_large_version()),
            list("7", &["b"]),
            Answer::open(event("ADDED", "c", "8")),
        ];
        let it = Running::with(answers.chain(restored), |options| {
            options.watch_idle_timeout = Some(timeout * SECOND);
        });
        let first = it.requests(watches + 1);
        assert!(
            first[1..].iter().all(|request| request == "watch 10"),
            "{first:?}"
        );
        it.advance_wait(SECOND);
        assert_eq!(
            it.requests(watches + 4)[watches + 1..],
            ["list 10", "list most recent", "watch 7"]
        );
        assert!(
            it.calls(3)
                .ends_with(&["replace [b@1] at 7".to_owned(), "add c@8".to_owned()])
        );
    }
}

#[test]
fn w4_silence_adds_up_across_normally_ended_watches() {
    let it = Running::with(
        [
            list("10", &[]),
            quiet_for(90),
            quiet_for(90),
            quiet_for(90),
            list("10", &[]),
            Answer::open(""),
        ],
        |options| options.watch_idle_timeout = Some(100 * SECOND),
    );
    assert_eq!(it.requests(4)[1..], ["watch 10"; 3]);
    it.advance_wait(SECOND);
    assert_eq!(it.requests(6)[4..], ["list 10", "watch 10"]);
}

#[test]
fn w4_silence_before_any_bookmark_triggers_a_list() {
    // The silence is longer than twice the longest watch timeout, which is 630 seconds.
    let it = Running::new([
        list("10", &["a"]),
        quiet_for(650),
        Answer::open(TICK.repeat(650) + SILENCE),
        refused_with(too_large_version()),
        list("7", &["b"]),
        Answer::open(event("ADDED", "c", "8")),
    ]);
    assert_eq!(it.requests(3)[1..], ["watch 10"; 2]);
    it.advance_wait(SECOND);
    assert_eq!(
        it.requests(6)[3..],
        ["list 10", "list most recent", "watch 7"]
    );
    assert!(
        it.calls(4)
            .ends_with(&["replace [b@1] at 7".to_owned(), "add c@8".to_owned()])
    );
}

#[test]
fn w4_lists_of_a_quiet_kind_become_rarer() {
    let ended = || quiet_for(100);
    let confirmed = || list("10", &["a"]);
    let it = Running::with(
        [
            confirmed(),
            ended(),
            ended(),
            confirmed(),
            ended(),
            ended(),
            ended(),
            ended(),
            confirmed(),
            // The next list would be due after 800 seconds.
            Answer::body(TICK.repeat(700) + &event("ADDED", "b", "11") + &TICK.repeat(100)),
            ended(),
            confirmed(),
            Answer::open(""),
        ],
        |options| options.watch_idle_timeout = Some(100 * SECOND),
    );
    for wait in 0..3 {
        assert_eq!(it.handled_errors(), 0, "{wait}");
        it.advance_wait(SECOND);
    }
    let is_list = |request: &String| request.starts_with("list");
    let lists: Vec<_> = it
        .requests(13)
        .iter()
        .enumerate()
        .filter(|(_, it)| is_list(it))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(lists, [0, 3, 8, 11]);
}
