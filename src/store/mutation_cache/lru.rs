use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::object::Key;

/// A map with a maximum size and age, which evicts the least recently touched value. As in
/// apimachinery's `LRUExpireCache`, an expired value occupies its place until a lookup finds it.
///
/// Removed values are kept in `gone`, so that the owner can drop them after it releases its lock.
/// Operations on one key take O(log n).
pub(super) struct Lru<V> {
    max_size: usize,
    ttl: Duration,
    entries: HashMap<Key, Entry<V>>,
    /// The keys in the order of their last touch.
    order: BTreeMap<u64, Key>,
    touches: u64,
    pub(super) gone: Vec<Arc<V>>,
}

struct Entry<V> {
    value: Arc<V>,
    since: Instant,
    touched: u64,
}

impl<V> Lru<V> {
    pub(super) fn new(max_size: usize, ttl: Duration) -> Self {
        Self {
            max_size,
            ttl,
            entries: HashMap::new(),
            order: BTreeMap::new(),
            touches: 0,
            gone: Vec::new(),
        }
    }

    /// Returns the value of a key without touching it. Removes an expired value.
    pub(super) fn get(&mut self, key: &str, now: Instant) -> Option<&Arc<V>> {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| entry.is_expired(self.ttl, now))
        {
            self.remove(key);
        }
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Inserts a value. It replaces the value of its key, or evicts the least recently touched one.
    pub(super) fn put(&mut self, key: &Key, value: Arc<V>, now: Instant) {
        self.remove(key);
        if self.entries.len() >= self.max_size
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(&oldest);
        }
        self.touches += 1;
        self.order.insert(self.touches, Arc::clone(key));
        self.entries.insert(
            Arc::clone(key),
            Entry {
                value,
                since: now,
                touched: self.touches,
            },
        );
    }

    /// Marks this value as the most recently touched, if it is still in the map.
    pub(super) fn touch(&mut self, key: &str, value: &Arc<V>) {
        if let Some(entry) = self.entries.get_mut(key)
            && Arc::ptr_eq(&entry.value, value)
            && let Some(key) = self.order.remove(&entry.touched)
        {
            self.touches += 1;
            entry.touched = self.touches;
            self.order.insert(self.touches, key);
        }
    }

    /// Removes this value, if it is still in the map.
    pub(super) fn remove_same(&mut self, key: &str, value: &Arc<V>) {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| Arc::ptr_eq(&entry.value, value))
        {
            self.remove(key);
        }
    }

    /// Returns the values that have not expired, least recently touched first.
    pub(super) fn unexpired(&self, now: Instant) -> Vec<(Key, Arc<V>)> {
        let mut unexpired = Vec::with_capacity(self.order.len());
        for key in self.order.values() {
            if let Some(entry) = self
                .entries
                .get(key)
                .filter(|entry| !entry.is_expired(self.ttl, now))
            {
                unexpired.push((Arc::clone(key), Arc::clone(&entry.value)));
            }
        }
        unexpired
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn remove(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.touched);
            self.gone.push(entry.value);
        }
    }
}

impl<V> Entry<V> {
    fn is_expired(&self, ttl: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Random;

    #[test]
    fn lru_matches_a_vector_on_random_operations() {
        const SIZE: usize = 5;
        const TTL: Duration = Duration::from_secs(10);
        let mut random = Random::new();
        let mut below = |limit: usize| (random.unit() * limit as f64) as usize;
        let mut now = Instant::now();
        let mut lru = Lru::new(SIZE, TTL);
        // The least recently touched entry comes first.
        let mut model: Vec<(String, Arc<usize>, Instant)> = Vec::new();
        for step in 0..20_000 {
            let key = below(8).to_string();
            let at = model.iter().position(|entry| entry.0 == key);
            match below(4) {
                0 => {
                    let value = Arc::new(step);
                    if let Some(at) = at {
                        model.remove(at);
                    } else if model.len() == SIZE {
                        model.remove(0);
                    }
                    model.push((key.clone(), Arc::clone(&value), now));
                    lru.put(&key.as_str().into(), value, now);
                }
                1 => {
                    let at = at.filter(|at| match now.duration_since(model[*at].2) > TTL {
                        true => {
                            model.remove(*at);
                            false
                        }
                        false => true,
                    });
                    let found = lru.get(&key, now).cloned();
                    assert_eq!(found, at.map(|at| Arc::clone(&model[at].1)));
                    lru.touch(&key, &Arc::new(step));
                    if let (Some(at), Some(found)) = (at, found) {
                        lru.touch(&key, &found);
                        let entry = model.remove(at);
                        model.push(entry);
                    }
                }
                2 => {
                    lru.remove_same(&key, &Arc::new(step));
                    if let Some(at) = at.filter(|at| at % 2 == 0) {
                        lru.remove_same(&key, &model.remove(at).1);
                    }
                }
                _ => now += Duration::from_secs(below(4) as u64),
            }
            let expected: Vec<_> = model
                .iter()
                .filter(|entry| now.duration_since(entry.2) <= TTL)
                .collect();
            let unexpired = lru.unexpired(now);
            assert!(
                unexpired
                    .iter()
                    .map(|(key, value)| (&**key, value))
                    .eq(expected.iter().map(|entry| (entry.0.as_str(), &entry.1)))
            );
            assert_eq!((lru.len(), lru.order.len()), (model.len(), model.len()));
            lru.gone.clear();
        }
    }
}
