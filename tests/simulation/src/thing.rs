//! The objects, and the JSON that the servers send.

use std::fmt::Write;

use serde::Deserialize;
use simulation::{ObjectMeta, impl_object};

use crate::server::{Flaw, State};

pub const KEYS: [&str; 8] = [
    "ns/a", "ns/b", "ns/c", "ns/d", "other/a", "other/b", "other/c", "other/d",
];

/// The index by the group of an object.
pub const INDEX: &str = "group";

/// A custom struct.
#[derive(Debug, Deserialize)]
pub struct Thing {
    metadata: ObjectMeta,
    /// 1 if the transform rejects the object, 2 if the index function does.
    #[serde(default)]
    pub rejected_by: u8,
    /// The time until which it is rejected.
    #[serde(default)]
    pub until: u64,
    /// See [`State::write`].
    pub write: u64,
}

impl_object!(Thing, "example.com/v1", "Thing", "things", Namespaced);

impl Thing {
    pub fn is_rejected_by(&self, stage: u8, now: u64) -> bool {
        self.rejected_by == stage && now < self.until
    }
}

pub fn group(write: u64) -> String {
    format!("g{}", write % 3)
}

/// Returns the position in [`KEYS`].
pub fn key_index(key: &str) -> Option<usize> {
    KEYS.iter().position(|known| *known == key)
}

/// How the JSON of an object is spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoiled {
    No,
    Value,
    Name,
}

/// Returns the JSON of an object in this version.
pub fn object(state: &State, version: u64, has_kind: bool, spoiled: Spoiled) -> String {
    let (namespace, name) = KEYS[state.key].split_once('/').unwrap_or_default();
    let mut json = String::with_capacity(220);
    json.push('{');
    if has_kind {
        json.push_str(r#""apiVersion":"example.com/v1","kind":"Thing","#);
    }
    let name = match spoiled {
        Spoiled::Name => "7".to_owned(),
        _ => format!("{name:?}"),
    };
    let _ = write!(
        json,
        r#""metadata":{{"name":{name},"namespace":"{namespace}","uid":"u{}","resourceVersion":"{version}"}}"#,
        state.uid
    );
    let rejected = match state.flaw {
        Flaw::Transform(until) => Some((1, until)),
        Flaw::Index(until) => Some((2, until)),
        _ => None,
    };
    if let Some((stage, until)) = rejected {
        let _ = write!(json, r#","rejected_by":{stage},"until":{until}"#);
    }
    let _ = match spoiled == Spoiled::Value || state.flaw == Flaw::Unreadable {
        true => write!(json, r#","write":"{}"}}"#, state.write),
        false => write!(json, r#","write":{}}}"#, state.write),
    };
    json
}
