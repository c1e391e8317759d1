//! Objects, and ways to break them.

use k8s_informer::{ObjectMeta, impl_object};
use serde::Deserialize;

/// A custom type with few fields.
#[derive(Debug, Deserialize)]
pub(crate) struct Small {
    pub(crate) metadata: ObjectMeta,
    #[allow(dead_code, reason = "the field only has to be decoded")]
    pub(crate) spec: Option<SmallSpec>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SmallSpec {
    #[allow(dead_code, reason = "the field only has to be decoded")]
    pub(crate) replicas: u32,
}

impl_object!(Small, "v1", "Small", "smalls", Namespaced);

/// An object in the namespace "ns" with a UID derived from its name.
pub(crate) fn object(name: &str, version: &str) -> Vec<u8> {
    with(name, version, "", "")
}

/// Like [`object`], but with more fields in the metadata and beside it. Each text begins with a
/// comma.
pub(crate) fn with(name: &str, version: &str, metadata: &str, beside: &str) -> Vec<u8> {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{version}"{metadata}}}{beside}}}"#
    )
    .into_bytes()
}

/// The part of an object that is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Broken {
    /// The structure. The key is readable.
    Form,
    /// The key, which is missing or ambiguous.
    Key,
    /// The UTF-8 encoding. In a list, the next item can still be found.
    Text,
    /// The JSON syntax. The end of the object cannot be found.
    Json,
}

