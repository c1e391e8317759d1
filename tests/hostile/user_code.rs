//! User code that fails for an object: decoding, keys and transforms.

use std::io::{self, Read};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::informer::InformerQueue;
use k8s_informer::object::{Accessor, Key, KeyError, ResourceVersion, meta_namespace_key};
use k8s_informer::queue::{
    Delta, DeltaFifo, DeltaFifoOptions, Deltas, Origin, Queue, RealFifo, RealFifoOptions,
};
use k8s_informer::reflector::{
    Body, ListOptions, ListWatch, Reflector, ReflectorOptions, ReflectorStatus,
};
use k8s_informer::store::{Indexers, ReflectorStore, Transform};
use k8s_informer::time::Clock;
use k8s_informer::{
    Deleted, DynamicObject, Indexer, Object, ObjectMeta, Stop, Stopper, impl_object,
};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use serde::{Deserialize, Deserializer};

use crate::hostile::objects::{object, with};
use crate::hostile::support::{
    DELIVERIES, EXPIRED, LAST, QUEUES, TestInformer, event, list, options, until,
};

/// A type whose decoding panics for some objects.
#[derive(Debug, Deserialize)]
struct Fragile {
    metadata: ObjectMeta,
    #[serde(default, rename = "spec", deserialize_with = "panics")]
    _spec: (),
}

impl_object!(Fragile, "v1", "Fragile", "fragiles", Namespaced);

fn panics<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    resume_unwind(Box::new("bad spec"))
}

