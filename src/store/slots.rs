use std::collections::hash_map;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::StoreError;
use super::index::{Computed, FailedIndex, Values};
use super::pages::Pages;
use super::parts::Parts;
use crate::base::derive::clone_fields;
use crate::base::digest::Digest;
use crate::base::hash::RandomState;
use crate::entry::Entry;
use crate::object::Key;

/// The content of a store between two replaces, with its indexes. It has no locks and runs no user
/// code.
///
/// Objects are in numbered slots without gaps, and indexes hold numbers instead of keys. A slot
/// keeps the index values of its object. Removing an object therefore runs no index function and
/// cannot fail, even if the function would return other values now.
///
/// Readers share the pages of slots and the parts of an index with the store, and read them without
/// the lock. No container is copied or grows as a whole, so a single change takes a few
/// milliseconds at most, even with a million objects.
pub(crate) struct Slots<T> {
    by_key: Parts<Key, u32>,
    pages: Pages<Slot<T>>,
    /// The indexes with their ids. A store has so few of them that a linear search is fast.
    indices: Vec<(u32, Index)>,
    /// The objects without values in an index whose function failed for them.
    unindexed: HashMap<Key, Vec<FailedIndex>, RandomState>,
}

/// The outcome of [`Slots::put`].
pub(super) struct Put<T> {
    /// The entry that was stored before.
    pub(super) before: Option<Entry<T>>,
    /// The index functions that failed for this state of the object for the first time.
    pub(super) failed: Vec<FailedIndex>,
    /// The failures of the state before. Their errors are user values.
    pub(super) outdated: Vec<FailedIndex>,
}

/// A stored object.
pub(super) struct Slot<T> {
    pub(super) key: Key,
    pub(super) object: Arc<T>,
    digest: Digest,
    /// The index values of the object as (index id, value), sorted. The strings are shared with the
    /// indexes. Values of indexes that have been removed stay until the next write.
    values: Box<[(u32, Arc<str>)]>,
}

clone_fields!(Slot<T>: key, object, digest, values);

impl<T> Slot<T> {
    /// Whether the entry is the stored state of the object, perhaps decoded again.
    pub(super) fn is_same_state(&self, entry: &Entry<T>) -> bool {
        Arc::ptr_eq(&self.object, &entry.object) || self.digest.is_same(entry.digest)
    }

    /// Returns the entry without its version, which a slot does not keep: a cache has as many slots as
    /// objects.
    pub(super) fn entry(&self) -> Entry<T> {
        Entry {
            digest: self.digest,
            ..Entry::new(Key::clone(&self.key), Arc::clone(&self.object))
        }
    }

    /// Returns the entry of a slot that was removed, like [`entry`](Self::entry).
    pub(super) fn into_entry(self) -> Entry<T> {
        Entry {
            digest: self.digest,
            ..Entry::new(self.key, self.object)
        }
    }
}

/// The numbers of the slots with each index value.
pub(super) type Index = Parts<Arc<str>, BTreeSet<u32>>;

impl<T> Slots<T> {
    pub(super) fn with_capacity(capacity: usize, indices: impl IntoIterator<Item = u32>) -> Self {
        Self {
            by_key: Parts::with_capacity(capacity),
            pages: Pages::with_capacity(capacity),
            indices: indices
                .into_iter()
                .map(|id| (id, Index::with_capacity(0)))
                .collect(),
            unindexed: HashMap::default(),
        }
    }

    pub(super) fn pages(&self) -> &Pages<Slot<T>> {
        &self.pages
    }

    pub(super) fn get(&self, key: &str) -> Option<&Slot<T>> {
        self.pages.get(*self.by_key.get(key)? as usize)
    }

    /// Whether no object is unindexed.
    pub(super) fn has_no_failures(&self) -> bool {
        self.unindexed.is_empty()
    }

    /// Inserts an object. The caller must drop the result after it releases its lock.
    pub(super) fn put(&mut self, new: Entry<T>, computed: Computed) -> Put<T> {
        let Computed { values, failed } = computed;
        let is_same_state = self
            .get(&new.key)
            .is_some_and(|slot| slot.is_same_state(&new));
        let outdated = self.take_unindexed(&new.key);
        let known: &[FailedIndex] = if is_same_state { &outdated } else { &[] };
        let is_new = |new: &&FailedIndex| known.iter().all(|failed| failed.id != new.id);
        let new_failures = failed.iter().filter(is_new).cloned().collect();
        if !failed.is_empty() {
            self.unindexed.insert(Key::clone(&new.key), failed);
        }
        Put {
            before: self.put_values(new, values),
            failed: new_failures,
            outdated,
        }
    }

