//! Runs the informers and the loop of a controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::reconcile_loop::{LoopParts, ReconcileLoop};
use crate::controller::call::core::Core;
use crate::controller::context::apply::check_kinds;
use crate::controller::error::{ControllerError, ControllerErrorKind};
use crate::controller::sources::source::{AnySource, PRIMARY};
use crate::leader_election::Leading;
use crate::log;
use k8s_informer::__private::{Owner, StopOnDrop, Threads, catch};
use k8s_informer::informer::{InformerError, SharedInformerFactory, SyncOptions};
use k8s_informer::stop::{Stop, Stopper};
use k8s_informer::workqueue::AnyWorkQueue;

/// Registers the handler of a source for the term of a loop. The second argument is the position of
/// the source.
pub(crate) type AddHandler =
    dyn Fn(&Arc<ReconcileLoop>, usize) -> Result<RemoveHandler, InformerError> + Send + Sync;

/// Removes a handler from its informer.
pub(crate) type RemoveHandler = Box<dyn FnOnce() + Send>;

/// A controller without its object type: runs a loop in each term.
pub(crate) struct Runner {
    pub(crate) parts: LoopParts,
    factory: SharedInformerFactory,
    owns_factory: OwnsFactory,
    sync_timeout: Duration,
    /// The handlers of the sources. Each term adds its own, because nothing empties the queue of a
    /// standby.
    handlers: Vec<Box<AddHandler>>,
    has_run: AtomicBool,
    /// The loop of this term. Between two terms, it is that of the next one. An innermost lock.
    current: Mutex<Arc<ReconcileLoop>>,
}

/// Whether the informers belong to the controller, so that they end with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnsFactory {
    Yes,
    No,
}

impl Runner {
    pub(crate) fn new(
        parts: LoopParts,
        factory: SharedInformerFactory,
        owns_factory: OwnsFactory,
        sync_timeout: Duration,
        handlers: Vec<Box<AddHandler>>,
    ) -> Result<Self, ControllerError> {
        let first = next_loop(&parts)?;
        Ok(Self {
            parts,
            factory,
            owns_factory,
            sync_timeout,
            handlers,
            has_run: AtomicBool::new(false),
            current: Mutex::new(first),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.core().name
    }

    pub(crate) fn core(&self) -> &Core {
        &self.parts.core
    }

    /// Returns the loop of this term, or between two terms that of the next one.
    pub(crate) fn current(&self) -> Arc<ReconcileLoop> {
        Arc::clone(&self.current.lock())
    }

    /// Runs the controller outside of a manager: one term, from the start to the end.
    pub(crate) fn run(
        &self,
        stop: &Stop,
        leading: Option<&Leading>,
    ) -> Result<(), ControllerError> {
        self.claim()?;
        let result = self.run_term_caught(Instant::now(), stop, leading);
        self.end();
        result
    }

    /// Fails if the controller has run, or runs.
    pub(crate) fn claim(&self) -> Result<(), ControllerError> {
        match self.has_run.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let again = ControllerErrorKind::AlreadyRan;
                Err(ControllerError::of(self.name(), again))
            }
        }
    }

    /// Runs the informers and the workers for a term. The caches then contain everything that was
    /// committed before `since`.
    pub(crate) fn run_term(
        &self,
        since: Instant,
        stop: &Stop,
        leading: Option<&Leading>,
    ) -> Result<(), ControllerError> {
        let reconcile_loop = self.current();
        let mut remove_handlers = Vec::new();
        let result = self
            .add_handlers(&reconcile_loop, &mut remove_handlers)
            .and_then(|()| self.run_once(&reconcile_loop, since, stop, leading));
        // First: the Lease of work that goes on must not be released, whatever follows.
        if let (Err(error), Some(leading)) = (&result, leading)
            && error.is_stuck()
        {
            leading.keep_lease();
        }
        reconcile_loop.queue.stop();
        remove_handlers.into_iter().for_each(|remove| remove());
        reconcile_loop.own_writes.applied.clear();
        reconcile_loop.vanished.end_term();
        result
    }

    /// Like [`run_term`](Self::run_term). After a panic of a logger, a clock or a destructor on this
    /// thread, calls may still run.
    pub(crate) fn run_term_caught(
        &self,
        since: Instant,
        stop: &Stop,
        leading: Option<&Leading>,
    ) -> Result<(), ControllerError> {
        catch(|| self.run_term(since, stop, leading)).unwrap_or_else(|panic| {
            if let Some(leading) = leading {
                leading.keep_lease();
            }
            let panicked = ControllerErrorKind::Panicked(panic.to_string());
            Err(ControllerError::of(self.name(), panicked))
        })
    }

    /// Replaces the loop of a term that has ended, so that another term can follow. Keys that the
    /// program queues from now on are those of the next term.
    pub(crate) fn prepare_term(&self) -> Result<(), ControllerError> {
        self.current().forget_failures();
        let next = next_loop(&self.parts)?;
        let ended = std::mem::replace(&mut *self.current.lock(), next);
        // After the unlock: failures have destructors of the user.
        drop(ended);
        Ok(())
    }

