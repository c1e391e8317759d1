//! [`MutationCache`] over an indexer with other writers, compared with a list of the mutations (M1
//! to M4).

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::store::{IndexError, MutationCache, StoreError};
use k8s_informer::testing::FakeClock;
use k8s_informer::{Indexer, Object};

use super::item::{
    Failure, Held, Item, NAMES, Numbering, Refusal, Trouble, few, name, read, tombstone,
};
use super::probe::{Probe, TouchyClock, touch};
use super::store_model::{self, Index, indexers};

#[derive(Arbitrary, Debug)]
struct Options {
    indexer: bool,
    #[arbitrary(with = few)]
    indices: Vec<Index>,
    include_adds: bool,
    #[arbitrary(with = one_to_four)]
    ttl: u64,
    #[arbitrary(with = one_to_four)]
    max_size: u64,
}

#[derive(Arbitrary, Debug)]
enum Op {
    /// The store receives or loses an object.
    Put(Item),
    Remove(#[arbitrary(with = name)] &'static str),
    Mutation(Item),
    OnAddOrUpdate(Item),
    OnDelete(Item),
    OnTombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
    GetByKey(#[arbitrary(with = name)] &'static str),
    ByIndex(Index, Item),
    Advance(#[arbitrary(with = one_to_four)] u64),
}

fn one_to_four(bytes: &mut Unstructured) -> arbitrary::Result<u64> {
    bytes.int_in_range(1..=4)
}

/// Returns the UID of an object.
fn uid(item: &Item) -> Result<&'static str, Failure> {
    match item.trouble {
        Trouble::TransformPanics => Err(Failure::Panics),
        _ => Ok(["x", "y"][usize::from(item.value % 2)]),
    }
}

/// Returns the resource version of an object. It need not be a number.
fn version_of(item: &Item) -> Result<Option<&'static str>, Failure> {
    match item.trouble {
        Trouble::TransformFails => Ok(Some("+7")),
        Trouble::TransformRenames => Ok(Some("18446744073709551616")),
        Trouble::TransformUnkeys => Ok(Some("18446744073709551615")),
        _ => item.version(),
    }
}

/// Returns the version as a number (M1).
fn number(item: &Item) -> Option<u64> {
    match version_of(item).unwrap_or(None)? {
        "" => Some(0),
        "7" => Some(7),
        "8" => Some(8),
        "9" => Some(9),
        "10" => Some(10),
        "18446744073709551615" => Some(u64::MAX),
        _ => None,
    }
}

impl Object for Held {
    fn name(&self) -> &str {
        self.0.name
    }

    fn namespace(&self) -> &str {
        ""
    }

    fn uid(&self) -> &str {
        touch();
        uid(&self.0).unwrap_or_else(Failure::trigger)
    }

    fn resource_version(&self) -> &str {
        self.0.version
    }

    fn label(&self, _key: &str) -> Option<&str> {
        None
    }
}

fn accessor() -> Accessor<Held> {
    let key = |held: &Held| {
        touch();
        held.0
            .key()
            .map(Into::into)
            .map_err(|failure| KeyError::new(failure.trigger()))
    };
    Accessor::new(key).with_resource_version(|held: &Held| {
        touch();
        version_of(&held.0).unwrap_or_else(|failure| Some(failure.trigger()))
    })
}

fn refusal(error: &StoreError) -> Refusal {
    match error {
        StoreError::ResourceVersion { .. } => Refusal::Other,
        error => Refusal::of(error),
    }
}

/// The remembered state of a key: an object, or its deletion.
#[derive(Clone, Copy)]
struct Entry {
    key: &'static str,
    version: u64,
    uid: &'static str,
    item: Option<Item>,
    since: u64,
}

struct Model {
    options: Options,
    store: store_model::Model,
    now: u64,
    /// The entries, least recently used first.
    entries: Vec<Entry>,
}

impl Model {
    fn read(&self, key: &'static str, item: Item, kept: Option<Item>) -> Result<Entry, Refusal> {
        let version = number(&item).ok_or(Refusal::Other)?;
        let uid = uid(&item).map_err(|_| Refusal::Other)?;
        Ok(Entry {
            key,
            version,
            uid,
            item: kept,
            since: self.now,
        })
    }

