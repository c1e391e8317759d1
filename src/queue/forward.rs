//! What the queues of deltas forward to the front.

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

            fn processed(&self) -> crate::queue::Watermark {
                self.front.processed()
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
