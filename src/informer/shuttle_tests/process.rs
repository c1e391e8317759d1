//! The path from the queue to the cache. An item in flight (popped, but not yet processed) counts
//! as known.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use super::{Thing, View};
use crate::base::sync::{any, check, join_all, thread};
use crate::informer::InformerQueue;
use crate::informer::handler::Notification;
use crate::informer::process::{CachePart, Notify, Order, Reports, batch_of};
use crate::object::{Accessor, Deleted, Object};
use crate::queue::{Deltas, Origin, PopError, ProcessError, Queue};
use crate::resource_version::ResourceVersion;
use crate::stop::DoneSetter;
use crate::store::{Indexer, Indexers, KnownObjects};
use crate::time::RealClock;

/// A queue, a cache, and the thread that moves items between them.
struct Cache {
    queue: Arc<dyn Queue<Thing>>,
    store: Arc<Indexer<Thing>>,
    consumer: thread::JoinHandle<View>,
}

impl Cache {
    fn new(kind: InformerQueue) -> Self {
        let store = Arc::new(Indexer::new(Accessor::object(), Indexers::new()));
        let queue = build(kind, &store);
        let consumer = thread::spawn({
            let (queue, store) = (Arc::clone(&queue), Arc::clone(&store));
            move || consume(&*queue, &store, kind)
        });
        Self {
            queue,
            store,
            consumer,
        }
    }

    /// Closes and drains the queue. Checks that the store has the state that the notifications
    /// describe, and returns it.
    fn end(self) -> View {
        self.queue.close();
        let view = self.consumer.join().unwrap();
        let stored = self.store.list();
        let stored = stored
            .iter()
            .map(|thing| (thing.name().to_owned(), thing.version()));
        assert_eq!(stored.collect::<BTreeMap<_, _>>(), view.objects);
        view
    }
}

fn part(store: &Arc<Indexer<Thing>>) -> Arc<CachePart<Thing>> {
    Arc::new(CachePart::new(Arc::clone(store), None, false))
}

fn build(queue: InformerQueue, store: &Arc<Indexer<Thing>>) -> Arc<dyn Queue<Thing>> {
    queue.build(&part(store), "things", None, None, Arc::new(RealClock))
}

fn process(
    part: &CachePart<Thing>,
    items: &[Deltas<Thing>],
    order: Order,
    origin: Origin,
    notify: &mut Notify<'_, Thing>,
) -> Result<(), ProcessError> {
    let blocked = None;
    part.process(
        || batch_of(items),
        order,
        origin,
        blocked,
        notify,
        &mut Reports::default(),
    )
}

/// Pops single items or batches, as the schedule decides.
fn consume(queue: &dyn Queue<Thing>, store: &Arc<Indexer<Thing>>, kind: InformerQueue) -> View {
    let (part, view) = (part(store), RefCell::new(View::default()));
    let notify = |_, event: Notification<Thing>, _| {
        view.borrow_mut().apply(&event);
    };
    let mut one = |deltas: &Deltas<Thing>, origin| {
        let items = slice::from_ref(deltas);
        process(&part, items, Order::OneByOne, origin, &mut { notify })
    };
    let order = match kind {
        InformerQueue::DeltaFifo => Order::OneByOne,
        InformerQueue::RealFifo => Order::Together,
    };
    let mut many =
        |batch: &[Deltas<Thing>], origin| process(&part, batch, order, origin, &mut { notify });
    loop {
        let closed = match any(2) {
            0 => queue
                .pop(&mut one)
                .map(drop)
                .is_err_and(|error| is_closed(&error)),
            _ => queue
                .pop_batch(&mut many, &mut one)
                .map(drop)
                .is_err_and(|error| is_closed(&error)),
        };
        if closed {
            return view.into_inner();
        }
    }
}

/// Returns `true` for the only error that is allowed.
fn is_closed<P>(error: &PopError<P>) -> bool {
    assert!(matches!(error, PopError::Closed), "{error}");
    true
}

/// The objects on the server, which writes to the queue like a reflector.
#[derive(Default)]
struct Server {
    objects: BTreeMap<&'static str, usize>,
    version: usize,
    /// Whether the server also sends deletions of objects that did not exist. Only a
    /// [`DeltaFifo`](crate::queue::DeltaFifo) filters out such deletions.
    unknown: bool,
}

impl Server {
    /// Changes one object, and notifies the queue unless it is `None`, which models a broken watch.
    fn change(&mut self, name: &'static str, queue: Option<&dyn Queue<Thing>>) {
        self.version += 1;
        let thing = Thing::new(name, self.version);
        if any(2) == 0 {
            let existed = self.objects.insert(name, self.version).is_some();
            let Some(queue) = queue else { return };
            if existed {
                queue.update(thing)
            } else {
                queue.add(thing)
            }
            .unwrap();
        } else {
            let existed = self.objects.remove(name).is_some();
            let Some(queue) = queue.filter(|_| existed || self.unknown) else {
                return;
            };
            queue.delete(Deleted::Final(thing)).unwrap();
        }
    }

    fn list(&self, queue: &dyn Queue<Thing>) {
        let objects = self
            .objects
            .iter()
            .map(|(name, version)| Thing::new(name, *version))
            .collect();
        queue
            .replace(objects, ResourceVersion::new(&self.version.to_string()))
            .unwrap();
    }
}

