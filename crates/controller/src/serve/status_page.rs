//! The JSON of `/status`. It contains no objects.

use std::time::Duration;

use serde::Serialize;

use k8s_informer::__private::EscapedText;
use k8s_informer::reflector::ReflectorStatus;

/// The status of a manager.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) informers: Vec<InformerStatus>,
    pub(crate) controllers: Vec<ControllerStatus>,
    /// `None` without leader election.
    pub(crate) leader: Option<LeaderStatus>,
    /// `None` without shards.
    pub(crate) shards: Option<ShardsStatus>,
}

impl Status {
    /// Returns one JSON object, with a line break at the end.
    pub(crate) fn to_json(&self) -> String {
        // All keys are field names, so this does not fail.
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        json + "\n"
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InformerStatus {
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
    /// `objects` is the number of objects in the store.
    pub(crate) fn new(name: impl Into<String>, status: &ReflectorStatus, objects: usize) -> Self {
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
            last_error: status.last_error.as_ref().map(short),
        }
    }

    /// Shows that the kind is optional and missing. That its lists are repeated is no problem, and
    /// a list from before means nothing.
    pub(crate) fn missing(self) -> Self {
        Self {
            state: "optional, missing",
            synced: false,
            ..self
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControllerStatus {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) active_workers: usize,
    /// The number of keys that are ready for a worker.
    pub(crate) queue_depth: usize,
    /// The number of keys that wait for a delay, a back-off or the controller's own writes.
    pub(crate) waiting: usize,
    /// The informers whose caches may be too old for the first call.
    pub(crate) old_caches: Vec<SourceWait>,
    /// Writes that keys wait for.
    pub(crate) awaited_writes: Vec<AwaitedWrite>,
    /// The number of keys whose last reconcile failed.
    pub(crate) failing: usize,
    /// Some of the failing keys, at most [`MAX_ERRORS`](Self::MAX_ERRORS).
    pub(crate) last_errors: Vec<KeyError>,
}

impl ControllerStatus {
    /// The maximum number of errors in the status of one controller.
    pub(crate) const MAX_ERRORS: usize = 20;
}

/// A write that the cache of an informer lacks, and the key that waits for it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AwaitedWrite {
    pub(crate) key: String,
    pub(crate) informer: String,
    /// The key of the written object.
    pub(crate) object: String,
    /// What the cache lacks: a version, the deletion or a change.
    pub(crate) change: String,
    /// The seconds since the write.
    pub(crate) seconds: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceWait {
    informer: String,
    reason: String,
    seconds: u64,
}

impl SourceWait {
    pub(crate) fn new(informer: String, reason: &str, time: Duration) -> Self {
        Self {
            informer,
            reason: short(&reason),
            seconds: time.as_secs(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyError {
    key: String,
    /// One line of limited length.
    error: String,
}

impl KeyError {
    pub(crate) fn new(key: String, error: &impl ToString) -> Self {
        let error = short(error);
        Self { key, error }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaderStatus {
    /// The identity of this process.
    pub(crate) identity: String,
    pub(crate) is_leader: bool,
    /// The identity of the current leader, if it is known.
    pub(crate) leader: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShardsStatus {
    /// The index of the shard that this process has.
    pub(crate) shard: Option<u32>,
    pub(crate) count: u32,
    /// The number of shards with a holder.
    pub(crate) with_holder: usize,
    /// A held Lease of another division, for whose release this process waits.
    pub(crate) other_division: Option<String>,
    /// The error of the last list of the Leases.
    pub(crate) last_error: Option<String>,
}

pub(crate) fn short(error: &impl ToString) -> String {
    EscapedText(&error.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use k8s_informer::reflector::ReflectorState;

    use super::*;
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
        let team = ControllerStatus {
            name: "team".to_owned(),
            workers: 4,
            active_workers: 1,
            queue_depth: 7,
            waiting: 5,
            old_caches: vec![SourceWait::new(
                "secrets".to_owned(),
                "forbidden",
                Duration::from_secs(12),
            )],
            awaited_writes: vec![AwaitedWrite {
                key: "default/b".to_owned(),
                informer: "configmaps".to_owned(),
                object: "default/m".to_owned(),
                change: "version 71".to_owned(),
                seconds: 8,
            }],
            failing: 1,
            last_errors: vec![KeyError::new("default/a".to_owned(), &"no bucket")],
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
        let error = KeyError::new("default/0".to_owned(), &"x".repeat(100_000));
        assert_eq!(error.key, "default/0");
        assert!(error.error.len() < 2 * EscapedText::LENGTH);
    }
}
