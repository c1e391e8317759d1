//! Explains why JSON could not be decoded. The explanation names the field and what was expected
//! there, but never the value that was found. Values and map keys can be secrets.
//!
//! serde_json reports a position, and often the value. After a failure, [`explain`] decodes the
//! same bytes a second time, through a wrapper of serde_json's deserializer that tracks the path.
//! The path shows only names that a type declares, for its fields and variants. The wrapper has its
//! own error type. It distinguishes custom messages from serde's messages, whatever their text is.

mod fault;
#[cfg(test)]
mod tests;
mod tracked;

use std::fmt::{self, Display};

use serde::de::{Deserialize, Error};

use self::fault::{Fault, without_position};
use self::tracked::{Track, Tracked};
use crate::panic::catch;
use crate::stack;
use crate::text::EscapedText;

/// The name of a newtype that marks the errors of [`DynamicObject`](crate::object::DynamicObject).
/// Their messages come from this crate and contain no values.
pub(crate) const DYNAMIC_OBJECT: &str = "k8s_informer::object::DynamicObject";

/// The reason why JSON could not be decoded.
pub(crate) struct DecodeError {
    path: String,
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
        let path = if self.path.is_empty() {
            ""
        } else {
            &format!("{}: ", self.path)
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

/// The nesting depth that the wrapper can decode safely on any thread. The wrapper takes more stack
/// per level than serde_json alone.
const SAFE_LEVELS: usize = stack::SAFE_NESTING / 2;

/// Decodes JSON that contains invalid UTF-8. This succeeds only if `T` ignores the invalid values.
///
/// Invalid UTF-8 is rare, so this function uses the slower wrapper, which is compiled for
/// [`explain`] anyway. This avoids compiling another deserializer for each type.
pub(crate) fn from_slice<'de, T: Deserialize<'de> + Send>(
    json: &'de [u8],
) -> Result<T, serde_json::Error> {
    let decode = || {
        let track = Track::default();
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let value = T::deserialize(Tracked::new(&mut deserializer, &track))
            .map_err(|fault| Error::custom(fault.text))?;
        deserializer.end()?;
        Ok(value)
    };
    stack::with_stack_for(json, SAFE_LEVELS, decode)
        .unwrap_or_else(|error| Err(stack::spawn_error(&error)))
}

/// Returns the reason why JSON could not be decoded as a `T`.
pub(crate) fn explain<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    error: &serde_json::Error,
) -> DecodeError {
    let (line, column) = (error.line(), error.column());
    if !error.is_data() {
        // Invalid JSON has no path.
        let text = without_position(&error.to_string()).to_owned();
        return DecodeError {
            path: String::new(),
            fault: Fault::of_serde(text),
            line,
            column,
        };
    }
    let decode = || {
        let track = Track::default();
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let fault = T::deserialize(Tracked::new(&mut deserializer, &track)).err()?;
        Some((track.path(), fault))
    };
    let (path, fault) = match catch(|| stack::with_stack_for(json, SAFE_LEVELS, decode)) {
        Ok(Ok(Some(found))) => found,
        Ok(Err(error)) => (
            String::new(),
            Fault::of_serde(stack::spawn_error_message(&error)),
        ),
        // The second decoding succeeded or panicked, so the failure is not reproducible.
        Ok(Ok(None)) | Err(_) => (String::new(), Fault::unspecific()),
    };
    DecodeError {
        path,
        fault,
        line,
        column,
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

/// Describes an error of serde_json without showing values, for JSON that is not decoded into a
/// user's type.
pub(crate) fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let fault = if error.is_data() {
        Fault::of_serde_json(&text)
    } else {
        return text;
    };
    DecodeError {
        path: String::new(),
        fault,
        line: error.line(),
        column: error.column(),
    }
    .to_string()
}
