//! [`Indexer`] compared with the [`Model`] of a store, plus keys and transforms (S1 to S6).

use std::sync::Arc;

use arbitrary::Arbitrary;
use k8s_informer::object::ResourceVersion;
use k8s_informer::store::{Change, ReflectorStore};
use k8s_informer::{Deleted, Indexer};

use super::item::{
    Held, Item, Numbering, Refusal, accessor, few, name, read, tombstone, transform, version_text,
};
use super::probe::Probe;
use super::store_model::{Index, Model, Put, check_transaction, indexers};

#[derive(Arbitrary, Debug)]
struct Options {
    #[arbitrary(with = few)]
    indices: Vec<Index>,
    transform: bool,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Write(Write),
    Replace(
        #[arbitrary(with = few)] Vec<Item>,
        #[arbitrary(with = version_text)] &'static str,
    ),
    Transaction(#[arbitrary(with = few)] Vec<Write>),
    AddIndexers(#[arbitrary(with = few)] Vec<Index>),
    Get(Item),
    Shared(Index, Item),
    Bookmark(#[arbitrary(with = version_text)] &'static str),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Write {
    Add(Item),
    Update(Item),
    Delete(Item),
    Tombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
}

impl Write {
    fn numbered(self, numbering: &mut Numbering) -> Self {
        match self {
            Self::Add(item) => Self::Add(numbering.number(item)),
            Self::Update(item) => Self::Update(numbering.number(item)),
            Self::Delete(item) => Self::Delete(numbering.number(item)),
            Self::Tombstone(key, item) => {
                Self::Tombstone(key, item.map(|item| numbering.number(item)))
            }
        }
    }

    fn change(self) -> Change<Held> {
        match self {
            Self::Add(item) => Change::Add(item.held()),
            Self::Update(item) => Change::Update(item.held()),
            Self::Delete(item) => Change::Delete(item.gone()),
            Self::Tombstone(key, item) => Change::Delete(tombstone(key, item)),
        }
    }
}

struct Plain {
    model: Model,
    transform: bool,
}

impl Plain {
    /// Computes the key before the transform (S1).
    fn prepare(&self, item: Item) -> Result<(&'static str, Item), Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        let item = if self.transform {
            item.transform()
        } else {
            Ok(item)
        };
        item.map(|item| (key, item))
            .map_err(|_| Refusal::Transform(key.to_owned()))
    }

    /// Converts a write for the underlying store. A deletion has the version of its object; a
    /// tombstone has none (S3).
    fn plain(&self, write: Write) -> Result<(Put, Option<&'static str>), Refusal> {
        // An unreadable version counts as none.
        let version = |item: &Item| item.version().unwrap_or(None);
        match write {
            Write::Add(item) | Write::Update(item) => self
                .prepare(item)
                .map(|(key, item)| ((key, Some(item)), version(&item))),
            Write::Delete(item) => item
                .key()
                .map(|key| ((key, None), version(&item)))
                .map_err(|_| Refusal::Key),
            Write::Tombstone(key, _) => Ok(((key, None), None)),
        }
    }
}

pub fn run(input: &[u8]) {
    let Ok((options, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let mut store = Indexer::new(accessor(), indexers(&options.indices));
    if options.transform {
        store = store.with_transform(transform());
    }
    let store = Arc::new(store);
    let model = Model {
        indices: options.indices.iter().copied().collect(),
        ..Model::default()
    };
    let mut plain = Plain {
        model,
        transform: options.transform,
    };
    let mut numbering = Numbering::default();
    let delete_missing = |store: &Indexer<Held>| {
        let missing = Deleted::FinalStateUnknown {
            key: "-".into(),
            last_known: None,
        };
        assert!(store.delete(missing).is_ok());
    };
    let _probe = Probe::of(&store, delete_missing);
    for operation in &operations {
        match operation {
            Op::Write(write) => {
                let write = write.numbered(&mut numbering);
                let expected = plain
                    .plain(write)
                    .and_then(|(put, version)| plain.model.set(put, version));
                let result = match write.change() {
                    Change::Add(object) => store.add(object),
                    Change::Update(object) => store.update(object),
                    Change::Delete(gone) => store.delete(gone),
                    Change::Bookmark(_) => unreachable!("writes contain no bookmarks"),
                };
                let result = result.map_err(|error| Refusal::of(&error));
                assert_eq!(result, expected.map(drop));
            }
            Op::Replace(items, version) => {
                let items = numbering.number_all(items);
                let result = store.replace(
                    items.iter().map(|item| item.held()).collect(),
                    ResourceVersion::new(version),
                );
                let prepared: Result<Vec<_>, _> =
                    items.iter().map(|item| plain.prepare(*item)).collect();
                let expected = prepared.and_then(|items| plain.model.replace(&items, version));
                assert_eq!(result.map_err(|error| Refusal::of(&error)), expected);
            }
            Op::Transaction(writes) => {
                let writes: Vec<Write> = writes
                    .iter()
                    .map(|write| write.numbered(&mut numbering))
                    .collect();
                let result = store.transaction(writes.iter().map(|write| write.change()).collect());
                let expected = writes.iter().map(|write| plain.plain(*write)).collect();
                check_transaction(result, writes.len(), plain.model.transact(expected));
            }
            Op::AddIndexers(indices) => {
                plain
                    .model
                    .add_indexers(indices, &store.add_indexers(indexers(indices)));
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
            }
            Op::Shared(index, item) => plain.model.check_shared(&*store, *index, *item),
            Op::Bookmark(version) => {
                store.bookmark(ResourceVersion::new(version)).unwrap();
                plain.model.version = version;
            }
        }
        plain.model.check(&*store);
    }
}
