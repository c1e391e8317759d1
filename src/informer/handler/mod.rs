//! Handlers: callbacks for every change in a cache.

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

/// Receives a notification for every change. client-go's `ResourceEventHandler`.
///
/// A shared informer calls each handler on the handler's own thread, one event at a time, in the
/// order of the events. A slow handler does not delay the others.
///
/// The crate holds no locks during a call. A handler may read the cache, add and remove handlers
/// (including itself), and stop the informer. A panic is caught and logged, and the next event
/// follows.
///
/// An object is dropped on the thread that releases the last reference. This is usually the
/// reflector's thread, which decodes objects. Its destructor must not wait for the informer or its
/// handlers.
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
/// impl ByApp {
///     fn count(&mut self, object: &DynamicObject, change: i64) {
///         *self.0.entry(object.label("app").unwrap_or("none").to_owned()).or_default() += change;
///     }
/// }
///
/// impl ResourceEventHandler<DynamicObject> for ByApp {
///     fn on_add(&mut self, object: &Arc<DynamicObject>, _is_in_initial_list: bool) {
///         self.count(object, 1);
///     }
///
///     fn on_update(&mut self, old: &Arc<DynamicObject>, new: &Arc<DynamicObject>) {
///         self.count(old, -1);
///         self.count(new, 1);
///     }
///
///     fn on_delete(&mut self, gone: &Deleted<DynamicObject>) {
///         if let Some(object) = gone.object() {
///             self.count(object, -1);
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
    /// Called once, on the handler's thread, before all other methods. `removed` is set when the
    /// handler is removed or its informer stops. The other methods may block, but they must return
    /// when `removed` is set.
    fn begin(&mut self, removed: &Stop) {
        let _ = removed;
    }

    /// Called when an object appears. `is_in_initial_list` is true if the object existed when the
    /// informer, or this handler, started.
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        let _ = (object, is_in_initial_list);
    }

    /// Called when an object changes, and for each resync. In a resync, both arguments are the same
    /// `Arc`.
    ///
    /// Each change that the watch delivers is one call. Several changes are one call if they
    /// happened while the informer was disconnected, or if they waited in a
    /// [coalescing](crate::handler::HandlerBuffer::Coalescing) buffer.
    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let _ = (old, new);
    }

    /// Called when an object is deleted.
    fn on_delete(&mut self, object: &Deleted<T>) {
        let _ = object;
    }

    /// Called instead of [`on_delete`](Self::on_delete) if the final state of the object differs
    /// from the state that was delivered last. `last_delivered` is the delivered state, `object`
    /// the final one.
    ///
    /// The default implementation calls `on_delete`. Override this method if the old state decides
    /// whether the deletion is relevant, as in [`FilteringHandler`]. A handler that wraps another
    /// handler must forward the call.
    fn on_delete_after(&mut self, last_delivered: &Arc<T>, object: &Deleted<T>) {
        let _ = last_delivered;
        self.on_delete(object);
    }

    /// Called by a shared informer after one or several notifications, when the next one is not ready
    /// yet, and at the latest after about a thousand notifications. Also called once when the handler
    /// has synced, even if the initial list is empty. `is_synced` is false before.
    ///
    /// Use it for work that would be too expensive for each notification, such as writing a file with
    /// the whole content of the cache. A handler that wraps another handler must forward the call.
    /// client-go has no counterpart.
    fn after_changes(&mut self, is_synced: bool) {
        let _ = is_synced;
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

    fn after_changes(&mut self, is_synced: bool) {
        (**self).after_changes(is_synced);
    }
}
