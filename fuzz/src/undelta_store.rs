//! [`UndeltaStore`] compared with its content (S10). Each change pushes the whole content. The push
//! function may write to the store, and may panic.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use arbitrary::Arbitrary;
use k8s_informer::store::{KnownObjects, ReflectorStore, Store, UndeltaStore};

use super::item::{
    Failure, Held, Item, NAMES, Numbering, Refusal, Trouble, accessor, few, name, read, tombstone,
    version_text,
};
use super::probe::{Probe, touch};
use super::store_model::Model;

#[derive(Arbitrary, Clone, Debug)]
enum Op {
    Add(Item),
    Update(Item),
    Delete(Item),
    Tombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
    Replace(
        #[arbitrary(with = few)] Vec<Item>,
        #[arbitrary(with = version_text)] &'static str,
    ),
    Get(Item),
    Bookmark(#[arbitrary(with = version_text)] &'static str),
}

/// Returns the item that the push function writes to the store. The store can reject it.
fn correction(items: &[Item]) -> Option<Item> {
    items.iter().find_map(|item| match item.trouble {
        Trouble::TransformRenames => Some(Item {
            trouble: Trouble::Nothing,
            ..*item
        }),
        Trouble::TransformFails => Some(Item {
            trouble: Trouble::IndexPanics,
            ..*item
        }),
        Trouble::TransformPanics => Some(Item {
            trouble: Trouble::KeyPanics,
            ..*item
        }),
        _ => None,
    })
}

/// Whether the push function panics after it has written the [`correction`].
fn panics(items: &[Item]) -> bool {
    items
        .iter()
        .any(|item| item.trouble == Trouble::IndexPanics)
}

#[derive(Default)]
struct Plain {
    model: Model,
    pushed: Vec<Vec<Item>>,
}

impl Plain {
    fn set(&mut self, item: Item) -> Result<(), Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        // An unreadable version counts as none.
        self.model
            .set((key, Some(item)), item.version().unwrap_or(None))
            .map(drop)
    }

    fn write(&mut self, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Add(item) | Op::Update(item) => self.set(*item)?,
            Op::Delete(item) => {
                let key = item.key().map_err(|_| Refusal::Key)?;
                self.model
                    .set((key, None), item.version().unwrap_or(None))?;
            }
            Op::Tombstone(key, _) => drop(self.model.set((key, None), None)?),
            Op::Replace(items, version) => {
                let keyed: Result<Vec<_>, _> = items
                    .iter()
                    .map(|item| item.key().map(|key| (key, *item)))
                    .collect();
                self.model
                    .replace(&keyed.map_err(|_| Refusal::Key)?, version)?;
            }
            Op::Get(_) => return Ok(()),
            Op::Bookmark(version) => {
                self.model.version = version;
                return Ok(());
            }
        }
        loop {
            let all_items = sorted(self.model.content.values().copied());
            let again = correction(&all_items).is_some_and(|item| self.set(item).is_ok());
            self.pushed.push(all_items);
            if !again {
                return Ok(());
            }
        }
    }
}

fn sorted(items: impl Iterator<Item = Item>) -> Vec<Item> {
    let mut items: Vec<Item> = items.collect();
    items.sort();
    items
}

type Cell = Arc<OnceLock<Weak<UndeltaStore<Held>>>>;

pub fn run(input: &[u8]) {
    let Ok(((), operations)) = read::<(), Op>(input) else {
        return;
    };
    let cell = Cell::default();
    let pushed = Arc::new(Mutex::new(Vec::new()));
    let push = {
        let (cell, pushed) = (Arc::clone(&cell), Arc::clone(&pushed));
        move |objects: Vec<Arc<Held>>| {
            touch();
            let items = sorted(objects.iter().map(|held| held.0));
            pushed.lock().unwrap().push(items.clone());
            if let Some(item) = correction(&items) {
                let _ = cell.get().and_then(Weak::upgrade).unwrap().add(item.held());
            }
            if panics(&items) {
                Failure::Panics.trigger();
            }
        }
    };
    let store = Arc::new(UndeltaStore::new(accessor(), push));
    assert!(cell.set(Arc::downgrade(&store)).is_ok());
    let _probe = Probe::of(&store, |store| drop(store.list_keys()));
    let mut plain = Plain::default();
    let mut numbering = Numbering::default();
    for operation in &operations {
        let operation = match operation.clone() {
            Op::Add(item) => Op::Add(numbering.number(item)),
            Op::Update(item) => Op::Update(numbering.number(item)),
            Op::Replace(items, version) => Op::Replace(numbering.number_all(&items), version),
            other => other,
        };
        let result = match &operation {
            Op::Add(item) => store.add(item.held()),
            Op::Update(item) => store.update(item.held()),
            Op::Delete(item) => store.delete(item.gone()),
            Op::Tombstone(key, item) => store.delete(tombstone(key, *item)),
            Op::Replace(items, version) => {
                store.replace(items.iter().map(|item| item.held()).collect(), version)
            }
            Op::Get(item) => {
                let found = store
                    .get(&Held(*item))
                    .map(|found| found.map(|held| held.0));
                let expected = item.key().map(|key| plain.model.content.get(key).copied());
                assert_eq!(
                    found.map_err(|error| Refusal::of(&error)),
                    expected.map_err(|_| Refusal::Key)
                );
                Ok(())
            }
            Op::Bookmark(version) => {
                store.bookmark(version).unwrap();
                Ok(())
            }
        };
        assert_eq!(
            result.map_err(|error| Refusal::of(&error)),
            plain.write(&operation)
        );
        assert_eq!(
            std::mem::take(&mut *pushed.lock().unwrap()),
            std::mem::take(&mut plain.pushed)
        );
        let content = &plain.model.content;
        assert_eq!(
            sorted(store.list().iter().map(|held| held.0)),
            sorted(content.values().copied())
        );
        let mut keys = store.list_keys();
        keys.sort();
        assert!(
            keys.iter().map(|key| &**key).eq(content.keys().copied()),
            "{keys:?}"
        );
        for name in NAMES {
            assert_eq!(
                store.get_by_key(name).map(|held| held.0),
                content.get(name).copied()
            );
        }
        assert_eq!(
            store.last_store_sync_resource_version(),
            plain.model.version
        );
    }
}
