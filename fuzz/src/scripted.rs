//! A server that follows a script. It has a few changing objects, and each response can contain
//! faults.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::Error;
use k8s_informer::error::Status;
use serde_json::json;

use super::item::few;

/// The namespace and the name of each possible object.
const NAMES: [(&str, &str); 4] = [("", "a"), ("", "b"), ("ns", "a"), ("ns", "c")];

/// The settings of the reflector and the server.
#[derive(Arbitrary, Clone, Debug)]
pub struct Settings {
    pub queue: QueueKind,
    /// The page size of lists. 0 means no page size.
    #[arbitrary(with = |bytes: &mut Unstructured| bytes.int_in_range(0..=3))]
    pub page_size: u32,
    pub supports_watch_list: bool,
    pub watch_list: bool,
    pub skip: bool,
    pub expected_kind: bool,
    pub shallow: bool,
    pub small: bool,
    pub read_timeouts: bool,
    #[arbitrary(with = few)]
    pub pieces: Vec<u8>,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum QueueKind {
    Indexer,
    DeltaFifo,
    RealFifo,
}

impl Settings {
    /// The limits of the size and the depth of an object, if `small` and `shallow` are set.
    pub const BYTES: usize = 260;
    pub const NESTING: usize = 6;
}

/// One response of the script.
#[derive(Arbitrary, Clone, Debug)]
pub struct Answer {
    /// The changes since the previous response.
    #[arbitrary(with = few)]
    pub changes: Vec<Change>,
    /// A failure instead of this response.
    #[arbitrary(with = |bytes: &mut Unstructured| sometimes(bytes, 3))]
    pub failure: Option<Failure>,
    /// The last frames of a watch, after those for the changes since the version of the watch.
    #[arbitrary(with = few)]
    pub live: Vec<Live>,
    /// The index of the object that has the fault `spoil`.
    #[arbitrary(with = |bytes: &mut Unstructured| bytes.int_in_range(0..=7))]
    pub spoilt: usize,
    pub spoil: Spoil,
    pub form: Form,
    pub end: End,
    #[arbitrary(with = |bytes: &mut Unstructured| bytes.choose(&[0, 500, 1000, 5000, 70_000]).copied())]
    pub millis: u64,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Change {
    Put(#[arbitrary(with = name)] usize),
    Delete(#[arbitrary(with = name)] usize),
    /// Forgets older versions.
    Compact,
    /// Restores a backup from this number of changes ago.
    Restore(#[arbitrary(with = |bytes: &mut Unstructured| bytes.int_in_range(1..=4))] u64),
}

fn name(bytes: &mut Unstructured) -> arbitrary::Result<usize> {
    bytes.choose_index(NAMES.len())
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Live {
    Change(Change),
    Bookmark,
    BookmarkWithoutVersion,
    Mark,
    Error(Failure),
    Garbage(Garbage),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Garbage {
    Text,
    Brackets,
    Type,
    Null,
}

impl Garbage {
    fn text(self) -> &'static str {
        match self {
            // Without the newline, the text would end at the end of the stream.
            Self::Text => "garbage\n",
            Self::Brackets => r#"{"type":"ADDED","object":{"metadata":[}]}"#,
            Self::Type => r#"{"type":"added","object":{"metadata":{"name":"a"}}}"#,
            Self::Null => r#"{"type":"DELETED","object":null}"#,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum Spoil {
    Nothing,
    WrongType,
    NoName,
    NameOfNoText,
    NoJson,
    Deep,
    Large,
    OtherKind,
    NoVersion,
    /// The fault is in a field that the reflector can skip.
    WrongTypeAside,
}

/// How a list is written, and how the initial objects of a watch-list end.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Usual,
    VersionLast,
    NoVersion,
    /// A watch-list without the bookmark that ends the initial objects.
    NoMark,
    /// The bookmark follows the live events.
    MarkLast,
    /// A watch reports its failure as an ERROR event.
    ErrorEvent,
    /// The server sends pages even if the request has no limit.
    Paged,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum End {
    Clean,
    Reset,
    /// The response ends this number of bytes early.
    Cut(u8),
    Silent,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    #[arbitrary(with = |bytes: &mut Unstructured| bytes.choose(&[0, 0, 1, 20, 90]).copied())]
    pub retry_after: u32,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum FailureKind {
    Expired,
    Gone,
    TooManyRequests,
    InternalError,
    Unavailable,
    TooLargeVersion,
    BadRequest,
    Invalid,
    Forbidden,
    /// No response. It never appears in a stream.
    Connection,
    Other,
}

impl Failure {
    pub fn of(kind: FailureKind) -> Self {
        Self {
            kind,
            retry_after: 0,
        }
    }

    fn json(self) -> serde_json::Value {
        use FailureKind::*;
        let (code, reason) = match self.kind {
            Expired => (410, "Expired"),
            Gone => (410, "Gone"),
            TooManyRequests => (429, "TooManyRequests"),
            InternalError => (500, "InternalError"),
            Unavailable => (503, "ServiceUnavailable"),
            TooLargeVersion => (504, "Timeout"),
            BadRequest => (400, "BadRequest"),
            Invalid => (422, "Invalid"),
            Forbidden => (403, "Forbidden"),
            Connection | Other => (418, ""),
        };
        let causes = match self.kind {
            TooLargeVersion => json!([{"reason": "ResourceVersionTooLarge"}]),
            _ => json!([]),
        };
        let details = json!({"causes": causes, "retryAfterSeconds": self.retry_after});
        json!({"kind": "Status", "code": code, "reason": reason, "details": details})
    }

    pub fn error(self) -> Error {
        match self.kind {
            FailureKind::Connection => {
                std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
            }
            FailureKind::Other => Error::other("some other failure"),
            _ => {
                Error::from_status(serde_json::from_value::<Status>(self.json()).expect("a Status"))
            }
        }
    }

    /// Replaces a failure that has no `Status`: a stream can only report a `Status`.
    pub fn in_stream(self) -> Self {
        match self.kind {
            FailureKind::Connection | FailureKind::Other => Self {
                kind: FailureKind::Forbidden,
                ..self
            },
            _ => self,
        }
    }

    /// Whether the failure can be a rejection of this version.
    pub fn is_unacceptable_at(self, version: Option<&str>) -> bool {
        let is_bad = matches!(self.kind, FailureKind::BadRequest | FailureKind::Invalid);
        is_bad && !matches!(version, None | Some("" | "0"))
    }

    /// Returns the delay in seconds that the server requests. Without a response there is none.
    pub fn retry_after(self) -> u64 {
        match self.kind {
            FailureKind::Connection | FailureKind::Other => 0,
            _ => self.retry_after.into(),
        }
    }
}

fn sometimes<'a, A: Arbitrary<'a>>(
    bytes: &mut Unstructured<'a>,
    of: u8,
) -> arbitrary::Result<Option<A>> {
    if bytes.ratio(1, of)? {
        bytes.arbitrary().map(Some)
    } else {
        Ok(None)
    }
}

/// The state of an object at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    pub key: String,
    pub namespace: &'static str,
    pub name: &'static str,
    pub uid: String,
    pub version: String,
    pub value: u32,
}

/// An object as a response contains it.
#[derive(Clone, Debug)]
pub struct Served {
    pub thing: Thing,
    pub spoil: Spoil,
}

impl Served {
    fn json(&self) -> String {
        let Thing {
            namespace,
            name,
            uid,
            version,
            value,
            ..
        } = &self.thing;
        let (mut kind, mut named, mut more) =
            ("Thing", format!("\"name\":\"{name}\","), String::new());
        let mut value = value.to_string();
        match self.spoil {
            Spoil::WrongType => value = format!("\"{value}\""),
            Spoil::NoName => named.clear(),
            Spoil::NameOfNoText => named = "\"name\":7,".to_owned(),
            Spoil::NoJson => value.clear(),
            Spoil::Deep => more = format!(",\"deep\":{}7{}", "[".repeat(8), "]".repeat(8)),
            Spoil::Large => more = format!(",\"large\":\"{}\"", "}".repeat(300)),
            Spoil::OtherKind => kind = "Other",
            Spoil::WrongTypeAside => more = ",\"aside\":\"x\"".to_owned(),
            Spoil::Nothing | Spoil::NoVersion => {}
        }
        format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"v1\",\"metadata\":{{{named}\"namespace\":\"{namespace}\",\
             \"uid\":\"{uid}\",\"resourceVersion\":\"{version}\"}},\"spec\":{{\"value\":{value}{more}}}}}"
        )
    }
}

/// One frame of a stream.
#[derive(Clone, Debug)]
pub enum Frame {
    Added(Served),
    Modified(Served),
    Deleted(Served),
    Bookmark { version: String, mark: bool },
    Error(Failure),
    Garbage(Garbage),
}

impl Frame {
    fn text(&self) -> String {
        let (kind, object) = match self {
            Self::Added(served) => ("ADDED", served.json()),
            Self::Modified(served) => ("MODIFIED", served.json()),
            Self::Deleted(served) => ("DELETED", served.json()),
            Self::Bookmark { version, mark } => {
                let annotations = if *mark {
                    json!({"k8s.io/initial-events-end": "true"})
                } else {
                    json!(null)
                };
                let meta = json!({"resourceVersion": version, "annotations": annotations});
                (
                    "BOOKMARK",
                    json!({"kind": "Thing", "apiVersion": "v1", "metadata": meta}).to_string(),
                )
            }
            Self::Error(failure) => ("ERROR", failure.json().to_string()),
            Self::Garbage(garbage) => return garbage.text().to_owned(),
        };
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}")
    }

    fn served(&mut self) -> Option<&mut Served> {
        match self {
            Self::Added(served) | Self::Modified(served) | Self::Deleted(served) => Some(served),
            _ => None,
        }
    }
}

/// The bytes of a response and the positions of its parts.
pub struct Written {
    pub bytes: Vec<u8>,
    /// The start and the end of each part.
    pub parts: Vec<(usize, usize)>,
}

impl Written {
    pub fn stream(frames: &[Frame]) -> Self {
        let mut written = Self {
            bytes: Vec::new(),
            parts: Vec::new(),
        };
        for frame in frames {
            let begin = written.bytes.len();
            written.bytes.extend_from_slice(frame.text().as_bytes());
            written.parts.push((begin, written.bytes.len()));
            written.bytes.push(b'\n');
        }
        written
    }

    pub fn list(items: &[Served], version: &str, token: Option<&str>, last: bool) -> Self {
        let meta = json!({"resourceVersion": version, "continue": token}).to_string();
        let begin = match last {
            true => "{\"kind\":\"ThingList\",\"apiVersion\":\"v1\",\"items\":[".to_owned(),
            false => {
                format!(
                    "{{\"kind\":\"ThingList\",\"apiVersion\":\"v1\",\"metadata\":{meta},\"items\":["
                )
            }
        };
        let mut written = Self {
            bytes: begin.into_bytes(),
            parts: Vec::new(),
        };
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                written.bytes.push(b',');
            }
            let begin = written.bytes.len();
            written.bytes.extend_from_slice(item.json().as_bytes());
            written.parts.push((begin, written.bytes.len()));
        }
        let end = if last {
            format!("],\"metadata\":{meta}}}")
        } else {
            "]}".to_owned()
        };
        written.bytes.extend_from_slice(end.as_bytes());
        written
    }

    /// Returns the number of bytes that arrive.
    pub fn end(&self, end: End) -> usize {
        match end {
            End::Cut(bytes) => self.bytes.len() - usize::from(bytes) % (self.bytes.len() + 1),
            _ => self.bytes.len(),
        }
    }
}

/// The state of the server.
pub struct World {
    things: BTreeMap<usize, Thing>,
    pub version: u64,
    floor: u64,
    log: Vec<(u64, Frame)>,
    past: BTreeMap<u64, BTreeMap<usize, Thing>>,
    /// The version and the remaining objects of lists in progress, by continue token.
    pages: BTreeMap<String, (String, Vec<Thing>)>,
    made: u32,
}

impl World {
    pub fn new() -> Self {
        Self {
            things: BTreeMap::new(),
            version: 7,
            floor: 7,
            log: Vec::new(),
            past: BTreeMap::from([(7, BTreeMap::new())]),
            pages: BTreeMap::new(),
            made: 0,
        }
    }

    /// Applies a change. Returns its event, if there is one.
    pub fn change(&mut self, change: Change) -> Option<Frame> {
        let frame = match change {
            Change::Put(at) => {
                self.version += 1;
                self.made += 1;
                let (namespace, name) = NAMES[at];
                let key = if namespace.is_empty() {
                    name.to_owned()
                } else {
                    format!("{namespace}/{name}")
                };
                let old = self.things.get(&at).map(|old| old.uid.clone());
                let is_new = old.is_none();
                let uid = old.unwrap_or_else(|| format!("u{}", self.made));
                let version = self.version.to_string();
                let thing = Thing {
                    key,
                    namespace,
                    name,
                    uid,
                    version,
                    value: self.made,
                };
                self.things.insert(at, thing.clone());
                let served = Served {
                    thing,
                    spoil: Spoil::Nothing,
                };
                if is_new {
                    Frame::Added(served)
                } else {
                    Frame::Modified(served)
                }
            }
            Change::Delete(at) => {
                let mut thing = self.things.remove(&at)?;
                self.version += 1;
                thing.version = self.version.to_string();
                Frame::Deleted(Served {
                    thing,
                    spoil: Spoil::Nothing,
                })
            }
            Change::Compact => {
                self.floor = self.version;
                return None;
            }
            Change::Restore(ago) => {
                self.version = self.version.saturating_sub(ago).max(7);
                self.things = self.past[&self.version].clone();
                self.floor = self.floor.min(self.version);
                let version = self.version;
                self.log.retain(|(at, _)| *at <= version);
                self.past.retain(|at, _| *at <= version);
                self.pages.clear();
                return None;
            }
        };
        self.log.push((self.version, frame.clone()));
        self.past.insert(self.version, self.things.clone());
        Some(frame)
    }

    fn serve(&self) -> Vec<Thing> {
        self.things.values().cloned().collect()
    }

    /// Returns a page, its version, and the token of the next page.
    pub fn list(
        &mut self,
        version: Option<&str>,
        token: Option<&str>,
        limit: Option<usize>,
    ) -> Result<(Vec<Served>, String, Option<String>), Failure> {
        let (of, mut things) = match token {
            Some(token) => self
                .pages
                .remove(token)
                .ok_or(Failure::of(FailureKind::Expired))?,
            None if version.is_some_and(|version| self.is_in_future(version)) => {
                return Err(Failure::of(FailureKind::TooLargeVersion));
            }
            None => (self.version.to_string(), self.serve()),
        };
        let rest = things.split_off(limit.unwrap_or(things.len()).min(things.len()));
        let next = (!rest.is_empty()).then(|| format!("{of}-{}", rest.len()));
        if let Some(token) = &next {
            self.pages.insert(token.clone(), (of.clone(), rest));
        }
        let items = things.into_iter().map(|thing| Served {
            thing,
            spoil: Spoil::Nothing,
        });
        Ok((items.collect(), of, next))
    }

    fn is_in_future(&self, version: &str) -> bool {
        version
            .parse()
            .is_ok_and(|version: u64| version > self.version)
    }

    /// Returns the frames at the beginning of a watch.
    pub fn watch(&self, version: Option<&str>, initial: bool) -> Result<Vec<Frame>, Failure> {
        let version = version.unwrap_or_default();
        if self.is_in_future(version) {
            return Err(Failure::of(FailureKind::TooLargeVersion));
        }
        let since = version.parse::<u64>().ok().filter(|since| *since > 0);
        Ok(match since {
            Some(since) if !initial => {
                if since < self.floor {
                    return Err(Failure::of(FailureKind::Expired));
                }
                let since = self.log.iter().filter(|(at, _)| *at > since);
                since.map(|(_, frame)| frame.clone()).collect()
            }
            _ => {
                let things = self.serve().into_iter();
                things
                    .map(|thing| {
                        Frame::Added(Served {
                            thing,
                            spoil: Spoil::Nothing,
                        })
                    })
                    .collect()
            }
        })
    }
}

impl Answer {
    /// Adds the fault of this response to an object.
    pub fn spoil(&self, served: &mut Served) {
        served.spoil = self.spoil;
        if self.spoil == Spoil::NoVersion {
            served.thing.version.clear();
        }
    }

    pub fn spoil_frames(&self, frames: &mut [Frame]) {
        if let Some(served) = frames.get_mut(self.spoilt).and_then(Frame::served) {
            self.spoil(served);
        }
    }
}
