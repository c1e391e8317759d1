//! [`ExpirationCache`] compared with objects and their write times (E1 to E5): with expiration by
//! age, and with a policy that fails, decides by object, and writes to the cache.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::object::ResourceVersion;
use k8s_informer::store::{
    ExpirationCache, ExpirationCacheOptions, KnownObjects, ReflectorStore, Store, TimestampedEntry,
};
use k8s_informer::time::Clock;
use k8s_informer_testing::FakeClock;

use super::item::{
    Failure, Held, Item, NAMES, Numbering, Refusal, Trouble, accessor, few, name, read, tombstone,
    version_text,
};
use super::probe::{Probe, TouchyClock, touch};

#[derive(Arbitrary, Debug)]
struct Options {
    #[arbitrary(with = durations)]
    ttl: u64,
    /// Whether a custom policy decides. Otherwise only the age decides.
    policy: bool,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Add(Item),
    Update(Item),
    Delete(Item),
    Tombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
    Replace(
        #[arbitrary(with = few)] Vec<Item>,
        #[arbitrary(with = version_text)] &'static str,
    ),
    Advance(#[arbitrary(with = durations)] u64),
    Get(Item),
    GetByKey(#[arbitrary(with = name)] &'static str),
    List,
    Purge,
    Bookmark(#[arbitrary(with = version_text)] &'static str),
}

fn durations(bytes: &mut Unstructured) -> arbitrary::Result<u64> {
    bytes.int_in_range(0..=3)
}

/// The decision of the policy for an object.
enum Verdict {
    ByAge,
    Expired,
    Panics,
    /// Expired, after the policy has written another object under the same key.
    Rewritten(Item),
}

fn judge(item: Item) -> Verdict {
    match item.trouble {
        Trouble::IndexFails => Verdict::Expired,
        Trouble::IndexPanics => Verdict::Panics,
        Trouble::TransformRenames => Verdict::Rewritten(Item {
            trouble: Trouble::Nothing,
            ..item
        }),
        Trouble::TransformFails => Verdict::Rewritten(Item {
            trouble: Trouble::IndexPanics,
            ..item
        }),
        _ => Verdict::ByAge,
    }
}

type Cell = Arc<OnceLock<Weak<ExpirationCache<Held>>>>;

/// The user form of [`judge`].
fn policy(
    ttl: Duration,
    clock: TouchyClock,
    cell: Cell,
) -> impl Fn(&TimestampedEntry<Held>) -> bool {
    move |entry: &TimestampedEntry<Held>| {
        touch();
        match judge(entry.object.0) {
            Verdict::ByAge => {
                !ttl.is_zero() && clock.now().saturating_duration_since(entry.timestamp) > ttl
            }
            Verdict::Expired => true,
            Verdict::Panics => Failure::Panics.trigger().is_empty(),
            Verdict::Rewritten(item) => {
                let cache = cell.get().and_then(Weak::upgrade).unwrap();
                cache.add(item.held()).unwrap();
                true
            }
        }
    }
}

struct Model {
    options: Options,
    now: u64,
    content: BTreeMap<&'static str, (Item, u64)>,
    version: &'static str,
}

impl Model {
    fn add(&mut self, item: Item) -> Result<(), Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        self.content.insert(key, (item, self.now));
        Ok(())
    }

    /// Returns an object. An expired object is removed (E2, E3).
    fn get(&mut self, key: &str) -> Result<Option<Item>, Refusal> {
        let Some((item, since)) = self.content.get(key).copied() else {
            return Ok(None);
        };
        let by_age = self.options.ttl > 0 && self.now - since > self.options.ttl;
        let expired = match judge(item) {
            Verdict::Expired if self.options.policy => true,
            Verdict::Panics if self.options.policy => return Err(Refusal::Other),
            Verdict::Rewritten(newer) if self.options.policy => {
                self.add(newer)?;
                return self.get(key);
            }
            _ => by_age,
        };
        if expired {
            self.content.remove(key);
        }
        Ok((!expired).then_some(item))
    }

    /// Lists the objects. Objects on which the policy panics are omitted.
    fn list(&mut self) -> Vec<Item> {
        let keys: Vec<&str> = self.content.keys().copied().collect();
        keys.into_iter()
            .filter_map(|key| self.get(key).unwrap_or(None))
            .collect()
    }
}

fn sorted(objects: Vec<Arc<Held>>) -> Vec<Item> {
    let mut items: Vec<Item> = objects.iter().map(|held| held.0).collect();
    items.sort();
    items
}

pub fn run(input: &[u8]) {
    let Ok((options, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let clock = TouchyClock(FakeClock::new());
    let ttl = Duration::from_nanos(options.ttl);
    let cell = Cell::default();
    let cache_options = ExpirationCacheOptions::new().clock(Arc::new(clock.clone()));
    let cache_options = match options.policy {
        true => cache_options.policy(policy(ttl, clock.clone(), Arc::clone(&cell))),
        false => cache_options.ttl(ttl),
    };
    let cache = Arc::new(ExpirationCache::with_options(accessor(), cache_options));
    assert!(cell.set(Arc::downgrade(&cache)).is_ok());
    let _probe = Probe::of(&cache, |cache| {
        assert!(cache.delete(tombstone("-", None)).is_ok());
    });
    let mut model = Model {
        options,
        now: 0,
        content: BTreeMap::new(),
        version: "",
    };
    let mut numbering = Numbering::default();
    for operation in &operations {
        match operation {
            Op::Add(item) | Op::Update(item) => {
                let item = numbering.number(*item);
                let is_add = matches!(operation, Op::Add(_));
                let result = if is_add {
                    cache.add(item.held())
                } else {
                    cache.update(item.held())
                };
                assert_eq!(result.map_err(|error| Refusal::of(&error)), model.add(item));
            }
            Op::Delete(item) => {
                let expected = item.key().map_err(|_| Refusal::Key).map(|key| {
                    model.content.remove(key);
                    // A deletion sets the version (E5).
                    model.version = item.version().unwrap_or(None).unwrap_or(model.version);
                });
                let result = cache.delete(item.gone());
                assert_eq!(result.map_err(|error| Refusal::of(&error)), expected);
            }
            Op::Tombstone(key, item) => {
                model.content.remove(key);
                assert!(cache.delete(tombstone(key, *item)).is_ok());
            }
            Op::Replace(items, version) => {
                let items = numbering.number_all(items);
                let result = cache.replace(
                    items.iter().map(|item| item.held()).collect(),
                    ResourceVersion::new(version),
                );
                let keyed: Result<Vec<_>, _> = items
                    .iter()
                    .map(|item| item.key().map(|key| (key, (*item, model.now))))
                    .collect();
                let expected = keyed.map_err(|_| Refusal::Key).map(|keyed| {
                    model.content = keyed.into_iter().collect();
                    model.version = version;
                });
                assert_eq!(result.map_err(|error| Refusal::of(&error)), expected);
            }
            Op::Advance(by) => {
                model.now += by;
                clock.0.advance(Duration::from_nanos(*by));
            }
            Op::Get(item) => {
                let found = cache
                    .get(&Held(*item))
                    .map(|found| found.map(|held| held.0));
                let expected = item
                    .key()
                    .map_err(|_| Refusal::Key)
                    .and_then(|key| model.get(key));
                assert_eq!(found.map_err(|error| Refusal::of(&error)), expected);
            }
            Op::GetByKey(key) => {
                let found = cache.get_by_key(key).map(|found| found.map(|held| held.0));
                assert_eq!(found.map_err(|error| Refusal::of(&error)), model.get(key));
            }
            Op::List => {
                let mut expected = model.list();
                expected.sort();
                assert_eq!(sorted(cache.list()), expected);
            }
            Op::Purge => {
                cache.purge();
                model.list();
            }
            Op::Bookmark(version) => {
                cache.bookmark(ResourceVersion::new(version)).unwrap();
                model.version = version;
            }
        }
        let mut keys = cache.list_keys();
        keys.sort();
        assert!(
            keys.iter()
                .map(|key| &**key)
                .eq(model.content.keys().copied()),
            "{keys:?}"
        );
        assert_eq!(
            cache.resource_version(),
            ResourceVersion::new(model.version)
        );
    }
    for name in NAMES {
        let found = cache.get_by_key(name).map(|found| found.map(|held| held.0));
        assert_eq!(found.map_err(|error| Refusal::of(&error)), model.get(name));
    }
}
