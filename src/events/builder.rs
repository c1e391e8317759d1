use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::core::json::EventApi;
use super::recorder::Settings;
use super::state::Limits;
use super::validation::{check_recorder, cut};
use super::{EventError, EventRecorder, EventSink};
use crate::stop::Stop;
use crate::time::{Clock, RealClock};

/// Creates the sink of an API.
type MakeSink = dyn FnOnce(EventApi, Duration) -> Arc<dyn EventSink> + Send;

/// A builder for an [`EventRecorder`].
///
/// The defaults are those of client-go, see [the guide](crate::guide::events).
///
/// ```
/// use k8s_informer::events::EventRecorder;
/// use k8s_informer::{Client, Config};
///
/// let client = Client::new(Config::new("http://localhost:1"))?;
/// let recorder = EventRecorder::builder(&client, "example.com/team-controller")
///     .instance("team-controller-0")
///     .spam_filter(50, 1.0 / 60.0)
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
    api: EventApi,
    limits: Limits,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
    stop: Stop,
}

impl EventRecorderBuilder {
    pub(super) fn new(
        controller: String,
        sink: impl FnOnce(EventApi, Duration) -> Arc<dyn EventSink> + Send + 'static,
    ) -> Self {
        Self {
            sink: Box::new(sink),
            controller,
            instance: None,
            api: EventApi::EventsV1,
            limits: Limits::default(),
            request_timeout: Duration::from_secs(10),
            clock: Arc::new(RealClock),
            stop: Stop::new(),
        }
    }

    /// Sets the name of this instance of the controller, at most 128 bytes. The default is the
    /// name of the controller, a dash and the host name; for core `v1`, it is the host name.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Writes to the core `v1` API instead of `events.k8s.io/v1`. The correlation is then that of
    /// client-go's `record` package.
    pub fn core_v1(mut self) -> Self {
        self.api = EventApi::CoreV1;
        self
    }

    /// Counts events that differ only in their notes as one series with the first note, as
    /// client-go's `events` package does. By default, the note tells events apart. Has no effect on
    /// core `v1`.
    pub fn merge_notes(mut self) -> Self {
        self.limits.merge_notes = true;
        self
    }

    /// Limits the events about one object and of one type: `burst` at once, and then `per_second`.
    /// The default is 25 and one in 300 seconds.
    ///
    /// In `events.k8s.io/v1`, the filter limits new series. In core `v1`, it also limits updates of
    /// the count.
    #[doc(alias = "QPS")]
    pub fn spam_filter(mut self, burst: u32, per_second: f64) -> Self {
        self.limits.correlator.burst = burst;
        self.limits.correlator.per_second = per_second;
        self
    }

    /// Combines events that differ only in their notes from the `max_events`-th on. The count of
    /// different notes starts again after `interval` without such an event. The default is 10
    /// events in 600 seconds.
    #[doc(alias = "MaxEvents")]
    pub fn aggregation(mut self, max_events: usize, interval: Duration) -> Self {
        self.limits.correlator.max_events = max_events.max(1);
        self.limits.correlator.interval = interval;
        self
    }

    /// Sets the size of each map that correlation needs. The default is 4096. The least recently
    /// used entry is forgotten.
    #[doc(alias = "LRUCacheSize")]
    pub fn cache_size(mut self, entries: usize) -> Self {
        self.limits.correlator.limit = entries.max(1);
        self
    }

    /// Sets how many event objects can wait to be written. The default is 1000. Further ones are
    /// dropped.
    pub fn queue_size(mut self, events: usize) -> Self {
        self.limits.queue = events.max(1);
        self
    }

    /// Sets the maximum time until a changed count is written, for `events.k8s.io/v1`. The default
    /// is 30 seconds. A doubled count is written at once.
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
    /// stop that you set after [`EventRecorder::shutdown`], or none.
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
        let Self {
            controller, api, ..
        } = self;
        let instance = match (self.instance, api) {
            (Some(instance), _) => instance,
            (None, EventApi::CoreV1) => host_name(),
            (None, EventApi::EventsV1) => cut(format!("{controller}-{}", host_name()), 128),
        };
        check_recorder(&controller, &instance)?;
        EventRecorder::start(Settings {
            sink: (self.sink)(api, self.request_timeout),
            controller,
            instance,
            api,
            limits: self.limits,
            clock: self.clock,
            stop: self.stop,
        })
    }
}

impl fmt::Debug for EventRecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorderBuilder")
            .field("controller", &self.controller)
            .field("instance", &self.instance)
            .field("api", &self.api)
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
