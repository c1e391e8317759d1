//! Invalid data from a server, a proxy or a broken connection costs one object or one connection.
//! It never ends the process, is never ignored silently, and never deletes an existing object.
mod bodies;
mod custom_store;
mod events;
mod false_deletes;
mod histories;
mod json;
mod limits;
mod log_lines;
mod objects;
#[cfg(feature = "client")]
mod restores;
mod secrets;
mod shards;
mod skipped;
mod support;
mod unchanged;
mod user_code;
mod versions;
