//! [`Fifo`] compared with slots and newest objects (F1 to F8): a deleted key keeps its slot. Consumers
//! write to the queue, fail, panic and request their object again.

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use k8s_informer::object::ResourceVersion;
use k8s_informer::queue::{Fifo, PopError};
use k8s_informer::store::ReflectorStore;

use super::item::{Held, Item, Numbering, Refusal, accessor, few, name, read, tombstone};
use super::probe::Probe;
use super::processing::{End, expected_origin};

#[derive(Arbitrary, Debug)]
enum Op {
    Write(Write),
    Pop(#[arbitrary(with = few)] Vec<Write>, End),
    Close,
}

#[derive(Arbitrary, Debug)]
enum Write {
    Add(Item),
    Update(Item),
    Delete(Item),
    Tombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
    Replace(#[arbitrary(with = few)] Vec<Item>),
    Resync,
    AddIfNotPresent(Item),
}

#[derive(Default)]
struct Model {
    order: Vec<&'static str>,
    objects: BTreeMap<&'static str, Item>,
    /// The number of slots of the first replace that are still in the queue, always at its front
    /// (F3, F5).
    initial: usize,
    /// The number of slots of the first replace that the current pop has taken (F8).
    initial_in_flight: usize,
    /// The popped key, until it is written or deleted, or the content replaced.
    in_flight: Option<&'static str>,
    populated: bool,
    synced: bool,
    closed: bool,
}

impl Model {
    fn settle(&mut self) {
        self.synced |= self.populated && self.initial == 0;
    }

    /// Stores the object. A waiting key keeps its slot (F1).
    fn put(&mut self, item: Item) -> Result<(), Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        self.populated = true;
        self.supersede(key);
        if self.objects.insert(key, item).is_none() {
            self.order.push(key);
        }
        Ok(())
    }

    /// Stores the object unless one with its key waits. Returns whether it is stored.
    fn add_if_not_present(&mut self, item: Item) -> Result<bool, Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        self.populated = true;
        let is_absent = !self.objects.contains_key(key);
        if is_absent {
            self.put(item)?;
        }
        self.settle();
        Ok(is_absent)
    }

    fn supersede(&mut self, key: &str) {
        self.in_flight = self.in_flight.filter(|in_flight| *in_flight != key);
    }

    fn write(&mut self, write: &Write) -> Result<(), Refusal> {
        let result = match write {
            Write::Add(item) | Write::Update(item) => self.put(*item),
            Write::Delete(item) => item
                .key()
                .map_err(|_| Refusal::Key)
                .map(|key| self.delete(key)),
            Write::Tombstone(key, _) => {
                self.delete(key);
                Ok(())
            }
            Write::Replace(items) => self.replace(items),
            Write::AddIfNotPresent(item) => self.add_if_not_present(*item).map(drop),
            Write::Resync => Ok(()),
        };
        self.settle();
        result
    }

    /// Removes the object and keeps the slot (F2).
    fn delete(&mut self, key: &str) {
        self.populated = true;
        self.supersede(key);
        self.objects.remove(key);
    }

    /// Replaces the content (F3). F3 leaves the order of the new slots open. In this crate, they
    /// have the order of the list.
    fn replace(&mut self, items: &[Item]) -> Result<(), Refusal> {
        let keys: Result<Vec<_>, _> = items.iter().map(Item::key).collect();
        let mut order = keys.map_err(|_| Refusal::Key)?;
        self.in_flight = None;
        self.objects = order.iter().copied().zip(items.iter().copied()).collect();
        let mut first = BTreeMap::new();
        order.retain(|key| first.insert(*key, ()).is_none());
        self.order = order;
        if !self.populated {
            self.populated = true;
            self.initial = self.order.len();
        }
        Ok(())
    }

    fn waiting(&self) -> Vec<Item> {
        let mut rest = self.objects.clone();
        self.order
            .iter()
            .filter_map(|key| rest.remove(key))
            .collect()
    }

    /// Takes the next object, and removes the slots of deleted keys before it.
    fn take(&mut self) -> Option<Item> {
        let mut taken = None;
        while taken.is_none() && !self.order.is_empty() {
            let key = self.order.remove(0);
            self.initial_in_flight += usize::from(self.initial > self.initial_in_flight);
            taken = self.objects.remove(key);
            self.in_flight = taken.map(|_| key);
        }
        if taken.is_none() {
            self.finish_pop(None);
        }
        taken
    }

