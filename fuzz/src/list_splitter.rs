//! A LIST whose body arrives in pieces of any size, compared with the result of serde_json. The
//! objects of a valid list become the cache. Any other body removes nothing from the cache. The
//! sizes of the pieces must not change the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::error::Status;
use k8s_informer::reflector::{Body, ListOptions, ListWatch, Reflector, ReflectorOptions};
use k8s_informer::{DynamicObject, Error, Indexer, Stop, Stopper};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::item::{few, version_of};
use super::serving::{KNOWN, NoWaiting, Pieces, Shown, Thing, key_of, keys, plain, shown, text};

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Options {
    typed: bool,
    /// Whether the size limit of an object is [`LIMIT`].
    small_limit: bool,
    /// Whether the body is raw bytes. Otherwise it is generated from a list.
    raw: bool,
}

pub fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let Ok(options) = bytes.arbitrary::<Options>() else {
        return;
    };
    let Ok(sizes) = few::<u8>(&mut bytes) else {
        return;
    };
    let body = if options.raw {
        bytes.take_rest().to_vec()
    } else {
        made(&mut bytes).unwrap_or_default()
    };
    if options.typed {
        check::<Thing>(&body, &sizes, options);
    } else {
        check::<DynamicObject>(&body, &sizes, options);
    }
}

type Cache = BTreeMap<String, Value>;

/// The effect of a body on a reflector.
#[derive(Debug, PartialEq)]
struct Outcome {
    cache: Cache,
    next: Next,
    error: Option<String>,
    complete: bool,
    unreadable: u64,
    version: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Next {
    /// The reflector lists again, because the body is not a list.
    List,
    Page(String),
    /// The body was a list.
    Watch(String),
}

/// Runs a reflector that lists [`KNOWN`] first and then receives `body` in a relist.
fn reflected<T: Shown>(body: &[u8], sizes: &[u8], Options { small_limit, .. }: Options) -> Outcome {
    let (stop, next) = (Stopper::new(), Arc::new(Mutex::new(None)));
    let then = {
        let (stop, next) = (stop.clone(), Arc::clone(&next));
        move |then| {
            *next.lock().unwrap() = Some(then);
            stop.stop();
            Err(Error::other("no more responses"))
        }
    };
    let (body, sizes, lists) = (body.to_vec(), sizes.to_vec(), AtomicUsize::new(0));
    let list = {
        let then = then.clone();
        move |options: &ListOptions, _: &Stop| match lists.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Body::from(KNOWN)),
            1 => Ok(Body::new(Pieces::new(&body, &sizes))),
            _ => then(
                options
                    .continue_token
                    .clone()
                    .map_or(Next::List, Next::Page),
            ),
        }
    };
    let watches = AtomicUsize::new(0);
    let watch = move |options: &ListOptions, _: &Stop| match watches.fetch_add(1, Ordering::Relaxed)
    {
        0 => Err(Error::from_status(Status::default())),
        _ => then(Next::Watch(version_of(options.resource_version.as_ref()))),
    };
    let store = Arc::new(Indexer::<T>::for_objects());
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(NoWaiting);
    if small_limit {
        options.limits.object_bytes = LIMIT;
    }
    let errors = Arc::new(Mutex::new(None));
    options.watch_error_handler = {
        let errors = Arc::clone(&errors);
        Some(Arc::new(move |error: &Error| {
            *errors.lock().unwrap() = Some(error.to_string());
        }))
    };
    let reflector = Reflector::new(
        Arc::new(ListWatch::new(list, watch)),
        store.clone(),
        options,
    );
    reflector.run(&stop);
    let status = reflector.status();
    let next = next
        .lock()
        .unwrap()
        .clone()
        .expect("the reflector sends another request");
    Outcome {
        cache: shown(&store),
        error: if next == Next::List {
            errors.lock().unwrap().clone()
        } else {
            None
        },
        next,
        complete: status.complete,
        unreadable: status.unreadable,
        version: version_of(status.resource_version.as_ref()),
    }
}

/// The small limit in bytes. The objects of [`KNOWN`] are below it.
const LIMIT: usize = 120;

