//! Reads objects and lists.

use crate::apiserver::engine::list::{self, Options, Page, parse_version};
use crate::apiserver::engine::shared::Shared;
use crate::apiserver::model::object::Object;
use crate::apiserver::model::resources::Target;
use crate::apiserver::model::select::Selection;
use crate::apiserver::model::status::StatusError;

/// Returns the selection of the options in the collection of `target`.
pub(crate) fn selected(
    shared: &Shared,
    target: &Target,
    options: &Options,
) -> Result<Selection, StatusError> {
    let (labels, fields) = (&options.label_selector, &options.field_selector);
    let mut selection = Selection::parse(labels, fields, &target.resource)?;
    if shared.settings.shards && !options.shard_selector.is_empty() {
        selection = selection.of_shards(&options.shard_selector)?;
    }
    Ok(selection)
}

pub(crate) fn list_page(
    shared: &Shared,
    target: &Target,
    options: &Options,
) -> Result<Page, StatusError> {
    let selection = selected(shared, target, options)?;
    let store = &mut shared.state.lock().store;
    list::list(store, &target.prefix(), &selection, options)
}

pub(crate) fn get(
    shared: &Shared,
    target: &Target,
    version: Option<&str>,
) -> Result<std::sync::Arc<Object>, StatusError> {
    let (key, name) = target.key()?;
    let requested = parse_version(version.unwrap_or_default())
        .map_err(|why| StatusError::bad_request(format!("invalid resource version: {why}")))?;
    let state = shared.state.lock();
    if requested > state.store.version() {
        return Err(StatusError::too_large_resource_version(
            requested,
            state.store.version(),
        ));
    }
    let found = state.store.get(&key).cloned();
    let resource = &target.resource;
    found.ok_or_else(|| resource.not_found(name))
}
