//! The garbage collector of kube-controller-manager: it deletes objects without owners, and carries
//! out foreground deletions and orphaning.
//!
//! In a real cluster, it follows the writes. This server runs it as part of the write, before any
//! other request sees the store.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::store::{Change, NewState, Store};
use super::write::{Author, Writer};
use crate::apiserver::model::delete_options::Propagation;
use crate::apiserver::model::garbage::{
    FOREGROUND, ORPHAN, is_deleted_with, is_ignored, owner_references, uid_of,
};
use crate::apiserver::model::object::{Content, Key, Object, finalizers, meta, meta_str, set_list};
use crate::apiserver::model::object_rules::is_held;
use crate::apiserver::model::resources::{ApiResource, Resources};

/// Processes the changes after version `since` and their consequences, until nothing is left to do.
pub(super) fn collect(store: &mut Store, resources: &Resources, since: u64) {
    let mut collector = Collector {
        store,
        resources,
        gone: BTreeSet::new(),
    };
    let mut seen = since;
    // Each step deletes something or removes a reference or a finalizer, so this ends.
    while seen < collector.store.version() {
        let keys = collector.affected_after(seen);
        seen = collector.store.version();
        for key in keys {
            collector.process(&key);
        }
    }
}

struct Collector<'a> {
    store: &'a mut Store,
    resources: &'a Resources,
    /// The namespaces and uids of the objects that were removed, whose resource may not be served
    /// anymore.
    gone: BTreeSet<(String, String)>,
}

/// The owner that a reference names.
enum Owner {
    Found(Arc<Object>),
    Absent,
    /// The kind is not served, or it is namespaced and the dependent is not.
    Unknown,
}

