pub(super) mod builder;
pub(super) mod draft;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::builder::EventRecorderBuilder;
use self::draft::{EventDraft, EventType};
use super::core::event::Event;
use super::validation::cut;
use super::writer::Shared;
use super::{EventError, EventSink, EventStats};
use k8s_informer::error::{Error, ShutdownError, WaitError};
use k8s_informer::object::Referable;

/// The maximum length of a note in bytes.
const NOTE: usize = 1024;

/// How long dropping a recorder waits for its events.
const DROP: Duration = Duration::from_secs(2);

/// Records events about objects, and writes them on a thread.
///
/// Clones share the recorder. A call returns immediately: it counts the event, and a thread writes
/// the counts. Equal events become one object with a count. If the server is slow or unreachable,
/// counts go on, so that they are exact when it recovers. What has to be dropped is counted in
/// [`stats`](Self::stats) and logged.
///
/// The recorder writes to the API `events.k8s.io/v1`. Its counterpart in client-go is
/// `events.EventRecorder` with its broadcaster.
///
/// Your program needs the permissions `create` and `patch` for `events` in the group
/// `events.k8s.io`.
///
/// **Shutdown.** [`shut_down`](Self::shut_down) writes the waiting events, within a time limit. When
/// the last clone is dropped, the drop does the same, for at most two seconds.
///
/// ```
/// use k8s_informer::{Error, Stop};
/// use k8s_informer_controller::events::{EventRecorder, EventSink, EventType};
/// use k8s_openapi::api::core::v1::Pod;
/// use serde_json::Value;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// // Stands for the API server. For a real one, use EventRecorder::builder.
/// #[derive(Default)]
/// struct Sink(Mutex<Vec<Value>>);
///
/// impl EventSink for Sink {
///     fn create(&self, _namespace: &str, event: &Value, _: &Stop) -> Result<(), Error> {
///         self.0.lock().unwrap().push(event.clone());
///         Ok(())
///     }
///     fn patch(&self, _namespace: &str, _name: &str, patch: &Value, _: &Stop) -> Result<(), Error> {
///         self.0.lock().unwrap().push(patch.clone());
///         Ok(())
///     }
/// }
///
/// let sink = Arc::new(Sink::default());
/// let recorder = EventRecorder::with_sink(sink.clone(), "example.com/mounter").build()?;
/// let pod: Pod = serde_json::from_str(r#"{"metadata": {"name": "web-0", "namespace": "shop"}}"#)?;
/// recorder.event(&pod, EventType::Warning, "FailedMount", "no such volume")?;
///
/// recorder.shut_down(Duration::from_secs(2))?;
/// assert_eq!(recorder.stats().written, 1);
/// let events = sink.0.lock().unwrap();
/// assert_eq!(events[0]["regarding"]["name"], "web-0");
/// assert_eq!(events[0]["reason"], "FailedMount");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[doc(alias = "EventBroadcaster")]
pub struct EventRecorder {
    handle: Arc<Handle>,
}

/// The part of a recorder that its thread does not have. The thread ends when it is dropped.
struct Handle {
    shared: Arc<Shared>,
    controller: String,
    instance: String,
}

impl EventRecorder {
    /// Creates a builder for a recorder that writes to the API server of `client`.
    ///
    /// `controller` identifies the source of the events. It is a qualified name:
    /// `example.com/my-controller`.
    pub fn builder(
        client: &k8s_informer::client::Client,
        controller: impl Into<String>,
    ) -> EventRecorderBuilder {
        let client = client.clone();
        EventRecorderBuilder::new(controller.into(), |timeout| {
            Arc::new(super::sink::ClientSink { client, timeout })
        })
    }

    /// Creates a builder for a recorder that passes its requests to `sink` instead of a server. See
    /// [`EventRecorder`] for an example.
    pub fn with_sink(
        sink: Arc<dyn EventSink>,
        controller: impl Into<String>,
    ) -> EventRecorderBuilder {
        EventRecorderBuilder::new(controller.into(), |_| sink)
    }

    /// Records an event about an object. The action of the event is its reason. Never blocks for
    /// the server. client-go's `Eventf`.
    ///
    /// `reason` is a short name for programs, in upper camel case, and `note` is a sentence for
    /// people. A note of more than 1024 bytes is cut.
    ///
    /// # Errors
    ///
    /// Returns [`EventError::Invalid`] if the object has no name or kind, or if the reason is empty or
    /// has more than 128 bytes. Returns [`EventError::Stopped`] after a shutdown or stop. An event
    /// that the server refuses for another reason is logged, and counted as
    /// [`failed`](EventStats::failed).
    pub fn event(
        &self,
        object: &(impl Referable + ?Sized),
        kind: EventType,
        reason: impl Into<String>,
        note: impl Into<String>,
    ) -> Result<(), EventError> {
        self.new_event(object, kind, reason, note).send()
    }

