//! The text of a `Status` neither forges log lines nor floods the log.

use k8s_informer::error::Status;
use k8s_informer::informer::InformerQueue;
use k8s_informer::{DynamicObject, Error};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use serde_json::json;

use crate::hostile::secrets::logged;
use crate::hostile::support::{LAST, TestInformer, list};

/// A line break, terminal escapes of one and two bytes, a bidi override, and a long text.
fn forged(mark: &str) -> String {
    let line = format!("{mark}\n2026-01-01 ERROR forged\r\x1b[2K\u{9b}31m\u{202e}\u{2028}");
    format!("{line}{}", "x".repeat(100_000))
}

fn status(mark: &str) -> serde_json::Value {
    let text = forged(mark);
    let cause = json!({"reason": text, "message": text, "field": text});
    let details = json!({
        "name": text, "group": text, "kind": text, "uid": text, "causes": vec![cause; 20],
    });
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": text, "message": text, "reason": text,
        "details": details, "code": 500,
    })
}

fn is_harmless(text: &str) -> bool {
    text.len() < 50_000
        && !text.contains(|c: char| c.is_control() || "\u{202e}\u{2028}".contains(c))
}

#[test]
fn status_in_a_log_is_one_short_line() {
    logged();
    let failed: Status = serde_json::from_value(status("of-a-list")).unwrap();
    let event = json!({"type": "ERROR", "object": status("of-a-watch")});
    let answers = [
        Answer::error(Error::from_status(failed)),
        Answer::body(list("4", "", &[])),
        Answer::body(format!("{event}\n")),
        Answer::body(list("5", "", &[])),
        Answer::open(LAST),
    ];
    let informer = TestInformer::<DynamicObject>::run(
        ScriptedListerWatcher::new(answers),
        InformerQueue::DeltaFifo,
        |options| options.watch_list = false,
    );
    let error = informer.status().last_error.unwrap();
    assert_eq!(
        error.status().unwrap().message,
        forged("of-a-watch"),
        "the field holds the original text"
    );
    for text in [
        error.to_string(),
        format!("{error:?}"),
        format!("{:?}", informer.status()),
    ] {
        assert!(
            text.contains("of-a-watch") && is_harmless(&text),
            "{} bytes: {text:?}",
            text.len()
        );
    }
    let lines = logged();
    for mark in ["of-a-list", "of-a-watch"] {
        let about: Vec<_> = lines.iter().filter(|line| line.contains(mark)).collect();
        assert!(
            about
                .iter()
                .any(|line| line.contains(r" 2026-01-01 ERROR forged \u{1b}[2K\u{9b}31m"))
        );
        let bad = about
            .iter()
            .find(|line| line.len() > 8000 || !is_harmless(line));
        assert!(
            bad.is_none(),
            "{:?}",
            bad.map(|line| (line.len(), line.get(..300)))
        );
    }
}
