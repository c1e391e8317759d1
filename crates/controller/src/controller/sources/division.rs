//! Which part of a kind a shard has.

use std::fmt;

use k8s_informer::object::{GroupVersionResource, Scope};
use k8s_informer::reflector::Shard;

/// How [`one_shard_of`](crate::ManagerBuilder::one_shard_of) divides the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShardBy {
    /// By namespace: all namespaced kinds of the manager are divided alike, so children are in the
    /// shard of their parents. Each replica has all cluster-scoped objects. They can't be
    /// reconciled. Namespaces with similar names tend to be in the same shard.
    Namespace,
    /// By the UID of the reconciled objects. Owned objects are in the shard of their controller.
    /// Each replica has all objects of `watches`.
    Uid,
}

impl ShardBy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Uid => "uid",
        }
    }
}

/// The relation of a source to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Owned,
    Watched,
}

/// The objects of a source that a replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    Whole,
    Namespace,
    Uid,
    Controller,
}

/// The reason why a source can't be divided.
#[derive(Debug, PartialEq)]
pub(crate) enum Indivisible {
    ClusterScoped(GroupVersionResource),
    UnknownScope(GroupVersionResource),
    /// Its scope has a shard already.
    HasShard(GroupVersionResource),
}

impl fmt::Display for Indivisible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterScoped(resource) => write!(
                f,
                "{resource} are cluster-scoped and can't be divided by namespace: use `ShardBy::Uid`, or another \
                 manager with `leader_election`"
            ),
            Self::UnknownScope(resource) => write!(
                f,
                "whether {resource} are namespaced is unknown: use a type that defines it, or `kind`"
            ),
            Self::HasShard(resource) => {
                write!(f, "the scope of {resource} has a shard already: remove it")
            }
        }
    }
}

impl Division {
    /// Returns the division of a source.
    pub(crate) fn of(
        resource: &GroupVersionResource,
        role: Role,
        scope: Option<Scope>,
        by: ShardBy,
    ) -> Result<Self, Indivisible> {
        match (by, role, scope) {
            (ShardBy::Uid, Role::Primary, _) => Ok(Self::Uid),
            (ShardBy::Uid, Role::Owned, _) => Ok(Self::Controller),
            (ShardBy::Uid, Role::Watched, _) => Ok(Self::Whole),
            (ShardBy::Namespace, Role::Primary, Some(Scope::Cluster)) => {
                Err(Indivisible::ClusterScoped(resource.clone()))
            }
            (ShardBy::Namespace, _, Some(Scope::Cluster)) => Ok(Self::Whole),
            (ShardBy::Namespace, _, Some(_)) => Ok(Self::Namespace),
            (ShardBy::Namespace, _, None) => Err(Indivisible::UnknownScope(resource.clone())),
        }
    }

    /// Returns the part of a source that belongs to `shard`. `None` if the source is whole.
    pub(crate) fn part(self, shard: Shard) -> Option<Shard> {
        match self {
            Self::Whole => None,
            Self::Namespace => Some(shard.by_namespace()),
            Self::Uid => Some(shard),
            Self::Controller => Some(shard.by_controller()),
        }
    }
}
