//! A dynamic object has the same content at every pointer as a tree of the same JSON. It rejects
//! JSON only if serde_json rejects it, a key is duplicate, or a field that it locates while
//! decoding has the wrong type.

use std::collections::BTreeMap;

use arbitrary::{Result as Read, Unstructured};
use k8s_informer::{DynamicObject, Object};
use serde_json::{Map, Value};

use super::serving::plain;

type Tree = Map<String, Value>;

pub fn run(input: &[u8]) {
    // Check the raw bytes, then an object generated from them.
    check(input);
    if let Ok(made) = object(&mut Unstructured::new(input)) {
        check(made.as_bytes());
    }
}

fn check(bytes: &[u8]) {
    let tree = serde_json::from_slice::<Tree>(bytes);
    let object = match (serde_json::from_slice::<DynamicObject>(bytes), &tree) {
        (Ok(object), _) => object,
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
    assert!(object.json().trim() == object.json());
    // serde_json rejects a value that the object has only checked for syntax, such as `1e999`. The
    // object accepts it until the value is read.
    let Ok(mut tree) = tree else {
        let mut same = object.clone();
        assert!(same.edit(|_| ()).is_err());
        return assert!(object.to_map().is_err() && same == object);
    };
    assert!(!is_odd(&tree));
    same(&object, &tree);
    let mut named = object.clone();
    named.set_type_meta("a/v1", "\"K\"");
    if [object.api_version(), object.kind()] == ["", ""] {
        tree.insert("apiVersion".into(), "a/v1".into());
        tree.insert("kind".into(), "\"K\"".into());
    }
    same(&named, &tree);
    let mut again = named.clone();
    again.set_type_meta("other", "Other");
    assert_eq!(again.json(), named.json());
    // Convert from a map, and to and from `serde_json::Value` (not JSON text).
    assert_eq!(DynamicObject::new(&tree).ok().as_ref(), Some(&named));
    let value = Value::Object(tree);
    assert_eq!(serde_json::to_value(&named).ok().as_ref(), Some(&value));
    assert_eq!(serde_json::from_value(value).ok(), Some(named));
}

/// Whether a field that the object locates while decoding has the wrong type.
fn is_odd(tree: &Tree) -> bool {
    let at = |pointer: &[&str]| {
        let mut value = tree.get(pointer[0]);
        for step in &pointer[1..] {
            value = value.and_then(|value| value.get(step));
        }
        value.filter(|value| !value.is_null())
    };
    let texts: [&[&str]; 6] = [
        &["apiVersion"],
        &["kind"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "uid"],
        &["metadata", "resourceVersion"],
    ];
    texts
        .into_iter()
        .filter_map(at)
        .any(|value| !value.is_string())
        || at(&["metadata"]).is_some_and(|metadata| !metadata.is_object())
        || at(&["metadata", "labels"]).is_some_and(|labels| match labels.as_object() {
            Some(labels) => labels
                .values()
                .any(|label| !label.is_string() && !label.is_null()),
            None => true,
        })
}

fn same(object: &DynamicObject, tree: &Tree) {
    assert_eq!(object.to_map().ok().as_ref(), Some(tree));
    let text = |pointer: &str| {
        let value = Value::Object(tree.clone());
        let text = value.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    for (pointer, found) in [
        ("/apiVersion", object.api_version()),
        ("/kind", object.kind()),
        ("/metadata/name", object.name()),
        ("/metadata/namespace", object.namespace()),
        ("/metadata/uid", object.uid()),
        ("/metadata/resourceVersion", object.resource_version()),
    ] {
        assert_eq!(found, text(pointer), "{pointer}");
    }
    let labels: BTreeMap<String, Option<String>> = object
        .read("/metadata/labels")
        .expect("labels are strings or null")
        .unwrap_or_default();
    assert_eq!(object.labels().count(), labels.len());
    for (key, value) in object.labels() {
        let expected = labels.get(key).map(|label| label.as_deref());
        assert_eq!(expected.map(Option::unwrap_or_default), Some(value));
        assert_eq!(object.label(key), Some(value));
    }
    assert_eq!(object.label("no such label"), None);
    let whole = Value::Object(tree.clone());
    let mut pointers = vec!["metadata".to_owned(), "x/spec".to_owned()];
    all("", &whole, &mut pointers);
    for pointer in pointers {
        for pointer in ["", "/", "/0", "/00", "/+0", "/-", "/~", "/~0~1", "/1"]
            .map(|more| pointer.clone() + more)
        {
            let expected = whole.pointer(&pointer).filter(|value| !value.is_null());
            let read = object.read::<Value>(&pointer);
            assert_eq!(
                read.expect("the value is JSON").as_ref(),
                expected,
                "{pointer}"
            );
        }
    }
}

/// Collects the pointers to all values of a tree.
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

/// Generates an object that is mostly valid.
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

/// Writes the value of the key with this index.
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
