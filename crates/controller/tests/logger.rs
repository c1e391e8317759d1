//! A logger may block, panic or take long while an elector logs.

#![allow(clippy::unwrap_used)]

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, Once};
use std::thread;
use std::time::Duration;

use k8s_informer::error::Status;
use k8s_informer::stop::DoneSetter;
use k8s_informer::{Error, Stop, Stopper};
use k8s_informer_controller::leader_election::{
    Ended, LeaderElectionOptions, LeaderElector, Leading, Lease, Lock, Record,
};
use k8s_informer_testing::FakeClock;

const SOON: Duration = Duration::from_secs(20);

/// A text, and the closure that is called when a logged line contains it.
type Hook = (&'static str, Arc<dyn Fn() + Send + Sync>);
static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

struct CallingLogger;

/// Calls `hook` for each logged line that contains `text`.
fn on_log(text: &'static str, hook: impl Fn() + Send + Sync + 'static) {
    static SET: Once = Once::new();
    SET.call_once(|| {
        log::set_logger(&CallingLogger).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
    HOOKS.lock().unwrap().push((text, Arc::new(hook)));
}

impl log::Log for CallingLogger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        let hooks = HOOKS.lock().unwrap().clone();
        let called = hooks.iter().filter(|(text, _)| line.contains(text));
        called.for_each(|(_, hook)| hook());
    }

    fn flush(&self) {}
}

/// A Lease in memory. Its renewals fail on request.
struct LocalLock {
    name: &'static str,
    state: Arc<Mutex<LocalLease>>,
}

#[derive(Default)]
struct LocalLease {
    lease: Option<Lease>,
    version: u64,
    is_broken: bool,
}

fn refused(code: u16) -> Error {
    Error::from_status(Status::failure(code, "", ""))
}

impl LocalLease {
    fn write(&mut self, record: &Record) -> Lease {
        self.version += 1;
        let mut lease = Lease::default();
        lease.record = record.clone();
        lease.resource_version = self.version.to_string();
        self.lease.insert(lease).clone()
    }
}

impl Lock for LocalLock {
    fn name(&self) -> &str {
        self.name
    }

    fn identity(&self) -> &str {
        "a"
    }

    fn get(&self, _: &Stop) -> Result<Lease, Error> {
        let lease = self.state.lock().unwrap().lease.clone();
        lease.ok_or_else(|| refused(404))
    }

    fn create(&self, record: &Record, _: &Stop) -> Result<Lease, Error> {
        Ok(self.state.lock().unwrap().write(record))
    }

    fn update(&self, record: &Record, last: &Lease, _: &Stop) -> Result<Lease, Error> {
        let mut state = self.state.lock().unwrap();
        let version = state.version.to_string();
        match state.is_broken {
            true => Err(Error::other(format!("no renewal of {} today", self.name))),
            false if version == last.resource_version => Ok(state.write(record)),
            false => Err(refused(409)),
        }
    }
}

/// A run of an elector whose work waits for its stop.
type Election = (
    Arc<Mutex<LocalLease>>,
    FakeClock,
    Receiver<Leading>,
    Stopper,
    thread::JoinHandle<Ended<()>>,
);

fn run_election(name: &'static str) -> Election {
    let state = Arc::new(Mutex::new(LocalLease::default()));
    let (clock, (leads, leading)) = (FakeClock::new(), channel());
    let lock = LocalLock {
        name,
        state: Arc::clone(&state),
    };
    let options = LeaderElectionOptions::new().clock(Arc::new(clock.clone()));
    let elector = LeaderElector::new(lock, options).unwrap();
    let stop = Stopper::new();
    let signal = stop.signal();
    let run = thread::spawn(move || {
        let work = move |leading: Leading| {
            let stop = leading.stop().clone();
            leads.send(leading).unwrap();
            stop.wait();
        };
        elector.run(work, &signal).unwrap()
    });
    (state, clock, leading, stop, run)
}

/// Waits until a leader pauses. Its watchdog waits at two requests and at the start of the term.
fn settle(clock: &FakeClock) {
    clock.wait_for_waits(4, SOON).unwrap();
}

/// A hook that blocks until the second value is set. The first one is set when it is called.
fn gate() -> (DoneSetter, DoneSetter, impl Fn() + Send + Sync) {
    let (entered, open) = (DoneSetter::new("entered"), DoneSetter::new("open"));
    let hook = {
        let (entered, open) = (entered.clone(), open.clone());
        move || {
            entered.set();
            open.wait();
        }
    };
    (entered, open, hook)
}

#[test]
fn logger_that_blocks_does_not_delay_the_loss_of_a_lease() {
    let (entered, open, hook) = gate();
    on_log("no renewal of slow-failure today", hook);
    let (state, clock, leading, _, run) = run_election("slow-failure");
    let leading = leading.recv_timeout(SOON).unwrap();
    settle(&clock);
    state.lock().unwrap().is_broken = true;
    clock.advance(Duration::from_secs(2));
    assert!(entered.wait_timeout(SOON));
    clock.wait_for_waits(5, SOON).unwrap();
    clock.advance(Duration::from_secs(10));
    assert!(leading.stop().wait_timeout(SOON));
    assert!(leading.lost().is_stopped());
    assert!(leading.ensure().unwrap_err().is_term_ended());
    open.set();
    assert_eq!(run.join().unwrap(), Ended::Lost(()));
}

#[test]
fn logger_that_blocks_does_not_delay_the_stop_of_lost_work() {
    let (entered, open, hook) = gate();
    on_log("election slow-loss: the Lease is lost", hook);
    let (state, clock, leading, _, run) = run_election("slow-loss");
    let leading = leading.recv_timeout(SOON).unwrap();
    settle(&clock);
    {
        let mut state = state.lock().unwrap();
        let mut record = state.lease.as_ref().unwrap().record.clone();
        record.holder = Some("other".to_owned());
        state.write(&record);
    }
    clock.advance(Duration::from_secs(2));
    assert!(entered.wait_timeout(SOON));
    assert!(leading.stop().is_stopped() && leading.lost().is_stopped());
    assert!(leading.ensure().unwrap_err().is_term_ended());
    open.set();
    assert_eq!(run.join().unwrap(), Ended::Lost(()));
}

#[test]
fn work_does_not_start_after_a_logger_has_blocked_too_long() {
    let (entered, open, hook) = gate();
    on_log("election slow-start: a leads", hook);
    let (_, clock, leading, stop, run) = run_election("slow-start");
    assert!(entered.wait_timeout(SOON));
    clock.advance(Duration::from_secs(10));
    open.set();
    // The work is that of the next term.
    let leading = leading.recv_timeout(SOON).unwrap();
    assert_eq!(leading.token().transitions, 1);
    leading.ensure().unwrap();
    stop.stop();
    assert_eq!(run.join().unwrap(), Ended::Stopped(Some(())));
}

#[test]
fn logger_that_panics_does_not_keep_the_work_running() {
    on_log("no renewal of no-logger today", || panic!("no line today"));
    let (state, clock, leading, _, run) = run_election("no-logger");
    let leading = leading.recv_timeout(SOON).unwrap();
    settle(&clock);
    state.lock().unwrap().is_broken = true;
    clock.advance(Duration::from_secs(2));
    assert!(run.join().is_err());
    assert!(leading.stop().wait_timeout(SOON));
    assert!(leading.ensure().unwrap_err().is_term_ended());
}
