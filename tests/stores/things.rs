//! Test objects of the smaller stores, and their key function.

use std::sync::Arc;

use k8s_informer::object::{Accessor, KeyError, ResourceVersion};

pub(crate) type Thing = (&'static str, u32);

pub(crate) fn thing(key: &'static str, value: u32) -> Arc<Thing> {
    Arc::new((key, value))
}

/// Returns the resource version with this text.
pub(crate) fn version(text: &str) -> ResourceVersion {
    ResourceVersion::new(text).unwrap()
}

pub(crate) fn accessor() -> Accessor<Thing> {
    Accessor::new(|thing: &Thing| match thing.0 {
        "unkeyable" => Err(KeyError::new("no key")),
        "panic" => panic!("key function"),
        key => Ok(key.into()),
    })
}
