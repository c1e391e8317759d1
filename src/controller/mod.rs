//! Controllers: reconcile loops on top of informers and work queues.

mod predicate;

pub use predicate::{
    Predicate, annotations_changed, generation_changed, labels_changed, resource_version_changed,
};
