use std::collections::HashMap;

use crate::object::Key;

/// The objects of a list, or the initial objects of a watch-list. Keeps the last object of each
/// key, in the order in which the keys first arrived.
///
/// API servers send objects in the order of their keys. As long as they do, objects are found by
/// binary search, without hashing. The hash map is built once the order is violated.
#[derive(Debug)]
pub(super) struct InitialObjects<V> {
    /// The value is `None` if the object was removed again.
    objects: Vec<(Key, Option<V>)>,
    /// The index of each key. `None` while the keys are in order.
    positions: Option<HashMap<Key, usize>>,
    /// The number of objects without the removed ones.
    count: usize,
}

impl<V> InitialObjects<V> {
    pub(super) fn new() -> Self {
        Self {
            objects: Vec::new(),
            positions: None,
            count: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.position(key)
            .is_some_and(|position| self.objects[position].1.is_some())
    }

    pub(super) fn put(&mut self, key: Key, object: V) {
        if let Some(position) = self.position(&key) {
            let older = self.objects[position].1.replace(object);
            self.count += usize::from(older.is_none());
            return;
        }
        if self.positions.is_none() && self.objects.last().is_some_and(|(last, _)| *last > key) {
            let positions = self
                .objects
                .iter()
                .enumerate()
                .map(|(position, (key, _))| (key.clone(), position));
            self.positions = Some(positions.collect());
        }
        if let Some(positions) = &mut self.positions {
            positions.insert(key.clone(), self.objects.len());
        }
        self.objects.push((key, Some(object)));
        self.count += 1;
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some(position) = self.position(key) {
            let gone = self.objects[position].1.take();
            self.count -= usize::from(gone.is_some());
        }
    }

    pub(super) fn into_vec(self) -> Vec<(Key, V)> {
        // If `V` is an `Arc`, this reuses the allocation, because `Option<Arc<_>>` has the same
        // size.
        self.objects
            .into_iter()
            .filter_map(|(key, object)| Some((key, object?)))
            .collect()
    }

    fn position(&self, key: &str) -> Option<usize> {
        match &self.positions {
            Some(positions) => positions.get(key).copied(),
            // The common case: the key comes after all others.
            None if self.objects.last().is_none_or(|(last, _)| **last < *key) => None,
            None => self
                .objects
                .binary_search_by(|(other, _)| (**other).cmp(key))
                .ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies changes such as `+a1` (put the object `1` under the key `a`) and `-a` (remove it),
    /// and checks the content after each one. Returns the final objects, and whether the hash map
    /// was built.
    fn apply_changes(changes: &str) -> (Vec<String>, bool) {
        let mut objects = InitialObjects::new();
        let mut expected = HashMap::new();
        for change in changes.split_whitespace() {
            let (key, object) = change[1..].split_at(1);
            if change.starts_with('+') {
                objects.put(key.into(), object.to_owned());
                expected.insert(key, object);
            } else {
                objects.remove(key);
                expected.remove(key);
            }
            assert_eq!(objects.len(), expected.len(), "{changes}");
            let all = "abcdefgh".split_terminator("").skip(1);
            assert!(
                all.into_iter()
                    .all(|key| objects.contains(key) == expected.contains_key(key)),
                "{changes}"
            );
        }
        let hashed = objects.positions.is_some();
        let all = objects.into_vec();
        assert!(
            all.iter()
                .all(|(key, object)| expected.remove(&**key) == Some(object.as_str()))
        );
        assert!(expected.is_empty());
        (
            all.into_iter()
                .map(|(key, object)| format!("{key}{object}"))
                .collect(),
            hashed,
        )
    }

    #[test]
    fn objects_in_key_order_need_no_hash_map() {
        assert_eq!(
            apply_changes("+a1 +b2 +d3 +b4 -d -c +e5 +d6"),
            (["a1", "b4", "d6", "e5"].map(str::to_owned).into(), false)
        );
        assert_eq!(apply_changes(""), (Vec::new(), false));
        assert_eq!(
            apply_changes("-a +a1 -a -a +a2"),
            (vec!["a2".to_owned()], false)
        );
    }

    #[test]
    fn unordered_objects_keep_insertion_order() {
        let expected = ["c9", "b2", "h3"].map(str::to_owned).into();
        assert_eq!(
            apply_changes("+a1 +c1 +b2 -a +h3 -e +c9 +a4 -a"),
            (expected, true)
        );
    }
}
