//! What a controller does for a key: the algorithm of each call.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::context::Context;
use super::finalize::{Finalized, Finalizer};
use super::named_handlers::ScheduledHandlers;
use super::outcome::{Failure, Next, Outcome};
use k8s_informer::object::{Key, Object};
use k8s_informer::store::Lister;

/// The functions of a controller, without the type of its objects.
pub(super) trait Reconcile: Send + Sync {
    /// Calls the functions for the key of `cx`.
    fn reconcile(&self, cx: Context) -> Outcome;

    /// Lets a call for a key concern all named handlers, after a delay at the latest: because of a
    /// change or a request of the program. Other calls concern only those whose time has come.
    fn request_all(&self, key: &Key, delay: Duration);
}

/// The functions of a controller of objects of type `T`.
pub(super) struct Reconciler<T> {
    pub(super) lister: Lister<T>,
    pub(super) on_gone: Box<dyn Fn(&Key) + Send + Sync>,
    pub(super) finalizer: Option<Finalizer<T>>,
    pub(super) functions: Functions<T>,
}

/// What follows the finalizer.
pub(super) enum Functions<T> {
    One(Box<ReconcileFn<T>>),
    Named(ScheduledHandlers<T>),
}

type ReconcileFn<T> = dyn Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync;

impl<T: Object + DeserializeOwned> Reconcile for Reconciler<T> {
    fn reconcile(&self, mut cx: Context) -> Outcome {
        match &self.functions {
            Functions::One(reconcile) => {
                let found = self.find(&mut cx);
                let result = found.and_then(|found| match found {
                    Some(Finalized::Live(object)) => reconcile(&cx, &object),
                    Some(Finalized::Deleted(next, _)) => Ok(next),
                    None => Ok(Next::Done),
                });
                result.into()
            }
            Functions::Named(handlers) => {
                // Before the cache is read, so that a later change calls all handlers again.
                let due = handlers.take_due(cx.key());
                let result = match self.find(&mut cx) {
                    Ok(None) => return handlers.run(cx, due, None),
                    Ok(Some(Finalized::Live(object))) => {
                        return handlers.run(cx, due, Some(object));
                    }
                    Ok(Some(Finalized::Deleted(next, _))) => Ok(next),
                    Err(failure) => Err(failure),
                };
                handlers.restore_due(cx.key(), due);
                result.into()
            }
        }
    }

    fn request_all(&self, key: &Key, delay: Duration) {
        if let Functions::Named(handlers) = &self.functions {
            handlers.request_all(key, delay);
        }
    }
}

impl<T: Object> Reconciler<T> {
    /// Returns the object, which has the finalizer if it needs it. For an object that is being
    /// deleted, runs the cleanup. Returns `None` if the object is gone.
    fn find(&self, cx: &mut Context) -> Result<Option<Finalized<T>>, Failure> {
        let Some(object) = self.lister.get_by_key(cx.key()) else {
            (self.on_gone)(cx.key());
            return Ok(None);
        };
        object.uid().clone_into(&mut cx.uid);
        match &self.finalizer {
            Some(finalizer) => finalizer.run(cx, &object).map(Some),
            None => Ok(Some(Finalized::Live(object))),
        }
    }
}
