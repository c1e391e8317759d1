use std::sync::Arc;

use super::{FunctionError, StoreError};
use crate::base::derive::{clone_fields, debug_fields};
use crate::object::Key;

type Error = Box<dyn std::error::Error + Send + Sync>;
type TransformFn<T> = dyn Fn(Arc<T>) -> Result<Arc<T>, Error> + Send + Sync;

/// A function that changes every object before it is queued or stored, usually to reduce its size.
/// client-go's `TransformFunc`.
///
/// It runs without a lock. A panic counts as a failure. The function must be idempotent, because it
/// may run twice on the same object. It must not change the fields that the key is made of. It does
/// not run on tombstones or on resynced objects.
///
/// ```
/// use k8s_informer::store::Transform;
/// use std::sync::Arc;
///
/// let shorten = Transform::in_place(|word: &mut String| word.truncate(3));
/// assert_eq!(*shorten.apply(Arc::new("kubernetes".to_owned())).unwrap(), "kub");
/// ```
pub struct Transform<T> {
    function: Arc<TransformFn<T>>,
}

impl<T> Transform<T> {
    /// Creates a transform from a function that may return another object, or fail.
    pub fn new<E: Into<Error>>(
        function: impl Fn(Arc<T>) -> Result<Arc<T>, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            function: Arc::new(move |object| function(object).map_err(Into::into)),
        }
    }

    /// Creates a transform from a function that changes the object in place. A shared object is
    /// cloned first.
    pub fn in_place(function: impl Fn(&mut T) + Send + Sync + 'static) -> Self
    where
        T: Clone,
    {
        Self::try_in_place(move |object| -> Result<(), Error> {
            function(object);
            Ok(())
        })
    }

    /// Like [`in_place`](Self::in_place), with a function that may fail.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::store::Transform;
    ///
    /// let strip = Transform::try_in_place(|object: &mut DynamicObject| {
    ///     object.edit(|fields| drop(fields.remove("spec")))
    /// });
    /// let widget: DynamicObject = serde_json::from_str(r#"{"metadata":{"name":"a"},"spec":{"size":3}}"#)?;
    /// assert_eq!(strip.apply(widget.into())?.json(), r#"{"metadata":{"name":"a"}}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_in_place<E: Into<Error>>(
        function: impl Fn(&mut T) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone,
    {
        Self::new(move |mut object| {
            function(Arc::make_mut(&mut object))?;
            Ok::<_, E>(object)
        })
    }

    /// Runs the transform on one object.
    ///
    /// # Errors
    ///
    /// Returns the error of the function, or its panic.
    pub fn apply(&self, object: Arc<T>) -> Result<Arc<T>, FunctionError> {
        FunctionError::catch(|| (self.function)(object))
    }

    /// Runs the transform on the object with this key. Without a transform, it returns the object
    /// unchanged.
    pub(crate) fn run(
        this: Option<&Self>,
        key: &Key,
        object: Arc<T>,
    ) -> Result<Arc<T>, StoreError> {
        match this {
            None => Ok(object),
            Some(transform) => transform
                .apply(object)
                .map_err(|error| StoreError::Transform {
                    key: Some(Key::clone(key)),
                    error,
                }),
        }
    }
}

clone_fields!(Transform<T>: function);

debug_fields!(Transform<T>:);
