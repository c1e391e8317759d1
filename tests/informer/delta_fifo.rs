//! The suite on a `DeltaFifo`.

pub(crate) const QUEUE: k8s_informer::InformerQueue = k8s_informer::InformerQueue::DeltaFifo;

#[path = "suite.rs"]
mod suite;
