use std::collections::VecDeque;
use std::sync::Arc;
use std::vec;

use super::{Place, State};
use crate::object::Key;
use crate::queue::{Delta, Deltas};

/// What is left of a list that came when nothing waited, as long as no other change is written: then each
/// object has one, and they are popped in the order of the list. No key is hashed, and no entry made, only
/// for that. Behind it stand but the tombstones of what is not in it.
pub(super) struct List<T> {
    objects: vec::IntoIter<(Key, Arc<T>)>,
    /// Of the place of the next one. They follow each other.
    number: u64,
    delta: fn(Arc<T>) -> Delta<T>,
}

impl<T> List<T> {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The place of the next one.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl<T> Iterator for List<T> {
    type Item = (Place, Deltas<T>);

    fn next(&mut self) -> Option<(Place, Deltas<T>)> {
        let (key, object) = self.objects.next()?;
        let place = Place {
            key: Arc::clone(&key),
            number: self.number,
        };
        self.number += 1;
        Some((place, Deltas::one(Some(key), (self.delta)(object))))
    }
}

impl<T> State<T> {
    /// Takes a list as it is if nothing waits, and if the order of its keys, which is an API server's, shows
    /// that none of them is there twice. Its objects come as this change. Otherwise gives it back.
    pub(super) fn take_list(
        &mut self,
        list: Vec<(Key, Arc<T>)>,
        delta: fn(Arc<T>) -> Delta<T>,
    ) -> Result<(), Vec<(Key, Arc<T>)>> {
        if self.has_places()
            || list.is_empty()
            || !list.is_sorted_by(|(key, _), (next, _)| key < next)
        {
            return Err(list);
        }
        let objects = list.into_iter();
        self.list = Some(List {
            number: self.told.places(objects.len()),
            objects,
            delta,
        });
        Ok(())
    }

    /// From now on what is left of the list waits as everything else does, and before that.
    pub(super) fn file(&mut self) {
        let Some(list) = self.list.take() else { return };
        let mut order = VecDeque::with_capacity(list.len() + self.order.len());
        self.items.reserve(list.len());
        for (place, deltas) in list {
            self.items.insert(Arc::clone(&place.key), deltas);
            order.push_back(place);
        }
        order.append(&mut self.order);
        self.order = order;
    }
}
