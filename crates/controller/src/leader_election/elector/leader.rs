//! A run of an elector: it acquires the Lease, runs the work of the leader, and releases the Lease.
//!
//! Locks, loggers, metrics, event recorders and callbacks are user code, which may block for any
//! time. Whenever leadership changes, the term and the signals of its work come first, and reports
//! follow. The watchdog, a thread on which no user code runs except for the clock, ends a term and
//! each request at its deadline.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Attempt, Ended, Shared, Status};
use crate::events::EventType;
use crate::leader_election::error::{Kind, LeaderElectionError};
use crate::leader_election::steps::{Event, Next, Now, Observation, Report, Request, Term, TermId};
use crate::log;
use k8s_informer::__private::named;
use k8s_informer::__private::sync::Mutex;
use k8s_informer::__private::sync::channel::{Receiver, Sender, unbounded};
use k8s_informer::__private::sync::thread::JoinHandle;
use k8s_informer::__private::{StopOnDrop, catch};
use k8s_informer::client::WriteGate;
use k8s_informer::error::Error;
use k8s_informer::stop::{Stop, Stopper};

/// A term of leadership, which [`LeaderElector::run`](super::LeaderElector::run) passes to the
/// work. Clones refer to the same term.
#[derive(Clone)]
pub struct Leading {
    shared: Arc<Shared>,
    id: TermId,
    /// Ends the work: the elector was stopped, or has lost the Lease. The watchdog, the thread of the
    /// election and `end_term` set the three signals after a loss.
    stop: Stopper,
    /// The Lease is lost.
    lost: Stopper,
    /// Ends the requests of gated clients: the Lease is lost, or the work was joined and the release
    /// follows. First of the three, so that a request knows why it ends.
    ended: Stopper,
}

impl Leading {
    /// Returns the signal that ends the work: the elector was stopped, or has lost the Lease. It is
    /// a child of the stop that was passed to [`run`](super::LeaderElector::run).
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns the signal that the Lease is lost. [`stop`](Self::stop) is set as well, so work only
    /// needs this signal to end without a grace period after a loss. After a loss, callbacks of both
    /// signals run on a separate thread.
    pub fn lost(&self) -> &Stop {
        &self.lost
    }

    /// Checks that no other candidate can be the leader now. This reads clocks and a lock, and
    /// sends no request.
    ///
    /// It also succeeds after a stop, while the Lease is still held. Call it immediately before an
    /// operation that must not happen twice. It can't guard what happens after it returns: see
    /// [the module](crate::leader_election).
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_leading`](LeaderElectionError::is_not_leading) error if the last renewal
    /// began more than the renew deadline ago. This can pass, with the next renewal. If the term
    /// has ended, every call fails, and the error
    /// [`is_term_ended`](LeaderElectionError::is_term_ended).
    ///
    /// ```
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// use k8s_informer_controller::leader_election::{Ended, LeaderElectionOptions, LeaderElector, LeaseLock};
    ///
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let elector = LeaderElector::new(LeaseLock::new(&client, "default", "a"), LeaderElectionOptions::new())?;
    /// let Ended::Finished(leading) = elector.run(|leading| {
    ///     leading.ensure().unwrap();
    ///     leading
    /// }, &Stop::never())? else { panic!("the work has ended first") };
    /// // The Lease was released after the work.
    /// assert!(leading.ensure().unwrap_err().is_term_ended());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ensure(&self) -> Result<(), LeaderElectionError> {
        let now = self.shared.now();
        let mut status = self.shared.status.lock();
        let term = status.term(&self.id);
        let verdict = Verdict::of(term, now);
        self.shared.check(verdict, &status)
    }

    /// Whether a gated request may leave now: [`WriteGate::pass`].
    pub(crate) fn pass(&self) -> Result<Stop, Box<dyn StdError + Send + Sync>> {
        self.ensure()?;
        Ok(self.ended.signal())
    }

    /// Returns the gate of clients that may change something only in this term.
    pub(crate) fn gate(&self) -> impl WriteGate {
        TermGate(self.clone())
    }

    /// Returns the fencing token of the term. No other term has the same, unless the Lease was
    /// edited.
    pub fn token(&self) -> Token {
        Token {
            lease_uid: self.id.uid.clone(),
            transitions: self.id.transitions,
        }
    }

    /// Lets the Lease expire instead of releasing it, because work of this term still runs. The
    /// elector can't run again.
    pub(crate) fn keep_lease(&self) {
        self.shared.status.lock().is_stuck = true;
    }

    /// When the Lease was acquired, as it is written there.
    pub(crate) fn acquired(&self) -> Option<i64> {
        self.id.acquire_time
    }

    /// Ends the term and its work, as if the Lease was lost. The Lease is renewed until the work has
    /// been joined, and then released.
    pub(crate) fn end_term(&self) {
        let mut status = self.shared.status.lock();
        let is_current = status.term(&self.id).is_some();
        let has_ended = is_current && status.steps.end_term();
        drop(status);
        if has_ended {
            self.end_work();
        }
    }

    /// Returns the time until the term is lost if it is not renewed, or `None` if it has ended.
    /// Ends it if the time is over: first for [`ensure`](Self::ensure), then for the work.
    fn left(&self, now: Now) -> Option<Duration> {
        let mut status = self.shared.status.lock();
        let term = status.term(&self.id)?;
        let (has_expired, left) = (term.expire(now), term.left(now));
        drop(status);
        if has_expired {
            self.end_work();
        }
        left
    }

    /// Ends the work of a term that is lost. Its requests end first, so that they know the reason.
    fn end_work(&self) {
        let signals = [&self.ended, &self.lost, &self.stop];
        set(&self.shared, signals.map(Stopper::clone));
    }
}

