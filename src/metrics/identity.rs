use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::{InformerMetrics, MetricsProvider, call};
use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::error::debug_as_display;
use crate::log;
use crate::object::GroupVersionResource;

/// The names in use in this process. An innermost lock.
static NAMES: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// The name under which informers publish metrics. Each name can exist only once in a process, so
/// that two informers never write to the same series. client-go's `InformerName`.
///
/// Clones share the same name. The name becomes free when you [release](Self::release) it, when the
/// factory that uses it has been shut down, or when the last clone is dropped, including the
/// factory's clone.
///
/// ```
/// use k8s_informer::metrics::{InformerName, InformerNameError};
/// use k8s_informer::object::GroupVersionResource;
///
/// let name = InformerName::new("my-agent")?;
/// assert_eq!(InformerName::new("my-agent").unwrap_err(), InformerNameError::Taken("my-agent".to_owned()));
///
/// let pods = GroupVersionResource::new("", "v1", "pods");
/// let first = name.with_resource(pods.clone());
/// let second = name.with_resource(pods);
/// assert_eq!((first.is_reserved(), second.is_reserved()), (true, false));
///
/// name.release();
/// assert!(!first.is_reserved());
/// InformerName::new("my-agent")?;
/// # Ok::<(), InformerNameError>(())
/// ```
#[derive(Clone)]
pub struct InformerName {
    named: Arc<Named>,
}

struct Named {
    name: Arc<str>,
    /// `None` after the release. In the lock order it comes before `NAMES`.
    reserved: Mutex<Option<Reservations>>,
}

/// For each resource, whether the informer that reserved it still holds the reservation.
type Reservations = HashMap<GroupVersionResource, Arc<AtomicBool>>;

impl InformerName {
    /// Creates a name and marks it as in use.
    ///
    /// # Errors
    ///
    /// Fails if the name is empty or in use.
    pub fn new(name: impl Into<String>) -> Result<Self, InformerNameError> {
        let name = name.into();
        if name.is_empty() {
            return Err(InformerNameError::Empty);
        }
        if !NAMES.lock().insert(name.clone()) {
            return Err(InformerNameError::Taken(name));
        }
        let reserved = Mutex::new(Some(Reservations::new()));
        Ok(Self {
            named: Arc::new(Named {
                name: name.into(),
                reserved,
            }),
        })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.named.name
    }

    /// Returns the identity of an informer for this resource.
    ///
    /// The first informer to register a resource reserves it until that informer ends. For later
    /// informers of the resource, this method logs an error, and they run without metrics. After
    /// the [release](Self::release) of the name, new informers have no metrics either, but no error
    /// is logged.
    pub fn with_resource(&self, resource: GroupVersionResource) -> InformerNameAndResource {
        self.reserve(resource).unwrap_or_else(|informer| {
            log::error!("{}", informer.taken());
            informer
        })
    }

    /// Reserves a resource. If another informer has it, returns the identity without a reservation
    /// as the error.
    pub(crate) fn reserve(
        &self,
        resource: GroupVersionResource,
    ) -> Result<InformerNameAndResource, InformerNameAndResource> {
        let informer = InformerNameAndResource {
            name: Arc::clone(&self.named.name),
            resource: resource.clone(),
            reserved: Arc::default(),
        };
        if let Some(reservations) = &mut *self.named.reserved.lock() {
            let other = reservations.get(&resource);
            if other.is_some_and(|other| other.load(Ordering::Acquire)) {
                return Err(informer);
            }
            informer.reserved.store(true, Ordering::Release);
            reservations.insert(resource, Arc::clone(&informer.reserved));
        }
        Ok(informer)
    }

    /// Releases the name. Informers no longer publish metrics under it, and it can be created
    /// again. Later calls do nothing.
    pub fn release(&self) {
        self.named.release();
    }
}

impl Named {
    fn release(&self) {
        let Some(reservations) = self.reserved.lock().take() else {
            return;
        };
        for reserved in reservations.values() {
            reserved.store(false, Ordering::Release);
        }
        NAMES.lock().remove(&*self.name);
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.release();
    }
}

debug_fields!(InformerName, this, name: this.name());

/// The error of [`InformerName::new`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerNameError {
    /// The name is empty.
    Empty,
    /// The name is in use in this process.
    Taken(String),
}

impl fmt::Display for InformerNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the informer name is empty"),
            Self::Taken(name) => write!(f, "the informer name {name:?} is in use"),
        }
    }
}

impl std::error::Error for InformerNameError {}

debug_as_display!(InformerNameError);

/// The identity of one informer's metrics, from which their labels are made. Returned by
/// [`InformerName::with_resource`]. client-go's `InformerNameAndResource`.
#[derive(Clone)]
pub struct InformerNameAndResource {
    name: Arc<str>,
    resource: GroupVersionResource,
    reserved: Arc<AtomicBool>,
}

