use std::collections::HashMap;

use crate::base::sync::Mutex;
use crate::entry;
use crate::object::Key;
use crate::resource_version::ResourceVersion;

/// The maximum number of missing objects that are remembered. Objects beyond this number are
/// represented by the empty key.
const MAX_MISSING: usize = 1000;

/// The objects whose newest state the store lacks although the server has sent it.
///
/// The reflector records those that it could not read: they could not be decoded, keyed or
/// transformed. The consumer of the store's queue records those that it could not process. The
/// empty key stands for objects without a known key, so it may be any object.
#[derive(Default)]
pub(crate) struct Missing {
    /// Innermost lock: nothing is called while it is held.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: HashMap<Key, Entry>,
    /// The number of entries that were recorded so far.
    recorded: u64,
    /// Whether objects were rejected since the last [`take_new_rejections`](Missing::take_new_rejections).
    has_new_rejections: bool,
    /// The total number of rejections.
    rejections: u64,
}

struct Entry {
    /// The value of [`State::recorded`] after this entry was recorded.
    recorded: u64,
    reason: Reason,
}

/// Why an object is missing.
#[derive(PartialEq, Eq)]
enum Reason {
    /// The reflector could not read it.
    Unreadable,
    /// The consumer rejected it in this version.
    Rejected(Option<ResourceVersion>),
}

impl State {
    /// Returns whether an object was recorded that is not yet remembered, or not yet as rejected.
    fn record(&mut self, key: Option<Key>, reason: Reason) -> bool {
        let key = key.unwrap_or_else(|| "".into());
        let is_full = self.objects.len() >= MAX_MISSING && !self.objects.contains_key(&key);
        let key = if is_full { "".into() } else { key };
        self.recorded += 1;
        let is_unreadable = reason == Reason::Unreadable;
        let entry = Entry {
            recorded: self.recorded,
            reason,
        };
        let before = self.objects.insert(key, entry);
        let is_known = before.is_some_and(|before| is_unreadable || before.is_rejected());
        !is_known && !is_full
    }
}

impl Entry {
    fn is_rejected(&self) -> bool {
        matches!(self.reason, Reason::Rejected(_))
    }
}

impl Missing {
    /// Records an object that the reflector could not read. Returns whether it is newly missing.
    pub(super) fn add_unreadable(&self, key: Option<Key>) -> bool {
        self.state.lock().record(key, Reason::Unreadable)
    }

    /// Records an object that the consumer rejected in this version.
    pub(super) fn add_rejected(&self, key: Option<Key>, version: Option<ResourceVersion>) {
        let mut state = self.state.lock();
        state.rejections += 1;
        let is_new = state.record(key, Reason::Rejected(version));
        state.has_new_rejections |= is_new;
    }

    /// Records that the consumer processed an object.
    pub(crate) fn accepted(&self, key: &str) {
        let mut state = self.state.lock();
        if state.objects.get(key).is_some_and(Entry::is_rejected) {
            state.objects.remove(key);
        }
    }

    /// Records that the consumer processed an object that may come from a resync. It is the newest
    /// state only if this version, or an older one, was rejected.
    pub(crate) fn accepted_resync(&self, key: &str, version: Option<&ResourceVersion>) {
        let mut state = self.state.lock();
        let is_newest = |entry: &Entry| match &entry.reason {
            Reason::Unreadable => false,
            Reason::Rejected(rejected) => match (version, rejected) {
                (Some(version), Some(rejected)) => version >= rejected,
                (version, rejected) => version == rejected.as_ref(),
            },
        };
        if state.objects.get(key).is_some_and(is_newest) {
            state.objects.remove(key);
        }
    }

    /// Records that the consumer processed a list, except for the objects that `is_rejected`
    /// selects.
    pub(crate) fn accepted_list(&self, is_rejected: impl Fn(&Key) -> bool) {
        let mut state = self.state.lock();
        state
            .objects
            .retain(|key, entry| !entry.is_rejected() || is_rejected(key));
    }

    /// Forgets an object whose newer state was read, or that was deleted. Only the consumer ends a
    /// rejection, unless the object was deleted. Returns whether the object was unreadable.
    pub(super) fn forget(&self, key: &Key, is_deleted: bool) -> bool {
        let mut state = self.state.lock();
        let entry = state.objects.get(key);
        let was_unreadable = entry.is_some_and(|entry| !entry.is_rejected());
        if was_unreadable || is_deleted {
            state.objects.remove(key);
        }
        was_unreadable
    }

    /// Returns how many entries were recorded so far.
    pub(super) fn recorded(&self) -> u64 {
        self.state.lock().recorded
    }

    /// Returns the entries that a list makes obsolete, with the time of their recording: unreadable
    /// objects that were not recorded again since the list `began`, or all if the list is
    /// `complete`, and rejected objects that are not in the list. The consumer decides on those in
    /// the list.
    pub(super) fn obsolete_after<T>(
        &self,
        list: &[entry::Entry<T>],
        complete: bool,
        began: u64,
    ) -> Vec<(Key, u64)> {
        let (mut rejected, mut obsolete) = (HashMap::new(), Vec::new());
        for (key, entry) in &self.state.lock().objects {
            if entry.is_rejected() {
                rejected.insert(Key::clone(key), entry.recorded);
            } else if complete || entry.recorded <= began {
                obsolete.push((Key::clone(key), entry.recorded));
            }
        }
        if !rejected.is_empty() {
            for entry in list {
                rejected.remove(&entry.key);
            }
        }
        obsolete.extend(rejected);
        obsolete
    }

    /// Removes entries that were not recorded again.
    pub(super) fn remove_all(&self, entries: Vec<(Key, u64)>) {
        let mut state = self.state.lock();
        for (key, recorded) in entries {
            let entry = state.objects.get(&key);
            if entry.is_some_and(|entry| entry.recorded == recorded) {
                state.objects.remove(&key);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().objects.is_empty()
    }

    /// Whether this object is missing.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.state.lock().objects.contains_key(key)
    }

    /// Whether this object is missing, or may be one of the missing objects without a known key.
    pub(crate) fn may_contain(&self, key: &str) -> bool {
        let state = self.state.lock();
        state.objects.contains_key(key) || state.objects.contains_key("")
    }

    /// The number of objects that are missing because the consumer rejected them.
    pub(crate) fn rejected(&self) -> usize {
        let state = self.state.lock();
        let rejected = state.objects.values().filter(|entry| entry.is_rejected());
        rejected.count()
    }

    /// The total number of rejections.
    pub(super) fn rejections(&self) -> u64 {
        self.state.lock().rejections
    }

    /// Whether an object was newly rejected since the last call.
    pub(super) fn take_new_rejections(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_new_rejections)
    }
}