    /// Ends a pop. `again` is the object that its callback requests again. It goes to the end, and
    /// does not count for the initial list.
    fn finish_pop(&mut self, again: Option<Item>) {
        self.initial -= self.initial_in_flight;
        self.initial_in_flight = 0;
        if let (Some(key), Some(item)) = (self.in_flight.take(), again) {
            self.objects.insert(key, item);
            self.order.push(key);
        }
        self.settle();
    }
}

struct Harness {
    queue: Arc<Fifo<Held>>,
    model: Model,
    numbering: Numbering,
}

impl Harness {
    fn check(&self) {
        let Self { queue, model, .. } = self;
        let waiting = model.waiting();
        assert_eq!(
            queue.list().iter().map(|held| held.0).collect::<Vec<_>>(),
            waiting
        );
        let keys = queue.list_keys();
        assert!(
            keys.iter()
                .map(|key| &**key)
                .eq(waiting.iter().map(|item| item.name)),
            "{keys:?}"
        );
        assert_eq!(
            (queue.len(), queue.is_empty()),
            (waiting.len(), waiting.is_empty())
        );
        assert_eq!(
            (queue.has_synced(), queue.synced().is_done()),
            (model.synced, model.synced),
            "{queue:?}"
        );
        assert_eq!(queue.is_closed(), model.closed);
    }

    fn write(&mut self, write: &Write) {
        let write = match write {
            Write::Add(item) => Write::Add(self.numbering.number(*item)),
            Write::Update(item) => Write::Update(self.numbering.number(*item)),
            Write::Delete(item) => Write::Delete(self.numbering.number(*item)),
            Write::Tombstone(key, item) => {
                Write::Tombstone(key, item.map(|item| self.numbering.number(item)))
            }
            Write::Replace(items) => Write::Replace(self.numbering.number_all(items)),
            Write::Resync => Write::Resync,
            Write::AddIfNotPresent(item) => {
                let item = self.numbering.number(*item);
                let added = self.queue.add_if_not_present(item.held());
                assert_eq!(
                    added.map_err(|error| Refusal::of(&error)),
                    self.model.add_if_not_present(item)
                );
                return self.check();
            }
        };
        let result = match &write {
            Write::Add(item) => self.queue.add(item.held()),
            Write::Update(item) => self.queue.update(item.held()),
            Write::Delete(item) => self.queue.delete(item.gone()),
            Write::Tombstone(key, item) => self.queue.delete(tombstone(key, *item)),
            Write::Replace(items) => self.queue.replace(
                items.iter().map(|item| item.held()).collect(),
                ResourceVersion::new("7"),
            ),
            Write::Resync | Write::AddIfNotPresent(_) => self.queue.resync(),
        };
        assert_eq!(
            result.map_err(|error| Refusal::of(&error)),
            self.model.write(&write)
        );
        self.check();
    }

    /// Pops if the queue has objects or is closed. A pop of an empty open queue would block.
    fn pop(&mut self, writes: &[Write], end: End) {
        if self.model.objects.is_empty() && !self.model.closed {
            return;
        }
        let queue = Arc::clone(&self.queue);
        let was_synced = self.model.synced;
        let Some(item) = self.model.take() else {
            let popped = queue.pop(&mut |_, _| panic!("nothing to process"));
            assert!(matches!(popped, Err(PopError::Closed)));
            return self.check();
        };
        let popped = queue.pop(&mut |held, origin| {
            assert_eq!((held.0, origin), (item, expected_origin(was_synced)));
            self.check();
            writes.iter().for_each(|write| self.write(write));
            end.trigger()
        });
        self.model.finish_pop(end.requeues().then_some(item));
        assert_eq!(end.popped(popped).0, item);
        self.check();
    }
}

pub fn run(input: &[u8]) {
    let Ok(((), operations)) = read::<(), Op>(input) else {
        return;
    };
    let queue = Arc::new(Fifo::new(accessor()));
    let _probe = Probe::of(&queue, |queue| {
        let _ = queue.len();
    });
    let mut harness = Harness {
        queue,
        model: Model::default(),
        numbering: Numbering::default(),
    };
    for operation in &operations {
        match operation {
            Op::Write(write) => harness.write(write),
            Op::Pop(writes, end) => harness.pop(writes, *end),
            Op::Close => {
                harness.queue.close();
                harness.model.closed = true;
                harness.check();
            }
        }
    }
    harness.queue.close();
    harness.model.closed = true;
    while !harness.model.objects.is_empty() {
        harness.pop(&[], End::Succeeds);
    }
    harness.pop(&[], End::Succeeds);
}
