use std::sync::Arc;

use super::timing::Timing;
use crate::metrics::Meter;
use crate::object::Accessor;
use crate::store::{Door, KnownObjects};
use crate::time::RealClock;

/// The options that all queues of deltas have.
pub(super) struct QueueOptions<T> {
    pub(super) door: Door<T>,
    pub(super) known_objects: Option<Arc<dyn KnownObjects<T>>>,
    pub(super) timing: Timing,
}

impl<T> QueueOptions<T> {
    pub(super) fn new(accessor: Accessor<T>, name: &str) -> Self {
        Self {
            door: Door::new(accessor, None),
            known_objects: None,
            timing: Timing {
                name: name.to_owned(),
                meter: Meter::new(None),
                clock: Arc::new(RealClock),
            },
        }
    }
}

/// Generates the setters of a builder for its `options`.
macro_rules! option_setters {
    () => {
        /// Sets a transform that changes every object before it is queued. By default there is
        /// none.
        pub fn transform(mut self, transform: crate::store::Transform<T>) -> Self {
            self.options.door.set_transform(transform);
            self
        }

        /// Sets the metrics that receive the number of waiting items and the processing times. By
        /// default there are none.
        pub fn metrics(
            mut self,
            metrics: std::sync::Arc<dyn crate::metrics::InformerMetrics>,
        ) -> Self {
            self.options.timing.meter = crate::metrics::Meter::new(Some(metrics));
            self
        }

        /// Sets the clock that measures processing times for the metrics and the log. The queue
        /// logs slow processing if more than ten items wait. By default this is the real clock.
        pub fn clock(mut self, clock: std::sync::Arc<dyn crate::time::Clock>) -> Self {
            self.options.timing.clock = clock;
            self
        }

        /// Sets the name of the queue in logs and of its `synced`. By default it is the name of the
        /// type.
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.options.timing.name = name.into();
            self
        }
    };
}

pub(super) use option_setters;
