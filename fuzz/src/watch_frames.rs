//! Splitting a watch stream into frames. Up to the first invalid frame, the reflector must process
//! the same events in the same order as serde_json finds in the stream. The sizes of the pieces in
//! which the bytes arrive must not change the outcome.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::object::{GroupVersionKind, ResourceVersion};
use k8s_informer::reflector::{Body, ListOptions, ListWatch, Reflector, ReflectorOptions};
use k8s_informer::store::{ReflectorStore, StoreError};
use k8s_informer::{Deleted, DynamicObject, Error, Indexer, Stop, Stopper};
use serde::de::IgnoredAny;
use serde_json::de::{SliceRead, StreamDeserializer};
use serde_json::{Value, json};

use super::item::{few, newest, version_of};
use super::serving::{KNOWN, NoWaiting, Pieces, Shown, Thing, key_of, plain, shown, text};

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Options {
    typed: bool,
    expected_kind: bool,
    small_limit: bool,
    /// Whether the stream is a watch-list that follows another watch-list.
    initial: bool,
    raw: bool,
}

/// The small limit of an event in bytes. The events of [`KNOWN`] are below it.
const LIMIT: usize = 120;

pub fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let Ok(options) = bytes.arbitrary::<Options>() else {
        return;
    };
    let Ok(sizes) = few::<u8>(&mut bytes) else {
        return;
    };
    let stream = if options.raw {
        bytes.take_rest().to_vec()
    } else {
        made(&mut bytes).unwrap_or_default()
    };
    if options.typed {
        check::<Thing>(&stream, &sizes, options);
    } else {
        check::<DynamicObject>(&stream, &sizes, options);
    }
}

/// The annotation of the bookmark that ends the initial objects of a watch-list.
const MARK: &str = "k8s.io/initial-events-end";

/// [`KNOWN`] as a watch-list, which then ends with an error.
fn known_stream() -> String {
    let known: Value = serde_json::from_str(KNOWN).expect("JSON");
    let items = known["items"].as_array().expect("an array").iter();
    let mut stream: String = items
        .map(|item| format!("{}\n", json!({"type": "ADDED", "object": item})))
        .collect();
    let meta = json!({"resourceVersion": "5", "annotations": {MARK: "true"}});
    stream.push_str(&json!({"type": "BOOKMARK", "object": {"metadata": meta}}).to_string());
    stream.push_str("{\"type\":\"ERROR\",\"object\":{}}");
    stream
}

/// A call of the reflector to its store.
#[derive(Clone, Debug, PartialEq)]
enum StoreCall {
    Added(Value),
    Updated(Value),
    Deleted(Value),
    /// A deletion by key.
    Gone(String),
    Bookmark(String),
}

/// A store that records the calls after the initial list.
struct Recorder<T> {
    indexer: Arc<Indexer<T>>,
    calls: Mutex<Vec<StoreCall>>,
}

impl<T> Recorder<T> {
    fn note(&self, call: StoreCall) {
        self.calls.lock().unwrap().push(call);
    }
}

impl<T: Shown> ReflectorStore<T> for Recorder<T> {
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.note(StoreCall::Added(object.shown()));
        self.indexer.add(object)
    }

    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.note(StoreCall::Updated(object.shown()));
        self.indexer.update(object)
    }

    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.note(match &gone {
            Deleted::Final(object) => StoreCall::Deleted(object.shown()),
            Deleted::FinalStateUnknown { key, .. } => StoreCall::Gone(key.to_string()),
        });
        self.indexer.delete(gone)
    }

    fn replace(
        &self,
        objects: Vec<Arc<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        self.indexer.replace(objects, resource_version)
    }

    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        let version = version_of(resource_version.as_ref());
        self.note(StoreCall::Bookmark(version));
        self.indexer.bookmark(resource_version)
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    cache: BTreeMap<String, Value>,
    /// Empty for a watch-list.
    calls: Vec<StoreCall>,
    store_version: Option<ResourceVersion>,
    version: String,
    unreadable: u64,
    complete: bool,
    /// The version from which the reflector watches again, or `None` if it lists instead.
    again: Option<String>,
}

