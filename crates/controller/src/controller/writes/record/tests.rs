//! The writes of a controller, with scripted caches.

use std::any::Any;
use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::controller::sources::division::{Division, Indivisible, ShardBy};
use crate::controller::sources::presence::Presence;
use k8s_informer::error::WaitError;
use k8s_informer::informer::InformerError;
use k8s_informer::object::{DynamicObject, Object, ResourceVersion};
use k8s_informer::reflector::{ReflectorStatus, Shard};
use k8s_informer::stop::{Done, DoneSetter, Stop};

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

/// A cache of ConfigMaps whose content the test sets.
pub(in crate::controller) struct Scripted {
    resource: GroupVersionResource,
    /// Empty for all namespaces.
    namespaces: Vec<&'static str>,
    coverage: Mutex<Option<Coverage>>,
    objects: Mutex<HashMap<String, (String, String)>>,
    /// The processed versions by namespace.
    processed: Mutex<HashMap<&'static str, &'static str>>,
    relists: Mutex<HashMap<&'static str, u64>>,
    is_listing: Mutex<bool>,
    synced: Done,
}

impl Scripted {
    pub(in crate::controller) fn new() -> Self {
        Self {
            resource: maps(),
            namespaces: Vec::new(),
            coverage: Mutex::default(),
            objects: Mutex::default(),
            processed: Mutex::default(),
            relists: Mutex::default(),
            is_listing: Mutex::default(),
            synced: DoneSetter::new("configmaps").signal(),
        }
    }

    pub(in crate::controller) fn store(&self, key: &str, uid: &str, version: &str) {
        let entry = (uid.to_owned(), version.to_owned());
        self.objects.lock().insert(key.to_owned(), entry);
    }

    fn relist(&self, namespace: &'static str) {
        *self.relists.lock().entry(namespace).or_default() += 1;
    }
}

impl AnySource for Scripted {
    fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    fn coverage(&self, object: &dyn Object) -> Coverage {
        match self.covers_namespace(object.namespace()) {
            true => self.coverage.lock().unwrap_or(Coverage::Yes),
            false => Coverage::No,
        }
    }

    fn covers_namespace(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(&namespace)
    }

    fn cached(&self, key: &str) -> Option<(String, String)> {
        self.objects.lock().get(key).cloned()
    }

    fn has_processed(&self, namespace: &str, version: &str) -> bool {
        let processed = self.processed.lock();
        processed
            .get(namespace)
            .is_some_and(|processed| is_at_least(processed, version))
    }

    fn status_of(&self, namespace: &str) -> ReflectorStatus {
        let mut status = ReflectorStatus::default();
        let relists = self.relists.lock();
        status.relists = relists.get(namespace).copied().unwrap_or_default();
        if *self.is_listing.lock() {
            status.state = ReflectorState::Listing;
        }
        status
    }

    fn wait_for_version(
        &self,
        version: &ResourceVersion,
        _timeout: Duration,
    ) -> Result<Option<ResourceVersion>, WaitError> {
        Ok(Some(version.clone()))
    }

    fn wait_until_current(&self, _since: Instant, _stop: &Stop) -> Result<(), WaitError> {
        Ok(())
    }

    fn name(&self) -> &str {
        "configmaps"
    }

    fn status(&self) -> ReflectorStatus {
        ReflectorStatus::default()
    }

    fn newest_version(&self) -> Option<ResourceVersion> {
        None
    }

    fn len(&self) -> usize {
        self.objects.lock().len()
    }

    fn synced(&self) -> &Done {
        &self.synced
    }

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn is_of_unknown_kind(&self) -> bool {
        false
    }

    fn presence(&self) -> Option<&Presence> {
        None
    }

    fn division(&self, _: ShardBy) -> Result<Division, Indivisible> {
        Ok(Division::Whole)
    }

    fn divide(&self, _: Division, _: Shard) -> Result<(), InformerError> {
        Ok(())
    }

    fn may_have(&self, _: &Key) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The writes of one controller and its caches.
struct Caches {
    scripted: Vec<Arc<Scripted>>,
    sources: Vec<Arc<dyn AnySource>>,
    writes: WriteRecord,
    now: Instant,
}

impl Caches {
    fn new(scripted: impl IntoIterator<Item = Scripted>) -> Self {
        let scripted: Vec<_> = scripted.into_iter().map(Arc::new).collect();
        let erased = |source: &Arc<Scripted>| Arc::clone(source) as Arc<dyn AnySource>;
        Self {
            sources: scripted.iter().map(erased).collect(),
            scripted,
            writes: WriteRecord::default(),
            now: Instant::now(),
        }
    }

