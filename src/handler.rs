//! Handlers: callbacks for every change in a cache.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`ResourceEventHandler`] | the trait, with methods for added, updated and deleted objects | `ResourceEventHandler` |
//! | [`HandlerFuncs`] | a handler made of closures | `ResourceEventHandlerDetailedFuncs` |
//! | [`FilteringHandler`] | passes on only the objects that a closure accepts | `FilteringResourceEventHandler` |
//! | [`ChannelHandler`] | sends every [`Notification`] into a channel | |
//! | [`HandlerOptions`] | name, resync period and buffer of a handler | `HandlerOptions` |
//! | [`HandlerBuffer`] | how notifications wait for a slow handler: all of them, or merged per object | |
//! | [`HandlerRegistration`] | whether the handler has received the initial list, and its [`HandlerStats`] | `ResourceEventHandlerRegistration` |
//!
//! ```
//! use k8s_informer::handler::{FilteringHandler, HandlerFuncs, ResourceEventHandler};
//! use k8s_informer::{DynamicObject, Object};
//! use std::sync::{Arc, mpsc};
//!
//! let (sender, names) = mpsc::channel();
//! let log = HandlerFuncs::<DynamicObject>::new()
//!     .on_add(move |object, _| sender.send(object.name().to_owned()).unwrap());
//! let mut handler = FilteringHandler::new(|object: &DynamicObject| object.name() != "b", log);
//! for name in ["a", "b", "c"] {
//!     let object = serde_json::json!({"metadata": {"name": name}});
//!     handler.on_add(&Arc::new(serde_json::from_value(object)?), false);
//! }
//! drop(handler);
//! assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "c"]);
//! # Ok::<(), serde_json::Error>(())
//! ```

pub use crate::informer::handler::{
    ChannelHandler, FilteringHandler, HandlerFuncs, Notification, ResourceEventHandler,
};
pub use crate::informer::listener::{HandlerBuffer, HandlerStats};
pub use crate::informer::registration::{HandlerOptions, HandlerRegistration};
