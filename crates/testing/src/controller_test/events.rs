//! The events of a controller in a test.

use k8s_informer::error::Error;
use k8s_informer::object::ObjectName;
use k8s_informer::stop::Stop;
use k8s_informer_controller::events::EventSink;
use parking_lot::Mutex;
use serde_json::Value;

/// Keeps the events, in the order of their creation, in place of a server. No other lock is taken
/// and no user code runs while it is locked.
#[derive(Default)]
pub(super) struct RecordedEvents(Mutex<Vec<RecordedEvent>>);

struct RecordedEvent {
    /// The namespace and the name of the event.
    id: ObjectName,
    text: String,
    count: u64,
    is_taken: bool,
}

impl RecordedEvents {
    /// Returns the events that are new or have another count.
    pub(super) fn take(&self) -> Vec<String> {
        let mut events = self.0.lock();
        let fresh = events.iter_mut().filter(|event| !event.is_taken);
        let text = |event: &mut RecordedEvent| {
            event.is_taken = true;
            match event.count {
                1 => event.text.clone(),
                count => format!("{} (x{count})", event.text),
            }
        };
        fresh.map(text).collect()
    }
}

impl EventSink for RecordedEvents {
    fn create(&self, namespace: &str, event: &Value, _: &Stop) -> Result<(), Error> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = &event["regarding"];
        let object = ObjectName::new(text(&of["namespace"]), text(&of["name"]));
        let [kind, reason, note] = ["type", "reason", "note"].map(|field| text(&event[field]));
        let recorded = RecordedEvent {
            id: ObjectName::new(namespace, text(&event["metadata"]["name"])),
            text: format!("{kind} {reason} {} {object}: {note}", text(&of["kind"])),
            count: event["series"]["count"].as_u64().unwrap_or(1),
            is_taken: false,
        };
        self.0.lock().push(recorded);
        Ok(())
    }

    fn patch(&self, namespace: &str, name: &str, patch: &Value, _: &Stop) -> Result<(), Error> {
        let id = ObjectName::new(namespace, name);
        let mut events = self.0.lock();
        if let Some(event) = events.iter_mut().rev().find(|event| event.id == id) {
            event.count = patch["series"]["count"].as_u64().unwrap_or(event.count);
            event.is_taken = false;
        }
        Ok(())
    }
}
