//! A compact object of any JSON: it says what a tree of the same bytes says, of every place, and decodes to
//! the same; what it refuses it has a reason to refuse.

use std::collections::BTreeMap;

use arbitrary::{Result as Read, Unstructured};
use k8s_informer::object::Compact;
use k8s_informer::{DynamicObject, Object};
use serde_json::Value;

use super::serving::plain;

pub fn run(input: &[u8]) {
    // The bytes, whatever they are, and then what is made of them.
    check(input);
    if let Ok(made) = object(&mut Unstructured::new(input)) {
        check(made.as_bytes());
    }
}

fn check(bytes: &[u8]) {
    let tree = serde_json::from_slice::<DynamicObject>(bytes);
    let compact = match (serde_json::from_slice::<Compact>(bytes), &tree) {
        (Ok(compact), _) => compact,
        (Err(error), Ok(tree)) => {
            assert!(
                is_odd(tree) || plain(bytes).is_none(),
                "{error}: {}",
                String::from_utf8_lossy(bytes)
            );
            return;
        }
        (Err(_), Err(_)) => return,
    };
    // Something that nobody has looked at yet is wrong.
    let Ok(mut tree) = tree else {
        return assert!(compact.decode().is_err());
    };
    assert!(!is_odd(&tree));
    same(&compact, &tree);
    let mut named = compact.clone();
    named.set_type_meta("a/v1", "\"K\"");
    tree.set_type_meta("a/v1", "\"K\"");
    same(&named, &tree);
    let mut again = named.clone();
    again.set_type_meta("other", "Other");
    assert_eq!(again, named);
}

/// Whether something that a cache asks for is neither there nor what it has to be.
fn is_odd(tree: &DynamicObject) -> bool {
    let tree = Value::Object(tree.to_map());
    let odd = |pointer: &str| {
        tree.pointer(pointer)
            .is_some_and(|value| !value.is_string() && !value.is_null())
    };
    let map = |pointer: &str| tree.pointer(pointer).filter(|value| !value.is_null());
    let texts = [
        "/apiVersion",
        "/kind",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/uid",
    ];
    texts
        .into_iter()
        .chain(["/metadata/resourceVersion"])
        .any(odd)
        || map("/metadata").is_some_and(|metadata| !metadata.is_object())
        || map("/metadata/labels").is_some_and(|labels| match labels.as_object() {
            Some(labels) => labels.values().any(|label| !label.is_string()),
            None => true,
        })
}

fn same(compact: &Compact, tree: &DynamicObject) {
    assert_eq!(compact.decode().ok().as_ref(), Some(tree));
    assert_eq!(
        serde_json::to_string(compact).ok().as_deref(),
        Some(compact.json())
    );
    assert_eq!(
        (compact.api_version(), compact.kind()),
        (tree.api_version(), tree.kind())
    );
    assert_eq!(
        (compact.name(), compact.namespace()),
        (tree.name(), tree.namespace())
    );
    assert_eq!(
        (compact.uid(), compact.resource_version()),
        (tree.uid(), tree.resource_version())
    );
    let labels: BTreeMap<_, _> = tree.labels().collect();
    assert_eq!(compact.labels().collect::<BTreeMap<_, _>>(), labels);
    assert_eq!(compact.labels().count(), labels.len());
    labels
        .iter()
        .for_each(|(key, value)| assert_eq!(compact.label(key), Some(*value)));
    assert_eq!(compact.label("no such label"), None);
    let whole = Value::Object(tree.to_map());
    let mut pointers = vec!["metadata".to_owned(), "x/spec".to_owned()];
    all("", &whole, &mut pointers);
    for pointer in pointers {
        for pointer in ["", "/", "/0", "/00", "/+0", "/-", "/~", "/~0~1", "/1"]
            .map(|more| pointer.clone() + more)
        {
            let expected = whole.pointer(&pointer).filter(|value| !value.is_null());
            let read = [compact.read::<Value>(&pointer), tree.read(&pointer)];
            for read in read {
                assert_eq!(read.expect("it is JSON").as_ref(), expected, "{pointer}");
            }
        }
    }
}

