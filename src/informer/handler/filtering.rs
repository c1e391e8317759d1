use std::fmt;
use std::sync::Arc;

use super::ResourceEventHandler;
use crate::object::Deleted;
use crate::stop::Stop;

/// A handler that is told only about the objects that a filter lets pass, as if there were no others: one
/// that changes so that it passes is added, one that changes so that it doesn't any more is deleted.
/// client-go's `FilteringResourceEventHandler`.
///
/// A deletion passes if the state delivered before it does, whatever the final state is: a handler that has
/// received an object also receives its deletion.
///
/// An update asks for the new object first, then for the old one (H1). The filter has to answer the same for
/// the same object each time, or the handler is told of deletions of what it never saw.
///
/// ```
/// use k8s_informer::testing::ScriptedListerWatcher;
/// use k8s_informer::{DynamicObject, Object, SharedIndexInformer};
/// use k8s_informer::handler::{FilteringHandler, HandlerFuncs};
/// use std::sync::Arc;
///
/// let nothing = Arc::new(ScriptedListerWatcher::new([]));
/// let informer = SharedIndexInformer::<DynamicObject>::new(nothing, Default::default());
/// let web = HandlerFuncs::new().on_add(|pod: &Arc<DynamicObject>, _| println!("+ {}", pod.name()));
/// informer.add_handler(FilteringHandler::new(|pod: &DynamicObject| pod.label("app") == Some("web"), web))?;
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[doc(alias = "FilteringResourceEventHandler")]
pub struct FilteringHandler<T, H> {
    filter: Box<dyn FnMut(&T) -> bool + Send>,
    tombstones: Option<Box<FilterDeleted<T>>>,
    handler: H,
}

type FilterDeleted<T> = dyn FnMut(&Deleted<T>) -> bool + Send;

impl<T, H: ResourceEventHandler<T>> FilteringHandler<T, H> {
    /// The handler is told about what passes the filter.
    pub fn new(filter: impl FnMut(&T) -> bool + Send + 'static, handler: H) -> Self {
        Self {
            filter: Box::new(filter),
            tombstones: None,
            handler,
        }
    }

    /// What passes of the deletions that a relist found out about, whose object is an older state of what is
    /// gone, or not there at all ([`Deleted::FinalStateUnknown`]). By default the filter is asked for the
    /// object, and what has none passes: a handler can do without a deletion too many, but not with one too
    /// few.
    #[must_use]
    pub fn tombstones(mut self, filter: impl FnMut(&Deleted<T>) -> bool + Send + 'static) -> Self {
        self.tombstones = Some(Box::new(filter));
        self
    }

    fn passes(&mut self, gone: &Deleted<T>) -> bool {
        match &mut self.tombstones {
            Some(tombstones) if gone.is_final_state_unknown() => tombstones(gone),
            _ => gone.object().is_none_or(|object| (self.filter)(object)),
        }
    }
}

impl<T, H: ResourceEventHandler<T>> ResourceEventHandler<T> for FilteringHandler<T, H> {
    fn begin(&mut self, removed: &Stop) {
        self.handler.begin(removed);
    }

    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        if (self.filter)(object) {
            self.handler.on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        match ((self.filter)(new), (self.filter)(old)) {
            (true, true) => self.handler.on_update(old, new),
            (true, false) => self.handler.on_add(new, false),
            (false, true) => self.handler.on_delete(&Deleted::Final(Arc::clone(old))),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        if self.passes(gone) {
            self.handler.on_delete(gone);
        }
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<T>, gone: &Deleted<T>) {
        let last = Arc::clone(last_delivered);
        let as_delivered = match gone {
            Deleted::Final(_) => Deleted::Final(last),
            Deleted::FinalStateUnknown { key, .. } => Deleted::FinalStateUnknown {
                key: Arc::clone(key),
                last_known: Some(last),
            },
        };
        if self.passes(&as_delivered) {
            self.handler.on_delete_after(last_delivered, gone);
        }
    }
}

impl<T, H: fmt::Debug> fmt::Debug for FilteringHandler<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilteringHandler")
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}
