//! Interleaving tests of expiry during reads and writes of the same key.

use std::sync::Arc;

use super::{Item, accessor, item};
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{any, check, join_all, thread};
use crate::resource_version::ResourceVersion;
use crate::store::{
    ExpirationCache, ExpirationCacheOptions, ReflectorStore, Store, TimestampedEntry,
};

/// A cache in which objects with a version below `oldest` have expired.
struct AgingCache {
    cache: ExpirationCache<Item>,
    oldest: Arc<AtomicUsize>,
}

impl AgingCache {
    fn new() -> Arc<Self> {
        let oldest = Arc::new(AtomicUsize::new(0));
        let policy = {
            let oldest = Arc::clone(&oldest);
            move |entry: &TimestampedEntry<Item>| {
                entry.object.version < oldest.load(Ordering::SeqCst)
            }
        };
        Arc::new(Self {
            cache: ExpirationCache::with_options(
                accessor(),
                ExpirationCacheOptions::new().policy(policy),
            ),
            oldest,
        })
    }

    fn expire_below(&self, version: usize) {
        self.oldest.store(version, Ordering::SeqCst);
    }

    fn write(&self, version: usize) {
        match any(3) {
            0 => self
                .cache
                .replace(
                    vec![item(0, version), item(1, version)],
                    ResourceVersion::new("1"),
                )
                .unwrap(),
            1 => self.cache.update(item(0, version)).unwrap(),
            _ => self.cache.add(item(0, version)).unwrap(),
        }
    }

    /// Reads key 0 by a random method, and checks that the object had not expired when the read
    /// began.
    fn read(&self) -> Option<Arc<Item>> {
        let oldest = self.oldest.load(Ordering::SeqCst);
        let found = match any(3) {
            0 => self.cache.get(&Item { key: 0, version: 0 }).unwrap(),
            1 => self.cache.get_by_key("0").unwrap(),
            _ => self.cache.list().into_iter().find(|item| item.key == 0),
        };
        assert!(
            found.as_ref().is_none_or(|item| item.version >= oldest),
            "{found:?} had expired"
        );
        found
    }
}

/// A key that is rewritten before it expires is found by every read, even if other readers find the
/// older object expired.
#[test]
fn e3_object_renewed_in_time_is_always_found() {
    check(|| {
        let aging = AgingCache::new();
        aging.write(0);
        let readers = [(); 2].map(|()| {
            let aging = Arc::clone(&aging);
            thread::spawn(move || {
                let mut newest = 0;
                for _ in 0..3 {
                    let found = aging.read().expect("the object never expires");
                    assert!(found.version >= newest, "{found:?} after {newest}");
                    newest = found.version;
                }
            })
        });
        for version in 1..=2 {
            aging.write(version);
            aging.expire_below(version);
        }
        join_all(readers);
        assert_eq!(aging.read(), Some(item(0, 2)));
    });
}

/// A written object is found even if another reader finds the older object expired. An object that
/// has expired before it is written is never found.
#[test]
fn e3_object_written_after_expiry_stays() {
    check(|| {
        let aging = AgingCache::new();
        aging.write(0);
        let readers = [(); 2].map(|()| {
            let aging = Arc::clone(&aging);
            thread::spawn(move || {
                for _ in 0..2 {
                    aging.read();
                    if any(2) == 0 {
                        aging.cache.purge();
                    }
                }
            })
        });
        for version in [2, 4] {
            aging.expire_below(version);
            if any(2) == 0 {
                aging.write(version - 1);
            }
            aging.write(version);
            assert_eq!(aging.read(), Some(item(0, version)));
        }
        join_all(readers);
        assert_eq!(aging.read(), Some(item(0, 4)));
    });
}
