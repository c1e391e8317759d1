//! What an API server serves: groups, versions, resources, and kubectl's short names.
//!
//! [`Client::discover`] returns a [`Discovery`], which a client caches; its page has an example. Go's `discovery` and
//! `restmapper`.

mod decode;
mod document;
mod find;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use document::{
    DiscoveredGroup, DiscoveredResource, DiscoveredSubresource, Discovery, DiscoveryFailure,
};

use self::decode::Found;
use super::{Client, Request, response_checks};
use crate::error::Error;
use crate::object::{GroupVersionKind, GroupVersionResource, group_version_path};
use crate::stop::{Done, Stop};
use crate::sync::Mutex;

/// All in one answer, as servers do since 1.26 and by that name since 1.30; else the older form. client-go
/// asks for `v2` alone.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                      application/json";

/// The largest answer that is read: a cluster with thousands of custom resources is far below.
const BODY_LIMIT: u64 = 64 * 1024 * 1024;

/// How many versions of groups are asked one by one, in the older form.
const MOST_VERSIONS: usize = 2048;

/// How many failures are logged.
const MOST_LOGGED: usize = 20;

/// After what was not there has been looked for anew, how long before that is done again.
const PAUSE: Duration = Duration::from_secs(10);

/// What is known of the server. Nothing blocks under the lock.
#[derive(Default)]
pub(super) struct Cache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the last fetch that was begun.
    begun: u64,
    /// The one that is under way.
    flight: Option<Arc<Flight>>,
    /// Of the fetch with this number.
    current: Option<(u64, Arc<Discovery>)>,
    /// When something was last fetched because a name was not there.
    missed: Option<Instant>,
}

/// A fetch that is under way, for all who wait for it.
struct Flight {
    number: u64,
    done: Done,
    result: Mutex<Option<Result<Arc<Discovery>, Error>>>,
}

impl State {
    /// Whether what is not there may be looked for anew. Says so once in a while.
    fn may_look_again(&mut self, now: Instant) -> bool {
        let may = self
            .missed
            .is_none_or(|missed| now.saturating_duration_since(missed) >= PAUSE);
        if may {
            self.missed = Some(now);
        }
        may
    }
}

/// Ends a flight, whatever became of it.
struct Landing<'a> {
    cache: &'a Cache,
    flight: Arc<Flight>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let result = self.flight.result.lock().clone();
        let old = {
            let mut state = self.cache.state.lock();
            state.flight = None;
            match result {
                Some(Ok(discovery)) => state.current.replace((self.flight.number, discovery)),
                _ => None,
            }
        };
        drop(old);
        self.flight.done.set();
    }
}

impl Client {
    /// The resource that kubectl would take for this name, see [`Discovery::find`].
    ///
    /// What the server serves is asked for once and kept, for all clones of the client. A name that is not
    /// there is looked for anew at the server, at most every ten seconds: a CustomResourceDefinition may have
    /// been created meanwhile. client-go's `DeferredDiscoveryRESTMapper` with a `ShortcutExpander`.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    ///
    /// let server = ApiServer::start()?;
    /// let map = serde_json::json!({"metadata": {"name": "settings"}});
    /// server.create("/api/v1/namespaces/default/configmaps", map)?;
    /// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::new());
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
    /// As [`Discovery::find`] and [`discovery`](Self::discovery).
    pub fn discover(&self, name: &str, stop: &Stop) -> Result<DiscoveredResource, Error> {
        self.look_for(|discovery| discovery.find(name), stop)
    }

    /// The resource whose objects are of this kind, in this version: where an object goes that says what it
    /// is, or the owner that an object names. It is looked for as by [`discover`](Self::discover).
    /// client-go's `RESTMapping`.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, DynamicObject, Object, Stop};
    /// use k8s_informer::client::api::Patch;
    ///
    /// let server = ApiServer::start()?;
    /// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::new());
    /// // What `kubectl apply` does with a manifest.
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
    /// [`is_no_match`](Error::is_no_match) if there is none, with what is near; why the group could not be
    /// asked, if that is it; as [`discovery`](Self::discovery).
    pub fn discover_kind(
        &self,
        kind: &GroupVersionKind,
        stop: &Stop,
    ) -> Result<DiscoveredResource, Error> {
        self.look_for(|discovery| discovery.of_this_kind(kind), stop)
    }

    /// In what is known, and once more in what the server says now if it is not there.
    fn look_for(
        &self,
        find: impl Fn(&Discovery) -> Result<&DiscoveredResource, Error>,
        stop: &Stop,
    ) -> Result<DiscoveredResource, Error> {
        let context = |error: Error| error.context("discover");
        let begun = self.inner.discovery.state.lock().begun;
        let (number, discovery) = self.discovered(1, stop)?;
        let error = match find(&discovery) {
            Ok(found) => return Ok(found.clone()),
            Err(error) => error,
        };
        // What was fetched for this very call is as new as it gets.
        if number > begun
            || !self
                .inner
                .discovery
                .state
                .lock()
                .may_look_again(Instant::now())
        {
            return Err(context(error));
        }
        let (_, discovery) = self.discovered(number + 1, stop)?;
        find(&discovery).cloned().map_err(context)
    }

