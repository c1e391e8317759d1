//! JSON pointers in error messages.

use serde::de::Error as _;

/// The same error, with the pointer to the value that could not be decoded. An error of syntax stays as it is.
pub(super) fn at_pointer(pointer: &str, error: serde_json::Error) -> serde_json::Error {
    if error.is_data() && !pointer.is_empty() {
        // serde_json takes the position out of the text.
        serde_json::Error::custom(format_args!("{pointer}: {error}"))
    } else {
        error
    }
}