fn reflected<T: Shown>(stream: &[u8], sizes: &[u8], given: Options) -> Outcome {
    let (stop, watches) = (Stopper::new(), AtomicUsize::new(0));
    let (lists, again) = (AtomicUsize::new(0), Arc::new(Mutex::new(None)));
    let list = {
        let stop = stop.clone();
        move |_: &ListOptions, _: &Stop| match lists.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Body::from(KNOWN)),
            _ => {
                stop.stop();
                Err(Error::other("no more responses"))
            }
        }
    };
    let (stream, sizes) = (stream.to_vec(), sizes.to_vec());
    let watch = {
        let (stop, again) = (stop.clone(), Arc::clone(&again));
        let begin = usize::from(!given.initial);
        move |options: &ListOptions, _: &Stop| match begin + watches.fetch_add(1, Ordering::Relaxed)
        {
            0 => Ok(Body::from(known_stream())),
            1 => Ok(Body::new(Pieces::new(&stream, &sizes))),
            _ => {
                let version = options.resource_version.as_ref();
                *again.lock().unwrap() = version.map(ToString::to_string);
                stop.stop();
                Err(Error::other("no more responses"))
            }
        }
    };
    let indexer = Arc::new(Indexer::<T>::for_objects());
    let recorder = Arc::new(Recorder {
        indexer: Arc::clone(&indexer),
        calls: Mutex::default(),
    });
    // Only an indexer itself finds the unchanged objects of a watch-list.
    let store: Arc<dyn ReflectorStore<T>> = match given.initial {
        true => Arc::clone(&indexer) as _,
        false => Arc::clone(&recorder) as _,
    };
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(NoWaiting);
    options.expected_kind = given
        .expected_kind
        .then(|| GroupVersionKind::new("", "v1", "Thing"));
    if given.small_limit {
        options.limits.object_bytes = LIMIT;
    }
    let mut lister_watcher = ListWatch::new(list, watch);
    if given.initial {
        lister_watcher = lister_watcher.with_watch_list();
    }
    let reflector = Reflector::new(Arc::new(lister_watcher), store, options);
    reflector.run(&stop);
    let status = reflector.status();
    let calls = std::mem::take(&mut *recorder.calls.lock().unwrap());
    let again = again.lock().unwrap().take();
    Outcome {
        cache: shown(&indexer),
        store_version: indexer.resource_version(),
        calls,
        version: version_of(status.resource_version.as_ref()),
        unreadable: status.unreadable,
        complete: status.complete,
        again,
    }
}

fn check<T: Shown>(stream: &[u8], sizes: &[u8], options: Options) {
    let outcome = reflected::<T>(stream, sizes, options);
    // In a repeated watch-list with an invalid frame, the sizes of the pieces may change the
    // outcome: unchanged objects are not parsed, except to find where they end, and the end of an
    // invalid frame is ambiguous. A complete line counts as one frame, but a line in pieces can end
    // at an earlier brace.
    let is_open = options.initial && frames(stream).any(|frame| frame.is_err());
    for sizes in [&[][..], &[0], &[6]] {
        let again = reflected::<T>(stream, sizes, options);
        let same = is_open || outcome == again;
        assert!(
            same,
            "{outcome:?}, {again:?} in pieces of {sizes:?}: {:?}",
            String::from_utf8_lossy(stream)
        );
    }
    if options.initial {
        let marked = stream
            .windows(MARK.len())
            .any(|window| window == MARK.as_bytes());
        if !marked && !stream.contains(&b'\\') {
            let before = reflected::<T>(&[], &[], options);
            assert_eq!(before.cache.len(), 3);
            assert_eq!(
                (&outcome.cache, &outcome.store_version),
                (&before.cache, &before.store_version),
                "the cache must not change before the bookmark"
            );
        }
        return;
    }
    if let Some(again) = &outcome.again {
        assert_eq!(
            *again, outcome.version,
            "the next watch must start at the current version"
        );
    }
    assert_eq!(outcome.complete, outcome.unreadable == 0);
    let Some((expected, is_exact)) = expected::<T>(stream, options) else {
        return;
    };
    if is_exact {
        assert_eq!(
            (&outcome.calls, &outcome.version, outcome.unreadable),
            (&expected.calls, &expected.version, expected.unreadable)
        );
        let broken = expected.broken.then_some(&outcome.version);
        if expected.events == 0 && !expected.broken || expected.error {
            assert_eq!(
                outcome.again,
                None,
                "expected a relist: {:?}",
                String::from_utf8_lossy(stream)
            );
        } else if expected.events > 0 || broken.is_some() {
            assert_eq!(
                outcome.again.as_ref(),
                Some(&outcome.version),
                "expected the watch to resume: {:?}",
                String::from_utf8_lossy(stream)
            );
        }
    } else {
        assert!(
            outcome.calls.starts_with(&expected.calls),
            "{:?} does not start with {:?}",
            outcome.calls,
            expected.calls
        );
    }
}