/// The pointers to everything in a tree.
fn all(to: &str, value: &Value, pointers: &mut Vec<String>) {
    pointers.push(to.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            all(
                &format!("{to}/{}", key.replace('~', "~0").replace('/', "~1")),
                value,
                pointers,
            );
        }),
        Value::Array(elements) => {
            elements
                .iter()
                .enumerate()
                .for_each(|(at, value)| all(&format!("{to}/{at}"), value, pointers));
        }
        _ => {}
    }
}

const FIELDS: [&str; 8] = [
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    "metadat\\u0061",
    "k\\u0069nd",
    "status",
    "data",
];
const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "annotations",
    "n\\u0061me",
    "metadata",
    "label\\u0073",
];
const TEXTS: [&str; 16] = [
    "a",
    "b",
    "app",
    "\\u0061",
    "\\\"",
    "\\\\",
    "",
    "0",
    "01",
    "a/b",
    "m~n",
    "é",
    "\\ud83d\\ude00",
    "\\ud800",
    "}{][,:",
    "name",
];
const VALUES: [&str; 8] = ["null", "true", "7", "-1.5e3", "1e999", "[]", "{}", "\"\""];
const SPACES: [&str; 4] = ["", "", " ", "\n\t\r "];

/// An object, more or less.
fn object(bytes: &mut Unstructured<'_>) -> Read<String> {
    let mut json = String::new();
    entries(
        bytes,
        &mut json,
        &FIELDS,
        &mut |bytes, json, key| match key {
            3.. if key != 4 => value(bytes, json, 3),
            2 | 4 if bytes.ratio(9, 10)? => {
                entries(bytes, json, &METADATA, &mut |bytes, json, key| match key {
                    4 | 8 if bytes.ratio(9, 10)? => {
                        entries(bytes, json, &TEXTS, &mut |bytes, json, _| {
                            text_or_value(bytes, json)
                        })
                    }
                    5 | 7 => value(bytes, json, 2),
                    _ => text_or_value(bytes, json),
                })
            }
            _ => text_or_value(bytes, json),
        },
    )?;
    Ok(json)
}

/// Writes the value of the key that has this number.
type Write<'w> = dyn FnMut(&mut Unstructured<'_>, &mut String, usize) -> Read<()> + 'w;

fn entries(
    bytes: &mut Unstructured<'_>,
    json: &mut String,
    keys: &[&str],
    write: &mut Write<'_>,
) -> Read<()> {
    json.push('{');
    for at in 0..bytes.int_in_range(0..=5)? {
        json.push_str(if at > 0 { "," } else { "" });
        let key = bytes.choose_index(keys.len())?;
        let space = bytes.choose(&SPACES)?;
        json.push_str(&format!("{space}\"{}\"{space}:{space}", keys[key]));
        write(bytes, json, key)?;
        json.push_str(space);
    }
    json.push('}');
    Ok(())
}

fn text_or_value(bytes: &mut Unstructured<'_>, json: &mut String) -> Read<()> {
    if bytes.ratio(1, 16)? {
        return value(bytes, json, 1);
    }
    json.push_str(&format!("\"{}\"", bytes.choose(&TEXTS)?));
    Ok(())
}

fn value(bytes: &mut Unstructured<'_>, json: &mut String, depth: usize) -> Read<()> {
    match bytes.int_in_range(0..=3)? {
        0 if depth > 0 => entries(bytes, json, &TEXTS, &mut |bytes, json, _| {
            value(bytes, json, depth - 1)
        }),
        1 if depth > 0 => {
            json.push('[');
            for at in 0..bytes.int_in_range(0..=4)? {
                json.push_str(if at > 0 { "," } else { "" });
                value(bytes, json, depth - 1)?;
                json.push_str(bytes.choose(&SPACES)?);
            }
            json.push(']');
            Ok(())
        }
        2 => {
            json.push_str(bytes.choose(&VALUES)?);
            Ok(())
        }
        _ => {
            json.push_str(&format!("\"{}\"", bytes.choose(&TEXTS)?));
            Ok(())
        }
    }
}
