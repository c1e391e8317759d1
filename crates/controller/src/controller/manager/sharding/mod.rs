//! One shard for each replica.
//!
//! Each shard has a Lease. A replica takes one that is free, and leads for as long as it holds it.
//! The name of a Lease contains the number of shards and the kind of division, because others divide
//! the objects in another way: a replica starts only while no Lease of another division has a holder.
//! If two divisions have holders nevertheless, for example because a machine was paused together
//! with its clocks, those with the earlier terms end.

mod leases;
mod seen;
#[cfg(test)]
mod simulation_tests;

use std::error::Error as StdError;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use self::leases::{LABEL, Leases};
use self::seen::{Rivalry, TermOrder, View};
use crate::controller::engine::runner::Runner;
use crate::controller::error::ControllerError;
use crate::controller::sources::division::{Division, ShardBy};
use crate::controller::sources::source::AnySource;
use crate::leader_election::{
    Attempt, Clocks, Ended, LeaderElectionOptions, LeaderElector, Leading, LeaseLock, random,
};
use crate::log;
use crate::serve::MetricsRegistry;
use k8s_informer::__private::{LastProblem, Owner, StopOnDrop, Threads};
use k8s_informer::client::{Client, WriteGate};
use k8s_informer::error::Error;
use k8s_informer::reflector::Shard;
use k8s_informer::selector::Selector;
use k8s_informer::stop::Stop;

/// Each waiting replica reads all Leases in every retry period, so their number is limited.
const MAX_SHARDS: u32 = 1000;

/// What [`ManagerBuilder::one_shard_of`](crate::ManagerBuilder::one_shard_of) describes.
#[derive(Clone, Debug)]
pub(super) struct ShardOptions {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) count: u32,
    pub(super) by: ShardBy,
}

/// How a term of a shard has ended.
pub(super) enum ShardTerm {
    Ended(Ended<Result<(), ControllerError>>),
    /// Another replica has the shard whose objects the caches of this one have.
    Taken,
}

/// What a replica that waits for a shard has found.
enum Found {
    /// This shard can be taken.
    Free(u32),
    /// Another replica has the shard that this one had.
    Taken,
    Stopped,
}

/// The shards of a manager, of which this replica takes one.
pub(super) struct Shards {
    client: Client,
    pub(super) options: ShardOptions,
    pub(super) election: LeaderElectionOptions,
    metrics: MetricsRegistry,
    leases: Leases,
    /// The shard that this replica has, or had: its caches have no other objects.
    own: OnceLock<(u32, LeaderElector)>,
    /// The last term whose work has begun. An innermost lock.
    term: Mutex<Option<Leading>>,
    /// What the log says about the wait for a shard. An innermost lock.
    wait: Mutex<LastProblem<String>>,
}

impl Shards {
    /// Checks the options. `election` has the settings of the elections.
    pub(super) fn new(
        client: &Client,
        options: ShardOptions,
        identity: String,
        election: LeaderElectionOptions,
        metrics: MetricsRegistry,
    ) -> Result<Self, ControllerError> {
        let ShardOptions {
            namespace,
            name,
            count,
            by,
        } = &options;
        if !(1..=MAX_SHARDS).contains(count) {
            return Err(ControllerError::invalid_manager(format!(
                "the number of shards must be 1 to {MAX_SHARDS}"
            )));
        }
        let label = format!("{LABEL}={name}").parse::<Selector>();
        label.map_err(|error| {
            ControllerError::invalid_manager(format!("the name of the shards: {error}"))
        })?;
        let clocks = Clocks::new(Arc::clone(&election.clock));
        let division = (*count, *by);
        let limit = election.times.renew_deadline / 2;
        let leases = Leases::new(client, (namespace, name), division, identity, clocks, limit);
        let shards = Self {
            client: client.clone(),
            leases,
            election: election.watch(false),
            metrics,
            options,
            own: OnceLock::new(),
            term: Mutex::default(),
            wait: Mutex::default(),
        };
        shards.elector(0)?;
        Ok(shards)
    }

    /// Returns the shard that this replica has or had, and its elector.
    pub(super) fn own(&self) -> Option<&(u32, LeaderElector)> {
        self.own.get()
    }

    /// Returns a client that can change something only while this replica has a shard.
    pub(super) fn gate(this: &Arc<Self>, client: &Client) -> Client {
        client.gated(ShardGate(Arc::clone(this)))
    }

    pub(super) fn view(&self) -> View {
        self.leases.view()
    }

