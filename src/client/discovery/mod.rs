//! The groups, versions and resources of an API server, including the short names of kubectl.
//!
//! [`Client::discover`] finds a resource by name. [`Client::discovery`] returns a [`Discovery`],
//! which the client caches; its page has an example. The client-go counterparts are the packages
//! `discovery` and `restmapper`.

pub(super) mod cache;
mod decode;
mod document;
mod find;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub use document::{DiscoveredResource, Discovery, DiscoveryFailure};

use self::cache::{Fetch, FetchGuard, is_due};
use self::decode::DiscoveryBuilder;
use super::request::Purpose;
use super::{Client, Request};
use crate::error::Error;
use crate::log;
use crate::object::{GroupVersionKind, GroupVersionResource};
use crate::stop::{DoneSetter, Stop};

/// Requests the aggregated form, in which one response contains all groups. Servers older than
/// Kubernetes 1.30 return another form, which is an error.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json";

/// The maximum size of a response. A cluster with thousands of custom resources needs far less.
const BODY_LIMIT: u64 = 64 * 1024 * 1024;

/// The maximum number of failures that are logged.
const MAX_LOGGED: usize = 20;

/// How long discovery must lack a resource, in each answer, before [`Client::watchable`] returns an
/// error: several API servers behind one address learn of a new definition at different times.
const SETTLE: Duration = Duration::from_secs(5);

/// The time between two such answers.
const CHECK: Duration = Duration::from_secs(1);

impl Client {
    /// Finds a resource by a name that kubectl accepts. See [`Discovery::find`].
    ///
    /// The client fetches the resources of the server once and caches them for all of its clones.
    /// If the name is missing, the client fetches them again, at most every 10 seconds, because a
    /// CustomResourceDefinition may have been created. The client-go counterpart is
    /// `DeferredDiscoveryRESTMapper` with a `ShortcutExpander`.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// let server = ApiServer::start()?;
    /// let map = serde_json::json!({"metadata": {"name": "settings"}});
    /// server.create("/api/v1/namespaces/default/configmaps", map)?;
    /// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::never());
    ///
    /// let maps = client.discover("cm", &stop)?;
    /// assert_eq!((&*maps.resource.resource, &*maps.kind.kind), ("configmaps", "ConfigMap"));
    /// let namespace = maps.is_namespaced().then_some("default");
    /// let map = client.dynamic_api(&maps.resource, namespace).get("settings", &stop)?;
    /// assert_eq!(map.kind(), "ConfigMap");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Discovery::find`] and [`discovery`](Self::discovery).
    pub fn discover(&self, name: &str, stop: &Stop) -> Result<DiscoveredResource, Error> {
        self.find_or_refetch(|discovery| discovery.find(name), stop)
    }

    /// Finds the resource of a kind, in the given version.
    ///
    /// Use it to find the resource of a manifest, or of an owner reference. Caching works as for
    /// [`discover`](Self::discover). The client-go counterpart is `RESTMapping`.
    ///
    /// ```
    /// use k8s_informer::client::api::Patch;
    /// use k8s_informer::{Client, Config, DynamicObject, Object, Stop};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// let server = ApiServer::start()?;
    /// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::never());
    /// // Applies a manifest, like `kubectl apply`.
    /// let manifest = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}"#;
    /// let object: DynamicObject = serde_json::from_str(manifest)?;
    /// let found = client.discover_kind(&object.group_version_kind(), &stop)?;
    /// let namespace = found.is_namespaced().then(|| client.default_namespace());
    /// let api = client.dynamic_api(&found.resource, namespace);
    /// let applied = api.patch(object.name(), &Patch::apply("my-tool", &object), &stop)?;
    /// assert_eq!(applied.namespace(), "default");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`is_no_match`](Error::is_no_match) error if there is no such kind; the message
    /// contains similar names. If the group could not be read, returns the error of that group
    /// instead. It also returns the errors of [`discovery`](Self::discovery).
    pub fn discover_kind(
        &self,
        kind: &GroupVersionKind,
        stop: &Stop,
    ) -> Result<DiscoveredResource, Error> {
        self.find_or_refetch(|discovery| discovery.find_exact_kind(kind), stop)
    }

