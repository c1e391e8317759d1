//! An informer without threads: the program owns the loop.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs one namespace of an informer, or the whole informer, on the thread that calls
/// [`step`](Self::step).
///
/// It is for programs with a loop of their own: a proxy module, a file system, a game, a test. Create
/// drivers with [`SharedIndexInformer::drivers`](crate::SharedIndexInformer::drivers),
/// [`SharedInformerFactory::drivers`](crate::SharedInformerFactory::drivers) or
/// [`Observe::drivers`](crate::informer::Observe::drivers). An informer for several namespaces has a
/// driver for each of them. The [guide](crate::guide::tuning#how-does-a-program-own-the-loop) has a
/// program.
///
/// The informer behaves as on [one
/// thread](crate::informer::SharedIndexInformerOptions::one_thread): a step calls the handlers, and
/// the cache is not ahead of them. Dropping one driver ends the informer. client-go has no counterpart.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use k8s_informer::informer::Progress;
/// use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
/// let (sender, names) = std::sync::mpsc::channel();
/// informer.add_event_handler(|handler| handler
///     .on_add(move |pod, _| sender.send(pod.name().to_owned()).unwrap()))?;
///
/// let stop = Stopper::new();
/// let mut drivers = informer.drivers(&stop)?;
/// let driver = &mut drivers[0];
/// assert_eq!(driver.step(Duration::ZERO), Progress::Requesting); // Nothing was sent yet.
/// while !informer.has_synced() {
///     driver.step(Duration::from_millis(10));
/// }
/// assert_eq!(names.try_recv(), Ok("a".to_owned())); // A step has called the handler.
///
/// stop.stop();
/// assert_eq!(driver.step(Duration::ZERO), Progress::Ended);
/// assert!(informer.ended().is_done());
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[must_use = "dropping the driver ends the informer"]
pub struct Driver {
    name: Arc<str>,
    steps: Box<dyn Steps>,
}

/// What a step of a [`Driver`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The next step sends a request, which may take long.
    Requesting,
    /// The server has sent something, or a wait has ended. The handlers have been called with
    /// everything that was read.
    Active,
    /// Nothing happened within the timeout.
    Idle,
    /// The informer has ended. Further steps do nothing.
    Ended,
}

/// The steps of a driver, without the type of the objects.
pub(super) trait Steps: Send {
    fn step(&mut self, timeout: Duration) -> Progress;
}

impl Driver {
    pub(super) fn new(name: Arc<str>, steps: Box<dyn Steps>) -> Self {
        Self { name, steps }
    }

    /// Returns the name of the informer in logs and errors, with the namespace if it is one of
    /// several.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Performs one step: a part of a wait, a request, or one read and the delivery of what it
    /// brought. Calls handlers, transforms, index functions and error callbacks on this thread.
    ///
    /// While a watch is open, in back-offs and while it waits for a resync, a step blocks for `timeout`
    /// at most. A read of less than a millisecond takes a millisecond. A step returns after each batch of
    /// changes, so call it again at once after [`Progress::Active`].
    ///
    /// **Blocking.** A request blocks until the head of its response has arrived, until its own limits
    /// are reached, or until the `Stop` is set: to abort it at a timeout would never connect. The step
    /// before it returns [`Progress::Requesting`], so a loop can say so or choose its moment. The limits
    /// of a client are those of its [`Config`](crate::Config): name resolution, connect, the token of a
    /// plugin, response head. The client resolves names on a short-lived thread of its own. The objects
    /// of a list are read to the same limits, one read in a step. A [`Body`](crate::reflector::Body)
    /// without timed reads makes a step wait for bytes.
    ///
    /// A callback must not wait for its informer: such waits return an error, as on [one
    /// thread](crate::informer::SharedIndexInformerOptions::one_thread). Outside of a step, a wait on
    /// the thread that owns the driver blocks forever unless it has a timeout.
    pub fn step(&mut self, timeout: Duration) -> Progress {
        self.steps.step(timeout)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Steps several drivers in turn, and shares `timeout` among them: each one gets an equal part of the
/// time that is left.
///
/// Returns [`Active`](Progress::Active) if a driver was active, otherwise
/// [`Requesting`](Progress::Requesting) if the next step of one sends a request, otherwise
/// [`Idle`](Progress::Idle). Returns [`Ended`](Progress::Ended) once all of them have ended.
///
/// ```
/// use k8s_informer::informer::{Progress, step_all};
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let list = |namespace: &str| {
///     let pod = format!(r#"{{"metadata": {{"namespace": "{namespace}", "name": "web"}}}}"#);
///     let list = format!(r#"{{"kind": "List", "metadata": {{"resourceVersion": "7"}}, "items": [{pod}]}}"#);
///     Arc::new(ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]))
/// };
/// let informer = SharedIndexInformer::<DynamicObject>::for_namespaces(
///     [("blue".to_owned(), list("blue") as _), ("green".to_owned(), list("green") as _)],
///     Default::default(),
/// );
/// let stop = Stopper::new();
/// let mut drivers = informer.drivers(&stop)?;
/// assert_eq!(drivers.len(), 2);
/// while !informer.has_synced() {
///     step_all(&mut drivers, Duration::from_millis(10));
/// }
/// assert_eq!(informer.lister().list().len(), 2);
/// stop.stop();
/// assert_eq!(step_all(&mut drivers, Duration::ZERO), Progress::Ended);
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
pub fn step_all(drivers: &mut [Driver], timeout: Duration) -> Progress {
    let began = Instant::now();
    let mut all = Progress::Ended;
    for (left, driver) in (1..=drivers.len()).rev().zip(drivers.iter_mut()) {
        let rest = timeout.saturating_sub(began.elapsed());
        let share = rest / u32::try_from(left).unwrap_or(u32::MAX);
        all = all.or(driver.step(share));
    }
    all
}

impl Progress {
    /// Returns the progress of two drivers together.
    fn or(self, other: Self) -> Self {
        let first = [Self::Active, Self::Requesting, Self::Idle];
        let is_either = |progress: &Self| [self, other].contains(progress);
        first.into_iter().find(is_either).unwrap_or(Self::Ended)
    }
}
