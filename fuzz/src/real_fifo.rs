//! [`RealFifo`] compared with its [`Model`] (R1 to R24). Consumers pop one item or a batch, write to
//! the queue, fail, panic and request their items again.

use std::cell::RefCell;
use std::sync::Arc;

use arbitrary::Arbitrary;
use k8s_informer::object::ResourceVersion;
use k8s_informer::queue::{Deltas, PopError, ProcessError, Queue, RealFifo, RealFifoOptions};
use k8s_informer::store::ReflectorStore;

use super::item::{Held, Numbering, Refusal, accessor, few, read, tombstone, transform};
use super::probe::Probe;
use super::processing::{End, expected_origin};
use super::real_fifo_model::{Entry, Model, Options, Write};

#[derive(Arbitrary, Debug)]
enum Op {
    Write(Write),
    Pop(Processing),
    Close,
}

/// The actions of a consumer.
#[derive(Arbitrary, Debug)]
struct Processing {
    batch: bool,
    #[arbitrary(with = few)]
    writes: Vec<Write>,
    end: End,
}

struct Harness {
    queue: Arc<RealFifo<Held>>,
    model: Model,
    numbering: Numbering,
}

impl Harness {
    fn check(&self) {
        let Self { queue, model, .. } = self;
        let list = queue.list();
        assert_same(&model.items, &list);
        assert_eq!(
            (queue.len(), queue.is_empty()),
            (list.len(), list.is_empty()),
            "{queue:?}"
        );
        let mut keys: Vec<&str> = Vec::new();
        for key in model.items.iter().filter_map(Entry::key) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        assert_eq!(
            queue
                .list_keys()
                .iter()
                .map(|key| &**key)
                .collect::<Vec<_>>(),
            keys
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
    }

    fn write(&mut self, write: &Write) {
        let numbering = &mut self.numbering;
        let write = match write.clone() {
            Write::Add(item) => Write::Add(numbering.number(item)),
            Write::Update(item) => Write::Update(numbering.number(item)),
            Write::Delete(item) => Write::Delete(numbering.number(item)),
            Write::Tombstone(key, item) => {
                Write::Tombstone(key, item.map(|item| numbering.number(item)))
            }
            Write::Replace(items, version) => Write::Replace(numbering.number_all(&items), version),
            other => other,
        };
        let result = match &write {
            Write::Add(item) => self.queue.add(item.held()),
            Write::Update(item) => self.queue.update(item.held()),
            Write::Delete(item) => self.queue.delete(item.gone()),
            Write::Tombstone(key, item) => self.queue.delete(tombstone(key, *item)),
            Write::Replace(items, version) => self.queue.replace(
                items.iter().map(|item| item.held()).collect(),
                ResourceVersion::new(version),
            ),
            Write::Resync => self.queue.resync(),
            Write::Bookmark(version) => self.queue.bookmark(ResourceVersion::new(version)),
        };
        assert_eq!(
            result.map_err(|error| Refusal::of(&error)),
            self.model.write(&write)
        );
        self.check();
    }

    /// Pops if the queue has items or is closed. A pop of an empty open queue would block.
    fn pop(&mut self, processing: &Processing) {
        if self.model.items.is_empty() && !self.model.closed {
            return;
        }
        let queue = Arc::clone(&self.queue);
        let expected = expected_origin(self.model.synced);
        let taken = self.model.take(processing.batch);
        if taken.is_empty() {
            let popped = queue.pop(&mut |_, _| panic!("nothing to process"));
            assert!(matches!(popped, Err(PopError::Closed)));
            return self.check();
        }
        let popped = {
            // The queue calls only one of the two closures, once.
            let process = RefCell::new(Some(|deltas: &[Deltas<Held>], origin| {
                assert_eq!(origin, expected);
                self.process(&taken, deltas, processing)
            }));
            let mut single = |deltas: &Deltas<Held>, origin| {
                process.take().unwrap()(std::slice::from_ref(deltas), origin)
            };
            if processing.batch {
                let mut several = |batch: &[Deltas<Held>], origin| {
                    assert!(batch.len() > 1);
                    process.take().unwrap()(batch, origin)
                };
                processing
                    .end
                    .popped(queue.pop_batch(&mut several, &mut single))
            } else {
                vec![processing.end.popped(queue.pop(&mut single))]
            }
        };
        self.model.finish_pop(processing.end);
        assert_same(&taken, &popped);
        self.check();
    }

    fn process(
        &mut self,
        taken: &[Entry],
        deltas: &[Deltas<Held>],
        processing: &Processing,
    ) -> Result<(), ProcessError> {
        assert_same(taken, deltas);
        self.check();
        processing.writes.iter().for_each(|write| self.write(write));
        processing.end.trigger()
    }

    fn close(&mut self) {
        self.queue.close();
        self.model.closed = true;
        self.check();
    }
}

fn assert_same(entries: &[Entry], list: &[Deltas<Held>]) {
    let same = entries.len() == list.len()
        && entries
            .iter()
            .zip(list)
            .all(|(entry, deltas)| entry.is(deltas));
    assert!(same, "expected {entries:?}\n     got {list:?}");
}

pub fn run(input: &[u8]) {
    let Ok((options, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let mut queue_options = RealFifoOptions::new();
    if options.transform {
        queue_options = queue_options.transform(transform());
    }
    let queue = Arc::new(RealFifo::with_options(accessor(), queue_options));
    assert_eq!(queue.transformer().is_some(), options.transform);
    let _probe = Probe::of(&queue, |queue| {
        let _ = queue.len();
    });
    let mut harness = Harness {
        queue,
        model: Model::new(options),
        numbering: Numbering::default(),
    };
    for operation in &operations {
        match operation {
            Op::Write(write) => harness.write(write),
            Op::Pop(processing) => harness.pop(processing),
            Op::Close => harness.close(),
        }
    }
    harness.close();
    let rest = Processing {
        batch: true,
        writes: Vec::new(),
        end: End::Succeeds,
    };
    while !harness.model.items.is_empty() {
        harness.pop(&rest);
    }
    harness.pop(&rest);
}
