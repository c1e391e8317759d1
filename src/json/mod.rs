//! JSON as bytes: finding values without building them.
//!
//! | item | finds | used by |
//! |---|---|---|
//! | [`Scanner`] | the end of a value in chunks that arrive | the list and frame splitters |
//! | [`Cursor`] | keys and values of a complete value | the rows below, and `DynamicObject` |
//! | [`find`] | the value at a JSON pointer | `DynamicObject::read` |
//! | [`cut_fields`] | fields to skip, and leaves them out | `FieldPaths` |
//! | [`Peek`] | the identity of an object | the decoder |
//! | [`nesting`] | how deep a value is nested | `DecodeLimits`, decoding on a large stack |
//! | [`from_str`] | the capacity of vectors, while serde_json decodes | the decoder |
//!
//! Nothing here decides whether JSON is valid: that is left to serde_json, which validates an object before or after
//! it is walked. A [`Cursor`] returns `None` for bytes that it does not understand. Its users then leave the bytes
//! as they are, decode them with serde_json, or use what they have found so far. Malformed input never panics,
//! recurses, or allocates more than a multiple of its size.

mod block;
mod cursor;
mod exact_capacity;
mod field_cutter;
mod peek;
mod pointer;
mod scanner;

pub(crate) use cursor::{Cursor, nesting};
pub(crate) use exact_capacity::from_str;
pub(crate) use field_cutter::cut_fields;
pub(crate) use peek::Peek;
pub(crate) use pointer::{Path, Step, find};
pub(crate) use scanner::{Scanner, is_one_value};

/// The nesting up to which serde_json decodes.
pub(crate) const MAX_NESTING: usize = 127;
