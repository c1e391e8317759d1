//! What queues and stores hold in the targets, and the user functions that they are given. Each function has
//! a plain form, which the models ask, and a user's, which fails, panics, and takes the lock of the structure
//! under test.

use std::panic::resume_unwind;
use std::sync::Arc;

use arbitrary::{Arbitrary, Result as Read, Unstructured};
use k8s_informer::Deleted;
use k8s_informer::object::{Accessor, Key, KeyError};
use k8s_informer::store::{StoreError, Transform};

use super::probe::touch;

/// The keys there are.
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
    /// Tells it from all others: see [`Press`].
    #[arbitrary(default)]
    pub serial: u32,
    /// How often it passed the transform.
    #[arbitrary(default)]
    pub transformed: u8,
}

/// Which user function doesn't like an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    Nothing,
    KeyFails,
    KeyPanics,
    TransformFails,
    TransformPanics,
    /// The transform answers an object with another key.
    TransformRenames,
    /// The transform answers an object without a key.
    TransformUnkeys,
    IndexFails,
    IndexPanics,
    NoVersion,
    VersionPanics,
}

/// What a user function says, or that it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Says,
    Panics,
}

impl Failure {
    /// As a user function does it. Without the panic hook: logs stay readable, and libfuzzer's ends the
    /// process.
    pub fn happen(self) -> &'static str {
        match self {
            Self::Says => "says no",
            Self::Panics => resume_unwind(Box::new("boom")),
        }
    }
}

/// Why something was not done, as models and structures say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Key,
    /// With the key.
    Transform(String),
    /// With the index and the key.
    Index(String, String),
    /// Something that waits in the queue has no key any more.
    Lost,
    Other,
}

impl Refusal {
    /// What an error says; it must tell what the user's function said.
    pub fn of(error: &StoreError) -> Self {
        let text = error.to_string();
        if text.contains("lost its key") {
            return Self::Lost;
        }
        assert!(
            text.contains("says no") || text.contains("panicked: boom"),
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
            Trouble::KeyFails => Err(Failure::Says),
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
            Trouble::TransformFails => return Err(Failure::Says),
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

/// An object: in a structure, and nowhere else, so that it is dropped there.
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
            .map_err(|failure| KeyError::new(failure.happen()))
    })
    .with_resource_version(version)
}

/// The user's form of [`Item::version`].
pub fn version(held: &Held) -> Option<&str> {
    touch();
    held.0
        .version()
        .unwrap_or_else(|failure| Some(failure.happen()))
}

/// The user's form of [`Item::transform`].
pub fn transform() -> Transform<Held> {
    Transform::new(|held: Arc<Held>| {
        touch();
        held.0.transform().map(Item::held).map_err(Failure::happen)
    })
}

/// A tombstone.
pub fn tombstone(key: &str, last_known: Option<Item>) -> Deleted<Held> {
    Deleted::FinalStateUnknown {
        key: key.into(),
        last_known: last_known.map(Item::held),
    }
}

/// Gives each item that is used a serial number.
#[derive(Default)]
pub struct Press(u32);

impl Press {
    pub fn number(&mut self, mut item: Item) -> Item {
        self.0 += 1;
        item.serial = self.0;
        item
    }

    pub fn number_all(&mut self, items: &[Item]) -> Vec<Item> {
        items.iter().map(|item| self.number(*item)).collect()
    }
}

/// One of the keys.
pub fn name(bytes: &mut Unstructured) -> Read<&'static str> {
    bytes.choose(&NAMES).copied()
}

/// The versions that a queue was told, and when: what has been processed is told by the last of them that is
/// older than all that has not been.
#[derive(Default)]
pub struct VersionTracker {
    pub now: usize,
    versions: Vec<(usize, &'static str)>,
}

impl VersionTracker {
    fn latest(&self) -> &'static str {
        self.versions.last().map_or("", |(_, version)| version)
    }

    /// An object. That it was added says something only after a version; `0` is none.
    pub fn object(&mut self, item: &Item, is_added: bool) {
        if let Ok(Some(version)) = item.version()
            && !(is_added && matches!(self.latest(), "" | "0"))
        {
            self.bookmark(version);
        }
    }

    pub fn bookmark(&mut self, version: &'static str) {
        if !version.is_empty() {
            self.list(version);
        }
    }

    pub fn list(&mut self, version: &'static str) {
        self.versions.push((self.now, version));
    }

    /// What has been processed, if the oldest of what has not been is this old.
    pub fn before(&self, oldest: Option<usize>) -> &'static str {
        let older = |(at, _): &&(usize, &str)| oldest.is_none_or(|oldest| *at < oldest);
        self.versions
            .iter()
            .rev()
            .find(older)
            .map_or("", |(_, version)| version)
    }
}

/// One of the resourceVersions.
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

/// None to five of something.
pub fn few<'a, A: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Read<Vec<A>> {
    (0..bytes.int_in_range(0..=5_u8)?)
        .map(|_| bytes.arbitrary())
        .collect()
}

/// Options, and then operations up to the end of the input, or up to a number of them that keeps a run short.
pub fn read<'a, O: Arbitrary<'a>, Op: Arbitrary<'a>>(input: &'a [u8]) -> Read<(O, Vec<Op>)> {
    let mut bytes = Unstructured::new(input);
    let options = bytes.arbitrary()?;
    let mut operations = Vec::new();
    while !bytes.is_empty() && operations.len() < 300 {
        operations.push(bytes.arbitrary()?);
    }
    Ok((options, operations))
}
