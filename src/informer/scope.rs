use std::sync::Arc;

use crate::error::Error;
use crate::reflector::{Body, ListerWatcher};
use crate::selector::Selector;
use crate::stop::Stop;
use crate::wire::{ListOptions, Shard, Shown};

/// Which objects of a kind an informer is about: all of them, or fewer. Two informers of a factory are one
/// only if their scopes are equal.
///
/// ```
/// use k8s_informer::informer::InformerScope;
///
/// let web = InformerScope::all().namespace("blue").label_selector("app=web".parse()?);
/// assert_ne!(web, InformerScope::all());
/// assert_eq!(web, InformerScope::all().label_selector("app=web".parse()?).namespace("blue"));
/// # Ok::<(), k8s_informer::selector::SelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InformerScope {
    /// Sorted, each once. None for all.
    namespaces: Vec<String>,
    label_selector: String,
    field_selector: String,
    shard: Option<Shard>,
}

impl InformerScope {
    /// All objects, of all namespaces.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those of this namespace, and of others that are named. Of several, each is listed and watched by
    /// itself, so that nobody needs the right to see all of them. An empty name stands for all, whichever
    /// were named before, as in client-go.
    ///
    /// A name that is not a DNS label is refused when the informer is started.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        if namespace.is_empty() {
            self.namespaces.clear();
        } else if let Err(at) = self.namespaces.binary_search(&namespace) {
            self.namespaces.insert(at, namespace);
        }
        self
    }

    /// Those with these labels; the server selects.
    #[must_use]
    pub fn label_selector(mut self, selector: Selector) -> Self {
        self.label_selector = match selector == Selector::nothing() {
            // It has no text of its own; this is one that the server takes, and that no object fits.
            true => "nothing,!nothing".to_owned(),
            false => selector.to_string(),
        };
        self
    }

    /// Those with these fields, for example `spec.nodeName=worker-1`; the server selects, and says which
    /// fields it knows.
    #[must_use]
    pub fn field_selector(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = selector.into();
        self
    }

    /// One shard of several: this program holds a part of the objects, and others the rest. Experimental, as
    /// it is in Kubernetes: [`Shard`] says what a server has to do with it.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::reflector::Shard;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// for name in ["a", "b", "c", "d", "e"] {
    ///     server.create("/api/v1/namespaces/web/configmaps", json!({"metadata": {"name": name}}))?;
    /// }
    /// // Here all three of them; otherwise each program has one.
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let shard = |index| Ok(InformerScope::all().shard(Shard::new(index, 3)?));
    /// let scopes = (0..3).map(shard).collect::<Result<Vec<_>, k8s_informer::reflector::ShardError>>()?;
    /// let shards: Vec<_> = scopes.iter().map(|scope| factory.informer_of(Source::of::<ConfigMap>().scope(scope.clone()))).collect();
    /// let stop = Stop::new();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(&stop)?;
    /// assert_eq!(shards.iter().map(|maps| maps.lister().list().len()).sum::<usize>(), 5);
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn shard(mut self, shard: Shard) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Checks that each namespace has a name that a namespace can have: a DNS label.
    pub(in crate::informer) fn check(&self) -> Result<(), Error> {
        let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_label = |name: &str| {
            name.len() <= 63
                && name.bytes().all(is_inner)
                && !name.is_empty()
                && !name.starts_with('-')
                && !name.ends_with('-')
        };
        match self
            .namespaces
            .iter()
            .find(|namespace| !is_label(namespace))
        {
            None => Ok(()),
            Some(namespace) => Err(Error::other(format!(
                "namespace \"{}\" is not a DNS label: use 1 to 63 of a-z, 0-9 and \"-\", with no \"-\" at \
                 either end",
                Shown(namespace)
            ))),
        }
    }

    /// The shard that was named.
    pub(in crate::informer) fn shard_of(&self) -> Option<&Shard> {
        self.shard.as_ref()
    }

    /// The namespaces that were named, sorted; none for all.
    pub(crate) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// Which of the requests' options are the scope's.
    pub(in crate::informer) fn apply(&self, options: &mut ListOptions) {
        options.label_selector.clone_from(&self.label_selector);
        options.field_selector.clone_from(&self.field_selector);
    }
}

/// Changes the options of a request.
pub(in crate::informer) type TweakListOptions = dyn Fn(&mut ListOptions) + Send + Sync;

/// A lister-watcher whose options the scope, and a user, have a hand in (FA9).
pub(in crate::informer) struct Tweaked {
    pub(in crate::informer) lister_watcher: Arc<dyn ListerWatcher>,
    pub(in crate::informer) scope: InformerScope,
    pub(in crate::informer) tweak: Option<Arc<TweakListOptions>>,
}

impl Tweaked {
    fn tweaked(&self, options: &ListOptions) -> ListOptions {
        let mut options = options.clone();
        self.scope.apply(&mut options);
        if let Some(tweak) = &self.tweak {
            tweak(&mut options);
        }
        options
    }
}

impl ListerWatcher for Tweaked {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.lister_watcher.list(&self.tweaked(options), stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.lister_watcher.watch(&self.tweaked(options), stop)
    }

    fn supports_watch_list(&self) -> bool {
        self.lister_watcher.supports_watch_list()
    }

    fn description(&self) -> String {
        self.lister_watcher.description()
    }
}
