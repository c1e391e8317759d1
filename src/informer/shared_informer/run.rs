//! Runs a shared informer, from the start until every thread has ended.

use std::slice;
use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;

use super::{Lifecycle, RunningPart, Shared, SharedIndexInformer};
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{MutexGuard, thread};
use crate::base::threads::Owners;
use crate::informer::controller::{Controller, ControllerConfig, InPlace};
use crate::informer::error::InformerError;
use crate::informer::handler::KeyedNotification;
use crate::informer::process::{Batch, IndexerPart, Order, batch_of};
use crate::informer::queue::InformerQueue;
use crate::log;
use crate::metrics::{self, InformerMetrics, shares};
use crate::object::Object;
use crate::queue::{Deltas, ProcessError, Queue};
use crate::stop::{Stop, Subscription};

impl<T: Object + DeserializeOwned> SharedIndexInformer<T> {
    /// Runs the informer: lists, watches, fills the cache and calls the handlers. Blocks until
    /// `stop` is set and every thread has ended. The process loop runs on the calling thread.
    ///
    /// The reflector and the process loop end first, then the handlers. The method waits for a
    /// running callback. Notifications that have not reached a handler are dropped.
    ///
    /// # Errors
    ///
    /// Fails if the informer was started before, or if the system has no threads left.
    pub fn run(&self, stop: &Stop) -> Result<(), InformerError> {
        self.shared.state.owner.adopt(|| {
            let mut lifecycle = self.before_start()?;
            lifecycle.started = true;
            // From here on, nothing decides again who calls the handlers.
            let state = &self.shared.state;
            state.set_delivery(lifecycle.options.delivery());
            state.run_requested.store(true, Ordering::Relaxed);
            let _end_guard = EndGuard(&self.shared);
            let parts = self.start(lifecycle)?;
            // Subscribe after `lifecycle` has been unlocked: if a queue has already synced, the
            // callbacks run during this call.
            let _synced = self.until_synced(parts);
            // A part that fails stops the others, so the calls of their handlers must end as well.
            let stop = stop.child();
            let shared = Arc::downgrade(&self.shared);
            let end_calls = move || {
                if let Some(shared) = shared.upgrade() {
                    shared.processor.end_calls();
                }
            };
            let _no_calls = stop.also_stops(self.shared.processor.stopped());
            let is_inline = state.delivery().is_inline();
            let _ends_calls = is_inline.then(|| stop.on_stop(end_calls));
            run_all(parts, &stop)
        })
    }

    /// Creates the controllers. Takes the guard by value, so that a panic in user code releases the
    /// lock before [`EndGuard`] takes it again.
    fn start(
        &self,
        mut lifecycle: MutexGuard<'_, Lifecycle<T>>,
    ) -> Result<&[RunningPart<T>], InformerError> {
        self.shared
            .processor
            .start(self.shared.state.delivery())
            .map_err(|error| InformerError::thread(self.name(), error))?;
        let parts = self.shared.parts.len();
        let metrics = shares(lifecycle.options.metrics.as_ref(), parts);
        let all = metrics.into_iter().enumerate();
        let all = all.map(|(at, metrics)| self.start_part(at, metrics, &mut lifecycle));
        let all: Vec<_> = all.collect();
        let running = self.shared.running.get_or_init(|| all);
        self.shared.started.set();
        Ok(running)
    }

    /// Sets `synced` when the initial lists of all queues have been processed.
    fn until_synced(&self, parts: &[RunningPart<T>]) -> Vec<Subscription> {
        if parts.is_empty() {
            self.shared.set_synced();
        }
        let unsynced = Arc::new(AtomicUsize::new(parts.len()));
        let subscribe = |part: &RunningPart<T>| {
            let (shared, unsynced) = (Arc::downgrade(&self.shared), Arc::clone(&unsynced));
            part.controller.synced().on_done(move || {
                if unsynced.fetch_sub(1, Ordering::AcqRel) == 1
                    && let Some(shared) = shared.upgrade()
                {
                    shared.set_synced();
                }
            })
        };
        parts.iter().map(subscribe).collect()
    }

