//! What the controller may do, and what it has done, by the UID of the primary object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Ledger {
    began: Instant,
    owners: Mutex<BTreeMap<String, Owner>>,
    /// The UIDs of the owners of all children, by the names of the children.
    names: Mutex<BTreeMap<String, String>>,
    delays: Mutex<Vec<Duration>>,
}

/// The account of a primary object.
#[derive(Default)]
pub(crate) struct Owner {
    pub(crate) key: String,
    /// The number of creates that the specification and foreign deletions require. An increase of
    /// the specification counts, a decrease does not.
    pub(crate) wanted: usize,
    /// The number of creates whose outcome the controller does not know.
    pub(crate) unknown: usize,
    /// The UIDs of all children that the server has created.
    pub(crate) children: BTreeSet<String>,
    /// The names of the children that the controller must know: the outcome of the create was
    /// known, and no deletion was requested.
    known: BTreeSet<String>,
    /// The creates of calls that did not know all those children.
    pub(crate) blind_creates: usize,
    pub(crate) effects: usize,
    /// Whether the cleanup followed the last effect.
    pub(crate) is_clean: bool,
    /// Whether the object was deleted without a resource version, so that it can have vanished.
    can_have_vanished: bool,
    /// Whether the process was killed after that, so that nobody knows it.
    is_forgotten: bool,
    last_create: Option<Instant>,
    /// What happened, with seconds since the start.
    pub(crate) trace: Vec<(f64, String)>,
}

impl Owner {
    /// Whether the object can have vanished before a kill: no process knows what it has left.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// The number of creates without a reason.
    pub(crate) fn duplicates(&self) -> usize {
        let allowed = self.wanted + self.unknown;
        self.children.len().saturating_sub(allowed)
    }
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            owners: Mutex::default(),
            names: Mutex::default(),
            delays: Mutex::default(),
        }
    }

    pub(crate) fn owners(&self) -> MutexGuard<'_, BTreeMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, uid: &str, trace: String, change: impl FnOnce(&mut Owner)) {
        let at = self.began.elapsed().as_secs_f64();
        let mut owners = self.owners();
        let owner = owners.entry(uid.to_owned()).or_default();
        owner.trace.push((at, trace));
        change(owner);
    }

    /// The object requires more creates. Call this before the server knows.
    pub(crate) fn allow(&self, uid: &str, creates: usize, why: &str) {
        let trace = format!("{why}: {creates} more creates");
        self.change(uid, trace, |owner| owner.wanted += creates);
    }

    /// The object is about to be deleted, with a resource version or without.
    pub(crate) fn deleted(&self, uid: &str, is_plain: bool) {
        self.change(uid, "site deleted".to_owned(), |owner| {
            owner.can_have_vanished = is_plain;
        });
    }

    /// A call that has seen these children is about to create another one.
    pub(crate) fn creating(&self, uid: &str, seen: &str) {
        let seen: BTreeSet<_> = seen.split(',').collect();
        self.change(uid, format!("creates, sees {seen:?}"), |owner| {
            if !owner.known.iter().all(|name| seen.contains(&**name)) {
                owner.blind_creates += 1;
            }
        });
    }

    /// The server has created a child, and the controller gets the response unless it is killed.
    pub(crate) fn created(&self, uid: &str, child: &str, name: &str) {
        self.names().insert(name.to_owned(), uid.to_owned());
        self.change(uid, format!("created {name}"), |owner| {
            owner.children.insert(child.to_owned());
            owner.known.insert(name.to_owned());
            owner.last_create = Some(Instant::now());
        });
    }

    /// The controller does not get the response of a create. The server may have created this
    /// child.
    pub(crate) fn unknown(&self, uid: &str, name: &str) {
        let trace = format!("create with an unknown outcome {name}");
        self.change(uid, trace, |owner| {
            owner.unknown += 1;
            owner.known.remove(name);
            owner.last_create = None;
        });
    }

    /// The deletion of a child is about to be requested.
    pub(crate) fn deleting(&self, name: &str) {
        let uid = self.names().get(name).cloned();
        if let Some(uid) = uid {
            self.change(&uid, format!("deletes {name}"), |owner| {
                owner.known.remove(name);
            });
        }
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each call of the reconcile function begins with the effect.
    pub(crate) fn effect(&self, uid: &str, key: &str) {
        let mut last_create = None;
        self.change(uid, "effect".to_owned(), |owner| {
            key.clone_into(&mut owner.key);
            owner.effects += 1;
            owner.is_clean = false;
            last_create = owner.last_create.take();
        });
        if let Some(last_create) = last_create {
            self.delays().push(last_create.elapsed());
        }
    }

    pub(crate) fn cleanup(&self, uid: &str) {
        self.change(uid, "cleanup".to_owned(), |owner| owner.is_clean = true);
    }

    /// The times from the response of a create to the next call for the same object.
    pub(crate) fn delays(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets calls that were not made, because the process was killed. `exists` has the UIDs of the
    /// objects that the server has before the next process starts.
    pub(crate) fn restarted(&self, exists: &BTreeSet<String>) {
        for (uid, owner) in &mut *self.owners() {
            owner.last_create = None;
            // A cleanup that has ended left nothing.
            let is_gone = !exists.contains(uid);
            owner.is_forgotten |= owner.can_have_vanished && !owner.is_clean && is_gone;
        }
    }
}
