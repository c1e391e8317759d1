use serde_json::{Map, Value};

use super::*;
use crate::time::Random;

fn paths(pointers: &[&str]) -> FieldPaths {
    FieldPaths::new(pointers).unwrap()
}

fn cut(pointers: &[&str], object: &str) -> String {
    let mut scratch = b"left from the last one".to_vec();
    String::from_utf8(
        paths(pointers)
            .cut(object.as_bytes(), &mut scratch)
            .to_vec(),
    )
    .unwrap()
}

/// Whether `cut` returns its input, and not a copy.
fn is_uncut(pointers: &[&str], object: &[u8]) -> bool {
    let mut scratch = Vec::new();
    std::ptr::eq(paths(pointers).cut(object, &mut scratch), object)
}

#[test]
fn field_is_removed_with_its_comma() {
    for (object, expected) in [
        (r#"{"a":1,"x":{},"b":2}"#, r#"{"a":1,"b":2}"#),
        (r#"{"x":{},"b":2}"#, r#"{"b":2}"#),
        (r#"{"a":1,"x":{}}"#, r#"{"a":1}"#),
        (r#"{"x":{}}"#, "{}"),
        (
            " { \"a\" : 1 , \"x\" : [ ] , \"b\" : 2 } ",
            " { \"a\" : 1  , \"b\" : 2 } ",
        ),
        ("\n{\t\"x\"\r\n:null ,\n\"b\":2}", "\n{\t\n\"b\":2}"),
        (r#"{"x":"},\"{\\","b":2}"#, r#"{"b":2}"#),
        (r#"{"x":-1.5e+3,"b":2}"#, r#"{"b":2}"#),
    ] {
        assert_eq!(cut(&["/x"], object), expected, "{object}");
    }
}

#[test]
fn several_fields_are_removed_together() {
    let object = r#"{"x":1,"y":[2],"a":{"x":3},"x":4,"y":{"z":5}}"#;
    assert_eq!(cut(&["/x", "/y"], object), r#"{"a":{"x":3}}"#);
    assert_eq!(cut(&["/x", "/y", "/a"], object), "{}");
    assert_eq!(cut(&["/x", "/y", "/a/x"], object), r#"{"a":{}}"#);
    assert_eq!(cut(&["/y/z", "/a", "/y"], object), r#"{"x":1,"x":4}"#);
}

#[test]
fn field_path_traverses_objects_and_arrays() {
    let pod = r#"{"spec":{"containers":[{"env":[1],"name":"a"},{"name":"b","env":null}],"env":1}}"#;
    assert_eq!(
        cut(&["/spec/containers/*/env"], pod),
        r#"{"spec":{"containers":[{"name":"a"},{"name":"b"}],"env":1}}"#
    );
    assert_eq!(
        cut(&["/spec/containers/1/env"], pod),
        r#"{"spec":{"containers":[{"env":[1],"name":"a"},{"name":"b"}],"env":1}}"#
    );
    assert_eq!(
        cut(&["/spec/containers/0"], pod),
        r#"{"spec":{"containers":[{"name":"b","env":null}],"env":1}}"#
    );
    assert_eq!(
        cut(&["/spec/*/*"], pod),
        r#"{"spec":{"containers":[],"env":1}}"#
    );
    assert_eq!(cut(&["/*"], pod), "{}");
}

#[test]
fn only_canonical_numbers_are_array_indexes() {
    for step in ["01", "+1", "-", "1.0", "", "18446744073709551616"] {
        assert!(
            is_uncut(&[&format!("/a/{step}")], br#"{"a":[1,2]}"#),
            "{step}"
        );
    }
    assert_eq!(
        cut(&["/a/01"], r#"{"a":{"1":1,"01":2}}"#),
        r#"{"a":{"1":1}}"#
    );
}

#[test]
fn keys_are_compared_unescaped() {
    assert_eq!(
        cut(&["/a/b"], r#"{"\u0061":{"\u0062":1}}"#),
        r#"{"\u0061":{}}"#
    );
    assert_eq!(
        cut(&["/a~1b/~0"], r#"{"a\/b":{"~":1,"~0":2}}"#),
        r#"{"a\/b":{"~0":2}}"#
    );
    assert_eq!(cut(&["/é\"😀"], r#"{"\u00e9\"\ud83d\ude00":1}"#), "{}");
    assert_eq!(cut(&["/"], r#"{"":1,"a":{"":2}}"#), r#"{"a":{"":2}}"#);
}

#[test]
fn object_without_skipped_fields_is_not_copied() {
    for object in [
        r#"{"kind":"Pod","metadata":{"name":"managedFields"},"spec":{"managedFields":[]}}"#,
        r#"{"metadata":null}"#,
        r#"{"metadata":[{"managedFields":1}]}"#,
        r#"{"metadata":"managedFields"}"#,
        "{}",
        "null",
        "[]",
    ] {
        let mut scratch = Vec::new();
        let object = object.as_bytes();
        assert!(std::ptr::eq(
            FieldPaths::managed_fields().cut(object, &mut scratch),
            object
        ));
        assert!(is_uncut(&[], object));
    }
}

#[test]
fn bytes_after_last_skipped_field_are_not_parsed() {
    let object = r#"{"metadata":{"managedFields":[{}]},"spec":]]]"#;
    assert_eq!(
        cut(&["/metadata/managedFields"], object),
        r#"{"metadata":{},"spec":]]]"#
    );
    let object = r#"{"a":{"b":1},"a":{"b":2}}"#;
    assert_eq!(cut(&["/a/b"], object), r#"{"a":{},"a":{"b":2}}"#);
    assert_eq!(cut(&["/*/b"], object), r#"{"a":{},"a":{}}"#);
}

#[test]
fn malformed_json_is_returned_unchanged() {
    for object in [
        "",
        "x",
        "{",
        r#"{"x"#,
        r#"{"x\"#,
        r#"{"x":"\"#,
        r#"{"x":1,}"#,
        r#"{,"x":1}"#,
        r#"{"x":}"#,
        r#"{"x"}"#,
        r#"{x:1}"#,
        r#"{"x":1]"#,
        r#"{"x":1 2}"#,
        r#"{"x":[[]}"#,
        r#"{"x":1,"b\ud800":1}"#,
        "<html>",
    ] {
        assert!(is_uncut(&["/x"], object.as_bytes()), "{object}");
    }
    assert!(is_uncut(&["/x"], b"{\"x\":1,\xff}"));
    // The nesting is deep enough to overflow the stack of a recursive parser.
    assert!(is_uncut(&["/x/*/x"], &br#"{"x":["#.repeat(500_000)));
    assert!(is_uncut(&["/a"], &b"[".repeat(1_000_000)));
}

#[test]
fn pointers_violating_rfc_6901_are_rejected() {
    let error = |pointer| FieldPaths::new([pointer]).unwrap_err().to_string();
    let no_slash = "is not a JSON pointer to a field: it must begin with a slash";
    assert_eq!(error("metadata"), format!("\"metadata\" {no_slash}"));
    assert_eq!(error(""), format!("\"\" {no_slash}"));
    for pointer in ["/a~", "/~2", "/a~/b", "/~0~"] {
        assert!(
            error(pointer)
                .ends_with(": a tilde must be followed by 0 (for a tilde) or 1 (for a slash)")
        );
    }
    let pointers = ["/a~1b/~01/*", "/", "//x"];
    assert_eq!(format!("{:?}", paths(&pointers)), format!("{pointers:?}"));
    assert_eq!(
        format!("{:?}", FieldPaths::managed_fields()),
        r#"["/metadata/managedFields"]"#
    );
}

fn one_of<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len())]
}

const KEYS: &[&str] = &[
    "a", "b", "", "*", "0", "1", "01", "a/b", "~", "k\"ey\\", "é😀",
];

fn document(random: &mut Random, depth: usize) -> Value {
    let size = random.below(5);
    match random.below(if depth == 0 { 4 } else { 9 }) {
        0 => Value::Null,
        1 => true.into(),
        2 => (random.below(2000) as f64 / 8.0 - 100.0).into(),
        3 => one_of(random, &["", "}", "]\"", "\\", "{[,:", "é😀\u{7}"]).into(),
        4 | 5 => (0..size).map(|_| document(random, depth - 1)).collect(),
        _ => object(random, depth - 1),
    }
}

fn object(random: &mut Random, depth: usize) -> Value {
    let fields =
        (0..random.below(5)).map(|_| (one_of(random, KEYS).to_owned(), document(random, depth)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Writes JSON with random white space and escapes.
fn write(value: &Value, random: &mut Random, json: &mut String) {
    fn space(random: &mut Random, json: &mut String) {
        if random.below(4) == 0 {
            json.push_str(one_of(random, &[" ", "\n", "\t", "\r\n  "]));
        }
    }
    fn string(text: &str, random: &mut Random, json: &mut String) {
        if random.below(3) == 0 {
            let escaped = text
                .encode_utf16()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect::<String>();
            json.push_str(&format!("\"{escaped}\""));
        } else {
            json.push_str(&Value::from(text).to_string());
        }
    }
    space(random, json);
    match value {
        Value::Array(elements) => {
            json.push('[');
            for (at, element) in elements.iter().enumerate() {
                json.push_str(if at > 0 { "," } else { "" });
                write(element, random, json);
            }
            space(random, json);
            json.push(']');
        }
        Value::Object(fields) => {
            json.push('{');
            let first = random.below(fields.len().max(1));
            let rotated = fields.iter().skip(first).chain(fields.iter().take(first));
            for (at, (key, value)) in rotated.enumerate() {
                json.push_str(if at > 0 { "," } else { "" });
                space(random, json);
                string(key, random, json);
                space(random, json);
                json.push(':');
                write(value, random, json);
            }
            space(random, json);
            json.push('}');
        }
        Value::String(text) => string(text, random, json),
        scalar => json.push_str(&scalar.to_string()),
    }
    space(random, json);
}

fn step(random: &mut Random) -> &'static str {
    if random.below(3) == 0 {
        "*"
    } else {
        one_of(random, KEYS)
    }
}

fn pointers(random: &mut Random) -> (Vec<String>, Vec<Vec<&'static str>>) {
    let paths: Vec<Vec<&str>> = (0..1 + random.below(4))
        .map(|_| (0..1 + random.below(4)).map(|_| step(random)).collect())
        .collect();
    let pointer = |path: &Vec<&str>| {
        path.iter()
            .map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1")))
            .collect()
    };
    (paths.iter().map(pointer).collect(), paths)
}

/// The reference implementation of `cut`, on a tree.
fn remove(value: Value, paths: &[&[&str]]) -> Value {
    let kept = |key: &str, value: Value| {
        let leads = |path: &&&[&str]| path[0] == key || path[0] == "*";
        let rests: Vec<_> = paths.iter().filter(leads).map(|path| &path[1..]).collect();
        (!rests.iter().any(|rest| rest.is_empty())).then(|| remove(value, &rests))
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .filter_map(|(key, value)| kept(&key, value).map(|value| (key, value)))
                .collect()
        }
        Value::Array(elements) => {
            let elements = elements.into_iter().enumerate();
            elements
                .filter_map(|(at, value)| kept(&at.to_string(), value))
                .collect()
        }
        scalar => scalar,
    }
}

#[test]
fn cut_matches_removal_from_parsed_tree() {
    let mut random = Random::seeded(5);
    let (mut scratch, mut cuts) = (Vec::new(), 0);
    for _ in 0..20_000 {
        let tree = object(&mut random, 4);
        let (pointers, steps) = pointers(&mut random);
        let paths = FieldPaths::new(&pointers).unwrap();
        let mut json = String::new();
        write(&tree, &mut random, &mut json);
        let steps: Vec<&[&str]> = steps.iter().map(Vec::as_slice).collect();
        let expected = remove(tree.clone(), &steps);
        let bytes = paths.cut(json.as_bytes(), &mut scratch);
        let cut: Value = serde_json::from_slice(bytes)
            .unwrap_or_else(|error| panic!("{json} {paths:?}: {error}"));
        assert_eq!(cut, expected, "{json} {paths:?}");
        assert_eq!(
            std::ptr::eq(bytes, json.as_bytes()),
            expected == tree,
            "{json} {paths:?}"
        );
        cuts += usize::from(expected != tree);
    }
    assert!((5_000..15_000).contains(&cuts), "{cuts}");
}

#[test]
fn truncated_document_stays_invalid_after_cut() {
    let mut random = Random::seeded(6);
    let mut scratch = Vec::new();
    for _ in 0..1_000 {
        let paths = FieldPaths::new(pointers(&mut random).0).unwrap();
        let mut json = String::new();
        write(&object(&mut random, 3), &mut random, &mut json);
        let json = json.trim_end().as_bytes();
        for end in 0..json.len() {
            let bytes = paths.cut(&json[..end], &mut scratch);
            assert!(
                serde_json::from_slice::<Value>(bytes).is_err(),
                "{:?} {paths:?}",
                &json[..end]
            );
        }
    }
}

#[test]
fn cut_of_mutated_valid_json_equals_removal_from_value() {
    let mut random = Random::seeded(7);
    let mut scratch = Vec::new();
    for _ in 0..30_000 {
        let (pointers, steps) = pointers(&mut random);
        let paths = FieldPaths::new(&pointers).unwrap();
        let mut json = String::new();
        write(&object(&mut random, 3), &mut random, &mut json);
        let mut bytes = json.into_bytes();
        for _ in 0..1 + random.below(2) {
            let at = random.below(bytes.len());
            bytes[at] = b"{}[]\",:\\ n1\xff"[random.below(12)];
        }
        let cut = paths.cut(&bytes, &mut scratch);
        // Only objects without duplicate keys are checked here. Another test covers duplicate keys.
        if let Ok(tree) = serde_json::from_slice::<Value>(&bytes)
            && tree.to_string().matches(':').count()
                == bytes.iter().filter(|byte| **byte == b':').count()
        {
            let steps: Vec<&[&str]> = steps.iter().map(Vec::as_slice).collect();
            let cut: Value = serde_json::from_slice(cut).unwrap();
            assert_eq!(
                cut,
                remove(tree, &steps),
                "{} {paths:?}",
                String::from_utf8_lossy(&bytes)
            );
        }
        let noise: Vec<u8> = (0..random.below(40))
            .map(|_| b"{}[]\",:\\ a*01"[random.below(13)])
            .collect();
        let cut = paths.cut(&noise, &mut scratch);
        assert!(
            serde_json::from_slice::<Value>(&noise).is_err()
                || serde_json::from_slice::<Value>(cut).is_ok()
        );
    }
}
