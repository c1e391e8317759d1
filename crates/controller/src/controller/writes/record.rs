//! The writes of a controller that its caches do not contain yet. [`WriteRecord`] is plain data;
//! a [`Write`] reads caches, without a lock, to find out whether they have it.
//!
//! A reconcile call that reads a cache without its own last write acts on an old state: it creates
//! a second child, for example. So the next call for a key waits until the caches contain what the
//! previous calls for this key have written. No worker is blocked: the key is put aside and queued
//! again when the last write arrives.
//!
//! client-go's `util/consistency` (CS1–CS4) compares with the version of a whole kind. This module
//! compares single objects, so a quiet namespace or another kind does not delay a key.
//!
//! A write that the cache has is forgotten: by the event that brings it, by the check after the
//! call, or by a check from time to time. So this module keeps only what the caches lack.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::controller::sources::source::{AnySource, Coverage};
use k8s_informer::__private::Comparable;
use k8s_informer::client::api::WriteOutcome;
use k8s_informer::object::{GroupVersionResource, Key, ObjectName, ResourceVersion};
use k8s_informer::reflector::ReflectorState;

/// A deletion is awaited for this multiple of the timeout of own writes. A server can respond that
/// an object is gone although it remains, for example behind an aggregated API.
const DELETION_TIMEOUTS: u32 = 3;

/// The watch of a source with a field selector or a shard may not deliver a write. If a key waits
/// for it this long, a consistent read proves that the cache has it. Reads of one source are at
/// least this far apart.
pub(super) const PROVE_AFTER: Duration = Duration::from_secs(1);

/// The position of a source in the list of sources, and the key of an object. The key is empty if
/// the server has generated the name and it is unknown.
pub(crate) type ObjectId = (usize, Key);

/// The writes that are not in the caches yet.
///
/// This is plain data for use under a lock: no method blocks, reads a cache or calls user code. The
/// cost of an event depends on the writes that it ends, and that of a check on the writes of its
/// key, but not on other writes. Trees give their memory back.
#[derive(Default)]
pub(super) struct WriteRecord {
    next: u64,
    /// The writes, with the keys that made them. An event ends ranges of the writes of an object:
    /// those of versions that it reaches, for example.
    writes: BTreeMap<(ObjectId, Written, Key), Write>,
    /// The same writes by the keys that made them.
    keys: BTreeSet<(Key, ObjectId, Written)>,
}

/// A write that a cache may not contain yet.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) id: u64,
    /// The namespace of the object.
    namespace: Box<str>,
    pub(super) object: ObjectId,
    pub(super) result: Written,
    proof: Proof,
    /// The UID and the version of the cached object before a write with an unknown outcome.
    before: Option<(String, String)>,
    /// The number of relists that the source had begun when the object was written.
    relists: u64,
    /// Whether a check has found a later relist.
    has_relisted: bool,
    pub(super) times: Times,
}

/// When a write was made, and when its next check and the end of its wait are due.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) written: Instant,
    /// The time of the next check if no event arrives.
    check: Instant,
    /// The end of the wait for a deletion.
    deletion: Instant,
}

/// What proves that a cache has a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// The watch delivers the write, or the next one of the kind.
    Watch,
    /// Only the server knows whether the object is in the scope of the source. If not, the watch
    /// delivers nothing, and tells with its next bookmark that it has passed the version.
    Read,
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Written {
    /// The server may have executed the request, and the state of the object is not known.
    Unknown,
    /// The object with this UID is gone.
    Gone(Arc<str>),
    /// The object has this version, which cannot be compared.
    Opaque(Arc<str>),
    /// The object has this version. The variant is the last one, so a range from `Opaque` up to a
    /// version has all writes that the version reaches.
    Version(Comparable),
}

/// The result of a check of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// The wait is over.
    Ended,
    /// The cache still has the deleted object, and the time for the deletion is over.
    GivenUp,
    /// The cache lacks the write. The source has listed since the write, and the write is due.
    Relisted,
    /// The cache lacks the write.
    Missing,
}

/// A change in a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CacheChange<'a> {
    /// The cache has this version of the object.
    Version(&'a str),
    /// The object was removed. The version is that of its last state.
    Gone { uid: &'a str, version: &'a str },
}

/// The writes of a key after a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// The time of the next check if no event arrives. `None` if the caches have all writes, so that
    /// the key can be reconciled.
    pub(super) check_at: Option<Instant>,
    /// The sources that have not delivered a write in time.
    pub(super) late: BTreeSet<usize>,
    /// The sources whose caches need a consistent read, because their watches may not deliver a
    /// write.
    pub(super) unproven: BTreeSet<usize>,
    /// The deleted objects that the caches still have, and that are not awaited any more.
    pub(super) given_up: Vec<ObjectId>,
}

