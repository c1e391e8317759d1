//! Interleaving tests of the elector, on a Lease in memory and with a clock that the tests advance.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Ended, LeaderElectionOptions, LeaderElector, Leading, Lease, Lock, Record};
use k8s_informer::__private::sync::{Condvar, Mutex, any, check, join_all, thread};
use k8s_informer::error::{Error, Status};
use k8s_informer::stop::{DoneSetter, Stop, Stopper};
use k8s_informer::time::Clock;

/// The default retry period.
const RETRY: Duration = Duration::from_secs(2);
/// The time after which a Lease is lost, with the default durations.
const LOST: Duration = Duration::from_secs(12);

/// A clock that stands still until it is advanced. Clones share the time.
#[derive(Clone)]
struct TestClock {
    start: Instant,
    shared: Arc<(Mutex<Duration>, Condvar)>,
    /// Set when the elector and its threads have dropped their clock.
    _dropped: Arc<SetOnDrop>,
}

struct SetOnDrop(DoneSetter);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl TestClock {
    fn new(dropped: &DoneSetter) -> Self {
        Self {
            start: Instant::now(),
            shared: Arc::default(),
            _dropped: Arc::new(SetOnDrop(dropped.clone())),
        }
    }

    fn advance(&self, by: Duration) {
        *self.shared.0.lock() += by;
        self.shared.1.notify_all();
    }

    fn elapsed(&self) -> Duration {
        *self.shared.0.lock()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        self.start + self.elapsed()
    }

    fn wall_clock(&self) -> SystemTime {
        UNIX_EPOCH + self.elapsed()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let shared = Arc::clone(&self.shared);
        let _wakes = stop.on_stop(move || {
            // Takes the lock, so that the wake-up cannot fall between a waiter's check and its
            // wait.
            let _elapsed = shared.0.lock();
            shared.1.notify_all();
        });
        let mut elapsed = self.shared.0.lock();
        let until = *elapsed + duration;
        while *elapsed < until && !stop.is_stopped() {
            self.shared.1.wait(&mut elapsed);
        }
        !stop.is_stopped()
    }
}

/// A Lease that all candidates share.
#[derive(Default)]
struct Server {
    state: Mutex<State>,
    /// Notified by every write.
    changed: Condvar,
    /// Whether a create returns an error if its stop has been set.
    loses_responses: bool,
    /// Updates block until it is set, whatever their stop.
    updates: Option<DoneSetter>,
    /// The first read blocks until its stop is set, and then sets this.
    hangs: Option<DoneSetter>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    /// The number of works in progress.
    working: usize,
    reads: usize,
}

impl Server {
    /// Writes the Lease as it should be after the write of `record`.
    fn write(
        &self,
        mut state: k8s_informer::__private::sync::MutexGuard<'_, State>,
        record: &Record,
    ) -> Lease {
        if record.holder.is_none() {
            assert_eq!(state.working, 0, "released before the work was joined");
        }
        state.version += 1;
        let lease = Lease {
            uid: "uid".to_owned(),
            resource_version: state.version.to_string(),
            record: record.clone(),
            object: String::new(),
        };
        state.lease = Some(lease.clone());
        self.changed.notify_all();
        lease
    }

    /// Writes another holder.
    fn edit(&self, holder: &str) {
        let state = self.state.lock();
        let record = state.lease.as_ref().map(|lease| lease.record.clone());
        let mut record = record.unwrap_or_default();
        record.holder = Some(holder.to_owned());
        self.write(state, &record);
    }

    /// Returns the holder, `None` also if there is no Lease.
    fn holder(&self) -> Option<String> {
        let state = self.state.lock();
        state.lease.as_ref()?.record.holder.clone()
    }

    /// Runs the work of a leader.
    fn work<R>(&self, work: impl FnOnce() -> R) -> R {
        self.state.lock().working += 1;
        let result = work();
        self.state.lock().working -= 1;
        result
    }
}

