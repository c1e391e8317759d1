//! Drives an election: sends its requests, waits, and runs the work of the leader.
//!
//! Locks, loggers, metrics, event recorders and callbacks are user code, which may block for any
//! time. Whenever leadership changes, the term and the signals of its work come first, and reports
//! follow. Another thread, the watchdog, ends a term at its deadline. The only user code on this
//! thread is the clock, and, once the term has ended, the callbacks of its signals.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Failure, Now, Policy};
use super::election::{Election, Event, Next, Request};
use super::elector::{Ended, Shared};
use super::error::{Kind, LeaderElectionError};
use super::leading::Leading;
use super::record::Lease;
use super::term::Term;
use crate::events::EventType;
use crate::log;
use k8s_informer::__private::catch;
use k8s_informer::__private::named;
use k8s_informer::__private::sync::Mutex;
use k8s_informer::__private::sync::channel::{Receiver, Sender, unbounded};
use k8s_informer::__private::sync::thread::JoinHandle;
use k8s_informer::error::Error;
use k8s_informer::stop::Stop;
use k8s_informer::time::{Backoff, Clock};

/// A run of an elector, from the first attempt to acquire the Lease until its release.
pub(super) struct Run<'a> {
    shared: &'a Arc<Shared>,
    stop: &'a Stop,
    election: Election,
    /// The term, until its work has been joined.
    leading: Option<Leading>,
    /// Ends the watchdog of the term.
    unwatch: SetOnDrop,
    /// What the metric of the leader shows.
    reported: bool,
    slow_renewals: u64,
    limits: Sender<Limit>,
    leaders: Option<Sender<String>>,
    wake: Arc<Wake>,
}

/// A request that must end after this time.
struct Limit {
    after: Duration,
    /// Ends the request.
    abort: Stop,
    /// The request has ended.
    ended: Stop,
}

/// Wakes a waiting candidate when the Lease becomes free.
#[derive(Default)]
struct Wake {
    /// The end of the current wait, and whether the Lease became free since the last wait. An
    /// innermost lock.
    state: Mutex<(Stop, bool)>,
}

impl Wake {
    fn wake(&self) {
        let wait = {
            let mut state = self.state.lock();
            state.1 = true;
            state.0.clone()
        };
        wait.stop();
    }

    /// Starts a wait, which the returned signal ends. Returns `None` if the Lease became free since
    /// the last call.
    fn start(&self) -> Option<Stop> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.1) {
            return None;
        }
        state.0 = Stop::new();
        Some(state.0.clone())
    }
}

/// The thread of the work, and the signal that it has ended.
struct Work<R> {
    thread: JoinHandle<R>,
    ended: Stop,
}

