use std::collections::BTreeSet;
use std::collections::hash_map;
use std::sync::Arc;

use super::Entry;
use super::index::Computed;
use super::parts::Parts;
use crate::object::Key;

/// The number of slots in a page. A page takes three megabytes, which is large enough for the
/// operating system to map efficiently.
const PAGE: usize = 1 << 16;

/// The content of a store between two replaces, with its indexes. It has no locks and runs no user
/// code.
///
/// Objects are in numbered slots. A list can therefore pause after any slot and continue later, and
/// indexes hold numbers instead of keys. A slot keeps the index values of its object. Removing an
/// object therefore runs no index function and cannot fail, even if the function would return other
/// values now.
///
/// No container grows all at once, so a single change takes one or two milliseconds at most, even
/// with a million objects.
pub(super) struct Slots<T> {
    by_key: Parts<u32>,
    len: usize,
    /// Pages of `PAGE` slots. Only the last page may have fewer.
    pages: Vec<Vec<Option<Slot<T>>>>,
    free: Vec<u32>,
    /// The indexes with their ids. A store has so few of them that a linear search is fast.
    indices: Vec<(u32, Index)>,
    /// The number of keys inserted so far. It gives slots their age.
    inserted: u64,
}

pub(super) struct Slot<T> {
    pub(super) entry: Entry<T>,
    /// The index values of the object as (index id, value), sorted. The strings are shared with the
    /// indexes.
    values: Box<[(u32, Arc<str>)]>,
    /// The value of `inserted` after the key was inserted. A list skips slots that were inserted
    /// after it began.
    pub(super) inserted_at: u64,
}

pub(super) type Index = Parts<BTreeSet<u32>>;

impl<T> Slots<T> {
    pub(super) fn new(indices: impl IntoIterator<Item = u32>) -> Self {
        Self::with_capacity(0, indices)
    }

