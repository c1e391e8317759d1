use std::fmt;

use crate::error::Error;

/// A list in which no object could be decoded. Most likely, the Rust type does not match the
/// resource.
///
/// If the first list of an informer is undecodable, the informer is synced, with an empty cache.
/// The methods that wait for its sync return this value in
/// [`Unsynced::undecodable`](crate::informer::Unsynced::undecodable).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndecodableList {
    /// The Rust type, as returned by [`std::any::type_name`].
    pub type_name: &'static str,
    /// The number of objects that could not be decoded. It is at least two.
    pub objects: usize,
    /// The error of the first object: its key and the reason, with the path of the field but
    /// without values.
    pub first_error: Error,
}

impl fmt::Display for UndecodableList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            type_name,
            objects,
            first_error,
        } = self;
        write!(
            f,
            "none of the {objects} objects in the list could be decoded as {type_name}; "
        )?;
        write!(f, "the first error: {first_error}")
    }
}

/// The objects of one list or watch-list that could not be decoded.
#[derive(Debug, Default)]
pub(super) struct Undecoded {
    objects: usize,
    first: Option<Error>,
}

impl Undecoded {
    pub(super) fn add(&mut self, error: &Error) {
        // A watch-list may send another state of the same object, which is not counted again.
        if self
            .first
            .as_ref()
            .is_none_or(|first| first.to_string() != error.to_string())
        {
            self.objects += 1;
        }
        self.first.get_or_insert_with(|| error.clone());
    }

    /// Returns the error for a list without decodable objects. Returns `None` if the list has only
    /// one object, because that object itself may be malformed.
    pub(super) fn into_list(self, type_name: &'static str) -> Option<UndecodableList> {
        let Self { objects, first } = self;
        first
            .filter(|_| objects > 1)
            .map(|first_error| UndecodableList {
                type_name,
                objects,
                first_error,
            })
    }
}