/// Sets the signal when it is dropped, so also after a panic.
struct SetOnDrop(Stop);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        stop: &'a Stop,
    ) -> Result<Self, LeaderElectionError> {
        if std::mem::replace(&mut shared.status.lock().is_running, true) {
            return Err(shared.error(Kind::Running, None));
        }
        let (limits, requests) = unbounded();
        let (leaders, new_leaders) = unbounded();
        let run = Self {
            shared,
            stop,
            election: candidacy(shared),
            leading: None,
            unwatch: SetOnDrop(Stop::new()),
            reported: false,
            slow_renewals: 0,
            limits,
            leaders: shared.on_new_leader.is_some().then_some(leaders),
            wake: Arc::default(),
        };
        let clock = Arc::clone(&shared.clock);
        run.spawn("limits", move || limit_requests(&requests, &*clock))?;
        if let Some(callback) = shared.on_new_leader.clone() {
            run.spawn("new leader", move || {
                for leader in &new_leaders {
                    if let Err(panic) = catch(|| callback(&leader)) {
                        log::error!("leader election: the callback for a new leader {panic}");
                    }
                }
            })?;
        }
        Ok(run)
    }

    pub(super) fn run<R: Send + 'static>(
        mut self,
        work: impl FnOnce(Leading) -> R + Send + 'static,
    ) -> Result<Ended<R>, LeaderElectionError> {
        let leading = loop {
            let term = match self.acquire()? {
                Some(term) if !self.stop.is_stopped() => term,
                _ => {
                    self.release();
                    return Ok(Ended::Stopped(None));
                }
            };
            let leading = match self.lead(term) {
                Ok(leading) => leading,
                Err(error) => {
                    self.release();
                    return Err(error);
                }
            };
            // The process can have been paused since the acquisition, or user code have blocked.
            if leading.ensure().is_ok() {
                break leading;
            }
            self.release();
            log::warn!(
                "leader election {}: the term was over before its work could start; trying again",
                self.shared.name
            );
            self.record_event("stopped leading");
            self.election = candidacy(self.shared);
            self.slow_renewals = 0;
        };
        let work = match self.start(leading, work) {
            Ok(work) => work,
            Err(error) => {
                self.release();
                return Err(error);
            }
        };
        let ending = self.hold(&work)?;
        let result = work.thread.join();
        self.release();
        self.record_event("stopped leading");
        match (result, ending) {
            (Err(panic), _) => resume_unwind(panic),
            (Ok(result), Ending::Lost) => Ok(Ended::Lost(result)),
            (Ok(result), Ending::Stopped) => Ok(Ended::Stopped(Some(result))),
            (Ok(result), Ending::Finished) => Ok(Ended::Finished(result)),
        }
    }

    /// Waits for leadership. Returns `None` if the stop was set first.
    fn acquire(&mut self) -> Result<Option<Term>, LeaderElectionError> {
        let stop = self.stop.child();
        let _ended = SetOnDrop(stop.clone());
        if self.shared.watches {
            let (shared, wake, stop) = (
                Arc::clone(self.shared),
                Arc::clone(&self.wake),
                stop.clone(),
            );
            self.spawn("watch", move || {
                if let Err(panic) = catch(|| shared.lock.watch(&stop, &mut || wake.wake())) {
                    log::error!("leader election {}: the watch {panic}", shared.name);
                }
            })?;
        }
        while !stop.is_stopped() {
            let now = self.shared.now();
            match self.election.next(now) {
                Next::Wait(wait) => match self.wake.start() {
                    Some(freed) => self.pause(Some(wait), &freed, &stop),
                    None => self.election.wake(),
                },
                Next::Send(request, limit) => {
                    let response = send(self.shared, &self.limits, request, limit, &stop);
                    if let Event::Acquired(term) = self.answer(now, response) {
                        return Ok(Some(term));
                    }
                }
                Next::Lost | Next::Idle => break,
            }
        }
        Ok(None)
    }

    /// Begins a term: publishes and watches it, and then reports it.
    fn lead(&mut self, term: Term) -> Result<Leading, LeaderElectionError> {
        let leading = Leading {
            shared: Arc::clone(self.shared),
            id: term.id.clone(),
            stop: self.stop.child(),
            lost: Stop::new(),
        };
        self.shared.status.lock().term = Some(term);
        self.leading = Some(leading.clone());
        self.unwatch = SetOnDrop(Stop::new());
        let (watched, unwatch) = (leading.clone(), self.unwatch.0.clone());
        self.spawn("watchdog", move || watch_deadline(&watched, &unwatch))?;
        self.shared.changed.notify_all();
        self.report_leadership(true);
        log::info!(
            "leader election {}: {} leads",
            self.shared.name,
            self.shared.identity
        );
        self.record_event("became leader");
        Ok(leading)
    }

    /// Starts the work of a term.
    fn start<R: Send + 'static>(
        &self,
        leading: Leading,
        work: impl FnOnce(Leading) -> R + Send + 'static,
    ) -> Result<Work<R>, LeaderElectionError> {
        let ended = Stop::new();
        let set_on_drop = SetOnDrop(ended.clone());
        let name = format!("leader {}", self.shared.name);
        let thread = named(name, None).spawn(move || {
            let _set_on_drop = set_on_drop;
            work(leading)
        });
        match thread {
            Ok(thread) => Ok(Work { thread, ended }),
            Err(error) => Err(self.shared.error(Kind::Thread(error.to_string()), None)),
        }
    }

    /// Renews the Lease until the work has ended.
    fn hold<R>(&mut self, work: &Work<R>) -> Result<Ending, LeaderElectionError> {
        // The end of the grace period, once the work has been stopped.
        let mut drain: Option<Drain> = None;
        loop {
            // Read first: work that ended because of a loss must not look as if it had finished.
            let has_ended = work.ended.is_stopped();
            let is_known = matches!(&drain, Some(drain) if matches!(drain.ending, Ending::Lost));
            if !is_known && self.shared.has_term_ended() {
                match &mut drain {
                    Some(drain) => drain.ending = Ending::Lost,
                    None => drain = Some(Drain::start(self.shared, Ending::Lost)),
                }
                self.report_leadership(false);
                log::warn!(
                    "leader election {}: the Lease is lost; the work is stopped",
                    self.shared.name
                );
            }
            if has_ended {
                return Ok(match drain {
                    Some(drain) => drain.ending,
                    None if self.stop.is_stopped() => Ending::Stopped,
                    None => Ending::Finished,
                });
            }
            let now = self.shared.now();
            if drain.is_none() && self.stop.is_stopped() {
                drain = Some(Drain::start(self.shared, Ending::Stopped));
            }
            let left = drain.as_ref().map(|drain| drain.left(self.shared));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(self.abandon());
            }
            // Only the first stop wakes a wait.
            let stop = if drain.is_some() {
                &work.ended
            } else {
                self.stop
            };
            match self.election.next(now) {
                Next::Wait(wait) => self.pause(
                    Some(left.map_or(wait, |left| left.min(wait))),
                    &work.ended,
                    stop,
                ),
                Next::Idle => self.pause(left, &work.ended, stop),
                Next::Send(request, limit) => {
                    let limit = left.map_or(limit, |left| left.min(limit));
                    let response = send(self.shared, &self.limits, request, limit, &work.ended);
                    self.answer(now, response);
                }
                Next::Lost => self.lose(),
            }
        }
    }

    /// Gives up work that does not end.
    fn abandon(&mut self) -> LeaderElectionError {
        self.shared.end_term();
        let mut status = self.shared.status.lock();
        status.is_stuck = true;
        let error = self
            .shared
            .error(Kind::Stuck(self.shared.grace), status.last_error.clone());
        drop(status);
        self.report_leadership(false);
        log::error!("{error}");
        error
    }

    /// Ends the term and its work, because the Lease is lost.
    fn lose(&self) {
        if let Some(leading) = &self.leading {
            leading.lose();
        }
        self.unwatch.0.stop();
    }

    /// Ends the term for the guards, and releases the Lease if it is still this term's, or if a
    /// request without a response has acquired it. Does not release it while work still runs.
    fn release(&mut self) {
        self.shared.end_term();
        self.leading = None;
        self.unwatch.0.stop();
        // Two leaders in the metrics must mean two leaders, so the release follows the report.
        self.report_leadership(false);
        if !self.shared.releases || self.shared.status.lock().is_stuck {
            return;
        }
        self.election.release(self.shared.now());
        let never = Stop::new();
        loop {
            let now = self.shared.now();
            let Next::Send(request, limit) = self.election.next(now) else {
                return;
            };
            let response = send(self.shared, &self.limits, request, limit, &never);
            self.answer(now, response);
        }
    }

    /// Passes a response to the election, and publishes what it has changed.
    fn answer(&mut self, sent: Now, (is_read, response): (bool, Result<Lease, Error>)) -> Event {
        let result = response.as_ref().map(drop).map_err(Error::clone);
        let response = response.map_err(|error| match error.is_not_found() {
            true => Failure::NotFound,
            false => Failure::Other,
        });
        let event = self.election.answer(sent, self.shared.now(), response);
        let leader = self.election.core().observed().0.holder.clone();
        let mut status = self.shared.status.lock();
        status.leader = leader;
        if let (Event::Renewed(sent), Some(term)) = (&event, &mut status.term) {
            term.renew(*sent);
            self.shared.changed.notify_all();
        }
        let log = status.record(is_read, result);
        drop(status);
        if let Event::Lost = event {
            self.lose();
        }
        if let (Some(leaders), false) = (&self.leaders, matches!(event, Event::Released)) {
            // The receiver ends after the sender.
            let _ = self
                .election
                .new_leader()
                .map(|leader| leaders.send(leader.to_owned()));
        }
        if let Some(error) = log {
            log::warn!("leader election {}: {error}", self.shared.name);
        }
        let slow_renewals = self.election.core().slow_renewals();
        if let Some(metrics) = &self.shared.metrics {
            for _ in self.slow_renewals..slow_renewals {
                crate::metrics::call(|| metrics.slow_path());
            }
        }
        self.slow_renewals = slow_renewals;
        event
    }

    /// Records an event about the Lease.
    fn record_event(&self, what: &str) {
        let (Some(recorder), Some(lease)) = (&self.shared.recorder, self.election.core().lease())
        else {
            return;
        };
        let recorded = match catch(|| self.shared.lock.reference(lease)) {
            Ok(None) => return,
            Ok(Some(reference)) => {
                let note = format!("{} {what}", self.shared.identity);
                let event =
                    recorder.new_event(&reference, EventType::Normal, "LeaderElection", &note);
                // The note does not tell events apart, but the action does.
                let recorded = event.action(what).send();
                recorded.map_err(|error| error.to_string())
            }
            Err(panic) => Err(format!(
                "no event that this candidate {what}: the lock {panic}"
            )),
        };
        if let Err(error) = recorded {
            log::warn!("leader election {}: {error}", self.shared.name);
        }
    }

    fn report_leadership(&mut self, is_leader: bool) {
        let is_reported = std::mem::replace(&mut self.reported, is_leader) == is_leader;
        if let (Some(metrics), false) = (&self.shared.metrics, is_reported) {
            crate::metrics::call(|| metrics.is_leader(is_leader));
        }
    }

    /// Waits for a time, or until one of the signals is set.
    fn pause(&self, wait: Option<Duration>, first: &Stop, second: &Stop) {
        let wake = Stop::new();
        let wakes = |stop: &Stop| {
            let wake = wake.clone();
            stop.on_stop(move || wake.stop())
        };
        let _wakes = [wakes(first), wakes(second)];
        match wait {
            Some(wait) => drop(self.shared.clock.wait(wait, &wake)),
            None => wake.wait(),
        }
    }

    fn spawn(
        &self,
        role: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), LeaderElectionError> {
        let name = format!("leader election {}: {role}", self.shared.name);
        match named(name, None).spawn(work) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.shared.error(Kind::Thread(error.to_string()), None)),
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // A logger or a clock can have panicked while the work runs.
        self.lose();
        let mut status = self.shared.status.lock();
        // Stuck work still runs, so the elector can't run again, and stays unhealthy.
        if !status.is_stuck {
            status.is_running = false;
            status.term = None;
        }
    }
}

