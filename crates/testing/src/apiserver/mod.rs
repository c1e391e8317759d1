//! The embedded API server. Its guide is the page of the crate.
//!
//! Each folder uses those before it: `model` has values and rules, `engine` the store, `handlers`
//! the requests, and `net` the sockets and threads.

mod engine;
mod handlers;
mod model;
mod net;

pub use model::faults::Fault;
pub use model::log::{RequestRecord, Verb};
pub use model::resources::ApiResource;
pub use model::status::StatusError;
pub use model::write_record::WriteRecord;
pub use net::builder::ApiServerBuilder;
pub use net::server::{ApiServer, Backup};