fn check<T: Shown>(body: &[u8], sizes: &[u8], options: Options) {
    let outcome = reflected::<T>(body, sizes, options);
    for sizes in [&[][..], &[0], &[6]] {
        assert_eq!(
            outcome,
            reflected::<T>(body, sizes, options),
            "different outcome in pieces of {sizes:?}"
        );
    }
    let known = known::<T>();
    if !matches!(outcome.next, Next::Watch(_)) {
        assert_eq!(
            outcome.cache, known,
            "the cache must not change without a list"
        );
        assert_eq!(
            (outcome.version.as_str(), outcome.complete),
            ("5", outcome.unreadable == 0)
        );
    }
    match plain(body) {
        Some(value) => check_good::<T>(body, &value, known, outcome, options),
        // Invalid JSON must not remove an object from the cache. An item above the limit is skipped
        // without being parsed, so its bytes only concern its own object: then the list without the
        // limit is checked.
        None if serde_json::from_slice::<IgnoredAny>(body).is_err() => {
            let unlimited = (options.small_limit && outcome.unreadable > 0).then(|| {
                let small_limit = false;
                reflected::<T>(
                    body,
                    sizes,
                    Options {
                        small_limit,
                        ..options
                    },
                )
            });
            let parsed = unlimited.as_ref().unwrap_or(&outcome);
            for key in known.keys() {
                assert!(parsed.cache.contains_key(key), "{key} was removed");
            }
            assert!(
                outcome.next == Next::List || !outcome.complete,
                "invalid JSON was not reported"
            );
        }
        None => {
            let items = keys(body).iter().filter(|key| *key == "items").count();
            assert!(
                items < 2 || outcome.next == Next::List,
                "a list with duplicate items was accepted"
            );
        }
    }
}

/// The size of an item.
#[derive(PartialEq)]
enum Size {
    Small,
    /// The item is larger than the limit, with all of its metadata before the limit.
    Large,
    /// The item is larger than the limit, and some of its metadata may be after it.
    LargeHead,
}

fn large_items(body: &[u8]) -> Vec<Size> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let Ok(List { items }) = serde_json::from_slice(body) else {
        return Vec::new();
    };
    let size = |item: &&RawValue| {
        let item = item.get();
        if item.len() <= LIMIT {
            return Size::Small;
        }
        match serde_json::from_str::<Item<'_>>(item) {
            Ok(Item { metadata }) => {
                let begin = metadata.get().as_ptr().addr() - item.as_ptr().addr();
                match begin + metadata.get().len() <= LIMIT {
                    true => Size::Large,
                    false => Size::LargeHead,
                }
            }
            Err(_) => Size::LargeHead,
        }
    };
    items.iter().map(size).collect()
}

fn known<T: Shown>() -> Cache {
    let list: Value = serde_json::from_str(KNOWN).unwrap();
    let known = list["items"].as_array().unwrap().iter();
    known
        .map(|item| {
            (
                key_of(item).unwrap(),
                item_of::<T>(&list, item).unwrap().shown(),
            )
        })
        .collect()
}

/// Decodes an item of a list. Its kind comes from the kind of the list, if the item has none.
fn item_of<T: Shown>(list: &Value, item: &Value) -> Option<T> {
    let mut object = T::deserialize(item).ok()?;
    let kind = text(list, "/kind");
    let kind = kind.strip_suffix("List").unwrap_or(kind);
    if !kind.is_empty() {
        object.set_type_meta(text(list, "/apiVersion"), kind);
    }
    Some(object)
}

