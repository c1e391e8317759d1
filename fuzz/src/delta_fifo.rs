//! [`DeltaFifo`] compared with its [`Model`] (D1 to D13), with and without known objects. The
//! consumer and others write to the known objects, and lookups can fail. Consumers write to the
//! queue, fail, panic and request their items again.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use arbitrary::Arbitrary;
use k8s_informer::Indexer;
use k8s_informer::object::{Key, ResourceVersion};
use k8s_informer::queue::{
    Delta, DeltaFifo, DeltaFifoOptions, Deltas, PopError, ProcessError, Queue,
};
use k8s_informer::store::{Indexers, KnownObjects, ReflectorStore, StoreError};

use super::delta_fifo_model::{Change, Flight, Given, Lookup, Model, Options, Write, list_version};
use super::item::{
    Held, Item, Numbering, Refusal, accessor, few, name, read, tombstone, transform,
};
use super::probe::Probe;
use super::processing::{End, expected_origin};

#[derive(Arbitrary, Debug)]
enum Op {
    Write(Write),
    Pop(Processing),
    /// Another writer changes the known objects.
    Put(Item),
    Remove(#[arbitrary(with = name)] &'static str),
    /// From now on lookups of this key have this result.
    Spoil(#[arbitrary(with = name)] &'static str, Lookup),
    Close,
}

/// The actions of a consumer.
#[derive(Arbitrary, Debug)]
struct Processing {
    #[arbitrary(with = few)]
    before: Vec<Write>,
    /// Bit 0: whether the consumer fills the known objects. Bit 1: whether it pops a batch.
    flags: u8,
    #[arbitrary(with = few)]
    after: Vec<Write>,
    end: End,
}

/// The store that the consumer fills. It lists its keys in order.
struct Known {
    indexer: Indexer<Held>,
    spoilt: Mutex<(&'static str, Lookup)>,
}

impl KnownObjects<Held> for Known {
    fn list_keys(&self) -> Vec<Key> {
        let mut keys = self.indexer.list_keys();
        keys.sort();
        keys
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<Held>>, StoreError> {
        let spoilt = *self.spoilt.lock().unwrap();
        match spoilt {
            (spoilt, Lookup::Fails) if spoilt == key => Err(StoreError::other("lookup failed")),
            (spoilt, Lookup::Missing) if spoilt == key => Ok(None),
            _ => Ok(self.indexer.get_by_key(key)),
        }
    }
}

struct Harness {
    queue: Arc<DeltaFifo<Held>>,
    known: Arc<Known>,
    model: Model,
    numbering: Numbering,
    /// The deltas of the last pop, with their key and changes in the model.
    popped: Option<(Deltas<Held>, Flight)>,
}

impl Harness {
    fn check(&self) {
        let Self { queue, model, .. } = self;
        let waiting = model.waiting();
        assert_eq!(
            (queue.len(), queue.is_empty()),
            (waiting.len(), waiting.is_empty()),
            "{queue:?}"
        );
        assert_eq!(
            (queue.has_synced(), queue.synced().is_done()),
            (model.synced, model.synced),
            "{queue:?}"
        );
        assert_eq!(queue.is_closed(), model.closed);
        assert_eq!(
            queue.processed().current(),
            ResourceVersion::new(model.processed())
        );
        // The queue keeps a list as a whole until a key is looked up. Skip the lookups in some
        // checks, so that whole lists are tested too.
        if waiting.len().is_multiple_of(2) {
            return;
        }
        let keys: Vec<&str> = waiting.iter().map(|(key, _)| *key).collect();
        assert_eq!(
            queue
                .list_keys()
                .iter()
                .map(|key| &**key)
                .collect::<Vec<_>>(),
            keys
        );
        for ((_, changes), deltas) in waiting.iter().zip(queue.list()) {
            assert_same(changes, &deltas);
        }
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
            Write::AddIfNotPresent(given) => return self.add_if_not_present(given),
        };
        let result = match &write {
            Write::Add(item) => self.queue.add(item.held()),
            Write::Update(item) => self.queue.update(item.held()),
            Write::Delete(item) => self.queue.delete(item.gone()),
            Write::Tombstone(key, item) => self.queue.delete(tombstone(key, *item)),
            Write::Replace(items) => self.queue.replace(
                items.iter().map(|item| item.held()).collect(),
                ResourceVersion::new(list_version(items)),
            ),
            Write::Resync | Write::AddIfNotPresent(_) => self.queue.resync(),
        };
        assert_eq!(
            result.map_err(|error| Refusal::of(&error)),
            self.model.write(&write)
        );
        self.check();
        // A bookmark follows each resync. It is not a separate operation, because a new operation
        // would change the meaning of the corpus inputs.
        if let Write::Resync = write {
            self.queue
                .bookmark(ResourceVersion::new(self.model.bookmark()))
                .unwrap();
            self.check();
        }
    }

    fn add_if_not_present(&mut self, given: &Given) {
        let (key, changes, deltas) = match (given, self.popped.take()) {
            (Given::LastPopped, Some((deltas, flight))) => {
                (Some(flight.key), flight.changes, deltas)
            }
            (Given::LastPopped, None) => return,
            (Given::Made(changes), _) => {
                let number = |change: &Change| change.numbered(&mut self.numbering);
                let changes: Vec<_> = changes.iter().map(number).collect();
                // A delta has a key.
                if changes.iter().any(|change| change.key().is_err()) {
                    return;
                }
                let deltas: Vec<_> = changes.iter().map(|change| change.delta()).collect();
                (None, changes, deltas.into())
            }
        };
        let added = self.queue.add_if_not_present(deltas);
        let expected = self.model.add_if_not_present(key, &changes);
        match added {
            Ok(added) => assert_eq!(Ok(added), expected),
            Err(error) => assert!(
                matches!(error, StoreError::Key(_)) && expected == Err(Refusal::Key),
                "{error:?}"
            ),
        }
        self.check();
    }

    /// Pops if the queue has items or is closed. A pop of an empty open queue would block.
    fn pop(&mut self, processing: &Processing) {
        if self.model.waiting().is_empty() && !self.model.closed {
            return;
        }
        let queue = Arc::clone(&self.queue);
        let is_batch = processing.flags & 2 != 0;
        let flights = self.model.take(if is_batch { 64 } else { 1 });
        if flights.is_empty() {
            let popped = queue.pop(&mut |_, _| panic!("nothing to process"));
            assert!(matches!(popped, Err(PopError::Closed)));
            return self.check();
        }
        let expected = expected_origin(self.model.synced);
        let popped = {
            let this = RefCell::new(&mut *self);
            let process = |batch: &[Deltas<Held>], origin| {
                assert_eq!(origin, expected);
                this.borrow_mut().process(&flights, batch, processing)
            };
            let mut single =
                |deltas: &Deltas<Held>, origin| process(std::slice::from_ref(deltas), origin);
            if is_batch {
                queue.pop_batch(&mut |batch, origin| process(batch, origin), &mut single)
            } else {
                let popped = queue.pop(&mut single).map(|deltas| vec![deltas]);
                popped.map_err(|error| match error {
                    PopError::Process { popped, error } => PopError::Process {
                        popped: vec![popped],
                        error,
                    },
                    error => panic!("an item waits: {error:?}"),
                })
            }
        };
        self.model.finish_pop(processing.end);
        let popped = processing.end.popped(popped);
        assert_eq!(popped.len(), flights.len());
        for (flight, deltas) in flights.iter().zip(&popped) {
            assert_same(&flight.changes, deltas);
        }
        self.popped = popped.into_iter().zip(flights).next();
        self.check();
    }

    fn process(
        &mut self,
        flights: &[Flight],
        batch: &[Deltas<Held>],
        processing: &Processing,
    ) -> Result<(), ProcessError> {
        assert_eq!(flights.len(), batch.len());
        for (flight, deltas) in flights.iter().zip(batch) {
            assert_same(&flight.changes, deltas);
            assert_eq!(deltas.key().map(|key| &**key), Some(flight.key));
        }
        self.check();
        processing.before.iter().for_each(|write| self.write(write));
        if processing.flags & 1 == 1 {
            for (flight, deltas) in flights.iter().zip(batch) {
                match deltas.newest() {
                    Some(Delta::Deleted { gone, .. }) => {
                        drop(self.known.indexer.delete(gone.clone()));
                    }
                    newest => drop(
                        self.known
                            .indexer
                            .add(Arc::clone(newest.and_then(Delta::object).unwrap())),
                    ),
                }
                self.model.fill(flight.newest());
            }
        }
        processing.after.iter().for_each(|write| self.write(write));
        processing.end.trigger()
    }
}

fn assert_same(changes: &[Change], deltas: &Deltas<Held>) {
    let same = changes.len() == deltas.len()
        && changes
            .iter()
            .zip(deltas.iter())
            .all(|(change, delta)| change.is(delta));
    assert!(same, "expected {changes:?}\n     got {deltas:?}");
}

pub fn run(input: &[u8]) {
    let Ok((options, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let spoilt = ("", Lookup::Found);
    let known = Arc::new(Known {
        indexer: Indexer::new(accessor(), Indexers::new()),
        spoilt: Mutex::new(spoilt),
    });
    let mut queue_options = DeltaFifoOptions::new().emit_replaced(options.emit_replaced);
    if options.known_objects {
        queue_options = queue_options.known_objects(Arc::clone(&known) as _);
    }
    if options.transform {
        queue_options = queue_options.transform(transform());
    }
    let queue = Arc::new(DeltaFifo::with_options(accessor(), queue_options));
    let _probe = Probe::of(&queue, |queue| {
        let _ = queue.len();
    });
    let mut harness = Harness {
        queue,
        known,
        model: Model::new(options, spoilt),
        numbering: Numbering::default(),
        popped: None,
    };
    for operation in &operations {
        match operation {
            Op::Write(write) => harness.write(write),
            Op::Pop(processing) => harness.pop(processing),
            Op::Put(item) => {
                let item = harness.numbering.number(*item);
                drop(harness.known.indexer.add(item.held()));
                harness.model.put(item);
            }
            Op::Remove(key) => {
                drop(harness.known.indexer.delete(tombstone(key, None)));
                harness.model.known.remove(key);
            }
            Op::Spoil(key, lookup) => {
                harness.model.spoilt = (key, *lookup);
                *harness.known.spoilt.lock().unwrap() = (key, *lookup);
            }
            Op::Close => {
                harness.queue.close();
                harness.model.closed = true;
                harness.check();
            }
        }
    }
    harness.queue.close();
    harness.model.closed = true;
    let rest = Processing {
        before: Vec::new(),
        flags: 1,
        after: Vec::new(),
        end: End::Succeeds,
    };
    while !harness.model.waiting().is_empty() {
        harness.pop(&rest);
    }
    harness.pop(&rest);
}