    pub(super) fn with_capacity(capacity: usize, indices: impl IntoIterator<Item = u32>) -> Self {
        Self {
            by_key: Parts::with_capacity(capacity),
            len: 0,
            pages: Vec::with_capacity(capacity.div_ceil(PAGE)),
            free: Vec::new(),
            indices: indices
                .into_iter()
                .map(|id| (id, Index::with_capacity(0)))
                .collect(),
            inserted: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of slots, including empty ones.
    pub(super) fn extent(&self) -> usize {
        match self.pages.last() {
            Some(last) => (self.pages.len() - 1) * PAGE + last.len(),
            None => 0,
        }
    }

    /// Returns the largest `inserted_at` of any slot so far.
    pub(super) fn now(&self) -> u64 {
        self.inserted
    }

    pub(super) fn get(&self, key: &str) -> Option<&Slot<T>> {
        self.at(*self.by_key.get(key)?)
    }

    fn at(&self, at: u32) -> Option<&Slot<T>> {
        self.pages[at as usize / PAGE][at as usize % PAGE].as_ref()
    }

    fn at_mut(&mut self, at: u32) -> &mut Option<Slot<T>> {
        &mut self.pages[at as usize / PAGE][at as usize % PAGE]
    }

    /// Returns the filled slots of a range, which may extend past the end.
    pub(super) fn range(&self, from: usize, count: usize) -> impl Iterator<Item = &Slot<T>> {
        let pages = self.pages.get(from / PAGE..).unwrap_or_default();
        pages
            .iter()
            .flatten()
            .skip(from % PAGE)
            .take(count)
            .flatten()
    }

    /// Inserts an object and returns the one that it replaced. The caller must drop the returned
    /// object after it releases its lock.
    pub(super) fn put(&mut self, new: Entry<T>, computed: Computed) -> Option<Arc<T>> {
        let next = self.free.last().copied().unwrap_or_else(|| {
            // Four billion objects do not fit in memory.
            #[allow(clippy::expect_used)]
            u32::try_from(self.extent()).expect("fewer than 2^32 objects")
        });
        match self.by_key.of_mut(&new.key).entry(Arc::clone(&new.key)) {
            hash_map::Entry::Occupied(entry) => {
                let at = *entry.get();
                self.index_slot(at, |_| true, computed);
                let slot = self.at_mut(at).as_mut()?;
                // A resync writes the same object without its digest.
                if !(new.digest.is_none() && Arc::ptr_eq(&slot.entry.object, &new.object)) {
                    slot.entry.digest = new.digest;
                }
                return Some(std::mem::replace(&mut slot.entry.object, new.object));
            }
            hash_map::Entry::Vacant(entry) => entry.insert(next),
        };
        self.len += 1;
        self.inserted += 1;
        let slot = Some(Slot {
            entry: new,
            values: Box::default(),
            inserted_at: self.inserted,
        });
        if self.free.pop().is_some() {
            *self.at_mut(next) = slot;
        } else {
            match self.pages.last_mut() {
                Some(page) if page.len() < PAGE => page.push(slot),
                _ => self.pages.push(vec![slot]),
            }
        }
        self.index_slot(next, |_| true, computed);
        None
    }

    /// Removes an object and returns its slot. If that was the last object, also returns all
    /// allocated memory. The caller drops both after it releases its lock.
    pub(super) fn remove(&mut self, key: &str) -> Option<(Slot<T>, Option<Self>)> {
        let at = self.by_key.of_mut(key).remove(key)?;
        self.len -= 1;
        self.index_slot(at, |_| true, Computed::new());
        let slot = self.at_mut(at).take()?;
        if self.len() > 0 {
            self.free.push(at);
            return Some((slot, None));
        }
        // Only an empty store can be shrunk, because slots never move.
        let empty = Self::new(self.indices.iter().map(|(id, _)| *id));
        let freed = std::mem::replace(
            self,
            Self {
                inserted: self.inserted,
                ..empty
            },
        );
        Some((slot, Some(freed)))
    }

    /// Sets the values of a slot to `computed`, for the indexes that `which` selects. Changes only
    /// what differs.
    fn index_slot(&mut self, at: u32, which: impl Fn(u32) -> bool, computed: Computed) {
        let Some(slot) = self.pages[at as usize / PAGE][at as usize % PAGE].as_mut() else {
            return;
        };
        let same = {
            let mut old = slot.values.iter().filter(|(id, _)| which(*id));
            let mut new = computed.iter();
            loop {
                match (old.next(), new.next()) {
                    (None, None) => break true,
                    (Some((a, x)), Some((b, y))) if a == b && **x == **y => {}
                    _ => break false,
                }
            }
        };
        if same {
            return;
        }
        let mut values = Vec::with_capacity(computed.len());
        for (id, value) in std::mem::take(&mut slot.values) {
            let stays = !which(id)
                || computed
                    .binary_search_by(|(a, x)| (*a, x.as_str()).cmp(&(id, &*value)))
                    .is_ok();
            if stays {
                values.push((id, value));
                continue;
            }
            let Some((_, index)) = self.indices.iter_mut().find(|(a, _)| *a == id) else {
                continue;
            };
            if let hash_map::Entry::Occupied(mut entry) =
                index.of_mut(&value).entry(Arc::clone(&value))
            {
                entry.get_mut().remove(&at);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        }
        let kept = values.len();
        for (id, value) in computed {
            if values[..kept]
                .binary_search_by(|(a, x)| (*a, &**x).cmp(&(id, value.as_str())))
                .is_ok()
            {
                continue;
            }
            let Some((_, index)) = self.indices.iter_mut().find(|(a, _)| *a == id) else {
                continue;
            };
            let part = index.of_mut(&value);
            let value = match part.get_key_value(value.as_str()) {
                Some((value, _)) => Arc::clone(value),
                None => Arc::from(value),
            };
            part.entry(Arc::clone(&value)).or_default().insert(at);
            values.push((id, value));
        }
        values.sort_unstable();
        slot.values = values.into();
    }

    pub(super) fn add_index(&mut self, id: u32) {
        self.indices.push((id, Index::with_capacity(0)));
    }

    /// Removes an index and returns it. The caller drops it after it releases its lock. No slot may
    /// have values of this index any more.
    pub(super) fn remove_index(&mut self, id: u32) -> Option<Index> {
        let at = self.indices.iter().position(|(a, _)| *a == id)?;
        Some(self.indices.remove(at).1)
    }

    /// Indexes every object, in the order of the slots.
    pub(super) fn index_all<E>(
        &mut self,
        mut compute: impl FnMut(&Key, &T) -> Result<Computed, E>,
    ) -> Result<(), E> {
        for at in 0..self.extent() as u32 {
            let Some(slot) = self.at(at) else { continue };
            let computed = compute(&slot.entry.key, &slot.entry.object)?;
            self.index_slot(at, |_| true, computed);
        }
        Ok(())
    }

    /// Indexes an object in the indexes `ids`, if it is still the stored object.
    pub(super) fn index_object(
        &mut self,
        key: &str,
        object: &Arc<T>,
        ids: &[u32],
        computed: Computed,
    ) {
        let Some(&at) = self.by_key.get(key) else {
            return;
        };
        if self
            .at(at)
            .is_some_and(|slot| Arc::ptr_eq(&slot.entry.object, object))
        {
            self.index_slot(at, |id| ids.contains(&id), computed);
        }
    }

    /// Removes the values of some indexes from a range of slots.
    pub(super) fn unindex(&mut self, from: usize, count: usize, ids: &[u32]) {
        for at in from..self.extent().min(from.saturating_add(count)) {
            self.index_slot(at as u32, |id| ids.contains(&id), Computed::new());
        }
    }

    /// Returns the filled slots with an index value and their numbers, starting at the slot `from`.
    pub(super) fn indexed(
        &self,
        id: u32,
        value: &str,
        from: u32,
    ) -> impl Iterator<Item = (u32, &Slot<T>)> {
        self.index(id)
            .and_then(|index| index.get(value))
            .into_iter()
            .flat_map(move |slots| slots.range(from..))
            .filter_map(|&at| Some((at, self.at(at)?)))
    }

    /// Returns the number of objects with an index value.
    pub(super) fn indexed_len(&self, id: u32, value: &str) -> usize {
        self.index(id)
            .and_then(|index| index.get(value))
            .map_or(0, BTreeSet::len)
    }

    /// Returns the values of an index, one part at a time. A value never moves to another part.
    pub(super) fn values(&self, id: u32) -> impl Iterator<Item = impl Iterator<Item = &Arc<str>>> {
        self.index(id).into_iter().flat_map(Parts::keys)
    }

    fn index(&self, id: u32) -> Option<&Index> {
        self.indices
            .iter()
            .find(|(a, _)| *a == id)
            .map(|(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::time::Random;

    fn values<T>(slots: &Slots<T>, id: u32) -> impl Iterator<Item = &Arc<str>> {
        slots.values(id).flatten()
    }

    #[test]
    fn x2_to_x5_indices_match_a_map_on_random_writes() {
        let mut random = Random::new();
        let mut below = |limit: usize| (random.unit() * limit as f64) as usize;
        let mut slots = Slots::new([0, 1]);
        let mut model: BTreeMap<String, (usize, Computed)> = BTreeMap::new();
        for step in 0..5000 {
            let key = below(20).to_string();
            if below(3) == 0 {
                assert_eq!(
                    slots.remove(&key).map(|gone| *gone.0.entry.object),
                    model.remove(&key).map(|old| old.0)
                );
                continue;
            }
            let mut computed: Computed = (0..below(4))
                .map(|_| (below(2) as u32, below(5).to_string()))
                .collect();
            computed.sort_unstable();
            computed.dedup();
            let old = slots.put(
                Entry::of(key.as_str().into(), Arc::new(step)),
                computed.clone(),
            );
            assert_eq!(
                old.map(|old| *old),
                model.insert(key, (step, computed)).map(|old| old.0)
            );

            assert_eq!(slots.len(), model.len());
            assert_eq!(slots.range(0, usize::MAX).count(), model.len());
            for id in 0..2 {
                let mut expected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for (key, (_, computed)) in &model {
                    for (_, value) in computed.iter().filter(|(a, _)| *a == id) {
                        expected.entry(value).or_default().push(key);
                    }
                }
                assert_eq!(
                    values(&slots, id).count(),
                    expected.len(),
                    "values without objects are removed"
                );
                for (value, keys) in expected {
                    let mut found: Vec<&str> = slots
                        .indexed(id, value, 0)
                        .map(|(_, slot)| &*slot.entry.key)
                        .collect();
                    found.sort_unstable();
                    assert_eq!(found, keys);
                    assert_eq!(slots.indexed_len(id, value), keys.len());
                }
            }
        }
    }

    #[test]
    fn x3_unchanged_values_leave_the_index_untouched() {
        let mut slots = Slots::new([0]);
        let computed = || vec![(0, "x".to_owned())];
        slots.put(Entry::of("a".into(), Arc::new(1)), computed());
        let before = values(&slots, 0).next().map(Arc::as_ptr);
        slots.put(Entry::of("a".into(), Arc::new(2)), computed());
        assert_eq!(values(&slots, 0).next().map(Arc::as_ptr), before);
        slots.put(Entry::of("b".into(), Arc::new(3)), computed());
        let values = values(&slots, 0).next().map(Arc::strong_count);
        assert_eq!(
            values,
            Some(3),
            "the index and both slots share one allocation"
        );
    }
}
