use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::finalize::{Finalized, Finalizer};
use super::outcome::{Again, Failure, HandlerErrors, Next, Outcome};
use super::schedule::{Due, Schedule};
use k8s_informer::object::{FullMetadata, Key, Object};
use k8s_informer::time::Clock;
use k8s_informer::workqueue::RateLimiter;

/// Several named handlers that share a controller: its informer, queue and workers.
///
/// Pass it to [`ControllerBuilder::by_handlers`](super::ControllerBuilder::by_handlers). It
/// corresponds to the handlers of a Lasso `SharedController`, and to `OnChange` and `OnRemove` of
/// Wrangler.
///
/// A change of an object causes one run. It calls all handlers for the object, in the order in which
/// they were added, on one thread. Runs for the same key never overlap.
///
/// - **Each handler has its own outcome.** After [`Next::After`] or a failure, only this handler is
///   called again, with its own back-off. The others are called again after the next change. (In
///   Lasso, one failure calls all handlers again.) A panic is a failure of its handler.
/// - **A handler can hand on an object** to the handlers after it in the same run: see
///   [`HandlerContext::hand_on`].
/// - **Gone.** For a key without an object, [`on_change`](Self::on_change) handlers receive `None`.
///   A key without an object that a program queues also delivers `None`.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer_controller::{Failure, NamedHandlers, Next};
/// use k8s_informer_testing::ControllerTest;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// let copies = Arc::new(AtomicUsize::new(0));
/// let counter = Arc::clone(&copies);
/// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), move |builder| {
///     let counter = Arc::clone(&counter);
///     let handlers = NamedHandlers::<ConfigMap>::new()
///         .on_remove("example.com/bucket", |map| map.data.is_some(), |cx, _| {
///             log::info!("{cx}: delete the bucket"); // Must succeed if there is none.
///             Ok(Next::Done)
///         })
///         .on_change("copy", move |_, map| {
///             counter.fetch_add(usize::from(map.is_some()), Relaxed);
///             Ok(Next::Done)
///         })
///         .on_change("flaky", |cx, _| match cx.attempt() {
///             1 => Err(Failure::new("not yet")),
///             _ => Ok(Next::Done),
///         });
///     builder.by_handlers(handlers)
/// })?;
/// let path = "/api/v1/namespaces/default/configmaps";
/// test.server().create(path, json!({"metadata": {"name": "a"}}))?;
/// test.run_until_idle()?;
/// // The retry has called only the handler that failed.
/// assert_eq!((test.calls("default/a"), copies.load(Relaxed)), (2, 1));
/// assert!(test.writes().is_empty(), "nothing to clean up, so no finalizer");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct NamedHandlers<T> {
    handlers: Vec<Handler<T>>,
}

enum Handler<T> {
    Change { name: String, run: Box<OnChange<T>> },
    Remove(Finalizer<T>),
}

type OnChange<T> =
    dyn Fn(&HandlerContext<'_, T>, Option<&Arc<T>>) -> Result<Next, Failure> + Send + Sync;

impl<T: Object> NamedHandlers<T> {
    /// Creates a list without handlers.
    pub fn new() -> Self {
        Self {
            handlers: Vec::new(),
        }
    }

    /// Adds a handler for changed and deleted objects. Wrangler's `OnChange`.
    ///
    /// The handler is called with `None` if there is no object with the key. It receives objects that
    /// are being deleted. Exception: after an [`on_remove`](Self::on_remove) handler, it is not
    /// called for them, and receives `None` when they are gone. The name appears in errors and logs.
    /// It must be unique within the controller.
    pub fn on_change(
        mut self,
        name: impl Into<String>,
        handler: impl Fn(&HandlerContext<'_, T>, Option<&Arc<T>>) -> Result<Next, Failure>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.handlers.push(Handler::Change {
            name: name.into(),
            run: Box::new(handler),
        });
        self
    }

    /// Adds a handler that cleans up before an object is deleted. Wrangler's `OnRemove`.
    ///
    /// The name is also that of the finalizer, for example `example.com/bucket`. The arguments are
    /// those of [`ControllerBuilder::finalizer`](super::ControllerBuilder::finalizer). The
    /// finalizer is added when this handler runs, and later handlers receive the object with it. So
    /// add this handler before the ones whose effects it cleans up: they are not called before the
    /// finalizer is present, and not while the object is being deleted. If the finalizer cannot be
    /// added, they wait for the retry. A controller has either these handlers or a
    /// [finalizer](super::ControllerBuilder::finalizer) of its own.
    pub fn on_remove(
        mut self,
        name: impl Into<String>,
        is_needed: impl Fn(&T) -> bool + Send + Sync + 'static,
        cleanup: impl Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        T: FullMetadata + DeserializeOwned,
    {
        let finalizer = Finalizer::new(name.into(), is_needed, cleanup);
        self.handlers.push(Handler::Remove(finalizer));
        self
    }

    /// Returns the names of the finalizers.
    pub(super) fn finalizers(&self) -> impl Iterator<Item = &str> {
        let handlers = self.handlers.iter();
        handlers.filter_map(|handler| match handler {
            Handler::Remove(finalizer) => Some(&*finalizer.name),
            Handler::Change { .. } => None,
        })
    }

    /// Returns the problem of a list that cannot be used.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.handlers.is_empty() {
            return Err(
                "there are no handlers: add one with `on_change` or `on_remove`".to_owned(),
            );
        }
        let mut names = HashSet::new();
        for name in self.handlers.iter().map(Handler::name) {
            if name.is_empty() {
                return Err("the name of a handler is empty".to_owned());
            }
            if !names.insert(name) {
                return Err(format!("two handlers have the name {name:?}"));
            }
        }
        Ok(())
    }
}

