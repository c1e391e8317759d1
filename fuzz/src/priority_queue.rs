//! [`PriorityQueue`], compared with two lists of items: those that are ready and those that are
//! delayed, as in controller-runtime (PQ1 to PQ7). Some items panic when they are hashed or cloned.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::workqueue::{
    AddOptions, AnyWorkQueue, ItemExponentialFailureRateLimiter, PriorityQueue, WorkItem, WorkQueue,
};
use k8s_informer_testing::FakeClock;

use super::item::read;
use super::probe::{Probe, TouchyClock};
use super::workqueue::{Call, Held, Name, call, durations, known_and_kept, may_panic};

#[derive(Arbitrary, Debug)]
struct Options {
    #[arbitrary(with = starvation_limits)]
    starvation_limit: usize,
}

fn starvation_limits(bytes: &mut Unstructured) -> arbitrary::Result<usize> {
    Ok(*bytes.choose(&[1, 2, 3, usize::MAX])?)
}

#[derive(Arbitrary, Debug)]
enum Op {
    Add(Add),
    Get,
    Take,
    Done(Name),
    /// Drops one of the taken items.
    Drop(u8),
    Forget(Name),
    Advance(#[arbitrary(with = durations)] u64),
    ShutDown,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Add {
    name: Name,
    #[arbitrary(with = |bytes: &mut Unstructured| bytes.int_in_range(-2..=1))]
    priority: i32,
    #[arbitrary(with = durations)]
    after: u64,
    is_rate_limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    name: Name,
    priority: i32,
    /// A counter from the time when the item was new, was raised or became ready.
    number: usize,
    /// 0 if the item is ready.
    due: u64,
}

#[derive(Default)]
struct Model {
    starvation_limit: usize,
    overtakes: usize,
    /// Each item at most once.
    entries: Vec<Entry>,
    /// The items in processing, with the number of each processing.
    processing: BTreeMap<Name, usize>,
    processings: usize,
    numbers: usize,
    failures: BTreeMap<Name, u32>,
    now: u64,
    shutting_down: bool,
}

impl Model {
    fn number(&mut self) -> usize {
        self.numbers += 1;
        self.numbers
    }

    fn add(&mut self, add: Add) -> Call {
        let mut delay = add.after;
        if add.is_rate_limited {
            known_and_kept(add.name, self.failures.contains_key(&add.name))?;
            let failures = self.failures.entry(add.name).or_default();
            *failures += 1;
            let limit = [1, 2, 4][(*failures - 1).min(2) as usize];
            delay = if delay == 0 { limit } else { delay.min(limit) };
        }
        if self.shutting_down {
            return Ok(());
        }
        known_and_kept(add.name, false)?;
        let due = if delay == 0 { 0 } else { self.now + delay };
        let number = self.number();
        let mut known = self.entries.iter_mut();
        let Some(known) = known.find(|entry| entry.name == add.name) else {
            self.entries.push(Entry {
                name: add.name,
                priority: add.priority,
                number,
                due,
            });
            return Ok(());
        };
        known.due = known.due.min(due);
        if add.priority > known.priority {
            (known.priority, known.number) = (add.priority, number);
        }
        Ok(())
    }

    fn ready(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.due == 0)
    }

    fn get(&mut self) -> Option<(Name, i32)> {
        let is_free = |entry: &&Entry| !self.processing.contains_key(&entry.name);
        let free: Vec<Entry> = self.ready().filter(is_free).copied().collect();
        let first = free
            .iter()
            .min_by_key(|of| (Reverse(of.priority), of.number))?;
        let below = free.iter().filter(|of| of.priority < first.priority);
        let taken = match below.min_by_key(|of| of.number) {
            None => {
                self.overtakes = 0;
                first
            }
            Some(_) if self.overtakes < self.starvation_limit => {
                self.overtakes += 1;
                first
            }
            Some(below) => {
                self.overtakes = 0;
                below
            }
        };
        self.entries.retain(|entry| entry != taken);
        self.processing.insert(taken.name, self.processings);
        self.processings += 1;
        Some((taken.name, taken.priority))
    }

    /// Finishes the given processing of an item, or whichever is current if `processing` is `None`.
    fn done(&mut self, name: Name, processing: Option<usize>) -> Call {
        known_and_kept(name, true)?;
        let same = |current: &usize| processing.is_none_or(|processing| processing == *current);
        if self.processing.get(&name).is_some_and(same) {
            self.processing.remove(&name);
        }
        Ok(())
    }

    fn forget(&mut self, name: Name) -> Call {
        known_and_kept(name, true)?;
        self.failures.remove(&name);
        Ok(())
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let order = |of: &Entry| (of.due, Reverse(of.priority), of.number);
        self.entries.sort_by_key(order);
        for entry in &mut self.entries {
            if (1..=self.now).contains(&entry.due) {
                self.numbers += 1;
                (entry.due, entry.number) = (0, self.numbers);
            }
        }
    }

    fn would_block(&self) -> bool {
        !self.shutting_down
            && self
                .ready()
                .all(|entry| self.processing.contains_key(&entry.name))
    }
}

struct Harness<'a> {
    queue: &'a PriorityQueue<Held>,
    taken: Vec<(WorkItem<'a, Held>, usize)>,
    model: Model,
    clock: FakeClock,
}

impl Harness<'_> {
    fn check(&self) {
        let Self { queue, model, .. } = self;
        assert_eq!(queue.len(), model.ready().count(), "{queue:?}");
        assert_eq!(queue.is_stopped(), model.shutting_down);
        let failures = model.failures.get(&Name::A).copied().unwrap_or(0);
        assert_eq!(queue.requeues(&Held(Name::A)), failures as usize);
    }

