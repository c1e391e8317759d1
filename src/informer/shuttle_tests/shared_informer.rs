//! A whole informer: its threads, its handlers, and a stop at any point.

use std::cell::RefCell;
use std::io::{self, Read};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Metadata, Recorder, Thing, View};
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{any, check_times, thread};
use crate::handler::HandlerFuncs;
use crate::handler::{HandlerBuffer, HandlerOptions, HandlerRegistration};
use crate::informer::{
    InformerError, InformerQueue, SharedIndexInformer, SharedIndexInformerOptions,
};
use crate::object::Object;
use crate::reflector::{Body, ListWatch};
use crate::stop::{Stop, Stopper};
use crate::wire::ListOptions;

/// The share of the usual number of schedules, because each run is long.
const SHARE: f64 = 0.5;

const LIST: &str = r#"{"kind": "List", "metadata": {"resourceVersion": "1"}, "items": [
    {"metadata": {"name": "a", "resourceVersion": "1"}},
    {"metadata": {"name": "b", "resourceVersion": "1"}}]}"#;

const EVENTS: &[u8] =
    br#"{"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "2"}}}
{"type": "ADDED", "object": {"metadata": {"name": "c", "resourceVersion": "3"}}}
{"type": "DELETED", "object": {"metadata": {"name": "b", "resourceVersion": "4"}}}
"#;

/// A watch that returns some events and then blocks until the stop.
struct Watch {
    events: &'static [u8],
    stop: Stop,
}

impl Read for Watch {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.events.is_empty() {
            self.stop.wait();
        }
        self.events.read(buffer)
    }
}

fn informer() -> SharedIndexInformer<Thing> {
    informer_for(EVENTS, false)
}

/// An informer whose watch has these events. A second watch has none.
fn informer_for<T: Object + DeserializeOwned>(
    events: &'static [u8],
    one_thread: bool,
) -> SharedIndexInformer<T> {
    let watches = AtomicUsize::new(0);
    let server = ListWatch::new(
        |_: &ListOptions, _: &Stop| Ok(Body::from(LIST)),
        move |_: &ListOptions, stop: &Stop| {
            let is_first = watches.fetch_add(1, Ordering::SeqCst) == 0;
            Ok(Body::new(Watch {
                events: if is_first { events } else { b"" },
                stop: stop.clone(),
            }))
        },
    );
    let queues = [InformerQueue::DeltaFifo, InformerQueue::RealFifo];
    let options = SharedIndexInformerOptions::new()
        .queue(queues[any(2)])
        .one_thread(one_thread);
    SharedIndexInformer::new(Arc::new(server), options)
}

/// Whether the view has the state after all events.
fn has_all(view: &View) -> bool {
    view.objects
        .iter()
        .map(|(name, version)| (name.as_str(), *version))
        .eq([("a", 2), ("c", 3)])
}

fn run(
    informer: &SharedIndexInformer<Thing>,
    stop: &Stop,
) -> thread::JoinHandle<Result<(), InformerError>> {
    let (informer, stop) = (informer.clone(), stop.clone());
    thread::spawn(move || informer.run(&stop))
}

fn add(
    informer: &SharedIndexInformer<Thing>,
    recorder: &Recorder,
) -> thread::JoinHandle<Result<HandlerRegistration, InformerError>> {
    let (informer, recorder) = (informer.clone(), recorder.clone());
    let mut options = HandlerOptions::default();
    if any(2) == 0 {
        options.buffer = HandlerBuffer::Coalescing;
    }
    thread::spawn(move || informer.add_handler_with_options(recorder, options))
}

/// A handler added at any point receives every object once and becomes synced.
#[test]
fn i12_handler_added_at_any_point_gets_all_objects() {
    check_times(SHARE, || {
        let (informer, stop, early, late) =
            (informer(), Stopper::new(), Recorder::new(), Recorder::new());
        let first = informer.add_handler(early.clone()).unwrap();
        let adding = add(&informer, &late);
        let running = run(&informer, &stop);
        let second = adding.join().unwrap().unwrap();
        for (recorder, registration) in [(&early, &first), (&late, &second)] {
            registration.synced().wait();
            recorder.wait_for(has_all);
        }
        assert!(informer.has_synced());
        stop.stop();
        running.join().unwrap().unwrap();
        assert!(early.read(has_all) && late.read(has_all));
    });
}