impl fmt::Debug for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leading")
            .field("lock", &self.shared.name)
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

/// Identifies a term. With each term of a Lease, `transitions` increases; a Lease that was deleted
/// and created again has another `lease_uid`. If the Lease is edited to have `i32::MAX` transitions,
/// later terms all have this number, and so the same token: delete such a Lease.
///
/// Store it beside the data that the leader writes. Reject a write with the same `lease_uid` and
/// fewer `transitions`; if the `lease_uid` is another, the order is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Token {
    /// The UID of the Lease.
    pub lease_uid: String,
    /// How many terms of this Lease there were before.
    pub transitions: i32,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lease_uid, self.transitions)
    }
}

/// Lets requests out in one term.
struct TermGate(Leading);

impl WriteGate for TermGate {
    fn pass(&self) -> Result<Stop, Box<dyn StdError + Send + Sync>> {
        self.0.pass()
    }
}

/// Whether a term is valid.
pub(super) enum Verdict {
    Valid,
    /// It was not renewed for this time. The next renewal makes it valid again.
    Expired(Duration),
    Ended,
}

impl Verdict {
    /// `None` is a term that another one has followed, or none at all.
    pub(super) fn of(term: Option<&mut Term>, now: Now) -> Self {
        let Some(term) = term else {
            return Self::Ended;
        };
        match (term.is_valid(now), term.left(now)) {
            (true, _) => Self::Valid,
            (false, Some(_)) => Self::Expired(term.age(now)),
            (false, None) => Self::Ended,
        }
    }
}

impl Shared {
    /// Returns the error for a term that is not valid.
    pub(super) fn check(
        &self,
        verdict: Verdict,
        status: &Status,
    ) -> Result<(), LeaderElectionError> {
        let kind = match verdict {
            Verdict::Valid => return Ok(()),
            Verdict::Expired(age) => Kind::Expired {
                age,
                limit: self.options.times.renew_deadline,
            },
            Verdict::Ended => Kind::TermEnded,
        };
        Err(self.error(kind, status.last_error.get().cloned()))
    }
}

impl Status {
    fn term(&mut self, id: &TermId) -> Option<&mut Term> {
        self.steps.term().filter(|term| term.id == *id)
    }
}

/// What the watchdog ends, until the next message.
struct Watch {
    leading: Option<Leading>,
    /// The deadline of a request, and the signal that ends it, which is gone when it has ended.
    request: Option<(Duration, Weak<Stopper>)>,
    /// Set when there is another message.
    next: Stopper,
}

