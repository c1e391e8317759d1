//! The user guide.
//!
//! | page | content |
//! |---|---|
//! | [`getting_started`] | Install the crate, write a first informer, and stop it in order |
//! | [`reading_the_cache`] | Listers, indexes, what "synced" means, and how fresh the cache is |
//! | [`object_types`] | Types for the cached objects, and what each costs |
//! | [`custom_resources`] | Custom structs, and kube's derive macro |
//! | [`queues_and_stores`] | The parts of an informer alone: queues, stores, work queues, rate limiters |
//! | [`tuning`] | Memory, CPU, threads, allocators and compiler profiles, with figures |
//! | [`operations`] | Errors and recovery, health, metrics, logs, RBAC and limits |
//! | [`authentication`] | How a client finds its cluster, credentials, TLS and proxies |
//! | [`design`] | Layers, threads, locks and guarantees |
//!
//! The packages [k8s-informer-controller] and [k8s-informer-testing] have pages about controllers,
//! leader election, events and tests, and for readers who know client-go or kube-rs.
//!
//! [k8s-informer-controller]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/guide/index.html
//! [k8s-informer-testing]: https://docs.rs/k8s-informer-testing/0.1/k8s_informer_testing/guide/index.html
//!
//! The same text is in the folder `docs/guide` of the repository.

#[doc = include_str!("../docs/guide/getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("../docs/guide/reading_the_cache.md")]
pub mod reading_the_cache {}

#[doc = include_str!("../docs/guide/object_types.md")]
pub mod object_types {}

#[doc = include_str!("../docs/guide/custom_resources.md")]
pub mod custom_resources {}

#[doc = include_str!("../docs/guide/queues_and_stores.md")]
pub mod queues_and_stores {}

#[doc = include_str!("../docs/guide/tuning.md")]
pub mod tuning {}

#[doc = include_str!("../docs/guide/operations.md")]
pub mod operations {}

#[doc = include_str!("../docs/guide/authentication.md")]
pub mod authentication {}

#[doc = include_str!("../docs/guide/design.md")]
pub mod design {}