impl InformerNameAndResource {
    /// Returns the name, for the label `name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the resource of the informer, for the labels `group`, `version` and `resource`.
    pub fn group_version_resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    /// Whether the informer may publish metrics. This is true for the first informer with its name
    /// and resource, until the informer ends or the name is released. This method takes no lock.
    pub fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// Creates the metrics for an informer without a factory. They are published only while the
    /// identity is [reserved](Self::is_reserved). The reservation ends when the informer ends or is
    /// dropped.
    ///
    /// ```
    /// use k8s_informer::informer::SharedIndexInformerOptions;
    /// use k8s_informer::metrics::{InformerMetrics, InformerName, InformerNameAndResource, MetricsProvider};
    /// use k8s_informer::object::GroupVersionResource;
    /// use k8s_informer::{DynamicObject, SharedIndexInformer};
    /// use k8s_informer_testing::ScriptedListerWatcher;
    /// use std::sync::Arc;
    ///
    /// struct Nothing;
    /// impl InformerMetrics for Nothing {}
    /// impl MetricsProvider for Nothing {
    ///     fn informer_metrics(&self, _: InformerNameAndResource) -> Option<Arc<dyn InformerMetrics>> {
    ///         Some(Arc::new(Nothing))
    ///     }
    /// }
    ///
    /// let name = InformerName::new("by-hand")?;
    /// let pods = name.with_resource(GroupVersionResource::new("", "v1", "pods"));
    /// let mut options = SharedIndexInformerOptions::<DynamicObject>::default();
    /// options.metrics = pods.clone().metrics(&Nothing);
    /// let informer = SharedIndexInformer::new(Arc::new(ScriptedListerWatcher::new([])), options);
    /// assert!(pods.is_reserved());
    /// drop(informer);
    /// assert!(!pods.is_reserved());
    /// # Ok::<(), k8s_informer::metrics::InformerNameError>(())
    /// ```
    pub fn metrics(self, provider: &dyn MetricsProvider) -> Option<Arc<dyn InformerMetrics>> {
        let metrics = self.reserved_metrics(provider).unwrap_or_else(|problem| {
            log::error!("{problem}");
            None
        });
        Some(metrics?)
    }

    /// Like [`metrics`](Self::metrics), but returns the panic of a provider instead of logging it.
    pub(crate) fn reserved_metrics(
        self,
        provider: &dyn MetricsProvider,
    ) -> Result<Option<Arc<ReservedMetrics>>, String> {
        if !self.is_reserved() {
            return Ok(None);
        }
        let created = catch(|| provider.informer_metrics(self.clone()));
        if !matches!(created, Ok(Some(_))) {
            self.release();
        }
        let created = created.map_err(|panic| format!("{self}: the metrics provider {panic}"))?;
        Ok(created.map(|metrics| {
            let informer = self;
            Arc::new(ReservedMetrics { informer, metrics })
        }))
    }

    pub(crate) fn taken(&self) -> String {
        format!(
            "{self}: another informer uses this name and resource; this informer publishes no metrics"
        )
    }

    fn release(&self) {
        self.reserved.store(false, Ordering::Release);
    }
}

impl fmt::Display for InformerNameAndResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.resource)
    }
}

debug_fields!(InformerNameAndResource, this,
    name: this.name,
    resource: this.resource,
    reserved: this.is_reserved()
);

/// The metrics of an informer, forwarded only while its identity is reserved. `ended` is always
/// forwarded.
pub(crate) struct ReservedMetrics {
    informer: InformerNameAndResource,
    metrics: Arc<dyn InformerMetrics>,
}

impl ReservedMetrics {
    pub(crate) fn is_reserved(&self) -> bool {
        self.informer.is_reserved()
    }

    /// Stops forwarding all metrics except `ended`.
    pub(crate) fn release(&self) {
        self.informer.release();
    }

    fn with_metrics(&self, report: impl FnOnce(&dyn InformerMetrics)) {
        if self.is_reserved() {
            report(&*self.metrics);
        }
    }
}

impl InformerMetrics for ReservedMetrics {
    fn queued_items(&self, items: usize) {
        self.with_metrics(|metrics| metrics.queued_items(items));
    }

    fn processing_latency(&self, latency: Duration) {
        self.with_metrics(|metrics| metrics.processing_latency(latency));
    }

    fn store_resource_version(&self, version: u64) {
        self.with_metrics(|metrics| metrics.store_resource_version(version));
    }

    fn ended(&self) {
        self.informer.release();
        call(|| self.metrics.ended());
    }
}

impl Drop for ReservedMetrics {
    fn drop(&mut self) {
        self.informer.release();
    }
}