/// Ends terms and requests at their deadlines.
fn watch(shared: &Shared, watches: &Receiver<Watch>) {
    // A wait does not advance while the machine is suspended, so it must be short. Renewals are
    // more frequent, and end it.
    let longest = 2 * shared.options.times.retry_period;
    for mut watch in watches {
        loop {
            let now = shared.now();
            let term = watch.leading.as_ref().and_then(|leading| leading.left(now));
            let term = term.map(|left| left.min(longest));
            let deadline = watch.request.as_ref().map(|(deadline, _)| *deadline);
            let request = deadline.map(|deadline| deadline.saturating_sub(now.elapsed));
            if request == Some(Duration::ZERO) {
                let request = watch.request.take();
                if let Some(abort) = request.and_then(|(_, abort)| abort.upgrade()) {
                    set(shared, [Stopper::clone(&abort)]);
                }
                continue;
            }
            match term.into_iter().chain(request).min() {
                Some(left) => drop(shared.options.clock.wait(left, &watch.next)),
                None => watch.next.wait(),
            }
            if watch.next.is_stopped() {
                break;
            }
        }
    }
}

/// Sets the signals, and then runs their callbacks, which are user code, on another thread.
fn set<const N: usize>(shared: &Shared, signals: [Stopper; N]) {
    signals.iter().for_each(Stopper::stop_without_callbacks);
    let callbacks = signals.clone();
    let name = format!("leader election {}: callbacks", shared.name);
    let thread = named(name, None).spawn(move || callbacks.iter().for_each(Stopper::stop));
    if thread.is_err() {
        signals.iter().for_each(Stopper::stop);
    }
}

/// A run of an elector, from the first attempt to acquire the Lease until its release.
pub(super) struct Run<'a> {
    shared: &'a Arc<Shared>,
    stop: &'a Stop,
    /// The term, until its work has been joined.
    leading: Option<Leading>,
    watchdog: Sender<Watch>,
    /// Ends the requests of gated clients at the end of the term that was acquired last.
    ended: Stopper,
    /// Ends what the watchdog does now.
    next: StopOnDrop,
    /// What the metric of the leader shows.
    reported: bool,
    leaders: Option<Sender<Option<String>>>,
}

/// How a single attempt to acquire the Lease has ended.
enum Acquisition {
    Acquired(TermId),
    NotFree,
    Stopped,
}