struct MemoryLock {
    server: Arc<Server>,
    identity: &'static str,
}

fn refused(code: u16) -> Error {
    Error::from_status(Status::failure(code, "", ""))
}

impl Lock for MemoryLock {
    fn name(&self) -> &str {
        "memory"
    }

    fn identity(&self) -> &str {
        self.identity
    }

    fn get(&self, stop: &Stop) -> Result<Lease, Error> {
        let (reads, lease) = {
            let mut state = self.server.state.lock();
            state.reads += 1;
            (state.reads, state.lease.clone())
        };
        if let (Some(ended), 1) = (&self.server.hangs, reads) {
            stop.wait();
            ended.set();
            return Err(Error::stopped());
        }
        lease.ok_or_else(|| refused(404))
    }

    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error> {
        let state = self.server.state.lock();
        if state.lease.is_some() {
            return Err(refused(409));
        }
        let lease = self.server.write(state, record);
        match self.server.loses_responses && stop.is_stopped() {
            true => Err(Error::stopped()),
            false => Ok(lease),
        }
    }

    fn update(&self, record: &Record, last: &Lease, _: &Stop) -> Result<Lease, Error> {
        self.server
            .updates
            .iter()
            .for_each(|updates| updates.wait());
        let state = self.server.state.lock();
        match &state.lease {
            Some(lease) if lease.resource_version == last.resource_version => {
                Ok(self.server.write(state, record))
            }
            _ => Err(refused(409)),
        }
    }

    fn watch(&self, on_free: &mut dyn FnMut(), stop: &Stop) {
        let server = Arc::clone(&self.server);
        let _wakes = stop.on_stop(move || {
            let _state = server.state.lock();
            server.changed.notify_all();
        });
        let mut seen = 0;
        while !stop.is_stopped() {
            let mut state = self.server.state.lock();
            while state.version == seen && !stop.is_stopped() {
                self.server.changed.wait(&mut state);
            }
            seen = state.version;
            drop(state);
            if self.server.holder().is_none() {
                on_free();
            }
        }
    }
}

fn options(clock: &TestClock) -> LeaderElectionOptions {
    LeaderElectionOptions::new()
        // The tests advance the clock by any time before a stopped work sees its stop.
        .grace_period(Duration::from_secs(3600))
        .clock(Arc::new(clock.clone()))
}

fn build(
    server: &Arc<Server>,
    identity: &'static str,
    options: LeaderElectionOptions,
) -> LeaderElector {
    let server = Arc::clone(server);
    let Ok(elector) = LeaderElector::new(MemoryLock { server, identity }, options) else {
        panic!("no elector");
    };
    elector
}

fn has_ended(leading: &Leading) -> bool {
    leading.ensure().is_err_and(|error| error.is_term_ended())
}