    fn step(&mut self, operation: &Op) {
        let Self { queue, model, .. } = self;
        match *operation {
            Op::Add(add) => {
                let options = AddOptions::new()
                    .priority(add.priority)
                    .after(Duration::from_secs(add.after))
                    .rate_limited(add.is_rate_limited);
                let added = call(|| queue.add_with(Held(add.name), options));
                assert_eq!(added, model.add(add));
            }
            Op::Get | Op::Take if model.would_block() => {}
            Op::Get => {
                let got = queue.get_with_priority();
                assert_eq!(got.map(|(held, priority)| (held.0, priority)), model.get());
            }
            Op::Take => {
                let processing = model.processings;
                let item = queue.take();
                let taken = item.as_ref().map(|item| (item.0, item.priority()));
                assert_eq!(taken, model.get());
                self.taken.extend(item.map(|item| (item, processing)));
            }
            Op::Done(name) => {
                let done = call(|| queue.done(&Held(name)));
                assert_eq!(done, model.done(name, None).or(may_panic(name, done)));
            }
            Op::Drop(_) if self.taken.is_empty() => {}
            Op::Drop(at) => {
                let (item, processing) = self.taken.swap_remove(usize::from(at) % self.taken.len());
                model.done(item.0, Some(processing)).unwrap();
                drop(item);
            }
            Op::Forget(name) => {
                let forgotten = call(|| queue.forget(&Held(name)));
                assert_eq!(forgotten, model.forget(name).or(may_panic(name, forgotten)));
            }
            Op::Advance(by) => {
                self.clock.advance(Duration::from_secs(by));
                model.advance(by);
            }
            Op::ShutDown => {
                queue.stop();
                model.shutting_down = true;
                model.entries.retain(|entry| entry.due == 0);
            }
        }
        self.check();
    }

    /// Takes and finishes all remaining items.
    fn end(mut self) {
        self.step(&Op::ShutDown);
        self.taken.clear();
        for name in std::mem::take(&mut self.model.processing).into_keys() {
            self.queue.done(&Held(name));
        }
        while let Some((held, priority)) = self.queue.get_with_priority() {
            assert_eq!(Some((held.0, priority)), self.model.get());
            self.queue.done(&held);
        }
        assert_eq!(self.model.get(), None);
        self.queue.shut_down(None).unwrap();
    }
}

pub fn run(input: &[u8]) {
    let Ok((Options { starvation_limit }, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let clock = FakeClock::new();
    let limiter =
        ItemExponentialFailureRateLimiter::new(Duration::from_secs(1)..=Duration::from_secs(4));
    let queue = WorkQueue::builder()
        .clock(Arc::new(TouchyClock(clock.clone())))
        .starvation_limit(starvation_limit)
        .build_priority(limiter);
    let queue = Arc::new(queue.unwrap());
    let _probe = Probe::of(&queue, |queue| {
        let _ = queue.is_stopped();
    });
    let mut harness = Harness {
        queue: &queue,
        taken: Vec::new(),
        model: Model {
            starvation_limit,
            ..Model::default()
        },
        clock,
    };
    operations
        .iter()
        .for_each(|operation| harness.step(operation));
    harness.end();
}
