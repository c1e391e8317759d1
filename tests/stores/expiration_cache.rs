//! `ExpirationCache` through its public API. Ports client-go's expiration_cache_test, and tests
//! what this crate adds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::Deleted;
use k8s_informer::object::{Accessor, Key};
use k8s_informer::store::{
    Change, ExpirationCache, ExpirationCacheOptions, KnownObjects, ReflectorStore, Store,
    StoreError, TimestampedEntry,
};
use k8s_informer::time::Clock;
use k8s_informer_testing::FakeClock;

use super::things::*;

const TTL: Duration = Duration::from_secs(10);
const ONE_NANOSECOND: Duration = Duration::from_nanos(1);

/// Returns an accessor with a resource version, which is empty for the value 0.
fn versioned() -> Accessor<Thing> {
    accessor().with_resource_version(|thing| Some(if thing.1 == 0 { "" } else { "rv" }))
}

fn with_ttl(ttl: Duration) -> (ExpirationCache<Thing>, FakeClock) {
    let clock = FakeClock::new();
    (
        ExpirationCache::with_options(
            versioned(),
            ExpirationCacheOptions::new()
                .ttl(ttl)
                .clock(Arc::new(clock.clone())),
        ),
        clock,
    )
}

fn keys(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort();
    keys
}

fn names(cache: &ExpirationCache<Thing>) -> Vec<Key> {
    keys(cache.list().iter().map(|thing| thing.0.into()).collect())
}

#[test]
fn e1_update_restarts_the_age_of_an_object() {
    let (cache, clock) = with_ttl(TTL);
    cache.add(thing("added", 1)).unwrap();
    cache.add(thing("updated", 1)).unwrap();
    cache.add(thing("added again", 1)).unwrap();
    clock.advance(TTL);
    cache.update(thing("updated", 2)).unwrap();
    cache.add(thing("added again", 2)).unwrap();
    clock.advance(TTL);
    assert_eq!(cache.get_by_key("added").unwrap(), None);
    assert_eq!(
        cache.get_by_key("updated").unwrap(),
        Some(thing("updated", 2))
    );
    assert_eq!(
        cache.get(&thing("added again", 0)).unwrap(),
        Some(thing("added again", 2))
    );
    clock.advance(ONE_NANOSECOND);
    assert!(cache.list().is_empty());
}

#[test]
fn e1_replaced_objects_have_the_same_timestamp() {
    let clock = FakeClock::new();
    let (sender, ages) = mpsc::channel();
    let cache = ExpirationCache::with_options(
        versioned(),
        ExpirationCacheOptions::new()
            .policy(move |entry: &TimestampedEntry<Thing>| {
                sender
                    .send((Key::clone(&entry.key), entry.object.1, entry.timestamp))
                    .unwrap();
                false
            })
            .clock(Arc::new(clock.clone())),
    );
    cache.add(thing("old", 1)).unwrap();
    clock.advance(TTL);
    let now = clock.now();
    cache
        .replace(
            vec![thing("a", 1), thing("b", 1), thing("a", 2)],
            Some(version("7")),
        )
        .unwrap();
    clock.advance(TTL);
    assert_eq!(names(&cache), ["a", "b"]);
    let mut seen: Vec<_> = ages.try_iter().collect();
    seen.sort();
    assert_eq!(
        seen,
        [("a".into(), 2, now), ("b".into(), 1, now)],
        "the last object of a duplicate key counts"
    );
}

#[test]
fn e2_entry_expires_only_after_the_ttl() {
    let (cache, clock) = with_ttl(TTL);
    cache.add(thing("a", 1)).unwrap();
    clock.advance(TTL);
    assert!(cache.get_by_key("a").unwrap().is_some() && cache.list().len() == 1);
    clock.advance(ONE_NANOSECOND);
    assert!(cache.get_by_key("a").unwrap().is_none() && cache.list().is_empty());
}

#[test]
fn e2_nothing_expires_without_a_ttl() {
    let clock = FakeClock::new();
    for options in [
        ExpirationCacheOptions::new(),
        ExpirationCacheOptions::new().ttl(Duration::ZERO),
        ExpirationCacheOptions::new().ttl(Duration::MAX),
        ExpirationCacheOptions::new()
            .policy(|_: &TimestampedEntry<Thing>| true)
            .ttl(Duration::ZERO),
    ] {
        let options = options.clock(Arc::new(clock.clone()));
        let cache = ExpirationCache::with_options(versioned(), options);
        cache.add(thing("a", 1)).unwrap();
        clock.advance(Duration::from_secs(1 << 30));
        assert_eq!(names(&cache), ["a"]);
    }
}

