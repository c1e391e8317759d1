//! The objects, and the messages from a replica. Each message is a line of JSON.

use std::collections::BTreeMap;

use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::{FullMetadata, FullObjectMeta};
use k8s_informer::reflector::Shard;
use k8s_informer::{Object, impl_full_metadata, impl_object};
use k8s_informer_controller::ShardBy;
use serde::{Deserialize, Serialize};

use crate::timing::Micros;

/// The namespace of the Leases.
pub(crate) const NAMESPACE: &str = "default";

/// The name of the set of shards.
pub(crate) const NAME: &str = "chaos";

/// The object that threads change which ignore each stop.
pub(crate) const RUDE: &str = "rude";

/// The label of the reconciled objects.
pub(crate) const LABEL: &str = "chaos-shards";

/// A reconciled object. It wants one child.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Primary {
    pub(crate) metadata: FullObjectMeta,
    #[expect(dead_code, reason = "it uses memory in the cache")]
    data: BTreeMap<String, String>,
}
impl_object!(Primary, "v1", "ConfigMap", "configmaps", Namespaced);
impl_full_metadata!(Primary);

/// A child, with a generated name.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Child {
    pub(crate) metadata: FullObjectMeta,
}
impl_object!(Child, "v1", "Secret", "secrets", Namespaced);
impl_full_metadata!(Child);

/// Returns the scope of the reconciled objects.
pub(crate) fn labelled() -> InformerScope {
    InformerScope::all().label_selector(LABEL.parse().expect("a selector"))
}

pub(crate) fn primaries() -> Source<Primary> {
    Source::of::<Primary>().scope(labelled())
}

pub(crate) fn revision(object: &impl Object) -> u64 {
    object.resource_version().parse().expect("a number")
}

/// The revisions of objects, by UID.
pub(crate) type Revisions = BTreeMap<String, u64>;

/// An object on the server.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) uid: String,
    pub(crate) revision: u64,
    pub(crate) namespace: String,
    /// In seconds, as the server has written it.
    pub(crate) created: Option<String>,
    /// The UID of the object on which its shard depends if objects are divided by UID.
    pub(crate) owner: String,
}

impl Listed {
    /// Returns a reconciled object, or a child with its owner.
    pub(crate) fn new(object: &impl FullMetadata) -> Self {
        let metadata = object.full_metadata().expect("metadata");
        let owner = metadata.controller().map(|owner| owner.uid.as_str());
        Self {
            uid: object.uid().to_owned(),
            revision: revision(object),
            namespace: object.namespace().to_owned(),
            created: metadata.creation_timestamp.clone(),
            owner: owner.unwrap_or(object.uid()).to_owned(),
        }
    }

    pub(crate) fn is_in(&self, shard: &Shard, by: ShardBy) -> bool {
        shard.contains(match by {
            ShardBy::Namespace => &self.namespace,
            ShardBy::Uid => &self.owner,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// This process certainly had the shard from `first` to `last`.
    Held {
        shard: u32,
        first: Micros,
        last: Micros,
    },
    /// The first lists have taken so long.
    Synced(Micros),
    /// After the first lists, an informer had no watch at `from`. It may have got one until `until`.
    Unwatched { from: Micros, until: Micros },
    /// A call has begun.
    Began {
        uid: String,
        revision: u64,
        at: Micros,
        /// How long the key has waited while other calls were possible.
        waited: Micros,
        /// Whether `ensure` has succeeded.
        ensured: bool,
    },
    /// A call is about to return. `ensure` has succeeded from its begin to `until`, if at all.
    Ended {
        uid: String,
        from: Micros,
        until: Option<Micros>,
    },
    /// The next request creates a child.
    Creating { uid: String, at: Micros },
    /// The request has ended.
    Created { uid: String, outcome: Outcome },
    /// The caches, on request.
    Caches(Caches),
    /// The thread that ignores each stop has sent so many changes through its gate since the last
    /// report, and the gate has refused so many.
    Gated { changes: u64, refused: u64 },
    /// Something that must never happen.
    Violation(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The server has created the child, and `ensure` succeeds after that.
    Known,
    /// The server has created the child, and `ensure` fails.
    Late,
    Refused,
    Unknown,
    /// The process has not reported the end of the request.
    Missing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Caches {
    pub(crate) shard: Option<u32>,
    pub(crate) primaries: Revisions,
    pub(crate) children: Revisions,
}
