//! What all calls of a controller share, in all terms.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::controller::sources::source::Sources;
use crate::events::{EventError, EventRecorder, EventSink};
use crate::metrics::ControllerMetrics;
use k8s_informer::__private::Meter;
use k8s_informer::client::Client;
use k8s_informer::object::GroupVersionKind;
use k8s_informer::time::Clock;

/// The maximum time to write the last events of a controller that has ended.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// What a controller has from its construction on. Everything that serves its calls shares it.
pub(crate) struct Core {
    pub(crate) name: String,
    /// The kind of the primary objects. `None` for a dynamic resource without a declared kind.
    pub(crate) kind: Option<GroupVersionKind>,
    /// Not gated: calls use [`Call::client`](super::calls::Call::client), and events are also written
    /// after the end of a term.
    pub(crate) client: Client,
    /// The manager of the fields that calls apply.
    pub(crate) field_manager: String,
    pub(crate) sources: Sources,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Events,
    pub(crate) meter: Meter<dyn ControllerMetrics>,
}

/// Where the events of a controller go.
#[derive(Default)]
pub(crate) struct Events {
    /// Created by the first call that records an event.
    recorder: OnceLock<EventRecorder>,
    /// Receives the events in a test.
    sink: Option<Arc<dyn EventSink>>,
}

impl Core {
    /// Returns the recorder of the controller. The first use starts its thread.
    pub(crate) fn recorder(&self) -> Result<&EventRecorder, EventError> {
        let Events { recorder, sink } = &self.events;
        if let Some(recorder) = recorder.get() {
            return Ok(recorder);
        }
        let builder = match sink {
            // A test sees all events.
            Some(sink) => {
                EventRecorder::with_sink(Arc::clone(sink), &self.name).queue_size(usize::MAX)
            }
            None => EventRecorder::builder(&self.client, &self.name),
        };
        let built = builder.clock(Arc::clone(&self.clock)).build()?;
        // Another call may have been faster. The recorder of this one then ends unused.
        Ok(recorder.get_or_init(|| built))
    }
}

impl Events {
    pub(crate) fn new(sink: Option<Arc<dyn EventSink>>) -> Self {
        Self {
            recorder: OnceLock::new(),
            sink,
        }
    }

    /// Passes all recorded events to the sink of a test.
    pub(crate) fn flush(&self, timeout: Duration) {
        if let Some(recorder) = self.recorder.get() {
            // If this times out, the test misses events.
            let _ = recorder.flush(timeout);
        }
    }

    /// Writes the waiting events, for a limited time.
    pub(crate) fn shut_down(&self) {
        if let Some(recorder) = self.recorder.get() {
            // The events that are lost are logged.
            let _ = recorder.shut_down(LAST_EVENTS);
        }
    }
}
