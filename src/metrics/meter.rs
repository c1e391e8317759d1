use std::fmt;
use std::sync::Arc;

use crate::base::panic::{Panicked, catch};
use crate::base::sync::Mutex;
use crate::log;
use crate::resource_version::ResourceVersion;

/// Optional metrics: [`InformerMetrics`](super::InformerMetrics), or those of a work queue.
pub struct Meter<M: ?Sized> {
    metrics: Option<Arc<M>>,
    /// Held while a level is read and reported, so that the last report is the current level.
    /// Without it, two writers could report in the wrong order. In the lock order it comes before
    /// the lock of the measured object.
    order: Mutex<()>,
}

impl<M: ?Sized> Meter<M> {
    /// Creates a meter. Without metrics, it does nothing.
    pub fn new(metrics: Option<Arc<M>>) -> Self {
        Self {
            metrics,
            order: Mutex::new(()),
        }
    }

    /// Reports a level. `read` may lock the measured object.
    pub fn level<R>(&self, read: impl FnOnce() -> R, record: impl FnOnce(&M, R)) {
        let Some(metrics) = &self.metrics else { return };
        let called = {
            let _in_order = self.order.lock();
            catch(|| record(&**metrics, read()))
        };
        report(called);
    }

    /// Reports an event.
    pub fn event(&self, record: impl FnOnce(&M)) {
        if let Some(metrics) = &self.metrics {
            call(|| record(&**metrics));
        }
    }

    /// Whether there are metrics.
    pub fn is_on(&self) -> bool {
        self.metrics.is_some()
    }
}

/// Calls a method of the metrics, which is user code. A panic is caught and logged.
pub(crate) fn call(record: impl FnOnce()) {
    report(catch(record));
}

/// Logs a panic of metrics. No lock is held, because a logger is user code and may change a level.
fn report(called: Result<(), Panicked>) {
    if let Err(panic) = called {
        // A panic of the logger cannot be reported.
        drop(catch(|| log::error!("metrics {panic}")));
    }
}

impl<M: ?Sized> fmt::Debug for Meter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("on", &self.is_on()).finish()
    }
}

/// Converts a resource version to a metric: its last 15 digits, or 0 if it is unknown (X13). Returns
/// `None` if one of these characters is not a digit.
pub(crate) fn resource_version_metric(version: Option<&ResourceVersion>) -> Option<u64> {
    let Some(version) = version else {
        return Some(0);
    };
    let text = version.to_string();
    let digits = match text.len().checked_sub(15) {
        Some(from) => text.get(from..).unwrap_or_default(),
        None => &text,
    };
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x13_metric_has_last_15_digits_of_resource_version() {
        let resource_version_metric =
            |text| resource_version_metric(ResourceVersion::new(text).as_ref());
        assert_eq!(resource_version_metric(""), Some(0));
        assert_eq!(resource_version_metric("42"), Some(42));
        assert_eq!(
            resource_version_metric("99123456789012345"),
            Some(123_456_789_012_345)
        );
        assert_eq!(resource_version_metric("000000000000000"), Some(0));
        assert_eq!(resource_version_metric("v1"), None);
        assert_eq!(resource_version_metric("-1"), None);
        assert_eq!(
            resource_version_metric("ä123456789012345"),
            Some(123_456_789_012_345)
        );
    }
}
