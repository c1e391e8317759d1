//! Values: resources, objects, requests, errors, and the rules that need no store.

pub(crate) mod apply;
pub(crate) mod auth;
pub(crate) mod definitions;
pub(crate) mod delete_options;
pub(crate) mod faults;
pub(crate) mod field_set;
mod finalizers;
pub(crate) mod garbage;
pub(crate) mod http;
pub(crate) mod keyed_lists;
pub(crate) mod log;
pub(crate) mod managers;
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod object_rules;
pub(crate) mod patch;
pub(crate) mod resources;
pub(crate) mod schema;
pub(crate) mod select;
pub(crate) mod shards;
pub(crate) mod status;
pub(crate) mod strategic_merge;
pub(crate) mod strategy;
pub(crate) mod validate;
pub(crate) mod write_options;
pub(crate) mod write_record;