    /// Removes the failures of an object.
    fn take_unindexed(&mut self, key: &str) -> Vec<FailedIndex> {
        // Avoids hashing the key: mostly there are no failures.
        match self.unindexed.is_empty() {
            true => Vec::new(),
            false => self.unindexed.remove(key).unwrap_or_default(),
        }
    }

    /// Returns the errors of index functions that failed, and did not fail for the same state of the
    /// object in `before`.
    pub(super) fn new_failures(&self, before: &Self) -> Vec<StoreError> {
        let of_object = |(key, failed): (&Key, &Vec<FailedIndex>)| {
            let slot = self.get(key).map(Slot::entry);
            let old = before
                .get(key)
                .filter(|old| slot.as_ref().is_some_and(|new| old.is_same_state(new)));
            let old = old.and_then(|_| before.unindexed.get(key));
            let is_new = |new: &&FailedIndex| {
                old.is_none_or(|old| old.iter().all(|failed| failed.id != new.id))
            };
            let new = failed.iter().filter(is_new);
            new.map(|failed| failed.error(key)).collect::<Vec<_>>()
        };
        self.unindexed.iter().flat_map(of_object).collect()
    }

    /// Returns the objects that are unindexed in one of the given indexes.
    pub(super) fn unindexed(
        &self,
        is_wanted: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = (&Key, &FailedIndex)> {
        self.unindexed.iter().filter_map(move |(key, failed)| {
            let failed = failed.iter().find(|failed| is_wanted(failed.id))?;
            Some((key, failed))
        })
    }

    /// Inserts an object for which no index function has failed, now or before. The caller must drop
    /// the result after it releases its lock.
    pub(super) fn put_values(&mut self, new: Entry<T>, computed: Values) -> Option<Entry<T>> {
        // Four billion objects do not fit in memory.
        #[allow(clippy::expect_used)]
        let next = u32::try_from(self.pages.len()).expect("fewer than 2^32 objects");
        match self.by_key.of_mut(&new.key).entry(Key::clone(&new.key)) {
            hash_map::Entry::Occupied(number) => {
                let at = *number.get();
                let slot = self.pages.get_mut(at as usize)?;
                set_values(&mut self.indices, at, &mut slot.values, |_| true, computed);
                // The slot keeps its key, which it shares with `by_key`.
                let before = Entry {
                    digest: std::mem::replace(&mut slot.digest, new.digest),
                    ..Entry::new(new.key, std::mem::replace(&mut slot.object, new.object))
                };
                Some(before)
            }
            hash_map::Entry::Vacant(number) => {
                number.insert(next);
                let mut values = Box::default();
                set_values(&mut self.indices, next, &mut values, |_| true, computed);
                self.pages.push(Slot {
                    key: new.key,
                    object: new.object,
                    digest: new.digest,
                    values,
                });
                None
            }
        }
    }

    /// Removes an object and returns its slot and its failures. The caller drops them after it
    /// releases its lock. The last slot takes the number of the removed one.
    pub(super) fn remove(&mut self, key: &str) -> Option<(Slot<T>, Vec<FailedIndex>)> {
        let at = self.by_key.remove(key)?;
        let failed = self.take_unindexed(key);
        let last = self.pages.len() as u32 - 1;
        let removed = self.pages.swap_remove(at as usize)?;
        for (id, value) in &removed.values {
            unindex(&mut self.indices, *id, value, at);
        }
        if let Some(moved) = self.pages.get(at as usize) {
            if let Some(number) = self.by_key.get_mut(&moved.key) {
                *number = at;
            }
            for (id, value) in &moved.values {
                let index = index_mut(&mut self.indices, *id);
                if let Some(numbers) = index.and_then(|index| index.get_mut(value)) {
                    numbers.remove(&last);
                    numbers.insert(at);
                }
            }
        }
        Some((removed, failed))
    }

    pub(super) fn add_index(&mut self, id: u32) {
        self.indices.push((id, Index::with_capacity(0)));
    }

    /// Removes an index and returns it with its failures. The caller drops them after it releases its
    /// lock.
    pub(super) fn remove_index(&mut self, id: u32) -> (Option<Index>, Vec<FailedIndex>) {
        let mut removed = Vec::new();
        self.unindexed.retain(|_, failed| {
            removed.extend(failed.extract_if(.., |failed| failed.id == id));
            !failed.is_empty()
        });
        let at = self.indices.iter().position(|(a, _)| *a == id);
        (at.map(|at| self.indices.remove(at).1), removed)
    }

    /// Indexes every object, in the order of the slots.
    pub(super) fn index_all(&mut self, mut compute: impl FnMut(&Key, &T) -> Computed) {
        for (at, slot) in (0..).zip(self.pages.iter_mut()) {
            let Computed { values, failed } = compute(&slot.key, &slot.object);
            set_values(&mut self.indices, at, &mut slot.values, |_| true, values);
            if !failed.is_empty() {
                self.unindexed.insert(Key::clone(&slot.key), failed);
            }
        }
    }

    /// Indexes the object of an entry in the indexes `ids`, if it is still the stored object. Returns
    /// what the caller drops after it releases its lock.
    #[must_use]
    pub(super) fn index_object(
        &mut self,
        entry: &Entry<T>,
        ids: &[u32],
        computed: Computed,
    ) -> Vec<FailedIndex> {
        if let Some(&at) = self.by_key.get(&entry.key)
            && let Some(slot) = self.pages.get_mut(at as usize)
            && Arc::ptr_eq(&slot.object, &entry.object)
        {
            let which = |id| ids.contains(&id);
            set_values(
                &mut self.indices,
                at,
                &mut slot.values,
                which,
                computed.values,
            );
            // A write of the same object may have failed meanwhile.
            let mut failed = self.take_unindexed(&entry.key);
            let outdated = failed.extract_if(.., |failed| ids.contains(&failed.id));
            let outdated = outdated.collect();
            failed.extend(computed.failed);
            if !failed.is_empty() {
                self.unindexed.insert(Key::clone(&entry.key), failed);
            }
            return outdated;
        }
        computed.failed
    }

    pub(super) fn index(&self, id: u32) -> Option<&Index> {
        let index = self.indices.iter().find(|(a, _)| *a == id);
        index.map(|(_, index)| index)
    }
}

/// Sets the values of the object in slot `at` to `computed`, for the indexes that `which` selects.
/// Changes only what differs.
fn set_values(
    indices: &mut [(u32, Index)],
    at: u32,
    values: &mut Box<[(u32, Arc<str>)]>,
    which: impl Fn(u32) -> bool,
    computed: Values,
) {
    let old = values.iter().filter(|(id, _)| which(*id));
    let old = old.map(|(id, value)| (*id, &**value));
    if old.eq(computed.iter().map(|(id, value)| (*id, value.as_str()))) {
        return;
    }
    let find = |values: &[(u32, Arc<str>)], id: u32, value: &str| {
        values.binary_search_by(|(a, x)| (*a, &**x).cmp(&(id, value)))
    };
    let old = std::mem::take(values);
    let mut new = Vec::with_capacity(old.len().max(computed.len()));
    for (id, value) in computed {
        if let Ok(known) = find(&old, id, &value) {
            new.push(old[known].clone());
        } else if let Some(index) = index_mut(indices, id) {
            let part = index.of_mut(&value);
            let value = match part.get_key_value(value.as_str()) {
                Some((value, _)) => Arc::clone(value),
                None => Arc::from(value),
            };
            part.entry(Arc::clone(&value)).or_default().insert(at);
            new.push((id, value));
        }
    }
    let selected = new.len();
    for (id, value) in old {
        if which(id) {
            if find(&new[..selected], id, &value).is_err() {
                unindex(indices, id, &value, at);
            }
        } else if index_mut(indices, id).is_some() {
            new.push((id, value));
        }
    }
    new.sort_unstable();
    *values = new.into();
}

fn index_mut(indices: &mut [(u32, Index)], id: u32) -> Option<&mut Index> {
    let index = indices.iter_mut().find(|(a, _)| *a == id);
    index.map(|(_, index)| index)
}

/// Removes a slot from an index value, and a value without slots from the index.
fn unindex(indices: &mut [(u32, Index)], id: u32, value: &str, at: u32) {
    let Some(index) = index_mut(indices, id) else {
        return;
    };
    if let Some(numbers) = index.get_mut(value) {
        numbers.remove(&at);
        if numbers.is_empty() {
            index.remove(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::time::Random;

    fn values_of(values: Values) -> Computed {
        let failed = Vec::new();
        Computed { values, failed }
    }

    fn values<T>(slots: &Slots<T>, id: u32) -> impl Iterator<Item = &Arc<str>> {
        slots.index(id).into_iter().flat_map(Parts::keys)
    }

    fn keys_of<'a, T>(slots: &'a Slots<T>, id: u32, value: &str) -> Vec<&'a str> {
        let numbers = slots.index(id).and_then(|index| index.get(value));
        let numbers = numbers.into_iter().flatten();
        let mut keys: Vec<&str> = numbers
            .map(|&at| &*slots.pages.get(at as usize).unwrap().key)
            .collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn x2_to_x5_indices_match_a_map_on_random_writes() {
        let mut random = Random::new();
        let mut below = |limit: usize| (random.unit() * limit as f64) as usize;
        let mut slots = Slots::with_capacity(0, [0, 1]);
        let mut model: BTreeMap<String, (usize, Values)> = BTreeMap::new();
        for step in 0..3000 {
            let key = below(300).to_string();
            if below(3) == 0 {
                assert_eq!(
                    slots.remove(&key).map(|(gone, _)| *gone.object),
                    model.remove(&key).map(|old| old.0)
                );
                continue;
            }
            let mut computed: Values = (0..below(4))
                .map(|_| (below(2) as u32, below(5).to_string()))
                .collect();
            computed.sort_unstable();
            computed.dedup();
            let old = slots.put(
                Entry::new(key.as_str().into(), Arc::new(step)),
                values_of(computed.clone()),
            );
            assert_eq!(
                old.before.map(|old| *old.object),
                model.insert(key, (step, computed)).map(|old| old.0)
            );

            assert_eq!(slots.pages().iter().count(), model.len());
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
                    assert_eq!(keys_of(&slots, id, value), keys);
                }
            }
        }
    }

    #[test]
    fn x3_unchanged_values_leave_the_index_untouched() {
        let mut slots = Slots::with_capacity(0, [0]);
        let computed = || values_of(vec![(0, "x".to_owned())]);
        slots.put(Entry::new("a".into(), Arc::new(1)), computed());
        let before = values(&slots, 0).next().map(Arc::as_ptr);
        slots.put(Entry::new("a".into(), Arc::new(2)), computed());
        assert_eq!(values(&slots, 0).next().map(Arc::as_ptr), before);
        slots.put(Entry::new("b".into(), Arc::new(3)), computed());
        let values = values(&slots, 0).next().map(Arc::strong_count);
        assert_eq!(
            values,
            Some(3),
            "the index and both slots share one allocation"
        );
    }

    #[test]
    fn next_write_removes_values_of_a_removed_index() {
        let mut slots = Slots::with_capacity(0, [0]);
        let entry = Entry::new("a".into(), Arc::new(1));
        slots.put(entry.clone(), Computed::default());
        for id in 1..9 {
            slots.add_index(id);
            let values = values_of(vec![(id, "x".to_owned())]);
            assert!(slots.index_object(&entry, &[id], values).is_empty());
            assert_eq!(keys_of(&slots, id, "x"), ["a"]);
            slots.remove_index(id);
        }
        assert_eq!(slots.get("a").map(|slot| slot.values.len()), Some(1));
        slots.put(entry, Computed::default());
        assert_eq!(slots.get("a").map(|slot| slot.values.len()), Some(0));
    }

    #[test]
    fn memory_follows_the_number_of_objects() {
        let mut slots = Slots::with_capacity(0, [0]);
        let key = |n: usize| Key::from(n.to_string());
        for n in 0..100_000 {
            slots.put(
                Entry::new(key(n), Arc::new(n)),
                values_of(vec![(0, n.to_string())]),
            );
        }
        for n in 0..99_990 {
            slots.remove(&key(n * 7 % 100_000));
        }
        let left = slots.pages.len();
        assert_eq!(left, 10);
        assert!(slots.pages.capacity() < 1000);
        for capacity in [slots.by_key.capacity(), slots.indices[0].1.capacity()] {
            assert!(capacity < 500, "{capacity}");
        }
    }
}
