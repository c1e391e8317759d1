//! What the controller may do, and what it has done, by the UID of the primary object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Ledger {
    began: Instant,
    owners: Mutex<BTreeMap<String, Owner>>,
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
    pub(crate) effects: usize,
    /// Whether the cleanup followed the last effect.
    pub(crate) is_clean: bool,
    last_create: Option<Instant>,
    /// What happened, with seconds since the start.
    pub(crate) trace: Vec<(f64, String)>,
}

impl Owner {
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

    pub(crate) fn note(&self, uid: &str, what: &str) {
        self.change(uid, what.to_owned(), |_| {});
    }

    pub(crate) fn created(&self, uid: &str, child: &str, name: &str) {
        self.change(uid, format!("created {name}"), |owner| {
            owner.children.insert(child.to_owned());
        });
    }

    /// The controller gets the response of a create.
    pub(crate) fn answered(&self, uid: &str) {
        self.change(uid, "answered".to_owned(), |owner| {
            owner.last_create = Some(Instant::now());
        });
    }

    pub(crate) fn unknown(&self, uid: &str) {
        self.change(uid, "create with an unknown outcome".to_owned(), |owner| {
            owner.unknown += 1;
            owner.last_create = None;
        });
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

    /// Forgets calls that were not made, because the process was killed.
    pub(crate) fn restarted(&self) {
        for owner in self.owners().values_mut() {
            owner.last_create = None;
        }
    }
}
