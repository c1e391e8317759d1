//! How values of the status page are written as JSON.

use std::fmt::Display;
use std::time::Duration;

use serde::Serializer;

use k8s_informer::__private::EscapedText;

/// Returns a message as one line of limited length.
pub(crate) fn short(message: &impl ToString) -> String {
    EscapedText(&message.to_string()).to_string()
}

/// Writes a message as [`short`] returns it.
pub(crate) fn one_line<S: Serializer>(
    message: &impl ToString,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&short(message))
}

/// Writes the text of a value.
pub(crate) fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes a duration as a number of seconds, without the rest.
pub(crate) fn whole_seconds<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}
