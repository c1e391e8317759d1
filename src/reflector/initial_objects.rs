use std::collections::{BTreeSet, HashMap};

use crate::object::Key;

/// The objects of a list, or the initial objects of a watch-list. Keeps the last object of each
/// key, in the order in which the keys first arrived.
///
/// API servers send objects in the order of their keys. As long as they do, objects are found by
/// binary search, without hashing. The hash map is built once the order is violated.
#[derive(Debug)]
pub(super) struct InitialObjects<V> {
    objects: Vec<V>,
    /// The positions of the objects that were removed again. Their keys keep the order.
    removed: BTreeSet<usize>,
    /// The position of each key. `None` while the keys are in order.
    positions: Option<HashMap<Key, usize>>,
}

/// An object of a list.
pub(super) trait Keyed {
    fn key(&self) -> &Key;
}

impl<V: Keyed> InitialObjects<V> {
    pub(super) fn new() -> Self {
        Self {
            objects: Vec::new(),
            removed: BTreeSet::new(),
            positions: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len() - self.removed.len()
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        let position = self.position(key);
        position.is_some_and(|position| !self.removed.contains(&position))
    }

    pub(super) fn put(&mut self, object: V) {
        let key = object.key();
        if let Some(position) = self.position(key) {
            self.objects[position] = object;
            self.removed.remove(&position);
            return;
        }
        let last = self.objects.last();
        if self.positions.is_none() && last.is_some_and(|last| last.key() > key) {
            let objects = self.objects.iter().enumerate();
            let positions = objects.map(|(position, object)| (Key::clone(object.key()), position));
            self.positions = Some(positions.collect());
        }
        if let Some(positions) = &mut self.positions {
            positions.insert(Key::clone(key), self.objects.len());
        }
        self.objects.push(object);
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some(position) = self.position(key) {
            self.removed.insert(position);
        }
    }

    pub(super) fn into_vec(mut self) -> Vec<V> {
        let mut position = 0;
        if !self.removed.is_empty() {
            self.objects.retain(|_| {
                position += 1;
                !self.removed.contains(&(position - 1))
            });
        }
        self.objects
    }

    fn position(&self, key: &str) -> Option<usize> {
        match &self.positions {
            Some(positions) => positions.get(key).copied(),
            // The common case: the key comes after all others.
            None if self.objects.last().is_none_or(|last| **last.key() < *key) => None,
            None => {
                let search = |other: &V| (**other.key()).cmp(key);
                self.objects.binary_search_by(search).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyed for (Key, String) {
        fn key(&self) -> &Key {
            &self.0
        }
    }

    /// Applies changes such as `+a1` (put the object `1` under the key `a`) and `-a` (remove it),
    /// and checks the content after each one. Returns the final objects, and whether the hash map
    /// was built.
    fn apply_changes(changes: &str) -> (Vec<String>, bool) {
        let mut objects = InitialObjects::new();
        let mut expected = HashMap::new();
        for change in changes.split_whitespace() {
            let (key, object) = change[1..].split_at(1);
            if change.starts_with('+') {
                objects.put((Key::from(key), object.to_owned()));
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