    fn one() -> Self {
        Self::new([Scripted::new()])
    }

    fn source(&self) -> &Scripted {
        &self.scripted[0]
    }

    fn outcome(
        &mut self,
        key: &str,
        target: ObjectName,
        outcome: &WriteOutcome<'_>,
        before: CachedStates,
    ) -> usize {
        let (maps, times) = (maps(), self.times());
        let writes = Write::of_outcome(&self.sources, &maps, target, outcome, before, times);
        let count = writes.len();
        let key = Key::from(key);
        writes
            .into_iter()
            .for_each(|write| self.writes.add(&key, write));
        count
    }

    /// The response of a write of the ConfigMap `namespace/name`. Returns the number of sources.
    fn written(&mut self, key: &str, namespace: &str, name: &str, version: &str) -> usize {
        let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": version});
        let object: DynamicObject = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let target = ObjectName::of(&object);
        self.outcome(key, target, &WriteOutcome::Written(&object), Vec::new())
    }

    fn deleted(&mut self, key: &str, name: &str, uid: &str) -> usize {
        let target = ObjectName::new("a", name);
        let before = Write::before(&self.sources, &maps(), &target);
        self.outcome(key, target, &WriteOutcome::Deleted { uid }, before)
    }

    fn unknown(&mut self, key: &str, name: &str) -> usize {
        let target = ObjectName::new("a", name);
        let before = Write::before(&self.sources, &maps(), &target);
        self.outcome(key, target, &WriteOutcome::Unknown, before)
    }

    /// The source has stored a version of the ConfigMap `a/name`. Returns the keys that continue.
    fn stored(&mut self, source: usize, name: &str, version: &str) -> Vec<Key> {
        self.observed(source, name, CacheChange::Version(version))
    }

    fn gone(&mut self, name: &str, uid: &str, version: &str) -> Vec<Key> {
        self.observed(0, name, CacheChange::Gone { uid, version })
    }

    fn observed(&mut self, source: usize, name: &str, change: CacheChange<'_>) -> Vec<Key> {
        let object = ObjectName::new("a", name).to_key();
        self.writes.observed(source, &object, &change)
    }

    fn times(&self) -> Times {
        Times::new(self.now, TIMEOUT, TIMEOUT)
    }

    fn check(&mut self, key: &str) -> Settled {
        let key = Key::from(key);
        let writes = self.writes.of(&key);
        let checks = writes.map(|write| (write.id, write.check(&self.sources, self.now)));
        let checks = checks.collect();
        self.writes.settle(&key, &checks, self.now, TIMEOUT)
    }

    fn is_ready(&mut self, key: &str) -> bool {
        self.check(key) == Settled::default()
    }

    /// Advances to the next check. Returns the sources that are late.
    fn late_at_next_check(&mut self, key: &str) -> Vec<usize> {
        self.now += TIMEOUT;
        let settled = self.check(key);
        assert!(settled.check_at.is_some(), "{key} is ready");
        settled.late.into_iter().collect()
    }

    #[track_caller]
    fn assert_empty(&self) {
        let WriteRecord { writes, keys, .. } = &self.writes;
        assert!(writes.is_empty() && keys.is_empty(), "{keys:?}");
    }
}

pub(in crate::controller) fn maps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

#[test]
fn write_ends_with_event_of_its_version() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    assert!(!caches.is_ready("team"));
    assert!(caches.stored(0, "m", "4").is_empty());
    assert!(caches.stored(0, "other", "9").is_empty());
    assert_eq!(caches.stored(0, "m", "5"), ["team"]);
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}

#[test]
fn write_ends_when_the_cache_has_its_version() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.source().store("a/m", "u1", "4");
    assert!(!caches.is_ready("team"));
    caches.source().store("a/m", "u1", "5");
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}

#[test]
fn write_of_object_deleted_in_outage_ends_by_watermark() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.source().processed.lock().insert("b", "9");
    assert!(!caches.is_ready("team"));
    caches.source().processed.lock().insert("a", "5");
    assert!(caches.is_ready("team"));
}

