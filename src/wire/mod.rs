//! What goes over the wire, without a wire: options in, bytes in, objects out. No thread, socket or clock.

mod event;
mod exact;
mod fields;
mod frame;
mod limits;
mod list;
mod options;
mod pages;
mod peek;
mod room;
mod shard;

pub(crate) use event::{Event, EventKind, error_status, has_several};
pub(crate) use exact::from_slice;
pub use fields::{FieldPathError, FieldPaths};
pub(crate) use frame::{FrameSplitter, Taken};
pub use limits::DecodeLimits;
pub(crate) use list::{ListMeta, ListSplitter};
#[cfg(feature = "client")]
pub(crate) use options::UNRESERVED;
pub(crate) use options::percent_encoded;
pub use options::{ListOptions, ResourceVersionMatch};
pub(crate) use pages::PageCheck;
pub(crate) use peek::Peek;
pub(crate) use room::Room;
#[cfg(feature = "testing")]
pub(crate) use shard::fnv1a;
pub use shard::{Shard, ShardError};

pub(crate) use crate::text::Shown;

/// Why bytes could not be taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SplitError {
    /// One object, or one event, is larger than allowed.
    TooLarge { what: &'static str, limit: usize },
    /// Arrays and objects are nested deeper than allowed.
    TooDeep { limit: usize },
    /// A page, of a proxy maybe, where JSON was asked for.
    Markup,
    /// The answer to a LIST is JSON, but no list.
    NoList { kind: String },
    /// It is not the JSON it has to be.
    Malformed { what: &'static str, offset: u64 },
}

impl std::fmt::Display for SplitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { what, limit } => write!(f, "{what} of more than {limit} bytes"),
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit} levels"),
            Self::Markup => f.write_str(
                "HTML or XML instead of JSON: is there a proxy in between that wants something?",
            ),
            Self::NoList { kind } if kind.is_empty() => f.write_str("no list: it has no kind"),
            Self::NoList { kind } => write!(f, "no list but a {}", Shown(kind)),
            Self::Malformed { what, offset } => write!(f, "{what} is malformed at byte {offset}"),
        }
    }
}

/// What serde_json says of bytes that it could not decode, without anything of their content: a value may be
/// a secret.
pub(crate) fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // "missing field `token` at line 1 column 2": a name of the type's. A type that says more says a value.
    let field = text
        .strip_prefix("missing field `")
        .or_else(|| text.strip_prefix("duplicate field `"));
    let says_no_value = field
        .and_then(|field| field.split_once('`'))
        .is_some_and(|(_, rest)| rest.starts_with(" at line "));
    if !error.is_data() || says_no_value {
        return text;
    }
    // "invalid type: string \"hunter2\", expected u32 at line 1 column 9". Anything else is in a type's own
    // words.
    let kind = ["invalid type", "invalid value", "invalid length"]
        .into_iter()
        .find(|kind| text.starts_with(kind));
    match (kind, text.rfind(", expected")) {
        (Some(kind), Some(expected)) => format!("{kind}{}", &text[expected..]),
        _ => format!(
            "not of the expected form at line {} column {}",
            error.line(),
            error.column()
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn an_error_tells_where_and_what_was_expected_but_not_what_was_there() {
        #[derive(Debug, PartialEq, Deserialize)]
        enum Size {
            Small,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Secret {
            token: u32,
            size: Option<Size>,
            #[serde(default, deserialize_with = "picky")]
            word: (),
        }
        fn picky<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
            let word = String::deserialize(deserializer)?;
            Err(serde::de::Error::custom(format!("{word} is a bad word")))
        }
        let small: Secret = serde_json::from_str(r#"{"token": 1, "size": "Small"}"#).unwrap();
        assert_eq!(
            small,
            Secret {
                token: 1,
                size: Some(Size::Small),
                word: ()
            }
        );
        let error = |json: &str| describe(&serde_json::from_str::<Secret>(json).unwrap_err());
        assert_eq!(
            error(r#"{"token": "hunter2, expected"}"#),
            "invalid type, expected u32 at line 1 column 29"
        );
        assert_eq!(
            error(r#"{"token": -77}"#),
            "invalid value, expected u32 at line 1 column 13"
        );
        assert_eq!(
            error(r#"{"token": 1, "size": "hunter2"}"#),
            "not of the expected form at line 1 column 30"
        );
        assert_eq!(error("{}"), "missing field `token` at line 1 column 2");
        assert_eq!(error("{"), "EOF while parsing an object at line 1 column 1");
        assert_eq!(
            error(r#"{"word": "hunter2"}"#),
            "not of the expected form at line 1 column 19"
        );
        assert_eq!(
            error(r#"{"word": "missing field `a` hunter2"}"#),
            "not of the expected form at line 1 column 37"
        );
    }
}