    fn is_alive(&self, entry: &Entry) -> bool {
        self.now - entry.since <= self.options.ttl
    }

    /// Removes the entry of a key. Put it back with [`touched`](Self::touched).
    fn take(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at)).filter(|entry| self.is_alive(entry))
    }

    fn touched(&mut self, entry: Entry) {
        if self.entries.len() as u64 == self.options.max_size {
            self.entries.remove(0);
        }
        self.entries.push(entry);
    }

    fn mutation(&mut self, item: Item) -> Result<(), Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        let new = self.read(key, item, Some(item))?;
        let old = self.take(key).filter(|old| {
            let gone = old.item.is_none() && (old.version == new.version || old.uid == new.uid);
            old.version > new.version || gone
        });
        self.touched(old.unwrap_or(new));
        Ok(())
    }

    fn on_add_or_update(&mut self, item: Item) -> Result<(), Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        let version = number(&item).ok_or(Refusal::Other)?;
        if let Some(old) = self.take(key).filter(|old| old.version > version) {
            self.touched(old);
        }
        Ok(())
    }

    fn on_delete(&mut self, key: Result<&'static str, Failure>, item: Item) -> Result<(), Refusal> {
        let key = key.map_err(|_| Refusal::Key)?;
        let new = self.read(key, item, None)?;
        let old = self
            .take(key)
            .filter(|old| old.version > new.version && old.uid != new.uid);
        self.touched(old.unwrap_or(new));
        Ok(())
    }

    /// Whether the store has caught up with an entry. An object whose version is not a number
    /// supersedes every entry.
    fn supersedes(stored: &Item, entry: &Entry) -> bool {
        number(stored).is_none_or(|version| version >= entry.version)
    }

    fn get_by_key(&mut self, key: &str) -> Option<Item> {
        let stored = self.store.content.get(key).copied();
        let place = self.entries.iter().position(|entry| entry.key == key);
        let Some(entry) = self.take(key) else {
            return stored;
        };
        match stored {
            Some(stored) if Self::supersedes(&stored, &entry) => Some(stored),
            None if !self.options.include_adds => {
                // This lookup does not count as a use of the entry.
                self.entries.insert(place.unwrap(), entry);
                None
            }
            _ => {
                self.touched(entry);
                entry.item
            }
        }
    }

    fn by_index(&mut self, index: Index, value: &str) -> Result<Vec<Item>, IndexError> {
        if !self.options.indexer {
            return Err(IndexError::NoIndexer);
        }
        if !self.store.indices.contains(&index) {
            return Err(IndexError::NoIndex {
                name: index.name().into(),
            });
        }
        let has = |item: &Item| {
            index
                .values(item)
                .map(|values| values.iter().any(|one| one == value))
        };
        let mut found = Vec::new();
        for entry in &self.entries {
            // Skip the objects that the store has under this value: the loop below handles them.
            if self.is_alive(entry) && self.options.include_adds {
                let stored = self.store.content.get(entry.key);
                let newer = entry.item.filter(|item| {
                    let caught_up = stored.is_some_and(|stored| Self::supersedes(stored, entry));
                    let filed = stored.is_some_and(|stored| has(stored) == Ok(true));
                    !caught_up && !filed && has(item) == Ok(true)
                });
                found.extend(newer);
            }
        }
        for (key, stored) in self.store.content.clone() {
            if has(&stored) != Ok(true) {
                continue;
            }
            // An expired entry stays: `take` would remove it.
            let alive = self
                .entries
                .iter()
                .any(|entry| entry.key == key && self.is_alive(entry));
            match alive.then(|| self.take(key)).flatten() {
                Some(entry) if !Self::supersedes(&stored, &entry) => {
                    self.touched(entry);
                    let newer = entry.item.map(|item| (item, has(&item)));
                    found.extend(match newer {
                        Some((item, Ok(true))) => Some(item),
                        Some((_, Err(_))) => Some(stored),
                        _ => None,
                    });
                }
                _ => found.push(stored),
            }
        }
        Ok(found)
    }
}