/// Checks the outcome for JSON without duplicate keys.
fn check_good<T: Shown>(
    body: &[u8],
    value: &Value,
    known: Cache,
    outcome: Outcome,
    options: Options,
) {
    if options.small_limit && outcome.next == Next::List && body.len() > LIMIT {
        return;
    }
    let large = match options.small_limit {
        true => large_items(body),
        false => Vec::new(),
    };
    if large.contains(&Size::LargeHead) {
        return;
    }
    let Some((items, meta)) = list_of(value) else {
        assert_eq!(outcome.next, Next::List, "the body is not a list");
        return;
    };
    let version = text(meta, "/resourceVersion");
    let mut expected = Cache::new();
    // The keys whose last item is unreadable.
    let (mut gaps, mut any, mut unreadable) = (BTreeSet::new(), false, 0);
    for (at, item) in items.iter().enumerate() {
        let key = key_of(item);
        let decoded = item_of::<T>(value, item).filter(|object| !object.name().is_empty());
        let decoded = decoded.filter(|_| large.get(at) != Some(&Size::Large));
        let item = decoded.map(|object| {
            let object = object.shown();
            // The reflector can keep an unchanged object, whose kind came from the earlier list.
            let known = key.as_ref().and_then(|key| known.get(key));
            let kept = known.filter(|known| {
                key.as_ref().and_then(|key| outcome.cache.get(key)) == Some(*known)
                    && without_type_meta(known) == without_type_meta(&object)
            });
            kept.cloned().unwrap_or(object)
        });
        match (key, item) {
            (Some(key), Some(item)) => {
                gaps.remove(&key);
                expected.insert(key, item);
            }
            (key, _) => {
                any |= key.is_none();
                gaps.extend(key);
                unreadable += 1;
            }
        }
    }
    assert_eq!(
        outcome.unreadable, unreadable,
        "every unreadable item is counted"
    );
    match text(meta, "/continue") {
        "" if meta["remainingItemCount"]
            .as_u64()
            .is_some_and(|remaining| remaining > 0) =>
        {
            assert_eq!(
                outcome.next,
                Next::List,
                "an incomplete list must be listed again"
            );
        }
        "" => {
            for (key, object) in known {
                if any || gaps.contains(&key) {
                    expected.entry(key).or_insert(object);
                }
            }
            assert_eq!(outcome.complete, !any && gaps.is_empty());
            assert_eq!(
                outcome.next,
                Next::Watch(version.to_owned()),
                "a watch must follow the list"
            );
            assert_eq!(outcome.cache, expected);
            assert_eq!(outcome.version, version);
        }
        token => assert_eq!(outcome.next, Next::Page(token.to_owned())),
    }
}

/// Returns an object without the kind that it can have from its list.
fn without_type_meta(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    }
    object
}

/// Returns the items and the metadata, if `value` is a list.
fn list_of(value: &Value) -> Option<(&[Value], &Value)> {
    let text_or_none =
        |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value.is_string());
    let object = value.as_object()?;
    let kind = object.get("kind")?.as_str()?;
    let version_fits = text_or_none(object.get("apiVersion"));
    if kind.is_empty() || kind == "Status" || kind == "Table" || !version_fits {
        return None;
    }
    let meta = object.get("metadata").unwrap_or(&Value::Null);
    let fits = match meta {
        Value::Null => true,
        Value::Object(meta) => {
            text_or_none(meta.get("resourceVersion"))
                && text_or_none(meta.get("continue"))
                && match meta.get("remainingItemCount") {
                    None | Some(Value::Null) => true,
                    // On a page of a shard the count can be negative while more pages follow.
                    Some(count) if count.as_i64().is_some_and(i64::is_negative) => meta
                        .get("continue")
                        .and_then(Value::as_str)
                        .is_some_and(|token| !token.is_empty()),
                    Some(count) => count.is_u64(),
                }
        }
        // serde would also accept an array, with the fields of the struct in order. The reflector
        // rejects it.
        Value::Array(_) => return None,
        _ => false,
    };
    let has_name = |meta: &Value| meta.get("name").is_some_and(|name| !name.is_null());
    let is_known = |field: &String| ["apiVersion", "kind", "metadata"].contains(&&**field);
    let items = match object.get("items") {
        Some(Value::Array(items)) => items.as_slice(),
        Some(Value::Null) => &[],
        None if kind.ends_with("List") && !has_name(meta) && object.keys().all(is_known) => &[],
        _ => return None,
    };
    fits.then_some((items, meta))
}

