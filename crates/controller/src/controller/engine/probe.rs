//! The observer of a controller in a test.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::events::EventSink;
use k8s_informer::handler::HandlerRegistration;
use k8s_informer::object::Key;
use k8s_informer::workqueue::Order;

/// Observes a controller, and lets its workers continue one by one.
/// [`Drive::attach`](crate::controller::Drive::attach) documents the functions.
pub(crate) struct Probe {
    pub(crate) handler_added: Box<dyn Fn(HandlerRegistration) + Send + Sync>,
    pub(crate) wait_to_begin: Box<dyn Fn() + Send + Sync>,
    pub(crate) ended: Box<dyn Fn(Key, bool) + Send + Sync>,
    pub(crate) events: Arc<dyn EventSink>,
}

/// Returns the keys in their alphabetical order. The order of arrival depends on threads, and so do
/// the priorities: an object can belong to the initial list or follow it.
#[derive(Default)]
pub(crate) struct KeyOrder(BTreeSet<Key>);

impl Order<Key> for KeyOrder {
    fn push(&mut self, key: Key) {
        self.0.insert(key);
    }

    fn pop(&mut self) -> Option<Key> {
        self.0.pop_first()
    }
}