impl WriteRecord {
    /// Adds a write, unless a later one of the same key and object includes it.
    pub(super) fn add(&mut self, key: &Key, mut write: Write) {
        write.id = self.next;
        self.next += 1;
        let (object, result) = (&write.object, &write.result);
        if result.is_version() {
            // The newest version arrives after everything that earlier writes of the object have
            // caused.
            let from = (Key::clone(key), object.clone(), Written::Unknown);
            let of = self.keys.range(from..);
            let of = of.take_while(|(by, of, _)| by == key && of == object);
            let earlier: Vec<_> = of.map(|(_, _, earlier)| earlier.clone()).collect();
            // Only versions are at or above a version.
            if earlier.iter().any(|earlier| earlier >= result) {
                return;
            }
            for earlier in earlier {
                self.remove(object.clone(), earlier, key);
            }
        }
        let (object, result) = (object.clone(), result.clone());
        let by_key = (Key::clone(key), object.clone(), result.clone());
        self.keys.insert(by_key);
        self.writes.insert((object, result, Key::clone(key)), write);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys with writes.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<_> = self.keys.iter().map(|(key, ..)| Key::clone(key)).collect();
        keys.dedup();
        keys
    }

    /// Returns the writes of a key. Check each of them with [`Write::check`], without a lock, and
    /// report the results to [`settle`](Self::settle).
    pub(super) fn of<'a>(&'a self, key: &Key) -> impl Iterator<Item = &'a Write> + 'a {
        self.entries(key).filter_map(|(key, object, result)| {
            let id = (object.clone(), result.clone(), Key::clone(key));
            self.writes.get(&id)
        })
    }

    fn entries<'a>(
        &'a self,
        key: &Key,
    ) -> impl DoubleEndedIterator<Item = &'a (Key, ObjectId, Written)> + 'a {
        let first = |source| (Key::clone(key), (source, Key::from("")), Written::Unknown);
        self.keys.range(first(0)..first(usize::MAX))
    }

    /// Removes the writes of a key that have ended. An event may have removed writes in the
    /// meantime. `retry` is the time until the next check of a write that is late.
    pub(super) fn settle(
        &mut self,
        key: &Key,
        checks: &HashMap<u64, Check>,
        now: Instant,
        retry: Duration,
    ) -> Settled {
        let mut settled = Settled::default();
        let entries: Vec<_> = self.entries(key).cloned().collect();
        // The cache lacks an object before its creation arrives, and again after its deletion. The
        // version of an object comes first in this order.
        let mut missing_version = None;
        for (_, object, result) in entries.iter().rev() {
            let id = (object.clone(), result.clone(), Key::clone(key));
            let Some(write) = self.writes.get_mut(&id) else {
                continue;
            };
            let check = checks.get(&write.id).copied();
            let has_ended = matches!(check, Some(Check::Ended | Check::GivenUp));
            if has_ended && missing_version != Some(object) {
                if check == Some(Check::GivenUp) {
                    settled.given_up.push(object.clone());
                }
                self.remove(object.clone(), result.clone(), key);
                continue;
            }
            if result.is_version() {
                missing_version = Some(object);
            }
            write.has_relisted |= check == Some(Check::Relisted);
            if write.times.check <= now {
                write.times.check = now.checked_add(retry).unwrap_or(now);
                settled.late.insert(object.0);
            }
            let mut next = write.times.check;
            if write.proof == Proof::Read {
                let waited = now.saturating_duration_since(write.times.written);
                if waited >= PROVE_AFTER {
                    settled.unproven.insert(object.0);
                }
                // Afterwards, each further check can repeat a read that has proven nothing.
                let rest = PROVE_AFTER.checked_sub(waited).unwrap_or_default();
                let rest = if rest.is_zero() { PROVE_AFTER } else { rest };
                next = next.min(now.checked_add(rest).unwrap_or(now));
            }
            settled.check_at = Some(settled.check_at.map_or(next, |earlier| earlier.min(next)));
        }
        settled
    }

    /// Reports a change in the cache of a source. Returns the keys that waited only for this
    /// change.
    pub(super) fn observed(
        &mut self,
        source: usize,
        object: &Key,
        change: &CacheChange<'_>,
    ) -> Vec<Key> {
        // The first and the last outcome of each range.
        let mut ended = vec![(Written::Unknown, Bound::Included(Written::Unknown))];
        // An update with another UID is a deletion and a creation that the watch missed.
        if let CacheChange::Gone { uid, .. } = change {
            let gone = Written::Gone((*uid).into());
            ended.push((gone.clone(), Bound::Included(gone)));
        }
        let (CacheChange::Version(version) | CacheChange::Gone { version, .. }) = change;
        let newest = match Written::version(version) {
            newest @ Written::Version(_) => Bound::Included(newest),
            // Versions that cannot be compared count as reached: waiting would not end.
            _ => Bound::Unbounded,
        };
        ended.push((Written::Opaque(Arc::default()), newest));
        let object = (source, Key::clone(object));
        let mut ready = Vec::new();
        for (first, last) in ended {
            let from = (object.clone(), first, Key::from(""));
            let results = (Bound::Unbounded, last);
            let of = self.writes.range(from..);
            let of =
                of.take_while(|((of, result, _), _)| *of == object && results.contains(result));
            let of = of.filter(|(_, write)| write.may_arrive_with(change));
            let arrived: Vec<_> = of
                .map(|((_, result, key), _)| (result.clone(), Key::clone(key)))
                .collect();
            for (result, key) in arrived {
                self.remove(object.clone(), result, &key);
                if self.entries(&key).next().is_none() {
                    ready.push(key);
                }
            }
        }
        ready
    }

    fn remove(&mut self, object: ObjectId, result: Written, key: &Key) {
        let by_key = (Key::clone(key), object.clone(), result.clone());
        self.keys.remove(&by_key);
        self.writes.remove(&(object, result, Key::clone(key)));
    }
}

