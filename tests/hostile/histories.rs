//! A restored etcd assigns the same versions again, to other states. Objects cached before the
//! restore must not be taken for those of the new history.

use std::io::{Cursor, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use k8s_informer::error::Status;
use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
use k8s_informer::object::{Accessor, ResourceVersion};
use k8s_informer::queue::Fifo;
use k8s_informer::reflector::{Body, ListOptions, ListWatch, Reflector};
use k8s_informer::store::{IndexFunc, Indexers, ReflectorStore};
use k8s_informer::{
    Error, Indexer, Lister, ObjectMeta, SharedIndexInformer, Stop, Stopper, impl_object,
};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use serde::Deserialize;

use crate::hostile::support::{
    DELIVERIES, Delivery, EXPIRED, FORBIDDEN, LAST, QUEUES, State, TestInformer, event,
    initial_events, list, options, until,
};

/// A type with a text that differs between states.
#[derive(Clone, Deserialize)]
struct Note {
    metadata: ObjectMeta,
    #[serde(default)]
    text: String,
}

impl_object!(Note, "v1", "Note", "notes", Namespaced);

/// Object "a", where only the version and the text vary.
fn note(version: &str, text: &str) -> Vec<u8> {
    named("a", version, &format!("\"{text}\""))
}

fn named(name: &str, version: &str, text: &str) -> Vec<u8> {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{version}"}},"text":{text}}}"#
    )
    .into_bytes()
}

fn text(cache: &Lister<Note>) -> String {
    cache
        .get_by_key("ns/a")
        .map(|note| note.text.clone())
        .unwrap_or_default()
}

fn status(code: u16, reason: &str, cause: &str) -> Answer {
    let status = serde_json::json!({
        "status": "Failure", "code": code, "reason": reason,
        "details": { "causes": [{ "reason": cause }] },
    });
    let status: Status = serde_json::from_value(status).unwrap();
    Answer::error(Error::from_status(status))
}

#[test]
fn relist_after_expiry_decodes_everything() {
    for delivery in DELIVERIES {
        let states: [State; 2] = [
            ("9", vec![note("9", "first")]),
            ("9", vec![note("9", "second")]),
        ];
        for queue in QUEUES {
            let script = delivery.script(&states, b"");
            let informer = TestInformer::<Note>::run_paced(script, queue, 1, |_| {});
            informer.until_last();
            assert_eq!(
                text(&informer.informer.lister()),
                "second",
                "{delivery:?} {queue:?}"
            );
        }
        let store = Arc::new(Indexer::<Note>::for_objects());
        reflect(&delivery.script(&states, b""), store.clone());
        let lister = Lister::new(store);
        assert_eq!(text(&lister), "second", "{delivery:?}, a plain store");
        // A `Fifo` has no cached objects to reuse, so it always decodes everything.
        let fifo = Arc::new(Fifo::new(Accessor::object()));
        reflect(&delivery.script(&states, b""), fifo.clone());
        assert_eq!(fifo.list()[0].text, "second", "{delivery:?}, a Fifo");
    }
}

/// Runs a reflector into a store until its script ends.
fn reflect(script: &ScriptedListerWatcher, store: Arc<dyn ReflectorStore<Note>>) {
    let reflector = Reflector::new(Arc::new(script.clone()), store, options());
    let stop = Stopper::new();
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        until(|| reflector.last_sync_resource_version() == ResourceVersion::new("999"));
        stop.stop();
    });
}

