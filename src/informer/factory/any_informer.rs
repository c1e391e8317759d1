use std::any::Any;

use serde::de::DeserializeOwned;

use crate::base::threads::Owner;
use crate::informer::error::InformerError;
use crate::informer::error_listeners::ErrorSubscription;
use crate::informer::shared_informer::SharedIndexInformer;
use crate::informer::wait::Unsynced;
use crate::object::Object;
use crate::stop::{Done, Stop, Subscription};

/// Declares the trait, and forwards its methods to the informer.
macro_rules! any_informer {
    ($(fn $method:ident(&self $(, $argument:ident: $type:ty)?) $(-> $result:ty)?;)*) => {
        /// A [`SharedIndexInformer`] without its type parameter.
        pub(super) trait AnyInformer: Send + Sync {
            $(fn $method(&self $(, $argument: $type)?) $(-> $result)?;)*
            fn as_any(&self) -> &dyn Any;
        }

        impl<T: Object + DeserializeOwned> AnyInformer for SharedIndexInformer<T> {
            $(fn $method(&self $(, $argument: $type)?) $(-> $result)? {
                self.$method($($argument)?)
            })*

            fn as_any(&self) -> &dyn Any {
                self
            }
        }
    };
}

any_informer! {
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
}
