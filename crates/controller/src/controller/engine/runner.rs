//! Runs the informers and the loop of a controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::reconcile_loop::ReconcileLoop;
use crate::controller::call::core::Core;
use crate::controller::context::apply::check_kinds;
use crate::controller::error::{ControllerError, ControllerErrorKind};
use crate::controller::sources::source::AnySource;
use crate::leader_election::Leading;
use crate::log;
use k8s_informer::__private::{Owner, StopOnDrop, Threads};
use k8s_informer::informer::{InformerError, SharedInformerFactory, SyncOptions};
use k8s_informer::stop::{Stop, Stopper};
use k8s_informer::workqueue::AnyWorkQueue;

/// Registers the handler of a source. The second argument is the position of the source.
pub(crate) type AddHandler =
    dyn FnOnce(&Arc<ReconcileLoop>, usize) -> Result<RemoveHandler, InformerError> + Send;

/// Removes a handler from its informer.
pub(crate) type RemoveHandler = Box<dyn FnOnce() + Send>;

/// A controller without its object type.
pub(crate) struct Runner {
    pub(crate) reconcile_loop: Arc<ReconcileLoop>,
    pub(crate) factory: SharedInformerFactory,
    /// Whether the informers belong to this controller, so that they end with it.
    pub(crate) owns_factory: bool,
    pub(crate) sync_timeout: Duration,
    /// The handlers of the sources. They are added by the run, because nothing empties the queue
    /// of a standby.
    pub(crate) handlers: Mutex<Vec<Box<AddHandler>>>,
    pub(crate) has_run: AtomicBool,
}

impl Runner {
    pub(crate) fn name(&self) -> &str {
        &self.core().name
    }

    pub(crate) fn core(&self) -> &Core {
        &self.reconcile_loop.core
    }

    /// Runs the informers and the workers. The caches then contain everything that was committed
    /// before `since`.
    pub(crate) fn run(
        &self,
        since: Instant,
        stop: &Stop,
        leading: Option<&Leading>,
    ) -> Result<(), ControllerError> {
        if self.has_run.swap(true, Ordering::Relaxed) {
            let again = ControllerErrorKind::AlreadyRan;
            return Err(ControllerError::of(self.name(), again));
        }
        let mut remove_handlers = Vec::new();
        let result = self
            .add_handlers(&mut remove_handlers)
            .and_then(|()| self.run_once(since, stop, leading));
        self.reconcile_loop.queue.stop();
        remove_handlers.into_iter().for_each(|remove| remove());
        self.reconcile_loop.own_writes.applied.clear();
        self.core().events.shut_down();
        if self.owns_factory {
            // Without a timeout, the only error is a call from within a callback, which is logged.
            let _ = self.factory.shut_down(None);
        }
        if let (Err(error), Some(leading)) = (&result, leading)
            && error.is_stuck()
        {
            leading.keep_lease();
        }
        result
    }

    /// Adds the handlers. If the informers run already, each handler gets the cached objects as an
    /// initial list.
    fn add_handlers(&self, remove: &mut Vec<RemoveHandler>) -> Result<(), ControllerError> {
        let handlers = std::mem::take(&mut *self.handlers.lock());
        for (at, add) in handlers.into_iter().enumerate() {
            let added = add(&self.reconcile_loop, at);
            remove.push(added.map_err(|source| ControllerError::informer(self.name(), source))?);
        }
        Ok(())
    }

    fn run_once(
        &self,
        since: Instant,
        stop: &Stop,
        leading: Option<&Leading>,
    ) -> Result<(), ControllerError> {
        // The informers do not end with `stop`: calls in progress need the caches.
        let started = self.factory.start(&Stop::never());
        started.map_err(|source| ControllerError::informer(self.name(), source))?;
        self.reconcile_loop.barrier.set_since(since);
        match self.wait_for_caches(stop)? {
            Caches::Current => {}
            Caches::Stopped => return Ok(()),
        }
        let abort = match leading {
            Some(leading) => {
                let _ = self.core().leading.set(leading.clone());
                leading.lost().child()
            }
            None => Stopper::new(),
        };
        log::info!("controller {:?}: started", self.name());
        let result = self.reconcile_loop.run(stop, &abort);
        log::info!("controller {:?}: stopped", self.name());
        result
    }

    /// Waits until the caches of all sources that exist are complete and current.
    fn wait_for_caches(&self, stop: &Stop) -> Result<Caches, ControllerError> {
        // Optional kinds are checked during the whole wait: they can go at any time.
        let (end_checks, threads) = (StopOnDrop(stop.child()), Threads::new(Owner::new()));
        let optional = &self.reconcile_loop.optional;
        if optional.has_any() {
            let (optional, until) = (Arc::clone(optional), end_checks.0.clone());
            let name = format!("{} optional kinds", self.name());
            let checks = threads.spawn(name, None, move || optional.check_until(&until));
            checks.map_err(|source| ControllerError::thread(self.name(), source))?;
        }
        let waited = self.wait_while_checked(stop);
        // The result of the last check counts.
        drop(end_checks);
        threads.join();
        if matches!(waited, Ok(Caches::Current)) {
            optional.end_start();
        }
        waited
    }

    /// Waits while another thread checks the optional kinds.
    fn wait_while_checked(&self, stop: &Stop) -> Result<Caches, ControllerError> {
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
            let optional = &self.reconcile_loop.optional;
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
        let barrier = &self.reconcile_loop.barrier;
        barrier.wait(&core.name, sources, &core.meter, stop)?;
        Ok(Caches::Current)
    }
}

/// The end of the wait for the caches.
enum Caches {
    Current,
    Stopped,
}
