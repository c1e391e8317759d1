//! The writes of a controller that its caches do not contain yet.
//!
//! A reconcile call that reads a cache without its own last write acts on an old state: it creates
//! a second child, for example. So the next call for a key waits until the caches contain what the
//! previous calls for this key have written. No worker is blocked: the key is put aside and queued
//! again when the last write arrives.
//!
//! client-go's `util/consistency` (CS1–CS4) compares with the version of a whole kind. This module
//! compares single objects, so a quiet namespace or another kind does not delay a key.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::source::{AnySource, Coverage};
use crate::client::api::Target;
use crate::object::{GroupVersionResource, Key, Object, namespaced_key};
use crate::resource_version::compare_resource_versions;

/// The writes that are not in the caches yet, by the key that wrote them.
///
/// This is plain data for use under a lock: no method blocks, reads a cache or calls user code.
#[derive(Default)]
pub(super) struct OwnWrites {
    next: u64,
    keys: HashMap<Key, Vec<Write>>,
    /// The keys that wait for an object of a source.
    objects: HashMap<(usize, Key), Vec<Key>>,
}

/// A write that a cache may not contain yet.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) id: u64,
    /// The position of the source in the list of sources.
    source: usize,
    /// The namespace of the object.
    namespace: Box<str>,
    /// The key of the object. Empty if the server has generated the name and it is unknown.
    object: Key,
    result: Written,
    /// The number of relists that the source had begun when the object was written.
    relists: u64,
    /// Whether a check has found a later relist.
    has_relisted: bool,
    /// The time of the next check if no event arrives.
    check_at: Instant,
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The object has this version.
    Version(String),
    /// The object with this UID is gone.
    Gone(String),
    /// The request failed, but the server may have executed it. The same holds for an object that
    /// may be outside the scope of the source.
    Unknown,
}

/// The result of a check of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// The wait is over.
    Ended,
    /// The cache lacks the write. The source has listed since the write, and the write is due.
    Relisted,
    /// The cache lacks the write.
    Missing,
}

/// A change in a cache.
#[derive(Clone, Copy, Debug)]
pub(super) enum Observed<'a> {
    /// The cache has this version of the object.
    Version(&'a str),
    /// The object was removed. The version is that of its last state, empty if it is unknown.
    Gone { uid: &'a str, version: &'a str },
}

/// Whether a key can be reconciled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The caches lack own writes.
    Behind {
        /// The time of the next check if no event arrives.
        check_at: Instant,
        /// The sources that have not delivered a write in time.
        late: Vec<usize>,
    },
}