#[test]
fn e3_reads_remove_expired_objects_but_list_keys_does_not() {
    let (cache, clock) = with_ttl(TTL);
    for key in ["a", "b", "c", "d"] {
        cache.add(thing(key, 1)).unwrap();
    }
    clock.advance(TTL);
    cache.add(thing("new", 1)).unwrap();
    clock.advance(ONE_NANOSECOND);
    let left = || keys(cache.list_keys());
    assert_eq!(left(), ["a", "b", "c", "d", "new"]);
    cache.get_by_key("a").unwrap();
    assert_eq!(left(), ["b", "c", "d", "new"]);
    cache.get(&thing("b", 9)).unwrap();
    assert_eq!(left(), ["c", "d", "new"]);
    assert_eq!(names(&cache), ["new"]);
    assert_eq!(left(), ["new"]);
}

/// An object that is written while the old one expires is kept: the cache removes an entry only if
/// it is still the expired one. client-go's `ExpirationCache` protects new objects with a lock
/// instead.
#[test]
fn e3_object_written_during_expiry_is_kept() {
    let cell = Arc::new(OnceLock::<Arc<ExpirationCache<Thing>>>::new());
    let policy = {
        let cell = Arc::clone(&cell);
        move |entry: &TimestampedEntry<Thing>| {
            let expired = entry.object.1 < 3;
            if expired {
                let newer = thing("a", entry.object.1 + 1);
                cell.get().unwrap().add(newer).unwrap();
            }
            expired
        }
    };
    let cache = Arc::new(ExpirationCache::with_options(
        versioned(),
        ExpirationCacheOptions::new().policy(policy),
    ));
    assert!(cell.set(Arc::clone(&cache)).is_ok());
    cache.add(thing("a", 1)).unwrap();
    assert_eq!(cache.get_by_key("a").unwrap(), Some(thing("a", 3)));
    cache.add(thing("a", 2)).unwrap();
    assert_eq!(cache.list(), [thing("a", 3)]);
}

/// Writes, reads and expiry run concurrently. No reader gets an older object than before, and the
/// last write stays.
#[test]
fn e3_concurrent_expiry_keeps_new_objects() {
    let (cache, clock) = with_ttl(TTL);
    thread::scope(|scope| {
        for key in ["a", "b"] {
            let cache = &cache;
            scope.spawn(move || {
                let mut last = 0;
                for _ in 0..3000 {
                    let found = cache.get_by_key(key).unwrap();
                    let listed = cache.list().into_iter().find(|thing| thing.0 == key);
                    for thing in [found, listed].into_iter().flatten() {
                        assert!(thing.1 >= last, "{} after {last}", thing.1);
                        last = thing.1;
                    }
                }
            });
        }
        for value in 1..2000 {
            for key in ["a", "b"] {
                cache.add(thing(key, value)).unwrap();
                assert_eq!(
                    cache.get_by_key(key).unwrap().unwrap().1,
                    value,
                    "the clock has not advanced"
                );
            }
            clock.advance(TTL + ONE_NANOSECOND);
        }
        cache.add(thing("a", 5000)).unwrap();
    });
    assert_eq!(cache.list(), [thing("a", 5000)]);
}

#[test]
fn e4_unread_expired_objects_stay_until_purged() {
    let (cache, clock) = with_ttl(TTL);
    let object = thing("a", 1);
    let weak: Weak<Thing> = Arc::downgrade(&object);
    cache.add(object).unwrap();
    clock.advance(TTL + ONE_NANOSECOND);
    cache.add(thing("b", 1)).unwrap();
    assert!(weak.upgrade().is_some() && cache.list_keys().len() == 2);
    cache.purge();
    assert!(weak.upgrade().is_none());
    assert_eq!(cache.list_keys(), ["b"]);
}

#[test]
fn e5_version_changes_on_replace_bookmark_and_delete_only() {
    let (cache, _clock) = with_ttl(TTL);
    cache.add(thing("a", 1)).unwrap();
    cache.update(thing("a", 2)).unwrap();
    assert_eq!(cache.resource_version(), None);
    cache
        .replace(vec![thing("a", 3)], Some(version("7")))
        .unwrap();
    assert_eq!(cache.resource_version(), Some(version("7")));
    cache.bookmark(Some(version("8"))).unwrap();
    assert_eq!(cache.resource_version(), Some(version("8")));
    let tombstone = Deleted::FinalStateUnknown {
        key: "a".into(),
        last_known: Some(thing("a", 1)),
    };
    cache.delete(tombstone).unwrap();
    assert_eq!(cache.resource_version(), Some(version("8")));
    assert!(cache.list().is_empty());
    cache.delete(Deleted::Final(thing("not there", 1))).unwrap();
    assert_eq!(
        cache.resource_version(),
        Some(version("rv")),
        "the version comes from the deleted object"
    );
    cache.delete(Deleted::Final(thing("not there", 0))).unwrap();
    assert_eq!(cache.resource_version(), None);
}

