use serde_json::Value;

use crate::error::Error;
use crate::json;
use crate::object::{GroupVersionResource, Object, PartialObjectMetadata};

/// Receives the writes of an [`Api`](super::Api), except dry runs and collections.
///
/// A controller uses it to wait until its cache contains its own writes. The methods are called on
/// the thread of the write.
pub(crate) trait WriteObserver: Send + Sync {
    /// Returns the state of the object in each cache. Called before the request.
    fn before(&self, resource: &GroupVersionResource, target: &Target<'_>) -> Before;

    /// The object was created or changed. `object` is the response.
    fn written(&self, resource: &GroupVersionResource, object: &dyn Object);

    /// The object was removed. If `uid` is empty, the object is the one in `before`: a later state
    /// of a cache can be that of a newer object.
    fn deleted(
        &self,
        resource: &GroupVersionResource,
        target: &Target<'_>,
        uid: &str,
        before: Before,
    );

    /// The write has an unknown outcome: it failed, but the server may have executed it, or its
    /// response does not contain the object.
    fn unknown(&self, resource: &GroupVersionResource, target: &Target<'_>, before: Before);
}

/// The UID and the resource version of an object in each cache of an observer.
pub(crate) type Before = Vec<Option<(String, String)>>;

/// The object of a write.
pub(crate) struct Target<'a> {
    pub(crate) namespace: &'a str,
    /// Empty if the server generates the name.
    pub(crate) name: &'a str,
}

/// Reports a deletion. `response` has a `Status` if the object is gone, and the object if something
/// holds it. Some kinds respond with the object in both cases.
pub(super) fn report_deletion(
    observer: &dyn WriteObserver,
    resource: &GroupVersionResource,
    target: &Target<'_>,
    before: Before,
    response: &Result<Vec<u8>, Error>,
) {
    let body = match response {
        Ok(body) => body,
        Err(error) if error.is_outcome_unknown() => {
            return observer.unknown(resource, target, before);
        }
        Err(_) => return,
    };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_held = is_held(&body);
    let uid_of_details = body.pointer("/details/uid").and_then(Value::as_str);
    let uid_of_details = uid_of_details.unwrap_or_default().to_owned();
    match serde_json::from_value::<PartialObjectMetadata>(body) {
        Ok(object) if object.name() == target.name => match is_held {
            true => observer.written(resource, &object),
            false => observer.deleted(resource, target, object.uid(), before),
        },
        _ => observer.deleted(resource, target, &uid_of_details, before),
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
