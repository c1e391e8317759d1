//! [`RateLimitingQueue`], which includes the other work queues, compared with sets and a list as in
//! client-go (Q1 to Q17). Some items panic when they are hashed or cloned, others when the custom
//! `Order` touches or pushes them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::workqueue::{
    AnyWorkQueue, ItemExponentialFailureRateLimiter, Order, RateLimitingQueue, WorkItem, WorkQueue,
};
use k8s_informer_testing::FakeClock;

use super::item::{Failure, read};
use super::probe::{Probe, TouchyClock, touch};

#[derive(Arbitrary, Debug)]
struct Options {
    /// Whether a touched item moves to the front.
    to_front: bool,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Add(Name),
    Get,
    Take,
    Done(Name),
    /// Drops one of the taken items.
    Drop(u8),
    AddAfter(Name, #[arbitrary(with = durations)] u64),
    AddRateLimited(Name),
    Forget(Name),
    Advance(#[arbitrary(with = durations)] u64),
    ShutDown,
}

pub(super) fn durations(bytes: &mut Unstructured) -> arbitrary::Result<u64> {
    bytes.int_in_range(0..=5)
}

/// The identity of an item.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Name {
    A,
    B,
    C,
    D,
    HashPanics,
    ClonePanics,
    PushPanics,
    TouchPanics,
}

/// An item. The queue must not drop it under its lock, except during a panic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held(pub(super) Name);

impl Clone for Held {
    fn clone(&self) -> Self {
        if self.0 == Name::ClonePanics {
            Failure::Panics.trigger();
        }
        Self(self.0)
    }
}

impl Hash for Held {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.0 == Name::HashPanics {
            Failure::Panics.trigger();
        }
        self.0.hash(state);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            touch();
        }
    }
}

#[derive(Default)]
struct Recording {
    waiting: Vec<Held>,
    to_front: bool,
    touches: Arc<Mutex<Vec<Name>>>,
}

impl Order<Held> for Recording {
    fn touch(&mut self, item: &Held) {
        if item.0 == Name::TouchPanics {
            Failure::Panics.trigger();
        }
        self.touches.lock().unwrap().push(item.0);
        if self.to_front {
            let at = self
                .waiting
                .iter()
                .position(|waiting| waiting == item)
                .unwrap();
            self.waiting[..=at].rotate_right(1);
        }
    }

    fn push(&mut self, item: Held) {
        if item.0 == Name::PushPanics {
            Failure::Panics.trigger();
        }
        assert!(!self.waiting.contains(&item), "{item:?} is already queued");
        self.waiting.push(item);
    }

    fn pop(&mut self) -> Option<Held> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }
}

/// The error of a call that panics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Panics;

pub(super) type Call = Result<(), Panics>;

#[derive(Default)]
struct Model {
    to_front: bool,
    queue: Vec<Name>,
    dirty: BTreeSet<Name>,
    /// The items in processing, with the number of each processing.
    processing: BTreeMap<Name, usize>,
    processings: usize,
    touches: Vec<Name>,
    /// The due time of each delayed item, and a sequence number for its order.
    delayed: BTreeMap<Name, (u64, usize)>,
    delays: usize,
    failures: BTreeMap<Name, u32>,
    now: u64,
    shutting_down: bool,
}

/// Fails if looking up the item panics, or if the item is new and cloning it panics.
pub(super) fn known_and_kept(name: Name, known: bool) -> Call {
    match name {
        Name::HashPanics => Err(Panics),
        Name::ClonePanics if !known => Err(Panics),
        _ => Ok(()),
    }
}

impl Model {
    fn add(&mut self, name: Name) -> Call {
        if self.shutting_down {
            return Ok(());
        }
        known_and_kept(name, false)?;
        match (
            self.dirty.contains(&name),
            self.processing.contains_key(&name),
        ) {
            (true, true) => {}
            (true, false) => self.touch(name)?,
            (false, false) if name == Name::PushPanics => return Err(Panics),
            (false, processing) => {
                self.dirty.insert(name);
                if !processing {
                    self.queue.push(name);
                }
            }
        }
        Ok(())
    }

    fn touch(&mut self, name: Name) -> Call {
        if name == Name::TouchPanics {
            return Err(Panics);
        }
        self.touches.push(name);
        if self.to_front {
            self.queue.retain(|waiting| *waiting != name);
            self.queue.insert(0, name);
        }
        Ok(())
    }

    fn get(&mut self) -> Option<Name> {
        if self.queue.is_empty() {
            return None;
        }
        let name = self.queue.remove(0);
        self.dirty.remove(&name);
        self.processing.insert(name, self.processings);
        self.processings += 1;
        Some(name)
    }

    /// Finishes the given processing of an item, or whichever is current if `processing` is `None`.
    fn done(&mut self, name: Name, processing: Option<usize>) -> Call {
        known_and_kept(name, true)?;
        let same = |current: &usize| processing.is_none_or(|processing| processing == *current);
        if self.processing.get(&name).is_some_and(same) {
            self.processing.remove(&name);
            if self.dirty.contains(&name) {
                self.queue.push(name);
            }
        }
        Ok(())
    }

