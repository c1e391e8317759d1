//! Explains why JSON could not be decoded. The explanation names the field and what was expected
//! there, but never the value that was found. Values and map keys can be secrets.
//!
//! serde_json reports a position, and often the value. After a failure, [`explain`] decodes the
//! same bytes a second time, through a deserializer whose errors have a path. The path shows only
//! names that a type declares, for its fields and variants. This deserializer has its own error
//! type. It distinguishes custom messages from serde's messages, whatever their text is.

mod fault;
mod node;
#[cfg(test)]
mod tests;

use std::fmt::{self, Display};

use serde::de::{Deserialize, Error};

use self::fault::{Fault, without_position};
use self::node::Node;
use crate::base::panic::catch;
use crate::base::text::EscapedText;
use crate::json::stack;

/// The name of a newtype that marks the errors of [`DynamicObject`](crate::object::DynamicObject).
/// Their messages come from this crate and contain no values.
pub(crate) const DYNAMIC_OBJECT: &str = "k8s_informer::object::DynamicObject";

/// The name under which serde_json passes the text of a value, as for its `RawValue`. Other formats
/// ignore it, and their objects are decoded through a tree. If serde_json renamed it, its objects
/// would also be decoded through a tree, and a test would fail.
pub(crate) const TEXT: &str = "$serde_json::private::RawValue";

/// The reason why JSON could not be decoded.
pub(crate) struct DecodeError {
    fault: Fault,
    /// The line of the failure, or 0 if it is unknown.
    line: usize,
    column: usize,
}

impl DecodeError {
    /// Returns the message, including the text of a custom deserializer, which may contain values.
    pub(crate) fn with_custom_text(&self) -> String {
        self.message(&self.fault.text)
    }

    fn message(&self, what: &str) -> String {
        let what = EscapedText(what);
        let path = match self.fault.path.as_str() {
            "" => "",
            path => &format!("{path}: "),
        };
        match self.line {
            0 => format!("{path}{what}"),
            line => format!("{path}{what} at line {line} column {}", self.column),
        }
    }
}

/// Shows the message, but hides the text of a custom deserializer.
impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(match self.fault.is_custom {
            true => "rejected by a custom deserializer (message hidden)",
            false => &self.fault.text,
        }))
    }
}

/// Returns the reason why JSON could not be decoded as a `T`.
pub(crate) fn explain<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    error: &serde_json::Error,
) -> DecodeError {
    let decode = || T::deserialize(Node::new(json)).err();
    let fault = if !error.is_data() {
        // Invalid JSON has no path.
        Fault::of_serde(without_position(&error.to_string()).to_owned())
    } else {
        match catch(|| stack::with_stack_for(json, stack::SAFE_NESTING / 2, decode)) {
            Ok(Ok(Some(fault))) => fault,
            Ok(Err(error)) => Fault::of_serde(stack::spawn_error(&error).to_string()),
            // The second decoding succeeded or panicked, so the failure is not reproducible.
            Ok(Ok(None)) | Err(_) => Fault::unspecific(),
        }
    };
    DecodeError {
        fault,
        line: error.line(),
        column: error.column(),
    }
}

/// Returns the error with the path of the failure and without values. A syntax error is returned
/// unchanged.
pub(crate) fn explained<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    error: serde_json::Error,
) -> serde_json::Error {
    // The new error keeps the line and column: `Error::custom` parses them from the end of the
    // message.
    if error.is_data() {
        Error::custom(explain::<T>(json, &error))
    } else {
        error
    }
}
