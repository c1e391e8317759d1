//! What goes over the wire, without a wire: options in, bytes in, objects out. No thread, socket or clock.

mod options;

pub use options::{ListOptions, ResourceVersionMatch};
