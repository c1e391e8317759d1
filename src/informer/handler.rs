use std::fmt;
use std::sync::Arc;

use crate::object::Deleted;

/// What is called for every change. client-go's `ResourceEventHandler`.
///
/// A shared informer calls each of its handlers on a thread of the handler's own, one event after the other,
/// in the order in which they happened; a slow one keeps nobody else waiting. No lock of the crate is held
/// meanwhile: a handler may read the cache, add and remove handlers (itself too), and stop the informer. A
/// panic is caught and logged, and the next event follows.
///
/// ```
/// use k8s_informer::{Deleted, DynamicObject, Object, ResourceEventHandler};
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
}

impl<T, H: ResourceEventHandler<T> + ?Sized> ResourceEventHandler<T> for Box<H> {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        (**self).on_add(object, is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        (**self).on_update(old, new);
    }

    fn on_delete(&mut self, object: &Deleted<T>) {
        (**self).on_delete(object);
    }
}

type OnAdd<T> = Box<dyn FnMut(&Arc<T>, bool) + Send>;
type OnUpdate<T> = Box<dyn FnMut(&Arc<T>, &Arc<T>) + Send>;
type OnDelete<T> = Box<dyn FnMut(&Deleted<T>) + Send>;

/// A handler from up to three closures. client-go's `ResourceEventHandlerFuncs`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, HandlerFuncs, Object, ResourceEventHandler};
///
/// let (seen, names) = std::sync::mpsc::channel();
/// let mut handler = HandlerFuncs::<DynamicObject>::new()
///     .on_add(move |object, initial| seen.send((object.name().to_owned(), initial)).unwrap());
/// let object = serde_json::from_str(r#"{"metadata": {"name": "a"}}"#).unwrap();
/// ResourceEventHandler::on_add(&mut handler, &Arc::new(object), true);
/// assert_eq!(names.recv(), Ok(("a".to_owned(), true)));
/// ```
pub struct HandlerFuncs<T> {
    add: Option<OnAdd<T>>,
    update: Option<OnUpdate<T>>,
    delete: Option<OnDelete<T>>,
}

impl<T> HandlerFuncs<T> {
    /// A handler that does nothing yet.
    pub fn new() -> Self {
        Self { add: None, update: None, delete: None }
    }

    /// What to do when an object appears; see [`ResourceEventHandler::on_add`].
    #[must_use]
    pub fn on_add(self, on_add: impl FnMut(&Arc<T>, bool) + Send + 'static) -> Self {
        Self { add: Some(Box::new(on_add)), ..self }
    }

    /// What to do when an object changes; see [`ResourceEventHandler::on_update`].
    #[must_use]
    pub fn on_update(self, on_update: impl FnMut(&Arc<T>, &Arc<T>) + Send + 'static) -> Self {
        Self { update: Some(Box::new(on_update)), ..self }
    }

    /// What to do when an object is gone; see [`ResourceEventHandler::on_delete`].
    #[must_use]
    pub fn on_delete(self, on_delete: impl FnMut(&Deleted<T>) + Send + 'static) -> Self {
        Self { delete: Some(Box::new(on_delete)), ..self }
    }
}

impl<T> Default for HandlerFuncs<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ResourceEventHandler<T> for HandlerFuncs<T> {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        if let Some(on_add) = &mut self.add {
            on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        if let Some(on_update) = &mut self.update {
            on_update(old, new);
        }
    }

    fn on_delete(&mut self, object: &Deleted<T>) {
        if let Some(on_delete) = &mut self.delete {
            on_delete(object);
        }
    }
}

impl<T> fmt::Debug for HandlerFuncs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFuncs").finish_non_exhaustive()
    }
}

/// One call of a handler, on its way to it.
pub(crate) enum Notification<T> {
    Add { object: Arc<T>, is_in_initial_list: bool },
    Update { old: Arc<T>, new: Arc<T> },
    Delete(Deleted<T>),
}

impl<T> Notification<T> {
    /// Makes the call.
    pub(crate) fn deliver(&self, handler: &mut dyn ResourceEventHandler<T>) {
        match self {
            Self::Add { object, is_in_initial_list } => handler.on_add(object, *is_in_initial_list),
            Self::Update { old, new } => handler.on_update(old, new),
            Self::Delete(object) => handler.on_delete(object),
        }
    }

    /// Whether it is an add of the initial list, which the handler's sync waits for.
    pub(crate) fn is_in_initial_list(&self) -> bool {
        matches!(self, Self::Add { is_in_initial_list: true, .. })
    }
}

impl<T> Clone for Notification<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Add { object, is_in_initial_list } => {
                Self::Add { object: Arc::clone(object), is_in_initial_list: *is_in_initial_list }
            }
            Self::Update { old, new } => Self::Update { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Delete(object) => Self::Delete(object.clone()),
        }
    }
}
