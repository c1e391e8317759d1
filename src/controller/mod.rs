//! Controllers: reconcile loops on top of informers and work queues.

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the reconcile loop, which is not merged yet, uses it"
    )
)]
mod finalizer;
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the reconcile loop, which is not merged yet, uses it"
    )
)]
mod owner;
mod predicate;

pub use owner::OwnerError;
pub use predicate::{
    Predicate, annotations_changed, generation_changed, labels_changed, resource_version_changed,
};
