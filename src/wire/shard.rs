use std::fmt;

use crate::error::debug_as_display;
use crate::object::FullObjectMeta;

/// One of several equal parts of the objects of a kind. If each replica of a program takes one
/// shard, the replicas share objects that are too many for one process.
///
/// **Experimental**: the support of the API server is alpha in Kubernetes 1.36 (KEP-5866, feature
/// gate `ShardedListAndWatch`). client-go has no counterpart.
///
/// The shard of an object depends on a hash of its UID, its namespace, or the UID of its controller:
/// 64-bit FNV-1a, as in the API server. Shard `i` of `n` has the hashes from `i * 2^64 / n` up to
/// but not including `(i + 1) * 2^64 / n`, both rounded down. Each hash is therefore in exactly one
/// shard, and the sizes of two shards differ by one hash at most.
///
/// The UID and the namespace of an object never change, so the object never moves to another shard.
/// A shard by controller is different: the controller can change. All replicas must use the same
/// `n`, because every `n` divides the objects differently.
///
/// The first list of a shard requests no `resourceVersion`, so it is not older than its request.
///
/// ```
/// use k8s_informer::reflector::{ReflectorOptions, Shard};
///
/// let shards = (0..3).map(|index| Shard::new(index, 3)).collect::<Result<Vec<_>, _>>()?;
/// let uid = "0c1ba5ee-1a5c-4c41-8d5b-0b4ab1b3a9b1";
/// assert_eq!(shards.iter().filter(|shard| shard.contains(uid)).count(), 1);
///
/// let mut options = ReflectorOptions::default();
/// options.shard = Some(shards[1].clone());
/// assert_eq!(
///     shards[1].selector().unwrap(),
///     "shardRange(object.metadata.uid, '0x5555555555555555', '0xaaaaaaaaaaaaaaaa')"
/// );
/// assert!(Shard::new(3, 3).is_err());
/// # Ok::<(), k8s_informer::reflector::ShardError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    pub(super) by: ShardBy,
    first: u64,
    last: u64,
}

/// The field of the object on which its shard depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ShardBy {
    Uid,
    Namespace,
    Controller,
}

impl Shard {
    /// Returns shard `index` of `count` shards by UID. The first index is 0.
    ///
    /// # Errors
    ///
    /// [`ShardError`] if `index` is not less than `count`.
    pub fn new(index: u32, count: u32) -> Result<Self, ShardError> {
        if index >= count {
            return Err(ShardError { index, count });
        }
        let begin = |index: u64| (u128::from(index) << 64) / u128::from(count);
        let (first, end) = (begin(index.into()), begin(u64::from(index) + 1));
        // `first` and `end - 1` are below 2^64. No shard is empty, so `end - 1` is not below
        // `first`.
        Ok(Self {
            by: ShardBy::Uid,
            first: first as u64,
            last: (end - 1) as u64,
        })
    }

    /// Divides the objects by namespace instead of UID. All objects of a namespace are then in one
    /// shard, and all cluster-scoped objects are in one shard. Namespaces with similar names tend to
    /// be in the same shard.
    #[must_use]
    pub fn by_namespace(self) -> Self {
        let by = ShardBy::Namespace;
        Self { by, ..self }
    }

    /// Divides the objects by the UID of their controller: children are in the shard of their
    /// owner. Objects without a controller owner reference are in no shard.
    ///
    /// API servers do not support this. The server sends all objects, and the reflector drops those
    /// of other shards before it decodes them. If an object moves to a controller of another shard,
    /// it is deleted from the store.
    ///
    /// ```
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::reflector::Shard;
    /// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// for (name, owner) in [("own", "ab"), ("other", "abc")] {
    ///     let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
    ///     let pod = json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"containers": []}});
    ///     server.create("/api/v1/namespaces/default/pods", pod)?;
    /// }
    /// let shard = Shard::new(0, 2)?;
    /// assert!(shard.contains("ab") && !shard.contains("abc"));
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let pods = factory.informer_for(Source::of::<Pod>().scope(InformerScope::all().shard(shard.by_controller())));
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(None, &stop)?;
    /// let names: Vec<_> = pods.lister().list().iter().map(|pod| pod.name().to_owned()).collect();
    /// assert_eq!(names, ["own"]);
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn by_controller(self) -> Self {
        let by = ShardBy::Controller;
        Self { by, ..self }
    }

    /// Returns the `shardSelector` of a list or watch request, in the syntax of the API server. `None`
    /// for a shard [by controller](Self::by_controller), which the server does not know.
    pub fn selector(&self) -> Option<String> {
        let field = match self.by {
            ShardBy::Uid => "uid",
            ShardBy::Namespace => "namespace",
            ShardBy::Controller => return None,
        };
        let (start, end) = (self.first, u128::from(self.last) + 1);
        Some(format!(
            "shardRange(object.metadata.{field}, '0x{start:016x}', '0x{end:016x}')"
        ))
    }