/// Handlers are added and removed while the informer is stopped at any point. The run and all
/// threads end. A handler added after the stop gets an error, and no handler is called after the
/// end.
#[test]
fn i8_i14_stop_at_any_point_ends_run_and_handlers() {
    check_times(SHARE, || {
        let (informer, stop, early, late) =
            (informer(), Stopper::new(), Recorder::new(), Recorder::new());
        let first = informer.add_handler(early.clone()).unwrap();
        let running = run(&informer, &stop);
        let adding = add(&informer, &late);
        let removing = thread::spawn({
            let informer = informer.clone();
            move || informer.remove_event_handler(&first)
        });
        if any(2) == 0 {
            informer.synced().wait();
        }
        stop.stop();
        running.join().unwrap().unwrap();
        assert!(informer.is_stopped());
        let calls = early.read(|view| view.calls);
        let added = adding.join().unwrap();
        assert!(
            matches!(added, Ok(_) | Err(InformerError::Stopped { .. })),
            "{added:?}"
        );
        removing.join().unwrap();
        assert!(matches!(
            informer.add_handler(Recorder::new()),
            Err(InformerError::Stopped { .. })
        ));
        assert_eq!(early.read(|view| view.calls), calls);
        assert_eq!(
            Arc::strong_count(&late.shared),
            1,
            "the handler is dropped with its threads"
        );
    });
}

/// The same events, and a frame that is none.
const EVENTS_AND_GARBAGE: &[u8] =
    br#"{"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "2"}}}
{"type": "ADDED", "object": {"metadata": {"name": "c", "resourceVersion": "3"}}}
{"type": "DELETED", "object": {"metadata": {"name": "b", "resourceVersion": "4"}}}
nonsense
"#;

/// A callback for errors waits until the handler has all events that were read before the error. The
/// callback runs on the reflector's thread, which therefore holds up no event.
#[test]
fn error_callback_may_wait_for_events_read_before() {
    check_times(SHARE, || {
        let (informer, stop, recorder) = (
            informer_for::<Thing>(EVENTS_AND_GARBAGE, any(2) == 0),
            Stopper::new(),
            Recorder::new(),
        );
        informer.add_handler(recorder.clone()).unwrap();
        let waits = recorder.clone();
        let _subscription = informer.on_error(move |_| waits.wait_for(has_all));
        let running = run(&informer, &stop);
        recorder.wait_for(has_all);
        stop.stop();
        running.join().unwrap().unwrap();
    });
}

thread_local! {
    /// The informer that destructors call. All threads of a model are one thread of the system.
    static CALLED: RefCell<Option<SharedIndexInformer<Calling>>> = const { RefCell::new(None) };
}

/// An object whose destructor adds and removes a handler.
#[derive(Debug, Deserialize)]
struct Calling {
    metadata: Metadata,
}

impl Object for Calling {
    fn name(&self) -> &str {
        &self.metadata.name
    }
    fn namespace(&self) -> &str {
        ""
    }
    fn uid(&self) -> &str {
        ""
    }
    fn resource_version(&self) -> &str {
        &self.metadata.version
    }
    fn label(&self, _: &str) -> Option<&str> {
        None
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let informer = CALLED.with_borrow(Clone::clone);
        if let Some(informer) = informer
            && let Ok(handler) = informer.add_handler(HandlerFuncs::new())
        {
            informer.remove_event_handler(&handler);
        }
    }
}

/// No destructor runs under a lock that adding and removing a handler needs, also not with a stop at
/// any point.
#[test]
fn destructors_may_add_and_remove_handlers() {
    check_times(SHARE / 2.0, || {
        let (informer, stop) = (informer_for::<Calling>(EVENTS, any(2) == 0), Stopper::new());
        CALLED.set(Some(informer.clone()));
        let has_handler = any(2) == 0;
        if has_handler {
            let mut options = HandlerOptions::default();
            if any(2) == 0 {
                options.buffer = HandlerBuffer::Coalescing;
            }
            informer
                .add_handler_with_options(HandlerFuncs::new(), options)
                .unwrap();
        }
        let running = thread::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            move || informer.run(&stop)
        });
        if any(2) == 0 {
            informer.synced().wait();
        }
        stop.stop();
        running.join().unwrap().unwrap();
        CALLED.set(None);
    });
}
