//! Finds values in JSON bytes without building them.
//!
//! | item | finds | used by |
//! |---|---|---|
//! | [`Scanner`] | the end of a value that arrives in chunks | the list and frame splitters |
//! | [`Cursor`] | the keys and values of a complete value | the rows below, and `DynamicObject` |
//! | [`find`] | the value at a JSON pointer | `DynamicObject::read` |
//! | [`first_member`] | a member of an object whose end may be missing | the decoder |
//! | [`cut_fields`] | fields to skip, and removes them | `FieldPaths` |
//! | [`Peek`] | the identity of an object | the decoder |
//! | [`nesting`] | the nesting depth of a value | `DecodeLimits`, decoding on a large stack |
//! | [`from_str`] | the capacity of vectors while serde_json decodes | the decoder |
//! | [`null_is_default`] | `null` in the place of a value | types that are read from a server |
//!
//! This module does not validate JSON. serde_json validates each object, before or after it is
//! searched here. A [`Cursor`] returns `None` for bytes that it cannot parse. Its users then leave
//! the bytes unchanged, decode them with serde_json, or use the values found so far. Malformed
//! input never causes a panic or unbounded recursion, and never allocates more than a multiple of
//! its size.

mod block;
mod cursor;
mod exact_capacity;
mod field_cutter;
mod null;
mod peek;
mod pointer;
mod scanner;
pub(crate) mod stack;

pub(crate) use cursor::{Cursor, nesting};
pub(crate) use exact_capacity::from_str;
pub(crate) use field_cutter::cut_fields;
pub(crate) use null::{null_is_default, null_items_are_default};
pub(crate) use peek::Peek;
pub(crate) use pointer::{Path, Step, find, first_member};
pub(crate) use scanner::{Scanner, is_one_value};

/// The greatest nesting that serde_json decodes.
pub(crate) const MAX_NESTING: usize = 127;
