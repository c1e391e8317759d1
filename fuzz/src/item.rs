//! The objects that queues and stores hold in the targets, and the user functions for them. Each
//! function has a plain form for the models, and a user form for the structure under test. The user
//! form also takes the lock of the structure, and it can fail or panic.

use std::panic::resume_unwind;
use std::sync::Arc;

use arbitrary::{Arbitrary, Result as Read, Unstructured};
use k8s_informer::Deleted;
use k8s_informer::object::{Accessor, Key, KeyError, ResourceVersion};
use k8s_informer::store::{StoreError, Transform};

use super::probe::touch;

/// All keys.
pub const NAMES: [&str; 6] = ["a", "b", "ns/a", "ns/b", "ns/c", "other/a"];
const VERSIONS: [&str; 5] = ["", "7", "8", "9", "10"];

/// The plain data of an object.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    #[arbitrary(with = name)]
    pub name: &'static str,
    #[arbitrary(with = version_text)]
    pub version: &'static str,
    #[arbitrary(with = |bytes: &mut Unstructured| bytes.int_in_range(0..=3))]
    pub value: u8,
    #[arbitrary(with = trouble)]
    pub trouble: Trouble,
    /// A unique number. See [`Numbering`].
    #[arbitrary(default)]
    pub serial: u32,
    /// The number of times that the object was transformed.
    #[arbitrary(default)]
    pub transformed: u8,
}

/// The user function that fails for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    Nothing,
    KeyFails,
    KeyPanics,
    TransformFails,
    TransformPanics,
    /// The transform returns an object with another key.
    TransformRenames,
    /// The transform returns an object without a key.
    TransformUnkeys,
    IndexFails,
    IndexPanics,
    NoVersion,
    VersionPanics,
}

/// How a user function fails: with a message or a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Message,
    Panics,
}

impl Failure {
    /// Fails as a user function does. It does not call the panic hook: logs stay readable, and the
    /// hook of libfuzzer would end the process.
    pub fn trigger(self) -> &'static str {
        match self {
            Self::Message => "user failure",
            Self::Panics => resume_unwind(Box::new("boom")),
        }
    }
}

/// The reason for a rejection, in a form that models and structures share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Key,
    /// The transform has failed. The value is the key.
    Transform(String),
    /// An index function has failed. The values are the index and the key.
    Index(String, String),
    /// A queued object has no key, because the transform removed it.
    Lost,
    Other,
}

impl Refusal {
    /// Converts an error. It must contain the message of the user function.
    pub fn of(error: &StoreError) -> Self {
        let text = error.to_string();
        if text.contains("the transform removed the key") {
            return Self::Lost;
        }
        assert!(
            text.contains("user failure") || text.contains("panicked: boom"),
            "{text}"
        );
        match error {
            StoreError::Key(_) => Self::Key,
            StoreError::Transform { key, .. } => {
                Self::Transform(key.as_deref().unwrap_or_default().to_owned())
            }
            StoreError::Index { index, key, .. } => Self::Index(index.to_string(), key.to_string()),
            _ => Self::Other,
        }
    }
}

impl Item {
    pub fn key(&self) -> Result<&'static str, Failure> {
        match self.trouble {
            Trouble::KeyFails => Err(Failure::Message),
            Trouble::KeyPanics => Err(Failure::Panics),
            _ => Ok(self.name),
        }
    }

    pub fn version(&self) -> Result<Option<&'static str>, Failure> {
        match self.trouble {
            Trouble::VersionPanics => Err(Failure::Panics),
            Trouble::NoVersion => Ok(None),
            _ => Ok(Some(self.version)),
        }
    }

    pub fn transform(mut self) -> Result<Self, Failure> {
        match self.trouble {
            Trouble::TransformFails => return Err(Failure::Message),
            Trouble::TransformPanics => return Err(Failure::Panics),
            Trouble::TransformUnkeys => self.trouble = Trouble::KeyFails,
            Trouble::TransformRenames => {
                self.name = if self.name == NAMES[0] {
                    NAMES[1]
                } else {
                    NAMES[0]
                }
            }
            _ => {}
        }
        self.transformed += 1;
        Ok(self)
    }

    pub fn held(self) -> Arc<Held> {
        Arc::new(Held(self))
    }

    pub fn gone(self) -> Deleted<Held> {
        Deleted::Final(self.held())
    }
}

/// An object. Only the structure under test holds it, so it is dropped there.
#[derive(Debug, PartialEq)]
pub struct Held(pub Item);

impl Drop for Held {
    fn drop(&mut self) {
        touch();
    }
}

/// The accessor of the objects.
pub fn accessor() -> Accessor<Held> {
    Accessor::new(|held: &Held| {
        touch();
        held.0
            .key()
            .map(Key::from)
            .map_err(|failure| KeyError::new(failure.trigger()))
    })
    .with_resource_version(version)
}