pub(crate) type Case = (Broken, &'static str, Vec<u8>);

/// "ns/b" in a later version, broken in ways that no type can decode.
pub(crate) fn broken_for_any_type() -> Vec<Case> {
    let deep = format!(r#","x":{}{}"#, "[".repeat(200), "]".repeat(200));
    let very_deep = format!(
        r#","x":{}0{}"#,
        "[{\"a\":".repeat(50_000),
        "}]".repeat(50_000)
    );
    let bytes = |before: &str, bytes: &[u8], after: &str| {
        let mut object = with("b", "5", before, after);
        let at = object.windows(1).position(|byte| byte == b"~").unwrap();
        object.splice(at..=at, bytes.iter().copied());
        object
    };
    let raw = |json: &str| json.as_bytes().to_vec();
    let meta = |metadata: &str| format!(r#"{{"metadata":{metadata},"spec":7}}"#).into_bytes();
    vec![
        (
            Broken::Text,
            "a truncated character in a label",
            bytes(r#","labels":{"a":"~"}"#, b"\xc3", ""),
        ),
        (
            Broken::Text,
            "a surrogate in UTF-8",
            bytes(r#","labels":{"a":"~"}"#, b"\xed\xa0\x80", ""),
        ),
        (
            Broken::Json,
            "NUL in a string",
            bytes(r#","labels":{"a":"~"}"#, b"\0", ""),
        ),
        (Broken::Json, "NUL between values", bytes(",~", b"\0", "")),
        (
            Broken::Json,
            "an invalid literal",
            with("b", "5", r#","x":tru"#, ""),
        ),
        (
            Broken::Json,
            "an invalid number",
            with("b", "5", r#","x":01"#, ""),
        ),
        (Broken::Json, "NaN", with("b", "5", r#","x":NaN"#, "")),
        (
            Broken::Json,
            "an invalid escape",
            with("b", "5", r#","x":"\x41""#, ""),
        ),
        (
            Broken::Json,
            "half a surrogate pair",
            with("b", "5", r#","x":"\ud83d\u00""#, ""),
        ),
        (Broken::Json, "an extra comma", with("b", "5", ",", "")),
        (
            Broken::Json,
            "a missing comma",
            with("b", "5", r#""x":1"#, ""),
        ),
        (
            Broken::Json,
            "a key without a value",
            with("b", "5", r#","x""#, ""),
        ),
        (
            Broken::Json,
            "a key that is a number",
            with("b", "5", r#",7:8"#, ""),
        ),
        (
            Broken::Json,
            "no closing quote, twice",
            with("b", "5", r#","x":"y"", "z":"y"""#, ""),
        ),
        (
            Broken::Json,
            "broken before the namespace",
            raw(r#"{"metadata":{"name":"b",!"namespace":"ns","uid":"u-b"}}"#),
        ),
        (
            Broken::Json,
            "a brace instead of a bracket",
            with("b", "5", "", r#","x":[}"#),
        ),
        (
            Broken::Form,
            "too deep for decoders",
            with("b", "5", "", &deep),
        ),
        (
            Broken::Form,
            "a hundred thousand levels deep",
            with("b", "5", "", &very_deep),
        ),
        (Broken::Key, "null", raw("null")),
        (Broken::Key, "a number", raw("7")),
        (Broken::Key, "a string", raw(r#""}],{""#)),
        (
            Broken::Key,
            "an array",
            raw(r#"[{"metadata":{"name":"b"}}]"#),
        ),
        (Broken::Key, "an array of arrays", raw("[[[]]]")),
        (Broken::Key, "an empty object", raw("{}")),
        (Broken::Key, "no metadata", raw(r#"{"spec":7}"#)),
        (Broken::Key, "metadata: null", meta("null")),
        (Broken::Key, "metadata is a number", meta("7")),
        (
            Broken::Key,
            "metadata is an array",
            meta(r#"[{"name":"b"}]"#),
        ),
        (
            Broken::Key,
            "no name",
            meta(r#"{"namespace":"ns","uid":"u-b"}"#),
        ),
        (
            Broken::Key,
            "an empty name",
            meta(r#"{"name":"","namespace":"ns"}"#),
        ),
        (
            Broken::Key,
            "the name is null",
            meta(r#"{"name":null,"namespace":"ns"}"#),
        ),
    ]
}

/// "ns/b" in a later version, broken in ways that no struct with these fields can decode.
pub(crate) fn broken_for_typed() -> Vec<Case> {
    let meta = |metadata: &str| format!(r#"{{"metadata":{metadata},"spec":7}}"#).into_bytes();
    vec![
        (Broken::Form, "a string for an object", with("b", "5", "", r#","spec":"x""#)),
        (Broken::Form, "a number for an object", with("b", "5", "", r#","spec":7"#)),
        (Broken::Form, "an array for a map", with("b", "5", r#","labels":["x"]"#, "")),
        (Broken::Form, "a number for a string", with("b", "5", r#","labels":{"x":7}"#, "")),
        (Broken::Form, "an object for a string", with("b", "5", r#","labels":{"x":{}}"#, "")),
        (Broken::Form, "a number for a UID", raw_meta(r#""name":"b","namespace":"ns","uid":7"#)),
        (
            Broken::Form,
            "a number for a version",
            raw_meta(r#""name":"b","namespace":"ns","uid":"u-b","resourceVersion":5"#),
        ),
        (
            Broken::Form,
            "the metadata last",
            br#"{"spec":7,"metadata":{"resourceVersion":"5","uid":"u-b","namespace":"ns","name":"b"}}"#.to_vec(),
        ),
        (Broken::Key, "the name is a number", meta(r#"{"name":7,"namespace":"ns"}"#)),
        (Broken::Key, "the namespace is a number", meta(r#"{"name":"b","namespace":7}"#)),
        (Broken::Key, "the namespace is an object", meta(r#"{"name":"b","namespace":{"ns":"ns"}}"#)),
        (Broken::Key, "two names", meta(r#"{"name":"x","namespace":"ns","uid":"u","name":"b"}"#)),
        (
            Broken::Key,
            "two names, the second after the rest",
            meta(r#"{"name":"x","namespace":"ns","uid":"u","resourceVersion":"5","name":"b"}"#),
        ),
        (Broken::Key, "two namespaces", meta(r#"{"name":"b","namespace":"x","namespace":"ns"}"#)),
        (
            Broken::Key,
            "metadata twice",
            br#"{"metadata":{"name":"x","uid":"u","resourceVersion":"5"},"metadata":{"name":"b","namespace":"ns"},"spec":7}"#
                .to_vec(),
        ),
    ]
}

fn raw_meta(metadata: &str) -> Vec<u8> {
    format!(r#"{{"metadata":{{{metadata}}}}}"#).into_bytes()
}

/// "ns/b" in a later version, broken in ways that k8s-openapi's Pod cannot decode.
pub(crate) fn broken_for_pods() -> Vec<Case> {
    let deep = format!(
        r#","managedFields":[{{"fieldsV1":{}{}}}]"#,
        r#"{"f:a":"#.repeat(200) + "1",
        "}".repeat(200)
    );
    let form =
        |case, metadata: &str, beside: &str| (Broken::Form, case, with("b", "5", metadata, beside));
    vec![
        form("a number as a string", r#","generation":"7""#, ""),
        form(
            "a fraction for a number",
            r#","deletionGracePeriodSeconds":1.5"#,
            "",
        ),
        form(
            "a number out of bounds",
            "",
            r#","spec":{"containers":[],"terminationGracePeriodSeconds":1e300}"#,
        ),
        form("an invalid time", r#","creationTimestamp":"yesterday""#, ""),
        form("an object for an array", "", r#","spec":{"containers":{}}"#),
        form("a number for an element", r#","ownerReferences":[7]"#, ""),
        form("a number for a phase", "", r#","status":{"phase":7}"#),
        form("an array for a status", "", r#","status":[[]]"#),
        form("another kind", "", r#","apiVersion":"v1","kind":"Node""#),
        form("another version", "", r#","apiVersion":"v2","kind":"Pod""#),
        form("managed fields too deep", &deep, ""),
    ]
}
