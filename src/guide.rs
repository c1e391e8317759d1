//! The user guide.
//!
//! | page | content |
//! |---|---|
//! | [`getting_started`] | Install the crate, write a first informer, and stop it in order |
//! | [`reading_the_cache`] | Listers, indexes, what "synced" means, and how fresh the cache is |
//! | [`object_types`] | Types for the cached objects, and what each costs |
//! | [`tuning`] | Memory, CPU, threads, allocators and compiler profiles, with figures |
//! | [`operations`] | Errors and recovery, health, metrics, logs, RBAC and limits |
//! | [`controllers`] | Write and test controllers |
//! | [`leader_election`] | Run several replicas, of which one works |
//! | [`events`] | Record Kubernetes events about objects |
//! | [`authentication`] | How a client finds its cluster, credentials, TLS and proxies |
//! | [`testing`] | Test your code without a cluster |
//! | [`coming_from_client_go`] | For readers who know client-go |
//! | [`coming_from_kube`] | For readers who know kube-rs |
//! | [`design`] | Layers, threads, locks and guarantees |
//!
//! The same text is in the folder `docs/guide` of the repository.

#[doc = include_str!("../docs/guide/getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("../docs/guide/reading_the_cache.md")]
pub mod reading_the_cache {}

#[doc = include_str!("../docs/guide/object_types.md")]
pub mod object_types {}

#[doc = include_str!("../docs/guide/tuning.md")]
pub mod tuning {}

#[doc = include_str!("../docs/guide/operations.md")]
pub mod operations {}

#[doc = include_str!("../docs/guide/controllers.md")]
pub mod controllers {}

#[doc = include_str!("../docs/guide/leader_election.md")]
pub mod leader_election {}

#[doc = include_str!("../docs/guide/events.md")]
pub mod events {}

#[doc = include_str!("../docs/guide/authentication.md")]
pub mod authentication {}

#[doc = include_str!("../docs/guide/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/guide/coming_from_client_go.md")]
pub mod coming_from_client_go {}

#[doc = include_str!("../docs/guide/coming_from_kube.md")]
pub mod coming_from_kube {}

#[doc = include_str!("../docs/guide/design.md")]
pub mod design {}
