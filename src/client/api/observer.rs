use serde_json::Value;

use crate::error::Error;
use crate::json;
use crate::object::{GroupVersionResource, Object, ObjectName, PartialObjectMetadata};

/// Observes the writes of an [`Api`](super::Api), for example to wait until a cache contains them.
///
/// Dry runs and writes to collections are not observed. [`Api::observed_by`](super::Api::observed_by)
/// has an example.
pub trait WriteObserver: Send + Sync {
    /// Called before the request, on the thread of the write. The name is empty if the server
    /// generates it.
    ///
    /// The returned function is called after the response, on the same thread. If the server has
    /// certainly not executed the write, it is dropped instead.
    fn before_write<'a>(
        &'a self,
        resource: &GroupVersionResource,
        object: &ObjectName,
    ) -> Box<dyn FnOnce(WriteOutcome<'_>) + 'a>;
}

/// What the response to a write says about its object.
#[non_exhaustive]
pub enum WriteOutcome<'a> {
    /// The object was created or changed. It is the object in the response.
    Written(&'a dyn Object),
    /// The object was removed.
    Deleted {
        /// The UID of the object, empty if the response does not have it.
        uid: &'a str,
    },
    /// The write failed, but the server may have executed it, or the response has no object.
    Unknown,
}

/// Reports the outcome of a deletion. `response` has a `Status` if the object is gone, and the
/// object if something holds it. Some kinds respond with the object in both cases.
pub(super) fn report_deletion(
    report: impl FnOnce(WriteOutcome<'_>),
    name: &str,
    response: &Result<Vec<u8>, Error>,
) {
    let body = match response {
        Ok(body) => body,
        Err(error) if error.is_outcome_unknown() => return report(WriteOutcome::Unknown),
        Err(_) => return,
    };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_held = is_held(&body);
    let uid_of_details = body.pointer("/details/uid").and_then(Value::as_str);
    let uid_of_details = uid_of_details.unwrap_or_default().to_owned();
    match serde_json::from_value::<PartialObjectMetadata>(body) {
        Ok(object) if object.name() == name => report(match is_held {
            true => WriteOutcome::Written(&object),
            false => WriteOutcome::Deleted { uid: object.uid() },
        }),
        _ => report(WriteOutcome::Deleted {
            uid: &uid_of_details,
        }),
    }
}

/// Whether a write has removed its object: the object is being deleted, and nothing holds it any
/// more. `body` is the response, which is valid JSON. It has the previous version of the object, so
/// a cache seems to contain the write.
pub(super) fn is_removed(body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else {
        return false;
    };
    let deleted = json::find(text, "/metadata/deletionTimestamp");
    deleted.is_some_and(|at| at != "null")
        && serde_json::from_slice(body).is_ok_and(|object| !is_held(&object))
}

/// Whether finalizers or a grace period hold an object that is being deleted. Namespaces also have
/// finalizers in their spec.
fn is_held(object: &Value) -> bool {
    let has_items = |list| {
        let items = object.pointer(list).and_then(Value::as_array);
        items.is_some_and(|items| !items.is_empty())
    };
    let grace_period = object.pointer("/metadata/deletionGracePeriodSeconds");
    has_items("/metadata/finalizers")
        || has_items("/spec/finalizers")
        || grace_period.and_then(Value::as_i64) > Some(0)
}