#[test]
fn newest_of_several_versions_counts() {
    for versions in [
        ["5", "9", "7"],
        ["9", "5", "7"],
        ["5", "7", "9"],
        ["9", "10", "8"],
    ] {
        let mut caches = Caches::one();
        for version in versions {
            caches.written("team", "a", "m", version);
        }
        assert!(caches.stored(0, "m", "8").is_empty(), "{versions:?}");
        assert_eq!(caches.stored(0, "m", "10"), ["team"]);
        caches.assert_empty();
    }
}

#[test]
fn deletion_of_a_later_version_ends_the_write() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    assert!(caches.gone("m", "u1", "4").is_empty());
    assert_eq!(caches.gone("m", "u1", "6"), ["team"]);
}

#[test]
fn deletion_ends_when_its_uid_is_gone() {
    let mut caches = Caches::one();
    caches.source().store("a/m", "u1", "4");
    caches.deleted("team", "m", "u1");
    assert!(!caches.is_ready("team"));
    assert!(caches.stored(0, "m", "9").is_empty());
    assert!(caches.gone("m", "u2", "9").is_empty());
    assert_eq!(caches.gone("m", "u1", "9"), ["team"]);
    caches.assert_empty();
}

#[test]
fn deletion_of_recreated_object_ends_with_the_new_uid() {
    let mut caches = Caches::one();
    caches.source().store("a/m", "u1", "4");
    caches.deleted("team", "m", "u1");
    assert!(!caches.is_ready("team"));
    caches.source().store("a/m", "u2", "9");
    assert!(caches.is_ready("team"));
}

#[test]
fn deletion_without_uid_concerns_the_cached_object() {
    let mut caches = Caches::one();
    assert_eq!(caches.deleted("team", "m", ""), 0);
    caches.source().store("a/m", "u1", "4");
    assert_eq!(caches.deleted("team", "m", ""), 1);
    assert_eq!(caches.gone("m", "u1", "5"), ["team"]);
}

/// While the watch is stalled, the cache lacks the object both before its creation and after its
/// deletion.
#[test]
fn deletion_of_created_object_waits_for_both_events() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.deleted("team", "m", "u1");
    assert!(!caches.is_ready("team"));
    caches.source().store("a/m", "u1", "5");
    assert!(caches.stored(0, "m", "5").is_empty());
    assert!(!caches.is_ready("team"));
    assert_eq!(caches.gone("m", "u1", "6"), ["team"]);
    caches.assert_empty();
}

#[test]
fn creation_and_deletion_in_outage_end_by_watermark() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.deleted("team", "m", "u1");
    caches.source().processed.lock().insert("a", "6");
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}

#[test]
fn unknown_outcome_ends_with_any_event_of_the_name() {
    let mut caches = Caches::one();
    caches.unknown("team", "m");
    assert!(!caches.is_ready("team"));
    assert!(caches.stored(0, "other", "9").is_empty());
    assert_eq!(caches.stored(0, "m", "1"), ["team"]);
    caches.unknown("team", "m");
    assert_eq!(caches.gone("m", "u1", ""), ["team"]);
    caches.assert_empty();
}

#[test]
fn unknown_outcome_of_generated_name_ends_at_the_timeout() {
    let mut caches = Caches::one();
    caches.unknown("team", "");
    assert!(caches.stored(0, "m", "9").is_empty());
    caches.now += TIMEOUT - SECOND;
    assert!(!caches.is_ready("team"));
    caches.now += SECOND;
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}

#[test]
fn stalled_watch_is_late_once_per_check() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.written("team", "a", "n", "6");
    for _ in 0..3 {
        assert_eq!(caches.late_at_next_check("team"), [0]);
        let due = caches.now + TIMEOUT;
        let waits = Settled {
            check_at: Some(due),
            ..Settled::default()
        };
        assert_eq!(caches.check("team"), waits);
    }
}

/// A list can come from an API server that is behind, so the watch has time to deliver the write.
#[test]
fn write_lost_by_a_restore_ends_at_the_second_check() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.source().store("a/m", "u1", "3");
    caches.deleted("team", "n", "u2");
    caches.source().store("a/n", "u2", "2");
    caches.source().relist("a");
    assert!(!caches.is_ready("team"));
    assert_eq!(caches.late_at_next_check("team"), [0]);
    caches.now += TIMEOUT;
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}