#[test]
fn relist_after_a_lost_connection_decodes_everything() {
    let refused =
        || Answer::error(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
    let forbidden = || Answer::body(FORBIDDEN);
    let too_new = || status(504, "Timeout", "ResourceVersionTooLarge");
    let expired = || status(410, "Expired", "");
    let signs = || -> [(&str, Vec<Answer>); 9] {
        [
            ("refused", vec![refused(), forbidden()]),
            (
                "broken",
                vec![
                    Answer::broken(event("ADDED", &named("b", "9", "\"\""))),
                    forbidden(),
                ],
            ),
            (
                "broken within an event",
                vec![Answer::broken(r#"{"type":"#), forbidden()],
            ),
            (
                "ended early",
                vec![
                    Answer::body(event("ADDED", &named("b", "9", "\"\""))),
                    forbidden(),
                ],
            ),
            ("ended at once", vec![Answer::body("")]),
            ("unavailable", vec![status(503, "ServiceUnavailable", "")]),
            ("expired", vec![expired()]),
            ("list expired", vec![forbidden(), expired()]),
            ("list too new", vec![forbidden(), too_new()]),
        ]
    };
    for queue in QUEUES {
        for (sign, answers) in signs() {
            let first = Answer::body(list("9", "", &[note("9", "first")]));
            let second = Answer::body(list("9", "", &[note("9", "second")]));
            let rest = [second, Answer::open(LAST)];
            let script = ScriptedListerWatcher::new([first].into_iter().chain(answers).chain(rest));
            let informer = TestInformer::<Note>::run_paced(script, queue, 1, |_| {});
            informer.until_last();
            assert_eq!(
                text(&informer.informer.lister()),
                "second",
                "{sign}, {queue:?}"
            );
        }
    }
}

#[test]
fn list_after_one_with_unreadable_item_is_decoded_in_full() {
    // The second list is from another history. Its unreadable item leaves the cached copy in place.
    let states: [State; 3] = [
        ("9", vec![note("9", "first")]),
        ("4", vec![named("a", "4", "7"), named("b", "4", "\"\"")]),
        ("9", vec![note("9", "third"), named("b", "4", "\"\"")]),
    ];
    for delivery in DELIVERIES {
        for queue in QUEUES {
            let informer = relisted(delivery, queue, &states, |_| Ok(()));
            informer.until_text("third");
        }
    }
}

#[test]
fn list_after_an_unindexed_state_is_decoded_in_full() {
    // The index function fails for the second state of "a", which is cached without values.
    let states: [State; 3] = [
        ("9", vec![note("9", "first")]),
        ("4", vec![note("4", "second"), named("b", "4", "\"\"")]),
        ("9", vec![note("9", "third"), named("b", "4", "\"\"")]),
    ];
    for delivery in DELIVERIES {
        for queue in QUEUES {
            let reject = |note: &Note| {
                if note.text == "second" {
                    Err("rejected")
                } else {
                    Ok(())
                }
            };
            let informer = relisted(delivery, queue, &states, reject);
            informer.until_text("third");
        }
    }
}

/// An informer that runs until the end of the test.
struct Running {
    case: String,
    informer: SharedIndexInformer<Note>,
    stop: Stopper,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn start(
        case: String,
        lister_watcher: impl k8s_informer::reflector::ListerWatcher + 'static,
        queue: InformerQueue,
        index: impl Fn(&Note) -> Result<(), &'static str> + Send + Sync + 'static,
    ) -> Self {
        let mut informer_options = SharedIndexInformerOptions::new().reflector(options());
        informer_options.queue = queue;
        let index = IndexFunc::fallible(move |note: &Note| index(note).map(|()| Vec::new()));
        informer_options.indexers = Indexers::new().with("index", index);
        let informer = SharedIndexInformer::<Note>::new(Arc::new(lister_watcher), informer_options);
        let stop = Stopper::new();
        let thread = thread::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            move || informer.run(&stop).unwrap()
        });
        Self {
            case,
            informer,
            stop,
            thread: Some(thread),
        }
    }

    /// Waits until the cache has the last event of the script. Asserts the text of "a".
    fn until_text(&self, expected: &str) {
        let cache = self.informer.lister();
        until(|| cache.get_by_key("last").is_some());
        assert_eq!(text(&cache), expected, "{}", self.case);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok());
        }
    }
}

/// Starts an informer that receives these states without a sign of another history: each watch ends
/// with [`FORBIDDEN`]. Each list waits until the cache has as many objects as the previous state.
fn relisted(
    delivery: Delivery,
    queue: InformerQueue,
    states: &[State],
    index: impl Fn(&Note) -> Result<(), &'static str> + Send + Sync + 'static,
) -> Running {
    let script = delivery.script_between(FORBIDDEN, states, b"");
    let cache = Arc::new(OnceLock::<Lister<Note>>::new());
    let sizes: Vec<usize> = states.iter().map(|(_, items)| items.len()).collect();
    let lists = Arc::new(AtomicUsize::new(0));
    let wait = {
        let cache = Arc::clone(&cache);
        move |options: &ListOptions, initial: bool| {
            if !initial || options.continue_token.is_some() {
                return;
            }
            if let Some(before) = lists.fetch_add(1, Ordering::SeqCst).checked_sub(1) {
                until(|| {
                    cache
                        .get()
                        .is_some_and(|cache| cache.len() >= sizes[before])
                });
            }
        }
    };
    let wait = Arc::new(wait);
    let (list_script, watch_script, list_wait) =
        (script.clone(), script.clone(), Arc::clone(&wait));
    let list = move |options: &ListOptions, stop: &Stop| {
        list_wait(options, true);
        k8s_informer::reflector::ListerWatcher::list(&list_script, options, stop)
    };
    let watch = move |options: &ListOptions, stop: &Stop| {
        wait(options, options.send_initial_events);
        k8s_informer::reflector::ListerWatcher::watch(&watch_script, options, stop)
    };
    let mut lister_watcher = ListWatch::new(list, watch);
    if delivery == Delivery::WatchList {
        lister_watcher = lister_watcher.with_watch_list();
    }
    let running = Running::start(
        format!("{delivery:?} {queue:?}"),
        lister_watcher,
        queue,
        index,
    );
    let _ = cache.set(running.informer.lister());
    running
}

#[derive(Default)]
struct Gate {
    is_reached: AtomicBool,
    is_open: AtomicBool,
}

/// A body that opens the gate when everything before it has been read.
struct OpensGate(Arc<Gate>);

