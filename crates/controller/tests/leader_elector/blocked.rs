//! User code that blocks or panics on the thread of the election.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use k8s_informer::object::ObjectReference;
use k8s_informer::stop::DoneSetter;
use k8s_informer::time::Clock;
use k8s_informer::{Error, Stop};
use k8s_informer_controller::leader_election::{
    Ended, LeaderElectionOptions, LeaderElector, Lease, Lock, Record,
};
use k8s_informer_controller::metrics::LeaderElectionMetrics;
use k8s_informer_testing::FakeClock;

use super::lock::{Fault, Server, TestLock};
use super::{Candidate, LIMIT, SECOND, Steps};
use crate::events::sink::Sink;

/// Blocks its callers until it is opened.
#[derive(Clone)]
struct Gate {
    entered: DoneSetter,
    open: DoneSetter,
}

impl Gate {
    fn new() -> Self {
        Self {
            entered: DoneSetter::new("entered"),
            open: DoneSetter::new("open"),
        }
    }

    fn pass(&self) {
        self.entered.set();
        self.open.wait();
    }

    fn wait_for_entry(&self) {
        assert!(self.entered.wait_timeout(LIMIT));
    }
}

type Hook = Box<dyn Fn() + Send + Sync>;

/// A lock that calls hooks.
struct HookedLock {
    lock: TestLock,
    on_update: Hook,
    on_reference: Hook,
    on_identity: Hook,
}

impl HookedLock {
    fn new(server: &Arc<Server>, clock: &FakeClock) -> Self {
        let nothing = || -> Hook { Box::new(|| ()) };
        Self {
            lock: TestLock::new(server, clock, "a"),
            on_update: nothing(),
            on_reference: nothing(),
            on_identity: nothing(),
        }
    }
}

impl Lock for HookedLock {
    fn name(&self) -> &str {
        self.lock.name()
    }

    fn identity(&self) -> &str {
        (self.on_identity)();
        self.lock.identity()
    }

    fn get(&self, stop: &Stop) -> Result<Lease, Error> {
        self.lock.get(stop)
    }

    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error> {
        self.lock.create(record, stop)
    }

    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error> {
        (self.on_update)();
        self.lock.update(record, last, stop)
    }

    fn reference(&self, lease: &Lease) -> Option<ObjectReference> {
        (self.on_reference)();
        self.lock.reference(lease)
    }
}

/// Metrics that block while a leader is reported as lost, or at a slow renewal.
#[derive(Default)]
struct BlockingMetrics {
    has_led: AtomicBool,
    on_loss: Option<Gate>,
    on_slow_path: Option<Gate>,
}

impl LeaderElectionMetrics for BlockingMetrics {
    fn is_leader(&self, is_leader: bool) {
        if self.has_led.fetch_or(is_leader, Ordering::Relaxed) && !is_leader {
            self.on_loss.iter().for_each(Gate::pass);
        }
    }

    fn slow_path(&self) {
        self.on_slow_path.iter().for_each(Gate::pass);
    }
}

fn give_to_another(server: &Server) {
    server.edit(|lease| lease.as_mut().unwrap().record.holder = Some("other".to_owned()));
}

#[test]
fn le4_lock_that_blocks_does_not_delay_the_loss() {
    let (server, clock, gate) = (Server::new(), FakeClock::new(), Gate::new());
    let mut lock = HookedLock::new(&server, &clock);
    lock.on_update = Box::new({
        let gate = gate.clone();
        move || gate.pass()
    });
    let candidate = Candidate::start_lock(lock, &clock, |builder| builder);
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    clock.advance(2 * SECOND);
    gate.wait_for_entry();
    clock.wait_for_waits(5, LIMIT).unwrap();
    clock.advance(SECOND * 99 / 10);
    clock.wait_for_waits(6, LIMIT).unwrap();
    assert!(!leading.stop().is_stopped());
    clock.advance(SECOND / 10);
    assert!(leading.stop().wait_timeout(LIMIT));
    assert!(leading.lost().is_stopped());
    assert!(leading.ensure().unwrap_err().is_term_ended());
    gate.open.set();
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
}

/// A clock on which the watchdog is never due, as if its thread had no CPU time.
struct NoWatchdog(FakeClock);

impl Clock for NoWatchdog {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall_clock(&self) -> SystemTime {
        self.0.wall_clock()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        if name.ends_with("watchdog") {
            stop.wait();
            return false;
        }
        self.0.wait(duration, stop)
    }
}

#[test]
fn le4_late_renewal_ends_the_work_without_the_watchdog() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let mut lock = HookedLock::new(&server, &clock);
    let is_late = Arc::new(AtomicBool::new(false));
    lock.on_update = Box::new({
        let (is_late, clock) = (Arc::clone(&is_late), clock.clone());
        move || {
            if is_late.swap(false, Ordering::SeqCst) {
                clock.advance(3 * SECOND);
            }
        }
    });
    let candidate = Candidate::start_lock(lock, &clock, |builder| {
        builder.clock(Arc::new(NoWatchdog(clock.clone())))
    });
    let leading = candidate.leading();
    server.fail_always(Fault::Status(500));
    // Only pauses are waits of this clock. The renewals after 2, 4, 6 and 8 s fail.
    for pauses in 1..=4 {
        clock.wait_for_waits(pauses, LIMIT).unwrap();
        clock.advance(2 * SECOND);
    }
    clock.wait_for_waits(5, LIMIT).unwrap();
    server.fail_always(None);
    is_late.store(true, Ordering::SeqCst);
    // The next one is sent after 10 s, and its response arrives after 13 s.
    clock.advance(2 * SECOND);
    assert!(leading.stop().wait_timeout(LIMIT));
    assert!(leading.lost().is_stopped());
    assert!(leading.ensure().unwrap_err().is_term_ended());
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
}

