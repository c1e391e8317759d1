//! The options that all queues of deltas have.

use std::sync::Arc;

use crate::metrics::InformerMetrics;
use crate::store::{KnownObjects, Transform};
use crate::time::{Clock, RealClock};

/// The options of the front of a queue.
pub(super) struct FrontOptions<T> {
    pub(super) known_objects: Option<Arc<dyn KnownObjects<T>>>,
    pub(super) transform: Option<Transform<T>>,
    pub(super) metrics: Option<Arc<dyn InformerMetrics>>,
    pub(super) clock: Arc<dyn Clock>,
    /// `None` stands for the name of the type.
    pub(super) name: Option<String>,
}

// `derive` would require `T: Default`.
impl<T> Default for FrontOptions<T> {
    fn default() -> Self {
        Self {
            known_objects: None,
            transform: None,
            metrics: None,
            clock: Arc::new(RealClock),
            name: None,
        }
    }
}

/// Generates what the options of all queues of deltas have. They keep these options in the field
/// `front`.
macro_rules! queue_options {
    ($options:ident: $($field:ident),*) => {
        impl<T> $options<T> {
            /// Creates the default options.
            pub fn new() -> Self {
                Self::default()
            }

            /// Sets a transform that changes every object before it is queued. By default there is
            /// none.
            pub fn transform(mut self, transform: crate::store::Transform<T>) -> Self {
                self.front.transform = Some(transform);
                self
            }

            /// Sets the metrics that receive the number of waiting items and the processing times.
            /// By default there are none.
            pub fn metrics(
                mut self,
                metrics: std::sync::Arc<dyn crate::metrics::InformerMetrics>,
            ) -> Self {
                self.front.metrics = Some(metrics);
                self
            }

            /// Sets the clock that measures processing times for the metrics and the log. The queue
            /// logs slow processing if more than ten items wait. By default this is the real clock.
            pub fn clock(mut self, clock: std::sync::Arc<dyn crate::time::Clock>) -> Self {
                self.front.clock = clock;
                self
            }

            /// Sets the name of the queue in logs and of its `synced`. By default it is the name of
            /// the type.
            pub fn name(mut self, name: impl Into<String>) -> Self {
                self.front.name = Some(name.into());
                self
            }
        }

        // `derive` would require `T: Default`.
        impl<T> Default for $options<T> {
            fn default() -> Self {
                Self {
                    front: crate::queue::options::FrontOptions::default(),
                    $($field: Default::default(),)*
                }
            }
        }

        crate::base::derive::debug_fields!($options<T>, this,
            name: this.front.name
            $(, $field: this.$field)*
        );
    };
}

pub(super) use queue_options;