/// Asserts that the notifications are consistent while objects change (by watch events and lists)
/// and resyncs run: no duplicate or unknown deletion, and no older version. At the end, the store
/// must equal the server's state.
fn assert_each_deletion_is_delivered_once(kind: InformerQueue) {
    let cache = Cache::new(kind);
    let resyncs = thread::spawn({
        let queue = Arc::clone(&cache.queue);
        move || (0..2).for_each(|_| queue.resync().unwrap())
    });
    let mut server = Server {
        unknown: kind == InformerQueue::DeltaFifo,
        ..Server::default()
    };
    server.change("a", None);
    server.change("b", None);
    server.list(&*cache.queue);
    for _ in 0..5 {
        let name = ["a", "b"][any(2)];
        match any(4) {
            0 => {
                server.change(name, None);
                server.list(&*cache.queue);
            }
            _ => server.change(name, Some(&*cache.queue)),
        }
    }
    resyncs.join().unwrap();
    let view = cache.end();
    let objects = server
        .objects
        .iter()
        .map(|(name, version)| ((*name).to_owned(), *version));
    assert_eq!(view.objects, objects.collect());
}

#[test]
fn d3_d6_d9_delta_fifo_delivers_each_deletion_once() {
    check(|| assert_each_deletion_is_delivered_once(InformerQueue::DeltaFifo));
}

#[test]
fn p5_p6_real_fifo_delivers_each_deletion_once() {
    check(|| assert_each_deletion_is_delivered_once(InformerQueue::RealFifo));
}

/// Two deletions and a list without the object run concurrently, for an object that is known or in
/// flight. Exactly one deletion is delivered.
#[test]
fn d3_concurrent_deletions_are_delivered_once() {
    check(|| {
        let cache = Cache::new(InformerQueue::DeltaFifo);
        cache.queue.add(Thing::new("a", 1)).unwrap();
        let deletions = [0, 0, 1].map(|kind| {
            let queue = Arc::clone(&cache.queue);
            thread::spawn(move || match kind {
                0 => queue.delete(Deleted::Final(Thing::new("a", 2))).unwrap(),
                _ => queue
                    .replace(Vec::new(), ResourceVersion::new("3"))
                    .unwrap(),
            })
        });
        join_all(deletions);
        let view = cache.end();
        assert_eq!(
            (view.calls, view.objects.len()),
            (2, 0),
            "one add and one deletion"
        );
    });
}

/// The first deletion fails. During the failed call or later, a second deletion or a list without
/// the object arrives. One deletion is then delivered.
#[test]
fn d3_deletion_during_failed_deletion_is_delivered() {
    check(|| {
        let store = Arc::new(Indexer::new(Accessor::object(), Indexers::new()));
        let queue = build(InformerQueue::default(), &store);
        store.add(Thing::new("a", 1)).unwrap();
        queue.delete(Deleted::Final(Thing::new("a", 2))).unwrap();
        let fails = DoneSetter::new("the first deletion is being processed");
        let consumer = thread::spawn({
            let (queue, store, fails) = (Arc::clone(&queue), Arc::clone(&store), fails.clone());
            move || {
                let mut calls = 0;
                loop {
                    let popped = queue.pop(&mut |deltas, origin| {
                        if !fails.is_done() {
                            fails.set();
                            return Err("not now".into());
                        }
                        let items = slice::from_ref(deltas);
                        let notify = &mut |_, _, _| calls += 1;
                        process(&part(&store), items, Order::OneByOne, origin, notify)
                    });
                    if matches!(popped, Err(PopError::Closed)) {
                        return calls;
                    }
                }
            }
        });
        fails.wait();
        match any(2) {
            0 => queue.delete(Deleted::Final(Thing::new("a", 3))).unwrap(),
            _ => queue
                .replace(Vec::new(), ResourceVersion::new("3"))
                .unwrap(),
        }
        queue.close();
        assert_eq!((consumer.join().unwrap(), store.list().len()), (1, 0));
    });
}

/// When the queue is synced, the whole initial list is in the store. All its objects are delivered
/// as initial.
#[test]
fn d10_synced_when_the_initial_list_is_stored() {
    check(|| {
        let kind = [InformerQueue::DeltaFifo, InformerQueue::RealFifo][any(2)];
        let cache = Cache::new(kind);
        let waiter = thread::spawn({
            let (queue, store) = (Arc::clone(&cache.queue), Arc::clone(&cache.store));
            move || {
                queue.synced().wait();
                assert!(KnownObjects::list_keys(&*store).len() >= 2 && queue.has_synced());
            }
        });
        cache
            .queue
            .replace(
                vec![Thing::new("a", 1), Thing::new("b", 1)],
                ResourceVersion::new("1"),
            )
            .unwrap();
        cache.queue.add(Thing::new("c", 2)).unwrap();
        cache.queue.update(Thing::new("a", 3)).unwrap();
        waiter.join().unwrap();
        let mut view = cache.end();
        view.initial.sort_unstable();
        assert!(view.initial.iter().take(2).eq(["a", "b"]), "{view:?}");
        assert_eq!(view.objects.len(), 3);
    });
}
