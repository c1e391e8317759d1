//! Limits for the size and nesting of the data that a server sends.

use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use k8s_informer::informer::InformerQueue;
use k8s_informer::reflector::{Body, DecodeLimits, ListOptions, ListerWatcher, ReflectorOptions};
use k8s_informer::{DynamicObject, Error, Stop};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::hostile::objects::{object, with};
use crate::hostile::support::{
    DELIVERIES, Delivery, EXPIRED, LAST, QUEUES, TestInformer, event, initial_events, list,
};

fn objects() -> Vec<Vec<u8>> {
    vec![object("a", "1"), object("b", "2"), object("c", "3")]
}

/// A script with one flooded request. Its body begins with `beginning`, continues with 100 MB of
/// `byte` and counts the bytes that are read.
struct Flood {
    script: ScriptedListerWatcher,
    requests: AtomicUsize,
    flooded: usize,
    beginning: &'static [u8],
    byte: u8,
    read: Arc<AtomicU64>,
}

impl Flood {
    fn response(&self, or: impl FnOnce() -> Result<Body, Error>) -> Result<Body, Error> {
        if self.requests.fetch_add(1, Ordering::Relaxed) != self.flooded {
            return or();
        }
        let flood = Cursor::new(self.beginning).chain(io::repeat(self.byte).take(100_000_000));
        Ok(Body::new(Counting {
            body: flood,
            read: Arc::clone(&self.read),
        }))
    }
}

impl ListerWatcher for Flood {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.response(|| self.script.list(options, stop))
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.response(|| self.script.watch(options, stop))
    }

    fn supports_watch_list(&self) -> bool {
        self.script.supports_watch_list()
    }
}

