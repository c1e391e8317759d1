use std::sync::Arc;

use crate::error::Error;
use crate::reflector::{Body, ListerWatcher};
use crate::selector::{Selector, is_lowercase_label};
use crate::stop::Stop;
use crate::wire::{EscapedName, ListOptions, Shard};

/// Selects the objects of an informer among all objects of a kind. Informers of a factory with
/// different scopes are different informers.
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
    /// Sorted, without duplicates. Empty for all namespaces.
    namespaces: Vec<String>,
    label_selector: Option<String>,
    field_selector: Option<String>,
    shard: Option<Shard>,
}

impl InformerScope {
    /// Returns the scope of all objects in all namespaces.
    pub fn all() -> Self {
        Self::default()
    }

    /// Adds a namespace. The scope has the objects of all added namespaces.
    ///
    /// An informer lists and watches each namespace separately, so it does not need permission to
    /// list all namespaces. An empty name selects all namespaces and discards the names added
    /// before, as in client-go.
    ///
    /// If a name is not a DNS label, starting the informer fails.
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

    /// Selects objects by their labels, on the server.
    #[must_use]
    pub fn label_selector(mut self, selector: Selector) -> Self {
        self.label_selector = if selector == Selector::nothing() {
            // `Selector::nothing` has no text form. Send a selector that the server accepts and no
            // object matches.
            Some("nothing,!nothing".to_owned())
        } else {
            unless_empty(selector.to_string())
        };
        self
    }

    /// Selects objects by their fields, for example `spec.nodeName=worker-1`. The server evaluates
    /// the selector and decides which fields it supports.
    #[must_use]
    pub fn field_selector(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = unless_empty(selector.into());
        self
    }

    /// Selects one shard: this program holds a part of the objects, and other programs hold the
    /// rest. **Experimental**, as it is in Kubernetes. [`Shard`] documents the server's role.
    ///
    /// ```
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::reflector::Shard;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// for name in ["a", "b", "c", "d", "e"] {
    ///     server.create("/api/v1/namespaces/web/configmaps", json!({"metadata": {"name": name}}))?;
    /// }
    /// // This example holds all three shards. Normally each program holds one.
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let shard = |index| Ok(InformerScope::all().shard(Shard::new(index, 3)?));
    /// let scopes = (0..3).map(shard).collect::<Result<Vec<_>, k8s_informer::reflector::ShardError>>()?;
    /// let shards: Vec<_> = scopes.iter().map(|scope| factory.informer_for(Source::of::<ConfigMap>().scope(scope.clone()))).collect();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(None, &stop)?;
    /// assert_eq!(shards.iter().map(|maps| maps.lister().list().len()).sum::<usize>(), 5);
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn shard(mut self, shard: Shard) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Checks that each namespace is a DNS label.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_label = |name: &str| name.len() <= 63 && is_lowercase_label(name);
        match self
            .namespaces
            .iter()
            .find(|namespace| !is_label(namespace))
        {
            None => Ok(()),
            Some(namespace) => Err(Error::other(format!(
                "namespace \"{}\" is not a DNS label: use 1 to 63 of a-z, 0-9 and \"-\", with no \"-\" at \
                 either end",
                EscapedName(namespace)
            ))),
        }
    }

    /// Returns the shard, if one is selected.
    pub fn selected_shard(&self) -> Option<&Shard> {
        self.shard.as_ref()
    }

    /// Returns the selected namespaces, sorted. The slice is empty for all namespaces.
    ///
    /// ```
    /// use k8s_informer::informer::InformerScope;
    ///
    /// let scope = InformerScope::all().namespace("b").namespace("a").field_selector("spec.nodeName=n1");
    /// assert_eq!(scope.namespaces(), ["a", "b"]);
    /// assert_eq!(scope.list_options().field_selector.as_deref(), Some("spec.nodeName=n1"));
    /// assert!(scope.selected_shard().is_none());
    /// ```
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// Returns the options of a list with the selectors of this scope, without the shard.
    pub fn list_options(&self) -> ListOptions {
        let mut options = ListOptions::default();
        self.apply(&mut options);
        options
    }

    /// Sets the selectors of a request.
    fn apply(&self, options: &mut ListOptions) {
        options.label_selector.clone_from(&self.label_selector);
        options.field_selector.clone_from(&self.field_selector);
    }
}

fn unless_empty(selector: String) -> Option<String> {
    Some(selector).filter(|selector| !selector.is_empty())
}

/// A lister-watcher that applies a scope to a copy of each request's options.
pub(crate) struct Scoped {
    pub(crate) lister_watcher: Arc<dyn ListerWatcher>,
    pub(crate) scope: InformerScope,
}

impl Scoped {
    fn scoped(&self, options: &ListOptions) -> ListOptions {
        let mut options = options.clone();
        self.scope.apply(&mut options);
        options
    }
}

impl ListerWatcher for Scoped {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.lister_watcher.list(&self.scoped(options), stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.lister_watcher.watch(&self.scoped(options), stop)
    }

    fn supports_watch_list(&self) -> bool {
        self.lister_watcher.supports_watch_list()
    }

    fn description(&self) -> String {
        self.lister_watcher.description()
    }
}
