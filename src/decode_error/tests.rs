use std::cell::Cell;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::*;
use crate::object::{DynamicObject, ObjectMeta};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only decoded, never read")]
struct Widget {
    metadata: Option<ObjectMeta>,
    spec: Option<Box<Spec>>,
    #[serde(default)]
    data: BTreeMap<String, u32>,
    tagged: Option<Tagged>,
    untagged: Option<Untagged>,
    one_of: Option<OneOf>,
    flat: Option<Flat>,
    strict: Option<Strict>,
    raw: Option<Box<serde_json::value::RawValue>>,
    dynamic: Option<DynamicObject>,
    #[serde(default, deserialize_with = "picky")]
    picky: (),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only decoded, never read")]
struct Spec {
    replicas: Option<i32>,
    #[serde(default)]
    containers: Vec<Container>,
    pair: Option<(u32, Wrapped)>,
    tree: Option<Value>,
    inner: Option<Box<Widget>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only decoded, never read")]
struct Container {
    name: String,
    #[serde(default)]
    ports: Vec<u16>,
    size: Option<Size>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only decoded, never read")]
struct Wrapped(BTreeMap<String, Vec<bool>>);

#[derive(Deserialize)]
enum Size {
    Small,
    Large,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
#[expect(dead_code, reason = "only decoded, never read")]
enum Tagged {
    A { size: u32 },
}

#[derive(Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only decoded, never read")]
enum Untagged {
    Number(u32),
    Flag(bool),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only decoded, never read")]
enum OneOf {
    ConfigMap(Container),
    Pair(u32, u32),
    Secret { key: u32 },
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only decoded, never read")]
struct Flat {
    size: Option<Container>,
    #[serde(flatten)]
    rest: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only decoded, never read")]
struct Strict {
    known: Option<u32>,
    other: Option<u32>,
}

fn picky<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    Err(D::Error::custom(String::deserialize(deserializer)?))
}

fn explanation(json: &str) -> DecodeError {
    let error = serde_json::from_str::<Widget>(json).err().unwrap();
    let found = explain::<Widget>(json.as_bytes(), &error);
    assert_eq!(
        (found.line, found.column),
        (error.line(), error.column()),
        "{json}"
    );
    found
}

fn explained_as(json: &str) -> String {
    let text = explanation(json).to_string();
    without_position(&text).to_owned()
}

#[test]
fn error_has_field_path_and_no_values() {
    for (json, expected) in [
        (
            r#"{"spec": {"replicas": "hunter2"}}"#,
            "spec.replicas: invalid type: string, expected i32",
        ),
        (
            r#"{"spec": {"replicas": 5000000000}}"#,
            "spec.replicas: invalid value: integer, expected i32",
        ),
        (
            r#"{"spec": {"replicas": {"hunter2": 1}}}"#,
            "spec.replicas: invalid type: map, expected i32",
        ),
        (
            r#"{"spec": {"replicas": 1.5}}"#,
            "spec.replicas: invalid type: floating point, expected i32",
        ),
        (
            r#"{"spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [80, "hunter2"]}]}}"#,
            "spec.containers[1].ports[1]: invalid type: string, expected u16",
        ),
        (
            r#"{"spec": {"containers": [{"ports": []}]}}"#,
            "spec.containers[0]: missing field `name`",
        ),
        (
            r#"{"spec": {"containers": [{"name": "a", "name": "b"}]}}"#,
            "spec.containers[0]: duplicate field `name`",
        ),
        (
            r#"{"spec": {"containers": [{"name": "a", "size": "hunter2"}]}}"#,
            "spec.containers[0].size: unknown variant, expected `Small`, `Large`",
        ),
        (
            r#"{"spec": {"pair": ["hunter2"]}}"#,
            "spec.pair[0]: invalid type: string, expected u32",
        ),
        (
            r#"{"spec": {"pair": [1]}}"#,
            "spec.pair: invalid length, expected a tuple of size 2",
        ),
        (
            r#"{"spec": {"pair": [1, {"hunter2": [true, 7]}]}}"#,
            "spec.pair[1][…][1]: invalid type: integer, expected a boolean",
        ),
        (
            r#"{"data": {"hunter2": "x"}}"#,
            "data[…]: invalid type: string, expected u32",
        ),
        // A map key that equals a field name is not a field.
        (
            r#"{"data": {"spec": "x"}}"#,
            "data[…]: invalid type: string, expected u32",
        ),
        (
            r#"{"metadata": {"labels": {"a": 5}}}"#,
            "metadata.labels[…]: invalid type: integer, expected a string",
        ),
        (
            r#"{"spec": {"inner": {"spec": {"inner": {"spec": {"replicas": []}}}}}}"#,
            "spec.inner.spec.inner.spec.replicas: invalid type: sequence, expected i32",
        ),
        // An undeclared field is skipped, and later fields are not below it.
        (
            r#"{"hunter2": {"a": [1]}, "spec": {"tree": {"hunter2": [[{}]]}, "replicas": false}}"#,
            "spec.replicas: invalid type: boolean, expected i32",
        ),
        (
            r#"["hunter2"]"#,
            "[0]: invalid type: string, expected struct ObjectMeta",
        ),
    ] {
        assert_eq!(explained_as(json), expected, "{json}");
    }
}

#[test]
fn error_path_includes_enums_and_flattened_fields() {
    for (json, expected) in [
        (
            r#"{"oneOf": {"configMap": {"name": 7}}}"#,
            "oneOf.configMap.name: invalid type: integer, expected a string",
        ),
        (
            r#"{"oneOf": {"pair": [1, "x"]}}"#,
            "oneOf.pair[1]: invalid type: string, expected u32",
        ),
        (
            r#"{"oneOf": {"secret": {"key": "x"}}}"#,
            "oneOf.secret.key: invalid type: string, expected u32",
        ),
        (
            r#"{"oneOf": {"hunter2": 1}}"#,
            "oneOf: unknown variant, expected `configMap`, `pair`, `secret`",
        ),
        // These types buffer their content, so the path ends where the buffered content begins.
        (
            r#"{"tagged": {"type": "A", "size": "hunter2"}}"#,
            "tagged: invalid type: string, expected u32",
        ),
        (
            r#"{"tagged": {"type": "hunter2"}}"#,
            "tagged[…]: unknown variant, expected `A`",
        ),
        (r#"{"tagged": {"size": 1}}"#, "tagged: missing field `type`"),
        (
            r#"{"untagged": "hunter2"}"#,
            "untagged: data did not match any variant of untagged enum Untagged",
        ),
        (
            r#"{"flat": {"hunter2": "x"}}"#,
            "flat: invalid type: string, expected u32",
        ),
        // serde reads a struct with `flatten` as a map.
        (
            r#"{"flat": {"size": {"name": 7}}}"#,
            "flat[…].name: invalid type: integer, expected a string",
        ),
        (
            r#"{"strict": {"hunter2": 7}}"#,
            "strict: unknown field, expected `known`, `other`",
        ),
    ] {
        assert_eq!(explained_as(json), expected, "{json}");
    }
}

#[test]
fn nested_dynamic_object_error_has_full_path() {
    for (json, expected) in [
        (
            "7",
            "dynamic: invalid type: something else, expected a Kubernetes object",
        ),
        (
            r#"{"metadata": {"name": 5}}"#,
            "dynamic: metadata.name: invalid type: integer, expected a string",
        ),
    ] {
        assert_eq!(explained_as(&format!(r#"{{"dynamic": {json}}}"#)), expected);
    }
}

#[test]
fn custom_message_is_hidden_unless_requested() {
    for text in [
        "hunter2 is a bad word",
        "invalid type: string, expected hunter2",
        "invalid value, expected a number, not hunter2",
        "missing field `hunter2`",
        "missing field `a` at line 1 column 2, hunter2",
        "data did not match any variant of untagged enum hunter2 or so",
    ] {
        let error = explanation(&format!(
            r#"{{"spec": {{"inner": {{"picky": "{text}"}}}}}}"#
        ));
        let shown = error.to_string();
        let hidden = "spec.inner.picky: rejected by a custom deserializer (message hidden)";
        assert_eq!(without_position(&shown), hidden);
        assert!(
            error
                .with_custom_text()
                .starts_with(&format!("spec.inner.picky: {text} at line 1"))
        );
    }
    let shown = explanation(r#"{"picky": "a\nb\u001b[31m"}"#).with_custom_text();
    assert!(
        shown.starts_with(r"picky: a b\u{1b}[31m at line"),
        "{shown}"
    );
}

#[test]
fn syntax_error_is_returned_unchanged() {
    for json in [
        "",
        "{",
        r#"{"spec": {"replicas": 1"#,
        r#"{"spec": {"replicas": x}}"#,
        "{} {}",
    ] {
        let error = serde_json::from_str::<Widget>(json).err().unwrap();
        assert_eq!(
            explain::<Widget>(json.as_bytes(), &error).to_string(),
            error.to_string()
        );
        let (text, class) = (error.to_string(), error.classify());
        let same = explained::<Widget>(json.as_bytes(), error);
        assert_eq!((same.to_string(), same.classify()), (text, class));
    }
}

#[test]
fn explained_error_keeps_its_position() {
    let json = "{\"spec\":\n {\"replicas\": []}}";
    let error = serde_json::from_str::<Widget>(json).err().unwrap();
    let place = (error.line(), error.column());
    let error = explained::<Widget>(json.as_bytes(), error);
    assert_eq!((error.line(), error.column()), place);
    assert!(error.is_data());
    let text = "spec.replicas: invalid type: sequence, expected i32 at line 2 column 14";
    assert_eq!(error.to_string(), text);
}

#[test]
fn error_at_any_depth_is_explained_on_a_small_stack() {
    let nested = |levels: usize| {
        let open = r#"{"spec":{"inner":"#.repeat(levels);
        format!("{open}{{\"data\":7}}{}", "}}".repeat(levels))
    };
    let explained = std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(move || {
            for levels in [0, 1, 5, 20, 62] {
                let json = nested(levels);
                // Decoding this recursive type needs a large stack as well.
                let error = stack::with_stack_for(json.as_bytes(), 8, || {
                    serde_json::from_str::<Widget>(&json).err().unwrap()
                });
                let text = explain::<Widget>(json.as_bytes(), &error.unwrap()).to_string();
                let path = "spec.inner.".repeat(levels);
                assert!(
                    text.starts_with(&format!(
                        "{path}data: invalid type: integer, expected a map"
                    )),
                    "{text}"
                );
            }
        });
    explained.unwrap().join().unwrap();
}

#[test]
fn unreproducible_error_is_explained_without_details() {
    thread_local!(static FIRST: Cell<bool> = const { Cell::new(true) });
    struct FailsOnce<const PANICS: bool>;
    impl<'de, const PANICS: bool> Deserialize<'de> for FailsOnce<PANICS> {
        fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            if FIRST.replace(false) {
                return Err(D::Error::custom("hunter2"));
            }
            if PANICS {
                panic!("a second time")
            } else {
                Ok(Self)
            }
        }
    }
    fn text<T: for<'de> Deserialize<'de>>() -> String {
        FIRST.set(true);
        let error = serde_json::from_str::<[T; 1]>("[7]").err().unwrap();
        explain::<[T; 1]>(b"[7]", &error).to_string()
    }
    assert_eq!(
        text::<FailsOnce<false>>(),
        "not of the expected form at line 1 column 1"
    );
    assert_eq!(
        text::<FailsOnce<true>>(),
        "not of the expected form at line 1 column 1"
    );
}
