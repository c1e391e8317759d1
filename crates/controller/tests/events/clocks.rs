//! Recorders on machines whose wall clock is set. Durations are those of the monotonic clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use k8s_informer::Stop;
use k8s_informer::time::Clock;
use k8s_informer_controller::events::EventType;
use k8s_informer_testing::FakeClock;
use parking_lot::Mutex;

use super::sink::{SOON, Sink, pod};

const NORMAL: EventType = EventType::Normal;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A clock whose wall clock is set back or forward.
#[derive(Clone)]
struct SteppingClock {
    clock: FakeClock,
    /// How far the wall clock is ahead.
    ahead: Arc<Mutex<Duration>>,
}

impl SteppingClock {
    fn ahead_by(ahead: Duration) -> Self {
        Self {
            clock: FakeClock::new(),
            ahead: Arc::new(Mutex::new(ahead)),
        }
    }

    fn set_ahead_by(&self, ahead: Duration) {
        *self.ahead.lock() = ahead;
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wall_clock(&self) -> SystemTime {
        self.clock.wall_clock() + *self.ahead.lock()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.clock.wait(duration, stop)
    }
}

fn second(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Duration::from_secs(since.as_secs())
}

/// The seconds of an RFC 3339 time on its day.
fn second_of_day(time: &str) -> u64 {
    let number = |from: usize| time[from..from + 2].parse::<u64>().unwrap();
    number(11) * 3600 + number(14) * 60 + number(17)
}

#[test]
fn er4_series_end_after_six_minutes_whatever_the_wall_clock() {
    for (before, after, passed, events) in [
        (2 * HOUR, Duration::ZERO, 7 * MINUTE, 2),
        (2 * HOUR, Duration::ZERO, MINUTE, 1),
        (Duration::ZERO, 2 * HOUR, MINUTE, 1),
        (Duration::ZERO, 2 * HOUR, 7 * MINUTE, 2),
    ] {
        let (sink, clock) = (Sink::new(), SteppingClock::ahead_by(before));
        let recorder = sink.recorder().clock(Arc::new(clock.clone()));
        let recorder = recorder.build().unwrap();
        recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
        clock.set_ahead_by(after);
        clock.clock.advance(passed);
        recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
        recorder.flush(SOON).unwrap();
        assert_eq!(sink.events().len(), events, "{before:?} {after:?}");
    }
}

#[test]
fn events_have_the_current_time_after_a_clock_was_ahead() {
    let (sink, clock) = (Sink::new(), SteppingClock::ahead_by(2 * HOUR));
    let recorder = sink.recorder().clock(Arc::new(clock.clone()));
    let recorder = recorder.build().unwrap();
    recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
    clock.set_ahead_by(Duration::ZERO);
    recorder.event(&pod("p"), NORMAL, "A", "n").unwrap();
    recorder.event(&pod("p"), NORMAL, "B", "n").unwrap();
    recorder.flush(SOON).unwrap();
    let now = second(clock.wall_clock()).as_secs() % 86_400;
    for event in sink.events() {
        let last = event["series"].get("lastObservedTime");
        let time = last.unwrap_or(&event["eventTime"]).as_str().unwrap();
        assert_eq!(second_of_day(time), now, "{event}");
    }
}

#[test]
fn names_are_unique_while_the_clock_stands_still_or_is_set_back() {
    let (sink, clock) = (Sink::new(), SteppingClock::ahead_by(HOUR));
    let recorder = sink.recorder().clock(Arc::new(clock.clone()));
    let recorder = recorder.build().unwrap();
    for round in 0..3_u32 {
        clock.set_ahead_by(HOUR / (round + 1));
        for number in 0..5 {
            let reason = format!("R{round}{number}");
            recorder.event(&pod("p"), NORMAL, reason, "n").unwrap();
        }
    }
    recorder.flush(SOON).unwrap();
    let requests = sink.requests();
    let names: BTreeSet<_> = requests.iter().map(|(_, name)| name).collect();
    assert_eq!((requests.len(), names.len()), (15, 15));
}
