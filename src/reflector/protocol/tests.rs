use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Completeness, Output, Protocol, ReportKind, WatchEnd};
use crate::error::Error;
use crate::reflector::ReflectorOptions;
use crate::wire::EventKind;

fn protocol(now: Instant) -> Protocol {
    Protocol::new(&ReflectorOptions::default(), false, Arc::default(), now)
}

fn panics(call: impl FnOnce(&mut Protocol), protocol: &mut Protocol) -> bool {
    catch_unwind(AssertUnwindSafe(|| call(protocol))).is_err()
}

/// Lists one page without items, and opens a watch.
fn watching(now: Instant) -> Protocol {
    let mut protocol = protocol(now);
    protocol.opened(Ok(()), None, now, now);
    protocol.read(now);
    let list = br#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}"#;
    assert_eq!(protocol.poll(list).0, list.len());
    protocol.ended(Ok(()), Duration::ZERO, now);
    protocol.page_end(0);
    protocol.replaced(Completeness::Complete);
    assert!(matches!(protocol.poll(&[]).1, Output::Watch(_)));
    protocol.opened(Ok(()), Some(300), now, now);
    protocol
}

#[test]
fn call_in_another_phase_panics_and_a_new_cycle_can_follow() {
    let now = Instant::now();
    type Call = fn(&mut Protocol, Instant);
    let calls: [(&str, Call); 13] = [
        ("read", |p, now| p.read(now)),
        ("read_timed_out", |p, now| {
            p.read_timed_out(Duration::ZERO, false, now);
        }),
        ("ended", |p, now| p.ended(Ok(()), Duration::ZERO, now)),
        ("waited", |p, now| p.waited(Duration::ZERO, now)),
        ("page_end", |p, _| p.page_end(0)),
        ("list_failed", |p, _| p.list_failed(Error::other("a"))),
        ("replaced", |p, _| p.replaced(Completeness::Complete)),
        ("not_replaced", |p, _| p.not_replaced(Error::other("a"))),
        ("event", |p, _| p.event(EventKind::Added, None)),
        ("bookmark", |p, _| p.bookmark(None, true)),
        ("several_events", |p, _| p.several_events()),
        ("watch_ended", |p, _| p.watch_ended(WatchEnd::Silence)),
        ("reopen", |p, _| p.reopen()),
    ];
    for (name, call) in calls {
        // The next step of a new protocol is to request a list.
        let mut protocol = protocol(now);
        assert!(
            panics(|protocol| call(protocol, now), &mut protocol),
            "{name}"
        );
        protocol.abort_cycle(Error::other("a step panicked"));
        let (_, Output::Wait(time)) = protocol.poll(&[]) else {
            panic!("{name}: no wait follows");
        };
        protocol.waited(time, now);
        assert!(matches!(protocol.poll(&[]).1, Output::List(_)), "{name}");
    }
    let mut protocol = watching(now);
    assert!(panics(
        |protocol| protocol.opened(Ok(()), None, now, now),
        &mut protocol
    ));
}

#[test]
fn silence_is_the_sum_of_the_waits() {
    let now = Instant::now();
    let mut protocol = watching(now);
    // The requested 300 s and the slack of 30 s.
    let Output::Read(Some(timeout)) = protocol.poll(&[]).1 else {
        panic!("no read follows");
    };
    assert_eq!(timeout, Duration::from_secs(330));
    protocol.read_timed_out(Duration::from_secs(100), false, now);
    let Output::Read(Some(timeout)) = protocol.poll(&[]).1 else {
        panic!("no read follows");
    };
    assert_eq!(timeout, Duration::from_secs(230));
    protocol.read_timed_out(Duration::from_secs(230), false, now);
    let reports = protocol.take_reports();
    assert_eq!(reports[0].kind, ReportKind::Other);
    assert_eq!(reports[0].error.to_string(), "no data arrived for 330 s");
    assert!(matches!(protocol.poll(&[]).1, Output::Watch(_)));
}

#[test]
fn w5_time_without_a_read_is_not_part_of_a_watch() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    // A read has seen the watch open for this time. Nothing was read for a minute, and then the body
    // had ended.
    for (open, is_short) in [(Duration::from_millis(999), true), (second, false)] {
        let mut protocol = watching(now);
        protocol.read_timed_out(open, false, now + open);
        let unread = 60 * second;
        protocol.ended(Ok(()), unread, now + open + unread);
        match protocol.poll(&[]).1 {
            Output::Wait(_) => assert!(is_short, "open for {open:?}"),
            Output::Watch(_) => assert!(!is_short, "open for {open:?}"),
            _ => panic!("neither a back-off nor a watch follows"),
        }
    }
}
