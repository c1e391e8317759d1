//! The progress of the cache, as resource versions.

use std::time::{Duration, Instant};

use super::{Running, Shared, SharedIndexInformer};
use crate::base::deadline::Deadline;
use crate::error::{Error, WaitCause, WaitError};
use crate::object::{Object, meta_namespace_key};
use crate::queue::Watermark;
use crate::reflector::ReflectorStatus;
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::time::{RealClock, with_deadline};

impl<T: Object> SharedIndexInformer<T> {
    /// Returns the resource version that the cache has reached. All changes that the server sent up
    /// to this version are in the cache and on their way to the handlers, even if the queue has
    /// reordered them. If an object could not be decoded or stored,
    /// [`complete`](crate::reflector::ReflectorStatus::complete) of the [status](Self::status) is
    /// `false`.
    ///
    /// Returns `None` before the first list. With several namespaces, it is the lowest of their
    /// versions.
    pub fn store_resource_version(&self) -> Option<ResourceVersion> {
        Watermark::lowest(self.running().map(|(_, running)| &running.watermark))
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
    /// use k8s_informer::object::ResourceVersion;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// let map = server.create("/api/v1/namespaces/web/configmaps", json!({"metadata": {"name": "a"}}))?;
    /// let version = map["metadata"]["resourceVersion"].as_str().and_then(ResourceVersion::new);
    /// maps.wait_for_resource_version(&version.unwrap(), Duration::from_secs(10), &stop)?;
    /// assert!(maps.lister().get("web", "a").is_some());
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the timeout elapses, if `stop` is set or the informer ends, or if the versions cannot
    /// be compared ([`WaitCause::NotComparable`]). [`WaitError::last_seen`] is the version that the
    /// cache has reached.
    pub fn wait_for_resource_version(
        &self,
        resource_version: &ResourceVersion,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        self.wait_for_version(resource_version, None, timeout.into(), stop)
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
    /// let factory = SharedInformerFactory::new(client.clone());
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// let written = client.api::<ConfigMap>(Some("web")).create(&json!({"metadata": {"name": "a"}}), &stop)?;
    /// maps.wait_for_object(&written, Duration::from_secs(10), &stop)?;
    /// assert_eq!(maps.lister().get("web", "a").as_deref(), Some(&*written));
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`WaitCause::OtherNamespace`], immediately, if the informer does not watch the object's
    ///   namespace.
    /// - [`WaitCause::NotStored`] if the version has been processed, but the cache has an older
    ///   version or none: the new state could not be decoded, or a transform rejected it. The log has
    ///   the reason. The error is also returned for an object that the cache does not have while an
    ///   object without a readable name, or more than 1,000 objects, could not be decoded or stored.
    /// - [`WaitCause::NotComparable`], immediately, if the object has no version. Otherwise the errors
    ///   of [`wait_for_resource_version`](Self::wait_for_resource_version).
    pub fn wait_for_object(
        &self,
        object: &T,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let namespace = object.namespace();
        let Shared {
            sources, indexer, ..
        } = &*self.shared;
        let key = meta_namespace_key(object);
        let failed = |cause| Err(WaitError::new(cause, format!("waiting for {key}")));
        if !sources.iter().any(|source| source.may_contain(namespace)) {
            let watched = sources.iter().filter_map(|source| source.namespace.clone());
            return failed(WaitCause::OtherNamespace {
                namespace: namespace.to_owned(),
                watched: watched.collect(),
            });
        }
        let Some(version) = ResourceVersion::new(object.resource_version()) else {
            return failed(WaitCause::NotComparable(None));
        };
        self.wait_for_version(&version, Some(namespace), timeout.into(), stop)?;
        // The version has been processed, but the object may not have been stored. Check the
        // version in the cache.
        let cached = indexer.get_by_key(&key);
        let cached = cached.map(|cached| ResourceVersion::new(cached.resource_version()));
        let is_stored = match &cached {
            Some(cached) => !cached
                .as_ref()
                .is_some_and(|cached| cached.is_before(Some(&version))),
            // The object may be missing because its state could not be decoded, or was rejected by
            // a transform.
            None => !self
                .running_with(namespace)
                .any(|running| running.state.reflector.missing().may_contain(&key)),
        };
        if is_stored {
            return Ok(());
        }
        failed(WaitCause::NotStored {
            version,
            cached: cached.flatten(),
        })
    }

    /// Whether the cache contains all changes in `namespace` up to `version`. Also `false` if the
    /// versions cannot be compared, or if the informer has not started.
    ///
    /// ```
    /// use k8s_informer::object::ResourceVersion;
    /// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// server.create("/api/v1/namespaces/web/pods", serde_json::json!({"metadata": {"name": "a"}}))?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let pods = factory.informer::<Pod>();
    /// let version = ResourceVersion::new;
    /// assert!(!pods.has_processed("web", &version("1").unwrap()));
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(None, &stop)?;
    /// let pod = pods.lister().get("web", "a").unwrap();
    /// assert!(pods.has_processed("web", &version(pod.resource_version()).unwrap()));
    /// assert!(!pods.has_processed("web", &version("999999").unwrap()));
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_processed(&self, namespace: &str, version: &ResourceVersion) -> bool {
        let has_processed = |running: &Running<T>| {
            let reached = running.watermark.current();
            reached.is_some_and(|reached| reached.is_at_least(version))
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
    /// The [status](Self::status) has the failures of watches and lists. A wait with a timeout runs
    /// one thread.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use std::time::{Duration, Instant};
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// server.create("/api/v1/namespaces/web/configmaps", serde_json::json!({"metadata": {"name": "a"}}))?;
    /// maps.wait_for_current_state(Instant::now(), Duration::from_secs(60), &stop)?;
    /// assert!(maps.lister().get("web", "a").is_some());
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the read fails ([`WaitCause::Refused`]), if the timeout elapses, and if `stop` is set or
    /// the informer ends.
    pub fn wait_for_current_state(
        &self,
        since: Instant,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let timeout = timeout.into();
        let failed =
            |cause| WaitError::new(cause, format!("waiting until {} is current", self.name()));
        if self.shared.state.is_own_thread() {
            return Err(failed(WaitCause::OwnThread));
        }
        // The stop of the wait: the caller's, the end of the informer, or the deadline.
        let limited = self.shared.state.stop_or_end(stop);
        let limited = limited.child();
        let current = with_deadline(&RealClock, timeout, &limited, || {
            self.catch_up(since, &limited)
        });
        let current = current.unwrap_or_else(|error| Err(Error::other(error.to_string())));
        let cause = match current {
            Ok(()) if !limited.is_stopped() => return Ok(()),
            Err(error) if !error.is_stopped() => {
                return Err(failed(WaitCause::Refused).caused_by(error));
            }
            _ if stop.is_stopped() => WaitCause::Stopped,
            _ if self.ended().is_done() => WaitCause::Ended,
            _ => timeout.map_or(WaitCause::Ended, WaitCause::TimedOut),
        };
        Err(failed(cause))
    }

    /// Returns when the cache contains everything that was committed before `since`, or when `stop`
    /// is set.
    fn catch_up(&self, since: Instant, stop: &Stop) -> Result<(), Error> {
        // A first list is often a consistent read.
        if self.synced().wait_until_either(None, stop).is_err() {
            return Ok(());
        }
        // All consistent reads come first, so that the namespaces catch up at the same time.
        let mut waits = Vec::new();
        for (_, running) in self.running() {
            let reflector = &running.state.reflector;
            waits.push((running, reflector.catch_up(since, stop)?));
        }
        for (running, waiting) in waits {
            let _ = waiting.reached.wait_until_either(None, stop);
            // The queue has received what is needed. Wait until the cache has it as well.
            if running.state.reflector.is_listed_since(since) {
                running.watermark.wait_until_settled(stop);
            } else if let Some(version) = waiting.version() {
                // Fails only after a stop: the version can be compared.
                let _ = running.watermark.wait(version.version(), None, stop);
            }
        }
        Ok(())
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
        version: &ResourceVersion,
        namespace: Option<&str>,
        timeout: Option<Duration>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let deadline = Deadline::after(timeout);
        let ended = self.shared.state.stop_or_end(stop);
        self.shared.started.wait_until(deadline, &ended);
        // A callback of an informer on one thread only checks: the version comes on this thread.
        let is_own_thread = self.shared.state.is_own_thread();
        let deadline = if is_own_thread {
            Deadline::after(Duration::ZERO)
        } else {
            deadline
        };
        let waited = if self.shared.running.get().is_none() {
            Watermark::wait_all([&Watermark::new()], version, deadline, &ended)
        } else {
            let relevant = self.running().filter(|(source, _)| {
                namespace.is_none_or(|namespace| source.may_contain(namespace))
            });
            let watermarks = relevant.map(|(_, running)| &running.watermark);
            Watermark::wait_all(watermarks, version, deadline, &ended)
        };
        let Err(incomplete) = waited else {
            return Ok(());
        };
        // The wait knows only the signal that combines the stop and the end of the informer.
        Err(match incomplete.cause() {
            WaitCause::TimedOut(_) if is_own_thread => incomplete.with_cause(WaitCause::OwnThread),
            WaitCause::Stopped if !stop.is_stopped() => incomplete.with_cause(WaitCause::Ended),
            _ => incomplete,
        })
    }

    /// Returns the running sources that may contain objects of this namespace.
    fn running_with(&self, namespace: &str) -> impl Iterator<Item = &Running<T>> {
        self.running()
            .filter(move |(source, _)| source.may_contain(namespace))
            .map(|(_, running)| running)
    }
}
