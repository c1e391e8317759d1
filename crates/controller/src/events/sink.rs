use std::time::Duration;

use serde_json::Value;

use k8s_informer::client::{Client, Request};
use k8s_informer::error::Error;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::stop::Stop;

/// Receives the requests of an [`EventRecorder`](super::EventRecorder). Replaces the API server in
/// tests, see [`EventRecorder::with_sink`](super::EventRecorder::with_sink). client-go's
/// `EventSink`.
///
/// The thread of the recorder calls the sink, one request after another. A method may block until
/// `stop` is set. A panic is caught and counts as a refusal.
///
/// The error decides what follows: a [retryable](Error::is_retryable) request is repeated, after
/// the time of [`retry_after`](Error::retry_after) if there is one. After a
/// [missing event](Error::is_not_found), a patch becomes a create. Other errors end the attempt.
pub trait EventSink: Send + Sync + 'static {
    /// Creates an event from its complete JSON.
    ///
    /// # Errors
    ///
    /// Returns the error of the request.
    fn create(&self, namespace: &str, event: &Value, stop: &Stop) -> Result<(), Error>;

    /// Updates the count of an event with a strategic merge patch.
    ///
    /// # Errors
    ///
    /// Returns the error of the request.
    fn patch(&self, namespace: &str, name: &str, patch: &Value, stop: &Stop) -> Result<(), Error>;
}

/// Sends the requests to an API server.
pub(super) struct ClientSink {
    pub(super) client: Client,
    /// The limit for each phase of a request.
    pub(super) timeout: Duration,
}

fn events() -> GroupVersionResource {
    GroupVersionResource::new("events.k8s.io", "v1", "events")
}

impl ClientSink {
    fn send(&self, request: Request, stop: &Stop) -> Result<(), Error> {
        // The recorder retries itself, so that it can count and stop meanwhile.
        let request = request.retries(0).response_timeout(self.timeout);
        // The body is read, so that the connection can be used again.
        self.client.request(&request, stop)?.bytes().map(drop)
    }
}

impl EventSink for ClientSink {
    fn create(&self, namespace: &str, event: &Value, stop: &Stop) -> Result<(), Error> {
        self.send(
            Request::post(events().path(Some(namespace))?).json(event)?,
            stop,
        )
    }

    fn patch(&self, namespace: &str, name: &str, patch: &Value, stop: &Stop) -> Result<(), Error> {
        let request = Request::patch(events().object_path(Some(namespace), name)?).json(patch)?;
        let media_type = "application/strategic-merge-patch+json";
        self.send(request.content_type(media_type), stop)
    }
}