    fn add_after(&mut self, name: Name, delay: u64) -> Call {
        if delay == 0 {
            return self.add(name);
        }
        if self.shutting_down {
            return Ok(());
        }
        known_and_kept(name, self.delayed.contains_key(&name))?;
        let due = (self.now + delay, self.delays);
        self.delays += 1;
        let known = self.delayed.entry(name).or_insert(due);
        if due.0 < known.0 {
            *known = due;
        }
        Ok(())
    }

    /// The delays are 1, 2, 4, 4, ... seconds.
    fn add_rate_limited(&mut self, name: Name) -> Call {
        known_and_kept(name, self.failures.contains_key(&name))?;
        let failures = self.failures.entry(name).or_default();
        *failures += 1;
        let delay = [1, 2, 4][(*failures - 1).min(2) as usize];
        self.add_after(name, delay)
    }

    fn forget(&mut self, name: Name) -> Call {
        known_and_kept(name, true)?;
        self.failures.remove(&name);
        Ok(())
    }

    /// Advances the clock and adds the items that are due. An item that panics when it is added is
    /// lost.
    fn advance(&mut self, by: u64) {
        self.now += by;
        let mut due: Vec<_> = self
            .delayed
            .iter()
            .map(|(name, due)| (*due, *name))
            .collect();
        due.retain(|(due, _)| due.0 <= self.now);
        due.sort_unstable();
        for (_, name) in due {
            self.delayed.remove(&name);
            let _ = self.add(name);
        }
    }
}

struct Harness<'a> {
    queue: &'a RateLimitingQueue<Held>,
    taken: Vec<(WorkItem<'a, Held>, usize)>,
    model: Model,
    clock: FakeClock,
    touches: Arc<Mutex<Vec<Name>>>,
}

/// Calls a method of the queue, which may panic.
pub(super) fn call(call: impl FnOnce()) -> Call {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| Panics)
}

/// Returns an acceptable result of a call that looks up the item. An item whose hashing panics may
/// also succeed: a lookup in an empty map does not hash the item.
pub(super) fn may_panic(name: Name, result: Call) -> Call {
    if name == Name::HashPanics {
        result
    } else {
        Err(Panics)
    }
}

impl Harness<'_> {
    fn check(&self) {
        let Self { queue, model, .. } = self;
        assert_eq!(
            (queue.len(), queue.is_empty()),
            (model.queue.len(), model.queue.is_empty()),
            "{queue:?}"
        );
        assert_eq!(queue.is_stopped(), model.shutting_down);
        assert_eq!(*self.touches.lock().unwrap(), model.touches);
        for name in [Name::A, Name::PushPanics] {
            let failures = model
                .failures
                .get(&name)
                .map_or(0, |failures| *failures as usize);
            assert_eq!(queue.requeues(&Held(name)), failures);
        }
    }

    fn step(&mut self, operation: &Op) {
        let Self { queue, model, .. } = self;
        match *operation {
            Op::Add(name) => assert_eq!(call(|| queue.add(Held(name))), model.add(name)),
            Op::Get | Op::Take if model.queue.is_empty() && !model.shutting_down => {}
            Op::Get => assert_eq!(queue.get().map(|held| held.0), model.get()),
            Op::Take => {
                let processing = model.processings;
                let item = queue.take();
                assert_eq!(item.as_ref().map(|held| held.0), model.get());
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
            Op::AddAfter(name, delay) => {
                let delayed = call(|| queue.add_after(Held(name), Duration::from_secs(delay)));
                assert_eq!(delayed, model.add_after(name, delay));
            }
            Op::AddRateLimited(name) => {
                assert_eq!(
                    call(|| queue.add_rate_limited(Held(name))),
                    model.add_rate_limited(name)
                );
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
                model.delayed.clear();
            }
        }
        self.check();
    }

    /// Takes and finishes all remaining items.
    fn end(mut self) {
        self.step(&Op::ShutDown);
        self.taken.clear();
        for name in std::mem::take(&mut self.model.processing).into_keys() {
            if self.model.dirty.contains(&name) {
                self.model.queue.push(name);
            }
            self.queue.done(&Held(name));
        }
        let mut left = BTreeSet::new();
        while let Some(item) = self.queue.take() {
            assert!(left.insert(item.0), "{item:?} was returned twice");
        }
        assert!(
            left.into_iter()
                .eq(self.model.queue.into_iter().collect::<BTreeSet<_>>())
        );
        self.queue.shut_down(None).unwrap();
    }
}

pub fn run(input: &[u8]) {
    let Ok((Options { to_front }, operations)) = read::<Options, Op>(input) else {
        return;
    };
    let (clock, touches) = (FakeClock::new(), Arc::default());
    let order = Recording {
        waiting: Vec::new(),
        to_front,
        touches: Arc::clone(&touches),
    };
    let limiter =
        ItemExponentialFailureRateLimiter::new(Duration::from_secs(1)..=Duration::from_secs(4));
    let builder = WorkQueue::builder()
        .order(order)
        .clock(Arc::new(TouchyClock(clock.clone())));
    let queue = Arc::new(builder.build_rate_limiting(limiter).unwrap());
    let _probe = Probe::of(&queue, |queue| {
        let _ = queue.is_stopped();
    });
    let model = Model {
        to_front,
        ..Model::default()
    };
    let mut harness = Harness {
        queue: &queue,
        taken: Vec::new(),
        model,
        clock,
        touches,
    };
    operations
        .iter()
        .for_each(|operation| harness.step(operation));
    harness.end();
}