/// The Lease is released after the work, and all threads end, whatever happens first: the stop, the
/// end of the work, or renewals.
#[test]
fn stop_races_with_end_of_work_and_renewals() {
    check(|| {
        let (server, stop) = (Arc::new(Server::default()), Stopper::new());
        let (threads, calls) = (DoneSetter::new("threads"), DoneSetter::new("calls"));
        let (clock, leaders) = (TestClock::new(&threads), Arc::new(Mutex::new(Vec::new())));
        let callback = {
            let (leaders, calls) = (Arc::clone(&leaders), SetOnDrop(calls.clone()));
            move |leader: Option<&str>| {
                let _ = &calls;
                leaders.lock().push(leader.map(str::to_owned));
            }
        };
        let elector = build(&server, "me", options(&clock).on_new_leader(callback));
        let others = [
            thread::spawn({
                let stop = stop.clone();
                move || stop.stop()
            }),
            thread::spawn(move || (0..2).for_each(|_| clock.advance(RETRY))),
            thread::spawn({
                let (elector, stop) = (elector.clone(), stop.clone());
                move || match elector.wait_for_leadership(None, &stop) {
                    Ok(()) => {}
                    Err(error) => assert!(error.is_stopped() && stop.is_stopped()),
                }
            }),
        ];
        let waits = any(2) == 0;
        let result = elector.run(
            {
                let server = Arc::clone(&server);
                move |leading| {
                    server.work(|| {
                        if waits {
                            leading.stop().wait();
                        }
                        // The Lease is held until the work has ended.
                        assert!(leading.ensure().is_ok());
                    });
                    leading
                }
            },
            &stop,
        );
        let (has_worked, leading) = match result {
            Ok(Ended::Stopped(leading)) => {
                assert!(stop.is_stopped());
                (leading.is_some(), leading)
            }
            Ok(Ended::Finished(leading)) => {
                assert!(!waits);
                (true, Some(leading))
            }
            Ok(Ended::Lost(_)) | Err(_) => panic!("the Lease was not lost"),
        };
        assert!(leading.iter().all(has_ended));
        assert!(!elector.is_leader());
        assert_eq!(server.holder(), None);
        join_all(others);
        drop((elector, leading));
        threads.wait();
        calls.wait();
        let leaders = leaders.lock();
        assert!(*leaders == [Some("me".to_owned())] || (leaders.is_empty() && !has_worked));
    });
}

/// A stop may end the request that acquires the Lease after the server has carried it out. The
/// Lease is free after the run all the same.
#[test]
fn stop_races_with_the_response_to_an_acquisition() {
    check(|| {
        let (stop, threads) = (Stopper::new(), DoneSetter::new("threads"));
        let server = Arc::new(Server {
            loses_responses: true,
            ..Server::default()
        });
        let elector = build(&server, "me", options(&TestClock::new(&threads)));
        let other = thread::spawn({
            let stop = stop.clone();
            move || stop.stop()
        });
        let result = elector.run(|leading| leading.stop().wait(), &stop);
        assert!(matches!(result, Ok(Ended::Stopped(_))));
        assert_eq!(server.holder(), None);
        join_all([other]);
        drop(elector);
        threads.wait();
    });
}

/// `ensure` on another thread fails from the moment of the loss, even if the Lease is renewed after
/// that.
#[test]
fn ensure_fails_for_good_once_the_lease_is_lost() {
    check(|| {
        let (server, threads) = (Arc::new(Server::default()), DoneSetter::new("threads"));
        let clock = TestClock::new(&threads);
        let elector = build(&server, "me", options(&clock));
        let is_taken = any(2) == 0;
        let result = elector.run(
            {
                let server = Arc::clone(&server);
                move |leading| {
                    let guard = thread::spawn({
                        let leading = leading.clone();
                        move || {
                            for _ in 0..4 {
                                let is_lost = leading.stop().is_stopped();
                                assert!(!is_lost || has_ended(&leading));
                                assert!(!has_ended(&leading) || has_ended(&leading));
                            }
                        }
                    });
                    server.work(|| {
                        if is_taken {
                            server.edit("other");
                        }
                        while !leading.stop().is_stopped() {
                            clock.advance(if is_taken { RETRY } else { LOST });
                            thread::yield_now();
                        }
                        drop(clock);
                        assert!(has_ended(&leading));
                    });
                    (leading, guard)
                }
            },
            &Stop::never(),
        );
        let Ok(Ended::Lost((leading, guard))) = result else {
            panic!("the Lease was lost");
        };
        assert!(has_ended(&leading));
        // The Lease of another holder is left alone.
        assert_eq!(server.holder().as_deref(), is_taken.then_some("other"));
        join_all([guard]);
        drop((elector, leading));
        threads.wait();
    });
}

