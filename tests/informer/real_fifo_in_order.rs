//! The suite on a `RealFifo` in order.

pub(crate) const QUEUE: k8s_informer::InformerQueue = k8s_informer::InformerQueue::RealFifoInOrder;

#[path = "suite.rs"]
mod suite;