impl Read for OpensGate {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.0.is_open.store(true, Ordering::SeqCst);
        Ok(0)
    }
}

/// A body that is silent until the stop.
struct Silence(Stop);

impl Read for Silence {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.0.wait();
        Ok(0)
    }
}

/// Splits a body after the object with the text "third".
fn split(body: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let end = body
        .windows(8)
        .position(|bytes| bytes == b"\"third\"}")
        .unwrap()
        + 8;
    // In an event, the object is followed by a brace and a line break.
    let end = if body[end] == b'}' { end + 2 } else { end };
    (body[..end].to_vec(), body[end..].to_vec())
}

#[test]
fn list_during_processing_of_previous_is_decoded_in_full() {
    // The third list arrives while the second one, of another history, is being processed. The
    // cache then still has the first state, which has the same version as the third state.
    for delivery in [Delivery::List, Delivery::WatchList] {
        for queue in QUEUES {
            let gate = Arc::new(Gate::default());
            let cache = Arc::new(OnceLock::<Lister<Note>>::new());
            let states = [("9", "first"), ("4", "second"), ("9", "third")];
            let (lists, watches) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let state = {
                let (gate, cache) = (Arc::clone(&gate), Arc::clone(&cache));
                move |at: usize| {
                    match at {
                        1 => until(|| cache.get().is_some_and(|cache| !cache.is_empty())),
                        2 => until(|| gate.is_reached.load(Ordering::SeqCst)),
                        _ => {}
                    }
                    let (version, text) = states[at];
                    (version, vec![note(version, text)])
                }
            };
            let opening = {
                let gate = Arc::clone(&gate);
                move |at: usize, body: Vec<u8>| match at {
                    2 => {
                        let (first, rest) = split(body);
                        let opens = OpensGate(Arc::clone(&gate));
                        Box::new(Cursor::new(first).chain(opens).chain(Cursor::new(rest)))
                            as Box<dyn Read + Send>
                    }
                    _ => Box::new(Cursor::new(body)),
                }
            };
            let (state, opening) = (Arc::new(state), Arc::new(opening));
            let list = {
                let (state, opening) = (Arc::clone(&state), Arc::clone(&opening));
                move |_: &ListOptions, _: &Stop| {
                    let at = lists.fetch_add(1, Ordering::SeqCst);
                    let (version, items) = state(at);
                    Ok(Body::new(opening(at, list(version, "", &items))))
                }
            };
            let watch = move |options: &ListOptions, stop: &Stop| {
                let at = watches.fetch_add(1, Ordering::SeqCst);
                let mut body = Vec::new();
                if options.send_initial_events {
                    let (version, items) = state(at);
                    body = initial_events(version, &items);
                }
                let last = at == 2;
                body.extend_from_slice(if last { LAST } else { FORBIDDEN }.as_bytes());
                body.push(b'\n');
                let silence = Silence(if last { stop.clone() } else { stopped() });
                let at = if options.send_initial_events { at } else { 0 };
                Ok(Body::new(opening(at, body).chain(silence)))
            };
            let mut lister_watcher = ListWatch::new(list, watch);
            if delivery == Delivery::WatchList {
                lister_watcher = lister_watcher.with_watch_list();
            }
            let index = {
                let gate = Arc::clone(&gate);
                move |note: &Note| {
                    if note.text == "second" {
                        gate.is_reached.store(true, Ordering::SeqCst);
                        until(|| gate.is_open.load(Ordering::SeqCst));
                    }
                    Ok(())
                }
            };
            let running = Running::start(
                format!("{delivery:?} {queue:?}"),
                lister_watcher,
                queue,
                index,
            );
            let _ = cache.set(running.informer.lister());
            running.until_text("third");
        }
    }
}

fn stopped() -> Stop {
    let stop = Stopper::new();
    stop.stop();
    stop.signal()
}

#[test]
fn relist_decodes_everything_until_a_full_list_is_processed() {
    // Nothing is popped from the queue, so no list is ever processed. The third list is decoded
    // even if the last watch ended without a sign of another history.
    for (ends, expected) in [([EXPIRED, FORBIDDEN], 3), ([FORBIDDEN, EXPIRED], 3)] {
        let body = |end: &str| Answer::body(end);
        let lists = ["first", "second", "third"]
            .map(|text| Answer::body(list("9", "", &[note("9", text)])));
        let [first, second, third] = lists;
        let script = ScriptedListerWatcher::new([
            first,
            body(ends[0]),
            second,
            body(ends[1]),
            third,
            Answer::open(LAST),
        ]);
        let queue = Arc::new(k8s_informer::queue::DeltaFifo::new(Accessor::object()));
        reflect(&script, queue.clone());
        let deltas = &queue.list()[0];
        let texts: Vec<_> = deltas
            .iter()
            .filter_map(|delta| Some(delta.object()?.text.clone()))
            .collect();
        assert_eq!(texts.len(), expected);
        assert_eq!(texts, ["first", "second", "third"], "{ends:?}");
    }
}
