//! The progress of the cache, as resource versions.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use super::{Running, Shared, SharedIndexInformer};
use crate::error::Error;
use crate::object::{Object, meta_namespace_key};
use crate::queue::{WaitError, Watermark};
use crate::reflector::ReflectorStatus;
use crate::resource_version::{ResourceVersion, compare_resource_versions};
use crate::stop::Stop;

impl<T: Object> SharedIndexInformer<T> {
    /// Returns the resource version that the cache has reached. All changes that the server sent up
    /// to this version are in the cache and on their way to the handlers, even if the queue has
    /// reordered them. If an object could not be decoded or stored,
    /// [`complete`](crate::reflector::ReflectorStatus::complete) of the [status](Self::status) is
    /// `false`.
    ///
    /// The version is empty before the first list. With several namespaces, it is the lowest of
    /// their versions.
    pub fn store_resource_version(&self) -> String {
        let lowest = Watermark::lowest(self.running().map(|(_, running)| &running.watermark));
        ResourceVersion::text(lowest.as_ref())
    }

    /// Blocks until the cache [has reached](Self::store_resource_version) this resource version,
    /// `timeout` has elapsed or `stop` is set. To read your own write, wait for the version in the
    /// server's response to the write, then read the cache.
    ///
    /// If there are no changes, the server reports its progress with a bookmark about once a
    /// minute. A wait for the version of an object of another kind may take that long, and so may a
    /// wait with several namespaces.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// let map = server.create("/api/v1/namespaces/web/configmaps", json!({"metadata": {"name": "a"}}))?;
    /// let version = map["metadata"]["resourceVersion"].as_str().expect("a resourceVersion");
    /// maps.wait_for_resource_version(version, Duration::from_secs(10), &stop)?;
    /// assert!(maps.lister().get("web", "a").is_some());
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns a [`WaitError`] if the timeout elapses, if `stop` is set or the informer ends, or if
    /// the versions cannot be compared.
    pub fn wait_for_resource_version(
        &self,
        resource_version: &str,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        self.wait_for_version(resource_version, None, timeout, stop)
    }

