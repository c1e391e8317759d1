//! When a kind counts as missing, as a function of what the checks find.

use k8s_informer::error::Status;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Checks a kind once a second, and returns the second of the verdict.
fn verdict(findings: impl IntoIterator<Item = Finding>) -> Option<(u32, Reason)> {
    let (mut doubts, began) = (Doubts::default(), Instant::now());
    let checks = (0..).zip(findings);
    checks
        .map(|(second, found)| (second, doubts.add(found, began + second * SECOND, SETTLE)))
        .find_map(|(second, reason)| Some((second, reason?)))
}

fn found(served: Served, failures: Option<u64>) -> Finding {
    Finding {
        served,
        is_listed: false,
        failures,
    }
}

const ABSENT: Finding = Finding {
    served: Served::No,
    is_listed: false,
    failures: None,
};

#[test]
fn absence_in_each_answer_for_the_settle_time_counts() {
    assert_eq!(verdict([ABSENT; 5]), None);
    assert_eq!(verdict([ABSENT; 6]), Some((5, Reason::Absent)));
}

#[test]
fn any_other_answer_begins_the_settle_time_again() {
    let others = [
        found(Served::Yes, None),
        found(Served::Unclear, None),
        found(Served::Unknown, None),
        Finding {
            is_listed: true,
            ..ABSENT
        },
    ];
    for other in others {
        let mut findings = vec![ABSENT; 5];
        findings.push(other);
        findings.extend([ABSENT; 6]);
        assert_eq!(verdict(findings), Some((11, Reason::Absent)), "{other:?}");
    }
}

#[test]
fn failing_lists_count_while_discovery_answers() {
    let failing = |served| (1..60).map(move |failures| found(served, Some(failures)));
    let after = |served| verdict(failing(served));
    assert_eq!(after(Served::Yes), Some((20, Reason::Unlistable)));
    assert_eq!(after(Served::Unclear), Some((20, Reason::Unlistable)));
    assert_eq!(after(Served::Unknown), None);
    // Two API servers, of which one has the kind.
    let both = failing(Served::Yes).zip(failing(Served::No));
    let both = both.flat_map(|(one, other)| [one, other]);
    assert_eq!(verdict(both), Some((20, Reason::Unlistable)));
}

/// The failure is from the outage, and the informer waits.
#[test]
fn failure_before_discovery_answers_does_not_count() {
    let mut findings = vec![found(Served::Unknown, Some(7)); 30];
    findings.extend(vec![found(Served::Yes, Some(7)); 40]);
    assert_eq!(verdict(findings.clone()), None);
    findings.push(found(Served::Yes, Some(8)));
    assert_eq!(verdict(findings), Some((70, Reason::Unlistable)));
}

#[test]
fn success_in_between_begins_the_failures_again() {
    let failing = |count: u64| found(Served::Yes, Some(count));
    let first = (1..20).map(failing);
    let findings: Vec<_> = first.chain((1..22).map(failing)).collect();
    assert_eq!(verdict(findings), Some((39, Reason::Unlistable)));
    let slow = vec![found(Served::Yes, None); 200];
    assert_eq!(verdict(slow), None, "a list without an error is awaited");
}

fn failing_with(code: u16) -> ReflectorStatus {
    let mut status = ReflectorStatus::default();
    status.failures = 1;
    status.last_error = Some(Error::from_status(Status::failure(code, "", "")));
    status
}

#[test]
fn readiness_waits_for_a_kind_that_is_listed_now() {
    let (presence, now) = (Presence::default(), Instant::now());
    assert!(!presence.excuses(&ReflectorStatus::default(), now));
    assert!(presence.excuses(&failing_with(404), now));
    let forbidden = failing_with(403);
    assert!(!presence.excuses(&forbidden, now));
    assert!(!presence.excuses(&forbidden, now + 19 * SECOND));
    assert!(presence.excuses(&forbidden, now + UNLISTABLE));
    let presence = Presence::default();
    presence.set_missing(Reason::Unlistable, false);
    assert!(presence.excuses(&forbidden, now));
}

#[test]
fn status_shows_what_calls_see() {
    let presence = Presence::default();
    assert!(presence.shows_missing(&failing_with(404)));
    assert!(!presence.shows_missing(&failing_with(403)));
    presence.set_missing(Reason::Unlistable, false);
    assert!(presence.shows_missing(&failing_with(403)) && !presence.exists());
    presence.set_exists();
    assert!(!presence.shows_missing(&failing_with(404)) && presence.exists());
}

#[test]
fn missing_kind_ends_the_wait_of_the_start() {
    let (presence, stop) = (Presence::default(), Stopper::new());
    let awaited = presence.awaits(&stop).unwrap();
    presence.set_missing(Reason::Absent, false);
    assert!(awaited.is_stopped() && !stop.is_stopped());
    assert!(presence.awaits(&stop).is_none());
    presence.end_start();
    assert!(presence.is_missing() && !presence.exists());
}

/// A replica that leads again must not become unready.
#[test]
fn kind_that_cannot_be_listed_is_excused_in_the_next_term() {
    let mut status = ReflectorStatus::default();
    status.last_error = Some(Error::other("forbidden"));
    let presence = Presence::default();
    presence.set_missing(Reason::Unlistable, false);
    assert!(presence.excuses(&status, Instant::now()));
    presence.begin_term();
    assert!(!presence.is_missing() && !presence.exists());
    assert!(presence.excuses(&status, Instant::now()));
    // One that existed is not excused at once.
    let other = Presence::default();
    other.set_exists();
    other.begin_term();
    assert!(!other.excuses(&status, Instant::now()));
}