    /// Searches the cache. If there is no match, fetches once more and searches again.
    fn find_or_refetch(
        &self,
        find: impl Fn(&Discovery) -> Result<&DiscoveredResource, Error>,
        stop: &Stop,
    ) -> Result<DiscoveredResource, Error> {
        let context = |error: Error| error.context("discover");
        let last_started = self.inner.discovery.lock().last_started;
        let (number, discovery) = self.discovered(1, stop)?;
        let error = match find(&discovery) {
            Ok(found) => return Ok(found.clone()),
            Err(error) => error,
        };
        // If the result was fetched during this call, another fetch is useless.
        if number > last_started || !is_due(&mut self.inner.discovery.lock().missed, Instant::now())
        {
            return Err(context(error));
        }
        let (_, discovery) = self.discovered(number + 1, stop)?;
        find(&discovery).cloned().map_err(context)
    }

    /// Returns the groups, versions and resources of the server. The first call fetches them; later
    /// calls of this client and its clones return the cached result.
    ///
    /// A fetch sends one request to `/api` and one to `/apis`. If the server does not support
    /// aggregated discovery, it also sends one request for each version of each group. For each
    /// request, the client's [`response_timeout`](crate::Config::response_timeout) limits the wait
    /// for the head and, separately, the time to read the body. Concurrent calls share one fetch.
    ///
    /// # Errors
    ///
    /// Returns an error if `/api` or `/apis` cannot be read. If only some groups cannot be read,
    /// the call succeeds and lists them as [failures](Discovery::failures).
    pub fn discovery(&self, stop: &Stop) -> Result<Arc<Discovery>, Error> {
        Ok(self.discovered(1, stop)?.1)
    }

    /// Like [`discovery`](Self::discovery), but fetches now and replaces the cached result. The
    /// client-go counterpart is `Invalidate`.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::never());
    /// assert!(client.discovery(&stop)?.find("widgets").is_err());
    ///
    /// let widgets = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
    ///     "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
    ///     "versions": [{"name": "v1", "served": true, "storage": true}],
    /// }});
    /// server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)?;
    /// assert_eq!(client.rediscover(&stop)?.find("widget")?.kind.kind, "Widget");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`discovery`](Self::discovery). The cached result is kept after an error.
    pub fn rediscover(&self, stop: &Stop) -> Result<Arc<Discovery>, Error> {
        let next = self.inner.discovery.lock().last_started + 1;
        Ok(self.discovered(next, stop)?.1)
    }

    /// Finds a resource by name, and checks that it supports `list` and `watch`.
    pub(super) fn watchable(&self, name: &str, stop: &Stop) -> Result<GroupVersionResource, Error> {
        let found = self.discover_settled(name, stop)?;
        for verb in ["list", "watch"] {
            if !found.has_verb(verb) {
                let verbs: Vec<&str> = found.verbs.iter().map(String::as_str).take(10).collect();
                return Err(Error::other(format!(
                    "{} does not support the verb {verb}, which an informer needs; it supports: {}",
                    found.resource,
                    verbs.join(", ")
                )));
            }
        }
        Ok(found.resource)
    }

    /// Like [`discover`](Self::discover), but a missing name is requested again until discovery has
    /// lacked it for some time. An informer would not be started at all because of one answer.
    fn discover_settled(&self, name: &str, stop: &Stop) -> Result<DiscoveredResource, Error> {
        let began = Instant::now();
        let mut found = self.discover(name, stop);
        while let Err(error) = &found
            && error.is_no_match()
            && began.elapsed() < SETTLE
            && !stop.wait_timeout(CHECK)
        {
            let discovery = self.rediscover(stop)?;
            let again = discovery.find(name).cloned();
            found = again.map_err(|error| error.context("discover"));
        }
        found
    }

    /// Adds what discovery has to the error of a request that the server does not serve. A list or
    /// a watch may be for all namespaces.
    pub(super) fn explain_unserved(
        &self,
        error: Error,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
        all_namespaces: bool,
        stop: &Stop,
    ) -> Error {
        // For a missing object, the details name it.
        let details = error.status().and_then(|status| status.details.as_ref());
        let names_an_object = details.is_some_and(|details| !details.name.is_empty());
        if names_an_object || !(error.is_not_found() || error.is_method_not_allowed()) {
            return error;
        }
        let discovery = self.discovery_with(resource, stop);
        match discovery.and_then(|found| found.difference(resource, namespace, all_namespaces)) {
            Some(difference) => error.hint(difference),
            None => error,
        }
    }

