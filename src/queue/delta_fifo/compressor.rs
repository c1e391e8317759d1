//! Deltas that a user wants to be fewer than they are.

use std::sync::Arc;

use super::DeltaFifo;
use crate::object::Key;
use crate::panic::catch;
use crate::queue::{Delta, Deltas};

/// client-go's `DeltaCompressor`, which it had until 1.6.
pub(super) type Compressor<T> = Arc<dyn Fn(&Deltas<T>) -> Vec<Delta<T>> + Send + Sync>;

impl<T> DeltaFifo<T> {
    /// Lets the compressor look at keys that have just been written. It runs without the lock: its answer
    /// counts if nobody has written or popped the key meanwhile, else a writer has it asked again.
    pub(super) fn compress(&self, keys: &[Key]) {
        let Some(compressor) = &self.compressor else {
            return;
        };
        for key in keys {
            let Some(before) = self.get_by_key(key) else {
                continue;
            };
            let after = match catch(|| compressor(&before)) {
                Ok(after) => Deltas::new(Key::clone(key), after),
                Err(panic) => {
                    log::error!("{}: the compressor {panic} on {key}", self.timing.name);
                    continue;
                }
            };
            let mut state = self.filed();
            let outdated = match state.items.get_mut(key) {
                Some(now) if same(now, &before) && !after.is_empty() => {
                    Some(std::mem::replace(now, after))
                }
                Some(now) if same(now, &before) => {
                    let emptied = state.items.remove(key);
                    state.late.take(key);
                    state.tidy();
                    state.publish();
                    emptied
                }
                _ => Some(after),
            };
            drop(state);
            drop(outdated);
        }
        // Fewer keys may wait now.
        self.timing.depth(|| self.len());
    }
}

/// Whether these are the same deltas, not just equal ones.
fn same<T>(a: &Deltas<T>, b: &Deltas<T>) -> bool {
    let object = |delta: &Delta<T>| delta.object().map(Arc::as_ptr);
    let pairs = || a.iter().zip(b.iter());
    a.len() == b.len()
        && pairs().all(|(a, b)| {
            std::mem::discriminant(a) == std::mem::discriminant(b) && object(a) == object(b)
        })
}
