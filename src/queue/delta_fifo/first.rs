use std::sync::Arc;
use std::vec;

use super::{Place, State};
use crate::object::Key;
use crate::queue::{Delta, Deltas};

/// What is left of the first list, as long as nothing else has been written: then each object has one change,
/// and they are popped in the order of the list. No key is hashed, and no entry made, only for that.
pub(super) struct First<T> {
    objects: vec::IntoIter<(Key, Arc<T>)>,
    /// Of the place of the next one. They follow each other.
    number: u64,
    delta: fn(Arc<T>) -> Delta<T>,
}

impl<T> First<T> {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The place of the next one.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl<T> Iterator for First<T> {
    type Item = (Place, Deltas<T>);

    fn next(&mut self) -> Option<(Place, Deltas<T>)> {
        let (key, object) = self.objects.next()?;
        let place = Place { key: Arc::clone(&key), number: self.number };
        self.number += 1;
        Some((place, Deltas::one(Some(key), (self.delta)(object))))
    }
}

impl<T> State<T> {
    /// Takes this list as the first one, of which nothing is known yet, if an API server's order of its keys
    /// shows that none of them is there twice. Its objects come as this change.
    pub(super) fn take_first(
        &mut self,
        list: &mut Vec<(Key, Arc<T>)>,
        delta: fn(Arc<T>) -> Delta<T>,
    ) -> bool {
        let ascends = list.is_sorted_by(|(key, _), (next, _)| key < next);
        if self.populated || self.has_places() || list.is_empty() || !ascends {
            return false;
        }
        let objects = std::mem::take(list).into_iter();
        self.populated = true;
        self.initial = objects.len();
        self.first = Some(First { number: self.told.places(objects.len()), objects, delta });
        true
    }

    /// From now on what is left of the first list waits as everything else does.
    pub(super) fn file(&mut self) {
        let Some(first) = self.first.take() else { return };
        self.items.reserve(first.len());
        self.order.reserve(first.len());
        for (place, deltas) in first {
            self.items.insert(Arc::clone(&place.key), deltas);
            self.order.push_back(place);
        }
    }
}