/// Generates a mostly valid list.
fn made(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    const KINDS: [&str; 6] = [
        r#""kind":"List""#,
        r#""kind":"ThingList","apiVersion":"v1""#,
        r#""apiVersion":"v1""#,
        r#""kind":"Status","code":200"#,
        r#""kind":null"#,
        r#""kind":"""#,
    ];
    const METAS: [&str; 8] = [
        r#""metadata":{"resourceVersion":"7"}"#,
        r#""metadata":{"resourceVersion":"5","remainingItemCount":0}"#,
        r#""metadata":{"resourceVersion":"4","continue":""}"#,
        r#""metadata":{"resourceVersion":"x"},"items2":[{}]"#,
        r#""metadata":null"#,
        r#""x":{"items":[{"a":"]}"}]},"metadata" : {"resourceVersion":"8","remainingItemCount":3}"#,
        r#""metadata":{"resourceVersion":"9","continue":"t","remainingItemCount":3}"#,
        r#""metadata":{"resourceVersion":7}"#,
    ];
    const SPACES: [&str; 4] = ["", " ", "\n\t", "\r\n "];
    let mut list = String::new();
    for _ in 0..bytes.int_in_range(0..=9_u8)? {
        let space = *bytes.choose(&SPACES)?;
        if !list.is_empty() {
            list.push_str(bytes.choose(&[",", ",", ",", ",", ",", ",", " , ", "", ",,"])?);
        }
        list.push_str(&item(bytes)?);
        list.push_str(space);
    }
    let items = match bytes.int_in_range(0..=15_u8)? {
        1 => "null".to_owned(),
        2 => "{}".to_owned(),
        3 => format!("{{\"a\":[{list}]}}"),
        4 => "7".to_owned(),
        _ => format!("[{list}]"),
    };
    let items = format!(
        "\"items\"{}:{}{items}",
        bytes.choose(&SPACES)?,
        bytes.choose(&SPACES)?
    );
    let (kind, meta) = (*bytes.choose(&KINDS[..])?, *bytes.choose(&METAS[..])?);
    let body = match bytes.int_in_range(0..=7_u8)? {
        1 => format!("{{{items},{kind},{meta}}}"),
        2 => format!("{{{meta},{items},{kind}}}"),
        3 => format!("{{{kind},{items}}}"),
        4 => format!(" {{{kind} ,{meta}, \"y\":\"items\", {items}}}\n"),
        5 => format!("{{{kind},{meta},{items},\"z\":[{{\"items\":7}}]}}"),
        7 => format!("{{{kind},{meta}}}"),
        6 => format!("{{{kind},{items},{meta},\"items\":[]}}"),
        _ => format!("{{{kind},{meta},{items}}}"),
    };
    let mut body = body.into_bytes();
    // Damage the body in up to three places.
    for _ in 0..bytes.int_in_range(0..=3_u8)? {
        let at = bytes.int_in_range(0..=body.len())?;
        match bytes.int_in_range(0..=3_u8)? {
            0 if at < body.len() => body[at] = bytes.arbitrary()?,
            1 if at < body.len() => drop(body.remove(at)),
            2 => body.insert(at, *bytes.choose(b"\"{}[]:,\\ 7n\xff\0")?),
            _ if bytes.ratio(1, 4)? => body.truncate(at),
            _ => {}
        }
    }
    Ok(body)
}

fn item(bytes: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    const NAMES: [&str; 7] = [
        r#""name":"a","uid":"1""#,
        r#""name":"b","uid":"2""#,
        r#""name":"c","namespace":"ns","uid":"3""#,
        r#""name":"c","namespace":"ns","uid":"9""#,
        r#""name":"d""#,
        r#""name":"""#,
        r#""name":7"#,
    ];
    const SPECS: [&str; 6] = [
        r#""spec":{"value":3}"#,
        r#""spec":{"value":3,"text":"\"}],{[\\"}"#,
        r#""spec":{"value":"3"}"#,
        r#""spec":{"value":4,"list":[[{}],[1,"]"],null]}"#,
        r#""spec":null"#,
        r#""spec":{"value":-1.5e3}"#,
    ];
    const OTHER: [&str; 8] = [
        "null",
        "7",
        "\"a,]\"",
        "[1,[2]]",
        "{}",
        "true",
        "{\"metadata\":null}",
        "-0.5e1",
    ];
    if bytes.ratio(1, 12)? {
        return Ok((*bytes.choose(&OTHER[..])?).to_owned());
    }
    let (name, spec) = (*bytes.choose(&NAMES[..])?, *bytes.choose(&SPECS[..])?);
    let mut item = String::new();
    let version = bytes.int_in_range(3..=6_u8)?;
    let meta = format!(r#""metadata":{{{name},"resourceVersion":"{version}"}}"#);
    let written = match bytes.int_in_range(0..=3_u8)? {
        0 => write!(item, "{{{spec},{meta}}}"),
        1 => write!(item, "{{ \"kind\":\"Thing\" , {meta} ,\n{spec} }}"),
        _ => write!(item, "{{{meta},{spec}}}"),
    };
    written.expect("writes to a String do not fail");
    Ok(item)
}
