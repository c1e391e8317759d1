//! A scripted source of objects: the script decides when a LIST is answered and what a watch sends.

use std::io::{self, Read};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::error::Status;
use k8s_informer::reflector::{Body, ListOptions, ListerWatcher, TimedRead};
use k8s_informer::store::{IndexFunc, Indexers, Transform};
use k8s_informer::{Error, Object, Stop};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::world::{ProcessLoop, Reflector, State, World};
use crate::client_go_traces::object::{Obj, text, version_text};

/// An object of the suites, decoded from a server's JSON.
#[derive(Clone)]
pub(super) struct Item(pub(super) Obj);

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sent = Value::deserialize(deserializer)?;
        let field = |pointer| {
            sent.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let labels = sent
            .pointer("/metadata/labels")
            .cloned()
            .unwrap_or_else(|| json!({}));
        Ok(Self(Obj {
            ns: field("/metadata/namespace"),
            name: field("/metadata/name"),
            rv: field("/metadata/resourceVersion"),
            uid: field("/metadata/uid"),
            labels: serde_json::from_value(labels).map_err(serde::de::Error::custom)?,
            val: field("/val"),
            unkeyable: sent["metadata"].is_null(),
        }))
    }
}

impl Object for Item {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn namespace(&self) -> &str {
        self.0.namespace()
    }

    fn uid(&self) -> &str {
        self.0.uid()
    }

    fn resource_version(&self) -> &str {
        self.0.resource_version()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
}

/// Converts an object of a trace to a server's JSON.
fn sent(object: &Value) -> Value {
    let mut sent = json!({"apiVersion": "traces/v1", "kind": "Object", "val": object["val"]});
    if object["unkeyable"] != true {
        let fields = [
            ("name", "name"),
            ("ns", "namespace"),
            ("rv", "resourceVersion"),
            ("uid", "uid"),
            ("labels", "labels"),
        ];
        let given = fields
            .into_iter()
            .filter(|(field, _)| !object[*field].is_null());
        sent["metadata"] = given
            .map(|(field, name)| (name.to_owned(), object[field].clone()))
            .collect::<Map<_, _>>()
            .into();
    }
    sent
}

/// Objects that no trace has, with which a replay controls the process loop. Its observations leave
/// them out.
#[derive(Clone, Copy)]
pub(super) enum Fillers {
    None,
    One,
    /// As many as a `DeltaFifo` returns together.
    Batch,
}

impl Fillers {
    const NAMESPACE: &str = "fillers";

    fn count(self) -> usize {
        match self {
            Self::None => 0,
            Self::One => 1,
            Self::Batch => 64,
        }
    }

    pub(super) fn has(item: &Item) -> bool {
        item.0.ns == Self::NAMESPACE
    }

    pub(super) fn has_key(key: &str) -> bool {
        key.starts_with(Self::NAMESPACE)
    }

    fn object(name: &str, version: &Value) -> Value {
        json!({"ns": Self::NAMESPACE, "name": name, "rv": version})
    }

    /// Returns the event of a filler that is in no list.
    pub(super) fn event(version: &Value) -> String {
        event(&json!({"type": "ADDED", "obj": Self::object("event", version)}))
    }
}

/// Returns a list with fillers before its items.
pub(super) fn list(list: &Value, fillers: Fillers) -> Vec<u8> {
    let fillers = (0..fillers.count()).map(|n| Fillers::object(&n.to_string(), &list["rv"]));
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let items: Vec<Value> = fillers.chain(items).map(|object| sent(&object)).collect();
    let metadata = json!({"resourceVersion": list["rv"]});
    let list = json!({"apiVersion": "traces/v1", "kind": "ObjectList", "metadata": metadata, "items": items});
    list.to_string().into_bytes()
}

pub(super) fn event(event: &Value) -> String {
    format!(
        "{}\n",
        json!({"type": event["type"], "object": sent(&event["obj"])})
    )
}

/// Returns an ERROR event, which ends a watch.
pub(super) fn error_event(class: &str) -> String {
    format!("{}\n", json!({"type": "ERROR", "object": status(class)}))
}

/// Returns the error of a failed LIST.
pub(super) fn error(class: &str) -> Error {
    Error::from_status(status(class))
}

fn status(class: &str) -> Status {
    let (code, reason) = match class {
        "expired" => (410, "Expired"),
        "gone" => (410, "Gone"),
        "internal" => (500, "InternalError"),
        "bad_request" => (400, "BadRequest"),
        "unauthorized" => (401, "Unauthorized"),
        "forbidden" => (403, "Forbidden"),
        "not_found" => (404, "NotFound"),
        "too_many_requests" => (429, "TooManyRequests"),
        "unavailable" => (503, "ServiceUnavailable"),
        "timeout" => (504, "Timeout"),
        other => panic!("class {other}"),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": class, "reason": reason, "code": code
    });
    serde_json::from_value(status).unwrap()
}

