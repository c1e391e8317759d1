use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{EventRecorder, Handle};
use crate::events::state::{Limits, State};
use crate::events::validation::{check_recorder, cut};
use crate::events::writer::{self, Shared};
use crate::events::{EventError, EventSink};
use k8s_informer::stop::{Stop, Stopper};
use k8s_informer::time::{Clock, RealClock};

/// Creates the sink with this limit for each phase of a request.
type MakeSink = dyn FnOnce(Duration) -> Arc<dyn EventSink> + Send;

/// A builder for an [`EventRecorder`].
///
/// The defaults are those of client-go, see [the guide](crate::guide::events).
///
/// ```
/// use k8s_informer::{Client, Config};
/// use k8s_informer_controller::events::EventRecorder;
///
/// let client = Client::new(Config::new("http://localhost:1"))?;
/// let recorder = EventRecorder::builder(&client, "example.com/team-controller")
///     .instance("team-controller-0")
///     .queue_size(500)
///     .build()?;
/// assert_eq!(recorder.stats().recorded, 0);
/// let error = EventRecorder::builder(&client, "no name").build().unwrap_err();
/// assert!(error.to_string().contains("reportingController"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct EventRecorderBuilder {
    sink: Box<MakeSink>,
    controller: String,
    instance: Option<String>,
    limits: Limits,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
    stop: Stopper,
}

impl EventRecorderBuilder {
    pub(super) fn new(
        controller: String,
        sink: impl FnOnce(Duration) -> Arc<dyn EventSink> + Send + 'static,
    ) -> Self {
        Self {
            sink: Box::new(sink),
            controller,
            instance: None,
            limits: Limits {
                cache: 4096,
                queue: 1000,
                series_interval: Duration::from_secs(30),
            },
            request_timeout: Duration::from_secs(10),
            clock: Arc::new(RealClock),
            stop: Stopper::new(),
        }
    }

    /// Sets the name of this instance of the controller, at most 128 bytes. The default is the
    /// name of the controller, a dash and the host name.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Sets how many events are remembered, so that equal ones are counted. The default is 4096.
    /// The one that was not seen for the longest time is forgotten.
    pub fn cache_size(mut self, entries: usize) -> Self {
        self.limits.cache = entries.max(1);
        self
    }

    /// Sets how many event objects can wait to be written. The default is 1000. Further ones are
    /// dropped.
    pub fn queue_size(mut self, events: usize) -> Self {
        self.limits.queue = events.max(1);
        self
    }

    /// Sets the maximum time until a changed count is written. The default is 30 seconds. A doubled
    /// count is written at once.
    pub fn series_interval(mut self, interval: Duration) -> Self {
        self.limits.series_interval = interval;
        self
    }

    /// Sets the time limit for each phase of a request. The default is 10 seconds. A custom sink
    /// has its own limit.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the clock. The default is the system clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Ends the recorder when `stop` is set, without writing the waiting events. To write it, use a
    /// stop that you set after [`EventRecorder::shut_down`], or none.
    pub fn stop(mut self, stop: &Stop) -> Self {
        self.stop = stop.child();
        self
    }

    /// Starts the thread of the recorder.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of the controller or of the instance is invalid, or if the
    /// system cannot start a thread.
    pub fn build(self) -> Result<EventRecorder, EventError> {
        let controller = self.controller;
        let instance = self
            .instance
            .unwrap_or_else(|| cut(format!("{controller}-{}", host_name()), 128));
        check_recorder(&controller, &instance)?;
        let shared = Shared::new(
            &controller,
            State::new(self.limits),
            (self.sink)(self.request_timeout),
            self.clock,
            self.stop,
        );
        let shared = Arc::new(shared);
        writer::spawn(&shared).map_err(|error| EventError::Thread(Arc::new(error)))?;
        let handle = Arc::new(Handle {
            shared,
            controller,
            instance,
        });
        Ok(EventRecorder { handle })
    }
}

impl fmt::Debug for EventRecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorderBuilder")
            .field("controller", &self.controller)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// Returns the name of this host, which is that of the Pod in a cluster, or `unknown`. The standard
/// library has no function for it.
pub(crate) fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    kernel
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}
