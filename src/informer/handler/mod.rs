//! What is called for every change.

mod channel;
mod filtering;
mod funcs;
mod notification;

use std::sync::Arc;

use crate::object::Deleted;
use crate::stop::Stop;

pub use channel::ChannelHandler;
pub use filtering::FilteringHandler;
pub use funcs::HandlerFuncs;
pub(crate) use notification::KeyedNotification;
pub use notification::Notification;

/// What is called for every change. client-go's `ResourceEventHandler`.
///
/// A shared informer calls each of its handlers on a thread of the handler's own, one event after the other,
/// in the order in which they happened; a slow one keeps nobody else waiting. No lock of the crate is held
/// meanwhile: a handler may read the cache, add and remove handlers (itself too), and stop the informer. A
/// panic is caught and logged, and the next event follows.
///
/// An object is dropped by whichever thread of the informer lets go of it last, mostly the one that decodes:
/// its destructor must not wait for the informer or its handlers.
///
/// ```
/// use k8s_informer::{Deleted, DynamicObject, Object};
/// use k8s_informer::handler::ResourceEventHandler;
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// /// Counts objects by their label `app`.
/// #[derive(Default)]
/// struct ByApp(BTreeMap<String, i64>);
///
/// impl ResourceEventHandler<DynamicObject> for ByApp {
///     fn on_add(&mut self, object: &Arc<DynamicObject>, _is_in_initial_list: bool) {
///         *self.0.entry(object.label("app").unwrap_or("none").to_owned()).or_default() += 1;
///     }
///
///     fn on_delete(&mut self, gone: &Deleted<DynamicObject>) {
///         if let Some(object) = gone.object() {
///             *self.0.entry(object.label("app").unwrap_or("none").to_owned()).or_default() -= 1;
///         }
///     }
/// }
///
/// let mut handler = ByApp::default();
/// let web = serde_json::from_str(r#"{"metadata": {"name": "a", "labels": {"app": "web"}}}"#)?;
/// handler.on_add(&Arc::new(web), true);
/// assert_eq!(handler.0["web"], 1);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub trait ResourceEventHandler<T>: Send {
    /// Called once, on the handler's thread, before anything else. `removed` is given when the handler is
    /// removed or its informer stops: a handler that blocks, which is its right, ends its wait then.
    fn begin(&mut self, removed: &Stop) {
        let _ = removed;
    }

    /// An object appeared. `is_in_initial_list` says that it was there when the informer, or this handler,
    /// began.
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        let _ = (object, is_in_initial_list);
    }

    /// An object changed, or a resync tells about it once more: then both have the same resourceVersion.
    /// Changes that followed each other quickly may have become one.
    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let _ = (old, new);
    }

    /// An object is gone.
    fn on_delete(&mut self, object: &Deleted<T>) {
        let _ = object;
    }

    /// Called instead of [`on_delete`](Self::on_delete) if the final state of the object is not the one that
    /// was delivered last. `last_delivered` is the latter, `object` is the final state.
    ///
    /// The default calls `on_delete`. Override it if the handler decides by the old state whether the deletion
    /// matters, as [`FilteringHandler`] does. A handler that wraps another one forwards the call.
    fn on_delete_after(&mut self, last_delivered: &Arc<T>, object: &Deleted<T>) {
        let _ = last_delivered;
        self.on_delete(object);
    }
}

impl<T, H: ResourceEventHandler<T> + ?Sized> ResourceEventHandler<T> for Box<H> {
    fn begin(&mut self, removed: &Stop) {
        (**self).begin(removed);
    }

    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        (**self).on_add(object, is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        (**self).on_update(old, new);
    }

    fn on_delete(&mut self, object: &Deleted<T>) {
        (**self).on_delete(object);
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<T>, object: &Deleted<T>) {
        (**self).on_delete_after(last_delivered, object);
    }
}
