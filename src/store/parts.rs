use std::collections::HashMap;
use std::sync::Arc;

/// The number of parts. A map that grows moves all its entries. With a million entries, moving one
/// of 64 parts takes one or two milliseconds.
const PARTS: usize = 64;

/// A map from strings that consists of many small maps, so that no insertion moves a million
/// entries under a lock.
///
/// A fast hash without a secret selects the part. If keys are chosen to share one part, it performs
/// like a single `HashMap`, whose own hash is secret.
pub(super) struct Parts<V> {
    /// `PARTS` maps, which allocate nothing while they are empty.
    parts: Vec<HashMap<Arc<str>, V>>,
}

impl<V> Parts<V> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            parts: (0..PARTS)
                .map(|_| HashMap::with_capacity(capacity / PARTS))
                .collect(),
        }
    }

    pub(super) fn of(&self, key: &str) -> &HashMap<Arc<str>, V> {
        &self.parts[part(key)]
    }

    pub(super) fn of_mut(&mut self, key: &str) -> &mut HashMap<Arc<str>, V> {
        &mut self.parts[part(key)]
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.of(key).get(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = impl Iterator<Item = &Arc<str>>> {
        self.parts.iter().map(HashMap::keys)
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