/// The named handlers of a controller, with the times of their next calls.
pub(super) struct ScheduledHandlers<T> {
    handlers: Vec<Handler<T>>,
    /// It gets a key for each key and handler.
    limiter: Arc<dyn RateLimiter<Key>>,
    clock: Arc<dyn Clock>,
    /// No other lock is taken and no user code runs while this one is held.
    schedule: Mutex<Schedule>,
}

impl<T: Object> ScheduledHandlers<T> {
    pub(super) fn new(
        NamedHandlers { handlers }: NamedHandlers<T>,
        limiter: Arc<dyn RateLimiter<Key>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            handlers,
            limiter,
            clock,
            schedule: Mutex::default(),
        }
    }

    /// Lets a call for a key run all handlers, after a delay at the latest.
    pub(super) fn request_all(&self, key: &Key, delay: Duration) {
        if let Some(at) = self.clock.now().checked_add(delay) {
            self.schedule.lock().all_at(key, at);
        }
    }

    /// Begins a call: returns the handlers that it runs.
    pub(super) fn take_due(&self, key: &Key) -> Due {
        let now = self.clock.now();
        self.schedule.lock().take(key, now)
    }

    /// Ends a call that has run no handler, so that the next one runs those that were due.
    pub(super) fn restore_due(&self, key: &Key, due: Due) {
        if due.is_all {
            self.request_all(key, Duration::ZERO);
        }
        self.schedule.lock().put(key, due);
    }

    /// Calls the handlers that are due, and ends the call. `object` is `None` if it is gone.
    pub(super) fn run(&self, mut cx: Context, mut due: Due, mut object: Option<Arc<T>>) -> Outcome {
        let (began, is_gone) = (self.clock.now(), object.is_none());
        let mut failed = Vec::new();
        let mut replaced = Vec::new();
        // The handler whose finalizer is missing, or whose object is being deleted. Later handlers
        // for changes are not called.
        let mut unguarded = None;
        for (at, handler) in self.handlers.iter().enumerate() {
            match handler {
                // Before each call of a later handler, unless it waits for its own retry.
                Handler::Remove(_) if due.is_waiting(at, began) => {
                    unguarded = Some(at);
                    continue;
                }
                Handler::Remove(_) => {}
                Handler::Change { .. } if !due.is_due(at, began) => continue,
                Handler::Change { .. } => {
                    if let Some(by) = unguarded {
                        due.wait_for(at, by);
                        continue;
                    }
                }
            }
            // An earlier handler has taken the whole time limit.
            if cx.stop().is_stopped() {
                due.run_at(at, self.clock.now());
                continue;
            }
            cx.call.attempt = due.failures(at).saturating_add(1);
            let mut is_guarded = true;
            let result = cx.call.of.guarded("the handler", || {
                handler.run(&cx, &mut object, &mut is_guarded)
            });
            if !is_guarded {
                unguarded = Some(at);
            }
            // One back-off for each key and handler. Names of objects contain no spaces.
            let key = Key::from(format!("{} {}", cx.key(), handler.name()));
            let mut retry = Duration::ZERO;
            match &result {
                Err(failure) if !failure.is_terminal() => retry = self.limiter.when(&key),
                _ => self.limiter.forget(&key),
            }
            if let Err(failure) = &result {
                failed.push((at, failure.clone()));
            }
            replaced.push(due.ran(at, result, self.clock.now(), retry));
        }
        // Nothing would remove them later.
        let forgotten = is_gone.then(|| due.forget_waiting());
        let named =
            |(at, failure): (usize, Failure)| (self.handlers[at].name().to_owned(), failure);
        let standing = due
            .failing()
            .map(|(at, failure)| named((at, failure.clone())));
        let failure = HandlerErrors::of(standing.collect());
        let failed = HandlerErrors::of(failed.into_iter().map(named).collect());
        let next = self.schedule.lock().put(cx.key(), due);
        let next = next.map(|next| next.saturating_duration_since(self.clock.now()));
        // Destructors of errors are user code, so they run here, without locks.
        drop((replaced, forgotten));
        Outcome {
            result: failed.map_or(Ok(next.map_or(Next::Done, Next::After)), Err),
            failure,
            again: next.map_or(Again::Never, Again::After),
        }
    }
}

