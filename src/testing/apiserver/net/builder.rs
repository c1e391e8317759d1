//! The settings of a server, and how it starts.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::server::ApiServer;
use crate::testing::apiserver::engine::shared::{Settings, Shared};
use crate::testing::apiserver::engine::store::Store;
use crate::testing::apiserver::model::resources::{ApiResource, Resources};

/// Settings of an [`ApiServer`] that is yet to start; made by [`ApiServer::builder`].
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
    /// Starts a server with default settings: built-in resources, a free port, no tokens.
    ///
    /// # Errors
    ///
    /// When no port can be had or no thread can be started.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Settings for a server, to be started with [`ApiServerBuilder::start`].
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
            },
            history: 16_384,
            seed: None,
            port: 0,
            tokens: Vec::new(),
            powerless: Vec::new(),
        }
    }

    /// Serves one more resource. It takes the place of a built-in one of the same group, version and plural.
    #[must_use]
    pub fn resource(mut self, resource: ApiResource) -> Self {
        self.resources.push(resource);
        self
    }

    /// How often a watch that allows bookmarks gets one: 1 minute unless set, as with kube-apiserver. Besides
    /// there is one at the end of the initial events of a streaming list, and one just before a watch's
    /// time is up.
    #[must_use]
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.settings.bookmark_interval = interval;
        self
    }

    /// How long a watch lasts that names no `timeoutSeconds`: 30 minutes unless set, the least that
    /// kube-apiserver gives.
    #[must_use]
    pub fn watch_timeout(mut self, timeout: Duration) -> Self {
        self.settings.watch_timeout = timeout;
        self
    }

    /// Whether a watch may ask for the objects that are there already (`sendInitialEvents`, a streaming
    /// list): it may unless set. Where it may not it is refused with 422, as by a kube-apiserver whose
    /// feature gate WatchList is off.
    #[must_use]
    pub fn watch_list(mut self, allowed: bool) -> Self {
        self.settings.watch_list = allowed;
        self
    }

    /// Whether lists and watches are limited to the shards that they name (`shardSelector`): it is not looked
    /// at unless set, as by a kube-apiserver 1.36 whose feature gate ShardedListAndWatch is off. Where it
    /// counts, a malformed one is answered with 500, and lists tell in `metadata.shardInfo` what was
    /// applied.
    #[must_use]
    pub fn sharded_list_and_watch(mut self, enabled: bool) -> Self {
        self.settings.shards = enabled;
        self
    }

    /// How many changes are remembered, of all resources together: 16384 unless set, so that tests don't run
    /// into the end by accident. Watches, pages and exact lists that need older ones are answered with
    /// 410.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// Makes UIDs and generated names the same in every run. Unless set they differ.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Listens on this port of 127.0.0.1; a free one unless set.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Asks for a bearer token from now on, and gives all rights to this one. Requests with an unknown token
    /// are answered with 401, those without a token with 403, but for `/version` and the health checks.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.tokens.push(token.into());
        self
    }

    /// Asks for a bearer token from now on, and knows this one as that of a user who may do nothing: 403.
    #[must_use]
    pub fn token_without_rights(
        mut self,
        token: impl Into<String>,
        user: impl Into<String>,
    ) -> Self {
        self.powerless.push((token.into(), user.into()));
        self
    }

    /// Starts the server: it listens when this returns.
    ///
    /// # Errors
    ///
    /// When the port can't be had or no thread can be started.
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

/// Without the tokens, which are secrets even if they open nothing.
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
