//! Records what a reflector does, in the format of the traces.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use k8s_informer::object::{ResourceVersion, meta_namespace_key};
use k8s_informer::store::{ReflectorStore, StoreError};
use k8s_informer::{Deleted, DynamicObject, Error, Object};
use serde_json::{Map, Value, json};

use crate::client_go_traces::object::{text, version_text};

/// A store that records its calls and fails where a trace requires it. It also records the errors
/// given to the error handler. No other code runs under its lock.
pub(super) struct Recorder {
    failing: Vec<(String, u64)>,
    state: Mutex<State>,
    /// Notified on each call and each error; `wait_for` waits for it.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    counts: BTreeMap<&'static str, u64>,
    store: Vec<Value>,
    errors: Vec<&'static str>,
    /// Whether the next list is the snapshot of a watch-list.
    unordered: bool,
}

impl Recorder {
    pub(super) fn new(config: &Value) -> Self {
        let failing = config["store_errors"].as_array().into_iter().flatten();
        let failing = failing
            .map(|it| (text(&it["call"]).to_owned(), it["n"].as_u64().unwrap()))
            .collect();
        Self {
            failing,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn error(&self, error: &Error) {
        let class = class(error);
        self.state.lock().unwrap().errors.push(class);
        self.changed.notify_all();
    }

    /// Records whether the request is a watch-list. Called for each request.
    pub(super) fn requested(&self, is_watch_list: bool) {
        self.state.lock().unwrap().unordered = is_watch_list;
    }

    /// Returns everything recorded since the last call.
    pub(super) fn take(&self) -> Map<String, Value> {
        let mut state = self.state.lock().unwrap();
        let (store, errors) = (
            std::mem::take(&mut state.store),
            std::mem::take(&mut state.errors),
        );
        Map::from_iter([
            ("store".to_owned(), json!(store)),
            ("errors".to_owned(), json!(errors)),
        ])
    }

    /// Blocks until the next [`take`](Self::take) returns at least as many entries as `want`, or
    /// until `timeout`.
    #[cfg_attr(
        not(feature = "client"),
        expect(dead_code, reason = "only sockets need it")
    )]
    pub(super) fn wait_for(&self, want: &Value, timeout: Duration) {
        let count = |field: &str| want[field].as_array().map_or(0, Vec::len);
        let (store, errors) = (count("store"), count("errors"));
        let is_less = |state: &mut State| state.store.len() < store || state.errors.len() < errors;
        drop(
            self.changed
                .wait_timeout_while(self.state.lock().unwrap(), timeout, is_less),
        );
    }

    fn call(&self, kind: &'static str, details: Value) -> Result<(), StoreError> {
        let mut call = json!({"call": kind});
        let fails = {
            let mut state = self.state.lock().unwrap();
            let count = state.counts.entry(kind).or_default();
            *count += 1;
            let fails = self
                .failing
                .iter()
                .any(|(call, n)| call == kind && (*n == 0 || n == count));
            for (field, value) in details.as_object().into_iter().flatten() {
                call[field] = value.clone();
            }
            if kind == "replace" && state.unordered {
                call["unordered"] = json!(true);
                if let Some(items) = call.get_mut("items").and_then(Value::as_array_mut) {
                    items.sort_by_key(|item| text(&item["key"]).to_owned());
                }
            }
            if fails {
                call["error"] = json!(true);
            }
            state.store.push(call);
            self.changed.notify_all();
            fails
        };
        if fails {
            Err(StoreError::other("no"))
        } else {
            Ok(())
        }
    }
}

/// Returns the `key` and `rv` of an object. Omits an empty key.
fn key_and_version(object: &DynamicObject) -> Value {
    let mut written = json!({"rv": object.resource_version()});
    let key = meta_namespace_key(object);
    if !key.is_empty() {
        written["key"] = json!(&*key);
    }
    written
}