struct Counting<R> {
    body: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.body.read(buffer)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Floods one request of the script. Returns the number of bytes read and the error.
fn flood(
    script: ScriptedListerWatcher,
    flooded: usize,
    (beginning, byte): (&'static [u8], u8),
    limit: Option<usize>,
) -> (u64, Error) {
    let read = Arc::new(AtomicU64::new(0));
    let flood = Flood {
        script: script.clone(),
        requests: AtomicUsize::new(0),
        flooded,
        beginning,
        byte,
        read: Arc::clone(&read),
    };
    let set = |options: &mut ReflectorOptions| {
        if let Some(limit) = limit {
            options.limits.object_bytes = limit;
        }
    };
    let informer = TestInformer::<DynamicObject>::run_on(
        Arc::new(flood),
        script,
        InformerQueue::DeltaFifo,
        set,
    );
    assert_eq!(informer.cache(), ["ns/a@1", "ns/b@2"]);
    assert_eq!(informer.deleted_keys(), ["ns/c"]);
    (
        read.load(Ordering::Relaxed),
        informer.status().last_error.unwrap(),
    )
}

#[test]
fn endless_body_is_read_to_limit_and_fails_the_request() {
    let lists: [(&[u8], u8, &str); 5] = [
        (
            br#"{"kind":"List","metadata":{},"items":[{"metadata":{"name":"b","x":""#,
            b'x',
            "a list item",
        ),
        (
            br#"{"kind":"List","metadata":{},"items":["#,
            b'x',
            "a list item",
        ),
        (
            br#"{"kind":"List","metadata":{"continue":""#,
            b'x',
            "a list without its items",
        ),
        (b"<html>", b' ', "a list without its items"),
        (b"", b'[', "a list without its items"),
    ];
    let watches: [(&[u8], u8, &str); 4] = [
        (
            br#"{"type":"DELETED","object":{"metadata":{"name":"b","x":""#,
            b'x',
            "a watch event",
        ),
        (b"{", b'{', "a watch event"),
        (b"", b'x', "a watch event"),
        (b"{\n", b'\n', "a watch event"),
    ];
    for limit in [None, Some(1 << 16)] {
        let bytes = limit.unwrap_or(DecodeLimits::default().object_bytes);
        // What may be an object is skipped up to 64 times the limit.
        let is_skipped = |beginning: &[u8], subject: &str| match subject {
            "a watch event" => beginning.starts_with(b"{"),
            _ => subject == "a list item",
        };
        let check = |(read, error): (u64, Error), beginning: &[u8], subject: &str| {
            let bytes = match is_skipped(beginning, subject) {
                true => bytes * 64,
                false => bytes,
            };
            assert!(
                (read as usize) < bytes + (128 << 10),
                "{read} bytes of {subject}"
            );
            assert!(error.is_decode(), "{error}");
            let message = format!("{subject} is larger than {bytes} bytes");
            assert!(error.to_string().ends_with(&message), "{error}");
        };
        let is_slow = |(beginning, byte, subject): &(&[u8], u8, &str)| {
            limit.is_none() && (*byte != b'x' || is_skipped(beginning, subject))
        };
        for (beginning, byte, subject) in lists.into_iter().filter(|it| !is_slow(it)) {
            let answers = [
                Answer::body(list("4", "", &objects())),
                Answer::body(EXPIRED),
                Answer::body(list("8", "", &objects()[..2])),
                Answer::open(LAST),
            ];
            check(
                flood(
                    ScriptedListerWatcher::new(answers),
                    2,
                    (beginning, byte),
                    limit,
                ),
                beginning,
                subject,
            );
        }
        for (beginning, byte, subject) in watches.into_iter().filter(|it| !is_slow(it)) {
            let answers = [
                Answer::body(list("4", "", &objects())),
                Answer::open([&event("DELETED", &object("c", "5"))[..], LAST.as_bytes()].concat()),
            ];
            check(
                flood(
                    ScriptedListerWatcher::new(answers),
                    1,
                    (beginning, byte),
                    limit,
                ),
                beginning,
                subject,
            );
            let answers = [
                Answer::body([initial_events("4", &objects()), EXPIRED.into()].concat()),
                Answer::body(list("8", "", &objects()[..2])),
                Answer::open(LAST),
            ];
            let script = ScriptedListerWatcher::new(answers).with_watch_list();
            let flooded = flood(script, 1, (beginning, byte), limit);
            check(flooded, beginning, subject);
        }
    }
}

/// The limit for objects in the tests below.
const LIMIT: usize = 2000;

/// Where an object is padded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Padding {
    /// Before the metadata, so that their beginning has no name.
    First,
    /// In the metadata, after name and version.
    InMetadata,
    Last,
}

/// An object in the namespace "ns" of this size.
fn padded(name: &str, version: &str, padding: Padding, size: usize) -> Vec<u8> {
    let identity = format!(
        r#""name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{version}""#
    );
    let padded = |text: &str| {
        let object = match padding {
            Padding::First => format!(r#"{{"a":"{text}","metadata":{{{identity}}}}}"#),
            Padding::InMetadata => {
                format!(r#"{{"metadata":{{{identity},"labels":{{"a":"{text}"}}}}}}"#)
            }
            Padding::Last => format!(r#"{{"metadata":{{{identity}}},"spec":["{text}"]}}"#),
        };
        object.into_bytes()
    };
    // Brackets and quotes in a string do not end the object.
    let left = size - padded("").len();
    let text = r#"]}\"{"#.repeat(left / 5);
    padded(&(text + &"x".repeat(left % 5)))
}

#[test]
fn object_at_limit_is_accepted() {
    for delivery in DELIVERIES {
        // A frame is larger than its object.
        let size = match delivery {
            Delivery::WatchList => LIMIT - event("ADDED", b"").len() + "\n".len(),
            _ => LIMIT,
        };
        let script = delivery.script(&[("4", vec![padded("b", "5", Padding::Last, size)])], b"");
        let set = |options: &mut ReflectorOptions| options.limits.object_bytes = LIMIT;
        let informer = TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, set);
        assert_eq!(informer.cache(), ["ns/b@5"], "{delivery:?}");
        assert!(informer.status().complete);
    }
}

#[test]
fn object_above_limit_skips_only_itself() {
    let large = |name: &str, version: &str, padding, size| padded(name, version, padding, size);
    for (padding, size) in [
        (Padding::Last, LIMIT + 1),
        (Padding::Last, 60 * LIMIT),
        (Padding::InMetadata, 3 * LIMIT),
        (Padding::First, 3 * LIMIT),
    ] {
        let is_named = padding != Padding::First;
        for delivery in DELIVERIES {
            for queue in QUEUES {
                let case = format!("{padding:?} {size} {delivery:?} {queue:?}");
                let set = |options: &mut ReflectorOptions| options.limits.object_bytes = LIMIT;
                let second = vec![object("a", "1"), large("b", "5", padding, size)];
                let states = [("4", objects()), ("6", second)];
                // Without a name, the object may be any, so the list deletes nothing.
                let kept: &[&str] = match is_named {
                    true => &["ns/a@1", "ns/b@2"],
                    false => &["ns/a@1", "ns/b@2", "ns/c@3"],
                };
                for kind in ["MODIFIED", "DELETED"] {
                    let event = event(kind, &large("a", "7", padding, size));
                    let script = delivery.script(&states, &event);
                    let informer = TestInformer::<DynamicObject>::run(script, queue, set);
                    let expected = match kind {
                        "DELETED" if is_named => &kept[1..],
                        _ => kept,
                    };
                    assert_eq!(informer.cache(), expected, "{kind} {case}");
                    let status = informer.status();
                    let unreadable = (status.complete, status.unreadable);
                    assert_eq!(unreadable, (false, 2), "{kind} {case}");
                    let error = status.last_error.unwrap();
                    assert!(error.is_decode(), "{error}");
                    let error = error.to_string();
                    let message = "unexpected response: the object is larger than 2000 bytes";
                    assert!(error.ends_with(message), "{error}");
                    assert_eq!(error.contains("ns/a"), is_named, "{error}");
                }
            }
        }
    }
}

#[test]
fn first_list_with_object_above_limit_syncs() {
    for delivery in DELIVERIES {
        for queue in QUEUES {
            let large = padded("b", "2", Padding::Last, 3 * LIMIT);
            let states = [("4", vec![object("a", "1"), large, object("c", "3")])];
            let set = |options: &mut ReflectorOptions| options.limits.object_bytes = LIMIT;
            let script = delivery.script(&states, &event("MODIFIED", &object("b", "5")));
            let informer = TestInformer::<DynamicObject>::run(script, queue, set);
            assert_eq!(informer.cache(), ["ns/a@1", "ns/b@5", "ns/c@3"]);
            assert_eq!(informer.status().unreadable, 1);
            // Requests do not repeat what is too large.
            let requests = informer.script.requests().len();
            let expected = if delivery == Delivery::Pages { 3 } else { 2 };
            assert!(requests <= expected, "{requests}");
        }
    }
}

/// "ns/b" with `levels` levels of nesting.
fn nested(levels: usize) -> Vec<u8> {
    let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
    with("b", "5", "", &format!(r#","x":{open}{close}"#))
}

#[test]
fn too_deeply_nested_object_skips_only_itself() {
    let default = DecodeLimits::default().nesting;
    assert_eq!(default, 127);
    for (levels, limit, accepted) in [
        (127, default, true),
        (128, default, false),
        (128, 1000, false),
        (1_000_000, default, false),
        (1_000_000, 9, false),
        (9, 9, true),
        (10, 9, false),
    ] {
        for (delivery, queue) in DELIVERIES.into_iter().zip(QUEUES) {
            let states = [
                ("4", objects()),
                ("6", vec![object("a", "1"), nested(levels)]),
            ];
            let b = if accepted { "ns/b@5" } else { "ns/b@2" };
            for (script, rest) in [
                (delivery.script(&states, b""), &[][..]),
                (
                    delivery.script(&states[..1], &event("MODIFIED", &nested(levels))),
                    &["ns/c@3"],
                ),
            ] {
                let informer = TestInformer::<DynamicObject>::run(script, queue, |options| {
                    options.limits.nesting = limit;
                });
                let name = format!("{levels} levels of {limit} by {delivery:?}");
                assert_eq!(informer.cache(), [&["ns/a@1", b], rest].concat(), "{name}");
                let status = informer.status();
                assert_eq!(
                    (status.complete, status.unreadable),
                    (accepted, u64::from(!accepted)),
                    "{name}"
                );
                let error = status
                    .last_error
                    .map(|error| error.to_string())
                    .unwrap_or_default();
                let message =
                    format!("ns/b: unexpected response: nested deeper than {limit} levels");
                assert!(
                    accepted || limit >= 127 || error.ends_with(&message),
                    "{name}: {error}"
                );
            }
        }
    }
}

/// A CustomResourceDefinition whose schema repeats one keyword up to the nesting limit.
fn deepest(keyword: &str) -> Vec<u8> {
    let (open, close) = match keyword {
        "properties" => (r#"{"properties":{"a":"#, "}}"),
        "allOf" => (r#"{"allOf":["#, "]}"),
        "not" => (r#"{"not":"#, "}"),
        "items" => (r#"{"items":"#, "}"),
        _ => (r#"{"additionalProperties":"#, "}"),
    };
    let around = 6;
    let levels = open.matches(['{', '[']).count();
    let times = (127 - around - 1) / levels;
    let schema = format!("{}{{}}{}", open.repeat(times), close.repeat(times));
    let spec = format!(
        r#","spec":{{"group":"g","scope":"Cluster","names":{{"kind":"K","plural":"ks"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}"#
    );
    with("deep", "5", "", &spec)
}

const KEYWORDS: [&str; 5] = [
    "properties",
    "allOf",
    "not",
    "items",
    "additionalProperties",
];

#[test]
fn deepest_schema_fits_the_stack_of_crate_threads() {
    // A stack overflow would abort the process.
    for keyword in KEYWORDS {
        let states = [("4", vec![deepest(keyword)])];
        let script = Delivery::List.script(&states, &event("MODIFIED", &deepest(keyword)));
        let informer =
            TestInformer::<CustomResourceDefinition>::run(script, InformerQueue::DeltaFifo, |_| {});
        assert_eq!(
            informer.cache(),
            ["ns/deep@5"],
            "{keyword}: {:?}",
            informer.status()
        );
        let script = Delivery::List.script(&states, &event("MODIFIED", &deepest(keyword)));
        let informer = TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
        assert_eq!(
            informer.cache(),
            ["ns/deep@5"],
            "{keyword}: {:?}",
            informer.status()
        );
    }
}
