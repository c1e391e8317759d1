use std::any::Any;

use serde::de::DeserializeOwned;

use crate::informer::error::InformerError;
use crate::informer::error_listeners::ErrorSubscription;
use crate::informer::shared_informer::SharedIndexInformer;
use crate::informer::wait::Unsynced;
use crate::object::Object;
use crate::stop::{Done, Stop, Subscription};
use crate::threads::Owner;

/// A [`SharedIndexInformer`] without its type parameter.
pub(super) trait AnyInformer: Send + Sync {
    fn run(&self, stop: &Stop) -> Result<(), InformerError>;
    fn request_run(&self);
    fn is_run_requested(&self) -> bool;
    fn name(&self) -> &str;
    fn synced(&self) -> &Done;
    fn stop_or_end(&self, stop: &Stop) -> (Stop, Subscription);
    fn unsynced(&self) -> Vec<Unsynced>;
    fn undecodable(&self) -> Vec<Unsynced>;
    fn stop_on_refusal(&self, stop: &Stop) -> ErrorSubscription;
    fn owner(&self) -> Owner;
    fn running_threads(&self) -> Vec<String>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Object + DeserializeOwned> AnyInformer for SharedIndexInformer<T> {
    fn run(&self, stop: &Stop) -> Result<(), InformerError> {
        self.run(stop)
    }

    fn request_run(&self) {
        self.request_run();
    }

    fn is_run_requested(&self) -> bool {
        self.is_run_requested()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn synced(&self) -> &Done {
        self.synced()
    }

    fn stop_or_end(&self, stop: &Stop) -> (Stop, Subscription) {
        self.stop_or_end(stop)
    }

    fn unsynced(&self) -> Vec<Unsynced> {
        self.unsynced()
    }

    fn undecodable(&self) -> Vec<Unsynced> {
        self.undecodable()
    }

    fn stop_on_refusal(&self, stop: &Stop) -> ErrorSubscription {
        self.stop_on_refusal(stop)
    }

    fn owner(&self) -> Owner {
        self.owner()
    }

    fn running_threads(&self) -> Vec<String> {
        self.running_threads()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
