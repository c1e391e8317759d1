use std::sync::Arc;

use super::ResourceEventHandler;
use crate::base::derive::debug_fields;
use crate::object::Deleted;
use crate::stop::Stop;

/// A handler that passes on only the objects that a filter accepts, as if no others existed.
/// client-go's `FilteringResourceEventHandler`.
///
/// An update becomes an add if the filter accepts only the new state, and a deletion if it accepts
/// only the old state.
///
/// A deletion passes if the filter accepts the state that was delivered before, whatever the final
/// state is. A handler that has received an object therefore also receives its deletion. A deletion
/// without an object passes: handlers can tolerate an unnecessary deletion, but not a missing one.
///
/// For an update, the filter is called with the new object first, then with the old one. The filter
/// must always return the same result for the same object. Otherwise, the handler can receive
/// deletions of objects that it never received.
///
/// ```
/// use k8s_informer::handler::{FilteringHandler, HandlerFuncs};
/// use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
/// use std::sync::{Arc, mpsc};
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [
///     {"metadata": {"name": "a", "labels": {"app": "web"}}}, {"metadata": {"name": "b"}}]}"#;
/// let relabeled = r#"{"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "8"}}}"#;
/// let source = ScriptedListerWatcher::new([Answer::body(list), Answer::open(relabeled)]);
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(source), Default::default());
///
/// let (sender, lines) = mpsc::channel();
/// let added = sender.clone();
/// let web = HandlerFuncs::new()
///     .on_add(move |object: &Arc<DynamicObject>, _| added.send(format!("+ {}", object.name())).unwrap())
///     .on_delete(move |gone| sender.send(format!("- {}", gone.name())).unwrap());
/// let is_web = |object: &DynamicObject| object.label("app") == Some("web");
/// informer.add_handler(FilteringHandler::new(is_web, web))?;
///
/// let stop = Stopper::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| informer.run(&stop));
///     assert_eq!(lines.iter().take(2).collect::<Vec<_>>(), ["+ a", "- a"]);
///     stop.stop();
/// });
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[doc(alias = "FilteringResourceEventHandler")]
pub struct FilteringHandler<T, H> {
    filter: Box<dyn FnMut(&T) -> bool + Send>,
    handler: H,
}

impl<T, H: ResourceEventHandler<T>> FilteringHandler<T, H> {
    /// Creates a handler that passes on the objects that `filter` accepts.
    pub fn new(filter: impl FnMut(&T) -> bool + Send + 'static, handler: H) -> Self {
        Self {
            filter: Box::new(filter),
            handler,
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
        if gone.object().is_none_or(|object| (self.filter)(object)) {
            self.handler.on_delete(gone);
        }
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<T>, gone: &Deleted<T>) {
        if (self.filter)(last_delivered) {
            self.handler.on_delete_after(last_delivered, gone);
        }
    }

    fn after_changes(&mut self, is_synced: bool) {
        self.handler.after_changes(is_synced);
    }
}

debug_fields!(FilteringHandler<T, H>:);
