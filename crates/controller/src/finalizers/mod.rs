//! Finalizers of objects: the patches that change them, and their removal for an uninstall.

pub(crate) mod patches;
mod remove;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::remove::{
    RemovalOutcome, RemoveFinalizersError, RemovedFinalizers, remove_finalizers,
};
use k8s_informer::client::api::{Api, Patch};
use k8s_informer::error::Error;
use k8s_informer::object::{FullMetadata, FullObjectMeta};
use k8s_informer::stop::Stop;

/// The number of attempts of a patch whose test fails because the object has changed.
const ATTEMPTS: usize = 5;

/// Sends the patch that `patch_of` returns for the object, and builds it again from the newest state
/// if its test fails. Returns the object with the patch, or the newest state if it needs no patch.
/// Returns `None` if the object is gone or was recreated.
pub(crate) fn patch<T: FullMetadata + DeserializeOwned>(
    api: &Api<T>,
    object: &Arc<T>,
    stop: &Stop,
    patch_of: impl Fn(&T, &FullObjectMeta) -> Option<Value>,
) -> Result<Option<Arc<T>>, Error> {
    let mut current = Arc::clone(object);
    for attempt in 1.. {
        if current.uid() != object.uid() {
            return Ok(None);
        }
        let metadata = current.full_metadata();
        let metadata = metadata.map_err(|error| Error::invalid(error.to_string()))?;
        let Some(body) = patch_of(&current, &metadata) else {
            break;
        };
        let error = match api.patch(object.name(), &Patch::json(body), stop) {
            Ok(patched) => return Ok(Some(Arc::new(patched.into_inner()))),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => error,
        };
        // The test of a JSON patch fails with 422.
        if attempt == ATTEMPTS || !(error.is_invalid() || error.is_conflict()) {
            return Err(error);
        }
        drop(metadata);
        let read = match api.get(object.name(), stop) {
            Ok(read) => read.into_inner(),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        // The test cannot have failed, so the object itself is invalid.
        if error.is_invalid() && read.resource_version() == current.resource_version() {
            return Err(error);
        }
        current = Arc::new(read);
    }
    Ok(Some(current))
}