impl<T> Handler<T> {
    fn name(&self) -> &str {
        match self {
            Self::Change { name, .. } => name,
            Self::Remove(finalizer) => &finalizer.name,
        }
    }

    /// Calls a handler. Clears `is_guarded` if the object lacks the finalizer of the handler, or is
    /// being deleted.
    fn run(
        &self,
        cx: &Context,
        object: &mut Option<Arc<T>>,
        is_guarded: &mut bool,
    ) -> Result<Next, Failure> {
        match self {
            Self::Change { run, .. } => {
                let cx = HandlerContext {
                    cx,
                    handed_on: RefCell::default(),
                };
                let result = run(&cx, object.as_ref());
                if let Some(handed_on) = cx.handed_on.into_inner() {
                    *object = Some(handed_on);
                }
                result
            }
            Self::Remove(finalizer) => {
                let Some(found) = &*object else {
                    return Ok(Next::Done);
                };
                *is_guarded = false;
                match finalizer.run(cx, found)? {
                    Finalized::Live(live) => {
                        *object = Some(live);
                        *is_guarded = true;
                        Ok(Next::Done)
                    }
                    Finalized::Deleted(next, patched) => {
                        // Later finalizers have other positions now.
                        if patched.is_some() {
                            *object = patched;
                        }
                        Ok(next)
                    }
                }
            }
        }
    }
}

impl<T: Object> Default for NamedHandlers<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for NamedHandlers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.handlers.iter().map(Handler::name).collect();
        f.debug_tuple("NamedHandlers").field(&names).finish()
    }
}

/// The context of one call of a named handler: a [`Context`], and an object to hand on.
///
/// [`Context::attempt`] counts the calls of this handler.
pub struct HandlerContext<'a, T> {
    cx: &'a Context,
    handed_on: RefCell<Option<Arc<T>>>,
}

impl<T> HandlerContext<'_, T> {
    /// Passes an object to the handlers after this one, instead of the one in the cache. Use it
    /// after a write, with the object in the response. Only handlers in the same run receive it. A
    /// later call replaces it.
    ///
    /// ```
    /// use k8s_informer::client::api::Patch;
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::{Failure, NamedHandlers, Next};
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), |builder| {
    ///     let handlers = NamedHandlers::<ConfigMap>::new()
    ///         .on_change("fill", |cx, map| {
    ///             if map.is_some_and(|map| map.data.is_none()) {
    ///                 let patch = Patch::merge(json!({"data": {"size": "3"}}));
    ///                 let maps = cx.api::<ConfigMap>(Some(cx.namespace()));
    ///                 cx.hand_on(maps.patch(cx.name(), &patch, cx.stop())?.into_inner());
    ///             }
    ///             Ok(Next::Done)
    ///         })
    ///         .on_change("read", |_, map| match map {
    ///             Some(map) if map.data.is_none() => Err(Failure::terminal("not filled")),
    ///             _ => Ok(Next::Done),
    ///         });
    ///     builder.by_handlers(handlers)
    /// })?;
    /// let path = "/api/v1/namespaces/default/configmaps";
    /// test.server().create(path, json!({"metadata": {"name": "a"}}))?;
    /// test.step()?;
    /// assert!(test.controller().failures().is_empty());
    /// assert_eq!(test.writes(), ["patch configmaps default/a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hand_on(&self, object: impl Into<Arc<T>>) {
        let replaced = self.handed_on.replace(Some(object.into()));
        drop(replaced);
    }
}

impl<T> Deref for HandlerContext<'_, T> {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.cx
    }
}

impl<T> fmt::Display for HandlerContext<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cx.fmt(f)
    }
}

impl<T> fmt::Debug for HandlerContext<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cx.fmt(f)
    }
}
