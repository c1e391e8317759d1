/// Generates the methods that all builders of queues of deltas have. A builder changes its `queue`
/// until it is built.
macro_rules! builder_methods {
    ($queue:ident) => {
        /// Sets a transform that changes every object before it is queued. By default there is
        /// none.
        pub fn transform(mut self, transform: crate::store::Transform<T>) -> Self {
            self.queue.body.door.set_transform(transform);
            self
        }

        /// Sets the metrics that receive the number of waiting items and the processing times. By
        /// default there are none.
        pub fn metrics(
            mut self,
            metrics: std::sync::Arc<dyn crate::metrics::InformerMetrics>,
        ) -> Self {
            self.queue.body.timing.meter = crate::metrics::Meter::new(Some(metrics));
            self
        }

        /// Sets the clock that measures processing times for the metrics and the log. The queue
        /// logs slow processing if more than ten items wait. By default this is the real clock.
        pub fn clock(mut self, clock: std::sync::Arc<dyn crate::time::Clock>) -> Self {
            self.queue.body.timing.clock = clock;
            self
        }

        /// Sets the name of the queue in logs and of its `synced`. By default it is the name of the
        /// type.
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.queue.body.set_name(name.into());
            self
        }

        /// Creates the queue, empty and open.
        pub fn build(self) -> $queue<T> {
            self.queue
        }
    };
}

pub(super) use builder_methods;