    fn start_part(
        &self,
        at: usize,
        metrics: Option<Arc<dyn InformerMetrics>>,
        lifecycle: &mut Lifecycle<T>,
    ) -> RunningPart<T> {
        let part = &self.shared.parts[at];
        let options = &lifecycle.options;
        let reflector = &options.reflector;
        let indexer_part = Arc::new(IndexerPart::new(
            Arc::clone(&self.shared.indexer),
            part.separate_namespace().map(String::as_str),
            options.recreation_as_delete_and_add,
        ));
        let queue = options.queue.build(
            &indexer_part,
            self.name(),
            options.transform.clone(),
            metrics,
            Arc::clone(&reflector.clock),
        );
        // Get the watermark from the inner queue, so that a wrapper does not have to forward
        // `processed`.
        let watermark = queue.processed().unwrap_or_default();
        let queue = match &options.wrap_queue {
            Some(wrap) => wrap(queue),
            None => queue,
        };
        let reports = Arc::clone(indexer_part.reports());
        let process = PartProcessor {
            shared: Arc::clone(&self.shared),
            part: at,
            indexer_part,
            queue: Arc::clone(&queue),
        };
        let process = Arc::new(process);
        let (one, batch, alone) = (Arc::clone(&process), Arc::clone(&process), process);
        let lister_watcher = Arc::clone(&part.lister_watcher);
        let mut config =
            ControllerConfig::new(queue, lister_watcher, move |deltas, is_in_initial_list| {
                one.run(slice::from_ref(deltas), Order::OneByOne, is_in_initial_list)
            });
        let order = match options.queue {
            InformerQueue::DeltaFifo => Order::OneByOne,
            InformerQueue::RealFifo => Order::Together,
        };
        config.process_batch = Some(Box::new(move |items, is_in_initial_list| {
            batch.run(items, order, is_in_initial_list)
        }));
        config.in_place = InPlace::First;
        if self.shared.state.delivery().is_inline() {
            let shared = Arc::downgrade(&self.shared);
            // Change by change, so that the cache is not ahead of the handlers.
            config.process_batch = None;
            config.process = Box::new(move |deltas, is_in_initial_list| {
                alone.run_alone(deltas, is_in_initial_list)
            });
            config.in_place = InPlace::All(Arc::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.processor.deliver_waiting();
                }
            }));
        }
        config.reports = Some(reports);
        config.reclaim = Some(Arc::clone(self.shared.processor.reclaim()) as _);
        let state = Arc::clone(&self.shared.state);
        config.on_failure = Some(Arc::new(move |error, refused| {
            state.errors.publish(at, error, refused, &state.name);
        }));
        config.reflector = reflector.clone();
        config.reflector.name = part.name(&reflector.name);
        let (shared, clock) = (Arc::downgrade(&self.shared), Arc::clone(&reflector.clock));
        config.reflector.should_resync = Some(Arc::new(move || {
            let should_resync =
                |shared: Arc<Shared<T>>| shared.processor.should_resync(at, clock.now());
            shared.upgrade().is_some_and(should_resync)
        }));
        RunningPart {
            controller: Controller::new(config),
            watermark,
        }
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Marks the informer as synced: all objects of the initial lists are in the cache and on their
    /// way to the handlers.
    fn set_synced(&self) {
        self.state.synced.set();
        self.processor.set_upstream_synced();
        log::info!(
            "{}: synced; objects in the cache: {}",
            self.state.name,
            self.indexer.len()
        );
    }
}

