//! A server that follows a script: a small world of objects that change, and what goes wrong with each of
//! its answers.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::Error;
use k8s_informer::error::Status;
use serde_json::json;

use super::item::few;

/// The objects there can be: namespace and name.
const NAMES: [(&str, &str); 4] = [("", "a"), ("", "b"), ("ns", "a"), ("ns", "c")];

/// What the reflector is told to do, and how.
#[derive(Arbitrary, Clone, Debug)]
pub struct Settings {
    pub queue: QueueKind,
    /// None, or so many objects.
    #[arbitrary(with = |bytes: &mut Unstructured| bytes.int_in_range(0..=3))]
    pub page_size: u32,
    pub supports_watch_list: bool,
    pub watch_list: bool,
    pub reuse: bool,
    pub skip: bool,
    pub expected_kind: bool,
    pub shallow: bool,
    pub small: bool,
    pub internal_error_retry: bool,
    pub read_timeouts: bool,
    #[arbitrary(with = few)]
    pub pieces: Vec<u8>,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum QueueKind {
    Indexer,
    DeltaFifo,
    InOrder,
    Atomic,
}

impl Settings {
    /// How large an object may be, and how deep.
    pub const BYTES: usize = 260;
    pub const NESTING: usize = 6;
}

/// One answer of the script.
#[derive(Arbitrary, Clone, Debug)]
pub struct Answer {
    /// What has happened since the one before.
    #[arbitrary(with = few)]
    pub changes: Vec<Change>,
    /// Instead of an answer.
    #[arbitrary(with = |bytes: &mut Unstructured| sometimes(bytes, 3))]
    pub failure: Option<Failure>,
    /// On a watch, after all that has changed since its version.
    #[arbitrary(with = few)]
    pub live: Vec<Live>,
    /// What is wrong with one of its objects.
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
    /// What is older is forgotten.
    Compact,
    /// A backup from so many changes ago.
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
            Self::Text => "garbage",
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
    /// It is in a field that may be skipped.
    WrongTypeAside,
}

/// How a list is written, and a watch-list ended.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Usual,
    VersionLast,
    NoVersion,
    /// Of a watch-list: the mark does not come.
    NoMark,
    /// It comes after what happens meanwhile.
    MarkLast,
    /// What is too old is told by an event.
    ErrorEvent,
    /// More is to come than was asked for at once.
    Paged,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum End {
    Clean,
    Reset,
    /// So many bytes too early.
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
    /// No answer at all; never in a stream.
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

    /// In a stream there is a connection, and the server has words for everything.
    pub fn in_stream(self) -> Self {
        match self.kind {
            FailureKind::Connection | FailureKind::Other => Self {
                kind: FailureKind::Forbidden,
                ..self
            },
            _ => self,
        }
    }

    /// Whether it may be about this version.
    pub fn is_unacceptable_at(self, version: Option<&str>) -> bool {
        let is_bad = matches!(self.kind, FailureKind::BadRequest | FailureKind::Invalid);
        is_bad && !matches!(version, None | Some("" | "0"))
    }

    /// When no answer came there is nobody to say so.
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

/// An object as it was at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    pub key: String,
    pub namespace: &'static str,
    pub name: &'static str,
    pub uid: String,
    pub version: String,
    pub value: u32,
}

/// What an answer has of an object.
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

/// The bytes of an answer, and where each of its parts ends.
pub struct Written {
    pub bytes: Vec<u8>,
    /// Where each begins and ends.
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

    /// How many bytes come.
    pub fn end(&self, end: End) -> usize {
        match end {
            End::Cut(bytes) => self.bytes.len() - usize::from(bytes) % (self.bytes.len() + 1),
            _ => self.bytes.len(),
        }
    }
}

/// What the server has.
pub struct World {
    things: BTreeMap<usize, Thing>,
    pub version: u64,
    floor: u64,
    log: Vec<(u64, Frame)>,
    past: BTreeMap<u64, BTreeMap<usize, Thing>>,
    /// Of lists that were not handed out whole: what is left.
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

    /// The event that tells it, if there is one.
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

    /// A page, its version, and the token of the next.
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

    /// What a watch begins with.
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
    /// Spoils one of the objects.
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
