//! What an informer does, whichever queue it has: once with each.

mod buffers;
mod cache_readers;
mod callbacks;
mod controller;
mod ends;
mod factory;
mod fake_source;
mod handlers;
mod namespaces;
mod passing_on;
mod relists;
mod resync;
mod shared;
mod stress;

use std::sync::Arc;

use k8s_informer::testing::FakeClock;
use k8s_informer::{
    InformerQueue, ReflectorOptions, SharedIndexInformer, SharedIndexInformerOptions,
};

pub(crate) use super::QUEUE;

/// Whether the reflector waits while something is processed (R19).
pub(crate) const LOCKED: bool = matches!(QUEUE, InformerQueue::RealFifoInOrder);

/// Whether each change is an item of its own, not those of an object together.
pub(crate) const ONE_BY_ONE: bool = !matches!(QUEUE, InformerQueue::DeltaFifo);

use crate::support::{Feed, Informer, options};

pub(crate) fn informer(feed: &Feed) -> Informer {
    informer_with(feed, options(&FakeClock::new()))
}

pub(crate) fn informer_with(feed: &Feed, reflector: ReflectorOptions) -> Informer {
    SharedIndexInformer::new(Arc::new(feed.clone()), informer_options(reflector))
}

/// On the queue that it is about.
pub(crate) fn informer_options<T>(reflector: ReflectorOptions) -> SharedIndexInformerOptions<T> {
    SharedIndexInformerOptions {
        reflector,
        queue: QUEUE,
        ..SharedIndexInformerOptions::default()
    }
}