impl Times {
    /// Returns the times of a write that is made now. `timeout` is that of own writes; a deletion is
    /// awaited for several times `retry`.
    pub(super) fn new(now: Instant, timeout: Duration, retry: Duration) -> Self {
        let after = |delay| now.checked_add(delay).unwrap_or(now);
        Self {
            written: now,
            check: after(timeout),
            deletion: after(retry.saturating_mul(DELETION_TIMEOUTS)),
        }
    }
}

/// The UID and the resource version of an object in each cache.
pub(super) type CachedStates = Vec<Option<(String, String)>>;

impl Write {
    /// Returns the entries for a write of the object `target`. `before` has its states before the
    /// write, from [`before`](Self::before).
    pub(super) fn of_outcome(
        sources: &[Arc<dyn AnySource>],
        resource: &GroupVersionResource,
        mut target: ObjectName,
        outcome: &WriteOutcome<'_>,
        before: CachedStates,
        times: Times,
    ) -> Vec<Self> {
        if let WriteOutcome::Written(object) = outcome {
            // The server can have generated the name.
            target = ObjectName::of(*object);
        }
        let key = object_key(&target);
        let (mut before, mut writes) = (before.into_iter(), Vec::new());
        for (at, source) in of_resource(sources, resource) {
            let before = before.next().flatten();
            let mut add = |result, proof, before| {
                writes.push(Self {
                    id: 0,
                    namespace: target.namespace.as_str().into(),
                    object: (at, Key::clone(&key)),
                    result,
                    proof,
                    before,
                    relists: relists_begun(source, &target.namespace),
                    has_relisted: false,
                    times,
                });
            };
            match outcome {
                WriteOutcome::Written(object) => {
                    let version = object.resource_version();
                    match source.coverage(*object) {
                        Coverage::No => {}
                        Coverage::Yes => add(Written::version(version), Proof::Watch, None),
                        Coverage::Unknown => add(Written::version(version), Proof::Read, None),
                    }
                }
                // The UID can be unknown. The object that was cached before is gone even if the
                // server has deleted a newer object with this name.
                WriteOutcome::Deleted { uid } => {
                    let (before, _) = before.unwrap_or_default();
                    for uid in BTreeSet::from([*uid, &before]) {
                        if !uid.is_empty() {
                            add(Written::Gone(uid.into()), Proof::Watch, None);
                        }
                    }
                }
                _ if source.covers_namespace(&target.namespace) => {
                    add(Written::Unknown, Proof::Watch, before);
                }
                _ => {}
            }
        }
        writes
    }

    /// Returns the cached states of an object, for [`of_outcome`](Self::of_outcome).
    pub(super) fn before(
        sources: &[Arc<dyn AnySource>],
        resource: &GroupVersionResource,
        target: &ObjectName,
    ) -> CachedStates {
        let key = object_key(target);
        let of = of_resource(sources, resource);
        of.map(|(_, source)| source.cached(&key)).collect()
    }

