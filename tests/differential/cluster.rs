//! The server of a world and the writes to it.

use std::collections::VecDeque;

use k8s_informer::object::GroupVersionResource;
use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::differential::config::{Config, Lists, NAMESPACES, Transformation};
use crate::differential::random::Random;

/// The number of operations kept for the report.
const SHOWN: usize = 80;

/// The name of marker objects. They are always in scope, pass every filter and are never rejected.
const MARKER: &str = "marker";

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) resource: GroupVersionResource,
    kind: &'static str,
    root: &'static str,
    /// Makes each write different.
    writes: u64,
    operations: VecDeque<String>,
}

impl Cluster {
    pub(crate) fn start(config: &Config, seed: u64) -> Self {
        let (group, plural, kind, root) = match config.is_custom_resource() {
            true => ("example.com", "widgets", "Widget", "/apis/example.com/v1"),
            false => ("", "pods", "Pod", "/api/v1"),
        };
        let server = ApiServer::builder()
            .resource(
                ApiResource::new("example.com", "v1", "widgets", "Widget").field("spec.nodeName"),
            )
            .seed(seed)
            .history(config.history)
            .watch_list(config.lists != Lists::Refused);
        let server = match config.bookmarks {
            true => server.bookmark_interval(std::time::Duration::from_millis(15)),
            false => server,
        };
        Self {
            server: server.start().expect("the server starts"),
            resource: GroupVersionResource::new(group, "v1", plural),
            kind,
            root,
            writes: 0,
            operations: VecDeque::new(),
        }
    }

    /// Records an operation for the report.
    pub(crate) fn log(&mut self, operation: impl Into<String>) {
        if self.operations.len() == SHOWN {
            self.operations.pop_front();
        }
        self.operations.push_back(operation.into());
    }

    pub(crate) fn last_operations(&self) -> String {
        self.operations
            .iter()
            .map(|operation| format!("  {operation}\n"))
            .collect()
    }

    fn path(&self, key: &str) -> String {
        let (namespace, name) = key.split_once('/').expect("the key has a namespace");
        format!(
            "{}/namespaces/{namespace}/{}/{name}",
            self.root, self.resource.resource
        )
    }

    /// Simulates a restart of the API server: its watch cache is empty, and etcd still has the
    /// older versions.
    pub(crate) fn restart(&mut self) {
        self.server.forget_events();
        self.server.cut_watches();
    }

    /// Returns the objects of all namespaces, each with its `apiVersion` and `kind`.
    pub(crate) fn states(&self) -> Vec<Value> {
        let list = self
            .server
            .list(&format!("{}/{}", self.root, self.resource.resource));
        let mut list = list.expect("the server returns a list");
        let (api_version, kind) = (list["apiVersion"].clone(), Value::from(self.kind));
        let items = list["items"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        items
            .into_iter()
            .map(|mut item| {
                item["apiVersion"] = api_version.clone();
                item["kind"] = kind.clone();
                item
            })
            .collect()
    }

    /// Writes the marker of the reflector for `namespace`, or of the reflector for all namespaces.
    pub(crate) fn mark(&mut self, namespace: Option<&str>) -> Value {
        let content = marker();
        self.put(&marker_key(namespace), content)
    }

    /// Writes an object with random content.
    pub(crate) fn write_object(
        &mut self,
        config: &Config,
        key: &str,
        random: &mut Random,
    ) -> Value {
        let mut content = content(config, random);
        if key.ends_with(MARKER) {
            content = marker();
        }
        self.put(key, content)
    }

    /// Creates, changes or deletes a random object. Returns its new state, or nothing after a
    /// delete.
    pub(crate) fn write(&mut self, config: &Config, random: &mut Random) -> Vec<Value> {
        // Most writes are in the scope of the informer.
        let namespaces: &[&str] = match config.scope.namespaces.as_slice() {
            namespaces @ [_, ..] if random.percent(80) => namespaces,
            _ => &NAMESPACES,
        };
        let key = format!(
            "{}/o{}",
            random.pick(namespaces),
            random.below(config.names)
        );
        let content = content(config, random);
        match random.below(10) {
            0..7 => vec![self.put(&key, content)],
            7 | 8 => {
                if self.server.delete(&self.path(&key)).is_ok() {
                    self.log(format!("{}: delete {key}", self.server.resource_version()));
                }
                Vec::new()
            }
            _ => {
                // Recreate: a different object with the same name.
                let _ = self.server.delete(&self.path(&key));
                vec![self.put(&key, content)]
            }
        }
    }

    /// Creates or changes an object.
    pub(crate) fn put(&mut self, key: &str, mut content: Value) -> Value {
        self.writes += 1;
        content["metadata"]["annotations"] = json!({ "note": format!("write {}", self.writes) });
        let path = self.path(key);
        let described = format!("{} {}", content["metadata"]["labels"], content["spec"]);
        let stored = match self.server.patch(&path, content.clone()) {
            Ok(stored) => stored,
            Err(_) => {
                let (collection, name) = path.rsplit_once('/').expect("a path has slashes");
                content["metadata"]["name"] = name.into();
                if let Some(labels) = content["metadata"]["labels"].as_object_mut() {
                    labels.retain(|_, value| !value.is_null());
                }
                self.server
                    .create(collection, content)
                    .expect("the object can be created")
            }
        };
        self.log(format!(
            "{}: put {key} {described}",
            self.server.resource_version()
        ));
        stored
    }
}

pub(crate) fn marker_key(namespace: Option<&str>) -> String {
    format!("{}/{MARKER}", namespace.unwrap_or("a"))
}

fn marker() -> Value {
    json!({
        "metadata": { "labels": { "app": "in", "tier": "x" } },
        "spec": { "nodeName": "n0", "priority": 1 },
    })
}

/// Returns random content of an object except its name. A patch with this content replaces all
/// earlier random content.
fn content(config: &Config, random: &mut Random) -> Value {
    let mut moods = vec![(80, None)];
    if config.rejecting_index {
        moods.push((20, Some("odd")));
    }
    if config.transform != Transformation::None {
        moods.push((10, Some("poison")));
    }
    let undecodable = config.undecodable && random.percent(20);
    let priority = if undecodable {
        json!("high")
    } else {
        json!(random.below(9))
    };
    json!({
        "metadata": { "labels": {
            "app": random.weighted(&[(3, "in"), (1, "out")]),
            "tier": random.pick(&["x", "y"]),
            "mood": random.weighted(&moods),
        } },
        "spec": { "nodeName": random.weighted(&[(3, "n0"), (1, "n1")]), "priority": priority },
    })
}