    /// Ends what lasts for all terms: writes the last events, and ends the own informers.
    pub(crate) fn end(&self) {
        self.core().events.shut_down();
        if self.owns_factory == OwnsFactory::Yes {
            // Without a timeout, the only error is a call from within a callback, which is logged.
            let _ = self.factory.shut_down(None);
        }
    }

    /// Adds the handlers. If the informers run already, each handler gets the cached objects as an
    /// initial list.
    fn add_handlers(
        &self,
        reconcile_loop: &Arc<ReconcileLoop>,
        remove: &mut Vec<RemoveHandler>,
    ) -> Result<(), ControllerError> {
        for (at, add) in self.handlers.iter().enumerate() {
            let added = add(reconcile_loop, at);
            remove.push(added.map_err(|source| ControllerError::informer(self.name(), source))?);
        }
        Ok(())
    }

    fn run_once(
        &self,
        reconcile_loop: &Arc<ReconcileLoop>,
        since: Instant,
        stop: &Stop,
        leading: Option<&Leading>,
    ) -> Result<(), ControllerError> {
        // The informers do not end with `stop`: calls in progress need the caches.
        let started = self.factory.start(&Stop::never());
        started.map_err(|source| ControllerError::informer(self.name(), source))?;
        reconcile_loop.barrier.set_since(since);
        match self.wait_for_caches(reconcile_loop, stop)? {
            Caches::Current => {
                let primary = &self.core().sources[PRIMARY];
                reconcile_loop.vanished.begin(primary.newest_version());
            }
            Caches::Stopped => return Ok(()),
        }
        let abort = match leading {
            Some(leading) => {
                reconcile_loop.calls.set_leading(leading);
                leading.lost().child()
            }
            None => Stopper::new(),
        };
        log::info!("controller {:?}: started", self.name());
        let result = reconcile_loop.run(stop, &abort);
        log::info!("controller {:?}: stopped", self.name());
        result
    }

    /// Waits until the caches of all sources that exist are complete and current.
    fn wait_for_caches(
        &self,
        reconcile_loop: &ReconcileLoop,
        stop: &Stop,
    ) -> Result<Caches, ControllerError> {
        // Optional kinds are checked during the whole wait: they can go at any time.
        let (end_checks, threads) = (StopOnDrop(stop.child()), Threads::new(Owner::new()));
        let optional = &reconcile_loop.optional;
        if optional.has_any() {
            let (optional, until) = (Arc::clone(optional), end_checks.0.clone());
            let name = format!("{} optional kinds", self.name());
            let checks = threads.spawn(name, None, move || optional.check_until(&until));
            checks.map_err(|source| ControllerError::thread(self.name(), source))?;
        }
        let waited = self.wait_while_checked(reconcile_loop, stop);
        // The result of the last check counts.
        drop(end_checks);
        threads.join();
        if matches!(waited, Ok(Caches::Current)) {
            optional.end_start();
        }
        waited
    }

    /// Waits while another thread checks the optional kinds.
    fn wait_while_checked(
        &self,
        reconcile_loop: &ReconcileLoop,
        stop: &Stop,
    ) -> Result<Caches, ControllerError> {
        // The first lists: of the required kinds together, then of the optional ones. Other informers
        // of a shared factory may be unable to sync.
        let options = SyncOptions::new().timeout(self.sync_timeout);
        let core = self.core();
        let sources = &core.sources;
        let required = |source: &&Arc<dyn AnySource>| !source.is_optional();
        let synced = sources
            .iter()
            .filter(required)
            .map(|source| source.synced());
        let synced = self.factory.wait_for_cache_sync_of(synced, options, stop);
        let synced = synced.and_then(|()| {
            let optional = &reconcile_loop.optional;
            optional.wait_for_first_lists(&self.factory, self.sync_timeout, stop)
        });
        match synced {
            Ok(()) => {}
            Err(error) if error.is_stopped() => return Ok(Caches::Stopped),
            Err(source) => {
                let unsynced = ControllerErrorKind::Sync(source);
                return Err(ControllerError::of(self.name(), unsynced));
            }
        }
        // `shut_down_informer` removes an informer from its factory.
        let mut required = sources.iter().filter(required);
        if let Some(removed) = required.find(|source| !source.synced().is_done()) {
            let source = InformerError::Stopped {
                name: removed.name().into(),
                what: "the controller was not started",
            };
            return Err(ControllerError::informer(self.name(), source));
        }
        // The lists may come from an API server that is behind, so the barrier follows. Contradictory
        // kinds are found before, because it can take long.
        check_kinds(core, stop)
            .map_err(|problem| ControllerError::invalid(self.name(), problem.to_string()))?;
        let barrier = &reconcile_loop.barrier;
        barrier.wait(&core.name, sources, &core.meter, stop)?;
        Ok(Caches::Current)
    }
}

/// Builds the loop of the next term.
fn next_loop(parts: &LoopParts) -> Result<Arc<ReconcileLoop>, ControllerError> {
    let built = ReconcileLoop::new(parts).map(Arc::new);
    built.map_err(|source| ControllerError::thread(&parts.core.name, source))
}

/// The end of the wait for the caches.
enum Caches {
    Current,
    Stopped,
}