fn sorted(mut items: Vec<Item>) -> Vec<Item> {
    items.sort();
    items
}

pub fn run(input: &[u8]) {
    let Ok((options, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let indexer = Arc::new(Indexer::new(accessor(), indexers(&options.indices)));
    let clock = TouchyClock(FakeClock::new());
    let mut builder = MutationCache::builder(accessor(), Arc::clone(&indexer) as _)
        .clock(Arc::new(clock.clone()))
        .include_adds(options.include_adds)
        .ttl(Duration::from_nanos(options.ttl))
        .max_size(usize::try_from(options.max_size).unwrap());
    if options.indexer {
        builder = builder.indexer(Arc::clone(&indexer));
    }
    let cache = Arc::new(builder.build());
    let _probe = Probe::of(&cache, |cache| drop(format!("{cache:?}")));
    let indices = options.indices.iter().copied().collect();
    let store = store_model::Model {
        indices,
        ..store_model::Model::default()
    };
    let mut model = Model {
        options,
        store,
        now: 0,
        entries: Vec::new(),
    };
    let mut numbering = Numbering::default();
    for operation in &operations {
        let (result, expected) = match operation {
            Op::Put(item) => {
                let item = numbering.number(*item);
                let expected = item.key().map_err(|_| Refusal::Key);
                let expected = expected
                    .and_then(|key| model.store.set((key, Some(item)), None))
                    .map(drop);
                (indexer.add(item.held()).map(drop), expected)
            }
            Op::Remove(key) => (
                indexer.delete(tombstone(key, None)),
                model.store.set((key, None), None).map(drop),
            ),
            Op::Mutation(item) => {
                let item = numbering.number(*item);
                (cache.mutation(item.held()), model.mutation(item))
            }
            Op::OnAddOrUpdate(item) => (
                cache.on_add_or_update(&Held(*item)),
                model.on_add_or_update(*item),
            ),
            Op::OnDelete(item) => (
                cache.on_delete(&item.gone()),
                model.on_delete(item.key(), *item),
            ),
            Op::OnTombstone(key, item) => {
                let expected = item.map_or(Ok(()), |item| model.on_delete(Ok(key), item));
                (cache.on_delete(&tombstone(key, *item)), expected)
            }
            Op::GetByKey(key) => {
                let found = cache.get_by_key(key).map(|found| found.map(|held| held.0));
                (
                    found.map(|found| assert_eq!(found, model.get_by_key(key))),
                    Ok(()),
                )
            }
            Op::ByIndex(index, item) => {
                let values = index.values(item).unwrap_or_default();
                let value = values.first().map_or("no such value", String::as_str);
                let found = cache.by_index(&index.name(), value);
                let found = found.map(|found| sorted(found.iter().map(|held| held.0).collect()));
                assert_eq!(found, model.by_index(*index, value).map(sorted));
                (Ok(()), Ok(()))
            }
            Op::Advance(by) => {
                model.now += by;
                clock.0.advance(Duration::from_nanos(*by));
                (Ok(()), Ok(()))
            }
        };
        assert_eq!(result.map_err(|error| refusal(&error)), expected);
        // Read the number of entries from the debug output, because a read of an entry would count
        // as a use.
        let debug = format!("{cache:?}");
        assert!(
            debug.contains(&format!("mutations: {},", model.entries.len())),
            "{debug}"
        );
    }
    for name in NAMES {
        let found = cache.get_by_key(name).unwrap().map(|held| held.0);
        assert_eq!(found, model.get_by_key(name));
    }
}