    /// Returns the elector for an attempt to take a shard.
    fn elector(&self, shard: u32) -> Result<LeaderElector, ControllerError> {
        let lease_name = self.leases.lease_name(shard);
        let lock = LeaseLock::new(&self.client, &self.options.namespace, &lease_name)
            .identity(&*self.leases.identity)
            .label(LABEL, &self.options.name);
        let clocks = self.leases.clocks.clone();
        LeaderElector::with_clocks(lock, self.election.clone(), clocks)
            .map_err(ControllerError::election)
    }

    /// Takes a free shard, and runs `work` once while this replica has it. Once this replica has had
    /// a shard, only that one: its caches have no other objects.
    pub(super) fn run_term(
        self: &Arc<Self>,
        stop: &Stop,
        work: impl FnOnce(&Shard, &Leading) -> Result<(), ControllerError> + Send + 'static,
    ) -> Result<ShardTerm, ControllerError> {
        // What the log said before an earlier term is new again.
        self.wait.lock().ended();
        // Taken by the attempt that succeeds.
        let work = Arc::new(Mutex::new(Some(work)));
        loop {
            let shard = match self.wait_for_shard(stop) {
                Found::Free(shard) => shard,
                Found::Taken => return Ok(ShardTerm::Taken),
                Found::Stopped => return Ok(ShardTerm::Ended(Ended::Stopped(None))),
            };
            let elector = match self.own.get() {
                Some((_, elector)) => elector.clone(),
                None => self.elector(shard)?,
            };
            let part = Shard::new(shard, self.options.count);
            let part = part.map_err(|error| ControllerError::invalid_manager(error.to_string()))?;
            let (this, work, own) = (Arc::clone(self), Arc::clone(&work), elector.clone());
            let attempt = elector.run_if_free(
                self.leases.observation(shard),
                move |leading| {
                    if !this.is_alone(&leading) {
                        return None;
                    }
                    let work = work.lock().take()?;
                    let _ = this.own.set((shard, own));
                    // Dropped after the unlock: a signal takes the lock of its parent.
                    let last = this.term.lock().replace(leading.clone());
                    drop(last);
                    Some(this.observe_during(shard, &leading, || work(&part, &leading)))
                },
                stop,
            );
            match attempt.map_err(ControllerError::election)? {
                Attempt::Ended(Ended::Stopped(Some(Some(result)))) => {
                    return Ok(ShardTerm::Ended(Ended::Stopped(Some(result))));
                }
                Attempt::Ended(Ended::Lost(Some(result))) => {
                    return Ok(ShardTerm::Ended(Ended::Lost(result)));
                }
                Attempt::Ended(Ended::Finished(Some(result))) => {
                    return Ok(ShardTerm::Ended(Ended::Finished(result)));
                }
                // Another replica was faster, or the Lease that was free in the list is not. Another
                // shard may be free. No attempt follows at once, because the next one could fail for
                // the same reason.
                Attempt::NotFree(observation) => {
                    if let Some(observation) = observation {
                        self.leases.add(shard, observation);
                    }
                    // Many replicas may want a shard that is free, but only one wants its own again.
                    let is_contended = elector.last_error().is_some() && self.own.get().is_none();
                    self.pause(if is_contended { 2.0 } else { 0.2 }, stop);
                }
                // If another division has done the same, one of both must be faster next time.
                Attempt::Ended(_) => self.pause(2.0, stop),
            }
        }
    }

    /// Waits until a shard is free for this replica and no Lease of another division has a holder.
    fn wait_for_shard(&self, stop: &Stop) -> Found {
        while !stop.is_stopped() {
            match self.observe(stop) {
                Ok(view) => match self.find(&view) {
                    Some(found) => return found,
                    None => self.log_wait(&view),
                },
                Err(error) => self.log_once(format!("waiting: {error}")),
            }
            self.pause(0.2, stop);
        }
        Found::Stopped
    }

    /// Returns what this replica can do, or `None` if it has to wait.
    fn find(&self, view: &View) -> Option<Found> {
        let own = self.own.get().map(|(shard, _)| shard);
        // First, because another replica that has the shard is the end, whatever others do.
        if own.is_some_and(|own| !view.free.contains(own)) {
            return Some(Found::Taken);
        }
        if view.other.is_some() {
            return None;
        }
        if let Some(own) = own {
            return Some(Found::Free(*own));
        }
        let random = random() as usize;
        let shard = view.free.get(random.checked_rem(view.free.len())?)?;
        Some(Found::Free(*shard))
    }

    /// Logs what this replica waits for.
    fn log_wait(&self, view: &View) {
        self.log_once(match &view.other {
            Some(TermOrder { lease, .. }) => format!(
                "waiting: the Lease {lease} of another number of shards or kind of division has a holder"
            ),
            None => "waiting: all shards have a holder".to_owned(),
        });
    }

