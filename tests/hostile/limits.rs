//! Limits for the size and nesting of the data that a server sends.

use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use k8s_informer::informer::InformerQueue;
use k8s_informer::reflector::{Body, DecodeLimits, ListOptions, ListerWatcher};
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
    let set = |options: &mut k8s_informer::reflector::ReflectorOptions| {
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
        let check = |(read, error): (u64, Error), subject: &str| {
            assert!(
                (read as usize) < bytes + (128 << 10),
                "{read} bytes of {subject}"
            );
            assert!(error.is_decode(), "{error}");
            let message = format!("{subject} is larger than {bytes} bytes");
            assert!(error.to_string().ends_with(&message), "{error}");
        };
        let slow = limit.is_none();
        for (beginning, byte, subject) in lists
            .into_iter()
            .filter(|(_, byte, _)| !slow || *byte == b'x')
        {
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
                subject,
            );
        }
        for (beginning, byte, subject) in watches
            .into_iter()
            .filter(|(_, byte, _)| !slow || *byte == b'x')
        {
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
                subject,
            );
            let answers = [
                Answer::body([initial_events("4", &objects()), EXPIRED.into()].concat()),
                Answer::body(list("8", "", &objects()[..2])),
                Answer::open(LAST),
            ];
            let script = ScriptedListerWatcher::new(answers).with_watch_list();
            check(flood(script, 1, (beginning, byte), limit), subject);
        }
    }
}

#[test]
fn object_at_limit_is_accepted_one_byte_more_is_rejected() {
    let padded = |size: usize| {
        let empty = with("b", "5", r#","x":"""#, "").len();
        with(
            "b",
            "5",
            &format!(r#","x":"{}""#, "x".repeat(size - empty)),
            "",
        )
    };
    for (size, accepted) in [(2000, true), (2001, false)] {
        let mut answers = vec![Answer::body(list("4", "", &[padded(size)]))];
        if !accepted {
            answers.push(Answer::body(list("4", "", &objects()[..2])));
        }
        answers.push(Answer::open(LAST));
        let script = ScriptedListerWatcher::new(answers);
        let informer =
            TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |options| {
                options.limits.object_bytes = 2000;
            });
        let cache: &[_] = if accepted {
            &["ns/b@5"]
        } else {
            &["ns/a@1", "ns/b@2"]
        };
        assert_eq!(informer.cache(), cache);
        let error = informer
            .status()
            .last_error
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert_eq!(
            error.ends_with("a list item is larger than 2000 bytes"),
            !accepted,
            "{error}"
        );
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
