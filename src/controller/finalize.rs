//! Adds and removes the finalizer of a controller.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::Context;
use super::finalizer;
use super::outcome::{Failure, Next};
use crate::client::api::{Api, Patch};
use crate::error::Error;
use crate::object::{FullMetadata, FullObjectMeta};

/// The number of attempts of a patch whose test fails because the object has changed.
const ATTEMPTS: usize = 5;

/// The finalizer of a controller, and the cleanup that it guards.
pub(super) struct Finalizer<T> {
    pub(super) name: String,
    /// Whether an object needs a cleanup.
    pub(super) is_needed: Box<dyn Fn(&T) -> bool + Send + Sync>,
    pub(super) cleanup: Box<Cleanup<T>>,
    /// [`Finalizer::run_with_metadata`]. A field, because only [`Finalizer::new`] requires its
    /// bounds.
    run: RunFinalizer<T>,
    is_being_deleted: fn(&T) -> bool,
}

/// The type of [`Finalizer::run_with_metadata`].
type RunFinalizer<T> = fn(&Finalizer<T>, &Context, &Arc<T>) -> Result<Finalized<T>, Failure>;

/// A cleanup function.
pub(super) type Cleanup<T> = dyn Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync;

/// What to do with an object after its finalizer has been handled.
pub(super) enum Finalized<T> {
    /// Reconcile this state of the object, which has the finalizer if it needs it.
    Live(Arc<T>),
    /// The object is being deleted: do not reconcile it.
    Deleted(Next),
}

impl<T> Finalizer<T> {
    /// Adds the finalizer before the first external effect, and runs the cleanup of a deleted
    /// object (WR6).
    pub(super) fn run(&self, cx: &Context, object: &Arc<T>) -> Result<Finalized<T>, Failure> {
        (self.run)(self, cx, object)
    }

    pub(super) fn is_being_deleted(&self, object: &T) -> bool {
        (self.is_being_deleted)(object)
    }
}

impl<T: FullMetadata + DeserializeOwned> Finalizer<T> {
    pub(super) fn new(
        name: String,
        is_needed: impl Fn(&T) -> bool + Send + Sync + 'static,
        cleanup: impl Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            is_needed: Box::new(is_needed),
            cleanup: Box::new(cleanup),
            run: Self::run_with_metadata,
            is_being_deleted: T::is_being_deleted,
        }
    }

    fn run_with_metadata(&self, cx: &Context, object: &Arc<T>) -> Result<Finalized<T>, Failure> {
        let finalizers = &object.full_metadata()?.finalizers;
        let has_finalizer = finalizers.contains(&self.name);
        if object.is_being_deleted() {
            if !has_finalizer {
                return Ok(Finalized::Deleted(Next::Done));
            }
            let next = (self.cleanup)(cx, object)?;
            if next == Next::Done {
                let patched = self.patch(cx, object, finalizer::remove_patch)?;
                // The response to the patch that removes the object has the old version, so the
                // cache would seem to contain the write, and the cleanup could run again.
                let remains = |of: &FullObjectMeta| {
                    let grace_period = of.deletion_grace_period_seconds.unwrap_or(0);
                    !of.finalizers.is_empty() || grace_period > 0
                };
                let is_gone = match &patched {
                    Some(patched) => !remains(&*patched.full_metadata()?),
                    None => true,
                };
                if is_gone {
                    cx.deleted(cx.resource(), object.uid());
                }
            }
            return Ok(Finalized::Deleted(next));
        }
        if has_finalizer || !(self.is_needed)(object) {
            return Ok(Finalized::Live(Arc::clone(object)));
        }
        match self.patch(cx, object, finalizer::add_patch)? {
            Some(patched) if !patched.is_being_deleted() => Ok(Finalized::Live(patched)),
            // It is deleted in the meantime; the event follows.
            _ => Ok(Finalized::Deleted(Next::Done)),
        }
    }

    /// Sends the patch, and builds it again from the current object if its test fails. Returns the
    /// object with the patch, or `None` if the object is gone.
    fn patch(
        &self,
        cx: &Context,
        object: &Arc<T>,
        patch: fn(&FullObjectMeta, &str) -> Option<Value>,
    ) -> Result<Option<Arc<T>>, Failure> {
        let api: Api<T> = cx.dynamic_api_as(cx.resource(), Some(cx.namespace()));
        let mut current = Arc::clone(object);
        for attempt in 1.. {
            let body = match patch(&*current.full_metadata()?, &self.name) {
                // The object was recreated, or its deletion began, which rules out new finalizers.
                _ if current.uid() != object.uid()
                    || current.is_being_deleted() != object.is_being_deleted() =>
                {
                    return Ok(None);
                }
                Some(body) => body,
                // Another writer was faster.
                None => return Ok(Some(current)),
            };
            let error = match api.patch(cx.name(), &Patch::json(body), cx.stop()) {
                Ok(patched) => return Ok(Some(Arc::new(patched.into_inner()))),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => error,
            };
            // The test of a JSON patch fails with 422.
            if attempt == ATTEMPTS || !(error.is_invalid() || error.is_conflict()) {
                return Err(error.into());
            }
            current = match api.get(cx.name(), cx.stop()) {
                Ok(read) => Arc::new(read.into_inner()),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => return Err(Error::into(error)),
            };
        }
        Ok(None)
    }
}