/// Why the work of a term ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Lost,
    Stopped,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        stop: &'a Stop,
    ) -> Result<Self, LeaderElectionError> {
        if std::mem::replace(&mut shared.status.lock().is_running, true) {
            return Err(shared.error(Kind::Running, None));
        }
        let (watchdog, watches) = unbounded();
        let (leaders, new_leaders) = unbounded();
        let callback = shared.options.on_new_leader.clone();
        let run = Self {
            shared,
            stop,
            leading: None,
            watchdog,
            ended: Stopper::new(),
            next: StopOnDrop(Stopper::new()),
            reported: false,
            leaders: callback.is_some().then_some(leaders),
        };
        let watched = Arc::clone(shared);
        run.spawn(run.role("watchdog"), move || watch(&watched, &watches))?;
        if let Some(callback) = callback {
            run.spawn(run.role("new leader"), move || {
                for leader in &new_leaders {
                    if let Err(panic) = catch(|| callback(leader.as_deref())) {
                        log::error!("leader election: the callback for a new leader {panic}");
                    }
                }
            })?;
        }
        Ok(run)
    }

    /// Waits for leadership, and runs the work.
    pub(super) fn run<R: Send + 'static>(
        mut self,
        work: impl FnOnce(Leading) -> R + Send + 'static,
    ) -> Result<Ended<R>, LeaderElectionError> {
        loop {
            let Some(id) = self.acquire()? else {
                self.release();
                return Ok(Ended::Stopped(None));
            };
            if let Some(leading) = self.lead(id) {
                return self.work(&leading, work);
            }
        }
    }

    /// Runs the work if the Lease is free, or expired as far as `observation` shows.
    pub(super) fn run_if_free<R: Send + 'static>(
        mut self,
        observation: Option<Observation>,
        work: impl FnOnce(Leading) -> R + Send + 'static,
    ) -> Result<Attempt<R>, LeaderElectionError> {
        // The age of the Lease counts on, so an expired one can be taken without another wait.
        if let Some(observation) = observation {
            self.shared.status.lock().steps.observe(observation);
        }
        loop {
            match self.try_acquire() {
                Acquisition::Acquired(id) => {
                    if let Some(leading) = self.lead(id) {
                        return self.work(&leading, work).map(Attempt::Ended);
                    }
                }
                Acquisition::NotFree => {
                    // First, because it is forgotten with the run.
                    let observed = self.shared.status.lock().steps.observed().cloned();
                    // A write without a response can have acquired the Lease.
                    self.release();
                    return Ok(Attempt::NotFree(observed));
                }
                Acquisition::Stopped => {
                    self.release();
                    return Ok(Attempt::Ended(Ended::Stopped(None)));
                }
            }
        }
    }

    /// Runs the work of a term on a thread, and releases the Lease when it has been joined.
    fn work<R: Send + 'static>(
        mut self,
        leading: &Leading,
        work: impl FnOnce(Leading) -> R + Send + 'static,
    ) -> Result<Ended<R>, LeaderElectionError> {
        // Set when the work has ended.
        let ended = Stopper::new();
        let (set_ended, of_work) = (StopOnDrop(ended.clone()), leading.clone());
        let name = format!("leader {}", self.shared.name);
        let started = self.spawn(name, move || {
            let _set_ended = set_ended;
            work(of_work)
        });
        let thread = match started {
            Ok(thread) => thread,
            Err(error) => {
                self.release();
                return Err(error);
            }
        };
        let ending = self.hold(leading, &ended)?;
        let result = thread.join();
        self.release();
        self.record_event("stopped leading");
        if ending == Some(Ending::Lost) {
            self.report_lost_term();
        }
        match (result, ending) {
            (Err(panic), _) => resume_unwind(panic),
            (Ok(result), Some(Ending::Lost)) => Ok(Ended::Lost(result)),
            (Ok(result), Some(Ending::Stopped)) => Ok(Ended::Stopped(Some(result))),
            (Ok(result), None) => Ok(Ended::Finished(result)),
        }
    }

    /// Makes one attempt to acquire the Lease.
    fn try_acquire(&mut self) -> Acquisition {
        while !self.stop.is_stopped() {
            let now = self.shared.now();
            let Next::Send(request, limit) = self.next(now) else {
                unreachable!("the first attempt does not wait, and goes on until it has ended");
            };
            match self.send(now, &request, limit, self.stop) {
                Event::Continued => {}
                // The stop can have ended the request, or have come after it.
                _ if self.stop.is_stopped() => break,
                Event::Acquired(id) => return Acquisition::Acquired(id),
                _ => return Acquisition::NotFree,
            }
        }
        Acquisition::Stopped
    }

    /// Waits for leadership. Returns `None` if the stop was set first.
    fn acquire(&mut self) -> Result<Option<TermId>, LeaderElectionError> {
        let StopOnDrop(stop) = &StopOnDrop(self.stop.child());
        // Set when the Lease became free since the last wait. An innermost lock.
        let freed = Arc::new(Mutex::new(Stopper::new()));
        if self.shared.options.watches {
            let (shared, freed, stop) = (Arc::clone(self.shared), Arc::clone(&freed), stop.clone());
            let on_free = move || {
                let freed = freed.lock().clone();
                freed.stop();
            };
            self.spawn(self.role("watch"), move || {
                if let Err(panic) = catch(|| shared.lock.watch(&mut { on_free }, &stop)) {
                    log::error!("leader election {}: the watch {panic}", shared.name);
                }
            })?;
        }
        while !stop.is_stopped() {
            let now = self.shared.now();
            match self.next(now) {
                Next::Wait(wait) => {
                    let current = freed.lock().clone();
                    if current.is_stopped() {
                        *freed.lock() = Stopper::new();
                        self.shared.status.lock().steps.wake();
                    } else {
                        self.pause(wait, &current.or(stop));
                    }
                }
                Next::Send(request, limit) => {
                    if let Event::Acquired(id) = self.send(now, &request, limit, stop) {
                        return Ok(Some(id).filter(|_| !self.stop.is_stopped()));
                    }
                }
                Next::Idle => break,
            }
        }
        Ok(None)
    }

    /// Begins a term: the watchdog first, then reports. Returns `None` if the term is over before
    /// its work can start.
    fn lead(&mut self, id: TermId) -> Option<Leading> {
        let leading = Leading {
            shared: Arc::clone(self.shared),
            id,
            stop: self.stop.child(),
            lost: Stopper::new(),
            ended: self.ended.clone(),
        };
        self.leading = Some(leading.clone());
        self.watch(None);
        self.report_leadership(true);
        log::info!(
            "leader election {}: {} leads",
            self.shared.name,
            self.shared.identity
        );
        self.record_event("became leader");
        // The process can have been paused since the acquisition, or user code have blocked.
        if leading.ensure().is_ok() {
            return Some(leading);
        }
        self.release();
        log::warn!(
            "leader election {}: the term was over before its work could start; trying again",
            self.shared.name
        );
        self.record_event("stopped leading");
        self.report_lost_term();
        self.reset(&mut self.shared.status.lock());
        None
    }

    /// Renews the Lease until the work has ended. Returns why the work was stopped, or `None` if it
    /// has ended on its own.
    fn hold(
        &mut self,
        leading: &Leading,
        ended: &Stop,
    ) -> Result<Option<Ending>, LeaderElectionError> {
        // Why the work was stopped, and the end of the grace period.
        let (mut ending, mut until) = (None, Duration::MAX);
        loop {
            // Read first: work that ended because of a loss must not look as if it had finished.
            let has_ended = ended.is_stopped();
            let now = self.shared.now();
            let is_lost = leading.left(now).is_none();
            if ending.is_none() && (is_lost || self.stop.is_stopped()) {
                ending = Some(Ending::Stopped);
                until = now.elapsed.saturating_add(self.shared.options.grace());
            }
            if is_lost && ending != Some(Ending::Lost) {
                ending = Some(Ending::Lost);
                self.report_leadership(false);
                log::warn!(
                    "leader election {}: the Lease is lost; the work is stopped",
                    self.shared.name
                );
            }
            if has_ended {
                return Ok(ending);
            }
            let left = until.saturating_sub(now.elapsed);
            if left.is_zero() {
                return Err(self.abandon());
            }
            // Only the first stop wakes a wait.
            let stop = match ending {
                Some(_) => ended,
                None => self.stop,
            };
            match self.next(now) {
                Next::Wait(wait) => self.pause(wait.min(left), &ended.or(stop)),
                Next::Idle => self.pause(left, &ended.or(stop)),
                Next::Send(request, limit) => {
                    self.send(now, &request, limit.min(left), ended);
                }
            }
        }
    }

    /// Gives up work that does not end.
    fn abandon(&mut self) -> LeaderElectionError {
        let mut status = self.shared.status.lock();
        status.steps.end_term();
        status.is_stuck = true;
        let last_error = status.last_error.get().cloned();
        drop(status);
        // The work can't be ended, but its requests can.
        if let Some(leading) = &self.leading {
            set(self.shared, [leading.ended.clone()]);
        }
        self.report_leadership(false);
        let error = Kind::Stuck(self.shared.options.grace());
        let error = self.shared.error(error, last_error);
        log::error!("{error}");
        error
    }

    /// Ends the term for the guards, and releases the Lease if it is still this term's, or if a
    /// request without a response has acquired it. Does not release it while work still runs.
    fn release(&mut self) {
        self.shared.status.lock().steps.end_term();
        // Requests of gated clients that are not part of the work, such as those of other threads.
        if let Some(leading) = self.leading.take() {
            // Here and now: its callbacks only shut sockets down.
            leading.ended.stop();
        }
        // Two leaders in the metrics must mean two leaders, so the release follows the report.
        self.report_leadership(false);
        let now = self.shared.now();
        {
            let mut status = self.shared.status.lock();
            if !self.shared.options.releases || status.is_stuck {
                return;
            }
            status.steps.release(now);
        }
        let never = Stop::never();
        loop {
            let now = self.shared.now();
            let Next::Send(request, limit) = self.next(now) else {
                return;
            };
            self.send(now, &request, limit, &never);
        }
    }

    /// Forgets the Lease and the term.
    fn reset(&self, status: &mut Status) {
        status.steps = self.shared.options.steps(&self.shared.identity);
    }

    fn next(&self, now: Now) -> Next {
        self.shared.status.lock().steps.next(now)
    }

    /// Sends a request, and waits for its response until `limit` or `stop`. Returns what the
    /// response has changed, after publishing it.
    fn send(&mut self, sent: Now, request: &Request, limit: Duration, stop: &Stop) -> Event {
        let abort = Arc::new(stop.child());
        let deadline = sent.elapsed.saturating_add(limit);
        self.watch(Some((deadline, Arc::downgrade(&abort))));
        let lock = &self.shared.lock;
        let response = catch(|| match request {
            Request::Get => lock.get(&abort),
            Request::Create(record) => lock.create(record, &abort),
            Request::Update(record, last) => lock.update(record, last, &abort),
        });
        let response = match response {
            Ok(Err(_)) if abort.is_stopped() && !stop.is_stopped() => {
                let problem = format!("no response within {limit:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, problem).into())
            }
            Ok(response) => response,
            Err(panic) => Err(Error::other(format!("the lock {panic}"))),
        };
        drop(abort);
        let is_read = matches!(request, Request::Get);
        let now = self.shared.now();
        let mut status = self.shared.status.lock();
        let event = status.steps.answer(sent, now, response.as_ref());
        if let Event::Acquired(_) = event {
            // Together with the term, which gates can see from now on.
            self.ended = Stopper::new();
            status.ended = self.ended.signal();
        }
        status.leader = status.steps.holder().map(str::to_owned);
        let report = match event {
            Event::Released => Report::Nothing,
            _ => status.steps.report(),
        };
        let error = status.record(is_read, response.err());
        drop(status);
        self.shared.changed.notify_all();
        if let (Event::Lost, Some(leading)) = (&event, &self.leading) {
            leading.end_work();
        }
        if let (Some(leaders), Report::Leader(leader)) = (&self.leaders, report) {
            // The receiver ends after the sender.
            let _ = leaders.send(leader);
        }
        if let Some(error) = error {
            log::warn!("leader election {}: {error}", self.shared.name);
        }
        if event == Event::Slow {
            self.shared.options.event(|metrics| metrics.slow_path());
        }
        event
    }

    /// Passes the term and the current request to the watchdog.
    fn watch(&mut self, request: Option<(Duration, Weak<Stopper>)>) {
        let next = Stopper::new();
        let watch = Watch {
            leading: self.leading.clone(),
            request,
            next: next.clone(),
        };
        // The receiver ends after the sender.
        let _ = self.watchdog.send(watch);
        self.next = StopOnDrop(next);
    }

    /// Records an event about the Lease.
    fn record_event(&self, what: &str) {
        let options = &self.shared.options;
        let observed = self.shared.status.lock().steps.observed().cloned();
        let (Some(recorder), Some(observed)) = (&options.recorder, observed) else {
            return;
        };
        let recorded = match catch(|| self.shared.lock.reference(&observed.lease)) {
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
        if std::mem::replace(&mut self.reported, is_leader) != is_leader {
            self.shared
                .options
                .event(|metrics| metrics.is_leader(is_leader));
        }
    }

    fn report_lost_term(&self) {
        self.shared.options.event(|metrics| metrics.term_lost());
    }

    /// Waits for a time, or until the signal is set.
    fn pause(&self, wait: Duration, wake: &Stop) {
        self.shared.options.clock.wait(wait, wake);
    }

    /// Returns the name of a thread.
    fn role(&self, role: &str) -> String {
        format!("leader election {}: {role}", self.shared.name)
    }

    fn spawn<R: Send + 'static>(
        &self,
        name: String,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<JoinHandle<R>, LeaderElectionError> {
        let thread = named(name, None).spawn(work);
        thread.map_err(|error| self.shared.error(Kind::Thread(error.to_string()), None))
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut status = self.shared.status.lock();
        let has_term = status.steps.end_term();
        // Stuck work still runs, so the elector can't run again, and stays unhealthy.
        if !status.is_stuck {
            status.is_running = false;
            self.reset(&mut status);
        }
        drop(status);
        // A logger or a clock can have panicked while the work runs.
        if let (true, Some(leading)) = (has_term, &self.leading) {
            leading.end_work();
        }
    }
}
