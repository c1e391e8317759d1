//! The JSON of `/status`. It contains no objects.

use serde::Serialize;

use super::sharding::Shards;
use crate::controller::call::outcome::{Failure, LastFailure};
use crate::controller::engine::runner::Runner;
use crate::controller::sources::barrier::SourceWait;
use crate::controller::sources::source::AnySource;
use crate::controller::writes::own_writes::AwaitedWrite;
use crate::leader_election::LeaderElector;
use crate::serve::json;
use k8s_informer::object::Key;
use k8s_informer::reflector::ReflectorStatus;

/// The status of a manager.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) informers: Vec<InformerStatus>,
    pub(super) controllers: Vec<ControllerRow>,
    /// `None` without leader election.
    pub(super) leader: Option<LeaderStatus>,
    /// `None` without shards.
    pub(super) shards: Option<ShardsStatus>,
}

impl Status {
    /// Returns one JSON object, with a line break at the end.
    pub(super) fn to_json(&self) -> String {
        // All keys are field names, so this does not fail.
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        json + "\n"
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InformerStatus {
    name: String,
    state: &'static str,
    /// Whether a complete list has reached the store.
    synced: bool,
    objects: usize,
    resource_version: String,
    /// The number of objects so far that could not be decoded, keyed or transformed.
    undecodable: u64,
    /// The number of objects that an index lacks.
    unindexed: usize,
    /// The number of failures since a watch last received something.
    failures: u64,
    /// The last error, which remains after a recovery.
    last_error: Option<String>,
}

impl InformerStatus {
    pub(super) fn of(source: &dyn AnySource) -> Self {
        let status = source.status();
        let row = Self::new(source.name(), &status, source.len());
        match source.shows_missing(&status) {
            true => row.missing(),
            false => row,
        }
    }

    /// `objects` is the number of objects in the store.
    fn new(name: impl Into<String>, status: &ReflectorStatus, objects: usize) -> Self {
        Self {
            name: name.into(),
            state: status.state.as_str(),
            synced: status.listed,
            objects,
            resource_version: (status.resource_version.as_ref())
                .map_or_else(String::new, ToString::to_string),
            undecodable: status.unreadable,
            unindexed: status.unindexed,
            failures: status.failures,
            last_error: status.last_error.as_ref().map(json::short),
        }
    }

    /// Shows that the kind is optional and missing. That its lists are repeated is no problem, and
    /// a list from before means nothing.
    fn missing(self) -> Self {
        Self {
            state: "optional, missing",
            synced: false,
            ..self
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ControllerRow {
    name: String,
    workers: usize,
    active_workers: usize,
    /// The number of keys that are ready for a worker.
    queue_depth: usize,
    /// The number of keys that wait for a delay, a back-off or the controller's own writes.
    waiting: usize,
    /// The informers whose caches may be too old for the first call.
    old_caches: Vec<SourceWait>,
    /// Writes that keys wait for.
    awaited_writes: Vec<AwaitedWrite>,
    /// The number of keys whose last reconcile failed.
    failing: usize,
    /// Some of the failing keys, at most [`MAX_ERRORS`](Self::MAX_ERRORS).
    last_errors: Vec<KeyError>,
}

impl ControllerRow {
    /// The maximum number of errors in the status of one controller.
    const MAX_ERRORS: usize = 20;

    pub(super) fn new(runner: &Runner) -> Self {
        let reconcile_loop = runner.current();
        let status = reconcile_loop.status();
        let failures = reconcile_loop.calls.failures(Self::MAX_ERRORS);
        let error = |(key, last): (Key, LastFailure)| KeyError {
            key,
            error: last.failure,
        };
        Self {
            name: runner.name().to_owned(),
            workers: reconcile_loop.settings.workers,
            active_workers: status.running.len(),
            queue_depth: status.queued,
            waiting: status.delayed + status.postponed,
            old_caches: status.old_caches,
            awaited_writes: status.awaited,
            failing: status.failing,
            last_errors: failures.into_iter().map(error).collect(),
        }
    }
}

/// A failing key.
#[derive(Clone, Debug, Serialize)]
struct KeyError {
    #[serde(serialize_with = "json::text")]
    key: Key,
    #[serde(serialize_with = "json::one_line")]
    error: Failure,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaderStatus {
    /// The identity of this process.
    identity: String,
    is_leader: bool,
    /// The identity of the current leader, if it is known.
    leader: Option<String>,
}

impl LeaderStatus {
    pub(super) fn new(elector: &LeaderElector) -> Self {
        Self {
            identity: elector.identity().to_owned(),
            is_leader: elector.is_leader(),
            leader: elector.leader(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShardsStatus {
    /// The index of the shard that this process has.
    shard: Option<u32>,
    count: u32,
    /// The number of shards with a holder.
    with_holder: usize,
    /// A held Lease of another division, for whose release this process waits.
    other_division: Option<String>,
    /// The error of the last list of the Leases.
    last_error: Option<String>,
}

impl ShardsStatus {
    pub(super) fn new(shards: &Shards) -> Self {
        let view = shards.view();
        Self {
            shard: shards.own().map(|(shard, _)| *shard),
            count: shards.options.count,
            with_holder: view.held,
            other_division: view.other.map(|term| term.lease),
            last_error: view.last_error.as_ref().map(json::short),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use k8s_informer::reflector::ReflectorState;

    use super::*;
    use k8s_informer::__private::EscapedText;
    use k8s_informer::error::Error;
    use k8s_informer::object::ResourceVersion;

    fn parsed(status: &Status) -> Value {
        serde_json::from_str(&status.to_json()).unwrap()
    }

    #[test]
    fn status_is_json_with_all_fields() {
        let mut reflector = ReflectorStatus::default();
        reflector.state = ReflectorState::BackingOff;
        reflector.listed = true;
        reflector.resource_version = ResourceVersion::new("41");
        reflector.unreadable = 2;
        reflector.unindexed = 1;
        reflector.failures = 3;
        reflector.last_error = Some(Error::other("the server is \"down\""));
        let team = ControllerRow {
            name: "team".to_owned(),
            workers: 4,
            active_workers: 1,
            queue_depth: 7,
            waiting: 5,
            old_caches: vec![SourceWait {
                informer: "secrets".to_owned(),
                reason: "forbidden".to_owned(),
                since: Duration::from_millis(12_900),
            }],
            awaited_writes: vec![AwaitedWrite {
                key: "default/b".into(),
                informer: "configmaps".to_owned(),
                object: "default/m".into(),
                change: "version 71".to_owned(),
                since: Duration::from_secs(8),
            }],
            failing: 1,
            last_errors: vec![KeyError {
                key: "default/a".into(),
                error: Failure::new("no bucket"),
            }],
        };
        let status = Status {
            informers: vec![InformerStatus::new("teams.v1.example.com", &reflector, 9)],
            controllers: vec![team],
            leader: Some(LeaderStatus {
                identity: "host-1".to_owned(),
                is_leader: false,
                leader: Some("host-2".to_owned()),
            }),
            shards: Some(ShardsStatus {
                shard: Some(1),
                count: 4,
                with_holder: 3,
                other_division: Some("team-0-of-5-by-uid".to_owned()),
                last_error: None,
            }),
        };
        assert_eq!(
            parsed(&status),
            json!({
                "informers": [{
                    "name": "teams.v1.example.com", "state": "backingOff", "synced": true,
                    "objects": 9, "resourceVersion": "41", "undecodable": 2, "unindexed": 1, "failures": 3,
                    "lastError": "the server is \"down\"",
                }],
                "controllers": [{
                    "name": "team", "workers": 4, "activeWorkers": 1, "queueDepth": 7, "waiting": 5,
                    "oldCaches": [{"informer": "secrets", "reason": "forbidden", "seconds": 12}],
                    "awaitedWrites": [{
                        "key": "default/b", "informer": "configmaps", "object": "default/m",
                        "change": "version 71", "seconds": 8,
                    }],
                    "failing": 1, "lastErrors": [{"key": "default/a", "error": "no bucket"}],
                }],
                "leader": {"identity": "host-1", "isLeader": false, "leader": "host-2"},
                "shards": {
                    "shard": 1, "count": 4, "withHolder": 3, "otherDivision": "team-0-of-5-by-uid",
                    "lastError": null,
                },
            })
        );
        assert_eq!(
            parsed(&Status::default()),
            json!({"informers": [], "controllers": [], "leader": null, "shards": null})
        );
    }

    #[test]
    fn errors_are_bounded_in_length() {
        let error = KeyError {
            key: "default/0".into(),
            error: Failure::new("x".repeat(100_000)),
        };
        let json = serde_json::to_value(error).unwrap();
        assert_eq!(json["key"], "default/0");
        assert!(json["error"].as_str().unwrap().len() < 2 * EscapedText::LENGTH);
    }
}
