use std::sync::Arc;
use std::time::Duration;

use super::listener::{Handler, HandlerBuffer, HandlerStats};
use crate::base::derive::{debug_fields, setters};
use crate::base::threads::Owner;
use crate::stop::Done;

/// Options for a handler. client-go's `HandlerOptions`.
///
/// ```
/// use k8s_informer::handler::{HandlerFuncs, HandlerOptions};
/// use k8s_informer::{DynamicObject, SharedIndexInformer};
/// use k8s_informer_testing::ScriptedListerWatcher;
/// use std::sync::Arc;
///
/// let nothing = Arc::new(ScriptedListerWatcher::new([]));
/// let informer = SharedIndexInformer::<DynamicObject>::new(nothing, Default::default());
/// let options = HandlerOptions::new().name("printer");
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
    /// The name of the handler in logs and in the names of its threads. `None` selects `handler-N`.
    pub name: Option<String>,
    /// The resync period of the handler. `None` selects the informer's period, and zero selects no
    /// resyncs.
    ///
    /// A period below one second becomes one second. If the period is shorter than the informer's,
    /// the result depends on whether the informer has started. Before its start, the informer
    /// adopts the shorter period. After its start, the handler gets the informer's period. If the
    /// informer has no resync period, the handler has no resyncs.
    pub resync_period: Option<Duration>,
    /// The buffer of notifications that wait while the handler runs. Unbounded by default.
    pub buffer: HandlerBuffer,
}

impl HandlerOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the name of the handler in logs and in the names of its threads.
        name(name: impl Into<String>) = Some(name.into());
        /// Sets the [resync period](Self#structfield.resync_period) of the handler.
        resync_period(period: impl Into<Option<Duration>>) = period.into();
        /// Sets the buffer of notifications that wait while the handler runs.
        buffer(buffer: HandlerBuffer) = buffer;
    }
}

/// A handler that was added to an informer. client-go's `ResourceEventHandlerRegistration`.
///
/// Dropping the registration does not remove the handler. It stays until you remove it or the
/// informer stops.
#[derive(Clone)]
#[doc(alias = "ResourceEventHandlerRegistration")]
pub struct HandlerRegistration {
    /// The informer of the handler. Other informers ignore the registration.
    pub(super) informer: Owner,
    pub(super) handler: Arc<Handler>,
}

impl HandlerRegistration {
    /// Returns the name of the handler.
    pub fn name(&self) -> &str {
        &self.handler.name
    }

    /// Whether the handler has been called for every object of its initial list.
    pub fn has_synced(&self) -> bool {
        self.synced().is_done()
    }

    /// Returns a [`Done`] that is set when [`has_synced`](Self::has_synced) becomes true.
    pub fn synced(&self) -> &Done {
        self.handler.synced()
    }

    /// Returns a [`Done`] that is set when the handler will not be called again: the handler was
    /// removed or the informer has stopped, and the last call has returned.
    pub fn ended(&self) -> &Done {
        &self.handler.ended
    }

    /// Returns statistics of the handler, for example the number of notifications that wait for it.
    pub fn stats(&self) -> HandlerStats {
        self.handler.stats()
    }
}

debug_fields!(HandlerRegistration, this, name: this.name(), synced: this.has_synced());
