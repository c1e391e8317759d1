use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::base::hash::RandomState;
use crate::base::shrink::Shrink;

/// The number of parts. A map that grows moves all its entries. With a million entries, moving one
/// of 64 parts takes one or two milliseconds.
const PARTS: usize = 64;

type Part<K, V> = HashMap<K, V, RandomState>;

/// A map with strings as keys that consists of many small maps, so that no insertion moves a million
/// entries under a lock. A clone shares the parts and keeps its content: a write copies the part
/// that it changes, if a clone shares it.
///
/// A fast hash without a secret selects the part. If keys are chosen to share one part, it performs
/// like a single `HashMap`, whose own hash is secret.
#[derive(Clone)]
pub(super) struct Parts<K, V> {
    /// `PARTS` maps. An empty map has one allocation, which all parts of a new map share.
    parts: Vec<Arc<Part<K, V>>>,
}

impl<K: Borrow<str> + Eq + Hash + Clone, V: Clone> Parts<K, V> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            parts: std::iter::repeat_n(
                Arc::new(HashMap::with_capacity_and_hasher(
                    capacity / PARTS,
                    RandomState::default(),
                )),
                PARTS,
            )
            .collect(),
        }
    }

    pub(super) fn of_mut(&mut self, key: &str) -> &mut Part<K, V> {
        Arc::make_mut(&mut self.parts[part(key)])
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.parts[part(key)].get(key)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.of_mut(key).get_mut(key)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<V> {
        let part = self.of_mut(key);
        let removed = part.remove(key);
        part.shrink_when_sparse(0);
        removed
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.parts.iter().flat_map(|part| part.keys())
    }
}

fn part(key: &str) -> usize {
    let mut hash = 0_u64;
    for bytes in key.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    hash = (hash ^ hash >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - PARTS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K, V> Parts<K, V> {
        pub(crate) fn capacity(&self) -> usize {
            self.parts.iter().map(|part| part.capacity()).sum()
        }
    }

    #[test]
    fn names_are_spread_evenly_over_parts() {
        let names: [fn(u32) -> String; 4] = [
            |n| format!("team-7/app-{n:05}"),
            |n| format!("{n}/the-same-name-everywhere"),
            |n| format!("default/web-{n}-5d8f9c7b6d-x2b7q"),
            |n| format!("{n:x}"),
        ];
        for name in names {
            let mut sizes = [0; PARTS];
            (0..64_000).for_each(|n| sizes[part(&name(n))] += 1);
            assert!(
                sizes.iter().all(|size| (500..2000).contains(size)),
                "{}: {sizes:?}",
                name(0)
            );
        }
    }
}
