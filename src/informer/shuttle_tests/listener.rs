//! The path of notifications through a listener: add channel, ring, next channel.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Recorder, Thing};
use crate::base::digest::Digest;
use crate::base::sync::{Mutex, any, check, join_all, thread};
use crate::base::threads::{LateOwner, Owner, StackSizes, Threads};
use crate::entry::Entry;
use crate::informer::delivery::Delivery;
use crate::informer::handler::{KeyedNotification, Notification};
use crate::informer::listener::{Callee, Handler, HandlerBuffer, ProcessorListener, Resync};
use crate::informer::shared_processor::SharedProcessor;
use crate::object::{Deleted, Object};
use crate::reflector::ReclaimQueue;
use crate::time::RealClock;

pub(super) fn listener(recorder: &Recorder) -> ProcessorListener<Thing> {
    listener_with(recorder, HandlerBuffer::Unbounded)
}

fn listener_with(recorder: &Recorder, buffer: HandlerBuffer) -> ProcessorListener<Thing> {
    let inline = LateOwner::default();
    let handler = Arc::new(Handler::new("handler".into(), "informer".into(), &inline));
    let resync = Resync::new(Duration::ZERO, Duration::ZERO, 1, Instant::now());
    let callee = Callee {
        handler: Box::new(recorder.clone()),
        buffer,
        stacks: StackSizes::default(),
        clock: Arc::new(RealClock),
    };
    ProcessorListener::new(handler, resync, callee)
}

/// Starts a listener alone, with threads.
fn start(listener: &mut ProcessorListener<Thing>, threads: &Threads) {
    let reclaim = Arc::new(ReclaimQueue::new("informer".into()));
    listener
        .start(Delivery::Threads, threads, &reclaim)
        .unwrap();
}

fn things(count: usize) -> Vec<Arc<Thing>> {
    (1..=count)
        .map(|at| Thing::new(&at.to_string(), at))
        .collect()
}

fn initial(thing: &Arc<Thing>) -> KeyedNotification<Thing> {
    let event = Notification::Added {
        object: Arc::clone(thing),
        is_in_initial_list: true,
    };
    KeyedNotification {
        key: thing.name().into(),
        event,
    }
}

fn cached(thing: &Arc<Thing>) -> Entry<Thing> {
    Entry {
        version: None,
        key: thing.name().into(),
        object: Arc::clone(thing),
        digest: Digest::NONE,
    }
}

/// Checks that a prefix of `things` was delivered in order. Returns its length.
fn delivered(recorder: &Recorder, things: &[Arc<Thing>]) -> usize {
    recorder.read(|view| {
        assert!(
            view.initial
                .iter()
                .map(String::as_str)
                .eq(things.iter().take(view.calls).map(|t| t.name()))
        );
        view.calls
    })
}

/// Every notification is delivered in order. The handler is synced after the last one, and not
/// before.
#[test]
fn sp8_sp11_all_events_are_delivered_in_order() {
    check(|| {
        let (threads, recorder, things) = (Threads::new(Owner::new()), Recorder::new(), things(4));
        let mut listener = listener(&recorder);
        start(&mut listener, &threads);
        let waiter = thread::spawn({
            let (handler, recorder) = (Arc::clone(&listener.handler), recorder.clone());
            move || {
                handler.synced().wait();
                assert_eq!(recorder.read(|view| view.calls), 4);
            }
        });
        let together = any(4);
        for (at, thing) in things.iter().enumerate() {
            listener.add(initial(thing));
            if at == together {
                listener.flush();
            }
        }
        listener.flush();
        listener.handler.set_upstream_synced();
        waiter.join().unwrap();
        drop(listener);
        threads.join();
        assert_eq!(delivered(&recorder, &things), 4);
    });
}

/// A listener can be dropped at any point, before its threads run or during a call. Both threads
/// end, a prefix of the notifications is delivered, and none of the others stays in memory.
#[test]
fn sp12_drop_at_any_point_ends_the_threads() {
    check(|| {
        let (threads, recorder, things) = (
            Arc::new(Threads::new(Owner::new())),
            Recorder::new(),
            things(4),
        );
        let mut listener = listener(&recorder);
        let added = any(5);
        let adder = thread::spawn({
            let (threads, things) = (Arc::clone(&threads), things.clone());
            move || {
                start(&mut listener, &threads);
                things.iter().take(added).for_each(|thing| {
                    listener.add(initial(thing));
                    if any(2) == 0 {
                        listener.flush();
                    }
                });
            }
        });
        adder.join().unwrap();
        let joiners = [(); 2].map(|()| {
            let (threads, recorder) = (Arc::clone(&threads), recorder.clone());
            thread::spawn(move || {
                threads.join();
                recorder.read(|view| view.calls)
            })
        });
        let joined = join_all(joiners);
        let delivered = delivered(&recorder, &things);
        assert!(delivered <= added);
        assert_eq!(joined, [delivered; 2], "no call follows a join");
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
        assert_eq!(
            Arc::strong_count(&recorder.shared),
            1,
            "the handler is dropped"
        );
    });
}