    /// Whether the objects with this UID, in this namespace, or of the controller with this UID are
    /// in this shard. For an object without UID or namespace, pass an empty string, as the API
    /// server does.
    pub fn contains(&self, value: &str) -> bool {
        self.contains_hash(fnv1a(value))
    }

    /// Whether this shard has the objects whose UID or namespace has this hash.
    pub(crate) fn contains_hash(&self, hash: u64) -> bool {
        (self.first..=self.last).contains(&hash)
    }

    pub(crate) fn is_by_controller(&self) -> bool {
        self.by == ShardBy::Controller
    }

    /// Whether the object with this metadata is in this shard.
    pub fn contains_object(&self, metadata: &FullObjectMeta) -> bool {
        let value = match self.by {
            ShardBy::Uid => Some(&metadata.uid),
            ShardBy::Namespace => Some(&metadata.namespace),
            ShardBy::Controller => metadata.controller().map(|owner| &owner.uid),
        };
        value.is_some_and(|value| self.contains(value))
    }
}

/// Returns the 64-bit FNV-1a hash (SH2).
pub(crate) fn fnv1a(text: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    text.bytes().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

/// The error of a shard that does not exist.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardError {
    index: u32,
    count: u32,
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, count } = self;
        write!(
            f,
            "shard {index} of {count} does not exist: the first index is 0"
        )
    }
}

impl std::error::Error for ShardError {}

debug_as_display!(ShardError);

#[cfg(test)]
mod tests {
    use super::*;

    /// Values published by the authors of FNV, which the tests of Go's `hash/fnv` also use.
    #[test]
    fn sh2_hash_is_fnv_1a() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("ab", 0x089c_4407_b545_986a),
            ("abc", 0xe71f_a219_0541_574b),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text), hash, "{text:?}");
        }
    }

    #[test]
    fn sh1_shards_are_equal_and_cover_the_hash_range() {
        for count in (1..=100).chain([127, 128, 1000, 65_535, 65_536, u32::MAX]) {
            // For large counts, the test checks only the first, the last and some other shards.
            let indices = match count {
                ..=1000 => (0..count).collect::<Vec<_>>(),
                _ => [0, 1, count / 3, count / 3 + 1, count - 2, count - 1].to_vec(),
            };
            let shards: Vec<_> = indices
                .iter()
                .map(|&index| Shard::new(index, count).unwrap())
                .collect();
            assert_eq!(
                (shards[0].first, shards[shards.len() - 1].last),
                (0, u64::MAX),
                "{count}"
            );
            for (pair, next) in shards.windows(2).zip(indices.windows(2)) {
                if next[0] + 1 == next[1] {
                    assert_eq!(
                        u128::from(pair[0].last) + 1,
                        pair[1].first.into(),
                        "{next:?} of {count}"
                    );
                }
            }
            let even = (1_u128 << 64) / u128::from(count);
            for shard in &shards {
                let length = u128::from(shard.last - shard.first) + 1;
                assert!(length == even || length == even + 1, "{length} of {count}");
                for (hash, inside) in [
                    (Some(shard.first), true),
                    (Some(shard.last), true),
                    (shard.first.checked_sub(1), false),
                    (shard.last.checked_add(1), false),
                ] {
                    assert!(
                        hash.is_none_or(|hash| shard.contains_hash(hash) == inside),
                        "{count}"
                    );
                }
            }
        }
    }

    #[test]
    fn sh1_selector_has_api_server_syntax() {
        let selector = |index, count| Shard::new(index, count).unwrap().selector().unwrap();
        assert_eq!(
            selector(0, 2),
            "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
        );
        assert_eq!(
            selector(3, 4),
            "shardRange(object.metadata.uid, '0xc000000000000000', '0x10000000000000000')"
        );
        assert_eq!(
            Shard::new(0, 1).unwrap().by_namespace().selector().unwrap(),
            "shardRange(object.metadata.namespace, '0x0000000000000000', '0x10000000000000000')"
        );
    }

    #[test]
    fn shard_index_out_of_range_is_an_error() {
        for (index, count) in [(0, 0), (1, 1), (3, 3), (u32::MAX, u32::MAX), (7, 3)] {
            let error = Shard::new(index, count).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("shard {index} of {count} does not exist: the first index is 0")
            );
        }
    }

    #[test]
    fn different_shards_are_not_equal() {
        let shard = Shard::new(0, 2).unwrap();
        assert_eq!(shard, Shard::new(0, 2).unwrap());
        assert_ne!(shard, Shard::new(1, 2).unwrap());
        assert_ne!(shard, shard.clone().by_namespace());
        assert_ne!(shard, shard.clone().by_controller());
    }
}