/// Why the work of a term ends.
#[derive(Clone, Copy)]
enum Ending {
    Lost,
    Stopped,
    Finished,
}

/// The time after the work was stopped.
struct Drain {
    ending: Ending,
    began: Now,
}

impl Drain {
    fn start(shared: &Shared, ending: Ending) -> Self {
        Self {
            ending,
            began: shared.now(),
        }
    }

    /// What is left of the grace period.
    fn left(&self, shared: &Shared) -> Duration {
        let passed = shared.now().elapsed.saturating_sub(self.began.elapsed);
        shared.grace.saturating_sub(passed)
    }
}

/// Sends a request, and waits for its response until `limit` or `stop`. Returns whether it was a
/// read, and the response.
fn send(
    shared: &Shared,
    limits: &Sender<Limit>,
    request: Request<'_>,
    limit: Duration,
    stop: &Stop,
) -> (bool, Result<Lease, Error>) {
    let is_read = matches!(request, Request::Get);
    let (abort, ended) = (stop.child(), Stop::new());
    let _ended = SetOnDrop(ended.clone());
    // The receiver ends after the sender.
    let _ = limits.send(Limit {
        after: limit,
        abort: abort.clone(),
        ended,
    });
    let lock = &shared.lock;
    let response = catch(|| match request {
        Request::Get => lock.get(&abort),
        Request::Create(record) => lock.create(record, &abort),
        Request::Update(record, last) => lock.update(record, last, &abort),
    });
    let response = match response {
        Ok(Err(_)) if abort.is_stopped() && !stop.is_stopped() => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no response within {limit:?}"),
        )
        .into()),
        Ok(response) => response,
        Err(panic) => Err(Error::other(format!("the lock {panic}"))),
    };
    (is_read, response)
}

