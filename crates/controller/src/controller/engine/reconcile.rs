//! What a controller does for a key: the algorithm of each call.

use std::sync::Arc;

use super::finalize::{Finalized, Finalizer};
use super::vanished::{HandlerView, Vanished, VanishedObjects};
use crate::controller::call::outcome::{Failure, Next};
use crate::controller::context::Context;
use k8s_informer::object::{Key, Object};
use k8s_informer::store::Lister;

/// The function of a controller, without the type of its objects.
pub(crate) trait Reconcile: Send + Sync {
    /// Calls the function for the key of `cx`, or the cleanup of an object that has vanished.
    fn reconcile(&self, cx: Context, vanished: &VanishedObjects) -> Result<Called, Failure>;
}

/// Whether the functions of the user were called.
pub(crate) enum Called {
    Yes(Next),
    /// The handler is behind the cache. Its next notification queues the key again.
    No,
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
    fn reconcile(&self, mut cx: Context, vanished: &VanishedObjects) -> Result<Called, Failure> {
        // Read first: what the handler has got by then includes what has happened to the object before.
        let cached = self.lister.get_by_key(cx.key());
        if let Some(finalizer) = &self.finalizer {
            if vanished.read(cx.key(), cached.as_ref()) == HandlerView::Behind {
                return Ok(Called::No);
            }
            if let Some(first) = first_vanished(&cx, vanished)? {
                return self
                    .clean_up(cx, finalizer, &first, vanished)
                    .map(Called::Yes);
            }
        }
        let Some(object) = cached else {
            (self.on_gone)(cx.key());
            return Ok(Called::Yes(Next::Done));
        };
        object.uid().clone_into(&mut cx.uid);
        let found = match &self.finalizer {
            Some(finalizer) => finalizer.run(&cx, &object, vanished)?,
            None => Finalized::Live(object),
        };
        match found {
            Finalized::Live(object) => (self.reconcile)(&cx, &object).map(Called::Yes),
            Finalized::Deleted(next) => Ok(Called::Yes(next)),
        }
    }
}

impl<T: Object> Reconciler<T> {
    /// Calls the cleanup of an object that has vanished. The next call for the key is about the next
    /// object of this name, or about none.
    fn clean_up(
        &self,
        mut cx: Context,
        finalizer: &Finalizer<T>,
        vanished: &Vanished,
        all: &VanishedObjects,
    ) -> Result<Next, Failure> {
        vanished.object.uid.clone_into(&mut cx.uid);
        cx.has_vanished = true;
        let Ok(object) = Arc::clone(&vanished.object.object).downcast::<T>() else {
            unreachable!("the handler of the primary objects has recorded it");
        };
        match finalizer.clean_up(&cx, &object) {
            Ok(Next::Done) => {
                all.end(cx.key());
                all.queue_again(cx.key());
                Ok(Next::Done)
            }
            // Only a change of the object could help, and there will be none.
            Err(failure) if failure.is_terminal() => {
                all.end(cx.key());
                let has_next = all.first(cx.key()).is_some();
                match has_next || self.lister.get_by_key(cx.key()).is_some() {
                    true => all.queue_again(cx.key()),
                    // In this call: a later one would be a success, and hide the failure.
                    false => (self.on_gone)(cx.key()),
                }
                Err(failure)
            }
            unfinished => unfinished,
        }
    }
}

/// Returns the first vanished object of the key. Before its cleanup, a consistent read proves that it
/// is gone: it can have left the scope only, or a restored server has it again.
fn first_vanished(cx: &Context, vanished: &VanishedObjects) -> Result<Option<Vanished>, Failure> {
    while let Some(first) = vanished.first(cx.key()) {
        if !first.is_confirmed {
            if cx.current_uid()? == Some(first.object.uid) {
                vanished.end(cx.key());
                continue;
            }
            vanished.confirm(cx.key());
        }
        return Ok(vanished.first(cx.key()));
    }
    Ok(None)
}
