//! What a controller has applied.
//!
//! A comparison of the wanted fields with the cached object would never release a field that a new
//! version of the program drops. It would also differ forever where the server writes another form:
//! "1000m" is "1". So this module remembers what was sent and what the server answered, as Cluster
//! API's `ssa` package does. If neither has changed, nothing has to be sent.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::record::ObjectId;

/// A fight is this number of changes within [`FIGHT_PERIOD`].
pub(crate) const FIGHT: u32 = 10;

pub(crate) const FIGHT_PERIOD: Duration = Duration::from_secs(60);

/// The last answer to an apply of each object.
#[derive(Default)]
pub(crate) struct AppliedObjects {
    /// Keyed at random, so that no object can be made to have the digest of another one. By chance,
    /// one change in 2^64 is overlooked.
    hasher: RandomState,
    /// No other lock is taken and no user code runs while this one is held.
    answers: Mutex<BTreeMap<ObjectId, Answer>>,
}

#[derive(Clone)]
pub(crate) struct Answer {
    /// The hash of what was sent.
    pub(crate) sent: u64,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) digests: Digests,
    pub(crate) fight: Fight,
}

/// The digests of an object: without and with its `managedFields`.
pub(crate) type Digests = [u64; 2];

impl AppliedObjects {
    /// Returns the answer for the object with this UID.
    pub(crate) fn get(&self, id: &ObjectId, uid: &str) -> Option<Answer> {
        let answers = self.answers.lock();
        answers.get(id).filter(|answer| answer.uid == uid).cloned()
    }

    pub(crate) fn set(&self, id: &ObjectId, answer: Answer) {
        self.answers.lock().insert(id.clone(), answer);
    }

    /// Forgets an object that is gone. A newer object can have its name.
    pub(crate) fn forget(&self, id: &ObjectId, uid: &str) {
        let answers = &mut *self.answers.lock();
        if answers.get(id).is_some_and(|answer| answer.uid == uid) {
            answers.remove(id);
        }
    }

    pub(crate) fn clear(&self) {
        self.answers.lock().clear();
    }

    /// Returns the hash of what is sent.
    pub(crate) fn sent(&self, child: &Value, manager: &str, force: bool) -> u64 {
        let mut state = self.hasher.build_hasher();
        hash(child, true, &mut state);
        (manager, force).hash(&mut state);
        state.finish()
    }

    /// Returns the digests of the parts of an object that an apply can concern. A write of the
    /// status changes the version, and the times and an entry of the `managedFields`.
    pub(crate) fn digests(&self, mut object: Value) -> Digests {
        // List items and many custom structs lack `apiVersion` and `kind`.
        for field in ["apiVersion", "kind", "status"] {
            remove(&mut object, field);
        }
        let mut metadata = remove(&mut object, "metadata");
        remove(&mut metadata, "resourceVersion");
        let mut managers = remove(&mut metadata, "managedFields");
        if let Some(managers) = managers.as_array_mut() {
            managers.retain(|entry| entry["subresource"] != "status");
            for entry in managers {
                remove(entry, "time");
            }
        }
        let mut state = self.hasher.build_hasher();
        hash(&Value::from([object, metadata]), false, &mut state);
        let without = state.finish();
        hash(&managers, false, &mut state);
        [without, state.finish()]
    }

    /// Whether an object differs from another one at most in its status. A type that drops fields
    /// never has the digest of the whole object. A cache that skips only `managedFields` has the
    /// one without them.
    pub(crate) fn is_same(&self, object: &impl Serialize, other: Digests) -> bool {
        let Ok(object) = serde_json::to_value(object) else {
            return false;
        };
        let which = usize::from(object["metadata"]["managedFields"].is_array());
        self.digests(object)[which] == other[which]
    }
}

fn remove(object: &mut Value, field: &str) -> Value {
    let fields = object.as_object_mut();
    fields
        .and_then(|fields| fields.remove(field))
        .unwrap_or_default()
}

/// Hashes a value. The order of keys does not count: it depends on the features of `serde_json`. In
/// an object of the server, `null` is the same as no field.
fn hash(value: &Value, with_nulls: bool, state: &mut impl Hasher) {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: BTreeMap<_, _> = fields
                .filter(|field| with_nulls || !field.1.is_null())
                .collect();
            state.write_usize(fields.len());
            for (name, value) in fields {
                name.hash(state);
                hash(value, with_nulls, state);
            }
        }
        Value::Array(items) => {
            // Another type than an object.
            (b'[', items.len()).hash(state);
            items.iter().for_each(|item| hash(item, with_nulls, state));
        }
        scalar => scalar.to_string().hash(state),
    }
}

/// Counts the changes of an object that others make.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fight {
    since: Option<Instant>,
    changes: u32,
}

impl Fight {
    /// Counts a change. Returns whether to report the fight: once, until it calms.
    pub(crate) fn count(&mut self, now: Instant) -> bool {
        let elapsed = self.since.map(|since| now.saturating_duration_since(since));
        if elapsed.is_none_or(|elapsed| elapsed > FIGHT_PERIOD) {
            let goes_on = self.changes >= FIGHT && elapsed < Some(2 * FIGHT_PERIOD);
            self.since = Some(now);
            self.changes = if goes_on { FIGHT } else { 0 };
        }
        self.changes += 1;
        self.changes == FIGHT
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
