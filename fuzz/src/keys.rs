//! Splits keys, builds keys, and reads keys from objects with functions that fail and panic (K1 to
//! K3, H3).

use arbitrary::{Arbitrary, Unstructured};
use k8s_informer::object::{ObjectName, meta_namespace_key, split_meta_namespace_key};
use k8s_informer::{Deleted, Object};

use super::item::{Item, accessor, tombstone};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    key: &'a str,
    named: Named,
    item: Item,
}

/// An object that has only names.
#[derive(Arbitrary, Debug, PartialEq)]
struct Named {
    namespace: String,
    name: String,
}

impl Object for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn uid(&self) -> &str {
        ""
    }

    fn resource_version(&self) -> &str {
        ""
    }

    fn label(&self, _: &str) -> Option<&str> {
        None
    }
}

pub fn run(input: &[u8]) {
    // First use the raw bytes as a key, then the values read from the same bytes.
    text(&String::from_utf8_lossy(input));
    let Ok(input) = Unstructured::new(input).arbitrary::<Input>() else {
        return;
    };
    text(input.key);
    object(input.named);
    function(input.item, input.key);
}

fn text(key: &str) {
    let parts: Vec<&str> = key.split('/').collect();
    let expected = match parts.as_slice() {
        [name] => Some(("", *name)),
        [namespace, name] => Some((*namespace, *name)),
        _ => None,
    };
    let split = split_meta_namespace_key(key);
    assert_eq!(split.as_ref().ok(), expected.as_ref());
    let parsed = key.parse::<ObjectName>();
    let named = expected.map(|(namespace, name)| ObjectName::new(namespace, name));
    assert_eq!(parsed.as_ref().ok(), named.as_ref());
    if let Some(name) = named {
        // An empty namespace means no namespace, so the slash is dropped.
        assert_eq!(name.to_string(), key.strip_prefix('/').unwrap_or(key));
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    let tombstone = Deleted::<Named>::FinalStateUnknown {
        key: key.into(),
        last_known: None,
    };
    let (namespace, name) = match parts.as_slice() {
        [name] => ("", (*name).to_owned()),
        [namespace, rest @ ..] => (*namespace, rest.join("/")),
        [] => ("", String::new()),
    };
    assert_eq!(
        (&*tombstone.key(), tombstone.namespace(), tombstone.name()),
        (key, namespace, &*name)
    );
}

fn object(object: Named) {
    let parts = [&*object.namespace, &*object.name];
    let expected = if object.namespace.is_empty() {
        object.name.clone()
    } else {
        parts.join("/")
    };
    let key = meta_namespace_key(&object);
    assert_eq!(
        (&*key, &*ObjectName::of(&object).to_string()),
        (&*expected, &*expected)
    );
    if parts.iter().all(|part| !part.contains('/')) {
        assert_eq!(split_meta_namespace_key(&key), Ok((parts[0], parts[1])));
        assert_eq!(key.parse(), Ok(ObjectName::of(&object)));
    }
    let gone = Deleted::Final(std::sync::Arc::new(object));
    assert_eq!(gone.key(), key);
}

fn function(item: Item, key: &str) {
    let accessor = accessor();
    let held = item.held();
    assert_eq!(accessor.key(&held).ok().as_deref(), item.key().ok());
    assert_eq!(
        accessor.key_of_deleted(&item.gone()).ok().as_deref(),
        item.key().ok()
    );
    assert_eq!(
        accessor
            .key_of_deleted(&tombstone(key, Some(item)))
            .as_deref(),
        Ok(key)
    );
    assert_eq!(
        accessor.resource_version(&held),
        item.version().unwrap_or(None)
    );
    if let Err(error) = accessor.key(&held) {
        assert!(["user failure", "the key function panicked: boom"].contains(&&*error.to_string()));
    }
}
