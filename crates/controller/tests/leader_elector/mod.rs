//! The elector, on a lock in memory and with a clock that the tests advance.

mod acquire;
mod blocked;
mod gates;
mod guards;
mod lease_lock;
mod lock;
mod options;
mod release;
mod release_unconfirmed;
mod terms;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use k8s_informer::Stopper;
use k8s_informer_controller::leader_election::{
    Ended, LeaderElectionError, LeaderElectionOptions, LeaderElector, Leading, Lock,
};
use k8s_informer_testing::FakeClock;

use self::lock::{Server, TestLock};

const LIMIT: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);

/// Lets the clock advance in step with a candidate. Every pause is one wait of the clock. The
/// watchdog waits at every request, at the start of a term, and after a deadline.
struct Steps<'a> {
    server: &'a Server,
    clock: &'a FakeClock,
    requests: usize,
    pauses: usize,
    watches: usize,
}

impl<'a> Steps<'a> {
    /// The leader has sent this number of requests, and pauses for the first time.
    fn after(server: &'a Server, clock: &'a FakeClock, requests: usize) -> Self {
        Self::new(server, clock, requests, 1)
    }

    /// The candidate has sent this number of requests without success, and pauses for the first
    /// time.
    fn failed(server: &'a Server, clock: &'a FakeClock, requests: usize) -> Self {
        Self::new(server, clock, requests, 0)
    }

    fn new(server: &'a Server, clock: &'a FakeClock, requests: usize, watches: usize) -> Self {
        let steps = Self {
            server,
            clock,
            requests,
            pauses: 1,
            watches,
        };
        steps.settle();
        steps
    }

    fn settle(&self) {
        self.server.requests_until(|all| all.len() >= self.requests);
        self.clock
            .wait_for_waits(self.requests + self.pauses + self.watches, LIMIT)
            .unwrap();
    }

    /// Advances to the next attempt, which takes this number of requests, and to the pause after
    /// it.
    fn renew(&mut self, requests: usize) {
        self.clock.advance(2 * SECOND);
        self.requests += requests;
        self.pauses += 1;
        self.settle();
    }
}

/// A candidate that runs on a thread. Its work waits for the test.
struct Candidate {
    elector: LeaderElector,
    stop: Stopper,
    started: Receiver<Leading>,
    /// Ends the work. The work sends nothing on its own.
    finish: Sender<()>,
    run: JoinHandle<Result<Ended<&'static str>, LeaderElectionError>>,
}

impl Candidate {
    fn start(server: &Arc<Server>, clock: &FakeClock, identity: &str) -> Self {
        Self::start_with(server, clock, identity, |options| options)
    }

    fn start_with(
        server: &Arc<Server>,
        clock: &FakeClock,
        identity: &str,
        options: impl FnOnce(LeaderElectionOptions) -> LeaderElectionOptions,
    ) -> Self {
        Self::start_lock(TestLock::new(server, clock, identity), clock, options)
    }

    fn start_lock(
        lock: impl Lock,
        clock: &FakeClock,
        options: impl FnOnce(LeaderElectionOptions) -> LeaderElectionOptions,
    ) -> Self {
        let options = options(LeaderElectionOptions::new().clock(Arc::new(clock.clone())));
        let elector = LeaderElector::new(lock, options).unwrap();
        let stop = Stopper::new();
        let (leads, started) = bounded(1);
        let (finish, finished) = bounded::<()>(1);
        let run = std::thread::spawn({
            let (elector, stop) = (elector.clone(), stop.clone());
            move || {
                elector.run(
                    move |leading| {
                        leads.send(leading).unwrap();
                        let _ = finished.recv();
                        "work done"
                    },
                    &stop,
                )
            }
        });
        Self {
            elector,
            stop,
            started,
            finish,
            run,
        }
    }

    /// Waits until the work has started.
    fn leading(&self) -> Leading {
        self.started.recv_timeout(LIMIT).unwrap()
    }

    /// Ends the work and waits for the end of the run.
    fn end(self) -> Result<Ended<&'static str>, LeaderElectionError> {
        self.finish.send(()).unwrap();
        self.run.join().unwrap()
    }
}
