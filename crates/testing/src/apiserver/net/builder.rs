//! The settings of a server, and its start.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::server::ApiServer;
use crate::apiserver::engine::shared::{Settings, Shared};
use crate::apiserver::engine::store::Store;
use crate::apiserver::model::resources::{ApiResource, Resources};

/// Options for an [`ApiServer`]. Create it with [`ApiServer::builder`].
pub struct ApiServerBuilder {
    resources: Vec<ApiResource>,
    settings: Settings,
    history: usize,
    seed: Option<u64>,
    port: u16,
    tokens: Vec<String>,
    powerless: Vec<(String, String)>,
}

impl ApiServer {
    /// Starts a server with default options: built-in resources, a free port, no tokens.
    ///
    /// # Errors
    ///
    /// Fails if no port is free or no thread can be started.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder for a server. Start it with [`ApiServerBuilder::start`].
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::new()
    }
}

impl ApiServerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            resources: Vec::new(),
            settings: Settings {
                bookmark_interval: Duration::from_secs(60),
                watch_timeout: Duration::from_secs(30 * 60),
                watch_list: true,
                shards: false,
                garbage_collection: false,
            },
            history: 16_384,
            seed: None,
            port: 0,
            tokens: Vec::new(),
            powerless: Vec::new(),
        }
    }

    /// Adds a resource. It replaces a built-in resource of the same group, version and plural.
    #[must_use]
    pub fn resource(mut self, resource: ApiResource) -> Self {
        self.resources.push(resource);
        self
    }

    /// Sets the interval between bookmarks of a watch that allows them. The default is 1 minute, as
    /// in kube-apiserver.
    ///
    /// Watches also send a bookmark after the initial events of a streaming list, and one just
    /// before their timeout.
    #[must_use]
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.settings.bookmark_interval = interval;
        self
    }

    /// Sets the duration of a watch without `timeoutSeconds`. The default is 30 minutes, the
    /// minimum of kube-apiserver.
    #[must_use]
    pub fn watch_timeout(mut self, timeout: Duration) -> Self {
        self.settings.watch_timeout = timeout;
        self
    }

    /// Sets whether watches may request the initial objects (`sendInitialEvents`, a streaming
    /// list). The default is `true`. If it is `false`, such watches fail with 422, as in a
    /// kube-apiserver with the feature gate WatchList disabled.
    #[must_use]
    pub fn watch_list(mut self, allowed: bool) -> Self {
        self.settings.watch_list = allowed;
        self
    }

    /// Sets whether lists and watches apply their `shardSelector`. The default is `false`: the
    /// selector is ignored, as in a kube-apiserver 1.36 with the feature gate ShardedListAndWatch
    /// disabled. If it is `true`, a malformed selector fails with 500, and lists return the applied
    /// selector in `metadata.shardInfo`, except for lists of custom resources and of metadata.
    #[must_use]
    pub fn sharded_list_and_watch(mut self, enabled: bool) -> Self {
        self.settings.shards = enabled;
        self
    }

    /// Sets whether the server collects garbage, as kube-controller-manager does. The default is
    /// `false`, as with a standalone kube-apiserver.
    ///
    /// The collector deletes objects whose owners are all gone, and removes references to owners
    /// that are gone from other objects. An owner is gone if no object has the kind, name and uid
    /// of the reference, in the namespace of the dependent or cluster-scoped. The collector also
    /// carries out the propagation policy `Foreground` or `Orphan` of a deletion; without it, the
    /// object stays with the finalizer `foregroundDeletion` or `orphan`.
    ///
    /// The collector runs as part of each write. When a write returns, nothing is left to collect.
    /// Objects with finalizers of others stay, with a `deletionTimestamp`. A dependent whose owner
    /// has an unknown kind stays.
    ///
    /// ```
    /// use k8s_informer_testing::ApiServer;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::builder().garbage_collection(true).start()?;
    /// let configmaps = "/api/v1/namespaces/default/configmaps";
    /// let owner = server.create(configmaps, json!({ "metadata": { "name": "owner" } }))?;
    /// let reference = json!({
    ///     "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    /// });
    /// server.create(configmaps, json!({ "metadata": { "name": "child", "ownerReferences": [reference] } }))?;
    /// server.delete(&format!("{configmaps}/owner"))?;
    /// assert_eq!(server.get(&format!("{configmaps}/child")).unwrap_err().code(), 404);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn garbage_collection(mut self, enabled: bool) -> Self {
        self.settings.garbage_collection = enabled;
        self
    }

    /// Sets the number of changes to keep, for all resources together. The default is 16384, so
    /// that tests do not exceed it by accident. Watches, pages and exact lists that need older
    /// changes fail with 410.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// Makes UIDs and generated names the same in every run. By default they differ.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the port on 127.0.0.1. By default, the server uses a free port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Requires a bearer token and grants all rights to this one. Requests with an unknown token
    /// fail with 401, those without a token with 403. `/version` and the health checks need no
    /// token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.tokens.push(token.into());
        self
    }

    /// Requires a bearer token and registers this one for `user`, whose requests all fail with 403.
    #[must_use]
    pub fn token_without_rights(
        mut self,
        token: impl Into<String>,
        user: impl Into<String>,
    ) -> Self {
        self.powerless.push((token.into(), user.into()));
        self
    }

    /// Starts the server. It accepts connections when this method returns.
    ///
    /// # Errors
    ///
    /// Fails if the port is not available or no thread can be started.
    pub fn start(self) -> io::Result<ApiServer> {
        let Self {
            resources,
            settings,
            history,
            seed,
            port,
            tokens,
            powerless,
        } = self;
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        let shared = Arc::new(Shared::new(
            Resources::new(resources),
            settings,
            Store::new(seed, history),
        ));
        if !tokens.is_empty() {
            shared.auth.allow_only(tokens);
        }
        for (token, user) in powerless {
            shared.auth.add_without_rights(token, user);
        }
        let server = ApiServer::listen(shared, TcpListener::bind((Ipv4Addr::LOCALHOST, port))?)?;
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            server
                .create(
                    "/api/v1/namespaces",
                    json!({ "metadata": { "name": name } }),
                )
                .map_err(io::Error::other)?;
        }
        Ok(server)
    }
}

/// Omits the tokens. They are secrets, even those without rights.
impl fmt::Debug for ApiServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resources,
            settings,
            history,
            seed,
            port,
            tokens: _,
            powerless: _,
        } = self;
        f.debug_struct("ApiServerBuilder")
            .field("resources", resources)
            .field("settings", settings)
            .field("history", history)
            .field("seed", seed)
            .field("port", port)
            .finish_non_exhaustive()
    }
}
