//! Explains why JSON could not be decoded: which field is wrong and what was expected there, but never what is there.
//! A value may be a secret, and so may the key of a map.
//!
//! serde_json reports a position, and often the value. After such a failure, [`explain`] decodes the same bytes a second
//! time, through a wrapper of serde_json's deserializer that tracks the path. Only the names that a type declares,
//! of its fields and variants, are shown in it. The wrapper has an error type of its own: it distinguishes a custom text
//! from serde's messages, whatever the text looks like.

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
use crate::text::Prose;

/// The name of a newtype that marks the errors of [`DynamicObject`](crate::object::DynamicObject): they are made here, without values.
pub(crate) const DYNAMIC_OBJECT: &str = "k8s_informer::object::DynamicObject";

/// Why JSON could not be decoded.
pub(crate) struct DecodeError {
    path: String,
    fault: Fault,
    /// Of the failure, zero if it is not known.
    line: usize,
    column: usize,
}

impl DecodeError {
    /// The message, with the text of a custom deserializer. It may contain values.
    pub(crate) fn with_custom_text(&self) -> String {
        self.message(&self.fault.text)
    }

    fn message(&self, what: &str) -> String {
        let what = Prose(what);
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

/// Without the text of a custom deserializer.
impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(match self.fault.is_custom {
            true => "rejected by a custom deserializer (message hidden)",
            false => &self.fault.text,
        }))
    }
}

/// How many levels any thread has room for: the wrapper takes more stack for a level than serde_json alone.
const LEVELS: usize = stack::SHALLOW / 2;

/// Decodes JSON that is not UTF-8, and fails unless that is in a value which `T` ignores.
///
/// It is rare. This is the code that explains errors, so that each type is compiled once less.
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
    stack::with_room(json, LEVELS, decode).unwrap_or_else(|error| Err(stack::no_thread(&error)))
}

/// Returns what is wrong with JSON that could not be decoded as a `T`.
pub(crate) fn explain<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    error: &serde_json::Error,
) -> DecodeError {
    let (line, column) = (error.line(), error.column());
    if !error.is_data() {
        // What is no JSON has no fields.
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
    let (path, fault) = match catch(|| stack::with_room(json, LEVELS, decode)) {
        Ok(Ok(Some(found))) => found,
        Ok(Err(error)) => (
            String::new(),
            Fault::of_serde(stack::no_thread_text(&error)),
        ),
        // It does not fail each time, or not in the same way.
        Ok(Ok(None)) | Err(_) => (String::new(), Fault::unclear()),
    };
    DecodeError {
        path,
        fault,
        line,
        column,
    }
}

/// The same error, with the path and without values. An error of syntax stays as it is.
pub(crate) fn explained<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    error: serde_json::Error,
) -> serde_json::Error {
    // serde_json takes the position out of the text.
    if error.is_data() {
        Error::custom(explain::<T>(json, &error))
    } else {
        error
    }
}

/// What serde_json says of bytes that are none of a user's types, without values.
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
