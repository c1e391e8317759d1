use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::sync_tracker::SyncTracker;
use crate::stop::Done;
use crate::threads::Owner;

/// What may be said of a handler when it is added. client-go's `HandlerOptions`.
///
/// ```
/// use k8s_informer::testing::ScriptedListerWatcher;
/// use k8s_informer::{DynamicObject, HandlerFuncs, HandlerOptions, SharedIndexInformer};
/// use std::sync::Arc;
///
/// let nothing = Arc::new(ScriptedListerWatcher::new([]));
/// let informer = SharedIndexInformer::<DynamicObject>::new(nothing, Default::default());
/// let mut options = HandlerOptions::default();
/// options.name = "printer".into();
/// let printer = informer.add_handler_with_options(
///     HandlerFuncs::new().on_add(|object: &Arc<DynamicObject>, _| println!("{object:?}")),
///     options,
/// )?;
/// assert_eq!((printer.name(), printer.has_synced()), ("printer", false));
/// informer.remove_event_handler(&printer);
/// # Ok::<(), k8s_informer::InformerError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// Stands in logs and in the names of its threads; `handler-N` if empty.
    pub name: String,
    /// How often it is told about everything once more: `None` as the informer is set, zero never (I9, I10).
    pub resync_period: Option<Duration>,
}

/// A handler that was added to an informer. client-go's `ResourceEventHandlerRegistration`.
///
/// Dropping it does nothing: the handler stays until it is removed or the informer stops.
#[derive(Clone)]
pub struct HandlerRegistration {
    pub(super) id: u64,
    /// Which informer it is of: another one's is left alone.
    pub(super) informer: Owner,
    pub(super) name: Arc<str>,
    pub(super) tracker: Arc<SyncTracker>,
}

impl HandlerRegistration {
    /// The name of the handler.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the handler has been called for everything that was there when it was added (SP11).
    pub fn has_synced(&self) -> bool {
        self.synced().is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    pub fn synced(&self) -> &Done {
        self.tracker.synced()
    }
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration")
            .field("name", &self.name)
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}
