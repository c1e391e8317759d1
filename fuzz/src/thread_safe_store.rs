//! [`ThreadSafeStore`] compared with its [`Model`] (X1 to X12). The caller supplies the keys.

use std::sync::Arc;

use arbitrary::{Arbitrary, Result as Read, Unstructured};
use k8s_informer::object::{Key, ResourceVersion};
use k8s_informer::store::{Change, ThreadSafeStore};

use super::item::{Item, Numbering, Refusal, few, name, read, tombstone, version, version_text};
use super::probe::Probe;
use super::store_model::{Index, Model, check_transaction, indexers};

#[derive(Arbitrary, Debug)]
struct Options {
    #[arbitrary(with = few)]
    indices: Vec<Index>,
    reads_versions: bool,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Put(Put),
    Forget(#[arbitrary(with = name)] &'static str),
    Replace(
        #[arbitrary(with = keyed)] Vec<(&'static str, Item)>,
        #[arbitrary(with = version_text)] &'static str,
    ),
    Transaction(#[arbitrary(with = few)] Vec<Put>),
    AddIndexers(#[arbitrary(with = few)] Vec<Index>),
    Shared(Index, Item),
    Bookmark(#[arbitrary(with = version_text)] &'static str),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Put {
    #[arbitrary(with = name)]
    key: &'static str,
    item: Item,
    kind: Kind,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    Add,
    Update,
    Delete,
    Tombstone,
}

fn keyed(bytes: &mut Unstructured) -> Read<Vec<(&'static str, Item)>> {
    Ok(few::<Put>(bytes)?
        .into_iter()
        .map(|put| (put.key, put.item))
        .collect())
}

impl Put {
    fn change(self) -> (Key, Change<super::item::Held>) {
        let change = match self.kind {
            Kind::Add => Change::Add(self.item.held()),
            Kind::Update => Change::Update(self.item.held()),
            Kind::Delete => Change::Delete(self.item.gone()),
            Kind::Tombstone => Change::Delete(tombstone(self.key, Some(self.item))),
        };
        (self.key.into(), change)
    }

    /// Converts the change for the model.
    fn plain(
        self,
        reads_versions: bool,
    ) -> Result<(super::store_model::Put, Option<&'static str>), Refusal> {
        let item = match self.kind {
            Kind::Add | Kind::Update => Some(self.item),
            Kind::Delete | Kind::Tombstone => None,
        };
        let version = match self.kind {
            Kind::Tombstone => None,
            _ if !reads_versions => None,
            _ => self.item.version().map_err(|_| Refusal::Other)?,
        };
        Ok(((self.key, item), version))
    }
}

pub fn run(input: &[u8]) {
    let Ok((options, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let mut store = ThreadSafeStore::new(indexers(&options.indices));
    if options.reads_versions {
        store = store.with_resource_version(version);
    }
    let store = Arc::new(store);
    let mut model = Model {
        indices: options.indices.iter().copied().collect(),
        ..Model::default()
    };
    let mut numbering = Numbering::default();
    let _probe = Probe::of(&store, |store| store.delete("-"));
    for operation in &operations {
        match operation {
            Op::Put(put) => {
                let put = Put {
                    item: numbering.number(put.item),
                    ..*put
                };
                let expected = put
                    .plain(options.reads_versions)
                    .and_then(|(put, version)| model.set(put, version));
                let result = match put.change() {
                    (key, Change::Add(object)) => store.add(key, object),
                    (key, Change::Update(object)) => store.update(key, object),
                    (key, Change::Delete(gone)) => {
                        let before = store.get(&key);
                        store.delete_with_object(&key, &gone).map(|()| before)
                    }
                    (_, Change::Bookmark(_)) => unreachable!("writes contain no bookmarks"),
                };
                let result = result
                    .map(|held| held.map(|held| held.0))
                    .map_err(|error| Refusal::of(&error));
                assert_eq!(result, expected);
            }
            Op::Forget(key) => {
                store.delete(key);
                model.content.remove(key);
            }
            Op::Replace(items, version) => {
                let items: Vec<_> = items
                    .iter()
                    .map(|(key, item)| (*key, numbering.number(*item)))
                    .collect();
                let objects = items
                    .iter()
                    .map(|(key, item)| ((*key).into(), item.held()))
                    .collect();
                let result = store
                    .replace(objects, ResourceVersion::new(version))
                    .map_err(|error| Refusal::of(&error));
                assert_eq!(result, model.replace(&items, version));
            }
            Op::Transaction(puts) => {
                let puts: Vec<Put> = puts
                    .iter()
                    .map(|put| Put {
                        item: numbering.number(put.item),
                        ..*put
                    })
                    .collect();
                let result = store.transaction(puts.iter().map(|put| put.change()).collect());
                let expected = model.transact(
                    puts.iter()
                        .map(|put| put.plain(options.reads_versions))
                        .collect(),
                );
                check_transaction(result, puts.len(), expected);
            }
            Op::AddIndexers(indices) => {
                model.add_indexers(indices, &store.add_indexers(indexers(indices)));
            }
            Op::Shared(index, item) => model.check_shared(&*store, *index, *item),
            Op::Bookmark(version) => {
                store.bookmark(ResourceVersion::new(version));
                model.version = version;
            }
        }
        model.check(&*store);
    }
}