    /// All that the server serves, as it was when it was asked last: by this client, or a clone of it. Asks
    /// if nobody has.
    ///
    /// That is one request to each of `/api` and `/apis`, or one for each version of each group where a
    /// server doesn't know the aggregated form. Each takes no longer than the client's
    /// [`response_timeout`](crate::Config::response_timeout) for its head, and as long again for its body.
    /// Who asks while somebody else does waits for the same answers.
    ///
    /// # Errors
    ///
    /// There is no answer, or one that is none. A group of which that is true is a
    /// [failure](Discovery::failures), and no error.
    pub fn discovery(&self, stop: &Stop) -> Result<Arc<Discovery>, Error> {
        Ok(self.discovered(1, stop)?.1)
    }

    /// As [`discovery`](Self::discovery), asked for now, and kept from now on. client-go's `Invalidate`.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::new());
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
    /// As [`discovery`](Self::discovery); what was known before is then kept.
    pub fn rediscover(&self, stop: &Stop) -> Result<Arc<Discovery>, Error> {
        let next = self.inner.discovery.state.lock().begun + 1;
        Ok(self.discovered(next, stop)?.1)
    }

    /// What can be listed and watched under this name.
    pub(super) fn watchable(&self, name: &str, stop: &Stop) -> Result<GroupVersionResource, Error> {
        let found = self.discover(name, stop)?;
        for verb in ["list", "watch"] {
            if !found.has_verb(verb) {
                let verbs: Vec<&str> = found.verbs.iter().map(String::as_str).take(10).collect();
                return Err(Error::other(format!(
                    "{} has no verb {verb}, which an informer needs; it has: {}",
                    found.resource,
                    verbs.join(", ")
                )));
            }
        }
        Ok(found.resource)
    }

    /// What a fetch with at least this number has brought.
    fn discovered(&self, at_least: u64, stop: &Stop) -> Result<(u64, Arc<Discovery>), Error> {
        let cache = &self.inner.discovery;
        loop {
            let flight = {
                let mut state = cache.state.lock();
                if let Some((number, discovery)) = &state.current
                    && *number >= at_least
                {
                    return Ok((*number, discovery.clone()));
                }
                match &state.flight {
                    Some(flight) => Err(flight.clone()),
                    None => {
                        state.begun += 1;
                        let done = Done::new("discovery");
                        let flight = Flight {
                            number: state.begun,
                            done,
                            result: Mutex::new(None),
                        };
                        Ok(state.flight.insert(Arc::new(flight)).clone())
                    }
                }
            };
            match flight {
                Ok(flight) => {
                    let landing = Landing {
                        cache,
                        flight: flight.clone(),
                    };
                    let fetched = self.fetch_discovery(stop).map(Arc::new);
                    let result = flight.result.lock().insert(fetched).clone();
                    drop(landing);
                    return Ok((flight.number, result?));
                }
                Err(flight) => {
                    if !flight.done.wait_or_stop(stop) {
                        return Err(Error::stopped().context("discover"));
                    }
                    // Who is stopped has said nothing about the server.
                    let error = flight
                        .result
                        .lock()
                        .as_ref()
                        .and_then(|result| result.as_ref().err().cloned());
                    if let Some(error) = error.filter(|error| !error.is_stopped())
                        && flight.number >= at_least
                    {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn fetch_discovery(&self, stop: &Stop) -> Result<Discovery, Error> {
        let mut found = Found::default();
        for path in ["/api", "/apis"] {
            let request = Request::get(path).accept(ACCEPT);
            let response = self.small(&request, stop);
            // A server that is not a whole one has only one of them.
            if response.as_ref().is_err_and(Error::is_not_found) {
                continue;
            }
            let read = response.and_then(|body| {
                found
                    .read_root(&body)
                    .map_err(|error| self.of(&request, error))
            });
            read.map_err(|error| error.context("discover"))?;
        }
        let to_ask = std::mem::take(&mut found.to_ask);
        for (index, (group, version)) in to_ask.into_iter().enumerate() {
            if index >= MOST_VERSIONS {
                let error = Error::decode(format!("there are more than {MOST_VERSIONS} before it"));
                found.fail(group, &version, error);
                continue;
            }
            let read = group_version_path(&group, &version)
                .map(Request::get)
                .and_then(|request| {
                    let body = self.small(&request, stop)?;
                    let read = found.read_resources(&group, &version, &body);
                    read.map_err(|error| self.of(&request, error))
                });
            match read {
                Err(error) if error.is_stopped() => return Err(error.context("discover")),
                Err(error) => found.fail(group, &version, error),
                Ok(()) => {}
            }
        }
        for failure in found.failures.iter().take(MOST_LOGGED) {
            log::warn!(
                "discovery: {}/{}: {}",
                failure.group,
                failure.version,
                failure.error
            );
        }
        Ok(Discovery::new(
            found.groups,
            found.resources,
            found.failures,
        ))
    }

    /// The whole answer, if it is JSON and not too long.
    fn small(&self, request: &Request, stop: &Stop) -> Result<Vec<u8>, Error> {
        let response = self.request(&request.clone().body_limit(BODY_LIMIT), stop)?;
        response_checks::check_json(&response.headers).map_err(|error| self.of(request, error))?;
        response.bytes()
    }

    fn of(&self, request: &Request, error: Error) -> Error {
        error.context(format!(
            "{} {}{}",
            request.method,
            self.server(),
            request.path
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_looked_for_every_ten_seconds() {
        let (mut state, start) = (State::default(), Instant::now());
        assert!(state.may_look_again(start));
        assert!(!state.may_look_again(start + PAUSE - Duration::from_millis(1)));
        assert!(state.may_look_again(start + PAUSE));
        assert!(!state.may_look_again(start + PAUSE));
    }
}
