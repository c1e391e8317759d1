//! A watch on which nothing comes, and the end of the bodies (W4, W12).

use std::time::Duration;

use k8s_informer::ReflectorState;
use k8s_informer::testing::{Answer, Request};

use crate::support::{
    Recorder, Running, SECOND, SILENCE, Server, TICK, bookmark, connection_refused, error_event, event,
    initial_events_end, list, refused, refused_with, too_large_version,
};

/// The time after which the server was asked to end this request.
fn timeout_of(request: &Request) -> Duration {
    Duration::from_secs(request.options().timeout_seconds.unwrap().into())
}

#[test]
fn w4_a_watch_that_has_fallen_silent_is_opened_again() {
    let it = Running::new([
        list("10", &[]),
        Answer::open(event("ADDED", "a", "11") + SILENCE + &event("ADDED", "late", "99")),
        Answer::open(SILENCE),
        Answer::open(event("ADDED", "b", "12")),
    ]);
    assert_eq!(it.requests(4), ["list 0 limit 500", "watch 10", "watch 11", "watch 11"]);
    assert_eq!(it.calls(2), ["replace [] at 10", "add a@11", "add b@12"]);
    assert_eq!((it.waited(), it.handed()), (vec![], 0));
    let error = it.last_error();
    assert!(error.is_timeout() && error.to_string().contains("nothing came for"), "{error}");
    let limits: Vec<_> =
        it.options(4)[1..].iter().map(|request| Some(timeout_of(request) + 30 * SECOND)).collect();
    assert_eq!(it.server.read_timeouts(), limits, "the server ends it before that, unless it is dead");
    assert_eq!(it.server.open_bodies_at_request(), 0);
}

#[test]
fn w4_a_server_that_sends_no_bookmarks_any_more_is_asked_anew_and_then_for_a_list() {
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
    // As after a restore: of a version that is yet to come the server has nothing to tell.
    assert_eq!(it.requests(3), ["list 0 limit 500", "watch 10", "watch 12"]);
    it.pass(SECOND);
    assert_eq!(it.requests(6)[3..], ["list 12", "list most recent", "watch 7"]);
    assert!(it.calls(3).ends_with(&["replace [b@1] at 7".to_owned(), "add c@8".to_owned()]));
    let timeouts = it.server.read_timeouts();
    assert_eq!(timeouts[1..3], [Some(180 * SECOND); 2], "a bookmark comes each minute");
    assert!(timeouts[3] > Some(300 * SECOND), "it has to show anew that it sends them");
}

#[test]
fn w4_the_watch_idle_timeout_of_the_options_counts_in_its_place() {
    let answers = || [list("10", &[]), Answer::open(TICK.to_owned() + SILENCE), Answer::open("")];
    let it = Running::with(answers(), |options| options.watch_idle_timeout = Some(120 * SECOND));
    it.calls(2);
    assert_eq!(it.requests(3), ["list 0 limit 500", "watch 10", "watch 10"]);
    assert_eq!(it.server.read_timeouts(), [Some(120 * SECOND); 2]);
    assert!(it.last_error().to_string().ends_with("nothing came for 120 s"), "{}", it.last_error());

    let it = Running::with(answers(), |options| options.watch_idle_timeout = Some(Duration::ZERO));
    it.calls(2);
    let timeout = timeout_of(&it.options(2)[1]);
    assert_eq!(it.server.read_timeouts()[0], Some(timeout + 30 * SECOND), "zero would never be idle");
}

#[test]
fn w4_a_body_without_read_timeouts_just_blocks() {
    let server = Server::new([list("10", &[]), Answer::open("")]).without_read_timeouts();
    let it = Running::start(server, Recorder::default(), |options| options.watch_idle_timeout = Some(SECOND));
    it.calls(2);
    it.clock.advance(1000 * SECOND);
    let status = it.status();
    assert_eq!((it.count(), status.state), (2, ReflectorState::Watching));
    assert!(status.last_error.is_none(), "{:?}", status.last_error);
}

#[test]
fn w4_the_watch_that_follows_a_watch_list_has_its_own_patience() {
    let server =
        Server::new([Answer::open(event("ADDED", "a", "1") + SILENCE + &initial_events_end("10") + SILENCE)]);
    let it = Running::start(server.with_watch_list(), Recorder::default(), |options| {
        options.watch_idle_timeout = Some(120 * SECOND);
    });
    assert_eq!(it.requests(2), ["watch-list ", "watch 10"]);
    assert_eq!(it.server.read_timeouts()[..2], [Some(10 * SECOND), Some(120 * SECOND)]);
}

#[test]
fn l3_a_watch_that_fell_silent_after_an_event_was_healthy() {
    for (watch, last) in [(event("ADDED", "a", "11") + SILENCE, 1), (SILENCE.to_owned(), 4)] {
        let failed = || refused(500, "InternalError");
        let it =
            Running::new([failed(), failed(), list("10", &[]), Answer::open(&*watch), connection_refused()]);
        for _ in 0..3 {
            it.pass(60 * SECOND);
        }
        assert_eq!(it.waited(), [1, 2, last]);
    }
}

#[test]
fn w12_a_body_is_dropped_as_soon_as_nothing_more_is_read_from_it() {
    let bodies = [
        vec![list("10", &[]), Answer::open(error_event(410, "Expired"))],
        vec![list("10", &[]), Answer::open(error_event(429, "TooManyRequests"))],
        vec![list("10", &[]), Answer::body("")],
        vec![list("10", &[]), Answer::open("garbage\n"), Answer::open("garbage\n")],
        vec![list("10", &[]), Answer::open(event("ADDED", "a", "11") + SILENCE), refused(403, "Forbidden")],
        vec![list("10", &[]), Answer::broken(event("ADDED", "a", "11")), refused(403, "Forbidden")],
    ];
    for bodies in bodies {
        let what = format!("{bodies:?}");
        let it = Running::new(bodies);
        it.waits(1);
        assert_eq!(it.server.open_bodies(), 0, "while it waits: {what}");
        assert_eq!(it.server.open_bodies_at_request(), 0, "at the next request: {what}");
    }
    let it = Running::new([list("10", &[]), Answer::open("")]);
    it.calls(2);
    assert_eq!(it.server.open_bodies(), 1);
    let server = it.server.clone();
    drop(it);
    assert_eq!(server.open_bodies(), 0, "after the stop");
}

#[test]
fn w12_the_body_of_a_watch_list_is_dropped_too_but_when_it_becomes_the_watch() {
    for stream in [
        Answer::open(event("ADDED", "a", "1") + &error_event(429, "TooManyRequests")),
        Answer::open(event("ADDED", "a", "1") + &initial_events_end("10") + &error_event(410, "Expired")),
    ] {
        let it = Running::watch_list([stream]);
        it.waits(1);
        assert_eq!(it.server.open_bodies(), 0);
    }
    let it = Running::watch_list([Answer::open(initial_events_end("10"))]);
    it.calls(1);
    assert_eq!((it.server.open_bodies(), it.count()), (1, 1));
}