fn frames(stream: &[u8]) -> StreamDeserializer<'_, SliceRead<'_>, IgnoredAny> {
    serde_json::Deserializer::from_slice(stream).into_iter()
}

/// The result of serde_json.
#[derive(Default)]
struct Expected {
    calls: Vec<StoreCall>,
    version: String,
    unreadable: u64,
    events: u32,
    /// Whether the stream has an invalid frame.
    broken: bool,
    error: bool,
}

/// Returns the expected result, and whether it covers the whole stream.
fn expected<T: Shown>(stream: &[u8], options: Options) -> Option<(Expected, bool)> {
    let mut expected = Expected {
        version: "5".to_owned(),
        ..Expected::default()
    };
    let mut values = frames(stream);
    let mut end = 0;
    loop {
        let value = values.next();
        let bytes = stream[end..values.byte_offset()].trim_ascii();
        end = values.byte_offset();
        match value {
            None => return Some((expected, true)),
            Some(Err(error))
                if error.is_eof() && !stream[end..].trim_ascii_start().contains(&b'\n') =>
            {
                // An incomplete object at the end is ignored.
                let begun = stream[end..].trim_ascii_start();
                expected.broken = !begun.starts_with(b"{");
                return Some((expected, !options.small_limit));
            }
            Some(Err(_)) => return Some((expected, false)),
            Some(Ok(_)) => {}
        }
        // The model does not know how much of a larger frame can be read, on one line or several.
        if options.small_limit && bytes.len() > LIMIT {
            return Some((expected, false));
        }
        let mut lines = bytes.split(|&byte| byte == b'\n');
        let on_one_line =
            lines.next().is_some_and(|first| first.trim_ascii() == b"{") || lines.next().is_none();
        if !on_one_line {
            expected.broken = true;
            return Some((expected, true));
        }
        // The frame is invalid JSON, or has a duplicate key.
        let Some(frame) = plain(bytes) else {
            return Some((expected, false));
        };
        if !event::<T>(&frame, &mut expected, options) {
            return Some((expected, true));
        }
    }
}

/// Processes a frame. Returns whether the stream continues.
fn event<T: Shown>(frame: &Value, expected: &mut Expected, options: Options) -> bool {
    let kind = text(frame, "/type");
    let (Some(object), true) = (
        frame.get("object"),
        ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"].contains(&kind),
    ) else {
        expected.broken = true;
        return false;
    };
    if kind == "ERROR" {
        expected.error = true;
        return false;
    }
    if !object.is_object() {
        expected.broken = true;
        return false;
    }
    let is_other = !text(object, "/kind").is_empty()
        && (text(object, "/kind"), text(object, "/apiVersion")) != ("Thing", "v1");
    if options.expected_kind && is_other {
        return true;
    }
    let version = text(object, "/metadata/resourceVersion").to_owned();
    let decoded = T::deserialize(object).ok();
    match (kind, decoded, key_of(object)) {
        ("BOOKMARK", ..) => {
            if !version.is_empty() {
                expected.calls.push(StoreCall::Bookmark(version.clone()));
            }
        }
        (_, Some(_), None) => {
            expected.unreadable += 1;
            return true;
        }
        ("ADDED", Some(object), _) => expected.calls.push(StoreCall::Added(object.shown())),
        ("MODIFIED", Some(object), _) => expected.calls.push(StoreCall::Updated(object.shown())),
        (_, Some(object), _) => expected.calls.push(StoreCall::Deleted(object.shown())),
        (_, None, key) => {
            expected.unreadable += 1;
            if kind == "DELETED" {
                expected.calls.extend(key.map(StoreCall::Gone));
            }
        }
    }
    expected.events += 1;
    if !version.is_empty() {
        expected.version = newest(&expected.version, &version).to_owned();
    }
    true
}

