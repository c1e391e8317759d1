use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};
use serde_json::value::RawValue;

use crate::decode_error::explained;
use crate::json::{Cursor, Peek};
use crate::status::Status;

/// A watch event whose object has not been decoded.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) kind: EventKind,
    pub(crate) object: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl<'a> Event<'a> {
    /// Splits a frame into the type and the object of a change, without scanning it: in the frames
    /// of API servers, the object is the rest of the frame. Returns `None` for a frame in another
    /// form. Decoding the object fails if another field follows it.
    pub(crate) fn usual(frame: &'a [u8]) -> Option<Self> {
        const PREFIXES: [(&[u8], EventKind); 3] = [
            (br#"{"type":"MODIFIED","object":"#, EventKind::Modified),
            (br#"{"type":"ADDED","object":"#, EventKind::Added),
            (br#"{"type":"DELETED","object":"#, EventKind::Deleted),
        ];
        PREFIXES.into_iter().find_map(|(prefix, kind)| {
            let object = frame.strip_prefix(prefix)?.strip_suffix(b"}")?;
            Some(Self { kind, object })
        })
    }

    /// Reads the beginning of a frame: its type, and the beginning of its object. Returns `None` if
    /// the type does not come first, or if there is no object.
    pub(crate) fn beginning(frame: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(frame);
        let mut kind = None;
        if !cursor.enter(b'{') {
            return None;
        }
        while let Some(key) = cursor.key()? {
            match (&*key.unescaped()?, kind) {
                ("type", _) => kind = serde_json::from_slice(&frame[cursor.value()?]).ok(),
                ("object", Some(kind)) => {
                    let object = &frame[cursor.position()..];
                    return object.starts_with(b"{").then_some(Self { kind, object });
                }
                _ => {
                    cursor.value()?;
                }
            }
        }
        None
    }

    /// Parses a frame in any form. The object is valid JSON.
    pub(crate) fn parse(frame: &'a [u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Frame<'a> {
            r#type: EventKind,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        // Reject an array here, because serde accepts an array for a struct, field by field.
        if frame.trim_ascii_start().first() == Some(&b'[') {
            return Err(serde_json::Error::custom(
                "invalid type: array, expected an event",
            ));
        }
        let frame: Frame<'_> =
            serde_json::from_slice(frame).map_err(|error| explained::<Frame<'_>>(frame, error))?;
        Ok(Self {
            kind: frame.r#type,
            object: frame.object.get().as_bytes(),
        })
    }
}

/// Whether a line that is not an event begins with a complete JSON value and continues after it.
/// Then the line contains several events.
pub(crate) fn has_several(line: &[u8]) -> bool {
    if !line.starts_with(b"{") {
        return false;
    }
    let mut values = serde_json::Deserializer::from_slice(line).into_iter::<IgnoredAny>();
    values.next().is_some_and(|first| first.is_ok()) && values.byte_offset() < line.len()
}

/// Returns the `Status` of an ERROR event. If the object is not a `Status`, the message of the
/// returned `Status` reports that.
pub(crate) fn error_status(object: &[u8]) -> Status {
    match Peek::whole(object) {
        Ok(peek) if peek.kind == "Status" => serde_json::from_slice(object).unwrap_or_default(),
        _ => {
            let message = "the watch reported an error whose object is not a Status".to_owned();
            Status {
                message,
                ..Status::default()
            }
        }
    }
}
