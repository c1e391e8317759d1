//! The output of a credential plugin, in any form: nothing panics, the accepted values equal the
//! values in the output, and an error message never contains a part of the output.

use std::time::{Duration, UNIX_EPOCH};

use arbitrary::Unstructured;
use k8s_informer::__private::client::exec_credential;
use serde_json::{Map, Value, json};

use super::serving::plain;

const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// Times and their seconds since the epoch, if they are valid.
const TIMES: [(&str, Option<u64>); 8] = [
    ("2030-01-02T03:04:05Z", Some(1_893_553_445)),
    ("2030-01-02T03:04:05+01:00", Some(1_893_549_845)),
    ("1903-01-01T00:00:00Z", Some(0)),
    ("9999-12-31T23:59:59-00:01", Some(253_402_300_859)),
    ("2030-02-30T00:00:00Z", None),
    ("2030-01-02", None),
    ("soon", None),
    ("", None),
];

/// The zero time of Go. It means no time.
const ZERO: &str = "0001-01-01T00:00:00Z";

/// All error messages, without versions and numbers.
const PROBLEMS: [&str; 15] = [
    "is configured to use apiVersion V, but returned V",
    "is configured to use apiVersion V, but returned another one",
    "is configured to use apiVersion V, but returned none",
    "returned a certificate without its key",
    "returned a key without its certificate",
    "returned a F that is not a string",
    "returned a status that is not an object",
    "returned an expirationTimestamp that is not an RFC N time",
    "returned an object that is not an ExecCredential",
    "returned neither a token nor a certificate",
    "returned no status",
    "returned nothing",
    "returned output that is neither a JSON nor a YAML ExecCredential at line N, column N",
    "returned invalid JSON at line N, column N",
    "returned output that is not UTF-N",
];

pub fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let Ok((version, raw)) = bytes.arbitrary::<(bool, bool)>() else {
        return;
    };
    let version = VERSIONS[usize::from(version)];
    let output = if raw {
        bytes.take_rest().to_vec()
    } else {
        made(&mut bytes).unwrap_or_default()
    };
    let outcome = exec_credential(&output, version).map_err(|reason| reason.to_string());
    if let Err(problem) = &outcome {
        let problem = without_numbers(problem);
        assert!(PROBLEMS.contains(&problem.as_str()), "{problem}");
    }
    if output.trim_ascii_start().is_empty() {
        assert_eq!(outcome.as_ref().unwrap_err(), "returned nothing");
    }
    if !output.trim_ascii_start().starts_with(b"{") {
        return;
    }
    match plain(&output) {
        Some(Value::Object(reply)) => check(&reply, version, outcome),
        // JSON with a duplicate key is ambiguous.
        _ if serde_json::from_slice::<Value>(&output).is_ok() => {}
        _ => assert!(outcome.unwrap_err().starts_with("returned invalid JSON")),
    }
}

type Outcome = Result<
    (
        Option<String>,
        Option<(Vec<u8>, Vec<u8>)>,
        Option<std::time::SystemTime>,
    ),
    String,
>;

