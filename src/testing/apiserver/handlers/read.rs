//! Reads objects and lists.

use crate::testing::apiserver::engine::list::{self, Options, Page, parse_version};
use crate::testing::apiserver::engine::shared::Shared;
use crate::testing::apiserver::engine::store::{Collection, Key};
use crate::testing::apiserver::model::object::Object;
use crate::testing::apiserver::model::resources::Target;
use crate::testing::apiserver::model::select::Selection;
use crate::testing::apiserver::model::status::StatusError;

/// Returns the collection of `target`, and the selection of the options in it.
pub(crate) fn selected(
    shared: &Shared,
    target: &Target,
    options: &Options,
) -> Result<(Collection, Selection), StatusError> {
    let resource = shared.resources.get(target.resource);
    let mut selection =
        Selection::parse(&options.label_selector, &options.field_selector, resource)?;
    if shared.settings.shards && !options.shard_selector.is_empty() {
        selection = selection.of_shards(&options.shard_selector)?;
    }
    Ok((
        Collection::new(target.storage, target.namespace.as_deref()),
        selection,
    ))
}

pub(crate) fn list_page(
    shared: &Shared,
    target: &Target,
    options: &Options,
) -> Result<Page, StatusError> {
    let (collection, selection) = selected(shared, target, options)?;
    list::list(&shared.state.lock().store, &collection, &selection, options)
}

pub(crate) fn get(
    shared: &Shared,
    target: &Target,
    version: Option<&str>,
) -> Result<std::sync::Arc<Object>, StatusError> {
    let resource = shared.resources.get(target.resource);
    let name = target
        .name
        .as_deref()
        .ok_or_else(StatusError::method_not_allowed)?;
    let requested = parse_version(version.unwrap_or_default())
        .map_err(|why| StatusError::bad_request(format!("invalid resource version: {why}")))?;
    let state = shared.state.lock();
    if requested > state.store.version() {
        return Err(StatusError::too_large_resource_version(
            requested,
            state.store.version(),
        ));
    }
    let found = state
        .store
        .get(&Key::new(target.storage, target.namespace.as_deref(), name))
        .cloned();
    found.ok_or_else(|| StatusError::not_found(name, &resource.group, &resource.plural))
}
