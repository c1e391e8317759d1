//! An API server on loopback; its guide is in the docs of the room above.

mod api;
mod apply;
mod builder;
mod connection;
mod crd;
mod discovery;
mod faults;
mod http;
mod list;
mod log;
mod outlet;
mod patch;
mod resources;
mod select;
mod server;
mod shards;
mod status;
mod store;
mod validate;
mod watch;
mod write;

pub use builder::ApiServerBuilder;
pub use faults::Fault;
pub use log::{RequestRecord, Verb};
pub use resources::ApiResource;
pub use server::{ApiServer, Backup};
pub use status::StatusError;