/// Checks the result for JSON without duplicate keys.
fn check(reply: &Map<String, Value>, version: &str, outcome: Outcome) {
    let empty = Map::new();
    let status = reply
        .get("status")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let is_text = |object: &Map<String, Value>, name: &str| {
        object
            .get(name)
            .is_none_or(|value| value.is_null() || value.is_string())
    };
    let text = |object: &Map<String, Value>, name: &str| {
        object
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (token, chain, key) = (
        text(status, "token"),
        text(status, "clientCertificateData"),
        text(status, "clientKeyData"),
    );
    let usable = ["", "ExecCredential"].contains(&text(reply, "kind").as_str())
        && text(reply, "apiVersion") == version
        && reply.get("status").is_some_and(Value::is_object)
        && is_text(reply, "kind")
        && ["token", "clientCertificateData", "clientKeyData"]
            .iter()
            .all(|name| is_text(status, name))
        && chain.is_empty() == key.is_empty()
        && !(token.is_empty() && key.is_empty());
    let time = status
        .get("expirationTimestamp")
        .filter(|time| !time.is_null());
    match outcome {
        Err(problem) => {
            let of_time = problem.contains("expirationTimestamp");
            assert!(!usable || of_time, "{problem}");
            let written = time.and_then(Value::as_str).unwrap_or_default();
            let is_time = written == ZERO
                || TIMES
                    .iter()
                    .any(|(text, at)| *text == written && at.is_some());
            assert!(!of_time || time.is_some() && !is_time, "{problem}");
        }
        Ok((taken, identity, expires)) => {
            assert!(usable);
            assert_eq!(taken.unwrap_or_default(), token);
            let given = (chain.into_bytes(), key.into_bytes());
            assert_eq!(identity.unwrap_or_default(), given);
            let written = time.map(|time| time.as_str().expect("a time is a string"));
            assert_eq!(expires.is_some(), written.is_some_and(|time| time != ZERO));
            if let Some((_, at)) = TIMES.iter().find(|(text, _)| Some(*text) == written) {
                let at = at.expect("the time is valid");
                assert_eq!(expires, Some(UNIX_EPOCH + Duration::from_secs(at)));
            }
        }
    }
}

/// Replaces numbers by N, known versions by V, and field names by F.
fn without_numbers(problem: &str) -> String {
    let mut problem = problem.to_owned();
    for version in ["v1alpha1", "v1beta1", "v1"] {
        problem = problem.replace(&format!("client.authentication.k8s.io/{version}"), "V");
    }
    for field in [
        "kind",
        "apiVersion",
        "token",
        "clientCertificateData",
        "clientKeyData",
    ] {
        problem = problem.replace(
            &format!("a {field} that is not a string"),
            "a F that is not a string",
        );
    }
    let mut plain = String::new();
    for c in problem.chars() {
        match c.is_ascii_digit() {
            false => plain.push(c),
            true if !plain.ends_with('N') => plain.push('N'),
            true => {}
        }
    }
    plain
}

/// Generates a mostly valid output.
fn made(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    const TEXTS: [&str; 5] = [
        "s3cret",
        "-----BEGIN CERTIFICATE-----\n",
        "",
        "é\u{1f}\"",
        "null",
    ];
    let mut reply = json!({"kind": "ExecCredential", "status": {}});
    reply["apiVersion"] = bytes
        .choose(&[VERSIONS[0], VERSIONS[1], "v1", "", "s3cret"])?
        .to_string()
        .into();
    for field in ["token", "clientCertificateData", "clientKeyData"] {
        if bytes.arbitrary()? {
            reply["status"][field] = (*bytes.choose(&TEXTS)?).into();
        }
    }
    if bytes.arbitrary()? {
        let (time, _) = bytes.choose(&TIMES)?;
        reply["status"]["expirationTimestamp"] =
            if bytes.ratio(1, 8)? { ZERO } else { time }.into();
    }
    let odd = [
        Value::Null,
        json!(7),
        json!("s3cret"),
        json!(["s3cret"]),
        json!({}),
        json!(true),
    ];
    if bytes.ratio(1, 8)? {
        let field = *bytes.choose(&["kind", "apiVersion", "status", "spec"])?;
        reply[field] = bytes.choose(&odd)?.clone();
    }
    if reply["status"].is_object() && bytes.ratio(1, 8)? {
        let field = *bytes.choose(&["token", "clientKeyData", "expirationTimestamp", "other"])?;
        reply["status"][field] = bytes.choose(&odd)?.clone();
    }
    let mut output = reply.to_string();
    if bytes.ratio(1, 4)? {
        // A comment makes it YAML in the flow style: it no longer starts like JSON.
        output.insert_str(0, "# s3cret\n");
    }
    if bytes.ratio(1, 8)? {
        let length = bytes.choose_index(output.len())?;
        let length = (length..)
            .find(|length| output.is_char_boundary(*length))
            .unwrap_or_default();
        output.truncate(length);
    }
    Ok(output.into_bytes())
}
