//! Stores of users, which take objects and no gaps.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::Shard;
use k8s_informer::store::{Change, ReflectorStore, StoreError};
use k8s_informer::{Deleted, DynamicObject, Object};
use parking_lot::Mutex;

use crate::hostile::objects::{object, with};
use crate::hostile::support::{DELIVERIES, event};
use crate::hostile::user_code::{reflect, reflect_with};
use crate::reflector::support::shown;

/// A store with the version of each object. It records its calls.
#[derive(Default)]
struct Versions {
    objects: Mutex<BTreeMap<String, String>>,
    calls: Mutex<Vec<String>>,
    /// Whether a partial list is one step.
    in_one_step: bool,
}

fn key(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

impl Versions {
    fn record(&self, call: String) {
        if !call.contains("last") {
            self.calls.lock().push(call);
        }
    }

    fn put(&self, call: &str, object: &DynamicObject) {
        let (key, version) = (key(object), object.resource_version().to_owned());
        self.record(format!("{call} {key}@{version}"));
        self.objects.lock().insert(key, version);
    }

    fn content(&self) -> Vec<String> {
        let objects = self.objects.lock();
        let content = objects
            .iter()
            .map(|(key, version)| format!("{key}@{version}"));
        content.filter(|id| !id.contains("last")).collect()
    }
}

impl ReflectorStore<DynamicObject> for Versions {
    fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.put("add", &object);
        Ok(())
    }

    fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.put("update", &object);
        Ok(())
    }

    fn delete(&self, gone: Deleted<DynamicObject>) -> Result<(), StoreError> {
        self.record(format!("delete {}", gone.key()));
        self.objects.lock().remove(&*gone.key());
        Ok(())
    }

    fn replace(
        &self,
        objects: Vec<Arc<DynamicObject>>,
        version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        self.record(format!("replace at {}", shown(version.as_ref())));
        self.objects.lock().clear();
        objects.iter().for_each(|object| self.put("  with", object));
        Ok(())
    }

    fn bookmark(&self, version: Option<ResourceVersion>) -> Result<(), StoreError> {
        self.record(format!("bookmark {}", shown(version.as_ref())));
        Ok(())
    }

    fn replace_partly(&self, changes: Vec<Change<DynamicObject>>) -> Result<(), StoreError> {
        if self.in_one_step {
            self.record(format!("{} changes", changes.len()));
        }
        for change in changes {
            match change {
                Change::Add(object) => self.add(object)?,
                Change::Update(object) => self.update(object)?,
                Change::Delete(gone) => self.delete(gone)?,
                Change::Bookmark(version) => self.bookmark(version)?,
            }
        }
        Ok(())
    }
}

/// The same store with the default of `replace_partly`.
struct ByDefault(Versions);

impl ReflectorStore<DynamicObject> for ByDefault {
    fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.0.add(object)
    }

    fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.0.update(object)
    }

    fn delete(&self, gone: Deleted<DynamicObject>) -> Result<(), StoreError> {
        self.0.delete(gone)
    }

    fn replace(
        &self,
        objects: Vec<Arc<DynamicObject>>,
        version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        self.0.replace(objects, version)
    }

    fn bookmark(&self, version: Option<ResourceVersion>) -> Result<(), StoreError> {
        self.0.bookmark(version)
    }
}

/// "ns/b" in a state that cannot be decoded.
fn unreadable() -> Vec<u8> {
    let deep = format!(r#","x":{}{}"#, "[".repeat(200), "]".repeat(200));
    with("b", "5", "", &deep)
}

fn objects() -> Vec<Vec<u8>> {
    vec![object("a", "1"), object("b", "2"), object("c", "3")]
}

#[test]
fn custom_store_syncs_with_an_unreadable_object() {
    for delivery in DELIVERIES {
        let first = vec![object("a", "1"), unreadable(), object("c", "3")];
        let store = Arc::new(ByDefault(Versions::default()));
        let script = delivery.script(&[("4", first)], &event("MODIFIED", &object("b", "7")));
        let status = reflect(&script, store.clone());
        assert_eq!((status.complete, status.unreadable), (false, 1));
        assert_eq!(store.0.content(), ["ns/a@1", "ns/b@7", "ns/c@3"]);
        let calls = store.0.calls.lock().clone();
        let expected = [
            "replace at 4",
            "  with ns/a@1",
            "  with ns/c@3",
            "update ns/b@7",
        ];
        assert_eq!(calls, expected, "{delivery:?}");
    }
}

#[test]
fn w15_custom_store_keeps_its_copy_of_an_unreadable_object() {
    for delivery in DELIVERIES {
        let second = vec![object("a", "1"), unreadable(), object("d", "6")];
        let states = [("4", objects()), ("6", second)];
        let by_default = Arc::new(ByDefault(Versions::default()));
        let status = reflect(&delivery.script(&states, b""), by_default.clone());
        assert_eq!((status.complete, status.unreadable), (false, 1));
        assert_eq!(by_default.0.content(), ["ns/a@1", "ns/b@2", "ns/d@6"]);

        let in_one_step = Arc::new(Versions {
            in_one_step: true,
            ..Versions::default()
        });
        reflect(&delivery.script(&states, b""), in_one_step.clone());
        assert_eq!(in_one_step.content(), by_default.0.content());
        let calls = in_one_step.calls.lock().clone();
        let expected = [
            "4 changes",
            "update ns/a@1",
            "add ns/d@6",
            "delete ns/c",
            "bookmark 6",
        ];
        assert_eq!(calls[4..], expected, "{delivery:?}");
        assert_eq!(by_default.0.calls.lock()[4..], expected[1..]);
    }
}

#[test]
fn custom_store_loses_nothing_to_an_object_without_a_key() {
    for delivery in DELIVERIES {
        let nameless = br#"{"metadata":{"name":7}}"#.to_vec();
        let states = [("4", objects()), ("6", vec![object("a", "5"), nameless])];
        let store = Arc::new(ByDefault(Versions::default()));
        let deleted = event("DELETED", &object("c", "7"));
        reflect(&delivery.script(&states, &deleted), store.clone());
        assert_eq!(store.0.content(), ["ns/a@5", "ns/b@2"], "{delivery:?}");
    }
}

#[test]
fn custom_store_loses_an_object_that_moves_to_another_shard() {
    let owned = |name: &str, version: &str, owner: &str| {
        let owner = format!(
            r#","ownerReferences":[{{"apiVersion":"v1","kind":"K","name":"o","uid":"{owner}","controller":true}}]"#
        );
        with(name, version, &owner, "")
    };
    let shard = Shard::new(0, 2).unwrap().by_controller();
    let uid = |is_own: bool| {
        let mut uids = (0..).map(|number| format!("owner-{number}"));
        uids.find(|uid| shard.contains(uid) == is_own).unwrap()
    };
    let (own, other) = (uid(true), uid(false));
    for delivery in DELIVERIES {
        let first = vec![owned("a", "1", &own), owned("b", "2", &own)];
        let moved = event("MODIFIED", &owned("b", "5", &other));
        let store = Arc::new(ByDefault(Versions::default()));
        let script = delivery.script(&[("4", first)], &moved);
        reflect_with(&script, store.clone(), |options| {
            options.shard = Some(shard.clone());
        });
        assert_eq!(store.0.content(), ["ns/a@1"], "{delivery:?}");
    }
}