/// A handler is removed during a distribution. It receives a prefix, and the other handler receives
/// everything.
#[test]
fn sp6_handler_removed_during_distribution_gets_a_prefix() {
    check(|| {
        let processor = Arc::new(SharedProcessor::new("informer".into(), Owner::new()));
        let (kept, removed, things) = (Recorder::new(), Recorder::new(), things(3));
        processor.add_listener(listener(&kept), Vec::new()).unwrap();
        let listener = listener(&removed);
        let handler = Arc::clone(&listener.handler);
        processor.add_listener(listener, Vec::new()).unwrap();
        processor.start(Delivery::Threads).unwrap();
        let remover = thread::spawn({
            let processor = Arc::clone(&processor);
            move || drop(processor.remove_listener(&handler))
        });
        for thing in &things {
            processor.distribute(initial(thing), None);
            if any(2) == 0 {
                processor.flush();
            }
        }
        processor.flush();
        kept.wait_for(|view| view.calls == 3);
        remover.join().unwrap();
        processor.stop();
        assert_eq!(delivered(&kept, &things), 3);
        delivered(&removed, &things);
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    });
}

/// The initial list of a late handler is sent while events are distributed. The other handler
/// receives them before the list has been sent. The late one receives the list first, or a prefix
/// if it is removed meanwhile.
#[test]
fn i12_replay_precedes_later_events_and_holds_up_no_other() {
    check(|| {
        let processor = Arc::new(SharedProcessor::new("informer".into(), Owner::new()));
        let (early, late, things) = (Recorder::new(), Recorder::new(), things(4));
        let _ = processor
            .add_listener(listener(&early), Vec::new())
            .unwrap();
        processor.start(Delivery::Threads).unwrap();
        let late_listener = listener(&late);
        let handler = Arc::clone(&late_listener.handler);
        let initial_list = things[..2].iter().map(cached).collect();
        let replay = processor.add_listener(late_listener, initial_list).unwrap();
        // The initial list counts even before it has been sent.
        handler.set_upstream_synced();
        let waits = any(2) == 0;
        let distribute = |at: usize| {
            processor.distribute(initial(&things[at]), None);
            processor.flush();
        };
        if waits {
            distribute(2);
            early.wait_for(|view| view.calls == 1);
        }
        let (removes, remover) = (any(3) == 0, Arc::clone(&processor));
        let replaying = thread::spawn(move || replay.unwrap().send());
        let removing = thread::spawn({
            let handler = Arc::clone(&handler);
            move || removes.then(|| drop(remover.remove_listener(&handler)))
        });
        (if waits { 3 } else { 2 }..4).for_each(distribute);
        replaying.join().unwrap();
        removing.join().unwrap();
        early.wait_for(|view| view.calls == 2);
        if !removes {
            handler.synced().wait();
            assert!(delivered(&late, &things) >= 2);
            late.wait_for(|view| view.calls == 4);
        }
        processor.stop();
        let calls = delivered(&late, &things);
        assert!(removes || calls == 4, "{calls}");
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    });
}

/// Consistent events of two objects, some of them of the initial list.
fn changes() -> Vec<KeyedNotification<Thing>> {
    let thing = |version| Thing::new("a", version);
    let update = |old, new| Notification::Modified {
        old: thing(old),
        new: thing(new),
    };
    let (other, delete) = (Thing::new("b", 1), |thing| {
        Notification::deleted(Deleted::Final(thing), None)
    });
    let of = |name: &str, event| KeyedNotification {
        key: name.into(),
        event,
    };
    vec![
        initial(&thing(1)),
        initial(&other),
        of("a", update(1, 2)),
        of("b", delete(Arc::clone(&other))),
        of("a", delete(thing(3))),
        of(
            "a",
            Notification::Added {
                object: thing(4),
                is_in_initial_list: false,
            },
        ),
        of("a", update(4, 5)),
    ]
}

