//! Interleaving tests of the stores.

mod expiration_cache;
mod thread_safe_store;

use std::sync::Arc;

use crate::object::{Accessor, Key};

/// An object. Different versions of one key are different objects.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    key: usize,
    version: usize,
}

fn key(of: usize) -> Key {
    of.to_string().into()
}

fn item(key: usize, version: usize) -> Arc<Item> {
    Arc::new(Item { key, version })
}

fn accessor() -> Accessor<Item> {
    Accessor::new(|item: &Item| Ok(key(item.key)))
}
