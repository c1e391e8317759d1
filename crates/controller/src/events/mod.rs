//! Records Kubernetes events about objects, as `kubectl describe` shows them.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`EventRecorder`] | records events, and writes them on a thread | `events.EventRecorder` and its broadcaster |
//! | [`EventDraft`] | an event with an action, a related object or annotations | |
//! | [`ObjectReference`](k8s_informer::object::ObjectReference), [`Referable`](k8s_informer::object::Referable) | the object that an event is about | `corev1.ObjectReference`, `reference.GetReference` |
//! | [`EventStats`] | what happened to the events | |
//! | [`EventSink`] | replaces the API server, for tests | `EventSink` |
//!
//! [`EventRecorder`] has an example. The guide has [a page about events](crate::guide::events).

#[doc(hidden)]
pub(crate) mod core;
mod error;
mod recorder;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
mod sink;
mod state;
mod stats;
mod validation;
mod writer;

pub use self::error::EventError;
pub use self::recorder::EventRecorder;
pub use self::recorder::builder::EventRecorderBuilder;
pub(crate) use self::recorder::builder::host_name;
pub use self::recorder::draft::{EventDraft, EventType};
pub use self::sink::EventSink;
pub use self::stats::EventStats;