pub(super) struct Source(pub(super) World);

impl Source {
    fn record_request(&self, kind: &str, options: &ListOptions) {
        let version = version_text(options.resource_version.clone());
        let mut request = json!({"kind": kind, "rv": version});
        if let Some(limit) = options.limit {
            request["limit"] = json!(limit);
        }
        self.0.change(|state| {
            state.requests.push(request);
            state.reflector_thread = Some(thread::current().id());
        });
    }
}

impl ListerWatcher for Source {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.record_request("list", options);
        self.0.change(|state| state.reflector = Reflector::Lists);
        let reply = self.0.wait_until(
            stop,
            |state| state.reply.is_some(),
            |state| {
                state.reflector = Reflector::Busy;
                let reply = state.reply.take();
                if state.process == ProcessLoop::Unstarted && matches!(reply, Some(Ok(_))) {
                    state.process = ProcessLoop::Awaits;
                }
                reply
            },
        );
        reply
            .unwrap_or_else(|| Err(Error::stopped()))
            .map(Body::from)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.record_request("watch", options);
        self.0.change(|state| {
            state.bytes.clear();
            state.watch_ends = false;
        });
        Ok(Body::timed(Watch {
            world: self.0.clone(),
            stop: stop.clone(),
        }))
    }

    fn description(&self) -> String {
        "objects of a trace".to_owned()
    }
}

struct Watch {
    world: World,
    stop: Stop,
}

impl TimedRead for Watch {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        // Only resyncs are timed: the traces have no silence that ends a watch.
        let until = self.world.change(|state| {
            state.reflector = Reflector::Watches;
            timeout
                .filter(|_| state.resyncs)
                .map(|timeout| state.sleep(timeout))
        });
        let is_ready = |state: &State| state.watch_ends || !state.bytes.is_empty();
        let is_late = |state: &State| until.is_some_and(|until| state.now() >= until);
        self.world.wait_until(
            &self.stop,
            |state| is_ready(state) || is_late(state),
            |state| {
                state.wake();
                state.reflector = Reflector::Busy;
                if is_ready(state) {
                    state.bytes.read(buffer)
                } else if is_late(state) {
                    Err(io::ErrorKind::TimedOut.into())
                } else {
                    Err(io::Error::other("stopped"))
                }
            },
        )
    }
}

impl Read for Watch {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_within(buffer, None)
    }
}

/// Parses `mark` or `fail:X`.
pub(super) fn transform(name: &Value) -> Option<Transform<Item>> {
    let name = name.as_str()?;
    Some(match name.strip_prefix("fail:").map(str::to_owned) {
        Some(bad) => Transform::new(move |item: Arc<Item>| match item.0.val == bad {
            true => Err("bad"),
            false => Ok(item),
        }),
        None if name == "mark" => Transform::in_place(|item: &mut Item| item.0.val.push('!')),
        None => panic!("transform {name}"),
    })
}

/// Parses `ns`, `label:K` or `words`.
fn index_func(name: &str) -> IndexFunc<Item> {
    match name.strip_prefix("label:").map(str::to_owned) {
        Some(label) => IndexFunc::new(move |item: &Item| {
            item.0.labels.get(&label).cloned().into_iter().collect()
        }),
        None if name == "ns" => IndexFunc::new(|item: &Item| vec![item.0.ns.clone()]),
        None if name == "words" => IndexFunc::new(|item: &Item| {
            item.0
                .val
                .split('+')
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        }),
        None => panic!("index function {name}"),
    }
}

pub(super) fn indexers(names: &Value) -> Indexers<Item> {
    names
        .as_array()
        .into_iter()
        .flatten()
        .fold(Indexers::new(), |indexers, name| {
            indexers.with(text(name), index_func(text(name)))
        })
}
