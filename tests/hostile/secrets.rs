//! Errors and logs quote nothing of a body except the name of the object.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_informer::informer::InformerQueue;
use k8s_informer::{ObjectMeta, impl_object};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use crate::hostile::objects::with;
use crate::hostile::support::{EXPIRED, LAST, TestInformer, event, list};
use crate::log_capture;

const SECRET: &str = "hunter2";

/// All lines logged since the first call.
pub(crate) fn logged() -> Vec<String> {
    log_capture::start();
    log_capture::lines_with(&[])
}

#[derive(Debug, Deserialize)]
enum Color {
    Red,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Closed {
    #[serde(rename = "color")]
    _color: Option<Color>,
    #[serde(rename = "numbers")]
    _numbers: Option<BTreeMap<u32, u32>>,
    #[serde(rename = "pair")]
    _pair: Option<(u32, u32)>,
    #[serde(rename = "letter")]
    _letter: Option<char>,
    #[serde(default, rename = "picky", deserialize_with = "picky")]
    _picky: (),
}

fn picky<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    Err(D::Error::custom(format!(
        "{} is a bad word",
        String::deserialize(deserializer)?
    )))
}

/// A type with every way to reject a value.
#[derive(Debug, Deserialize)]
struct Strict {
    metadata: ObjectMeta,
    #[serde(rename = "spec")]
    _spec: Option<Closed>,
}

impl_object!(Strict, "v1", "Strict", "stricts", Namespaced);