/// The watchdog ends the term and its work while a renewal blocks. Each signal is set before a
/// callback of either runs, and the renewal does not bring the term back.
#[test]
fn watchdog_ends_the_work_while_a_renewal_blocks() {
    check(|| {
        let (threads, updates) = (DoneSetter::new("threads"), DoneSetter::new("updates"));
        let server = Arc::new(Server {
            updates: Some(updates.clone()),
            ..Server::default()
        });
        let clock = TestClock::new(&threads);
        let elector = build(&server, "me", options(&clock));
        let step = if any(2) == 0 { RETRY } else { LOST };
        let result = elector.run(
            move |leading| {
                let called = DoneSetter::new("called");
                let _callback = leading.lost().on_stop({
                    let (stop, called) = (leading.stop().clone(), called.clone());
                    move || {
                        if stop.is_stopped() {
                            called.set();
                        }
                    }
                });
                while !leading.stop().is_stopped() {
                    clock.advance(step);
                    thread::yield_now();
                }
                assert!(has_ended(&leading) && leading.lost().is_stopped());
                drop(clock);
                called.wait();
                updates.set();
                leading
            },
            &Stop::never(),
        );
        let Ok(Ended::Lost(leading)) = result else {
            panic!("the Lease was lost");
        };
        assert!(has_ended(&leading));
        assert_eq!(server.holder(), None);
        drop((elector, leading));
        threads.wait();
    });
}

/// The watchdog ends a request that does not end on its own. A stop follows at any moment.
#[test]
fn watchdog_ends_a_request_at_its_deadline() {
    check(|| {
        let (threads, ended) = (DoneSetter::new("threads"), DoneSetter::new("ended"));
        let server = Arc::new(Server {
            hangs: Some(ended.clone()),
            ..Server::default()
        });
        let (clock, stop) = (TestClock::new(&threads), Stopper::new());
        let elector = build(&server, "me", options(&clock));
        let step = if any(2) == 0 { RETRY } else { LOST };
        let time = thread::spawn({
            let stop = stop.clone();
            move || {
                while !ended.is_done() {
                    clock.advance(step);
                    thread::yield_now();
                }
                stop.stop();
            }
        });
        let result = elector.run(|leading| leading.stop().wait(), &stop);
        assert!(matches!(result, Ok(Ended::Stopped(_) | Ended::Lost(()))));
        assert_eq!(server.holder(), None);
        join_all([time]);
        drop(elector);
        threads.wait();
    });
}

/// Two candidates work one after the other, and never both pass `ensure`. The clock stands still,
/// so the watch must wake the second one after the release. Each work ends only after a wait for
/// leadership has seen it.
#[test]
fn two_electors_never_lead_at_the_same_time() {
    check(|| {
        let (server, threads) = (Arc::new(Server::default()), DoneSetter::new("threads"));
        let clock = TestClock::new(&threads);
        let terms = Arc::new(Mutex::new(Vec::<Leading>::new()));
        let runs = ["a", "b"].map(|identity| {
            let elector = build(&server, identity, options(&clock));
            let waiter = thread::spawn({
                let elector = elector.clone();
                move || assert!(elector.wait_for_leadership(None, &Stop::never()).is_ok())
            });
            let (server, terms) = (Arc::clone(&server), Arc::clone(&terms));
            thread::spawn(move || {
                let result = elector.run(
                    move |leading| {
                        server.work(|| {
                            terms.lock().push(leading.clone());
                            let ensure_alone = || {
                                assert!(leading.ensure().is_ok());
                                let terms = terms.lock().clone();
                                let me = leading.token();
                                let mut others = terms.iter().filter(|term| term.token() != me);
                                assert!(others.all(has_ended));
                            };
                            ensure_alone();
                            join_all([waiter]);
                            ensure_alone();
                        });
                    },
                    &Stop::never(),
                );
                assert!(matches!(result, Ok(Ended::Finished(()))));
            })
        });
        drop(clock);
        join_all(runs);
        assert_eq!(server.holder(), None);
        let terms = std::mem::take(&mut *terms.lock());
        assert!(terms.iter().all(has_ended));
        let transitions = terms.iter().map(|term| term.token().transitions);
        assert_eq!(transitions.collect::<Vec<_>>(), [0, 1]);
        drop(terms);
        threads.wait();
    });
}
