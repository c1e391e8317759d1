//! The model of a store with indexes: its content and its index functions. The model computes the
//! content of an index from both at each check.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use arbitrary::Arbitrary;
use k8s_informer::Indexer;
use k8s_informer::object::{Key, ResourceVersion};
use k8s_informer::store::{
    AddIndexersError, IndexError, IndexFunc, Indexers, ThreadSafeStore, TransactionError,
};

use super::item::{Failure, Held, Item, NAMES, Refusal};
use super::probe::touch;

/// The index functions.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Index {
    /// Returns any number of values, including duplicates.
    Several,
    /// Returns one value.
    Single,
    /// Returns a different value for each name.
    Name,
    /// Fails or panics on some objects.
    Picky,
}

pub const INDICES: [Index; 4] = [Index::Several, Index::Single, Index::Name, Index::Picky];

impl Index {
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    pub fn values(self, item: &Item) -> Result<Vec<String>, Failure> {
        let value = item.value;
        Ok(match self {
            Self::Several => [value, 1, value]
                .iter()
                .take(usize::from(value))
                .map(u8::to_string)
                .collect(),
            Self::Single => vec![value.to_string()],
            Self::Name => vec![item.name.to_owned()],
            Self::Picky => match item.trouble {
                super::item::Trouble::IndexFails => return Err(Failure::Message),
                super::item::Trouble::IndexPanics => return Err(Failure::Panics),
                _ => vec![value.to_string(), item.name.to_owned()],
            },
        })
    }

    fn function(self) -> IndexFunc<Held> {
        IndexFunc::fallible(move |held: &Held| {
            touch();
            self.values(&held.0).map_err(Failure::trigger)
        })
    }
}

/// The user form of the index functions.
pub fn indexers(indices: &[Index]) -> Indexers<Held> {
    indices.iter().fold(Indexers::new(), |indexers, index| {
        indexers.with(index.name(), index.function())
    })
}

/// The read access to a store.
pub trait Reads {
    fn list(&self) -> Vec<Arc<Held>>;
    fn list_keys(&self) -> Vec<Key>;
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool;
    fn get_by_key(&self, key: &str) -> Option<Arc<Held>>;
    fn index_names(&self) -> Vec<Arc<str>>;
    fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<Held>>, IndexError>;
    fn index(&self, name: &str, object: &Held) -> Result<Vec<Arc<Held>>, IndexError>;
    fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError>;
    fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, IndexError>;
    fn resource_version(&self) -> Option<ResourceVersion>;
}

macro_rules! reads {
    ($store:ident, $get:ident) => {
        impl Reads for $store<Held> {
            fn list(&self) -> Vec<Arc<Held>> {
                self.list()
            }
            fn list_keys(&self) -> Vec<Key> {
                self.list_keys()
            }
            fn len(&self) -> usize {
                self.len()
            }
            fn is_empty(&self) -> bool {
                self.is_empty()
            }
            fn get_by_key(&self, key: &str) -> Option<Arc<Held>> {
                self.$get(key)
            }
            fn index_names(&self) -> Vec<Arc<str>> {
                self.index_names()
            }
            fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<Held>>, IndexError> {
                self.by_index(name, value)
            }
            fn index(&self, name: &str, object: &Held) -> Result<Vec<Arc<Held>>, IndexError> {
                self.index(name, object)
            }
            fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError> {
                self.index_keys(name, value)
            }
            fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, IndexError> {
                self.index_values(name)
            }
            fn resource_version(&self) -> Option<ResourceVersion> {
                self.resource_version()
            }
        }
    };
}

reads!(Indexer, get_by_key);
reads!(ThreadSafeStore, get);