#[test]
fn list_begun_before_the_write_does_not_end_it() {
    let mut caches = Caches::one();
    *caches.source().is_listing.lock() = true;
    caches.written("team", "a", "m", "5");
    *caches.source().is_listing.lock() = false;
    caches.source().relist("a");
    for _ in 0..3 {
        assert_eq!(caches.late_at_next_check("team"), [0]);
    }
    caches.source().relist("a");
    caches.late_at_next_check("team");
    caches.now += TIMEOUT;
    assert!(caches.is_ready("team"));
}

#[test]
fn relist_of_another_namespace_does_not_end_the_write() {
    let mut caches = Caches::new([Scripted {
        namespaces: vec!["a", "b"],
        ..Scripted::new()
    }]);
    caches.written("team", "a", "m", "5");
    caches.source().relist("b");
    for _ in 0..3 {
        assert_eq!(caches.late_at_next_check("team"), [0]);
    }
}

#[test]
fn write_is_awaited_by_each_source_of_its_resource() {
    let secrets = Scripted {
        resource: GroupVersionResource::new("", "v1", "secrets"),
        ..Scripted::new()
    };
    let grouped = Scripted {
        resource: GroupVersionResource::new("example.com", "v1", "configmaps"),
        ..Scripted::new()
    };
    let other_version = Scripted {
        resource: GroupVersionResource::new("", "v2", "configmaps"),
        namespaces: vec!["a"],
        ..Scripted::new()
    };
    let mut caches = Caches::new([Scripted::new(), secrets, grouped, other_version]);
    assert_eq!(caches.written("team", "a", "m", "5"), 2);
    assert!(caches.stored(0, "m", "5").is_empty());
    assert!(!caches.is_ready("team"));
    assert_eq!(caches.stored(3, "m", "5"), ["team"]);
    caches.assert_empty();
}

#[test]
fn writes_outside_the_scope_are_not_awaited() {
    let mut caches = Caches::new([Scripted {
        namespaces: vec!["b"],
        ..Scripted::new()
    }]);
    assert_eq!(caches.written("team", "a", "m", "5"), 0);
    assert_eq!(caches.unknown("team", "m"), 0);
    assert_eq!(caches.written("team", "b", "m", "5"), 1);
    *caches.source().coverage.lock() = Some(Coverage::No);
    assert_eq!(caches.written("team", "b", "n", "5"), 0);
}

/// Only the server knows whether the object is in the scope. The version ends the wait, not the time.
#[test]
fn write_with_unknown_scope_is_awaited_until_its_version() {
    let mut caches = Caches::one();
    *caches.source().coverage.lock() = Some(Coverage::Unknown);
    caches.written("team", "a", "m", "5");
    let settled = caches.check("team");
    assert!(settled.unproven.is_empty());
    assert_eq!(settled.check_at, Some(caches.now + PROVE_AFTER));
    caches.now += PROVE_AFTER;
    let settled = caches.check("team");
    assert_eq!(settled.unproven, BTreeSet::from([0]));
    assert_eq!(settled.check_at, Some(caches.now + PROVE_AFTER));
    caches.now += 10 * TIMEOUT;
    assert!(!caches.is_ready("team"));
    caches.source().processed.lock().insert("a", "5");
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}

#[test]
fn versions_without_an_order_count_as_reached() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    assert_eq!(caches.stored(0, "m", "x"), ["team"]);
}

#[test]
fn keys_that_wrote_one_object_continue_separately() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.written("crew", "a", "m", "6");
    assert_eq!(caches.stored(0, "m", "5"), ["team"]);
    assert!(caches.is_ready("team") && !caches.is_ready("crew"));
    assert_eq!(caches.stored(0, "m", "6"), ["crew"]);
    caches.assert_empty();
}

#[test]
fn key_continues_after_the_last_of_its_writes() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "5");
    caches.written("team", "a", "n", "6");
    caches.unknown("team", "o");
    assert!(caches.stored(0, "n", "6").is_empty());
    assert!(caches.stored(0, "o", "7").is_empty());
    assert_eq!(caches.stored(0, "m", "5"), ["team"]);
}

#[test]
fn deletion_without_uid_ignores_a_newer_object() {
    let mut caches = Caches::one();
    caches.source().store("a/m", "u1", "4");
    let target = ObjectName::new("a", "m");
    let before = Write::before(&caches.sources, &maps(), &target);
    // The object is deleted and created again before the response arrives.
    caches.source().store("a/m", "u2", "9");
    let deleted = WriteOutcome::Deleted { uid: "" };
    assert_eq!(caches.outcome("team", target, &deleted, before), 1);
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}

