//! Adds, renames and removes the finalizer of a controller.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::controller::call::outcome::{Failure, Next};
use crate::controller::context::Context;
use crate::controller::objects::finalizer;
use k8s_informer::client::api::{Api, Patch};
use k8s_informer::error::Error;
use k8s_informer::object::{FullMetadata, FullObjectMeta};
use k8s_informer::stop::Stop;

/// The number of attempts of a patch whose test fails because the object has changed.
const ATTEMPTS: usize = 5;

/// The finalizer of a controller, and the cleanup that it guards.
pub(crate) struct Finalizer<T> {
    pub(crate) name: String,
    /// The names that the finalizer had in earlier versions of the program.
    pub(crate) former: Vec<String>,
    /// Whether an object needs a cleanup.
    is_needed: Box<dyn Fn(&T) -> bool + Send + Sync>,
    cleanup: Box<Cleanup<T>>,
    /// [`Finalizer::run_with_metadata`]. A field, because only [`Finalizer::new`] requires its
    /// bounds.
    run: RunFinalizer<T>,
}

/// The type of [`Finalizer::run_with_metadata`].
type RunFinalizer<T> = fn(&Finalizer<T>, &Context, &Arc<T>) -> Result<Finalized<T>, Failure>;

/// A cleanup function.
type Cleanup<T> = dyn Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync;

/// What to do with an object after its finalizer has been handled.
pub(crate) enum Finalized<T> {
    /// Reconcile this state of the object, which has the finalizer if it needs it.
    Live(Arc<T>),
    /// The object is being deleted: do not reconcile it.
    Deleted(Next),
}

impl<T> Finalizer<T> {
    /// Adds the finalizer before the first external effect, and runs the cleanup of a deleted
    /// object (WR6).
    pub(crate) fn run(&self, cx: &Context, object: &Arc<T>) -> Result<Finalized<T>, Failure> {
        (self.run)(self, cx, object)
    }
}

impl<T: FullMetadata + DeserializeOwned> Finalizer<T> {
    pub(crate) fn new(
        name: String,
        is_needed: impl Fn(&T) -> bool + Send + Sync + 'static,
        cleanup: impl Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            former: Vec::new(),
            is_needed: Box::new(is_needed),
            cleanup: Box::new(cleanup),
            run: Self::run_with_metadata,
        }
    }

    fn run_with_metadata(&self, cx: &Context, object: &Arc<T>) -> Result<Finalized<T>, Failure> {
        let api: Api<T> = cx.own_api();
        if !object.is_being_deleted() {
            let add = |object: &T, metadata: &FullObjectMeta| self.add_patch(object, metadata);
            return Ok(match patch(&api, object, cx.stop(), add)? {
                Some(live) if !live.is_being_deleted() => Finalized::Live(live),
                // It was deleted in the meantime; the event follows.
                _ => Finalized::Deleted(Next::Done),
            });
        }
        let is_own = |name: &str| name == self.name || self.former.iter().any(|of| of == name);
        let finalizers = &object.full_metadata()?.finalizers;
        if !finalizers.iter().any(|finalizer| is_own(finalizer)) {
            return Ok(Finalized::Deleted(Next::Done));
        }
        let next = (self.cleanup)(cx, object)?;
        if next == Next::Done {
            let remove =
                |_: &T, metadata: &FullObjectMeta| finalizer::remove_patch(metadata, is_own);
            let patched = patch(&api, object, cx.stop(), remove)?;
            // `api` records a removal if nothing in the response holds the object. A field
            // `spec.finalizers` holds a Namespace but no custom resource. In both cases, the
            // response to the patch that removes the object has its previous version.
            let remains = |of: &Arc<T>| of.resource_version() != object.resource_version();
            if !patched.as_ref().is_some_and(remains) {
                cx.deleted(object.uid());
            }
        }
        Ok(Finalized::Deleted(next))
    }

    /// Returns the patch that gives a live object the finalizer under its current name, or `None`
    /// if it has it or does not need it.
    fn add_patch(&self, object: &T, metadata: &FullObjectMeta) -> Option<Value> {
        // A deletion rules out new finalizers.
        if metadata.is_being_deleted() {
            return None;
        }
        // A former name means that there may be an effect, so the finalizer stays without a need.
        let rename = finalizer::rename_patch(metadata, &self.former, &self.name);
        rename.or_else(|| {
            let add = finalizer::add_patch(metadata, &self.name)?;
            (self.is_needed)(object).then_some(add)
        })
    }
}

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