/// A change in a transaction: the key and the new item, or `None` to remove the item.
pub type Put = (&'static str, Option<Item>);

#[derive(Default)]
pub struct Model {
    pub content: BTreeMap<&'static str, Item>,
    pub indices: BTreeSet<Index>,
    pub version: &'static str,
}

impl Model {
    /// Checks that no index function fails for the item (X6).
    fn judge(&self, key: &str, item: &Item) -> Result<(), Refusal> {
        for index in &self.indices {
            index
                .values(item)
                .map_err(|_| Refusal::Index(index.name(), key.to_owned()))?;
        }
        Ok(())
    }

    /// Stores or removes an item, and records the version, if there is one (S2, X9).
    pub fn set(
        &mut self,
        (key, item): Put,
        version: Option<&'static str>,
    ) -> Result<Option<Item>, Refusal> {
        if let Some(item) = &item {
            self.judge(key, item)?;
        }
        self.version = version.unwrap_or(self.version);
        Ok(match item {
            Some(item) => self.content.insert(key, item),
            None => self.content.remove(key),
        })
    }

    /// Replaces everything or nothing. Of duplicate keys the last item is stored (S4, X7).
    pub fn replace(
        &mut self,
        items: &[(&'static str, Item)],
        version: &'static str,
    ) -> Result<(), Refusal> {
        // Of duplicate keys only the last item is indexed.
        let content: BTreeMap<_, _> = items.iter().copied().collect();
        for (key, _) in items {
            self.judge(key, &content[key])?;
        }
        self.content = content;
        self.version = version;
        Ok(())
    }

    /// Applies each change independently. The version is that of the last applied change (S6, X9).
    /// Changes that were already rejected are errors in `changes`.
    pub fn transact(
        &mut self,
        changes: Vec<Result<(Put, Option<&'static str>), Refusal>>,
    ) -> (Vec<usize>, Vec<Refusal>) {
        let before = self.version;
        let (mut made, mut refused, mut last) = (Vec::new(), Vec::new(), None);
        for (position, change) in changes.into_iter().enumerate() {
            match change.and_then(|(put, version)| self.set(put, None).map(|_| version)) {
                Ok(version) => {
                    made.push(position);
                    last = version;
                }
                Err(refusal) => refused.push(refusal),
            }
        }
        self.version = last.unwrap_or(before);
        (made, refused)
    }

    /// Adds all functions or none (X8). If several objects fail, the error may name any of them.
    pub fn add_indexers(&mut self, indices: &[Index], result: &Result<(), AddIndexersError>) {
        let taken: BTreeSet<String> = indices
            .iter()
            .filter(|index| self.indices.contains(index))
            .map(|index| index.name())
            .collect();
        let failing: BTreeSet<(String, &str)> = indices
            .iter()
            .flat_map(|index| {
                let content = self
                    .content
                    .iter()
                    .filter(|(_, item)| index.values(item).is_err());
                content.map(|(key, _)| (index.name(), *key))
            })
            .collect();
        match result {
            Err(AddIndexersError::Conflict { names }) => {
                assert!(
                    !names.is_empty()
                        && names
                            .iter()
                            .map(|name| &**name)
                            .eq(taken.iter().map(|name| &**name))
                );
            }
            Err(AddIndexersError::Function { name, key, error }) => {
                assert!(
                    taken.is_empty() && failing.contains(&(name.to_string(), &**key)),
                    "{name} {key}"
                );
                assert!(
                    ["user failure", "panicked: boom"].contains(&error.to_string().as_str()),
                    "{error}"
                );
            }
            Err(other) => panic!("{other}"),
            Ok(()) => {
                assert!(
                    taken.is_empty() && failing.is_empty(),
                    "{taken:?} {failing:?}"
                );
                self.indices.extend(indices);
            }
        }
    }

    /// Returns the keys that an index has under a value.
    fn filed(&self, index: Index, value: &str) -> Vec<&'static str> {
        let is_filed = |item: &Item| {
            index
                .values(item)
                .unwrap_or_default()
                .iter()
                .any(|one| one == value)
        };
        self.content
            .iter()
            .filter(|(_, item)| is_filed(item))
            .map(|(key, _)| *key)
            .collect()
    }

    /// Compares everything that can be read from `store`.
    pub fn check(&self, store: &impl Reads) {
        let all: Vec<Item> = sorted(self.content.values().copied().collect());
        assert_eq!(held(store.list()), all);
        assert_eq!(store.resource_version(), ResourceVersion::new(self.version));
        assert_eq!(
            (store.len(), store.is_empty()),
            (self.content.len(), self.content.is_empty())
        );
        assert!(
            sorted(texts(&store.list_keys()))
                .iter()
                .eq(self.content.keys())
        );
        for name in NAMES {
            assert_eq!(
                store.get_by_key(name).map(|held| held.0),
                self.content.get(name).copied()
            );
        }
        assert_eq!(store.get_by_key("-"), None);
        let names: Vec<String> = sorted(self.indices.iter().map(|index| index.name()).collect());
        assert_eq!(texts(&store.index_names()), names);
        for index in INDICES {
            self.check_index(store, index);
        }
    }

    fn check_index(&self, store: &impl Reads, index: Index) {
        let name = index.name();
        if !self.indices.contains(&index) {
            let errors = [
                store.index_values(&name).err(),
                store.by_index(&name, "1").err(),
                store.index_keys(&name, "1").err(),
            ];
            assert!(
                errors.iter().all(|error| is_unknown(error.as_ref(), &name)),
                "{errors:?}"
            );
            return;
        }
        let values: BTreeSet<String> = self
            .content
            .values()
            .flat_map(|item| index.values(item).unwrap_or_default())
            .collect();
        let listed = store.index_values(&name).unwrap();
        assert!(
            sorted(texts(&listed)).iter().eq(values.iter()),
            "{name}: {listed:?}, expected {values:?}"
        );
        for value in values.iter().map(String::as_str).chain(["no such value"]) {
            let keys = self.filed(index, value);
            assert_eq!(
                texts(&store.index_keys(&name, value).unwrap()),
                keys,
                "{name} {value}"
            );
            let items = sorted(keys.iter().map(|key| self.content[key]).collect());
            assert_eq!(
                held(store.by_index(&name, value).unwrap()),
                items,
                "{name} {value}"
            );
        }
    }

    /// Compares the objects that share an index value with an item (X10).
    pub fn check_shared(&self, store: &impl Reads, index: Index, item: Item) {
        let found = store.index(&index.name(), &Held(item));
        if !self.indices.contains(&index) {
            let error = found.err();
            assert!(is_unknown(error.as_ref(), &index.name()), "{error:?}");
            return;
        }
        match index.values(&item) {
            Err(_) => {
                assert!(
                    matches!(found, Err(IndexError::Function { name, .. }) if *name == *index.name())
                );
            }
            Ok(values) => {
                let keys: BTreeSet<&str> = values
                    .iter()
                    .flat_map(|value| self.filed(index, value))
                    .collect();
                let items = sorted(keys.iter().map(|key| self.content[key]).collect());
                assert_eq!(held(found.unwrap()), items);
            }
        }
    }
}

/// Compares the result of a transaction with that of the model.
pub fn check_transaction(
    result: Result<(), TransactionError>,
    total: usize,
    (made, refused): (Vec<usize>, Vec<Refusal>),
) {
    match result {
        Ok(()) => assert!(made.len() == total && refused.is_empty(), "{refused:?}"),
        Err(error) => {
            assert_eq!((error.successful, error.total), (made, total));
            assert_eq!(
                error.errors.iter().map(Refusal::of).collect::<Vec<_>>(),
                refused
            );
            assert!(!refused.is_empty());
        }
    }
}

fn held(objects: Vec<Arc<Held>>) -> Vec<Item> {
    sorted(objects.iter().map(|held| held.0).collect())
}

fn texts<T: Deref<Target = str>>(texts: &[T]) -> Vec<&str> {
    texts.iter().map(|text| &**text).collect()
}

fn sorted<E: Ord>(mut elements: Vec<E>) -> Vec<E> {
    elements.sort();
    elements
}

fn is_unknown(error: Option<&IndexError>, index: &str) -> bool {
    matches!(error, Some(IndexError::NoIndex { name }) if &**name == index)
}