    /// Creates an event with more fields than [`event`](Self::event) has. It is recorded by
    /// [`EventDraft::send`].
    ///
    /// ```
    /// # use k8s_informer::{Error, Stop};
    /// # use k8s_informer_controller::events::{EventRecorder, EventSink, EventType};
    /// # use k8s_informer::object::ObjectReference;
    /// # use serde_json::Value;
    /// # struct Sink;
    /// # impl EventSink for Sink {
    /// #     fn create(&self, _: &str, event: &Value, _: &Stop) -> Result<(), Error> {
    /// #         assert_eq!((&event["action"], &event["related"]["kind"]), (&"Mount".into(), &"Node".into()));
    /// #         Ok(())
    /// #     }
    /// #     fn patch(&self, _: &str, _: &str, _: &Value, _: &Stop) -> Result<(), Error> { Ok(()) }
    /// # }
    /// # let recorder = EventRecorder::with_sink(std::sync::Arc::new(Sink), "mounter").build()?;
    /// # let mut pod = ObjectReference::default();
    /// # (pod.kind, pod.name) = ("Pod".into(), "web-0".into());
    /// # let mut node = ObjectReference::default();
    /// # (node.kind, node.name) = ("Node".into(), "worker-1".into());
    /// recorder.new_event(&pod, EventType::Warning, "FailedMount", "no such volume")
    ///     .action("Mount")
    ///     .related(&node)
    ///     .annotation("example.com/volume", "data")
    ///     .send()?;
    /// # recorder.shut_down(std::time::Duration::from_secs(9))?;
    /// # assert_eq!(recorder.stats().written, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_event(
        &self,
        object: &(impl Referable + ?Sized),
        kind: EventType,
        reason: impl Into<String>,
        note: impl Into<String>,
    ) -> EventDraft<'_> {
        let (handle, regarding, reason) = (&self.handle, object.reference(), reason.into());
        let namespace = match &*regarding.namespace {
            "" => "default",
            namespace => namespace,
        };
        let event = Event {
            namespace: namespace.to_owned(),
            kind: kind.as_str().to_owned(),
            action: reason.clone(),
            note: cut(note.into(), NOTE),
            controller: handle.controller.clone(),
            instance: handle.instance.clone(),
            regarding,
            reason,
            ..Event::default()
        };
        EventDraft {
            recorder: self,
            event,
        }
    }

    /// Blocks until everything that was recorded before has been written, dropped or refused, for
    /// at most `timeout` in real time. Ends a pause after a failed request. client-go has no
    /// counterpart.
    ///
    /// # Errors
    ///
    /// Fails with the number of waiting events if the timeout elapses, or if the recorder has been
    /// stopped or shut down before they were written
    /// ([`is_stopped`](k8s_informer::error::WaitError::is_stopped)).
    ///
    /// ```
    /// # use k8s_informer::{Error, Stop};
    /// # use k8s_informer_controller::events::{EventRecorder, EventSink, EventType};
    /// # use k8s_informer::object::ObjectReference;
    /// # use serde_json::Value;
    /// # struct Full;
    /// # impl EventSink for Full {
    /// #     fn create(&self, _: &str, _: &Value, _: &Stop) -> Result<(), Error> {
    /// #         Err(Error::other("the disk is full"))
    /// #     }
    /// #     fn patch(&self, _: &str, _: &str, _: &Value, _: &Stop) -> Result<(), Error> { Ok(()) }
    /// # }
    /// # let full = std::sync::Arc::new(Full);
    /// # let mut pod = ObjectReference::default();
    /// # (pod.kind, pod.name) = ("Pod".into(), "web-0".into());
    /// use std::time::Duration;
    ///
    /// // This sink refuses everything.
    /// let recorder = EventRecorder::with_sink(full, "example.com/mounter").build()?;
    /// recorder.event(&pod, EventType::Normal, "Mounted", "the volume is mounted")?;
    /// recorder.flush(Duration::from_secs(9))?;
    /// assert_eq!(recorder.stats().failed, 1);
    /// assert_eq!(recorder.last_error().unwrap().to_string(), "the disk is full");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self, timeout: impl Into<Option<Duration>>) -> Result<(), WaitError> {
        self.handle.shared.flush(timeout.into())
    }

    /// Writes the waiting events, for at most `timeout` in real time, and ends the recorder and its
    /// clones. Later calls return [`EventError::Stopped`].
    ///
    /// What could not be written is logged and lost. Returns in time even if the server hangs. A
    /// custom sink that ignores its stop delays the return by up to one second. Without a timeout,
    /// it waits as long as the server is unreachable. client-go's `Shutdown` does not write the
    /// waiting events. [`stats`](Self::stats) has the numbers afterwards.
    ///
    /// # Errors
    ///
    /// The recorder has ended in any case.
    ///
    /// - [`TimedOut`](ShutdownError::TimedOut): `stuck` has the number of events that are lost, such
    ///   as `3 events unsent`. If a custom [`EventSink`] has not returned after its stop, it has the
    ///   name of the recorder, whose thread still runs.
    /// - [`Interrupted`](ShutdownError::Interrupted): the stop of the recorder was set before.
    /// - [`FromWithin`](ShutdownError::FromWithin): the sink called it. The waiting events are lost.
    #[doc(alias = "Shutdown")]
    pub fn shut_down(&self, timeout: impl Into<Option<Duration>>) -> Result<(), ShutdownError> {
        self.handle.shared.shut_down(timeout.into())
    }

    /// Returns what happened to the events so far. [`flush`](Self::flush) has an example.
    pub fn stats(&self) -> EventStats {
        self.handle.shared.stats()
    }

    /// Returns the most recent error of a request, also if later requests succeeded.
    /// [`flush`](Self::flush) has an example.
    pub fn last_error(&self) -> Option<Error> {
        self.handle.shared.last_error()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.is_closed() {
            return;
        }
        let timeout = match std::thread::panicking() {
            true => Duration::ZERO,
            false => DROP,
        };
        // The events that are lost are logged.
        let _ = self.shared.shut_down(Some(timeout));
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("controller", &self.handle.controller)
            .field("instance", &self.handle.instance)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
