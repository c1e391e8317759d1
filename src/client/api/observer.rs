use serde_json::Value;

use crate::error::Error;
use crate::object::{GroupVersionResource, Object, PartialObjectMetadata};

/// Receives the writes of an [`Api`](super::Api), except dry runs and collections.
///
/// A controller uses it to wait until its cache contains its own writes. The methods are called on
/// the thread of the write, after the response.
pub(crate) trait WriteObserver: Send + Sync {
    /// The object was created or changed. `object` is the response.
    fn written(&self, resource: &GroupVersionResource, object: &dyn Object);

    /// The object was removed.
    fn deleted(&self, resource: &GroupVersionResource, target: &Target<'_>, uid: &str);

    /// The write failed, but the server may have executed it.
    fn unknown(&self, resource: &GroupVersionResource, target: &Target<'_>);
}

/// The object of a write.
pub(crate) struct Target<'a> {
    pub(crate) namespace: &'a str,
    /// Empty if the server generates the name.
    pub(crate) name: &'a str,
}

/// Reports a deletion. `body` is the response: a `Status` if the object is gone, and the object if
/// it remains with a `deletionTimestamp`. Some kinds respond with the object in both cases.
pub(super) fn report_deletion(
    observer: &dyn WriteObserver,
    resource: &GroupVersionResource,
    target: &Target<'_>,
    response: &Result<Vec<u8>, Error>,
) {
    let body = match response {
        Ok(body) => body,
        Err(error) if error.is_outcome_unknown() => return observer.unknown(resource, target),
        Err(_) => return,
    };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let uid_of_details = body.pointer("/details/uid").and_then(Value::as_str);
    match serde_json::from_value::<PartialObjectMetadata>(body.clone()) {
        Ok(object) if object.name() == target.name => {
            let metadata = &object.metadata;
            let remains = metadata.is_being_deleted()
                && (!metadata.finalizers.is_empty()
                    || metadata.deletion_grace_period_seconds.unwrap_or(0) > 0);
            match remains {
                true => observer.written(resource, &object),
                false => observer.deleted(resource, target, object.uid()),
            }
        }
        _ => observer.deleted(resource, target, uid_of_details.unwrap_or_default()),
    }
}