/// Returns a candidate that knows nothing of the Lease.
fn candidacy(shared: &Shared) -> Election {
    // Jitter below the period: a random part of a second.
    let mut random = Backoff::new(Duration::from_secs(1), 1.0, Duration::MAX, 1.0);
    Election::new(
        shared.identity.clone(),
        shared.times,
        Policy::SAFE,
        Box::new(move || (random.step() - Duration::from_secs(1)).as_secs_f64()),
    )
}

/// Ends the term if it is not renewed in time, and runs the callbacks of its signals if it was
/// lost.
fn watch_deadline(leading: &Leading, unwatch: &Stop) {
    let shared = &leading.shared;
    while !unwatch.is_stopped() {
        match leading.left() {
            Some(left) if left.is_zero() => {
                if leading.lose() {
                    break;
                }
            }
            Some(left) => {
                // A wait does not advance while the machine is suspended, so it must be short.
                let wait = left.min(shared.times.retry_period);
                shared.clock.wait(wait, unwatch);
            }
            // The thread that ends the term sets its signals, and then `unwatch`.
            None => unwatch.wait(),
        }
    }
    if leading.lost.is_stopped() {
        leading.lost.stop();
        leading.stop.stop();
    }
}

/// Ends requests that take too long.
fn limit_requests(requests: &Receiver<Limit>, clock: &dyn Clock) {
    for Limit {
        after,
        abort,
        ended,
    } in requests
    {
        if clock.wait(after, &ended) {
            abort.stop();
        }
    }
}
