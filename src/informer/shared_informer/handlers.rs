//! Adds and removes the handlers of a shared informer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Lifecycle, Shared, SharedIndexInformer, Started};
use crate::base::deadline::Deadline;
use crate::base::sync::atomic::Ordering;
use crate::base::threads::Owner;
use crate::error::ShutdownError;
use crate::informer::delivery::Delivery;
use crate::informer::error::InformerError;
use crate::informer::handler::{HandlerFuncs, ResourceEventHandler};
use crate::informer::listener::{Callee, Handler, ProcessorListener, Resync};
use crate::informer::registration::{HandlerOptions, HandlerRegistration};
use crate::log;
use crate::object::Object;
use crate::stop::Stop;

/// The shortest resync period of a handler.
const MIN_RESYNC_PERIOD: Duration = Duration::from_secs(1);

impl<T: Object> SharedIndexInformer<T> {
    /// Adds a handler made of closures; see
    /// [`add_handler_with_options`](Self::add_handler_with_options).
    ///
    /// # Errors
    ///
    /// Fails like [`add_handler_with_options`](Self::add_handler_with_options).
    pub fn add_event_handler(
        &self,
        handler: impl FnOnce(HandlerFuncs<T>) -> HandlerFuncs<T>,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add_handler(handler(HandlerFuncs::new()))
    }

    /// Adds a handler with the default options; see
    /// [`add_handler_with_options`](Self::add_handler_with_options).
    ///
    /// # Errors
    ///
    /// Fails like [`add_handler_with_options`](Self::add_handler_with_options).
    pub fn add_handler(
        &self,
        handler: impl ResourceEventHandler<T> + 'static,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add_handler_with_options(handler, HandlerOptions::default())
    }

    /// Adds a handler, before or after the informer starts.
    ///
    /// A handler that is added after the start first receives an add for every object in the
    /// cache, as its initial list. Then it receives every change, without gaps or duplicates.
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped, or if the system cannot start the threads of the handler.
    pub fn add_handler_with_options(
        &self,
        handler: impl ResourceEventHandler<T> + 'static,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, InformerError> {
        let mut warnings = Vec::new();
        let added = self.add(Box::new(handler), options, &mut warnings);
        for warning in warnings {
            log::warn!("{}: {warning}", self.name());
        }
        added
    }

    /// Adds a handler. The caller logs the warnings after this method returns: a logger is user
    /// code and may call the informer, whose locks are held here.
    fn add(
        &self,
        handler: Box<dyn ResourceEventHandler<T>>,
        options: HandlerOptions,
        warnings: &mut Vec<String>,
    ) -> Result<HandlerRegistration, InformerError> {
        let Shared {
            indexer, processor, ..
        } = &*self.shared;
        let number = self.shared.next_handler.fetch_add(1, Ordering::Relaxed);
        let name = options.name.unwrap_or_else(|| format!("handler-{number}"));
        let name: Arc<str> = name.into();
        let clock = Arc::clone(&self.shared.lifecycle.lock().options.reflector.clock);
        // Call the clock after the unlock, because it is user code.
        let now = clock.now();

        let mut lifecycle = self.shared.lifecycle.lock();
        if self.is_stopped() {
            return Err(self.stopped("the handler was not added"));
        }
        let requested = self.resync_period(&mut lifecycle, options.resync_period, now, warnings);
        let check = lifecycle.options.reflector.resync_period;
        if check.is_zero() && !requested.is_zero() {
            let what = "gets no resyncs: the informer has no resync period";
            warnings.push(format!("handler {name:?} {what}"));
        }
        let callee = Callee {
            handler,
            buffer: options.buffer,
            stacks: lifecycle.options.reflector.stack_sizes,
            clock,
        };
        let state = &self.shared.state;
        let handler = Handler::new(Arc::clone(&name), Arc::clone(&state.name), &state.inline);
        let handler = Arc::new(handler);
        let resync = Resync::new(requested, check, self.shared.sources.len(), now);
        let listener = ProcessorListener::new(Arc::clone(&handler), resync, callee);
        let replay = {
            let _blocked = self.shared.block_deltas.lock();
            let initial = match lifecycle.started {
                Started::No => Vec::new(),
                Started::ByRun | Started::ByDrivers => indexer.keyed().entries(),
            };
            processor
                .add_listener(listener, initial)
                .map_err(|error| InformerError::thread(&name, error))?
        };
        let started = lifecycle.started;
        // Other handlers, and calls that need these locks, do not wait for the initial list.
        drop(lifecycle);
        // If the informer has synced, the whole initial list of this handler has been added above.
        // Otherwise [`Shared::set_synced`] marks the handler when the queues have synced.
        let has_synced = || self.has_synced();
        if let Some(replay) = replay {
            replay.send();
            if has_synced() {
                handler.set_upstream_synced();
                processor.wake();
            }
        } else {
            if has_synced() {
                handler.set_upstream_synced();
            }
            self.deliver_soon(&handler, started, warnings);
        }
        Ok(HandlerRegistration {
            informer: self.shared.state.owner,
            handler,
        })
    }