impl ReflectorStore<DynamicObject> for Recorder {
    fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.call("add", key_and_version(&object))
    }

    fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.call("update", key_and_version(&object))
    }

    fn delete(&self, object: Deleted<DynamicObject>) -> Result<(), StoreError> {
        match object {
            Deleted::Final(object) => self.call("delete", key_and_version(&object)),
            Deleted::FinalStateUnknown { key, .. } => {
                self.call("delete", json!({"tombstone": &*key}))
            }
        }
    }

    fn replace(
        &self,
        objects: Vec<Arc<DynamicObject>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let mut details = json!({"rv": version_text(resource_version)});
        if !objects.is_empty() {
            details["items"] = objects
                .iter()
                .map(|object| key_and_version(object))
                .collect();
        }
        self.call("replace", details)
    }

    fn resync(&self) -> Result<(), StoreError> {
        self.call("resync", Value::Null)
    }

    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        self.call("bookmark", json!({"rv": version_text(resource_version)}))
    }
}

/// Returns a request in the format of a trace. `query` is percent-encoded. `waited` is how long the
/// reflector waited before the request, `None` for the first request.
pub(super) fn request(config: &Value, path: &str, query: &str, waited: Option<Duration>) -> Value {
    let query: Map<String, Value> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name.to_owned(), json!(masked(name, percent_decoded(value))))
        })
        .collect();
    let kind = if query.contains_key("watch") {
        "watch"
    } else {
        "list"
    };
    let mut written = json!({"kind": kind, "path": path, "after": after(config, waited)});
    if !query.is_empty() {
        written["query"] = Value::Object(query);
    }
    written
}

/// Returns the path that the requests of a trace use.
pub(super) fn path(config: &Value) -> String {
    match text(&config["namespace"]) {
        "" => "/api/v1/configmaps".to_owned(),
        namespace => format!("/api/v1/namespaces/{namespace}/configmaps"),
    }
}

/// Describes a wait. A back-off is the trace's back-off (the default one for an informer), or a
/// longer Retry-After in whole seconds (W3).
pub(super) fn after(config: &Value, waited: Option<Duration>) -> String {
    let backoff = config["backoff_ms"].as_u64().map(Duration::from_millis);
    let Some(waited) = waited else {
        return "start".to_owned();
    };
    let is_backoff = match backoff {
        Some(backoff) => waited == backoff || waited > backoff && waited.subsec_nanos() == 0,
        None => waited >= Duration::from_millis(780),
    };
    match waited {
        Duration::ZERO => "now".to_owned(),
        _ if is_backoff => "backoff".to_owned(),
        _ => format!("waited {waited:?}"),
    }
}

/// Replaces a random watch timeout, between five and ten minutes, with `T` (W1).
fn masked(name: &str, value: String) -> String {
    let is_timeout = |value: &str| value.parse().is_ok_and(|it| (300..600).contains(&it));
    if name == "timeoutSeconds" && is_timeout(&value) {
        "T".to_owned()
    } else {
        value
    }
}

fn percent_decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns the class of an error. Some errors are classified only by their message.
pub(crate) fn class(error: &Error) -> &'static str {
    let mentions = |words| error.to_string().contains(words);
    let is_status = |code, reason| {
        error
            .status()
            .is_some_and(|status| match status.reason.as_str() {
                "" => status.code == code,
                given => given == reason,
            })
    };
    let code = error.status().map_or(0, |status| status.code);
    match () {
        () if error.is_connection_refused() => "refused",
        () if error.is_connection() => "connection",
        () if mentions("Table") => "table",
        () if error.is_decode() || mentions("unexpected response") => "decode",
        () if mentions("unable to sync list result") => "store",
        () if (201..300).contains(&code) => "unexpected_status",
        () if error.is_gone() => "expired",
        // This includes errors with this message that L12 does not recognize.
        () if error.is_too_large_resource_version() || mentions("Too large resource version") => {
            "too_large_rv"
        }
        () if error.is_timeout() => "timeout",
        () if error.is_too_many_requests() => "too_many_requests",
        () if error.is_forbidden() => "forbidden",
        () if error.is_unauthorized() => "unauthorized",
        () if error.is_not_found() => "not_found",
        () if error.is_invalid() => "invalid",
        () if is_status(400, "BadRequest") => "bad_request",
        () if is_status(405, "MethodNotAllowed") => "method_not_allowed",
        () if is_status(503, "ServiceUnavailable") => "unavailable",
        () if error.is_internal_error() || code > 500 => "internal",
        () if error.status().is_some() => "status",
        () => "other",
    }
}
