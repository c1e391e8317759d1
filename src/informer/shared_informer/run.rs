//! Runs a shared informer, from the start until every thread has ended.

use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;

use super::{Lifecycle, Running, Shared, SharedIndexInformer, Started};
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{MutexGuard, thread};
use crate::base::threads::{self, Owners};
use crate::informer::delivery::Delivery;
use crate::informer::drain::{Items, Outlet};
use crate::informer::error::InformerError;
use crate::informer::handler::KeyedNotification;
use crate::informer::options::SharedIndexInformerOptions;
use crate::informer::pipeline::{Pipeline, Shortcut};
use crate::informer::process::{Batch, CachePart, Order, Reports, batch_of};
use crate::informer::queue::InformerQueue;
use crate::log;
use crate::metrics::{self, InformerMetrics, shares};
use crate::object::Object;
use crate::queue::{Delta, Deltas, Origin, ProcessError, Queue};
use crate::reflector::{InformerHooks, Outlook, Reflector};
use crate::stop::{Stop, Stopper, Subscription};

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
            let (run, pipelines) = self.begin(stop, Started::ByRun)?;
            run_all(pipelines, self.shared.state.delivery(), &run.stop)
        })
    }

    /// Begins the run, whose end is that of the returned value. `started` is who steps the pipelines.
    pub(super) fn begin(
        &self,
        stop: &Stop,
        started: Started,
    ) -> Result<(Run<T>, Vec<Pipeline<T>>), InformerError> {
        let mut lifecycle = self.before_start()?;
        lifecycle.started = started;
        // From here on, nothing decides again who calls the handlers.
        let state = &self.shared.state;
        state.set_delivery(match started {
            Started::ByRun => lifecycle.options.delivery(),
            Started::ByDrivers => Delivery::Inline,
            Started::No => unreachable!("the caller starts the informer"),
        });
        state.run_requested.store(true, Ordering::Relaxed);
        // From here on, a failure ends the informer.
        let end = EndGuard(Arc::clone(&self.shared));
        let pipelines = self.start(lifecycle)?;
        // Subscribe after `lifecycle` has been unlocked: without sources, the informer is synced
        // now, and the callbacks run during this call.
        let synced = self.until_synced(&pipelines);
        // A pipeline that fails stops the others, so the calls of their handlers must end as well.
        let stop = stop.child();
        let no_calls = stop.also_stops(self.shared.processor.stopped());
        let shared = Arc::downgrade(&self.shared);
        let end_calls = move || {
            if let Some(shared) = shared.upgrade() {
                shared.processor.end_calls();
            }
        };
        let ends_calls = match state.delivery() {
            Delivery::Inline => Some(stop.on_stop(end_calls)),
            Delivery::Threads => None,
        };
        let run = Run {
            stop,
            _subscriptions: (synced, no_calls, ends_calls),
            _end: end,
        };
        Ok((run, pipelines))
    }

    /// Creates the pipelines. Takes the guard by value, so that a panic in user code releases the
    /// lock before [`EndGuard`] takes it again.
    fn start(
        &self,
        mut lifecycle: MutexGuard<'_, Lifecycle<T>>,
    ) -> Result<Vec<Pipeline<T>>, InformerError> {
        self.shared
            .processor
            .start(self.shared.state.delivery())
            .map_err(|error| InformerError::thread(self.name(), error))?;
        let sources = self.shared.sources.len();
        let metrics = shares(lifecycle.options.metrics.as_ref(), sources);
        let (mut pipelines, mut running) = (Vec::new(), Vec::new());
        for (source, metrics) in metrics.into_iter().enumerate() {
            let (pipeline, state) = self.pipeline(source, metrics, &mut lifecycle);
            pipelines.push(pipeline);
            running.push(state);
        }
        self.shared.running.get_or_init(|| running);
        self.shared.started.set();
        Ok(pipelines)
    }

    /// Sets `synced` when the initial lists of all queues have been processed.
    fn until_synced(&self, pipelines: &[Pipeline<T>]) -> Vec<Subscription> {
        if pipelines.is_empty() {
            self.shared.set_synced();
        }
        let unsynced = Arc::new(AtomicUsize::new(pipelines.len()));
        let subscribe = |pipeline: &Pipeline<T>| {
            let (shared, unsynced) = (Arc::downgrade(&self.shared), Arc::clone(&unsynced));
            pipeline.state.queue.synced().on_done(move || {
                if unsynced.fetch_sub(1, Ordering::AcqRel) == 1
                    && let Some(shared) = shared.upgrade()
                {
                    shared.set_synced();
                }
            })
        };
        pipelines.iter().map(subscribe).collect()
    }

    /// Creates the pipeline of one source: its part of the cache, the queue before it, the reflector,
    /// and the outlet behind.
    fn pipeline(
        &self,
        source: usize,
        metrics: Option<Arc<dyn InformerMetrics>>,
        lifecycle: &mut Lifecycle<T>,
    ) -> (Pipeline<T>, Running<T>) {
        let shared = &self.shared;
        let (of_source, options) = (&shared.sources[source], &lifecycle.options);
        let cache = Arc::new(CachePart::new(
            Arc::clone(&shared.indexer),
            of_source.separate_namespace().map(String::as_str),
            options.recreation_as_delete_and_add,
        ));
        // The queue looks for known objects in this part of the cache.
        let queue = options.queue.build(
            &cache,
            self.name(),
            options.transform.clone(),
            metrics,
            Arc::clone(&options.reflector.clock),
        );
        let name: Arc<str> = of_source.name(options.reflector.name.as_deref()).into();
        let reflector = self.reflector(source, &name, Arc::clone(&queue), options);
        let delivery = shared.state.delivery();
        let outlet = Box::new(CacheOutlet {
            shared: Arc::clone(shared),
            source,
            cache: Arc::clone(&cache),
            queue: Arc::clone(&queue),
            order: match options.queue {
                InformerQueue::DeltaFifo => Order::OneByOne,
                InformerQueue::RealFifo => Order::Together,
            },
            delivery,
        });
        let items = match delivery {
            Delivery::Threads => Items::Batches,
            // Change by change, so that the cache is not ahead of the handlers.
            Delivery::Inline => Items::One,
        };
        let watermark = queue.processed();
        let pipeline = Pipeline::new(name, queue, reflector, items, Shortcut::IfIdle, outlet);
        let running = Running {
            state: Arc::clone(&pipeline.state),
            cache,
            watermark,
        };
        (pipeline, running)
    }

    fn reflector(
        &self,
        source: usize,
        name: &str,
        queue: Arc<dyn Queue<T>>,
        options: &SharedIndexInformerOptions<T>,
    ) -> Reflector<T> {
        let mut options = options.reflector.clone();
        options.name = Some(name.to_owned());
        // The handlers have periods of their own.
        let (shared, clock) = (Arc::downgrade(&self.shared), Arc::clone(&options.clock));
        options.should_resync = Some(Arc::new(move || {
            let now = clock.now();
            shared
                .upgrade()
                .is_some_and(|shared| shared.processor.should_resync(source, now))
        }));
        let state = Arc::clone(&self.shared.state);
        let hooks = InformerHooks {
            reclaim: Some(Arc::clone(self.shared.processor.reclaim())),
            on_failure: Some(Arc::new(move |error, outlook| {
                let is_refused = outlook == Outlook::Refused;
                state.errors.publish(source, error, is_refused, &state.name);
            })),
        };
        let lister_watcher = Arc::clone(&self.shared.sources[source].lister_watcher);
        Reflector::with_hooks(lister_watcher, queue, options, Some(hooks))
    }
}