    /// Whether no Lease of another division has a holder, now that this replica has a Lease. Two
    /// divisions that saw only free Leases must not both start.
    fn is_alone(&self, leading: &Leading) -> bool {
        while !leading.stop().is_stopped() {
            match self.observe(leading.stop()) {
                Ok(view) => return view.other.is_none(),
                Err(error) => self.log_once(format!("waiting: {error}")),
            }
            self.pause(0.2, leading.stop());
        }
        false
    }

    /// Lists the Leases while the work runs. This keeps the numbers current, and ends the term if
    /// another division has a holder, too, and this one must end.
    fn observe_during<R>(
        self: &Arc<Self>,
        shard: u32,
        leading: &Leading,
        work: impl FnOnce() -> R,
    ) -> R {
        let threads = Threads::new(Owner::new());
        // Also if the work panics.
        let ended = StopOnDrop(leading.stop().child());
        let (this, stop, term) = (Arc::clone(self), ended.0.clone(), leading.clone());
        let observe = move || this.observe_until(&stop, shard, &term);
        if let Err(error) = threads.spawn("shards".to_owned(), None, observe) {
            log::error!(
                "shards {}: the numbers stay old, and other divisions are not seen: {error}",
                self.options.name
            );
        }
        let result = work();
        drop(ended);
        threads.join();
        result
    }

    fn observe_until(&self, stop: &Stop, shard: u32, leading: &Leading) {
        let own = TermOrder::new(leading.acquired(), &self.leases.lease_name(shard));
        let mut rivalry = Rivalry::new(own);
        loop {
            let ShardOptions { name, count, .. } = &self.options;
            let period = self
                .view()
                .period(*count, self.election.times.lease_duration);
            // The jitter keeps holders that started together apart.
            let period = period.saturating_add(period.mul_f64(0.2 * fraction()));
            if !self.election.clock.wait(period, stop) {
                return;
            }
            // A failed list is repeated after the same time, because all holders may fail at once.
            let Ok(view) = self.observe(stop) else {
                continue;
            };
            if let Some(other) = rivalry.yields_to(&view) {
                // First, because a logger can block.
                leading.end_term();
                log::warn!(
                    "shards {name}: the Lease {} of another number of shards or kind of division has a holder at the same \
                     time; shard {shard} is given up",
                    other.lease
                );
                return;
            }
        }
    }

    fn observe(&self, stop: &Stop) -> Result<View, Error> {
        let view = self.leases.observe(stop)?;
        self.metrics
            .set_shards(&self.options.name, self.options.count, view.held);
        Ok(view)
    }

    /// Waits for a retry period and up to `jitter` times as long.
    fn pause(&self, jitter: f64, stop: &Stop) {
        let retry: Duration = self.election.times.retry_period;
        let wait = retry.saturating_add(retry.mul_f64(jitter * fraction()));
        self.election.clock.wait(wait, stop);
    }

    fn log_once(&self, text: String) {
        let is_new = self.wait.lock().occurred(text.clone());
        if is_new {
            log::info!("shards {}: {text}", self.options.name);
        }
    }
}

/// Lets requests out in each term, from the moment on in which no other division has a Lease.
struct ShardGate(Arc<Shards>);

impl WriteGate for ShardGate {
    fn pass(&self) -> Result<Stop, Box<dyn StdError + Send + Sync>> {
        let leading = self.0.term.lock().clone();
        match leading {
            Some(leading) => leading.pass(),
            None => Err("this replica has no shard yet".into()),
        }
    }
}

/// Returns a random number in [0, 1).
fn fraction() -> f64 {
    (random() >> 11) as f64 / (1_u64 << 53) as f64
}

type DividedSource = (Arc<dyn AnySource>, Division);

/// Returns the sources of a controller with their divisions. Fails if a source can't be divided, or
/// if another source with the same informer is divided in another way.
pub(super) fn divisions(
    runner: &Runner,
    others: &[Arc<Runner>],
    by: ShardBy,
) -> Result<Vec<DividedSource>, ControllerError> {
    let invalid = |problem| ControllerError::invalid(runner.name(), problem);
    let mut divided = Vec::new();
    for source in runner.core().sources.iter() {
        let division = source.division(by);
        let division = division.map_err(|reason| invalid(reason.to_string()))?;
        let of = others.iter().map(AsRef::as_ref).chain([runner]);
        for other in of.flat_map(|runner| runner.core().sources.iter()) {
            let is_same = std::ptr::eq(other.synced(), source.synced());
            if is_same && other.division(by) != Ok(division) {
                return Err(ControllerError::invalid_manager(format!(
                    "{} are used in two ways that are divided differently (reconciled by UID, owned by their controller, \
                     watched not at all): use another type or scope for one of them, or another manager",
                    source.resource()
                )));
            }
        }
        divided.push((Arc::clone(source), division));
    }
    Ok(divided)
}
