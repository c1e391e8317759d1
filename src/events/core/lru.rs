use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

/// A map that forgets its least recently used entry when it is full.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    limit: usize,
    entries: HashMap<Arc<K>, (u64, V)>,
    /// The keys in the order of their last use.
    by_use: BTreeMap<u64, Arc<K>>,
    next: u64,
}

impl<K: Eq + Hash, V> Lru<K, V> {
    /// A `limit` of zero counts as one.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            next: 0,
        }
    }

    /// Returns the value of a key, which becomes the most recently used one.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        if let Some(key) = self.by_use.remove(used) {
            *used = self.next;
            self.by_use.insert(self.next, key);
            self.next += 1;
        }
        Some(value)
    }

    /// Sets the value of a key, which becomes the most recently used one. Returns the value that
    /// had to go.
    pub(crate) fn put(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get(&key) {
            *known = value;
            return None;
        }
        let key = Arc::new(key);
        self.by_use.insert(self.next, Arc::clone(&key));
        self.entries.insert(key, (self.next, value));
        self.next += 1;
        if self.entries.len() <= self.limit {
            return None;
        }
        let (_, oldest) = self.by_use.pop_first()?;
        self.entries.remove(&oldest).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.by_use.remove(&used);
        Some(value)
    }

    /// Returns all entries in no order, without using them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (_, value))| (&**key, value))
    }

    /// Returns all entries in no order, without using them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries
            .iter_mut()
            .map(|(key, (_, value))| (&**key, value))
    }
}