fn bad_objects() -> Vec<Vec<u8>> {
    // Each object has a different version, so none counts as unchanged.
    let version = AtomicU32::new(5);
    let b = |metadata: &str, beside: &str| {
        with(
            "b",
            &version.fetch_add(1, Ordering::Relaxed).to_string(),
            metadata,
            beside,
        )
    };
    let spec = |spec: &str| b("", &format!(r#","spec":{spec}"#).replace('~', SECRET));
    let mut objects: Vec<_> = [
        r#""~""#,
        r#"["~"]"#,
        r#"{"~":1}"#,
        r#"{"color":"~"}"#,
        r#"{"color":{"~":1}}"#,
        r#"{"numbers":{"~":1}}"#,
        r#"{"numbers":{"1":"~"}}"#,
        r#"{"pair":["~","~"]}"#,
        r#"{"pair":[1,2,"~"]}"#,
        r#"{"letter":"~"}"#,
        r#"{"picky":"~"}"#,
        r#"{"picky":"~, expected nothing"}"#,
        r#"{"picky":"missing field ~"}"#,
        r#""\q~""#,
        r#"~"#,
        r#"{~}"#,
        r#"{"containers":[{"name":"a","env":[{"name":"TOKEN","value":{"~":"~"}}]}]}"#,
        r#"{"containers":"~"}"#,
        r#"{"containers":[{"ports":[{"containerPort":"~"}]}]}"#,
    ]
    .into_iter()
    .map(spec)
    .collect();
    for data in [
        r#"{"token":"~"}"#,
        r#"{"token":["~"]}"#,
        r#""~""#,
        r#"{"~":7}"#,
    ] {
        let data = data.replace('~', SECRET);
        objects.push(b(
            &format!(r#","labels":{data}"#),
            &format!(r#","data":{data}"#),
        ));
    }
    objects
}

fn bad_bodies() -> Vec<Vec<u8>> {
    let bodies = [
        "~",
        "<html>~</html>",
        r#"{"~":"~"}"#,
        r#"{"kind":"List","~"}"#,
        r#"{"kind":"List","metadata":{"resourceVersion":{"~":1}},"items":[]}"#,
        r#"{"kind":"List","metadata":{"resourceVersion":"1","remainingItemCount":"~"},"items":[]}"#,
        r#"{"kind":"List","metadata":{"resourceVersion":"1"},"items":{"~":"~"}}"#,
        r#"{"kind":"List","metadata":"~","items":[]}"#,
        r#"{"type":"~","object":{}}"#,
        r#"{"type":{"~":1},"object":{}}"#,
        r#"{"type":"ADDED","object":"~"}"#,
        r#"{"type":"ADDED","object":{"~""#,
        r#"{"type":"ADDED","~":1}"#,
    ];
    bodies
        .iter()
        .map(|body| body.replace('~', SECRET).into_bytes())
        .collect()
}

fn assert_no_secret_is_shown<T: k8s_informer::Object + DeserializeOwned>() {
    let mut answers = Vec::new();
    for body in bad_bodies() {
        answers.push(Answer::body(&body[..]));
        answers.push(Answer::broken(&body[..body.len() - 1]));
    }
    let objects = bad_objects();
    answers.push(Answer::body(list("4", "", &objects)));
    let events = ["ADDED", "MODIFIED", "DELETED"];
    let mut version = 10;
    for body in bad_bodies()
        .into_iter()
        .chain(objects.iter().map(|object| event("ADDED", object)))
    {
        version += 1;
        let good = event("ADDED", &with("good", &version.to_string(), "", ""));
        answers.push(Answer::body([&good[..], &body[..], b"\n"].concat()));
    }
    let typed = objects
        .iter()
        .filter(|object| serde_json::from_slice::<serde::de::IgnoredAny>(object).is_ok());
    let typed = typed.flat_map(|object| events.map(|kind| event(kind, object)));
    answers.push(Answer::body(
        [typed.collect::<Vec<_>>().concat(), EXPIRED.into()].concat(),
    ));
    answers.push(Answer::body(list("900", "", &[])));
    answers.push(Answer::open(LAST));
    let informer = TestInformer::<T>::run(
        ScriptedListerWatcher::new(answers),
        InformerQueue::RealFifo,
        |_| {},
    );
    let status = informer.status();
    assert!(status.unreadable > 20, "{status:?}");
    let shown = format!("{status:?} {:?} {:?}", informer.informer, informer.script);
    assert!(!shown.contains(SECRET), "{shown}");
}

#[test]
fn unreadable_content_is_not_in_logs_or_errors() {
    logged();
    assert_no_secret_is_shown::<Pod>();
    assert_no_secret_is_shown::<Strict>();
    assert_no_secret_is_shown::<Secret>();
    let logged = logged();
    assert!(logged.iter().filter(|line| line.contains("ns/b: ")).count() > 100);
    // A line contains the path of the field.
    for expected in [
        "spec: invalid type: string, expected struct Closed",
        "spec.color: unknown variant, expected `Red`",
        "spec.numbers[…]: invalid type: string, expected u32",
        "spec.pair[0]: invalid type: string, expected u32",
        "spec.picky: rejected by a custom deserializer (message hidden)",
        "spec.containers[0].ports[0].containerPort: invalid type: string, expected i32",
        "metadata.labels[…]: invalid type: integer, expected a string",
    ] {
        assert!(
            logged.iter().any(|line| line.contains(expected)),
            "{expected:?} is not in {logged:#?}"
        );
    }
    let leaked: Vec<_> = logged.iter().filter(|line| line.contains(SECRET)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[test]
fn name_in_errors_is_one_line_and_truncated() {
    let name = format!(
        "b\\n2026-01-01 ERROR all is lost\\u001b[31m{}",
        "x".repeat(1 << 20)
    );
    let kind = format!("Kind\\n{}", "x".repeat(1 << 20));
    let answers = [
        Answer::body(format!(r#"{{"kind":"{kind}","metadata":{{}}}}"#)),
        Answer::body(list("4", "", &[with(&name, "5", "", r#","spec":7"#)])),
        Answer::open(LAST),
    ];
    let informer = TestInformer::<Pod>::run(
        ScriptedListerWatcher::new(answers),
        InformerQueue::DeltaFifo,
        |options| {
            options.watch_error_handler =
                Some(std::sync::Arc::new(|error: &k8s_informer::Error| {
                    let error = error.to_string();
                    assert!(error.len() < 1000 && !error.contains('\n'), "{error}");
                    assert!(error.contains("not a list"), "{error}");
                }));
        },
    );
    let error = informer.status().last_error.unwrap().to_string();
    assert!(
        error.len() < 1000 && !error.contains(['\n', '\u{1b}']),
        "{error}"
    );
    assert!(
        error.contains(r"ns/b\n2026-01-01 ERROR all is lost\u{1b}[31mxxx"),
        "{error}"
    );
}
