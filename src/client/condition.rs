//! Reads conditions in the JSON of objects.

use serde_json::Value;

/// A condition in the status of an object. A field with an unexpected type counts as absent.
pub(super) struct Condition<'a> {
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    /// The generation for which the condition was determined, if the condition has one.
    pub(super) observed_generation: Option<i64>,
}

impl<'a> Condition<'a> {
    /// Returns the condition of this type, if the object has one.
    pub(super) fn of(object: &'a Value, type_: &str) -> Option<Self> {
        let conditions = object.pointer("/status/conditions")?.as_array()?;
        let condition = conditions.iter().find(|one| one["type"] == *type_)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        Some(Self {
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            observed_generation: condition["observedGeneration"].as_i64(),
        })
    }
}