#[test]
fn decoding_panic_skips_only_that_object() {
    for queue in QUEUES {
        for delivery in DELIVERIES {
            let broken = with("b", "5", "", r#","spec":7"#);
            let states = [
                (
                    "4",
                    vec![object("a", "1"), object("b", "2"), object("c", "3")],
                ),
                ("6", vec![object("a", "1"), broken]),
            ];
            let deleted = event("DELETED", &with("a", "7", "", r#","spec":7"#));
            let informer =
                TestInformer::<Fragile>::run(delivery.script(&states, &deleted), queue, |_| {});
            assert_eq!(informer.cache(), ["ns/b@2"], "{delivery:?} {queue:?}");
            let status = informer.status();
            assert_eq!((status.complete, status.unreadable), (false, 2));
            let error = status.last_error.unwrap().to_string();
            assert!(
                error.ends_with(
                    "ns/a: unexpected response: the type's Deserialize implementation panicked: bad spec"
                ),
                "{error}"
            );
        }
    }
}

/// A type whose accessors are written by hand. The one that its `spec` names panics.
#[derive(Debug, Deserialize)]
struct Touchy {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: String,
}

impl Touchy {
    fn touch(&self, accessor: &str) {
        if self.spec == accessor {
            resume_unwind(Box::new("bad spec"));
        }
    }
}

impl Object for Touchy {
    fn name(&self) -> &str {
        self.touch("name");
        self.metadata.name()
    }

    fn namespace(&self) -> &str {
        self.touch("namespace");
        self.metadata.namespace()
    }

    fn uid(&self) -> &str {
        self.touch("uid");
        self.metadata.uid()
    }

    fn resource_version(&self) -> &str {
        self.touch("resource_version");
        self.metadata.resource_version()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.label(key)
    }

    fn set_type_meta(&mut self, _: &str, _: &str) {
        self.touch("set_type_meta");
    }
}

/// Checks an informer that has read two objects whose accessors panic: a listed one, which was
/// cached before, and then a deletion.
fn check_touchy(informer: &TestInformer<Touchy>, accessor: &str, case: &str) {
    assert_eq!(informer.cache(), ["ns/b@2"], "{accessor} {case}");
    let status = informer.status();
    let unreadable = (status.complete, status.unreadable);
    assert_eq!(unreadable, (false, 2), "{accessor} {case}");
    let error = status.last_error.unwrap().to_string();
    let expected = "ns/a: unexpected response: an accessor of the type panicked: bad spec";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn accessor_panic_skips_only_that_object() {
    for accessor in ["name", "namespace", "uid", "resource_version"] {
        let touchy = |name: &str, version: &str| {
            with(name, version, "", &format!(r#","spec":"{accessor}""#))
        };
        let first = vec![object("a", "1"), object("b", "2"), object("c", "3")];
        let second = vec![object("a", "1"), touchy("b", "5")];
        let states = [("4", first), ("6", second)];
        for queue in QUEUES {
            for delivery in DELIVERIES {
                let case = format!("{delivery:?} {queue:?}");
                let deleted = event("DELETED", &touchy("a", "7"));
                let script = delivery.script(&states, &deleted);
                let informer = TestInformer::<Touchy>::run(script, queue, |_| {});
                check_touchy(&informer, accessor, &case);
                // The event is not in the usual form.
                let mut deleted = event("DELETED", &touchy("a", "7"));
                deleted.insert(1, b' ');
                let script = delivery.script(&states, &deleted);
                let informer = TestInformer::<Touchy>::run(script, queue, |_| {});
                check_touchy(&informer, accessor, &case);
            }
        }
    }
}

#[test]
fn first_list_with_accessor_panics_syncs() {
    for accessor in [
        "name",
        "namespace",
        "uid",
        "resource_version",
        "set_type_meta",
    ] {
        let touchy = with("b", "2", "", &format!(r#","spec":"{accessor}""#));
        let items = [object("a", "1"), touchy, object("c", "3")].join(&b","[..]);
        let items = String::from_utf8(items).unwrap();
        // The kind comes before the items, or after them.
        for list in [
            format!(
                r#"{{"kind":"TouchyList","metadata":{{"resourceVersion":"4"}},"items":[{items}]}}"#
            ),
            format!(
                r#"{{"items":[{items}],"metadata":{{"resourceVersion":"4"}},"kind":"TouchyList"}}"#
            ),
        ] {
            for queue in QUEUES {
                let script =
                    ScriptedListerWatcher::new([Answer::body(list.clone()), Answer::open(LAST)]);
                let informer = TestInformer::<Touchy>::run(script, queue, |_| {});
                assert_eq!(informer.cache(), ["ns/a@1", "ns/c@3"], "{accessor}");
                let status = informer.status();
                assert_eq!((status.complete, status.unreadable), (false, 1));
            }
        }
    }
}

/// Runs a reflector into a store until its script ends.
pub(crate) fn reflect(
    script: &ScriptedListerWatcher,
    store: Arc<dyn ReflectorStore<DynamicObject>>,
) -> ReflectorStatus {
    reflect_with(script, store, |_| {})
}

/// Like [`reflect`], with other options.
pub(crate) fn reflect_with(
    script: &ScriptedListerWatcher,
    store: Arc<dyn ReflectorStore<DynamicObject>>,
    set: impl FnOnce(&mut ReflectorOptions),
) -> ReflectorStatus {
    let mut options = options();
    set(&mut options);
    let reflector = Reflector::new(Arc::new(script.clone()), store, options);
    let stop = Stopper::new();
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        until(|| reflector.last_sync_resource_version() == ResourceVersion::new("999"));
        stop.stop();
    });
    reflector.status()
}

fn states() -> [(&'static str, Vec<Vec<u8>>); 2] {
    [
        (
            "4",
            vec![object("a", "1"), object("b", "2"), object("c", "3")],
        ),
        (
            "6",
            vec![
                object("a", "1"),
                with("b", "5", r#","labels":{"bad":"yes"}"#, ""),
            ],
        ),
    ]
}

fn cached(store: &Indexer<DynamicObject>) -> Vec<String> {
    let mut cached: Vec<_> = store
        .list_keys()
        .into_iter()
        .filter(|key| !key.contains("last"))
        .map(|key| {
            format!(
                "{key}@{}",
                store.get_by_key(&key).unwrap().resource_version()
            )
        })
        .collect();
    cached.sort();
    cached
}

fn is_bad(object: &DynamicObject) -> bool {
    object.label("bad").is_some()
}

fn failing_transforms() -> [Transform<DynamicObject>; 2] {
    let fails = |object: Arc<DynamicObject>| {
        if is_bad(&object) {
            Err("no")
        } else {
            Ok(object)
        }
    };
    let panics = |object: Arc<DynamicObject>| {
        if is_bad(&object) {
            resume_unwind(Box::new("no"))
        } else {
            Ok::<_, String>(object)
        }
    };
    [Transform::new(fails), Transform::new(panics)]
}

pub(crate) fn build(
    queue: InformerQueue,
    cache: &Arc<Indexer<DynamicObject>>,
    transform: Transform<DynamicObject>,
) -> Arc<dyn Queue<DynamicObject>> {
    let (accessor, known) = (Accessor::object(), Arc::clone(cache));
    match queue {
        InformerQueue::DeltaFifo => Arc::new(DeltaFifo::with_options(
            accessor,
            DeltaFifoOptions::new()
                .known_objects(known)
                .transform(transform),
        )),
        _ => Arc::new(RealFifo::with_options(
            accessor,
            RealFifoOptions::new()
                .known_objects(known)
                .transform(transform),
        )),
    }
}

/// Closes a queue and moves its items into a store. Returns the deleted keys.
pub(crate) fn consume(
    queue: &dyn Queue<DynamicObject>,
    store: &Indexer<DynamicObject>,
) -> Vec<String> {
    let mut gone = Vec::new();
    queue.close();
    let mut process = |deltas: &Deltas<DynamicObject>, _: Origin| {
        for delta in deltas.iter() {
            match delta {
                Delta::Deleted { gone: deleted, .. } => {
                    gone.push(deleted.key().to_string());
                    store.delete(deleted.clone())?;
                }
                Delta::ReplacedAll(list) => {
                    let listed = list.objects().map(|object| meta_namespace_key(&**object));
                    let listed: Vec<_> = listed.collect();
                    for key in store.list_keys() {
                        if !listed.contains(&key) && !list.may_exist(&key) {
                            gone.push(key.to_string());
                            store.delete(Deleted::FinalStateUnknown {
                                key,
                                last_known: None,
                            })?;
                        }
                    }
                    for object in list.objects() {
                        store.add(Arc::clone(object))?;
                    }
                }
                _ => {
                    if let Some(object) = delta.object() {
                        store.add(Arc::clone(object))?;
                    }
                }
            }
        }
        Ok(())
    };
    while queue.pop(&mut process).is_ok() {}
    gone.sort();
    gone
}

#[test]
fn failing_transform_keeps_cached_copy_and_still_deletes() {
    let bad = with("a", "7", r#","labels":{"bad":"yes"}"#, "");
    for (events, expected) in [
        (Vec::new(), ["ns/a@1", "ns/b@2"].as_slice()),
        (event("MODIFIED", &bad), &["ns/a@1", "ns/b@2"]),
        (event("DELETED", &bad), &["ns/b@2"]),
    ] {
        for delivery in DELIVERIES {
            for transform in failing_transforms() {
                let check = |status: ReflectorStatus, unreadable, cache: Vec<String>| {
                    assert_eq!(
                        (status.complete, status.unreadable),
                        (false, unreadable),
                        "{status:?}"
                    );
                    let error = status.last_error.unwrap().to_string();
                    assert!(error.contains("transforming ns/"), "{error}");
                    assert_eq!(cache, expected, "{delivery:?}");
                };
                let store = Arc::new(Indexer::for_objects().with_transform(transform.clone()));
                let status = reflect(&delivery.script(&states(), &events), store.clone());
                check(
                    status,
                    if events.is_empty() { 1 } else { 2 },
                    cached(&store),
                );

                for queue in QUEUES {
                    let store = Arc::new(Indexer::for_objects());
                    let queue = build(queue, &store, transform.clone());
                    let status = reflect(&delivery.script(&states(), &events), queue.clone());
                    let gone = consume(&*queue, &store);
                    check(
                        status,
                        if events.is_empty() { 1 } else { 2 },
                        cached(&store),
                    );
                    assert!(gone.contains(&"ns/c".to_owned()), "{gone:?}");
                }
            }
        }
    }
}

/// Takes the key from a label. For broken objects, it fails or panics.
fn by_label(object: &DynamicObject) -> Result<Key, KeyError> {
    match object.label("key") {
        Some("bad") => Err(KeyError::new("bad")),
        Some("worse") => resume_unwind(Box::new("worse")),
        Some(key) => Ok(key.into()),
        None => Ok(object.name().into()),
    }
}

#[test]
fn broken_object_with_custom_key_deletes_nothing() {
    let labelled = |name: &str, version: &str, key: &str| {
        with(
            name,
            version,
            &format!(r#","labels":{{"key":"{key}"}}"#),
            "",
        )
    };
    // The key of "c" is the key that "b" would have by its name.
    let first = [
        labelled("b", "2", "x"),
        labelled("c", "3", "ns/b"),
        labelled("d", "3", "y"),
    ];
    let deep = format!(r#","x":{}{}"#, "[".repeat(200), "]".repeat(200));
    let broken = || with("b", "5", r#","labels":{"key":"x"}"#, &deep);
    for bad in [
        broken(),
        labelled("b", "5", "bad"),
        labelled("b", "5", "worse"),
    ] {
        let everything = ["ns/b@3", "x@2", "y@3"];
        for delivery in DELIVERIES {
            let states = [
                ("4", first.to_vec()),
                ("6", vec![labelled("c", "3", "ns/b"), bad.clone()]),
            ];
            let store = Arc::new(Indexer::new(Accessor::new(by_label), Indexers::new()));
            let status = reflect(&delivery.script(&states, b""), store.clone());
            assert_eq!(cached(&store), everything);
            assert_eq!((status.complete, status.unreadable), (false, 1));

            let script = delivery.script(&states[..1], &event("DELETED", &bad));
            let store = Arc::new(Indexer::new(Accessor::new(by_label), Indexers::new()));
            let status = reflect(&script, store.clone());
            assert_eq!(cached(&store), everything);
            assert_eq!((status.complete, status.unreadable), (false, 1));
        }
    }
    // A queue also deletes nothing.
    let store = Arc::new(Indexer::new(Accessor::new(by_label), Indexers::new()));
    let queue = DeltaFifo::with_options(
        Accessor::new(by_label),
        DeltaFifoOptions::new().known_objects(store.clone()),
    );
    let queue: Arc<dyn Queue<DynamicObject>> = Arc::new(queue);
    let answers = [
        Answer::body(list("4", "", &first)),
        Answer::body(EXPIRED),
        Answer::body(list("6", "", &[broken()])),
        Answer::open([&event("DELETED", &broken())[..], LAST.as_bytes()].concat()),
    ];
    reflect(&ScriptedListerWatcher::new(answers), queue.clone());
    assert!(consume(&*queue, &store).is_empty());
    assert_eq!(store.len(), 4);
}

/// User code that panics twice: the clock after the first read of a watch, and then the destructor of
/// its body.
#[derive(Default)]
struct Twice {
    has_read: AtomicBool,
    clock_panicked: AtomicBool,
    has_dropped: AtomicBool,
}

struct TwiceClock(Arc<Twice>);

impl Clock for TwiceClock {
    fn now(&self) -> Instant {
        let Twice {
            has_read,
            clock_panicked,
            ..
        } = &*self.0;
        if has_read.load(Ordering::SeqCst) && !clock_panicked.swap(true, Ordering::SeqCst) {
            resume_unwind(Box::new("no time today"));
        }
        Instant::now()
    }

    fn wait(&self, _: Duration, stop: &Stop) -> bool {
        !stop.is_stopped()
    }
}

struct TwiceBody(Arc<Twice>);

impl Read for TwiceBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.has_read.store(true, Ordering::SeqCst);
        buffer[0] = b'\n';
        Ok(1)
    }
}

impl Drop for TwiceBody {
    fn drop(&mut self) {
        if !self.0.has_dropped.swap(true, Ordering::SeqCst) {
            resume_unwind(Box::new("no end today"));
        }
    }
}

#[test]
fn panic_of_a_step_and_of_a_destructor_leads_to_a_list() {
    let twice = Arc::new(Twice::default());
    let of_watch = Arc::clone(&twice);
    let (lists, watches) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = ListWatch::new(
        move |_: &ListOptions, _: &Stop| {
            let version = lists.fetch_add(1, Ordering::SeqCst) + 1;
            let metadata = format!(r#"{{"resourceVersion": "{version}"}}"#);
            Ok(Body::from(format!(
                r#"{{"kind": "List", "metadata": {metadata}, "items": []}}"#
            )))
        },
        move |_: &ListOptions, stop: &Stop| {
            if watches.fetch_add(1, Ordering::SeqCst) == 0 {
                return Ok(Body::new(TwiceBody(Arc::clone(&of_watch))));
            }
            stop.wait();
            Ok(Body::from(""))
        },
    );
    let mut options = options();
    options.clock = Arc::new(TwiceClock(Arc::clone(&twice)));
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let reflector = Reflector::new(Arc::new(server), store, options);
    let stop = Stopper::new();
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        until(|| reflector.last_sync_resource_version() == ResourceVersion::new("2"));
        stop.stop();
    });
    assert!(twice.has_dropped.load(Ordering::SeqCst));
}
