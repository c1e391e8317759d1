use std::collections::BTreeMap;

use super::EventRecorder;
use crate::events::{EventError, ObjectReference, Referable};

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
    recorder: &'a EventRecorder,
    pub(super) regarding: ObjectReference,
    pub(super) related: Option<ObjectReference>,
    pub(super) kind: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
    pub(super) annotations: BTreeMap<String, String>,
}

impl<'a> EventDraft<'a> {
    pub(super) fn new(
        recorder: &'a EventRecorder,
        regarding: ObjectReference,
        kind: EventType,
        reason: String,
        note: String,
    ) -> Self {
        Self {
            recorder,
            regarding,
            related: None,
            kind,
            action: reason.clone(),
            reason,
            note,
            annotations: BTreeMap::new(),
        }
    }

    /// Sets the action that your controller took or failed at, for example `Mount`. The default is
    /// the reason. At most 128 bytes.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = action.into();
        self
    }

    /// Sets a second object that the event is about, for example the node of a Pod.
    pub fn related(mut self, object: &(impl Referable + ?Sized)) -> Self {
        self.related = Some(object.reference());
        self
    }

    /// Adds an annotation of the event.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Records the event. Never blocks for the server.
    ///
    /// # Errors
    ///
    /// The errors of [`EventRecorder::event`].
    pub fn send(self) -> Result<(), EventError> {
        self.recorder.record(self)
    }
}
