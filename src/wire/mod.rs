//! The Kubernetes list and watch protocol without IO: it builds queries from options, and turns
//! bytes into objects. It uses no threads, sockets or clocks.

mod decoder;
mod event;
mod fields;
mod frame;
mod limits;
mod list;
mod options;
mod pages;
mod shard;

pub(crate) use decoder::{
    BadFrame, Decode, DecodeOptions, Decoded, DecodedObject, Decoder, Unreadable, lacks_type_meta,
};
pub(crate) use event::{Event, EventKind, error_status, has_several};
pub use fields::{FieldPathError, FieldPaths};
pub(crate) use frame::{FrameSplitter, Piece};
pub use limits::DecodeLimits;
pub(crate) use list::{ListMeta, ListSplitter};
pub(crate) use options::WATCH_SLACK;
pub use options::{ListOptions, ResourceVersionMatch};
pub(crate) use pages::PageCheck;
pub use shard::{Shard, ShardError};

pub(crate) use crate::base::text::EscapedName;

/// The error of splitting a list or a watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SplitError {
    /// An object, an event or another part of the response is larger than allowed.
    TooLarge { what: &'static str, limit: usize },
    /// Arrays and objects are nested deeper than allowed.
    TooDeep { limit: usize },
    /// HTML or XML instead of JSON, for example from a proxy.
    Markup,
    /// The response to a LIST is JSON, but not a list.
    NoList { kind: String },
    /// The bytes are not the expected JSON.
    Malformed { what: &'static str, offset: u64 },
}

impl std::fmt::Display for SplitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { what, limit } => write!(f, "{what} is larger than {limit} bytes"),
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit} levels"),
            Self::Markup => {
                f.write_str("HTML or XML instead of JSON; is there a proxy in between?")
            }
            Self::NoList { kind } if kind.is_empty() => {
                f.write_str("not a list: the kind is missing")
            }
            Self::NoList { kind } => {
                let items = if kind.ends_with("List") {
                    ", but there are no items"
                } else {
                    ""
                };
                write!(f, "not a list: the kind is {}{items}", EscapedName(kind))
            }
            Self::Malformed { what, offset } => write!(f, "{what} is malformed at byte {offset}"),
        }
    }
}