/// A coalescing handler receives consistent events, ends in the same state as other handlers, and
/// becomes synced. A callback of `synced` may remove it on any thread while more changes arrive.
#[test]
fn sp8_sp11_coalescing_handler_reaches_final_state() {
    check(|| {
        let (processor, recorder) = (
            Arc::new(SharedProcessor::new("informer".into(), Owner::new())),
            Recorder::new(),
        );
        let listener = listener_with(&recorder, HandlerBuffer::Coalescing);
        let handler = Arc::clone(&listener.handler);
        processor.add_listener(listener, Vec::new()).unwrap();
        processor.start(Delivery::Threads).unwrap();
        let removes = any(2) == 0;
        let (remover, coalescing) = (Arc::clone(&processor), Arc::clone(&handler));
        let _synced = handler.synced().on_done(move || {
            if removes {
                drop(remover.remove_listener(&coalescing));
            }
        });
        let mut changes = changes();
        let rest = changes.split_off(2);
        changes
            .into_iter()
            .for_each(|change| drop(processor.distribute(change, None)));
        processor.flush();
        let syncing = thread::spawn({
            let processor = Arc::clone(&processor);
            move || processor.set_upstream_synced()
        });
        for change in rest {
            processor.distribute(change, None);
            if any(2) == 0 {
                processor.flush();
            }
        }
        processor.flush();
        handler.synced().wait();
        if !removes {
            recorder.wait_for(|view| view.objects.iter().eq([(&"a".to_owned(), &5)]));
            let stats = handler.stats();
            let calls = recorder.read(|view| view.calls);
            assert!(
                stats.merged as usize + calls == 7 && stats.most_waiting <= 4,
                "{calls} {stats:?}"
            );
        }
        syncing.join().unwrap();
        processor.stop();
        assert_eq!(Arc::strong_count(&recorder.shared), 1);
    });
}

/// Batches that skip the pop thread alternate with others: the handler waits before some of them. It
/// receives all events in order, and the counters agree.
#[test]
fn sp8_batches_past_the_pop_thread_keep_the_order() {
    check(|| {
        let (threads, recorder, things) = (Threads::new(Owner::new()), Recorder::new(), things(5));
        let buffers = [HandlerBuffer::Unbounded, HandlerBuffer::Coalescing];
        let mut listener = listener_with(&recorder, buffers[any(2)]);
        start(&mut listener, &threads);
        for (at, thing) in things.iter().enumerate() {
            listener.add(initial(thing));
            match any(3) {
                0 => {}
                1 => listener.flush(),
                _ => {
                    listener.flush();
                    recorder.wait_for(|view| view.calls == at + 1);
                }
            }
        }
        listener.flush();
        listener.handler.set_upstream_synced();
        listener.handler.synced().wait();
        assert_eq!(delivered(&recorder, &things), 5);
        let stats = listener.handler.stats();
        assert_eq!((stats.received, stats.delivered), (5, 5), "{stats:?}");
        drop(listener);
        threads.join();
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    });
}

/// A coalescing handler receives nothing of an object that is added and deleted in one batch, even
/// if it is waiting for events.
#[test]
fn sp8_coalescing_handler_gets_no_canceled_batch() {
    check(|| {
        let (threads, recorder) = (Threads::new(Owner::new()), Recorder::new());
        let mut listener = listener_with(&recorder, HandlerBuffer::Coalescing);
        start(&mut listener, &threads);
        for name in ["a", "b"] {
            let thing = Thing::new(name, 1);
            listener.add(initial(&thing));
            listener.add(KeyedNotification {
                key: name.into(),
                event: Notification::deleted(Deleted::Final(thing), None),
            });
            listener.flush();
        }
        listener.handler.set_upstream_synced();
        listener.handler.synced().wait();
        assert_eq!(recorder.read(|view| view.calls), 0);
        assert_eq!(listener.handler.stats().merged, 4);
        drop(listener);
        threads.join();
    });
}

