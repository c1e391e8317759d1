//! What the queues of deltas and their builders forward to the front.

/// Implements [`Queue`](super::Queue) for a queue, and the methods that all queues of deltas have.
/// `$item` is the word for one waiting item, `$items` for several.
macro_rules! forward_queue {
    ($queue:ident, $item:literal, $items:literal) => {
        impl<T> $queue<T> {
            /// Returns the transform, if there is one. client-go's `Transformer`.
            pub fn transformer(&self) -> Option<&crate::store::Transform<T>> {
                self.front.door.transform()
            }

            #[doc = concat!("Returns the number of waiting ", $items, ", without those that are being processed.")]
            pub fn len(&self) -> usize {
                self.front.len()
            }

            #[doc = concat!("Whether no ", $item, " is waiting.")]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        impl<T> crate::queue::Sealed for $queue<T> {
            fn reserve_if_empty(&self) -> bool {
                self.front.reserve_if_empty()
            }

            fn reserve_next(&self) -> bool {
                self.front.reserve_next()
            }
        }

        impl<T: Send + Sync> crate::queue::Queue<T> for $queue<T> {
            fn pop(
                &self,
                process: &mut crate::queue::Process<'_, T>,
            ) -> Result<crate::queue::Deltas<T>, crate::queue::PopError<crate::queue::Deltas<T>>>
            {
                self.front.pop(process)
            }

            fn pop_batch(
                &self,
                process_batch: &mut crate::queue::ProcessBatch<'_, T>,
                process: &mut crate::queue::Process<'_, T>,
            ) -> Result<
                Vec<crate::queue::Deltas<T>>,
                crate::queue::PopError<Vec<crate::queue::Deltas<T>>>,
            > {
                self.front.pop_batch(process_batch, process)
            }

            fn synced(&self) -> crate::stop::Done {
                self.front.synced()
            }

            fn processed(&self) -> Option<crate::queue::Watermark> {
                Some(self.front.processed())
            }

            fn close(&self) {
                self.front.close();
            }

            fn is_closed(&self) -> bool {
                self.front.is_closed()
            }
        }

        crate::base::derive::unwind_safe!($queue<T>);

        crate::base::derive::debug_fields!($queue<T>, this,
            len: this.len(),
            synced: this.front.synced().is_done(),
            closed: this.front.is_closed()
        );
    };
}

pub(super) use forward_queue;

/// Generates the methods that all builders of queues of deltas have. A builder changes its `queue`
/// until it is built.
macro_rules! builder_methods {
    ($queue:ident) => {
        /// Sets a transform that changes every object before it is queued. By default there is
        /// none.
        pub fn transform(mut self, transform: crate::store::Transform<T>) -> Self {
            self.queue.front.door.set_transform(transform);
            self
        }

        /// Sets the metrics that receive the number of waiting items and the processing times. By
        /// default there are none.
        pub fn metrics(
            mut self,
            metrics: std::sync::Arc<dyn crate::metrics::InformerMetrics>,
        ) -> Self {
            self.queue.front.timing.meter = crate::metrics::Meter::new(Some(metrics));
            self
        }

        /// Sets the clock that measures processing times for the metrics and the log. The queue
        /// logs slow processing if more than ten items wait. By default this is the real clock.
        pub fn clock(mut self, clock: std::sync::Arc<dyn crate::time::Clock>) -> Self {
            self.queue.front.timing.clock = clock;
            self
        }

        /// Sets the name of the queue in logs and of its `synced`. By default it is the name of the
        /// type.
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.queue.front.set_name(name.into());
            self
        }

        /// Creates the queue, empty and open.
        pub fn build(self) -> $queue<T> {
            self.queue
        }
    };
}

pub(super) use builder_methods;
