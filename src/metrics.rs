//! Figures about queues and stores, for whoever wants to publish them. client-go's `informer_metrics.go`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::panic::catch;
use crate::sync::Mutex;

/// Is told how an informer's queue and store stand. client-go's `InformerMetricsProvider`, in which each of
/// the figures is a metric of its own.
///
/// Each has a default that does nothing. They are called by the threads that write and process, so they must
/// be quick, and under a lock of the metrics' own, so they must not write to what they measure; a panic in
/// one is logged. Where nobody wants to know, nothing is measured.
///
/// ```
/// use k8s_informer::{Accessor, DeltaFifo, InformerMetrics, KeyError, ReflectorStore};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// #[derive(Default)]
/// struct Depth(AtomicUsize);
///
/// impl InformerMetrics for Depth {
///     fn queued_items(&self, items: usize) {
///         self.0.store(items, Ordering::Relaxed);
///     }
/// }
///
/// let depth = Arc::new(Depth::default());
/// let accessor = Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into()));
/// let queue = DeltaFifo::builder(accessor).metrics(depth.clone()).build();
/// queue.add(Arc::new("a".to_owned()))?;
/// assert_eq!(depth.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait InformerMetrics: Send + Sync + 'static {
    /// How much waits in the queue now: keys in a [`DeltaFifo`](crate::DeltaFifo), changes in a
    /// [`RealFifo`](crate::RealFifo) (R22).
    fn queued_items(&self, items: usize) {
        let _ = items;
    }

    /// How long the processing of one item, or of one batch, took (R22).
    fn processing_latency(&self, latency: Duration) {
        let _ = latency;
    }

    /// The resourceVersion of the store: its last fifteen digits, which a `f64` holds exactly; 0 if there is
    /// none. Not called for one that isn't a number (X13).
    fn store_resource_version(&self, version: u64) {
        let _ = version;
    }
}

/// Somebody who is told, or nobody.
pub(crate) struct Meter {
    metrics: Option<Arc<dyn InformerMetrics>>,
    /// Held while a level is read and told, so that what is told last is how it is: two writers could
    /// overtake each other. Taken before the lock of what is measured, never under it.
    order: Mutex<()>,
}

impl Meter {
    pub(crate) fn new(metrics: Option<Arc<dyn InformerMetrics>>) -> Self {
        Self { metrics, order: Mutex::new(()) }
    }

    /// Tells a level; `read` may lock what is measured.
    pub(crate) fn level<R>(&self, read: impl FnOnce() -> R, tell: impl FnOnce(&dyn InformerMetrics, R)) {
        let Some(metrics) = &self.metrics else { return };
        let _in_order = self.order.lock();
        say(|| tell(&**metrics, read()));
    }

    /// Tells of something that has happened.
    pub(crate) fn event(&self, tell: impl FnOnce(&dyn InformerMetrics)) {
        if let Some(metrics) = &self.metrics {
            say(|| tell(&**metrics));
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.metrics.is_some()
    }
}

fn say(tell: impl FnOnce()) {
    if let Err(panic) = catch(tell) {
        // If the logger panics too, nobody is left to tell.
        drop(catch(|| log::error!("metrics of an informer {panic}")));
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("on", &self.is_on()).finish()
    }
}

/// A resourceVersion as a metric (X13).
pub(crate) fn resource_version_metric(resource_version: &str) -> Option<u64> {
    if resource_version.is_empty() {
        return Some(0);
    }
    let digits = resource_version
        .len()
        .checked_sub(15)
        .map_or(resource_version, |from| resource_version.get(from..).unwrap_or_default());
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x13_the_last_fifteen_digits_of_a_version_are_its_metric() {
        assert_eq!(resource_version_metric(""), Some(0));
        assert_eq!(resource_version_metric("42"), Some(42));
        assert_eq!(resource_version_metric("99123456789012345"), Some(123_456_789_012_345));
        assert_eq!(resource_version_metric("000000000000000"), Some(0));
        assert_eq!(resource_version_metric("v1"), None);
        assert_eq!(resource_version_metric("-1"), None);
        assert_eq!(resource_version_metric("ä123456789012345"), Some(123_456_789_012_345));
    }
}
