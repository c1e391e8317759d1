use std::fmt::{self, Display};

use serde::de::{Error, Expected, Unexpected};

/// The error of a value.
#[derive(Debug)]
pub(super) struct Fault {
    /// The path of the value. Empty if it is the whole value, or unknown.
    pub(super) path: String,
    pub(super) text: String,
    /// Whether the text comes from a custom deserializer and may contain values.
    pub(super) is_custom: bool,
}

impl Fault {
    pub(super) fn of_serde(text: String) -> Self {
        Self {
            path: String::new(),
            text,
            is_custom: false,
        }
    }

    /// Prepends a step to the path.
    pub(super) fn below(mut self, step: &str) -> Self {
        let dot = match self.path.is_empty() || self.path.starts_with('[') {
            true => "",
            false => ".",
        };
        self.path = format!("{step}{dot}{}", self.path);
        self
    }

    pub(super) fn unspecific() -> Self {
        Self::of_serde("not of the expected form".to_owned())
    }

    /// Keeps the kind of the value from serde's description `found`, and drops the value.
    fn unexpected(what: &str, found: &str, expected: &dyn Display) -> Self {
        const KINDS: [&str; 13] = [
            "boolean",
            "integer",
            "floating point",
            "character",
            "string",
            "byte array",
            "null",
            "unit value",
            "Option value",
            "newtype struct",
            "sequence",
            "map",
            "enum",
        ];
        let kind = KINDS.into_iter().find(|kind| found.starts_with(kind));
        let kind = kind.map(|kind| format!(": {kind}")).unwrap_or_default();
        Self::of_serde(format!("{what}{kind}, expected {expected}"))
    }

    fn unknown(what: &str, known: &[&str]) -> Self {
        match known {
            [] => Self::of_serde(format!("unknown {what}, there are no {what}s")),
            known => Self::of_serde(format!("unknown {what}, expected `{}`", known.join("`, `"))),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        let text = message.to_string();
        // A derived deserializer of an untagged enum reports this error as a custom message,
        // because serde has no other method for it. The message contains the name of the type and
        // no value.
        let name = text.strip_prefix("data did not match any variant of untagged enum ");
        let is_derived = name.is_some_and(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        Self {
            is_custom: !is_derived,
            ..Self::of_serde(text)
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unexpected("invalid type", &found.to_string(), &expected)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unexpected("invalid value", &found.to_string(), &expected)
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::unexpected("invalid length", "", &expected)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown("variant", expected)
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown("field", expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of_serde(format!("missing field `{field}`"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::of_serde(format!("duplicate field `{field}`"))
    }
}

/// Removes the position that serde_json appends: ` at line 1 column 9`.
pub(super) fn without_position(text: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.rsplit_once(" at line ") {
        Some((before, position)) if position.split(" column ").all(is_number) => before,
        _ => text,
    }
}
