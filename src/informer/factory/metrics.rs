use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::Identity;
use crate::metrics::{InformerMetrics, InformerName, MetricsProvider, ReservedMetrics};
use crate::sync::Mutex;

/// Whom a factory's informers tell how they stand.
pub(super) struct FactoryMetrics {
    name: InformerName,
    provider: Arc<dyn MetricsProvider>,
    /// Who is told. If two threads make the same informer at once, one of which is then forgotten, they get
    /// the same: else the one that stays could be the one without. The provider is asked under it.
    given: Mutex<HashMap<Identity, Weak<ReservedMetrics>>>,
}

impl FactoryMetrics {
    pub(super) fn new(name: InformerName, provider: Arc<dyn MetricsProvider>) -> Self {
        Self {
            name,
            provider,
            given: Mutex::default(),
        }
    }

    /// Whom an informer that is being made tells.
    pub(super) fn of(&self, informer: &Identity) -> Option<Arc<dyn InformerMetrics>> {
        let mut problems = Vec::new();
        let metrics = self.find(informer, &mut problems);
        // Under no lock: a logger is user code, and may ask the factory for an informer.
        problems.iter().for_each(|problem| log::error!("{problem}"));
        metrics
    }

    fn find(
        &self,
        informer: &Identity,
        problems: &mut Vec<String>,
    ) -> Option<Arc<dyn InformerMetrics>> {
        let mut given = self.given.lock();
        let others = given
            .get(informer)
            .and_then(Weak::upgrade)
            .filter(|metrics| metrics.is_reserved());
        if let Some(metrics) = others {
            return Some(metrics);
        }
        given.retain(|_, metrics| metrics.strong_count() > 0);
        let identity = self.name.reserve(informer.resource.clone(), problems);
        let metrics = identity.reserved_metrics(&*self.provider, problems)?;
        given.insert(informer.clone(), Arc::downgrade(&metrics));
        Some(metrics)
    }

    /// The informer has been told to end, and is forgotten: it tells nothing more, and the next one may.
    pub(super) fn retire(&self, informer: &Identity) {
        let retired = { self.given.lock().remove(informer) };
        if let Some(metrics) = retired.and_then(|metrics| metrics.upgrade()) {
            metrics.release();
        }
    }

    pub(super) fn release(&self) {
        self.name.release();
    }
}
