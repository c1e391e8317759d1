//! The objects, and the JSON that the servers send.

use std::fmt::Write;
use std::panic::resume_unwind;

use serde::Deserialize;
use simulation::{Object, ObjectMeta};

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
    /// 1 if the transform rejects the object, 2 if the index function fails for it.
    #[serde(default)]
    pub failing: u8,
    /// The time until which it does.
    #[serde(default)]
    pub until: u64,
    /// The accessor that panics, from 1 to 4.
    #[serde(default)]
    panics: u8,
    /// See [`State::write`].
    pub write: u64,
}

impl Object for Thing {
    fn name(&self) -> &str {
        self.accessor(1);
        self.metadata.name()
    }

    fn namespace(&self) -> &str {
        self.accessor(2);
        self.metadata.namespace()
    }

    fn uid(&self) -> &str {
        self.accessor(3);
        self.metadata.uid()
    }

    fn resource_version(&self) -> &str {
        self.accessor(4);
        self.metadata.resource_version()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.label(key)
    }
}

impl Thing {
    fn accessor(&self, number: u8) {
        if self.panics == number {
            resume_unwind(Box::new("a simulated accessor"));
        }
    }

    pub fn fails_in_transform(&self, now: u64) -> bool {
        self.failing == 1 && now < self.until
    }

    pub fn fails_in_index(&self, now: u64) -> bool {
        self.failing == 2 && now < self.until
    }
}

pub fn group(write: u64) -> String {
    format!("g{}", write % 3)
}

/// The namespaces of [`KEYS`].
pub const NAMESPACES: [&str; 2] = ["ns", "other"];

/// Whether the object at this position of [`KEYS`] is in one of the selected namespaces.
pub fn is_selected(key: usize, namespace: Option<&str>) -> bool {
    let (of_key, _) = KEYS[key].split_once('/').unwrap_or_default();
    namespace.is_none_or(|namespace| namespace == of_key)
}

/// Returns the position in [`KEYS`].
pub fn key_index(key: &str) -> Option<usize> {
    KEYS.iter().position(|known| *known == key)
}

/// The maximum size of an object.
pub const LIMIT: usize = 1000;

/// Why an unreadable state cannot be read.
pub enum Unreadable {
    WrongType,
    AccessorPanics,
    TooLarge,
}

impl Unreadable {
    pub fn of(write: u64) -> Self {
        match write % 3 {
            0 => Self::WrongType,
            1 => Self::AccessorPanics,
            _ => Self::TooLarge,
        }
    }
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
        let _ = write!(json, r#","failing":{stage},"until":{until}"#);
    }
    let write = state.write;
    let is_unreadable = spoiled == Spoiled::Value || state.flaw == Flaw::Unreadable;
    let _ = match is_unreadable.then(|| Unreadable::of(write)) {
        None => write!(json, r#","write":{write}}}"#),
        Some(Unreadable::WrongType) => write!(json, r#","write":"{write}"}}"#),
        Some(Unreadable::AccessorPanics) => {
            write!(json, r#","panics":{},"write":{write}}}"#, 1 + write % 4)
        }
        Some(Unreadable::TooLarge) => {
            let padding = r#"}\"]{"#.repeat(LIMIT / 6 + (write as usize * 37) % LIMIT);
            write!(json, r#","padding":"{padding}","write":{write}}}"#)
        }
    };
    json
}
