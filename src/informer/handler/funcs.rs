use std::sync::Arc;

use super::{Notification, ResourceEventHandler};
use crate::base::derive::debug_fields;
use crate::object::Deleted;

type OnAdd<T> = Box<dyn FnMut(&Arc<T>, bool) + Send>;
type OnUpdate<T> = Box<dyn FnMut(&Arc<T>, &Arc<T>) + Send>;
type OnDelete<T> = Box<dyn FnMut(&Deleted<T>) + Send>;
type OnEvent<T> = Box<dyn FnMut(&Notification<T>) + Send>;

/// A handler made of closures: one each for added, updated and deleted objects, and one for all
/// events. All are optional. client-go's `ResourceEventHandlerFuncs`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Object};
/// use k8s_informer::handler::{HandlerFuncs, ResourceEventHandler};
///
/// let (seen, names) = std::sync::mpsc::channel();
/// let mut handler = HandlerFuncs::<DynamicObject>::new()
///     .on_add(move |object, initial| seen.send((object.name().to_owned(), initial)).unwrap());
/// let object = serde_json::from_str(r#"{"metadata": {"name": "a"}}"#).unwrap();
/// ResourceEventHandler::on_add(&mut handler, &Arc::new(object), true);
/// assert_eq!(names.recv(), Ok(("a".to_owned(), true)));
/// ```
#[doc(alias = "ResourceEventHandlerFuncs")]
pub struct HandlerFuncs<T> {
    add: Option<OnAdd<T>>,
    update: Option<OnUpdate<T>>,
    delete: Option<OnDelete<T>>,
    event: Option<OnEvent<T>>,
}

impl<T> HandlerFuncs<T> {
    /// Creates a handler without closures.
    pub fn new() -> Self {
        Self {
            add: None,
            update: None,
            delete: None,
            event: None,
        }
    }

    /// Sets the closure for added objects; see [`ResourceEventHandler::on_add`].
    #[must_use]
    pub fn on_add(self, on_add: impl FnMut(&Arc<T>, bool) + Send + 'static) -> Self {
        Self {
            add: Some(Box::new(on_add)),
            ..self
        }
    }

    /// Sets the closure for updated objects; see [`ResourceEventHandler::on_update`].
    #[must_use]
    pub fn on_update(self, on_update: impl FnMut(&Arc<T>, &Arc<T>) + Send + 'static) -> Self {
        Self {
            update: Some(Box::new(on_update)),
            ..self
        }
    }

    /// Sets the closure for deleted objects; see [`ResourceEventHandler::on_delete`].
    #[must_use]
    pub fn on_delete(self, on_delete: impl FnMut(&Deleted<T>) + Send + 'static) -> Self {
        Self {
            delete: Some(Box::new(on_delete)),
            ..self
        }
    }

    /// Sets a closure for all events. It runs after the closure for the specific event. Use it in a
    /// controller, whose handlers only add a key to a queue.
    ///
    /// ```
    /// use k8s_informer::{Deleted, DynamicObject};
    /// use k8s_informer::handler::{HandlerFuncs, ResourceEventHandler};
    /// use std::sync::mpsc;
    ///
    /// let (queue, keys) = mpsc::channel();
    /// let mut handler =
    ///     HandlerFuncs::<DynamicObject>::new().on_event(move |event| queue.send(event.key()).unwrap());
    /// ResourceEventHandler::on_delete(
    ///     &mut handler,
    ///     &Deleted::FinalStateUnknown { key: "default/web".into(), last_known: None },
    /// );
    /// assert_eq!(&*keys.recv()?, "default/web");
    /// # Ok::<(), mpsc::RecvError>(())
    /// ```
    #[must_use]
    pub fn on_event(self, on_event: impl FnMut(&Notification<T>) + Send + 'static) -> Self {
        Self {
            event: Some(Box::new(on_event)),
            ..self
        }
    }

    fn deleted(&mut self, gone: &Deleted<T>, last_delivered: Option<&Arc<T>>) {
        if let Some(on_delete) = &mut self.delete {
            on_delete(gone);
        }
        if let Some(on_event) = &mut self.event {
            on_event(&Notification::Deleted {
                gone: gone.clone(),
                last_delivered: last_delivered.cloned(),
            });
        }
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
        if let Some(on_event) = &mut self.event {
            on_event(&Notification::Added {
                object: Arc::clone(object),
                is_in_initial_list,
            });
        }
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        if let Some(on_update) = &mut self.update {
            on_update(old, new);
        }
        if let Some(on_event) = &mut self.event {
            on_event(&Notification::Modified {
                old: Arc::clone(old),
                new: Arc::clone(new),
            });
        }
    }

    fn on_delete(&mut self, object: &Deleted<T>) {
        self.deleted(object, None);
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<T>, object: &Deleted<T>) {
        self.deleted(object, Some(last_delivered));
    }
}

debug_fields!(HandlerFuncs<T>:);
