//! What a controller does for a key: the algorithm of each call.

use std::sync::Arc;

use super::finalize::{Finalized, Finalizer};
use crate::controller::call::outcome::{Failure, Next};
use crate::controller::context::Context;
use k8s_informer::object::{Key, Object};
use k8s_informer::store::Lister;

/// The function of a controller, without the type of its objects.
pub(crate) trait Reconcile: Send + Sync {
    /// Calls the function for the key of `cx`.
    fn reconcile(&self, cx: Context) -> Result<Next, Failure>;
}

/// The functions of a controller of objects of type `T`.
pub(crate) struct Reconciler<T> {
    pub(crate) lister: Lister<T>,
    pub(crate) on_gone: Box<dyn Fn(&Key) + Send + Sync>,
    pub(crate) finalizer: Option<Finalizer<T>>,
    pub(crate) reconcile: Box<ReconcileFn<T>>,
}

type ReconcileFn<T> = dyn Fn(&Context, &Arc<T>) -> Result<Next, Failure> + Send + Sync;

impl<T: Object> Reconcile for Reconciler<T> {
    fn reconcile(&self, mut cx: Context) -> Result<Next, Failure> {
        let Some(object) = self.lister.get_by_key(cx.key()) else {
            (self.on_gone)(cx.key());
            return Ok(Next::Done);
        };
        object.uid().clone_into(&mut cx.uid);
        let found = match &self.finalizer {
            Some(finalizer) => finalizer.run(&cx, &object)?,
            None => Finalized::Live(object),
        };
        match found {
            Finalized::Live(object) => (self.reconcile)(&cx, &object),
            Finalized::Deleted(next) => Ok(next),
        }
    }
}
