//! The user guide of controllers.
//!
//! | page | content |
//! |---|---|
//! | [`controllers`] | Write and test controllers |
//! | [`leader_election`] | Run several replicas, of which one works |
//! | [`sharding`] | Divide the objects among several replicas |
//! | [`events`] | Record Kubernetes events about objects |
//! | [`coming_from`] | For readers who know client-go, controller-runtime or kube-rs |
//!
//! The same text is in the folder `docs/guide` of this package.

#[doc = include_str!("../docs/guide/controllers.md")]
pub mod controllers {}

#[doc = include_str!("../docs/guide/leader_election.md")]
pub mod leader_election {}

#[doc = include_str!("../docs/guide/sharding.md")]
pub mod sharding {}

#[doc = include_str!("../docs/guide/events.md")]
pub mod events {}

#[doc = include_str!("../docs/guide/coming_from.md")]
pub mod coming_from {}
