use std::sync::Arc;

use crate::client::request::Purpose;
use crate::client::{Client, Request, Response};
use crate::error::Error;
use crate::object::GroupVersionResource;
use crate::reflector::{Body, ListerWatcher, ListerWatcherSource};
use crate::stop::Stop;
use crate::wire::{EscapedName, ListOptions};

/// The `Accept` header that requests only the metadata of an object. Servers that do not support it
/// return the whole object.
pub(super) const JSON: &str = "application/json";
pub(super) const PARTIAL: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
pub(super) const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json";

/// Lists and watches one resource, in one namespace or all.
///
/// Responses are JSON. With the feature `gzip`, lists are requested with compression; see
/// [`Config::compression`](crate::Config::compression).
#[derive(Clone, Debug)]
pub(super) struct ResourceListerWatcher {
    client: Client,
    resource: GroupVersionResource,
    namespace: Option<String>,
    /// The path of the collection. An invalid path is returned as an error by every request.
    path: Result<String, Error>,
    description: String,
    metadata_only: bool,
    /// Whether the error of a resource that is not served says what discovery has.
    explains: bool,
    /// How many times a request is resent after a 429 or 5xx response with a retry delay.
    retries: u32,
}

impl ResourceListerWatcher {
    pub(super) fn new(
        client: Client,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let path = resource.path(namespace);
        Self {
            client,
            resource: resource.clone(),
            namespace: namespace.map(str::to_owned),
            path,
            description: describe(resource, "", None, namespace),
            metadata_only: false,
            explains: false,
            // No retries by default: a reflector backs off and reports the error itself.
            retries: 0,
        }
    }

    /// Returns a lister-watcher that resends requests up to [`Request::DEFAULT_RETRIES`] times,
    /// like the other operations of an `Api`.
    pub(super) fn retrying(self) -> Self {
        Self {
            retries: Request::DEFAULT_RETRIES,
            ..self
        }
    }

    /// Returns a lister-watcher whose errors say what discovery has. It may send further requests.
    pub(super) fn explaining(self) -> Self {
        Self {
            explains: true,
            ..self
        }
    }

    pub(super) fn metadata_only(self) -> Self {
        Self {
            metadata_only: true,
            ..self
        }
    }

    /// Sends a LIST. The caller reads the body.
    pub(super) fn list_response(
        &self,
        options: &ListOptions,
        stop: &Stop,
    ) -> Result<Response, Error> {
        let request = self.request(&options.to_query(), PARTIAL_LIST);
        let request = request.map(|request| request.purpose(Purpose::List));
        self.get("list", options, request, stop)
    }

    fn request(&self, query: &str, partial: &str) -> Result<Request, Error> {
        let request = Request::get(self.path.clone()?)
            .raw_query(query)
            .retries(self.retries);
        Ok(if self.metadata_only {
            request.accept(partial)
        } else {
            request
        })
    }

    fn get(
        &self,
        verb: &str,
        options: &ListOptions,
        request: Result<Request, Error>,
        stop: &Stop,
    ) -> Result<Response, Error> {
        let response = request.and_then(|request| {
            let response = self.client.request(&request, stop);
            response.map_err(|error| match self.explains {
                true => {
                    let namespace = self.namespace.as_deref();
                    self.client
                        .explain_unserved(error, &self.resource, namespace, true, stop)
                }
                false => error,
            })
        });
        response.map_err(|error| {
            with_selectors(error, options).context(format!("{verb} {}", self.description))
        })
    }
}

/// Adds the selectors to the error of a request that the server does not understand. They can be the
/// reason, and the message of the server does not contain them.
pub(super) fn with_selectors(error: Error, options: &ListOptions) -> Error {
    let selectors = [
        ("field", &options.field_selector),
        ("label", &options.label_selector),
    ];
    let is_concerned = error.is_bad_request();
    selectors
        .into_iter()
        .fold(error, |error, (what, selector)| match selector {
            Some(selector) if is_concerned => {
                error.context(format!("{what} selector \"{}\"", EscapedName(selector)))
            }
            _ => error,
        })
}

/// Describes a request in messages: `deployments.apps/status "web" in namespace "default"`.
pub(super) fn describe(
    resource: &GroupVersionResource,
    subresource: &str,
    name: Option<&str>,
    namespace: Option<&str>,
) -> String {
    let mut description = resource.resource.clone();
    if !resource.group.is_empty() {
        description = format!("{description}.{}", resource.group);
    }
    if !subresource.is_empty() {
        description = format!("{description}/{subresource}");
    }
    if let Some(name) = name {
        description = format!("{description} {name:?}");
    }
    if let Some(namespace) = namespace {
        description = format!("{description} in namespace {namespace:?}");
    }
    description
}

impl Client {
    /// Returns a lister-watcher for a resource in one namespace, or in all namespaces with `None`.
    /// Use it with a [`Reflector`](crate::reflector::Reflector) or a single informer. The client-go
    /// counterpart is `NewListWatchFromClient`.
    ///
    /// To list and watch only the metadata, use
    /// [`metadata_lister_watcher`](crate::reflector::ListerWatcherSource::metadata_lister_watcher).
    #[doc(alias = "NewListWatchFromClient")]
    pub fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        Arc::new(ResourceListerWatcher::new(
            self.clone(),
            resource,
            namespace,
        ))
    }
}

impl ListerWatcherSource for Client {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        Arc::new(ResourceListerWatcher::new(self.clone(), resource, namespace).explaining())
    }

    fn metadata_lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        let lister_watcher = ResourceListerWatcher::new(self.clone(), resource, namespace);
        Arc::new(lister_watcher.explaining().metadata_only())
    }

    fn find_resource(&self, name: &str, stop: &Stop) -> Result<GroupVersionResource, Error> {
        self.watchable(name, stop)
    }
}

impl ListerWatcher for ResourceListerWatcher {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        Ok(self.list_response(options, stop)?.into_body())
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let request = self.request(&options.to_watch_query(), PARTIAL);
        // The reflector sets the idle timeout with each read.
        let request = request.map(|request| request.idle_timeout(None).purpose(Purpose::Watch));
        Ok(self.get("watch", options, request, stop)?.into_body())
    }

    fn supports_watch_list(&self) -> bool {
        true
    }

    fn description(&self) -> String {
        self.description.clone()
    }
}