/// A run of an informer. The informer ends when this is dropped, also after a panic.
pub(super) struct Run<T: Send + Sync + 'static> {
    /// Ends the run: a child of the user's signal.
    pub(super) stop: Stopper,
    _subscriptions: (
        Vec<Subscription>,
        Option<Subscription>,
        Option<Subscription>,
    ),
    // Dropped last.
    _end: EndGuard<T>,
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

/// Ends the informer on drop.
struct EndGuard<T: Send + Sync + 'static>(Arc<Shared<T>>);

impl<T: Send + Sync + 'static> Drop for EndGuard<T> {
    fn drop(&mut self) {
        let shared = &self.0;
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

/// Updates the cache with the changes of one source, and notifies the handlers.
struct CacheOutlet<T> {
    shared: Arc<Shared<T>>,
    /// The index in [`Shared::sources`].
    source: usize,
    cache: Arc<CachePart<T>>,
    queue: Arc<dyn Queue<T>>,
    /// The order of several items that the queue returns together.
    order: Order,
    delivery: Delivery,
}

impl<T: Object> Outlet<T> for CacheOutlet<T> {
    fn process(
        &mut self,
        items: &[Deltas<T>],
        origin: Origin,
        reports: &mut Reports,
        _: &Stop,
    ) -> Result<(), ProcessError> {
        match self.delivery {
            Delivery::Threads => self.process_batch(items, origin, reports),
            Delivery::Inline => items
                .iter()
                .flat_map(|deltas| deltas.iter())
                .try_for_each(|delta| self.process_one(delta, origin, reports)),
        }
    }

    fn deliver_waiting(&mut self) {
        match self.delivery {
            Delivery::Threads => {}
            Delivery::Inline => self.shared.processor.deliver_waiting(),
        }
    }
}

impl<T: Object> CacheOutlet<T> {
    /// Processes a batch, then sends the notifications to the handlers' threads.
    fn process_batch(
        &self,
        items: &[Deltas<T>],
        origin: Origin,
        reports: &mut Reports,
    ) -> Result<(), ProcessError> {
        // A list or a resync comes alone, and is not written together with others.
        let order = match items {
            [_] => Order::OneByOne,
            _ => self.order,
        };
        // Sends them also after a panic, because the cache has their changes.
        let _flush = OnDrop(|| self.shared.processor.flush());
        self.distribute(|| batch_of(items), order, origin, reports)
    }

    /// Processes a change, and calls the handlers.
    fn process_one(
        &self,
        delta: &Delta<T>,
        origin: Origin,
        reports: &mut Reports,
    ) -> Result<(), ProcessError> {
        let processor = &self.shared.processor;
        // The thread of another namespace may be in a handler, which must see no later change. The
        // server of this namespace waits meanwhile: nothing is read, and nothing is buffered.
        //
        // `changing` is `None` after a stop. The changes still reach the cache, because the queue counts
        // them as processed, but no handler.
        let changing = processor.begin_change();
        let _delivery = OnDrop(|| {
            if let Some(changing) = &changing {
                processor.deliver(changing);
            }
        });
        let batch = || -> Batch<'_, T> { Box::new(std::iter::once((0, delta))) };
        self.distribute(batch, Order::OneByOne, origin, reports)
    }

    /// Writes a batch to the cache and passes its notifications to the handlers, under
    /// `block_deltas`. Then drops the notifications for no handler: destructors are user code, and may
    /// add or remove handlers.
    fn distribute<'d>(
        &self,
        batch: impl Fn() -> Batch<'d, T>,
        order: Order,
        origin: Origin,
        reports: &mut Reports,
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
        self.cache
            .process(batch, order, origin, block_deltas, notify, reports)
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
        let sync_of = is_sync.then_some(self.source);
        self.shared.processor.distribute(notification, sync_of)
    }
}

