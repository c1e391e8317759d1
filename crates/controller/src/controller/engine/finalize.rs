//! Adds, renames and removes the finalizer of a controller.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::vanished::{IsHeld, VanishedObjects};
use crate::controller::call::outcome::{Failure, Next};
use crate::controller::context::Context;
use crate::finalizers::{patch, patches};
use k8s_informer::__private::catch;
use k8s_informer::client::api::Api;
use k8s_informer::object::{FullMetadata, FullObjectMeta};

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
    /// [`Finalizer::is_held_with_metadata`], for the same reason.
    is_held: fn(&Self) -> IsHeld<T>,
}

/// The type of [`Finalizer::run_with_metadata`].
type RunFinalizer<T> =
    fn(&Finalizer<T>, &Context, &Arc<T>, &VanishedObjects) -> Result<Finalized<T>, Failure>;

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
    pub(crate) fn run(
        &self,
        cx: &Context,
        object: &Arc<T>,
        vanished: &VanishedObjects,
    ) -> Result<Finalized<T>, Failure> {
        (self.run)(self, cx, object, vanished)
    }

    /// Returns whether an object has the finalizer, also under a former name, and is not being deleted.
    pub(crate) fn is_held(&self) -> IsHeld<T> {
        (self.is_held)(self)
    }

    /// Calls the cleanup of the user.
    pub(crate) fn clean_up(&self, cx: &Context, object: &Arc<T>) -> Result<Next, Failure> {
        (self.cleanup)(cx, object)
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
            is_held: Self::is_held_with_metadata,
        }
    }

    fn is_held_with_metadata(&self) -> IsHeld<T> {
        let names: Vec<_> = [&self.name]
            .into_iter()
            .chain(&self.former)
            .cloned()
            .collect();
        Arc::new(move |object| {
            // Metadata that can't be decoded prove nothing. They are user code, on a thread of the informer.
            let is_held = || {
                object.full_metadata().is_ok_and(|metadata| {
                    let mut finalizers = metadata.finalizers.iter();
                    !metadata.is_being_deleted() && finalizers.any(|name| names.contains(name))
                })
            };
            catch(is_held).unwrap_or(false)
        })
    }

    fn run_with_metadata(
        &self,
        cx: &Context,
        object: &Arc<T>,
        vanished: &VanishedObjects,
    ) -> Result<Finalized<T>, Failure> {
        let api: Api<T> = cx.own_api();
        if !object.is_being_deleted() {
            let add = |object: &T, metadata: &FullObjectMeta| self.add_patch(object, metadata);
            return Ok(match patch(&api, object, cx.stop(), add)? {
                Some(live) if !live.is_being_deleted() => {
                    // The finalizer was added: the server may remove the object all the same.
                    if live.resource_version() != object.resource_version() {
                        vanished.added(&live);
                    }
                    Finalized::Live(live)
                }
                // It was deleted in the meantime; the event follows.
                _ => Finalized::Deleted(Next::Done),
            });
        }
        let is_own = |name: &str| name == self.name || self.former.iter().any(|of| of == name);
        let finalizers = &object.full_metadata()?.finalizers;
        if !finalizers.iter().any(|finalizer| is_own(finalizer)) {
            return Ok(Finalized::Deleted(Next::Done));
        }
        let next = self.clean_up(cx, object)?;
        if next == Next::Done {
            let remove = |_: &T, metadata: &FullObjectMeta| patches::remove_patch(metadata, is_own);
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
        let rename = patches::rename_patch(metadata, &self.former, &self.name);
        rename.or_else(|| {
            let add = patches::add_patch(metadata, &self.name)?;
            (self.is_needed)(object).then_some(add)
        })
    }
}
