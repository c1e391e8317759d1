//! Single rules, step by step.

use std::time::Duration;

use k8s_informer::Error;
use k8s_informer::error::Status;
use k8s_informer_controller::__private::steps::{
    Event, Next, Now, Observation, Request, Steps, Times,
};
use k8s_informer_controller::leader_election::{Lease, Record};

/// The default durations.
const TIMES: Times = Times {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// The candidate `a`, whose random numbers are 0.
fn candidate() -> Steps {
    Steps::new("a".to_owned(), TIMES, Box::new(|| 0.0))
}

fn at(milliseconds: u32) -> Now {
    Now {
        elapsed: Duration::from_millis(u64::from(milliseconds)),
        wall: 1_700_000_000_000_000 + i64::from(milliseconds) * 1_000,
    }
}

fn lease(version: u32, record: Record) -> Lease {
    let mut lease = Lease::default();
    lease.uid = "uid".to_owned();
    lease.resource_version = version.to_string();
    lease.record = record;
    lease
}

fn held_by(holder: &str, seconds: i32) -> Record {
    let mut record = Record::default();
    record.holder = Some(holder.to_owned());
    record.lease_duration_seconds = seconds;
    record.transitions = 6;
    record
}

fn refused(code: u16) -> Error {
    let mut status = Status::default();
    status.code = code;
    Error::from_status(status)
}

fn send(steps: &mut Steps, now: Now) -> Request {
    match steps.next(now) {
        Next::Send(request, _) => *request,
        other => panic!("no request: {other:?}"),
    }
}

/// Sends a request that replaces the record. Returns the new record, and the version that it
/// replaces.
#[track_caller]
fn update(steps: &mut Steps, now: Now) -> (Record, String) {
    match send(steps, now) {
        Request::Update(record, last) => (record, last.resource_version),
        other => panic!("no update: {other:?}"),
    }
}

/// Begins an attempt with a read, and passes this Lease.
#[track_caller]
fn read(steps: &mut Steps, now: Now, lease: &Lease) -> Event {
    steps.begin(now);
    assert!(matches!(send(steps, now), Request::Get));
    steps.answer(now, now, Ok(lease))
}

fn is_valid(steps: &mut Steps, now: Now) -> bool {
    steps.term().is_some_and(|term| term.is_valid(now))
}

/// Lets the candidate create the Lease at this time. Returns the record.
fn lead(steps: &mut Steps, now: Now) -> Record {
    assert!(matches!(send(steps, now), Request::Get));
    let missing = refused(404);
    assert_eq!(steps.answer(now, now, Err(&missing)), Event::Continued);
    let Request::Create(record) = send(steps, now) else {
        panic!("no create");
    };
    let created = lease(1, record.clone());
    let event = steps.answer(now, now, Ok(&created));
    assert!(matches!(event, Event::Acquired(_)), "{event:?}");
    record
}

/// Sends a renewal without a read.
fn begin_renewal(steps: &mut Steps, now: Now) -> Record {
    steps.begin(now);
    update(steps, now).0
}

#[test]
fn le5_own_lease_is_read_first_after_its_duration() {
    for (age, is_read) in [(14_999, false), (15_000, true)] {
        let mut steps = candidate();
        let first = lead(&mut steps, at(0));
        steps.begin(at(age));
        if is_read {
            assert!(matches!(send(&mut steps, at(age)), Request::Get));
            continue;
        }
        let (record, version) = update(&mut steps, at(age));
        assert_eq!(version, "1");
        assert_eq!(record.acquire_time, first.acquire_time);
        assert_eq!(record.transitions, first.transitions);
        // A failure leads to the read within the same attempt.
        let event = steps.answer(at(age), at(age), Err(&refused(500)));
        assert_eq!(event, Event::Lost, "the term was over");
        assert!(matches!(send(&mut steps, at(age)), Request::Get));
    }
}

/// The times in the record are those of another clock, so they do not matter.
/// client-go compares whole seconds, so it would not see the second renewal.
#[test]
fn le23_renewals_within_a_second_count() {
    let mut steps = candidate();
    let mut record = held_by("b", 15);
    record.renew_time = Some(at(0).wall);
    assert_eq!(
        read(&mut steps, at(0), &lease(7, record.clone())),
        Event::Failed
    );
    record.renew_time = Some(at(900).wall);
    assert_eq!(
        read(&mut steps, at(900), &lease(8, record.clone())),
        Event::Failed
    );
    // The age counts from the second one.
    assert_eq!(
        read(&mut steps, at(15_899), &lease(8, record.clone())),
        Event::Failed
    );
    assert_eq!(
        read(&mut steps, at(15_900), &lease(8, record)),
        Event::Continued
    );
}

#[test]
fn le7_record_is_valid_for_the_time_that_it_states() {
    for renewed in [None, Some(0), Some(at(0).wall), Some(i64::MAX / 2)] {
        let mut steps = candidate();
        let mut record = held_by("other", 4);
        record.acquire_time = renewed;
        record.renew_time = renewed;
        let first = lease(7, record.clone());
        assert_eq!(read(&mut steps, at(1_000), &first), Event::Failed);
        assert_eq!(read(&mut steps, at(4_999), &first), Event::Failed);
        // A renewal is another version, even if nothing else has changed.
        let renewed = lease(8, record);
        assert_eq!(read(&mut steps, at(5_000), &renewed), Event::Failed);
        assert_eq!(read(&mut steps, at(8_999), &renewed), Event::Failed);
        assert_eq!(read(&mut steps, at(9_000), &renewed), Event::Continued);
        let (record, version) = update(&mut steps, at(9_000));
        assert_eq!((record.transitions, &*version), (7, "8"));
    }
}

/// A candidate that has listed the Lease before need not wait again.
#[test]
fn el4_age_counts_from_an_earlier_observation() {
    for (version, elapsed, expected) in [
        (7, 15_999, Event::Failed),
        (7, 16_000, Event::Continued),
        (8, 16_000, Event::Failed),
    ] {
        let mut steps = candidate();
        let listed = lease(7, held_by("b", 15));
        steps.observe(Observation {
            lease: listed,
            since: at(1_000).elapsed,
        });
        let found = lease(version, held_by("b", 15));
        let event = read(&mut steps, at(elapsed), &found);
        assert_eq!(event, expected, "{version} {elapsed}");
        // The age of another version counts from its read.
        let since = if version == 7 { 1_000 } else { elapsed };
        assert_eq!(steps.observed().unwrap().since, at(since).elapsed);
        assert_eq!(steps.holder(), Some("b"));
    }
}

/// A lock without UIDs can count its versions from the beginning after a deletion.
#[test]
fn el4_age_does_not_survive_the_deletion_of_the_lease() {
    let mut steps = candidate();
    let held = lease(1, held_by("b", 15));
    assert_ne!(read(&mut steps, at(0), &held), Event::Continued);
    // The Lease is deleted, and another candidate creates it faster.
    steps.begin(at(14_000));
    assert!(matches!(send(&mut steps, at(14_000)), Request::Get));
    steps.answer(at(14_000), at(14_000), Err(&refused(404)));
    assert!(matches!(send(&mut steps, at(14_000)), Request::Create(_)));
    steps.answer(at(14_000), at(14_000), Err(&refused(409)));
    assert_ne!(read(&mut steps, at(16_000), &held), Event::Continued);
    assert_eq!(read(&mut steps, at(31_000), &held), Event::Continued);
}

/// A lock returns the new version of what it has written, and need not return the record.
#[test]
fn written_record_counts_if_the_lock_does_not_return_it() {
    let mut steps = candidate();
    assert!(matches!(send(&mut steps, at(0)), Request::Get));
    steps.answer(at(0), at(0), Err(&refused(404)));
    assert!(matches!(send(&mut steps, at(0)), Request::Create(_)));
    let event = steps.answer(at(0), at(0), Ok(&lease(1, Record::default())));
    assert!(matches!(event, Event::Acquired(_)), "{event:?}");
    assert_eq!(steps.holder(), Some("a"));
    // So the Lease is renewed without a read.
    begin_renewal(&mut steps, at(2_000));
}

#[test]
fn le8_lease_without_a_holder_is_taken_at_once() {
    let mut steps = candidate();
    let mut record = held_by("b", 15);
    record.holder = None;
    record.renew_time = Some(at(0).wall);
    let free = lease(7, record);
    assert_eq!(read(&mut steps, at(0), &free), Event::Continued);
    let (record, version) = update(&mut steps, at(0));
    assert_eq!((record.holder.as_deref(), &*version), (Some("a"), "7"));
    let taken = lease(8, record);
    let event = steps.answer(at(0), at(0), Ok(&taken));
    assert!(matches!(event, Event::Acquired(_)), "{event:?}");
    assert!(is_valid(&mut steps, at(9_999)));
}

/// The process was paused from before the end of the term until after the response. No other thread
/// has looked at the term since.
#[test]
fn le4_renewal_after_the_end_of_a_term_does_not_revive_it() {
    for (answered, revives) in [(11_999, true), (12_000, false), (15_500, false)] {
        let mut steps = candidate();
        lead(&mut steps, at(0));
        let record = begin_renewal(&mut steps, at(11_000));
        let renewed = lease(2, record);
        let event = steps.answer(at(11_000), at(answered), Ok(&renewed));
        let expected = match revives {
            true => Event::Renewed,
            false => Event::Lost,
        };
        assert_eq!(event, expected, "{answered}");
        assert_eq!(is_valid(&mut steps, at(answered)), revives, "{answered}");
        // The Lease is renewed until the work has been joined. The term stays lost.
        let next = begin_renewal(&mut steps, at(17_000));
        let renewed = lease(3, next);
        let event = steps.answer(at(17_000), at(17_000), Ok(&renewed));
        assert_eq!(event, Event::Renewed);
        assert_eq!(is_valid(&mut steps, at(17_000)), revives, "{answered}");
        let left = steps.term().unwrap().left(at(17_000));
        assert_eq!(left.is_some(), revives, "{answered}");
    }
}

#[test]
fn le4_term_ends_before_any_late_response_counts() {
    let record = |steps: &mut Steps| begin_renewal(steps, at(11_000));
    for code in [None, Some(409), Some(500)] {
        let mut steps = candidate();
        lead(&mut steps, at(0));
        let renewed = lease(2, record(&mut steps));
        let error = code.map(refused);
        let response = match &error {
            Some(error) => Err(error),
            None => Ok(&renewed),
        };
        let event = steps.answer(at(11_000), at(13_000), response);
        assert_eq!(event, Event::Lost, "{code:?}");
        // It is reported once.
        assert!(!steps.term().unwrap().expire(at(13_000)));
        assert!(!steps.end_term());
    }
    // The read of a slow renewal.
    let mut steps = candidate();
    let first = lead(&mut steps, at(0));
    let renewal = record(&mut steps);
    assert_eq!(
        steps.answer(at(11_000), at(11_500), Err(&refused(409))),
        Event::Continued
    );
    assert!(matches!(send(&mut steps, at(11_500)), Request::Get));
    let event = steps.answer(at(11_500), at(13_000), Ok(&lease(2, first)));
    assert_eq!(event, Event::Lost);
    let (_, version) = update(&mut steps, at(13_000));
    assert_eq!(version, "2");
    let event = steps.answer(at(13_000), at(13_000), Ok(&lease(3, renewal)));
    assert_eq!(event, Event::Renewed);
    assert!(!is_valid(&mut steps, at(13_000)));
}

/// The wall clock jumped forward, and was set right again.
#[test]
fn term_that_was_over_stays_over_if_the_clock_is_set_back() {
    for (jump, revives) in [(11, true), (12, false)] {
        let mut steps = candidate();
        lead(&mut steps, at(0));
        let mut ahead = at(1_000);
        ahead.wall += (jump - 1) * 1_000_000;
        assert!(!is_valid(&mut steps, ahead));
        let record = begin_renewal(&mut steps, at(2_000));
        let event = steps.answer(at(2_000), at(2_000), Ok(&lease(2, record)));
        assert_eq!(event == Event::Renewed, revives, "{event:?}");
        assert_eq!(is_valid(&mut steps, at(2_000)), revives, "{jump}");
    }
}