/// The user form of [`Item::version`].
pub fn version(held: &Held) -> Option<&str> {
    touch();
    held.0
        .version()
        .unwrap_or_else(|failure| Some(failure.trigger()))
}

/// The user form of [`Item::transform`].
pub fn transform() -> Transform<Held> {
    Transform::new(|held: Arc<Held>| {
        touch();
        held.0.transform().map(Item::held).map_err(Failure::trigger)
    })
}

/// Returns a tombstone.
pub fn tombstone(key: &str, last_known: Option<Item>) -> Deleted<Held> {
    Deleted::FinalStateUnknown {
        key: key.into(),
        last_known: last_known.map(Item::held),
    }
}

/// Gives each item a serial number before its use.
#[derive(Default)]
pub struct Numbering(u32);

impl Numbering {
    pub fn number(&mut self, mut item: Item) -> Item {
        self.0 += 1;
        item.serial = self.0;
        item
    }

    pub fn number_all(&mut self, items: &[Item]) -> Vec<Item> {
        items.iter().map(|item| self.number(*item)).collect()
    }
}

/// Reads one of the keys.
pub fn name(bytes: &mut Unstructured) -> Read<&'static str> {
    bytes.choose(&NAMES).copied()
}

/// The versions that a queue received, with their times. The processed version is the last one that
/// is older than every unprocessed change.
#[derive(Default)]
pub struct VersionTracker {
    pub now: usize,
    versions: Vec<(usize, &'static str)>,
}

impl VersionTracker {
    fn latest(&self) -> &'static str {
        self.versions.last().map_or("", |(_, version)| version)
    }

    /// Records the version of an object. The version of an added object counts only if the latest
    /// recorded version is neither empty nor `0`.
    pub fn object(&mut self, item: &Item, is_added: bool) {
        if let Ok(Some(version)) = item.version()
            && !(is_added && matches!(self.latest(), "" | "0"))
        {
            self.bookmark(version);
        }
    }

    pub fn bookmark(&mut self, version: &'static str) {
        if !version.is_empty() {
            self.list(newest(self.latest(), version));
        }
    }

    pub fn list(&mut self, version: &'static str) {
        self.versions.push((self.now, version));
    }

    /// Returns the processed version, given the time of the oldest unprocessed change.
    pub fn before(&self, oldest: Option<usize>) -> &'static str {
        let older = |(at, _): &&(usize, &str)| oldest.is_none_or(|oldest| *at < oldest);
        self.versions
            .iter()
            .rev()
            .find(older)
            .map_or("", |(_, version)| version)
    }
}

/// Returns the text of a version. It is empty if there is none.
pub fn version_of(version: Option<&ResourceVersion>) -> String {
    version.map_or_else(String::new, ToString::to_string)
}

/// Returns the last version if both are numbers and `version` is older. They can exceed every
/// integer type.
pub fn newest<'a>(last: &'a str, version: &'a str) -> &'a str {
    let is_number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit())
            && !matches!(text.as_bytes(), [] | [b'0', ..])
    };
    let is_older =
        is_number(last) && is_number(version) && (version.len(), version) < (last.len(), last);
    if is_older { last } else { version }
}

/// Reads one of the resource versions.
pub fn version_text(bytes: &mut Unstructured) -> Read<&'static str> {
    bytes.choose(&VERSIONS).copied()
}

fn trouble(bytes: &mut Unstructured) -> Read<Trouble> {
    Ok(match bytes.int_in_range(0..=31_u8)? {
        1 => Trouble::KeyFails,
        2 => Trouble::KeyPanics,
        3 => Trouble::TransformFails,
        4 => Trouble::TransformPanics,
        5 => Trouble::TransformRenames,
        6 => Trouble::TransformUnkeys,
        7 => Trouble::IndexFails,
        8 => Trouble::IndexPanics,
        9 => Trouble::NoVersion,
        10 => Trouble::VersionPanics,
        _ => Trouble::Nothing,
    })
}

/// Reads up to five values.
pub fn few<'a, A: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Read<Vec<A>> {
    (0..bytes.int_in_range(0..=5_u8)?)
        .map(|_| bytes.arbitrary())
        .collect()
}

/// Reads options and then operations, to the end of the input or up to a number that keeps a run
/// short.
pub fn read<'a, O: Arbitrary<'a>, Op: Arbitrary<'a>>(input: &'a [u8]) -> Read<(O, Vec<Op>)> {
    let mut bytes = Unstructured::new(input);
    let options = bytes.arbitrary()?;
    let mut operations = Vec::new();
    while !bytes.is_empty() && operations.len() < 300 {
        operations.push(bytes.arbitrary()?);
    }
    Ok((options, operations))
}
