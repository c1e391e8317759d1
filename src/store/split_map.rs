use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::Arc;

/// How many entries a part has on average, at most: a table with 8192 places takes 7168 before it grows.
/// Smaller parts would be slower, for they are scattered over more pages of memory.
const PART: usize = 6400;

/// A map from strings that grows a little at a time: no insertion moves more than some 14,000 entries, which
/// takes less than a millisecond, where a `HashMap` moves all of them: a million take a tenth of a second and
/// more, and under a lock of ours.
///
/// It is linear hashing: when there are too many entries for the parts, one part is split in two, each in its
/// turn. Entries move to parts of higher numbers only. They remember their hashes, so that moving them reads
/// no keys.
pub(super) struct SplitMap<V> {
    /// Never empty.
    parts: Vec<Part<V>>,
    hasher: RandomState,
    len: usize,
}

type Part<V> = HashMap<Hashed<Arc<str>>, V, BuildHasherDefault<Known>>;

impl<V> SplitMap<V> {
    pub(super) fn new() -> Self {
        Self::with_capacity(0)
    }

    /// With room for this many entries, so that none of them moves.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let part = |_| Part::with_capacity_and_hasher(capacity.min(PART), BuildHasherDefault::new());
        let parts = (0..capacity.div_ceil(PART).max(1)).map(part).collect();
        Self { parts, hasher: RandomState::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        let key = self.hashed(key);
        self.parts[self.part_of(key.hash)].get(&key as &dyn Probe)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        let key = self.hashed(key);
        let part = self.part_of(key.hash);
        self.parts[part].get_mut(&key as &dyn Probe)
    }

    /// The key as it is stored.
    pub(super) fn key(&self, key: &str) -> Option<&Arc<str>> {
        let key = self.hashed(key);
        self.parts[self.part_of(key.hash)].get_key_value(&key as &dyn Probe).map(|(key, _)| &key.key)
    }

    /// What is there, or else what is put there.
    pub(super) fn get_or_insert(&mut self, key: Arc<str>, value: impl FnOnce() -> V) -> &mut V {
        if self.len >= self.parts.len() * PART {
            self.split();
        }
        let key = self.hashed(key);
        let part = self.part_of(key.hash);
        let Self { parts, len, .. } = self;
        parts[part].entry(key).or_insert_with(|| {
            *len += 1;
            value()
        })
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<V> {
        let key = self.hashed(key);
        let part = self.part_of(key.hash);
        let removed = self.parts[part].remove(&key as &dyn Probe);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// How many parts there are.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The keys of a part.
    pub(super) fn keys(&self, part: usize) -> impl Iterator<Item = &Arc<str>> {
        self.parts.get(part).into_iter().flat_map(Part::keys).map(|key| &key.key)
    }

    /// One part more: what was in one is in that and the new one.
    fn split(&mut self) {
        let new = self.parts.len();
        let old = new - (new + 1).next_power_of_two() / 2;
        let entries = std::mem::take(&mut self.parts[old]);
        self.parts.push(Part::default());
        for part in [old, new] {
            self.parts[part].reserve(PART.min(entries.len()));
        }
        for (key, value) in entries {
            let part = self.part_of(key.hash);
            self.parts[part].insert(key, value);
        }
    }

    fn hashed<K: Borrow<str>>(&self, key: K) -> Hashed<K> {
        Hashed { hash: self.hasher.hash_one(key.borrow()), key }
    }

    fn part_of(&self, hash: u64) -> usize {
        // Without the lowest and the highest bits, by which the parts themselves go.
        let hash = (hash >> 32) as usize;
        let round = self.parts.len().next_power_of_two();
        match hash & (round - 1) {
            part if part < self.parts.len() => part,
            part => part & (round / 2 - 1),
        }
    }
}

/// A key with its hash: one that is stored or, seen as a `Probe`, one that is looked up.
struct Hashed<K> {
    hash: u64,
    key: K,
}

trait Probe {
    fn hash(&self) -> u64;
    fn key(&self) -> &str;
}

impl<K: Borrow<str>> Probe for Hashed<K> {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> &str {
        self.key.borrow()
    }
}

impl<'a> Borrow<dyn Probe + 'a> for Hashed<Arc<str>> {
    fn borrow(&self) -> &(dyn Probe + 'a) {
        self
    }
}

impl Hash for dyn Probe + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Probe::hash(self));
    }
}

impl PartialEq for dyn Probe + '_ {
    fn eq(&self, other: &Self) -> bool {
        Probe::hash(self) == Probe::hash(other) && self.key() == other.key()
    }
}

impl Eq for dyn Probe + '_ {}

impl Hash for Hashed<Arc<str>> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Hashed<Arc<str>> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

impl Eq for Hashed<Arc<str>> {}

/// The hasher of what knows its hash.
#[derive(Default)]
struct Known(u64);

impl Hasher for Known {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Nothing here hashes any.
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_a_part_at_a_time_and_loses_nothing() {
        let mut map = SplitMap::new();
        for n in 0..200_000 {
            let parts = map.parts();
            map.get_or_insert(n.to_string().into(), || n);
            assert_eq!(map.len(), n + 1);
            assert!(map.parts() <= parts + 1);
        }
        assert_eq!(map.parts(), 200_000_usize.div_ceil(PART));
        let sizes = || (0..map.parts()).map(|part| map.keys(part).count());
        assert_eq!(sizes().sum::<usize>(), map.len());
        assert!(
            sizes().all(|size| (PART / 3..PART * 5 / 2).contains(&size)),
            "{:?}",
            sizes().collect::<Vec<_>>()
        );
        for n in 0..200_000 {
            assert_eq!(map.get(&n.to_string()), Some(&n));
        }
        assert_eq!(map.get("200000"), None);
    }

    #[test]
    fn what_is_removed_is_gone_and_what_is_there_stays() {
        let mut map = SplitMap::with_capacity(20_000);
        for n in 0..20_000 {
            assert_eq!(*map.get_or_insert(n.to_string().into(), || n), n);
            assert_eq!(*map.get_or_insert(n.to_string().into(), || 0), n);
        }
        assert_eq!(map.parts(), 20_000_usize.div_ceil(PART), "made at the beginning");
        for n in (0..20_000).step_by(2) {
            assert_eq!(map.remove(&n.to_string()), Some(n));
            assert_eq!(map.remove(&n.to_string()), None);
        }
        assert_eq!(map.len(), 10_000);
        assert!((0..20_000).all(|n| map.key(&n.to_string()).is_some() == (n % 2 == 1)));
        assert!((0..20_000).all(|n| map.get_mut(&n.to_string()).is_some() == (n % 2 == 1)));
    }
}