    /// Has a late inline handler called, with its initial list.
    fn deliver_soon(&self, handler: &Handler, started: Started, warnings: &mut Vec<String>) {
        if started == Started::No {
            return;
        }
        // A thread that waits for changes can be interrupted, whatever its namespace.
        let mut running = self.shared.running.get().into_iter().flatten();
        let is_requested = running.any(|running| running.state.reflector.request_return());
        // A callback of the informer adds the handler: its thread continues with it.
        if self.shared.state.is_own_thread() {
            return self.shared.processor.repeat_delivery();
        }
        // The next step of a driver delivers, and the program has no thread of ours.
        if is_requested || started == Started::ByDrivers || handler.stats().waiting == 0 {
            return;
        }
        // All threads await a response, which may take minutes. To end the requests would repeat
        // them, and handlers that are added often would keep a list from ending. The calling thread
        // may hold locks that the handler needs. So another thread calls it.
        let started = {
            let lifecycle = self.shared.lifecycle.lock();
            // The end of the run joins the threads that were started before.
            if self.is_stopped() {
                return;
            }
            let stack = lifecycle.options.reflector.stack_sizes.of_reflector();
            let shared = Arc::clone(&self.shared);
            let deliver_late = move || shared.processor.deliver_late();
            let name = format!("{} run", handler.name);
            let processor = &self.shared.processor;
            processor.start_delivery(name, stack, deliver_late)
        };
        if let Err(error) = started {
            let what = "receives the cached objects when the server responds";
            warnings.push(format!("handler {:?} {what}: {error}", handler.name));
        }
    }

    /// Removes a handler without waiting for it. A running call continues, and pending
    /// notifications are dropped. Does nothing if the handler was already removed or belongs to
    /// another informer.
    pub fn remove_event_handler(&self, registration: &HandlerRegistration) {
        let removed = {
            let _lifecycle = self.shared.lifecycle.lock();
            let _blocked = self.shared.block_deltas.lock();
            self.shared.processor.remove_listener(&registration.handler)
        };
        // Not under the locks: this may drop a handler that never ran, and its destructor is user
        // code.
        drop(removed);
    }

    /// Removes a handler and waits until it will not be called again. The method waits for a
    /// running call. It also works for a handler that was removed before, and before the informer
    /// runs.
    ///
    /// `timeout` limits the wait: a `Duration`, or `None`. client-go's `ShutDownEventHandler`.
    ///
    /// ```
    /// use k8s_informer::handler::HandlerFuncs;
    /// use k8s_informer::{DynamicObject, SharedIndexInformer};
    /// use k8s_informer_testing::ScriptedListerWatcher;
    /// use std::sync::Arc;
    ///
    /// let nothing = Arc::new(ScriptedListerWatcher::new([]));
    /// let informer = SharedIndexInformer::<DynamicObject>::new(nothing, Default::default());
    /// let handler = informer.add_handler(HandlerFuncs::new())?;
    /// informer.shut_down_event_handler(&handler, None)?;
    /// assert!(handler.ended().is_done());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`ShutdownError::TimedOut`] if a call of the handler takes longer than the timeout.
    /// - [`ShutdownError::FromWithin`], immediately, if you call the method from within the handler,
    ///   or from a callback that the handler waits for.
    ///
    /// The handler is removed in these cases as well.
    ///
    /// - [`ShutdownError::NotFound`] if the handler belongs to another informer, which keeps it.
    pub fn shut_down_event_handler(
        &self,
        registration: &HandlerRegistration,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), ShutdownError> {
        let timeout = timeout.into();
        let name = registration.name();
        if registration.informer != self.shared.state.owner {
            return Err(ShutdownError::NotFound {
                name: name.to_owned(),
            });
        }
        self.remove_event_handler(registration);
        let (ended, owner) = (registration.ended(), registration.handler.owner);
        let deadline = Deadline::after(timeout);
        // Another thread may be in the handler's destructor, so also a callback of the informer waits.
        let wait = || ended.wait_until(deadline, &Stop::never());
        let has_ended = match ended.is_done() {
            true => Some(true),
            false => Owner::wait_for(&[owner], wait),
        };
        match has_ended {
            Some(true) => Ok(()),
            Some(false) => Err(ShutdownError::TimedOut {
                after: timeout.unwrap_or_default(),
                stuck: match self.shared.state.delivery() {
                    Delivery::Threads => vec![format!("{name} run")],
                    // One of these calls the handler.
                    Delivery::Inline => self.running_thread_names(),
                },
            }),
            None => {
                let error = ShutdownError::FromWithin;
                log::warn!("{}: handler {name:?}: {error}", self.name());
                Err(error)
            }
        }
    }

    /// Returns the resync period for a handler with this requested period: zero for no resyncs,
    /// otherwise at least one second. If the period is shorter than the informer's, the result
    /// depends on whether the informer has started. Before its start, the informer adopts the
    /// shorter period. After its start, the handler gets the informer's period (I9).
    fn resync_period(
        &self,
        lifecycle: &mut Lifecycle<T>,
        requested: Option<Duration>,
        now: Instant,
        warnings: &mut Vec<String>,
    ) -> Duration {
        let check = lifecycle.options.reflector.resync_period;
        let requested = requested.unwrap_or(self.shared.default_resync_period);
        if requested.is_zero() {
            return requested;
        }
        let period = requested.max(MIN_RESYNC_PERIOD);
        if requested < period {
            warnings.push(format!(
                "a resync period of {requested:?} is too short; using {period:?}"
            ));
        }
        if period >= check {
            return period;
        }
        if lifecycle.started != Started::No {
            warnings.push(format!(
                "a resync period of {period:?} is shorter than that of the running informer; using {check:?}"
            ));
            return check;
        }
        lifecycle.options.reflector.resync_period = period;
        self.shared.processor.resync_period_changed(period, now);
        period
    }
}