/// Sends or delivers the notifications of a batch on drop.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
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
        let events = std::mem::take(&mut self.events).into_iter();
        let objects = events.flat_map(|rest| rest.event.into_objects());
        self.shared.processor.reclaim().put_undelivered(objects);
    }
}

/// Runs the first pipeline on this thread and each other one on its own thread, until all have ended.
/// If one of them fails, all others are stopped.
fn run_all<T: Object>(
    pipelines: Vec<Pipeline<T>>,
    delivery: Delivery,
    stop: &Stopper,
) -> Result<(), InformerError> {
    let mut pipelines = pipelines.into_iter();
    let Some(first) = pipelines.next() else {
        stop.wait();
        return Ok(());
    };
    let failed = OnceLock::new();
    let run = |pipeline: Pipeline<T>| match delivery {
        Delivery::Inline => pipeline.run_inline(stop),
        Delivery::Threads => {
            if let Err(error) = pipeline.run_threads(stop) {
                let _ = failed.set(error);
                stop.stop();
            }
        }
    };
    let owners = Owners::current();
    thread::scope(|scope| {
        for pipeline in pipelines {
            let name = Arc::clone(&pipeline.state.name);
            let stacks = pipeline.state.reflector.stack_sizes();
            let thread = match delivery {
                Delivery::Inline => threads::named(name.to_string(), Some(stacks.of_reflector())),
                Delivery::Threads => threads::named(format!("{name} process"), stacks.others),
            };
            let (run, owners) = (&run, owners.clone());
            let work = move || owners.adopt(|| run(pipeline));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                let _ = failed.set(InformerError::thread(&name, error));
                stop.stop();
                break;
            }
        }
        run(first);
    });
    failed.into_inner().map_or(Ok(()), Err)
}