    /// Returns the cached discovery if it has the resource. Otherwise fetches it, at most every ten
    /// seconds.
    fn discovery_with(
        &self,
        resource: &GroupVersionResource,
        stop: &Stop,
    ) -> Option<Arc<Discovery>> {
        let (current, may_fetch) = {
            let mut state = self.inner.discovery.lock();
            let has = |(_, found): &(u64, Arc<Discovery>)| found.by_resource(resource).is_some();
            let current = state.current.clone();
            let may_fetch =
                !current.as_ref().is_some_and(has) && is_due(&mut state.explained, Instant::now());
            (current, may_fetch)
        };
        let next = current.as_ref().map_or(1, |(number, _)| number + 1);
        let fetched = may_fetch
            .then(|| self.discovered(next, stop).ok())
            .flatten();
        Some(fetched.or(current)?.1)
    }

    /// Returns the result of fetch number `at_least` or of a later one, and its number. Starts a
    /// fetch if none is in progress; otherwise waits for that fetch.
    fn discovered(&self, at_least: u64, stop: &Stop) -> Result<(u64, Arc<Discovery>), Error> {
        loop {
            let (fetch, is_own) = {
                let mut cache = self.inner.discovery.lock();
                if let Some((number, discovery)) = &cache.current
                    && *number >= at_least
                {
                    return Ok((*number, discovery.clone()));
                }
                match &cache.pending {
                    Some(fetch) => (fetch.clone(), false),
                    None => {
                        cache.last_started += 1;
                        let fetch = Fetch {
                            number: cache.last_started,
                            done: DoneSetter::new("discovery"),
                            result: OnceLock::new(),
                        };
                        (cache.pending.insert(Arc::new(fetch)).clone(), true)
                    }
                }
            };
            if is_own {
                let _guard = FetchGuard {
                    cache: &self.inner.discovery,
                    fetch: &fetch,
                };
                let found = self.fetch_discovery(stop).map(Arc::new);
                let _ = fetch.result.set(found);
            } else if fetch.done.wait_until_either(None, stop).is_err() {
                return Err(Error::stopped().context("discover"));
            }
            // A fetch stopped by its caller has no result for others, which start another one.
            if let Some(Err(error)) = fetch.result.get()
                && fetch.number >= at_least
                && (is_own || !error.is_stopped())
            {
                return Err(error.clone().context("discover"));
            }
        }
    }

    fn fetch_discovery(&self, stop: &Stop) -> Result<Discovery, Error> {
        let mut found = DiscoveryBuilder::default();
        for path in ["/api", "/apis"] {
            let request = Request::get(path).accept(ACCEPT);
            match self.read_json(request, stop, |body| found.read_root(body)) {
                // A partial API server may serve only one of the two paths.
                Err(error) if error.is_not_found() => {}
                read => read?,
            }
        }
        let known = self.inner.discovery.lock().current.clone();
        let known = known
            .as_ref()
            .map_or(&[][..], |(_, known)| known.failures());
        for failure in found.discovery.failures.iter().take(MAX_LOGGED) {
            // Waits and errors of other requests fetch again and again.
            let is_it = |known: &DiscoveryFailure| {
                (&known.group, &known.version) == (&failure.group, &failure.version)
            };
            let level = match known.iter().any(is_it) {
                true => ::log::Level::Debug,
                false => ::log::Level::Warn,
            };
            log::log!(level, "discovery: {}: {}", failure.place(), failure.error);
        }
        Ok(found.discovery)
    }

    /// Sends a request and reads the whole JSON response. A response larger than `BODY_LIMIT` is an
    /// error.
    fn read_json(
        &self,
        request: Request,
        stop: &Stop,
        read: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let request = request.body_limit(BODY_LIMIT).purpose(Purpose::Json);
        let response = self.request(&request, stop)?;
        let context = response.body.context.clone();
        let body = response.bytes()?;
        read(&body).map_err(|error| error.context(context.to_string()))
    }
}