/// Generates a mostly valid watch.
fn made(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    const TYPES: [&str; 8] = [
        "ADDED", "MODIFIED", "DELETED", "ADDED", "MODIFIED", "BOOKMARK", "ERROR", "modified",
    ];
    const ENDS: [&str; 6] = ["\n", "\r\n", "\n\n", "", " ", "\n \t\n"];
    let mut stream = Vec::new();
    for _ in 0..bytes.int_in_range(0..=9_u8)? {
        let (kind, object) = (*bytes.choose(&TYPES[..])?, object(bytes)?);
        let frame = match bytes.int_in_range(0..=11_u8)? {
            1 => format!("{{\"object\":{object},\"type\":\"{kind}\"}}"),
            2 => format!("{{ \"type\" : \"{kind}\", \"object\" : {object} }}"),
            3 => format!("{{\n\"type\":\"{kind}\",\n\"object\":{object}\n}}"),
            4 => format!(
                "{{\"type\":\"{kind}\",\"object\":{object},\"more\":{{\"object\":[\"}}\"]}}}}"
            ),
            5 => format!("{{\"type\":\"{kind}\",\"object\":\n{object}}}"),
            6 => format!("{{\"type\":\"{kind}\"}}"),
            _ => format!("{{\"type\":\"{kind}\",\"object\":{object}}}"),
        };
        stream.extend_from_slice(frame.as_bytes());
        stream.extend_from_slice(bytes.choose(&ENDS[..])?.as_bytes());
    }
    for _ in 0..bytes.int_in_range(0..=2_u8)? {
        let at = bytes.int_in_range(0..=stream.len())?;
        match bytes.int_in_range(0..=3_u8)? {
            0 if at < stream.len() => stream[at] = bytes.arbitrary()?,
            1 if at < stream.len() => drop(stream.remove(at)),
            2 => stream.insert(at, *bytes.choose(b"\"{}[]:,\\ 7n\xff\0\n")?),
            _ if bytes.ratio(1, 4)? => stream.truncate(at),
            _ => {}
        }
    }
    Ok(stream)
}

fn object(bytes: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    const NAMES: [&str; 7] = [
        r#""name":"a","uid":"1""#,
        r#""name":"a""#,
        r#""name":"b","uid":"2""#,
        r#""name":"c","namespace":"ns""#,
        r#""name":"d","labels":{"}":"\"{"}"#,
        r#""name":"""#,
        r#""name":null"#,
    ];
    const VERSIONS: [&str; 7] = ["3", "6", "7", "10", "", "x", "4"];
    const SPECS: [&str; 5] = [
        r#""spec":{"value":3}"#,
        r#""spec":{"value":4},"status":"\\""#,
        r#""spec":{"value":"3"}"#,
        r#""kind":"Thing","apiVersion":"v1","spec":{"value":6}"#,
        r#""kind":"Other","apiVersion":"v1","spec":{"value":7}"#,
    ];
    if bytes.ratio(1, 12)? {
        let meta = r#"{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}"#;
        return Ok(format!("{{\"metadata\":{meta}}}"));
    }
    if bytes.ratio(1, 12)? {
        return Ok((*bytes.choose(&["null", "7", "[]", "{}", "\"x\""])?).to_owned());
    }
    let (name, spec) = (*bytes.choose(&NAMES[..])?, *bytes.choose(&SPECS[..])?);
    let version = *bytes.choose(&VERSIONS[..])?;
    let meta = format!(r#""metadata":{{{name},"resourceVersion":"{version}"}}"#);
    Ok(match bytes.int_in_range(0..=2_u8)? {
        0 => format!("{{{spec},{meta}}}"),
        1 => {
            format!("{{\"kind\":\"Thing\",\"apiVersion\":\"v1\",{meta},\"spec\":{{\"value\":9}}}}")
        }
        _ => format!("{{{meta},{spec}}}"),
    })
}
