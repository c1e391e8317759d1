//! The hand-off of a listener: add channel, ring, next channel.

use std::sync::Arc;
use std::time::Duration;

use super::{Recorder, Thing};
use crate::informer::handler::{Event, Notification};
use crate::informer::listener::{HandlerBuffer, NewListener, ProcessorListener};
use crate::informer::shared_processor::SharedProcessor;
use crate::object::Object;
use crate::sync::{any, check, join_all, thread};
use crate::threads::{Owner, Threads};
use crate::time::RealClock;

fn listener(id: u64, recorder: &Recorder) -> ProcessorListener<Thing> {
    ProcessorListener::new(NewListener {
        id,
        informer: "informer".into(),
        name: "handler".into(),
        handler: Box::new(recorder.clone()),
        buffer: HandlerBuffer::Unbounded,
        requested: Duration::ZERO,
        period: Duration::ZERO,
        clock: Arc::new(RealClock),
    })
}

fn things(count: usize) -> Vec<Arc<Thing>> {
    (1..=count).map(|at| Thing::new(&at.to_string(), at)).collect()
}

fn initial(thing: &Arc<Thing>) -> Notification<Thing> {
    let event = Event::Added { object: Arc::clone(thing), is_in_initial_list: true };
    Notification { key: thing.name().into(), event }
}

/// What was delivered are the first of what was handed over, in order; answers how many.
fn delivered(recorder: &Recorder, things: &[Arc<Thing>]) -> usize {
    recorder.read(|view| {
        assert!(view.initial.iter().map(String::as_str).eq(things.iter().take(view.told).map(|t| t.name())));
        view.told
    })
}

/// Everything that is handed over is delivered, in order, and the handler is synced when all of it has been,
/// not before.
#[test]
fn sp8_sp11_everything_is_delivered_in_order() {
    check(|| {
        let (threads, recorder, things) = (Threads::new(Owner::new()), Recorder::new(), things(4));
        let listener = listener(1, &recorder);
        listener.start(&threads).unwrap();
        let waiter = thread::spawn({
            let (handler, recorder) = (Arc::clone(&listener.handler), recorder.clone());
            move || {
                handler.synced().wait();
                assert_eq!(recorder.read(|view| view.told), 4);
            }
        });
        things.iter().for_each(|thing| listener.add(initial(thing)));
        listener.handler.upstream_has_synced();
        waiter.join().unwrap();
        drop(listener);
        threads.join();
        assert_eq!(delivered(&recorder, &things), 4);
    });
}

/// A listener that is dropped at any point, before its threads run or while a call does: both end, what was
/// delivered is a beginning of what was handed over, and nothing of the rest stays in memory.
#[test]
fn sp12_a_close_at_any_point_ends_the_threads() {
    check(|| {
        let (threads, recorder, things) = (Arc::new(Threads::new(Owner::new())), Recorder::new(), things(4));
        let listener = listener(1, &recorder);
        let added = any(5);
        let adder = thread::spawn({
            let (threads, things) = (Arc::clone(&threads), things.clone());
            move || {
                listener.start(&threads).unwrap();
                listener.start(&threads).unwrap();
                things.iter().take(added).for_each(|thing| listener.add(initial(thing)));
            }
        });
        adder.join().unwrap();
        let joiners = [(); 2].map(|()| {
            let (threads, recorder) = (Arc::clone(&threads), recorder.clone());
            thread::spawn(move || {
                threads.join();
                recorder.read(|view| view.told)
            })
        });
        let joined = join_all(joiners);
        let delivered = delivered(&recorder, &things);
        assert!(delivered <= added);
        assert_eq!(joined, [delivered; 2], "nothing is called after any of the joins");
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
        assert_eq!(Arc::strong_count(&recorder.shared), 1, "nor the handler");
    });
}

/// One handler is removed while another is told: that one gets everything, the removed one a beginning.
#[test]
fn sp6_a_handler_is_removed_while_others_are_told() {
    check(|| {
        let processor = Arc::new(SharedProcessor::new(Owner::new()));
        let (stays, goes, things) = (Recorder::new(), Recorder::new(), things(3));
        processor.add_listener(listener(1, &stays), []).unwrap();
        processor.add_listener(listener(2, &goes), []).unwrap();
        processor.start().unwrap();
        let remover = thread::spawn({
            let processor = Arc::clone(&processor);
            move || drop(processor.remove_listener(2))
        });
        things.iter().for_each(|thing| processor.distribute(initial(thing), false));
        stays.wait_for(|view| view.told == 3);
        remover.join().unwrap();
        processor.stop();
        assert_eq!(delivered(&stays, &things), 3);
        delivered(&goes, &things);
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    });
}
