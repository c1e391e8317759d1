use super::EventRecorder;
use crate::events::EventError;
use crate::events::core::event::Event;
use crate::events::validation::check;
use k8s_informer::object::Referable;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information only.
    Normal,
    /// Something may need attention.
    Warning,
}

impl EventType {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event that is not recorded until [`send`](Self::send) is called. Created by
/// [`EventRecorder::new_event`], which has an example.
#[derive(Debug)]
#[must_use = "an event is recorded by `send`"]
pub struct EventDraft<'a> {
    pub(super) recorder: &'a EventRecorder,
    pub(super) event: Event,
}

impl EventDraft<'_> {
    /// Sets the action that your controller took or failed at, for example `Mount`. The default is
    /// the reason. At most 128 bytes.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.event.action = action.into();
        self
    }

    /// Sets a second object that the event is about, for example the node of a Pod.
    pub fn related(mut self, object: &(impl Referable + ?Sized)) -> Self {
        self.event.related = Some(object.reference());
        self
    }

    /// Adds an annotation of the event.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let annotations = &mut self.event.annotations;
        annotations.insert(key.into(), value.into());
        self
    }

    /// Records the event. Never blocks for the server.
    ///
    /// # Errors
    ///
    /// The errors of [`EventRecorder::event`].
    pub fn send(self) -> Result<(), EventError> {
        let event = check(&self.event).map(|()| self.event);
        self.recorder.handle.shared.record(event)
    }
}