/// Two threads distribute events and call an inline handler. After both have returned, each event has
/// been delivered once, in the order of the distribution.
#[test]
fn concurrent_deliveries_leave_no_event_behind() {
    check(|| {
        let processor = Arc::new(SharedProcessor::new("informer".into(), Owner::new()));
        let recorder = Recorder::new();
        let listener = listener(&recorder);
        let handler = Arc::clone(&listener.handler);
        processor.add_listener(listener, Vec::new()).unwrap();
        processor.start(Delivery::Inline).unwrap();
        // Like the informer, distributes and delivers under the lock of the calls. Some events are
        // left for the next delivery.
        let distributed = Arc::new(Mutex::new(Vec::new()));
        let things = things(6);
        let distributing = [&things[..3], &things[3..]].map(|things| {
            let (processor, distributed) = (Arc::clone(&processor), Arc::clone(&distributed));
            let things = things.to_vec();
            thread::spawn(move || {
                for thing in things {
                    let guard = processor.begin_change().unwrap();
                    {
                        let mut distributed = distributed.lock();
                        processor.distribute(initial(&thing), None);
                        distributed.push(thing);
                    }
                    if any(2) == 0 {
                        processor.deliver(&guard);
                    }
                }
                processor.deliver_waiting();
            })
        });
        join_all(distributing);
        assert_eq!(delivered(&recorder, &distributed.lock()), 6);
        let stats = handler.stats();
        assert_eq!((stats.delivered, stats.waiting), (6, 0), "{stats:?}");
        processor.stop();
        assert!(handler.ended.is_done());
        assert_eq!(Arc::strong_count(&recorder.shared), 1);
    });
}

/// A thread that has no changes does not wait for the one that is about to deliver a change, which may
/// be in the handler for long.
#[test]
fn thread_without_changes_does_not_wait_for_the_one_that_delivers() {
    check(|| {
        let processor = Arc::new(SharedProcessor::new("informer".into(), Owner::new()));
        let recorder = Recorder::new();
        processor
            .add_listener(listener(&recorder), Vec::new())
            .unwrap();
        processor.start(Delivery::Inline).unwrap();
        let guard = processor.begin_change().unwrap();
        let things = things(1);
        let other = thread::spawn({
            let processor = Arc::clone(&processor);
            move || processor.deliver_waiting()
        });
        processor.distribute(initial(&things[0]), None);
        other.join().unwrap();
        assert_eq!(recorder.read(|view| view.calls), 0);
        processor.deliver(&guard);
        assert_eq!(delivered(&recorder, &things), 1);
        drop(guard);
        processor.stop();
    });
}

/// Inline handlers are added and removed during a delivery. A late handler receives its initial list
/// and then each later event. A removed one receives a prefix and ends.
#[test]
fn i12_sp12_inline_handler_added_or_removed_during_a_delivery() {
    check(|| {
        let processor = Arc::new(SharedProcessor::new("informer".into(), Owner::new()));
        let (kept, removed, late) = (Recorder::new(), Recorder::new(), Recorder::new());
        processor.add_listener(listener(&kept), Vec::new()).unwrap();
        let removed_listener = listener(&removed);
        let removed_handler = Arc::clone(&removed_listener.handler);
        processor
            .add_listener(removed_listener, Vec::new())
            .unwrap();
        processor.start(Delivery::Inline).unwrap();
        let things = things(4);
        // The objects that have been distributed.
        let distributed = Arc::new(Mutex::new(Vec::new()));
        let removing = thread::spawn({
            let (processor, handler) = (Arc::clone(&processor), Arc::clone(&removed_handler));
            move || drop(processor.remove_listener(&handler))
        });
        let adding = thread::spawn({
            let (processor, late) = (Arc::clone(&processor), late.clone());
            let distributed = Arc::clone(&distributed);
            move || {
                let listener = listener(&late);
                let handler = Arc::clone(&listener.handler);
                let replay = {
                    let distributed = distributed.lock();
                    let initial = distributed.iter().map(cached).collect();
                    processor.add_listener(listener, initial).unwrap()
                };
                assert!(
                    replay.is_none(),
                    "the next delivery begins with the initial list"
                );
                handler.set_upstream_synced();
                // The informer interrupts one of its threads, or starts one, which delivers.
                processor.deliver_waiting();
                handler
            }
        });
        for thing in &things {
            let guard = processor.begin_change().unwrap();
            {
                let mut distributed = distributed.lock();
                processor.distribute(initial(thing), None);
                distributed.push(Arc::clone(thing));
            }
            processor.deliver(&guard);
        }
        // Like each thread of an informer, after its changes.
        processor.deliver_waiting();
        removing.join().unwrap();
        let late_handler = adding.join().unwrap();
        assert_eq!(
            (delivered(&kept, &things), delivered(&late, &things)),
            (4, 4)
        );
        assert!(late_handler.synced().is_done());
        delivered(&removed, &things);
        assert!(removed_handler.ended.is_done());
        assert_eq!(Arc::strong_count(&removed.shared), 1);
        processor.stop();
        distributed.lock().clear();
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    });
}
