use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::listener::{Handler, HandlerBuffer, HandlerStats};
use crate::stop::Done;
use crate::threads::Owner;

/// What may be said of a handler when it is added. client-go's `HandlerOptions`.
///
/// ```
/// use k8s_informer::testing::ScriptedListerWatcher;
/// use k8s_informer::{DynamicObject, SharedIndexInformer};
/// use k8s_informer::handler::{HandlerFuncs, HandlerOptions};
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
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// Stands in logs and in the names of its threads; `handler-N` if empty.
    pub name: String,
    /// How often it is told about everything once more: `None` as the informer is set, zero never (I9, I10).
    pub resync_period: Option<Duration>,
    /// What becomes of the events that wait while the handler is called: all of them do by default.
    pub buffer: HandlerBuffer,
}

/// A handler that was added to an informer. client-go's `ResourceEventHandlerRegistration`.
///
/// Dropping it does nothing: the handler stays until it is removed or the informer stops.
#[derive(Clone)]
#[doc(alias = "ResourceEventHandlerRegistration")]
pub struct HandlerRegistration {
    pub(super) id: u64,
    /// Which informer it is of: another one's is left alone.
    pub(super) informer: Owner,
    pub(super) handler: Arc<Handler>,
}

impl HandlerRegistration {
    /// The name of the handler.
    pub fn name(&self) -> &str {
        &self.handler.name
    }

    /// Whether the handler has been called for everything that was there when it was added (SP11).
    pub fn has_synced(&self) -> bool {
        self.synced().is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    pub fn synced(&self) -> &Done {
        self.handler.synced()
    }

    /// Happens when the handler will not be called any more: after it was removed, or the informer stopped,
    /// and the call that it was in has returned.
    pub fn ended(&self) -> &Done {
        self.handler.ended()
    }

    /// How much waits for it, and how it has fared.
    pub fn stats(&self) -> HandlerStats {
        self.handler.stats()
    }
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration")
            .field("name", &self.name())
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}
