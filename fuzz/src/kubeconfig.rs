//! Kubeconfigs from arbitrary bytes, and generated ones with a secret in every field that can hold
//! one. Nothing panics. An error is a configuration error. Neither an error nor a loaded
//! configuration shows the secret. A duplicate name is an error.

use arbitrary::Unstructured;
use k8s_informer::Error;
use k8s_informer::client::{Kubeconfig, KubeconfigOptions};
use serde_json::{Map, Value, json};

const SECRET: &str = "s3cret";
const NAMES: [&str; 4] = ["a", "b", "", "kind-kind"];

pub fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let Ok(raw) = bytes.arbitrary::<bool>() else {
        return;
    };
    if raw {
        let text = bytes.take_rest();
        if let Err(error) = Kubeconfig::parse(text, "") {
            check(&error);
        }
        for options in [
            KubeconfigOptions::new(),
            KubeconfigOptions::new().context("a").server("https://a"),
        ] {
            if let Err(error) = options.load_bytes(text, "/folder") {
                check(&error);
            }
        }
    } else if let Ok(made) = made(&mut bytes) {
        follow(&made, &mut bytes);
    }
}

fn check(error: &Error) {
    assert!(error.is_config() && !error.is_retryable(), "{error}");
    assert!(!format!("{error:?}").is_empty());
}

fn follow(made: &Value, bytes: &mut Unstructured<'_>) {
    let text = made.to_string();
    let names = |list: &str, one: &str| -> Vec<(String, Value)> {
        let items = made[list].as_array().into_iter().flatten();
        items
            .map(|item| {
                (
                    item["name"].as_str().unwrap_or_default().to_owned(),
                    item[one].clone(),
                )
            })
            .collect()
    };
    let (contexts, clusters) = (names("contexts", "context"), names("clusters", "cluster"));
    let twice = |names: &[(String, Value)]| {
        (1..names.len()).any(|at| names[..at].iter().any(|other| other.0 == names[at].0))
    };
    match Kubeconfig::parse(&text, "") {
        Ok(kubeconfig) => {
            assert!(
                kubeconfig
                    .contexts()
                    .eq(contexts.iter().map(|context| context.0.as_str())),
                "{text}"
            );
            assert!(
                !twice(&contexts) && !twice(&clusters) && !twice(&names("users", "user")),
                "{text}"
            );
        }
        Err(error) => {
            check(&error);
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
        }
    }
    let chosen = *bytes.choose(&NAMES).unwrap_or(&"a");
    match KubeconfigOptions::new()
        .context(chosen)
        .load_bytes(&text, "/folder")
    {
        Ok(config) => {
            let shown = format!("{config:?}");
            assert!(!shown.contains(SECRET), "{shown}");
            let chosen = if chosen.is_empty() {
                made["current-context"].as_str().unwrap_or_default()
            } else {
                chosen
            };
            let find = |entries: &[(String, Value)], name: &str| {
                entries
                    .iter()
                    .find(|entry| entry.0 == name)
                    .map(|entry| entry.1.clone())
                    .unwrap_or_default()
            };
            let cluster = find(&contexts, chosen)["cluster"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let server = find(&clusters, &cluster)["server"].clone();
            assert!(
                shown.starts_with(&format!("Config {{ server: {server}")),
                "{server}: {shown}"
            );
        }
        Err(error) => {
            check(&error);
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
        }
    }
}

/// Generates a kubeconfig like those of common tools, mostly valid.
fn made(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Value> {
    let mut made = json!({"kind": "Config", "apiVersion": "v1"});
    made["current-context"] = (*bytes.choose(&NAMES)?).into();
    for (list, one) in [
        ("clusters", "cluster"),
        ("contexts", "context"),
        ("users", "user"),
    ] {
        let mut entries = Vec::new();
        for _ in 0..bytes.int_in_range(0..=3)? {
            let value = match one {
                "cluster" => cluster(bytes)?,
                "context" => {
                    json!({"cluster": bytes.choose(&NAMES)?, "user": bytes.choose(&NAMES)?})
                }
                _ => user(bytes)?,
            };
            entries.push(json!({"name": bytes.choose(&NAMES)?, one: value}));
        }
        made[list] = entries.into();
    }
    Ok(made)
}

fn cluster(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Value> {
    let extension =
        json!([{"name": "client.authentication.k8s.io/exec", "extension": {"a": SECRET}}]);
    some_of(
        bytes,
        &[
            (
                "server",
                &[
                    json!("https://a"),
                    json!("http://a"),
                    json!("a:1"),
                    json!(""),
                ],
            ),
            (
                "certificate-authority-data",
                &[json!("czNjcmV0"), json!("s3cret!"), json!("")],
            ),
            ("certificate-authority", &[json!("ca.crt"), json!("")]),
            (
                "insecure-skip-tls-verify",
                &[json!(true), json!(false), json!("s3cret")],
            ),
            (
                "proxy-url",
                &[json!("http://u:s3cret@p"), json!("s3cret"), json!(7)],
            ),
            ("tls-server-name", &[json!("a")]),
            ("disable-compression", &[json!(true), json!([SECRET])]),
            ("extensions", &[extension, json!(null), json!([null])]),
        ],
    )
}

fn user(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Value> {
    let plugin = |mode: &str, env: Value| {
        json!({"command": "./a", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": mode,
               "args": [SECRET], "env": env, "provideClusterInfo": true})
    };
    some_of(
        bytes,
        &[
            ("token", &[json!("s3cret"), json!(["s3cret"]), json!(7)]),
            ("tokenFile", &[json!("token")]),
            ("username", &[json!("admin"), json!("")]),
            ("password", &[json!("s3cret"), json!({"s3cret": 1})]),
            (
                "client-certificate-data",
                &[json!("czNjcmV0"), json!("s3cret!")],
            ),
            ("client-key-data", &[json!("czNjcmV0"), json!("s3cret!")]),
            ("client-key", &[json!("key")]),
            ("as", &[json!("jane"), json!("")]),
            ("as-groups", &[json!(["a"]), json!([null])]),
            (
                "as-user-extra",
                &[json!({"a": ["b"]}), json!({"a": "s3cret"})],
            ),
            (
                "exec",
                &[
                    plugin("Never", json!([{"name": "A", "value": SECRET}])),
                    plugin("s3cret", json!([])),
                    plugin("Always", json!([{"value": SECRET}])),
                    json!({}),
                ],
            ),
            (
                "auth-provider",
                &[
                    json!({"name": "oidc", "config": {"id-token": SECRET, "client-secret": SECRET}}),
                    json!({"name": "gcp", "config": {"access-token": SECRET}}),
                    json!({"name": "oidc"}),
                ],
            ),
        ],
    )
}

fn some_of(bytes: &mut Unstructured<'_>, fields: &[(&str, &[Value])]) -> arbitrary::Result<Value> {
    let mut some = Map::new();
    for (field, values) in fields {
        // The first value is the valid one. It is the most likely.
        match bytes.int_in_range(0..=9)? {
            0..=3 => {}
            4..=7 => drop(some.insert((*field).to_owned(), values[0].clone())),
            _ => drop(some.insert((*field).to_owned(), bytes.choose(values)?.clone())),
        }
    }
    Ok(some.into())
}