#[test]
fn expiration_cache_implements_store_without_transactions() {
    let (cache, clock) = with_ttl(TTL);
    let store: Arc<dyn Store<Thing>> = Arc::new(cache);
    store.add(thing("a", 1)).unwrap();
    store.update(thing("a", 2)).unwrap();
    store.resync().unwrap();
    assert_eq!(store.get(&thing("a", 0)).unwrap(), Some(thing("a", 2)));
    assert_eq!(store.lookup("a").unwrap(), Some(thing("a", 2)));
    store.delete(Deleted::Final(thing("a", 0))).unwrap();
    store
        .replace(vec![thing("b", 1)], Some(version("5")))
        .unwrap();
    store.bookmark(Some(version("6"))).unwrap();
    assert_eq!(store.list(), [thing("b", 1)]);
    assert_eq!(store.list_keys(), ["b"]);
    assert_eq!(store.resource_version(), Some(version("6")));
    let error = store
        .transaction(vec![Change::Add(thing("c", 1))])
        .unwrap_err();
    assert_eq!((error.successful.len(), error.total), (0, 1));
    clock.advance(TTL + ONE_NANOSECOND);
    assert!(store.list().is_empty());
}

#[test]
fn keyless_objects_leave_the_cache_unchanged() {
    let (cache, _clock) = with_ttl(TTL);
    cache
        .replace(vec![thing("a", 1)], Some(version("7")))
        .unwrap();
    for key in ["unkeyable", "panic"] {
        let key_error =
            |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Key(_))));
        key_error(cache.add(thing(key, 1)));
        key_error(cache.update(thing(key, 1)));
        key_error(cache.delete(Deleted::Final(thing(key, 1))));
        key_error(cache.replace(vec![thing("b", 1), thing(key, 1)], Some(version("8"))));
        key_error(cache.get(&thing(key, 1)).map(drop));
    }
    assert_eq!(names(&cache), ["a"]);
    assert_eq!(cache.resource_version(), Some(version("7")));
    assert_eq!(cache.get_by_key("").unwrap(), None);
    cache.add(thing("", 4)).unwrap();
    assert_eq!(
        cache.get_by_key("").unwrap(),
        Some(thing("", 4)),
        "an empty key is valid"
    );
    let huge: &'static str = "k".repeat(1 << 20).leak();
    cache.add(thing(huge, 5)).unwrap();
    assert_eq!(cache.get_by_key(huge).unwrap(), Some(thing(huge, 5)));
}

#[test]
fn panicking_policy_loses_no_entry() {
    let panics = Arc::new(AtomicBool::new(true));
    let policy = {
        let panics = Arc::clone(&panics);
        move |entry: &TimestampedEntry<Thing>| match entry.object.1 {
            1 if panics.load(Ordering::Relaxed) => panic!("no idea"),
            value => value == 3,
        }
    };
    let cache =
        ExpirationCache::with_options(versioned(), ExpirationCacheOptions::new().policy(policy));
    cache
        .replace(
            vec![thing("a", 1), thing("b", 2), thing("c", 3)],
            Some(version("7")),
        )
        .unwrap();
    let error = cache.get_by_key("a").unwrap_err().to_string();
    assert_eq!(error, "a: the expiration policy panicked: no idea");
    assert!(cache.get(&thing("a", 0)).is_err());
    assert_eq!(
        names(&cache),
        ["b"],
        "an entry is omitted if the policy panics on it"
    );
    panics.store(false, Ordering::Relaxed);
    assert_eq!(names(&cache), ["a", "b"], "the entry is still in the cache");
}

/// Key functions, policies and destructors use the cache. They would hang if a lock were held.
#[test]
fn user_code_runs_without_the_lock() {
    struct Reentrant(u32, Arc<OnceLock<Arc<ExpirationCache<Self>>>>);
    impl Reentrant {
        fn look(&self) {
            if let Some(cache) = self.1.get() {
                cache.bookmark(Some(version("looked"))).unwrap();
                cache.list_keys();
            }
        }
    }
    impl Drop for Reentrant {
        fn drop(&mut self) {
            self.look();
        }
    }
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let cell = Arc::new(OnceLock::<Arc<ExpirationCache<Reentrant>>>::new());
        let accessor = Accessor::new(|reentrant: &Reentrant| {
            reentrant.look();
            Ok(reentrant.0.to_string().into())
        });
        let policy = |entry: &TimestampedEntry<Reentrant>| {
            entry.object.look();
            entry.object.0 % 2 == 1
        };
        let cache = Arc::new(ExpirationCache::with_options(
            accessor,
            ExpirationCacheOptions::new().policy(policy),
        ));
        assert!(cell.set(Arc::clone(&cache)).is_ok());
        let reentrant = |id| Arc::new(Reentrant(id, Arc::clone(&cell)));
        cache.add(reentrant(1)).unwrap();
        cache.update(reentrant(1)).unwrap();
        assert!(cache.get_by_key("1").unwrap().is_none());
        cache
            .replace(
                vec![reentrant(2), reentrant(3), reentrant(3)],
                Some(version("r")),
            )
            .unwrap();
        assert_eq!(cache.list().len(), 1);
        cache.delete(Deleted::Final(reentrant(2))).unwrap();
        cache.replace(Vec::new(), Some(version("r"))).unwrap();
        done.send(()).unwrap();
    });
    finished
        .recv_timeout(Duration::from_secs(20))
        .expect("a lock is held, or an assertion failed");
}
