//! JSON pointers in error messages.

use serde::de::Error as _;

/// Returns the error with a prefix: the pointer to the value that could not be decoded. Syntax
/// errors are returned unchanged.
pub(super) fn at_pointer(pointer: &str, error: serde_json::Error) -> serde_json::Error {
    if error.is_data() && !pointer.is_empty() {
        // `custom` parses the position at the end of the text, so the new error has the same
        // position.
        serde_json::Error::custom(format_args!("{pointer}: {error}"))
    } else {
        error
    }
}