/// Ends the informer on drop, so also after a panic of its run.
struct EndGuard<'a, T: Send + Sync + 'static>(&'a Shared<T>);

impl<T: Send + Sync + 'static> Drop for EndGuard<'_, T> {
    fn drop(&mut self) {
        let shared = self.0;
        let metrics = {
            let mut lifecycle = shared.lifecycle.lock();
            shared.stopped.store(true, Ordering::Release);
            lifecycle.options.metrics.take()
        };
        shared.processor.stop();
        if let Some(metrics) = metrics {
            metrics::call(|| metrics.ended());
        }
        shared.state.ended.set();
    }
}

/// Processes the deltas from the queue of one part: updates the cache and notifies the handlers.
struct PartProcessor<T> {
    shared: Arc<Shared<T>>,
    /// The index in [`Shared::parts`].
    part: usize,
    indexer_part: Arc<IndexerPart<T>>,
    queue: Arc<dyn Queue<T>>,
}

impl<T: Object> PartProcessor<T> {
    /// Processes a batch, then sends the notifications to the handlers' threads.
    fn run(
        &self,
        items: &[Deltas<T>],
        order: Order,
        is_in_initial_list: bool,
    ) -> Result<(), ProcessError> {
        // Sends them also after a panic, because the cache has their changes.
        let _delivery = Delivery(|| self.shared.processor.flush());
        self.distribute(|| batch_of(items), order, is_in_initial_list)
    }

    /// Processes the changes of one object, and calls the inline handlers after each one.
    fn run_alone(&self, deltas: &Deltas<T>, is_in_initial_list: bool) -> Result<(), ProcessError> {
        let processor = &self.shared.processor;
        // The thread of another namespace may be in a handler, which must see no later change. The
        // server of this namespace waits meanwhile: nothing is read, and nothing is buffered.
        //
        // There is no guard after a stop. The changes still reach the cache, because the queue
        // counts them as processed, but no handler.
        let guard = processor.lock_calls();
        for delta in deltas.iter() {
            let _delivery = Delivery(|| guard.iter().for_each(|guard| processor.deliver(guard)));
            let batch = || -> Batch<'_, T> { Box::new(std::iter::once((0, delta))) };
            self.distribute(batch, Order::OneByOne, is_in_initial_list)?;
        }
        Ok(())
    }

    /// Writes a batch to the cache and passes its notifications to the handlers, under
    /// `block_deltas`. Then drops the notifications for no handler: destructors are user code, and may
    /// add or remove handlers.
    fn distribute<'d>(
        &self,
        batch: impl Fn() -> Batch<'d, T>,
        order: Order,
        is_in_initial_list: bool,
    ) -> Result<(), ProcessError>
    where
        T: 'd,
    {
        let mut undelivered = Undelivered {
            shared: &self.shared,
            events: Vec::new(),
        };
        let block_deltas = Some(&self.shared.block_deltas);
        let notify = &mut |key, event, is_sync| {
            let rest = self.notify(KeyedNotification { key, event }, is_sync);
            let rest = rest.filter(|rest| rest.event.has_replaced_object());
            undelivered.events.extend(rest);
        };
        self.indexer_part
            .process(batch, order, is_in_initial_list, block_deltas, notify)
    }

    /// Passes a notification to the handlers. Returns it if it is for none of them.
    fn notify(
        &self,
        notification: KeyedNotification<T>,
        is_sync: bool,
    ) -> Option<KeyedNotification<T>> {
        // After a stop, the changes of this batch still reach the cache, because the queue counts
        // them as processed. Their notifications are dropped (C3).
        if self.queue.is_closed() {
            return Some(notification);
        }
        let sync_of = is_sync.then_some(self.part);
        self.shared.processor.distribute(notification, sync_of)
    }
}

/// Sends the notifications of a batch on drop.
struct Delivery<F: FnMut()>(F);

impl<F: FnMut()> Drop for Delivery<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Notifications that no handler received. On drop, their objects go to the thread that frees them.
struct Undelivered<'a, T: Send + Sync + 'static> {
    shared: &'a Shared<T>,
    events: Vec<KeyedNotification<T>>,
}

impl<T: Send + Sync + 'static> Drop for Undelivered<'_, T> {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.shared.processor.reclaim().put_all(events);
    }
}

/// Runs the first controller on this thread and each other one on its own thread, until all have
/// ended. If one of them fails, all others are stopped.
fn run_all<T: Object>(parts: &[RunningPart<T>], stop: &Stop) -> Result<(), InformerError> {
    let Some((first, others)) = parts.split_first() else {
        stop.wait();
        return Ok(());
    };
    let (stop, failed) = (stop.child(), OnceLock::new());
    let run = |controller: &Controller<T>| {
        if let Err(error) = controller.run(&stop) {
            let _ = failed.set(error);
            stop.stop();
        }
    };
    let owners = Owners::current();
    thread::scope(|scope| {
        for RunningPart { controller, .. } in others {
            let thread = controller.thread();
            let work = || owners.clone().adopt(|| run(controller));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                let _ = failed.set(InformerError::thread(controller.name(), error));
                stop.stop();
                break;
            }
        }
        run(&first.controller);
    });
    // A controller whose thread could not be started still has its callbacks.
    others
        .iter()
        .for_each(|part| part.controller.drop_callbacks());
    failed.into_inner().map_or(Ok(()), Err)
}