#[test]
fn le22_metric_that_blocks_does_not_delay_the_end_of_work() {
    let (server, clock, gate) = (Server::new(), FakeClock::new(), Gate::new());
    let metrics = BlockingMetrics {
        on_loss: Some(gate.clone()),
        ..BlockingMetrics::default()
    };
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder.metrics(Arc::new(metrics))
    });
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    give_to_another(&server);
    clock.advance(2 * SECOND);
    gate.wait_for_entry();
    assert!(leading.stop().is_stopped() && leading.lost().is_stopped());
    assert!(leading.ensure().unwrap_err().is_term_ended());
    gate.open.set();
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
}

#[test]
fn le4_metric_that_blocks_does_not_delay_the_loss() {
    let (server, clock, gate) = (Server::new(), FakeClock::new(), Gate::new());
    let metrics = BlockingMetrics {
        on_slow_path: Some(gate.clone()),
        ..BlockingMetrics::default()
    };
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder.metrics(Arc::new(metrics))
    });
    let leading = candidate.leading();
    Steps::after(&server, &clock, 2);
    server.edit(|_| ());
    clock.advance(2 * SECOND);
    gate.wait_for_entry();
    clock.wait_for_waits(6, LIMIT).unwrap();
    leading.ensure().unwrap();
    clock.advance(12 * SECOND);
    assert!(leading.stop().wait_timeout(LIMIT));
    assert!(leading.ensure().unwrap_err().is_term_ended());
    gate.open.set();
    assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
}

#[test]
fn callback_of_lost_that_blocks_delays_neither_stop_nor_run() {
    for is_taken in [false, true] {
        let (server, clock, gate) = (Server::new(), FakeClock::new(), Gate::new());
        let candidate = Candidate::start(&server, &clock, "a");
        let leading = candidate.leading();
        Steps::after(&server, &clock, 2);
        let (child, blocks) = (leading.stop().child(), gate.clone());
        let _blocks = leading.lost().on_stop(move || blocks.pass());
        if is_taken {
            give_to_another(&server);
            clock.advance(2 * SECOND);
        } else {
            server.fail_always(Fault::Status(500));
            clock.advance(12 * SECOND);
        }
        assert!(leading.stop().wait_timeout(LIMIT));
        assert!(child.wait_timeout(LIMIT));
        gate.wait_for_entry();
        assert_eq!(candidate.end().unwrap(), Ended::Lost("work done"));
        gate.open.set();
    }
}

#[test]
fn work_of_a_term_that_is_over_never_starts() {
    let (server, clock, gate) = (Server::new(), FakeClock::new(), Gate::new());
    let (mut lock, sink) = (HookedLock::new(&server, &clock), Sink::new());
    lock.on_reference = Box::new({
        let gate = gate.clone();
        move || gate.pass()
    });
    let recorder = sink.recorder().build().unwrap();
    let candidate = Candidate::start_lock(lock, &clock, |builder| builder.recorder(recorder));
    gate.wait_for_entry();
    clock.advance(10 * SECOND);
    gate.open.set();
    // The next term starts its work.
    let leading = candidate.leading();
    assert_eq!(leading.token().transitions, 1);
    leading.ensure().unwrap();
    assert_eq!(candidate.end().unwrap(), Ended::Finished("work done"));
    let holders = server.requests();
    let holders = holders.iter().filter(|request| request.verb == "update");
    let holders: Vec<_> = holders.map(|request| request.holder.as_deref()).collect();
    assert_eq!(holders, [None, Some("a"), None]);
}

#[test]
fn callback_for_new_leaders_that_blocks_does_not_delay_renewals() {
    let (server, clock, gate) = (Server::new(), FakeClock::new(), Gate::new());
    let blocks = gate.clone();
    let candidate = Candidate::start_with(&server, &clock, "a", |builder| {
        builder.on_new_leader(move |_| blocks.pass())
    });
    let leading = candidate.leading();
    gate.wait_for_entry();
    let mut steps = Steps::after(&server, &clock, 2);
    (0..8).for_each(|_| steps.renew(1));
    leading.ensure().unwrap();
    gate.open.set();
    candidate.end().unwrap();
}

#[test]
fn panic_of_reference_keeps_result_and_releases() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let (mut lock, sink) = (HookedLock::new(&server, &clock), Sink::new());
    lock.on_reference = Box::new(|| panic!("no reference today"));
    let recorder = sink.recorder().build().unwrap();
    let candidate = Candidate::start_lock(lock, &clock, |builder| builder.recorder(recorder));
    candidate.leading();
    assert_eq!(candidate.end().unwrap(), Ended::Finished("work done"));
    assert_eq!(server.record().holder, None);
    assert!(sink.events().is_empty());
}

#[test]
fn panic_of_identity_is_an_error_of_build() {
    let (server, clock) = (Server::new(), FakeClock::new());
    let mut lock = HookedLock::new(&server, &clock);
    lock.on_identity = Box::new(|| panic!("no identity today"));
    let error = LeaderElector::new(lock, LeaderElectionOptions::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "leader election default/test: the lock panicked: no identity today"
    );
}