impl Collector<'_> {
    /// Returns the objects that the changes after `version` may affect: the changed objects, their
    /// dependents and their former owners.
    fn affected_after(&mut self, version: u64) -> BTreeSet<Key> {
        let Some(changes) = self.store.changes_after(version, usize::MAX) else {
            // The history is too short.
            return self.store.objects("").map(|(key, _)| key.clone()).collect();
        };
        let mut keys = BTreeSet::new();
        for change in &changes {
            let Change { key, old, new, .. } = &**change;
            let (content, kept) = match new {
                NewState::Stored(object) => {
                    keys.insert(key.clone());
                    let content = object.content();
                    (content, owner_references(content).map(blocked).collect())
                }
                NewState::Deleted(object) => {
                    let content = object.content();
                    let place = [meta_str(content, "namespace"), meta_str(content, "uid")];
                    self.gone.insert(place.map(str::to_owned).into());
                    (content, HashSet::new())
                }
            };
            let is_awaited = |finalizer| is_deleted_with(finalizer, content);
            if matches!(new, NewState::Deleted(_)) || is_awaited(ORPHAN) || is_awaited(FOREGROUND) {
                keys.extend(self.store.dependents(meta_str(content, "uid")).cloned());
            }
            let old = old.iter().flat_map(|old| owner_references(old.content()));
            let former = old.filter(|one| !kept.contains(&blocked(one)));
            keys.extend(former.filter_map(|one| self.owner_key(one, namespace_of(content))));
        }
        keys
    }

    fn process(&mut self, key: &Key) {
        let Some(object) = self.store.get(key).cloned() else {
            return;
        };
        let content = object.content();
        let resource = self.resources.of_key(key);
        let Some(resource) = resource.filter(|resource| !is_ignored(resource)) else {
            return;
        };
        if is_deleted_with(ORPHAN, content) {
            self.orphan_dependents(key, content);
        } else if is_deleted_with(FOREGROUND, content) {
            let is_blocking = |(_, dependent): (Key, Arc<Object>)| {
                let blocked_by_it = (meta_str(content, "uid"), true);
                owner_references(dependent.content()).any(|one| blocked(one) == blocked_by_it)
            };
            if !self.dependents(content).any(is_blocking) {
                self.remove_finalizer(key, content, FOREGROUND);
            }
        } else if meta(content, "deletionTimestamp").is_none() {
            self.check_owners(key, &resource, &object);
        }
    }

    /// Deletes an object without owners, and removes references to absent owners from others.
    fn check_owners(&mut self, key: &Key, resource: &ApiResource, object: &Object) {
        let content = object.content();
        let namespace = namespace_of(content);
        let (mut has_owner, mut is_awaited, mut left) = (false, false, Vec::new());
        for reference in owner_references(content) {
            match self.owner(reference, namespace) {
                Owner::Unknown => return,
                Owner::Absent => left.push(uid_of(reference)),
                Owner::Found(owner) if is_deleted_with(FOREGROUND, owner.content()) => {
                    is_awaited = true;
                    left.push(uid_of(reference));
                }
                Owner::Found(_) => has_owner = true,
            }
        }
        if left.is_empty() {
            return;
        }
        if has_owner {
            self.remove_owners(key, content, &left);
            return;
        }
        let mut propagation = None;
        if is_awaited {
            let dependents: Vec<_> = self.dependents(content).collect();
            if !dependents.is_empty() {
                propagation = Some(Propagation::Foreground);
            }
            // Owners that wait for each other would wait forever.
            let waits = |one: &(Key, Arc<Object>)| is_deleted_with(FOREGROUND, one.1.content());
            if dependents.iter().any(waits) {
                self.unblock_owners(key, content);
            }
        }
        let mut writer = Writer {
            store: self.store,
            author: Author::Cluster,
            dry_run: false,
        };
        if let Some(object) = writer.store.get(key).cloned() {
            let propagation = propagation.or_else(|| default_policy(object.content()));
            writer.delete_object(resource, key.clone(), &object, propagation);
        }
    }

    fn owner(&self, reference: &Value, namespace: Option<&str>) -> Owner {
        let is_gone = |namespace: &str| {
            let place = [namespace, uid_of(reference)].map(str::to_owned);
            self.gone.contains(&place.into())
        };
        if is_gone("") || namespace.is_some_and(is_gone) {
            return Owner::Absent;
        }
        let Some(key) = self.owner_key(reference, namespace) else {
            return Owner::Unknown;
        };
        match self.store.get(&key) {
            Some(owner) if meta_str(owner.content(), "uid") == uid_of(reference) => {
                Owner::Found(owner.clone())
            }
            _ => Owner::Absent,
        }
    }

    /// Returns the key of the owner that a reference names. `None` means [`Owner::Unknown`].
    fn owner_key(&self, reference: &Value, namespace: Option<&str>) -> Option<Key> {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let version = text("apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let served = self.resources.served();
        let resource = served.iter().find(|resource| {
            (&*resource.group, &*resource.version, &*resource.kind)
                == (group, version, text("kind"))
        })?;
        if resource.namespaced && namespace.is_none() {
            return None;
        }
        let namespace = namespace.filter(|_| resource.namespaced);
        Some(resource.key(namespace, text("name")))
    }

    /// Returns the objects that refer to this owner, in any namespace.
    fn dependents(&self, owner: &Content) -> impl Iterator<Item = (Key, Arc<Object>)> {
        let keys = self.store.dependents(meta_str(owner, "uid"));
        keys.filter_map(|key| Some((key.clone(), self.store.get(key)?.clone())))
    }

    fn orphan_dependents(&mut self, key: &Key, owner: &Content) {
        let uid = meta_str(owner, "uid");
        for (key, dependent) in self.dependents(owner).collect::<Vec<_>>() {
            self.remove_owners(&key, dependent.content(), &[uid]);
        }
        self.remove_finalizer(key, owner, ORPHAN);
    }

    fn remove_owners(&mut self, key: &Key, content: &Content, uids: &[&str]) {
        let kept = owner_references(content).filter(|one| !uids.contains(&uid_of(one)));
        self.set(key, content, "ownerReferences", kept.cloned().collect());
    }

    fn unblock_owners(&mut self, key: &Key, content: &Content) {
        let mut references: Vec<_> = owner_references(content).cloned().collect();
        for reference in &mut references {
            if reference["blockOwnerDeletion"] == true {
                reference["blockOwnerDeletion"] = false.into();
            }
        }
        self.set(key, content, "ownerReferences", references);
    }

    fn remove_finalizer(&mut self, key: &Key, content: &Content, finalizer: &str) {
        let kept = finalizers(content)
            .into_iter()
            .filter(|one| one != finalizer);
        self.set(key, content, "finalizers", kept.map(Into::into).collect());
    }

    /// Stores the object with this list in its metadata, or removes it if the last finalizer is
    /// gone.
    fn set(&mut self, key: &Key, content: &Content, field: &str, items: Vec<Value>) {
        let mut content = content.clone();
        set_list(&mut content, field, items);
        let is_deleted = meta(&content, "deletionTimestamp").is_some();
        let resource = self.resources.of_key(key);
        if is_deleted && resource.is_some_and(|resource| !is_held(&resource, &content)) {
            self.store.remove(key);
        } else {
            self.store.put(key.clone(), content);
        }
    }
}

/// The uid of the owner that a reference names, and whether the reference blocks its deletion.
fn blocked(reference: &Value) -> (&str, bool) {
    (uid_of(reference), reference["blockOwnerDeletion"] == true)
}

fn namespace_of(content: &Content) -> Option<&str> {
    Some(meta_str(content, "namespace")).filter(|namespace| !namespace.is_empty())
}

/// Returns the policy of the finalizers, else background, whatever the resource prefers.
fn default_policy(content: &Content) -> Option<Propagation> {
    let is_gc = |one: &String| *one == ORPHAN || *one == FOREGROUND;
    let has_policy = finalizers(content).iter().any(is_gc);
    (!has_policy).then_some(Propagation::Background)
}
