//! The suite on a `RealFifo` in atomic mode.

pub(crate) const QUEUE: k8s_informer::InformerQueue = k8s_informer::InformerQueue::RealFifoAtomic;

#[path = "suite.rs"]
mod suite;