#[test]
fn unknown_outcome_ends_if_the_cache_has_changed() {
    let mut caches = Caches::one();
    let target = ObjectName::new("a", "m");
    for version in ["4", "5"] {
        let before = Write::before(&caches.sources, &maps(), &target);
        caches.source().store("a/m", "u1", version);
        caches.outcome("team", target.clone(), &WriteOutcome::Unknown, before);
        assert!(caches.is_ready("team"), "{version}");
    }
    caches.assert_empty();
}

#[test]
fn unknown_outcome_does_not_end_with_an_earlier_event() {
    let mut caches = Caches::one();
    caches.source().store("a/m", "u2", "7");
    caches.unknown("team", "m");
    // Handlers are behind the cache.
    for version in ["4", "7"] {
        assert!(caches.stored(0, "m", version).is_empty());
    }
    assert!(caches.gone("m", "u1", "4").is_empty());
    assert!(!caches.is_ready("team"));
    assert_eq!(caches.stored(0, "m", "8"), ["team"]);
    caches.unknown("team", "m");
    assert_eq!(caches.gone("m", "u2", "7"), ["team"]);
    caches.assert_empty();
}

#[test]
fn object_that_remains_is_awaited_for_a_limited_time() {
    let mut caches = Caches::one();
    caches.source().store("a/m", "u1", "4");
    caches.deleted("team", "m", "u1");
    for _ in 0..2 {
        assert_eq!(caches.late_at_next_check("team"), [0]);
    }
    caches.now += TIMEOUT;
    let settled = caches.check("team");
    assert_eq!(settled.given_up, [(0, Key::from("a/m"))]);
    assert_eq!(settled.check_at, None);
    caches.assert_empty();
}

#[test]
fn version_without_an_order_is_awaited_for_a_limited_time() {
    let mut caches = Caches::one();
    caches.written("team", "a", "m", "x");
    assert!(!caches.is_ready("team"));
    caches.now += TIMEOUT;
    assert!(caches.is_ready("team"));
    caches.written("team", "a", "m", "a long one");
    assert_eq!(caches.stored(0, "m", "5"), ["team"]);
    caches.assert_empty();
}

#[test]
fn version_replaces_earlier_writes_of_the_object() {
    let mut caches = Caches::one();
    for version in 0..1000 {
        caches.deleted("team", "m", &format!("u{version}"));
        caches.unknown("team", "m");
        caches.written("team", "a", "m", &(5 + version).to_string());
    }
    assert_eq!(caches.writes.of(&"team".into()).count(), 1);
    assert_eq!(caches.stored(0, "m", "1004"), ["team"]);
    caches.assert_empty();
}

/// Each event ends the waits of those keys whose versions it reaches, and visits no others.
#[test]
fn each_version_of_a_shared_object_ends_the_waits_for_it() {
    const KEYS: usize = 100_000;
    let mut caches = Caches::one();
    let key = |number: usize| format!("team-{number}");
    for number in 0..KEYS {
        caches.written(&key(number), "a", "m", &(number + 1).to_string());
    }
    for number in 0..KEYS {
        let version = (number + 1).to_string();
        assert_eq!(caches.stored(0, "m", &version), [Key::from(key(number))]);
    }
    caches.assert_empty();
    for number in 0..KEYS {
        caches.written(&key(number), "a", "m", "5");
    }
    assert_eq!(caches.gone("m", "u1", "5").len(), KEYS);
    caches.assert_empty();
}

#[test]
fn many_writes_of_one_key_end_one_by_one_or_together() {
    const WRITES: usize = 100_000;
    let mut caches = Caches::one();
    let name = |number: usize| format!("m-{number}");
    let write_all = |caches: &mut Caches| {
        for number in 0..WRITES {
            caches.written("team", "a", &name(number), "5");
        }
    };
    write_all(&mut caches);
    assert!(!caches.is_ready("team"));
    for number in 0..WRITES - 1 {
        assert!(caches.stored(0, &name(number), "5").is_empty());
    }
    assert_eq!(
        caches.stored(0, &name(WRITES - 1), "5"),
        [Key::from("team")]
    );
    caches.assert_empty();
    write_all(&mut caches);
    caches.source().processed.lock().insert("a", "5");
    assert!(caches.is_ready("team"));
    caches.assert_empty();
}