    /// Blocks until the cache has this object in this version or a later one, or until it has
    /// processed all changes up to this version and does not have the object. With several
    /// namespaces, it waits only for the namespace of the object.
    ///
    /// `Ok` does not mean that the object is in the cache; read the cache to find out. The object
    /// may have been deleted since. It may also never reach this cache: a label or field selector
    /// or a [`Shard`](crate::reflector::Shard) excludes it, or the lister-watcher is restricted to
    /// another namespace.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let factory = SharedInformerFactory::builder(client.clone()).build();
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// let written = client.api::<ConfigMap>(Some("web")).create(&json!({"metadata": {"name": "a"}}), &stop)?;
    /// maps.wait_for_object(&written, Duration::from_secs(10), &stop)?;
    /// assert_eq!(maps.lister().get("web", "a").as_deref(), Some(&*written));
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`WaitError::OtherNamespace`], immediately, if the informer does not watch the object's
    ///   namespace.
    /// - [`WaitError::NotStored`] if the version has been processed, but the cache has an older
    ///   version or none: the new state could not be decoded, or a transform rejected it. The log has
    ///   the reason. The error is also returned for an object that the cache does not have while an
    ///   object without a readable name, or more than 1,000 objects, could not be decoded or stored.
    /// - [`WaitError::Timeout`], [`WaitError::Stopped`] and [`WaitError::NotComparable`] as for
    ///   [`wait_for_resource_version`](Self::wait_for_resource_version).
    pub fn wait_for_object(
        &self,
        object: &T,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let (version, namespace) = (object.resource_version(), object.namespace());
        let Shared {
            sources, indexer, ..
        } = &*self.shared;
        if !sources.iter().any(|source| source.may_contain(namespace)) {
            return Err(WaitError::OtherNamespace {
                namespace: namespace.to_owned(),
                watched: sources
                    .iter()
                    .filter_map(|source| source.namespace.clone())
                    .collect(),
            });
        }
        self.wait_for_version(version, Some(namespace), timeout, stop)?;
        // The version has been processed, but the object may not have been stored. Check the
        // version in the cache.
        let key = meta_namespace_key(object);
        let cached = indexer.get_by_key(&key);
        let cached = cached.as_ref().map(|cached| cached.resource_version());
        let is_stored = match cached {
            Some(cached) => compare_resource_versions(cached, version) != Some(Ordering::Less),
            // The object may be missing because its state could not be decoded, or was rejected by
            // a transform.
            None => !self
                .running_with(namespace)
                .any(|running| running.state.reflector.missing().may_contain(&key)),
        };
        if is_stored {
            return Ok(());
        }
        Err(WaitError::NotStored {
            key: key.to_string(),
            version: version.to_owned(),
            cached: cached.unwrap_or_default().to_owned(),
        })
    }

    /// Whether the cache contains all changes in `namespace` up to `version`. Also `false` if the
    /// versions cannot be compared, or if the informer has not started.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// server.create("/api/v1/namespaces/web/pods", serde_json::json!({"metadata": {"name": "a"}}))?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let pods = factory.informer::<Pod>();
    /// assert!(!pods.has_processed("web", "1"));
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(&stop)?;
    /// let pod = pods.lister().get("web", "a").unwrap();
    /// assert!(pods.has_processed("web", pod.resource_version()));
    /// assert!(!pods.has_processed("web", "999999"));
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_processed(&self, namespace: &str, version: &str) -> bool {
        let Some(version) = ResourceVersion::new(version) else {
            return false;
        };
        let has_processed = |running: &Running<T>| {
            let reached = running.watermark.reached();
            reached.is_some_and(|reached| reached.is_at_least(&version))
        };
        self.shared.running.get().is_some() && self.running_with(namespace).all(has_processed)
    }

    /// Blocks until the cache contains everything that was committed before `since`, however far its
    /// watch is behind. It sends a consistent read, unless it has sent one after `since`.
    ///
    /// A watch does not tell that it is behind. So if it has not reached the version of the read, it
    /// is opened again from its own version for 3 s: kube-apiserver then sends a bookmark within 2 s.
    /// If it does not, the objects are listed again, as of a moment after `since`. Several calls share
    /// such a watch or list, and each ends as soon as the cache has what it requires.
    ///
    /// The wait has no timeout. The [status](Self::status) has the failures of watches and lists.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use std::time::Instant;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// server.create("/api/v1/namespaces/web/configmaps", serde_json::json!({"metadata": {"name": "a"}}))?;
    /// maps.wait_until_current(Instant::now(), &stop)?;
    /// assert!(maps.lister().get("web", "a").is_some());
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of the read, for example [`is_forbidden`](Error::is_forbidden). Returns an
    /// [`is_stopped`](Error::is_stopped) error if `stop` is set or the informer ends.
    pub fn wait_until_current(&self, since: Instant, stop: &Stop) -> Result<(), Error> {
        if self.shared.state.is_own_thread() {
            return Err(Error::other(format!(
                "{}: {}",
                self.name(),
                WaitError::OwnThread
            )));
        }
        let (stop, _ends) = self.shared.state.stop_or_end(stop);
        // A first list is often a consistent read.
        if !self.synced().wait_or_stop(&stop) {
            return Err(Error::stopped());
        }
        // All consistent reads come first, so that the namespaces catch up at the same time.
        let mut waits = Vec::new();
        for (_, running) in self.running() {
            let reflector = &running.state.reflector;
            waits.push((running, reflector.catch_up(since, &stop)?));
        }
        for (running, waiting) in waits {
            waiting.reached.wait_or_stop(&stop);
            // The queue has received what is needed. Wait until the cache has it as well.
            if running.state.reflector.is_listed_since(since) {
                running.watermark.wait_until_settled(&stop);
            } else if let Some(version) = waiting.version() {
                // Fails only after a stop: the version can be compared.
                let _ = running
                    .watermark
                    .wait(&version.to_string(), Duration::MAX, &stop);
            }
        }
        match stop.is_stopped() {
            true => Err(Error::stopped()),
            false => Ok(()),
        }
    }

    /// Returns the status of the reflector for a namespace, without those of other namespaces. The
    /// default status if the scope does not have the namespace.
    pub fn status_of(&self, namespace: &str) -> ReflectorStatus {
        let running = self.running_with(namespace).next();
        running.map(Running::status).unwrap_or_default()
    }

    /// Waits for the sources that may contain this namespace, or for all of them if `namespace` is
    /// `None`. Also waits for the informer to start. Stops waiting when the informer ends.
    fn wait_for_version(
        &self,
        version: &str,
        namespace: Option<&str>,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let began = Instant::now();
        let (stop, _ends) = self.shared.state.stop_or_end(stop);
        self.shared
            .started
            .wait_until(began.checked_add(timeout), &stop);
        let rest = timeout.saturating_sub(began.elapsed());
        if self.shared.running.get().is_none() {
            return Watermark::new().wait(version, rest, &stop);
        }
        let relevant = self
            .running()
            .filter(|(source, _)| namespace.is_none_or(|namespace| source.may_contain(namespace)));
        let watermarks = relevant.map(|(_, running)| &running.watermark);
        let is_own_thread = self.shared.state.is_own_thread();
        let rest = if is_own_thread { Duration::ZERO } else { rest };
        let waited = Watermark::wait_all(watermarks, version, rest, &stop);
        waited.map_err(|error| match error {
            WaitError::Timeout { .. } if is_own_thread => WaitError::OwnThread,
            error => error,
        })
    }

    /// Returns the running sources that may contain objects of this namespace.
    fn running_with(&self, namespace: &str) -> impl Iterator<Item = &Running<T>> {
        self.running()
            .filter(move |(source, _)| source.may_contain(namespace))
            .map(|(_, running)| running)
    }
}
