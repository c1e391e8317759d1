use std::sync::Arc;

use super::{Client, Request, Response, answer};
use crate::error::Error;
use crate::object::GroupVersionResource;
use crate::reflector::{Body, ListerWatcher, ListerWatcherSource};
use crate::stop::Stop;
use crate::wire::{ListOptions, UNRESERVED, percent_encoded};

/// Lists and watches one resource, in one namespace or all: what an informer reads from. Made by
/// [`Client::lister_watcher`] and [`Client::lister_watcher_of`]. client-go's `NewListWatchFromClient`.
///
/// Answers are JSON, not compressed. It is cheap to clone.
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceListerWatcher {
    client: Client,
    path: String,
    description: String,
}

impl ResourceListerWatcher {
    pub(super) fn new(client: Client, resource: &GroupVersionResource, namespace: Option<&str>) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let mut description = resource.resource().to_owned();
        if !resource.group().is_empty() {
            description = format!("{description}.{}", resource.group());
        }
        if let Some(namespace) = namespace {
            description = format!("{description} in namespace {namespace:?}");
        }
        // A namespace that comes from elsewhere must not reach into another path.
        let encoded = namespace.map(|namespace| percent_encoded(namespace, UNRESERVED));
        Self { client, path: resource.path(encoded.as_deref()), description }
    }

    /// `check` is what the answer has to be beside 2xx.
    fn get(
        &self,
        verb: &str,
        request: Request,
        stop: &Stop,
        check: impl FnOnce(&Response) -> Result<(), Error>,
    ) -> Result<Body, Error> {
        let checked = self.client.request(&request, stop).and_then(|response| match check(&response) {
            Ok(()) => Ok(response.into_body()),
            Err(error) => Err(error.context(response.body.context.to_string())),
        });
        checked.map_err(|error| error.context(format!("{verb} {}", self.description)))
    }
}

/// What a factory needs of a client.
impl ListerWatcherSource for Client {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        Arc::new(ResourceListerWatcher::new(self.clone(), resource, namespace))
    }
}

impl ListerWatcher for ResourceListerWatcher {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let request = Request::get(&self.path).raw_query(&options.to_query());
        self.get("list", request, stop, |response| answer::check_json(&response.headers))
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let request = Request::get(&self.path).raw_query(&options.to_watch_query());
        // How long it may be silent only the reflector knows, which tells the body.
        self.get("watch", request.idle_timeout(None), stop, |response| {
            answer::check_watch(response.status)?;
            answer::check_json(&response.headers)
        })
    }

    fn supports_watch_list(&self) -> bool {
        true
    }

    fn description(&self) -> String {
        self.description.clone()
    }
}
