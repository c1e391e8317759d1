//! Informers without their type parameter, and the wait for several of them.

use std::any::Any;
use std::sync::Arc;

use super::delivery::Delivery;
use super::driver::Driver;
use super::error::InformerError;
use super::error_listeners::{ErrorListeners, OnError};
use super::wait::SyncOptions;
use crate::base::deadline::Deadline;
use crate::base::sync::atomic::AtomicBool;
use crate::base::threads::{LateOwner, Owner};
use crate::error::{Unsynced, WaitCause, WaitError};
use crate::stop::{Done, DoneSetter, Stop, Stopper};

/// The state of an informer that does not depend on the type of its objects.
pub(super) struct InformerState {
    pub(super) name: Arc<str>,
    /// The owner of the informer's threads. It also identifies the informer.
    pub(super) owner: Owner,
    /// Whether a thread runs the informer, or has run it, or is about to. `start` of a factory sets
    /// this flag itself and does not leave it to the new thread. A wait after `start` therefore
    /// never reports the informer as not started.
    pub(super) run_requested: AtomicBool,
    /// Set to `owner` at the start if the delivery is inline: the informer's threads then also call
    /// the handlers. A callback thus keeps them from setting the signals that refer to this owner.
    pub(super) inline: LateOwner,
    pub(super) synced: DoneSetter,
    /// Set when the run has returned.
    pub(super) ended: DoneSetter,
    pub(super) errors: ErrorListeners,
}

impl InformerState {
    /// Creates the state of an informer with this number of reflectors.
    pub(super) fn new(name: Arc<str>, reflectors: usize) -> Self {
        let owner = Owner::new();
        let inline = LateOwner::default();
        Self {
            owner,
            run_requested: AtomicBool::new(false),
            // With threads, a handler may wait for it: other threads process the lists.
            synced: DoneSetter::set_by_late(&inline, &*name),
            inline,
            ended: DoneSetter::set_by(owner, &*name),
            errors: ErrorListeners::new(reflectors),
            name,
        }
    }

    /// Chooses the delivery. The run calls this once, before it calls any user code: no callback has
    /// waited by then.
    pub(super) fn set_delivery(&self, delivery: Delivery) {
        match delivery {
            Delivery::Threads => {}
            Delivery::Inline => self.inline.set(self.owner),
        }
    }

    /// Returns the delivery of an informer that has started.
    pub(super) fn delivery(&self) -> Delivery {
        match self.inline.get() {
            Some(_) => Delivery::Inline,
            None => Delivery::Threads,
        }
    }

    /// Whether a wait for the informer would block the informer.
    pub(super) fn is_own_thread(&self) -> bool {
        self.inline.is_current()
    }

    /// Returns a signal that is set when `stop` is set or when the run has returned.
    pub(super) fn stop_or_end(&self, stop: &Stop) -> Stop {
        stop.or(&self.ended.as_stop())
    }
}

/// A [`SharedIndexInformer`](super::SharedIndexInformer) without its type parameter.
pub(super) trait AnyInformer: Send + Sync {
    fn as_any(&self) -> &dyn Any;

    fn state(&self) -> &InformerState;

    fn run(&self, stop: &Stop) -> Result<(), InformerError>;

    fn drivers(&self, stop: &Stop) -> Result<Vec<Driver>, InformerError>;

    /// Whether a reflector has no list yet and its last attempt failed permanently.
    fn is_refused(&self) -> bool;

    /// Returns the parts whose list had at least two objects, none of which could be decoded.
    fn undecodable(&self) -> Vec<Unsynced>;

    /// Returns what has not synced: with several namespaces, each namespace that has no list yet;
    /// otherwise the informer itself.
    fn unsynced(&self) -> Vec<Unsynced>;

    /// Returns the names of the threads that have not ended after a stop. While reflectors or
    /// process loops are running, only their threads are returned; after that, the threads of
    /// handlers.
    fn running_threads(&self) -> Vec<String>;
}

/// An informer that a wait is for.
pub(super) struct Awaited {
    pub(super) informer: Arc<dyn AnyInformer>,
    /// A signal of the informer or of one of its handlers.
    pub(super) synced: Done,
    /// Ends the run of the informer, and with it the wait.
    pub(super) stop: Option<Stop>,
}

/// Waits until all of these informers have synced, `stop` is set, or the options end the wait.
pub(super) fn wait_for_sync(
    awaited: &[Awaited],
    stop: &Stop,
    options: SyncOptions,
) -> Result<(), WaitError> {
    let SyncOptions { timeout, fail_fast } = options;
    let deadline = Deadline::after(timeout);
    let refused = Stopper::new();
    let _refusals: Vec<_> = awaited
        .iter()
        .filter(|_| fail_fast)
        .map(|one| stop_on_refusal(&*one.informer, &refused))
        .collect();
    let is_blocked = |one: &&Awaited| !one.synced.is_done() && one.informer.state().is_own_thread();
    let blocked = awaited.iter().filter(is_blocked);
    let blocked: Vec<_> = blocked.flat_map(|one| one.informer.unsynced()).collect();
    if !blocked.is_empty() {
        return Err(WaitError::unsynced_with(WaitCause::OwnThread, blocked));
    }
    let (mut unsynced, mut undecodable, mut has_ended) = (Vec::new(), Vec::new(), false);
    for one in awaited {
        let run_stop = one.stop.clone().unwrap_or_else(Stop::never);
        let ended = one.informer.state().stop_or_end(&run_stop);
        if one
            .synced
            .wait_until(deadline, &ended.or(stop).or(&refused))
        {
            undecodable.extend(one.informer.undecodable());
        } else {
            has_ended |= ended.is_stopped();
            unsynced.extend(one.informer.unsynced());
        }
    }
    if unsynced.is_empty() && undecodable.is_empty() {
        return Ok(());
    }
    let cause = match timeout {
        _ if unsynced.is_empty() => WaitCause::Undecodable,
        _ if stop.is_stopped() => WaitCause::Stopped,
        _ if refused.is_stopped() => WaitCause::Refused,
        Some(timeout) if !has_ended => WaitCause::TimedOut(timeout),
        _ => WaitCause::Ended,
    };
    unsynced.extend(undecodable);
    Err(WaitError::unsynced_with(cause, unsynced))
}

/// Sets `stop` when the first list of a reflector fails permanently, until the returned reference
/// is dropped. Sets it immediately if the last attempt of such a list has already failed
/// permanently.
fn stop_on_refusal(informer: &dyn AnyInformer, stop: &Stopper) -> Arc<OnError> {
    let stopped = stop.clone();
    let subscription = informer.state().errors.subscribe(move |_, refused| {
        if refused {
            stopped.stop();
        }
    });
    if informer.is_refused() {
        stop.stop();
    }
    subscription
}
