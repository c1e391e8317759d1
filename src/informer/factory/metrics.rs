use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::Identity;
use crate::base::sync::Mutex;
use crate::log;
use crate::metrics::{InformerMetrics, InformerName, MetricsProvider, ReservedMetrics};

/// The metrics of a factory's informers.
pub(super) struct FactoryMetrics {
    name: InformerName,
    provider: Arc<dyn MetricsProvider>,
    /// The metrics in use. Two threads can create the same informer at once, and one of these
    /// informers is then dropped. Both informers get the same metrics, so that the remaining one
    /// has metrics in any case. The provider is called under this lock.
    in_use: Mutex<HashMap<Identity, Weak<ReservedMetrics>>>,
}

impl FactoryMetrics {
    pub(super) fn new(name: InformerName, provider: Arc<dyn MetricsProvider>) -> Self {
        Self {
            name,
            provider,
            in_use: Mutex::default(),
        }
    }

    /// Returns the metrics of an informer that is being created.
    pub(super) fn of(&self, informer: &Identity) -> Option<Arc<dyn InformerMetrics>> {
        // Log after the unlock: a logger is user code and may request an informer from the factory.
        self.find(informer).unwrap_or_else(|problem| {
            log::error!("{problem}");
            None
        })
    }

    fn find(&self, informer: &Identity) -> Result<Option<Arc<dyn InformerMetrics>>, String> {
        let mut in_use = self.in_use.lock();
        let existing = in_use.get(informer).and_then(Weak::upgrade);
        if let Some(metrics) = existing.filter(|metrics| metrics.is_reserved()) {
            return Ok(Some(metrics));
        }
        in_use.retain(|_, metrics| metrics.strong_count() > 0);
        let identity = self.name.reserve(informer.resource.clone());
        let identity = identity.map_err(|identity| identity.taken())?;
        let Some(metrics) = identity.reserved_metrics(&*self.provider)? else {
            return Ok(None);
        };
        in_use.insert(informer.clone(), Arc::downgrade(&metrics));
        Ok(Some(metrics))
    }

    /// Detaches the metrics of an informer that was stopped and removed, so that the next informer
    /// of the same resource can have metrics.
    pub(super) fn retire(&self, informer: &Identity) {
        let retired = { self.in_use.lock().remove(informer) };
        if let Some(metrics) = retired.and_then(|metrics| metrics.upgrade()) {
            metrics.release();
        }
    }

    pub(super) fn release(&self) {
        self.name.release();
    }
}
