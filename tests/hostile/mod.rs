//! What a server, a proxy or a broken wire may send costs one object or one connection: never the process,
//! never silently, and never an object that is still there.
mod bodies;
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
