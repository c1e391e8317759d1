use std::sync::Arc;

use super::process::CachePart;
use crate::metrics::InformerMetrics;
use crate::object::Object;
use crate::queue::{DeltaFifo, DeltaFifoOptions, Queue, RealFifo, RealFifoOptions};
use crate::store::Transform;
use crate::time::Clock;

/// The kind of queue between an informer's reflector and its cache.
///
/// ```
/// use k8s_informer::DynamicObject;
/// use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
///
/// let mut options = SharedIndexInformerOptions::<DynamicObject>::default();
/// assert_eq!(options.queue, InformerQueue::DeltaFifo);
/// options.queue = InformerQueue::RealFifo;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerQueue {
    /// A [`DeltaFifo`]: groups the changes of one object, so a burst of changes takes one entry. A
    /// list reaches the cache object by object.
    #[default]
    DeltaFifo,
    /// A [`RealFifo`], client-go's current default: keeps all changes in order. A
    /// list reaches the cache in one step.
    ///
    /// Every deletion is delivered, as in client-go, even if the object is not in the cache. A
    /// deletion that the server sends twice reaches the handlers twice.
    RealFifo,
}

impl InformerQueue {
    /// Creates a queue for this part of the cache.
    pub(super) fn build<T: Object>(
        self,
        part: &Arc<CachePart<T>>,
        name: &str,
        transform: Option<Transform<T>>,
        metrics: Option<Arc<dyn InformerMetrics>>,
        clock: Arc<dyn Clock>,
    ) -> Arc<dyn Queue<T>> {
        macro_rules! with {
            ($options:expr) => {{
                let known: Arc<CachePart<T>> = Arc::clone(part);
                let mut options = $options.known_objects(known).name(name).clock(clock);
                if let Some(transform) = transform {
                    options = options.transform(transform);
                }
                if let Some(metrics) = metrics {
                    options = options.metrics(metrics);
                }
                options
            }};
        }
        let accessor = part.accessor();
        match self {
            Self::DeltaFifo => {
                let options = with!(DeltaFifoOptions::new().emit_replaced(true));
                Arc::new(DeltaFifo::with_options(accessor, options))
            }
            Self::RealFifo => {
                let options = with!(RealFifoOptions::new());
                Arc::new(RealFifo::with_options(accessor, options))
            }
        }
    }
}