impl OwnWrites {
    /// Records a write.
    pub(super) fn add(&mut self, key: &Key, mut write: Write) {
        write.id = self.next;
        self.next += 1;
        let (source, object) = (write.source, Key::clone(&write.object));
        let writes = self.keys.entry(Key::clone(key)).or_default();
        // Of several versions of one object, the newest counts.
        if let Written::Version(version) = &write.result {
            let is_version =
                |other: &Write| other.is_of_object(&write) && other.result.is_version();
            let is_newer = |other: &Write| match &other.result {
                Written::Version(other) => {
                    compare_resource_versions(other, version).is_some_and(Ordering::is_ge)
                }
                _ => false,
            };
            if writes
                .iter()
                .any(|other| is_version(other) && is_newer(other))
            {
                return;
            }
            writes.retain(|other| !is_version(other));
        }
        writes.push(write);
        let waiting = self.objects.entry((source, object)).or_default();
        if !waiting.contains(key) {
            waiting.push(Key::clone(key));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the writes of a key. Check each of them with [`Write::check`], without a lock, and
    /// report the results to [`settle`](Self::settle).
    pub(super) fn of(&self, key: &Key) -> Vec<Write> {
        self.keys.get(key).cloned().unwrap_or_default()
    }

    /// Removes the writes of a key that have ended, and returns whether others are left. An event
    /// may have removed writes in the meantime. `retry` is the time until the next check of a write
    /// that is late.
    pub(super) fn settle(
        &mut self,
        key: &Key,
        checks: &[(u64, Check)],
        now: Instant,
        retry: Duration,
    ) -> Readiness {
        let is = |write: &Write, result| checks.contains(&(write.id, result));
        let writes = self.of(key);
        let missing_versions: Vec<_> = writes
            .iter()
            .filter(|write| write.result.is_version() && !is(write, Check::Ended))
            .collect();
        // The cache lacks an object before its creation arrives, and again after its deletion.
        let has_ended = |write: &Write| {
            is(write, Check::Ended)
                && !missing_versions
                    .iter()
                    .any(|other| other.is_of_object(write))
        };
        if self.remove(key, has_ended) {
            return Readiness::Ready;
        }
        let mut late = Vec::new();
        let writes = self.keys.get_mut(key).into_iter().flatten();
        let check_at = writes.map(|write| {
            write.has_relisted |= is(write, Check::Relisted);
            if write.check_at <= now {
                write.check_at = now.checked_add(retry).unwrap_or(now);
                if !late.contains(&write.source) {
                    late.push(write.source);
                }
            }
            write.check_at
        });
        match check_at.min() {
            Some(check_at) => Readiness::Behind { check_at, late },
            None => Readiness::Ready,
        }
    }

    /// Reports a change in the cache of a source. Returns the keys that waited only for this
    /// change.
    pub(super) fn observed(
        &mut self,
        source: usize,
        object: &Key,
        change: &Observed<'_>,
    ) -> Vec<Key> {
        let Some(waiting) = self.objects.get(&(source, Key::clone(object))).cloned() else {
            return Vec::new();
        };
        let is_arrived = |write: &Write| {
            write.source == source && write.object == *object && write.result.arrives_with(change)
        };
        waiting
            .into_iter()
            .filter(|key| self.remove(key, is_arrived))
            .collect()
    }

    /// Removes writes of a key. Returns whether none is left.
    fn remove(&mut self, key: &Key, ended: impl Fn(&Write) -> bool) -> bool {
        let Some(writes) = self.keys.get_mut(key) else {
            return true;
        };
        let mut removed = Vec::new();
        writes.retain(|write| {
            let is_ended = ended(write);
            if is_ended {
                removed.push((write.source, Key::clone(&write.object)));
            }
            !is_ended
        });
        removed.retain(|(source, object)| {
            !writes
                .iter()
                .any(|write| write.source == *source && write.object == *object)
        });
        let is_empty = writes.is_empty();
        if is_empty {
            self.keys.remove(key);
        }
        for object in removed {
            if let Some(waiting) = self.objects.get_mut(&object) {
                waiting.retain(|other| other != key);
                if waiting.is_empty() {
                    self.objects.remove(&object);
                }
            }
        }
        is_empty
    }
}

impl Write {
    /// Returns the entries for the object in the response of a write.
    pub(super) fn written(
        sources: &[Arc<dyn AnySource>],
        resource: &GroupVersionResource,
        object: &dyn Object,
        check_at: Instant,
    ) -> Vec<Self> {
        let target = Target {
            namespace: object.namespace(),
            name: object.name(),
        };
        Self::of_sources(sources, resource, &target, check_at, |source| match source
            .coverage(object)
        {
            Coverage::No => None,
            Coverage::Unknown => Some(Written::Unknown),
            Coverage::Yes => Some(Written::Version(object.resource_version().to_owned())),
        })
    }

    /// Returns the entries for a deletion. If `uid` is empty, the object is the cached one.
    pub(super) fn deleted(
        sources: &[Arc<dyn AnySource>],
        resource: &GroupVersionResource,
        target: &Target<'_>,
        uid: &str,
        check_at: Instant,
    ) -> Vec<Self> {
        let key = namespaced_key(target.namespace, target.name);
        Self::of_sources(sources, resource, target, check_at, |source| match uid {
            "" => source.cached(&key).map(|(uid, _)| Written::Gone(uid)),
            uid => Some(Written::Gone(uid.to_owned())),
        })
    }

    /// Returns the entries for a write that may have been executed.
    pub(super) fn unknown(
        sources: &[Arc<dyn AnySource>],
        resource: &GroupVersionResource,
        target: &Target<'_>,
        check_at: Instant,
    ) -> Vec<Self> {
        Self::of_sources(sources, resource, target, check_at, |source| {
            let is_covered = source.covers_namespace(target.namespace);
            is_covered.then_some(Written::Unknown)
        })
    }

    /// Returns an entry for each source that holds objects of `resource`. The version of the group
    /// does not matter: all versions of an object share its resource version.
    fn of_sources(
        sources: &[Arc<dyn AnySource>],
        resource: &GroupVersionResource,
        target: &Target<'_>,
        check_at: Instant,
        result: impl Fn(&dyn AnySource) -> Option<Written>,
    ) -> Vec<Self> {
        let object = match target.name {
            "" => Key::from(""),
            name => namespaced_key(target.namespace, name),
        };
        let write = |(at, source): (usize, &Arc<dyn AnySource>)| {
            let of = source.resource();
            let is_same = of.group == resource.group && of.resource == resource.resource;
            Some(Self {
                id: 0,
                source: at,
                namespace: target.namespace.into(),
                object: Key::clone(&object),
                result: is_same.then(|| result(&**source)).flatten()?,
                relists: source.relists_begun(target.namespace),
                has_relisted: false,
                check_at,
            })
        };
        sources.iter().enumerate().filter_map(write).collect()
    }

    /// Whether the wait for this write is over.
    ///
    /// A write with a known outcome is awaited until the cache contains it: a stalled watch must
    /// not cause a second child. It can be missing forever only if the server was restored from a
    /// backup, and the source lists again after that. Such a list can also come from an API server
    /// that is behind, so the watch gets the time until the next check to deliver the write. A
    /// write with an unknown outcome is awaited until `check_at`.
    pub(super) fn check(&self, sources: &[Arc<dyn AnySource>], now: Instant) -> Check {
        let source = &*sources[self.source];
        let is_due = self.check_at <= now;
        let has_arrived = match &self.result {
            Written::Version(version) => {
                let cached = source.cached(&self.object);
                cached.is_some_and(|(_, cached)| is_at_least(&cached, version))
                    || source.has_processed(&self.namespace, version)
            }
            Written::Gone(gone) => source
                .cached(&self.object)
                .is_none_or(|(uid, _)| uid != *gone),
            Written::Unknown => is_due,
        };
        if has_arrived || is_due && self.has_relisted {
            return Check::Ended;
        }
        match is_due && source.relists(&self.namespace) > self.relists {
            true => Check::Relisted,
            false => Check::Missing,
        }
    }

    fn is_of_object(&self, other: &Self) -> bool {
        self.source == other.source && self.object == other.object
    }
}

impl Written {
    fn is_version(&self) -> bool {
        matches!(self, Self::Version(_))
    }

    fn arrives_with(&self, change: &Observed<'_>) -> bool {
        match (self, change) {
            (
                Self::Version(written),
                Observed::Version(version) | Observed::Gone { version, .. },
            ) => is_at_least(version, written),
            // An update with another UID is a deletion and a creation that the watch missed.
            (Self::Gone(_), Observed::Version(_)) => false,
            (Self::Gone(gone), Observed::Gone { uid, .. }) => gone == uid,
            // The change may be the write or not. The object is newer than what the call has read,
            // and a write that arrives later conflicts or is repeated.
            (Self::Unknown, _) => true,
        }
    }
}

/// Versions that cannot be compared count as reached: waiting would not end.
fn is_at_least(version: &str, wanted: &str) -> bool {
    compare_resource_versions(version, wanted).is_none_or(Ordering::is_ge)
}

#[cfg(test)]
mod tests;
