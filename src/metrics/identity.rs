use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::{InformerMetrics, MetricsProvider, call};
use crate::error::debug_as_display;
use crate::object::GroupVersionResource;
use crate::panic::catch;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The names that are taken in this process. Innermost.
static NAMES: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Under which name informers publish metrics: taken once in a process, so that no two write to one series
/// (ID1). client-go's `InformerName`.
///
/// Clones are the same name. It is free again when it is [released](Self::release), when the factory that has
/// it has been shut down, or when the last clone, the factory's among them, is dropped.
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
    /// `None` once it is released. Before the registry's lock.
    reserved: Mutex<Option<Reservations>>,
}

/// Of each resource, whether the informer that has it still does.
type Reservations = HashMap<GroupVersionResource, Arc<AtomicBool>>;

impl InformerName {
    /// Takes a name.
    ///
    /// # Errors
    ///
    /// If it is empty, or taken (ID1).
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

    /// The name.
    pub fn name(&self) -> &str {
        &self.named.name
    }

    /// The identity of an informer of this resource. It is reserved for the first who asks, until his
    /// informer has ended; for whoever asks meanwhile it is not, and the log has an error: his informer has
    /// no metrics (ID2). So it is, without an error, once the name is released.
    pub fn with_resource(&self, resource: GroupVersionResource) -> InformerNameAndResource {
        let mut problems = Vec::new();
        let informer = self.reserve(resource, &mut problems);
        problems.iter().for_each(|problem| log::error!("{problem}"));
        informer
    }

    /// [`with_resource`](Self::with_resource) without logging.
    pub(crate) fn reserve(
        &self,
        resource: GroupVersionResource,
        problems: &mut Vec<String>,
    ) -> InformerNameAndResource {
        let Named { name, reserved } = &*self.named;
        let flag = Arc::new(AtomicBool::new(false));
        let is_taken = reserved.lock().as_mut().is_some_and(|reservations| {
            let other = reservations
                .entry(resource.clone())
                .or_insert_with(|| Arc::clone(&flag));
            if other.load(Ordering::Acquire) {
                return true;
            }
            flag.store(true, Ordering::Release);
            *other = Arc::clone(&flag);
            false
        });
        let informer = InformerNameAndResource {
            name: Arc::clone(name),
            resource,
            reserved: flag,
        };
        if is_taken {
            problems.push(format!(
                "{informer}: another informer has this name: its metrics are not published"
            ));
        }
        informer
    }

    /// Gives the name up: nobody tells anything under it any more, and it can be taken again (ID3). Once;
    /// later calls do nothing.
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

impl fmt::Debug for InformerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerName").field(&self.name()).finish()
    }
}

/// Why a name can't be taken.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerNameError {
    /// It is empty.
    Empty,
    /// Somebody in this process has it, and has not released it.
    Taken(String),
}

impl fmt::Display for InformerNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the name of informers is empty"),
            Self::Taken(name) => write!(f, "the name {name:?} of informers is taken"),
        }
    }
}

impl std::error::Error for InformerNameError {}

debug_as_display!(InformerNameError);

/// The identity of one informer's metrics: what their labels say. From [`InformerName::with_resource`].
/// client-go's `InformerNameAndResource`.
#[derive(Clone)]
pub struct InformerNameAndResource {
    name: Arc<str>,
    resource: GroupVersionResource,
    reserved: Arc<AtomicBool>,
}

impl InformerNameAndResource {
    /// The name: the label `name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the informer is about: the labels `group`, `version` and `resource`.
    pub fn group_version_resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    /// Whether its informer may tell figures: it was the first of its name and resource, it has not ended,
    /// and the name was not released. It takes no lock.
    pub fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// Whom the informer with this identity tells, for an informer that no factory makes. They are told only
    /// while it is [reserved](Self::is_reserved), and it is until the informer has ended, or is dropped.
    ///
    /// ```
    /// use k8s_informer::testing::ScriptedListerWatcher;
    /// use k8s_informer::{DynamicObject, SharedIndexInformer};
    /// use k8s_informer::informer::SharedIndexInformerOptions;
    /// use k8s_informer::metrics::{InformerMetrics, InformerName, InformerNameAndResource, MetricsProvider};
    /// use k8s_informer::object::GroupVersionResource;
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
        let mut problems = Vec::new();
        let metrics = self.reserved_metrics(provider, &mut problems);
        problems.iter().for_each(|problem| log::error!("{problem}"));
        Some(metrics?)
    }

    /// [`metrics`](Self::metrics) without logging.
    pub(crate) fn reserved_metrics(
        self,
        provider: &dyn MetricsProvider,
        problems: &mut Vec<String>,
    ) -> Option<Arc<ReservedMetrics>> {
        if !self.is_reserved() {
            return None;
        }
        // Also where nobody wants to know: it is given back then.
        let mut metrics = ReservedMetrics {
            informer: self,
            metrics: None,
        };
        let informer = &metrics.informer;
        match catch(|| provider.informer_metrics(informer.clone())) {
            Ok(created) => metrics.metrics = created,
            Err(panic) => problems.push(format!("{informer}: the metrics provider {panic}")),
        }
        metrics.metrics.is_some().then(|| Arc::new(metrics))
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

impl fmt::Debug for InformerNameAndResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerNameAndResource")
            .field("name", &self.name)
            .field("resource", &self.resource)
            .field("reserved", &self.is_reserved())
            .finish()
    }
}

/// What a provider gave for an informer: told while that is reserved, and the end of it.
pub(crate) struct ReservedMetrics {
    informer: InformerNameAndResource,
    metrics: Option<Arc<dyn InformerMetrics>>,
}

impl ReservedMetrics {
    pub(crate) fn is_reserved(&self) -> bool {
        self.informer.is_reserved()
    }

    /// Nothing is told from now on but the end.
    pub(crate) fn release(&self) {
        self.informer.release();
    }

    fn with_metrics(&self, report: impl FnOnce(&dyn InformerMetrics)) {
        if let Some(metrics) = self.metrics.as_deref().filter(|_| self.is_reserved()) {
            report(metrics);
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
        if let Some(metrics) = &self.metrics {
            call(|| metrics.ended());
        }
    }
}

impl Drop for ReservedMetrics {
    fn drop(&mut self) {
        self.informer.release();
    }
}