    /// Whether the wait for this write is over.
    ///
    /// A write with a known version is awaited until the cache contains it: a stalled watch must
    /// not cause a second child. If the watch may not deliver it at all, a consistent read proves that
    /// the cache is new enough. The version can be missing forever only if the server was restored from a
    /// backup, and the source lists again after that. Such a list can also come from an API server
    /// that is behind, so the watch gets the time until the next check to deliver the write. A
    /// deletion is awaited until its time is over, and a write with an unknown outcome until the
    /// first check.
    pub(super) fn check(&self, sources: &[Arc<dyn AnySource>], now: Instant) -> Check {
        let (at, object) = &self.object;
        let source = &*sources[*at];
        let is_due = self.times.check <= now;
        let is_in_cache = |version: &str| {
            let cached = source.cached(object);
            cached.is_some_and(|(_, cached)| is_at_least(&cached, version))
                || source.has_processed(&self.namespace, version)
        };
        let has_arrived = match &self.result {
            Written::Version(version) => is_in_cache(&version.to_string()),
            // No list or bookmark reaches it.
            Written::Opaque(version) => is_due || is_in_cache(version),
            Written::Gone(gone) => source.cached(object).is_none_or(|(uid, _)| uid != **gone),
            Written::Unknown => is_due || source.cached(object) != self.before,
        };
        // An optional kind may be gone.
        let can_arrive = source.covers_namespace(&self.namespace);
        if has_arrived || !can_arrive || is_due && self.has_relisted {
            return Check::Ended;
        }
        if matches!(self.result, Written::Gone(_)) && self.times.deletion <= now {
            return Check::GivenUp;
        }
        match is_due && source.status_of(&self.namespace).relists > self.relists {
            true => Check::Relisted,
            false => Check::Missing,
        }
    }

    /// Whether a change is newer than the state before a write with an unknown outcome. Handlers are
    /// behind the cache.
    ///
    /// Such a change may be the write or not. The object is newer than what the call has read, and a
    /// write that arrives later conflicts or is repeated.
    fn may_arrive_with(&self, change: &CacheChange<'_>) -> bool {
        let Some((before_uid, before)) = &self.before else {
            return true;
        };
        match change {
            CacheChange::Gone { uid, .. } if uid == before_uid => true,
            CacheChange::Version(version) | CacheChange::Gone { version, .. } => {
                compare(version, before).is_none_or(Ordering::is_gt)
            }
        }
    }
}

/// Returns the sources of `resource` with their positions. The version of the group does not
/// matter: all versions of an object share its resource version.
fn of_resource<'a>(
    sources: &'a [Arc<dyn AnySource>],
    resource: &'a GroupVersionResource,
) -> impl Iterator<Item = (usize, &'a dyn AnySource)> {
    let sources = sources.iter().map(|source| &**source).enumerate();
    sources.filter(|(_, source)| {
        let of = source.resource();
        of.group == resource.group && of.resource == resource.resource
    })
}

/// The number of relists of the part with this namespace, including one in progress.
fn relists_begun(source: &dyn AnySource, namespace: &str) -> u64 {
    let status = source.status_of(namespace);
    status.relists + u64::from(status.state == ReflectorState::Listing)
}

fn object_key(target: &ObjectName) -> Key {
    match target.name.is_empty() {
        true => Key::from(""),
        false => target.to_key(),
    }
}

impl Written {
    fn version(version: &str) -> Self {
        let comparable = ResourceVersion::new(version).and_then(Comparable::new);
        comparable.map_or_else(|| Self::Opaque(version.into()), Self::Version)
    }

    fn is_version(&self) -> bool {
        matches!(self, Self::Opaque(_) | Self::Version(_))
    }
}

/// What a key waits for.
impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("a change"),
            Self::Gone(_) => f.write_str("its deletion"),
            Self::Opaque(version) => write!(f, "version {version}"),
            Self::Version(version) => write!(f, "version {version}"),
        }
    }
}

/// Versions that cannot be compared count as reached: waiting would not end.
fn is_at_least(version: &str, wanted: &str) -> bool {
    compare(version, wanted).is_none_or(Ordering::is_ge)
}

/// Compares two versions. `None` if one of them has no order.
fn compare(a: &str, b: &str) -> Option<Ordering> {
    let comparable = |text| ResourceVersion::new(text).and_then(Comparable::new);
    Some(comparable(a)?.cmp(&comparable(b)?))
}

#[cfg(test)]
pub(crate) mod tests;
