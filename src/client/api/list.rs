use std::iter::FusedIterator;

use serde::de::DeserializeOwned;

use super::Api;
use super::lister_watcher::{PARTIAL, ResourceListerWatcher};
use crate::client::Response;
use crate::error::Error;
use crate::object::Object;
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::wire::{
    Decode, DecodeOptions, Decoder, ListOptions, ListSplitter, PageCheck, Unreadable,
};

/// The default page size, as in client-go's pager.
const PAGE_SIZE: u32 = 500;

/// The objects of a list, or of one page, in the order of the server.
///
/// The client-go counterparts are `PodList` and similar types, `UnstructuredList` and
/// `PartialObjectMetadataList`.
///
/// For built-in kinds, a server sends `apiVersion` and `kind` only in the list, not in its items.
/// [`DynamicObject`](crate::DynamicObject)s get them from the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectList<T> {
    /// The `apiVersion` of the list. For built-in kinds it is also that of the items.
    pub api_version: String,
    /// The `kind` of the list, such as `PodList`.
    pub kind: String,
    /// The resource version of the list. [Watch](Api::watch) from this version to receive later
    /// changes.
    pub resource_version: Option<ResourceVersion>,
    /// The token to request the next page with: set it as [`ListOptions::continue_token`]. `None`
    /// on the last page.
    pub continue_token: Option<String>,
    /// The number of objects on later pages, if the server sends it. It can be an estimate, and it
    /// is missing for lists with selectors.
    pub remaining_item_count: Option<u64>,
    /// The objects.
    pub items: Vec<T>,
}

impl<T> IntoIterator for ObjectList<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<T> Api<T> {
    /// Returns the lister-watcher for the namespace, or for all namespaces if none is set. It does
    /// not resend requests.
    pub(super) fn lister_watcher(&self) -> Result<ResourceListerWatcher, Error> {
        self.check_namespace()?;
        let client = self.client.clone();
        let lister_watcher =
            ResourceListerWatcher::new(client, &self.resource, self.namespace()).explaining();
        Ok(if self.accept == PARTIAL {
            lister_watcher.metadata_only()
        } else {
            lister_watcher
        })
    }
}

impl<T: Object + DeserializeOwned> Api<T> {
    /// Lists objects. The client-go counterpart is `List`.
    ///
    /// The list contains all objects selected by the options, or one page of them if you set a
    /// [`limit`](ListOptions::limit). Without a resource version it shows the most recent state.
    ///
    /// Objects are decoded one by one while they arrive. An object that cannot be decoded fails the
    /// list; the error contains its name. A list that is larger than the client's
    /// [`body_limit`](crate::Config::body_limit), by default 256 MiB, is an error. Read such a list
    /// in [pages](Self::pages).
    ///
    /// ```
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
    ///     maps.create(&json!({"metadata": {"name": name, "labels": {"app": app}}}), &stop)?;
    /// }
    /// let options = ListOptions::new().label_selector("app=web");
    /// let list = maps.list(&options, &stop)?;
    /// let names: Vec<_> = list.items.iter().map(|map| map.name()).collect();
    /// assert_eq!((names, list.continue_token), (vec!["a", "c"], None));
    ///
    /// // Without a namespace, the list covers all namespaces.
    /// assert_eq!(client.api::<ConfigMap>(None).list(&options, &stop)?.items.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`is_gone`](Error::is_gone) error if the resource version or the continue token
    /// is too old, and an [`is_decode`](Error::is_decode) error if the response is not a list of
    /// `T`. It also returns the errors of [`get`](Self::get).
    pub fn list(&self, options: &ListOptions, stop: &Stop) -> Result<ObjectList<T>, Error> {
        let lister_watcher = self.with_context("list", "", || self.lister_watcher())?;
        self.list_from(&lister_watcher.retrying(), options, stop)
    }

    pub(super) fn list_from(
        &self,
        lister_watcher: &ResourceListerWatcher,
        options: &ListOptions,
        stop: &Stop,
    ) -> Result<ObjectList<T>, Error> {
        let response = lister_watcher.list_response(options, stop)?;
        self.with_context("list", "", || {
            let list = self.read_list(response)?;
            if let Some(token) = &list.continue_token {
                let mut check = PageCheck::after(options.continue_token.as_deref());
                check
                    .record_page(token, list.items.len())
                    .map_err(|endless| Error::invalid(endless.to_string()))?;
            }
            Ok(list)
        })
    }

    /// Lists objects page by page. The client-go counterpart is `pager`.
    ///
    /// All pages show the same state: that of the first page. A page has up to
    /// [`limit`](ListOptions::limit) objects; the default is 500. Each page is requested only when
    /// you call `next`.
    ///
    /// The iterator ends after an error. A list that never ends is an error: a continue token is
    /// repeated, or 100 consecutive pages contain no object. The server forgets the state of the
    /// first page after some minutes. The next page is then an [`is_gone`](Error::is_gone) error,
    /// which names the page. The list does not restart automatically.
    ///
    /// ```
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// for name in ["a", "b", "c"] {
    ///     maps.create(&json!({"metadata": {"name": name}}), &stop)?;
    /// }
    /// let mut options = ListOptions::default();
    /// options.limit = Some(2);
    /// let mut sizes = Vec::new();
    /// for page in maps.pages(&options, &stop) {
    ///     sizes.push(page?.items.len());
    /// }
    /// assert_eq!(sizes, [2, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pages(&self, options: &ListOptions, stop: &Stop) -> Pages<T> {
        let mut options = options.clone();
        options.limit = options.limit.filter(|limit| *limit > 0).or(Some(PAGE_SIZE));
        Pages {
            api: self.clone(),
            stop: stop.clone(),
            options,
            page: 0,
            items: 0,
            check: PageCheck::default(),
            done: false,
        }
    }

    /// Returns a decoder for the objects. Reflectors use the same decoder.
    pub(super) fn decoder(&self) -> Decoder<T> {
        // Do not expect a kind if it belongs to another group than the resource, as `Scale` does:
        // the server may send an older version of that group.
        let expected_kind = self
            .kind
            .clone()
            .filter(|kind| kind.group == self.resource.group);
        let options = DecodeOptions {
            expected_kind,
            small_stack: true,
            ..DecodeOptions::default()
        };
        Decoder::new(Decode::new(), options)
    }

    fn read_list(&self, response: Response) -> Result<ObjectList<T>, Error> {
        let mut decoder = self.decoder();
        let mut splitter = ListSplitter::new(decoder.limits().object_bytes);
        let mut items = Vec::new();
        response.read_whole(|bytes| {
            splitter.feed(bytes, |item| {
                let item = decoder.item(item).and_then(require_name);
                items.push(item.map_err(|unreadable| {
                    unreadable.error_at(|| format!("item {}", items.len() + 1))
                })?);
                Ok::<(), Error>(())
            })
        })?;
        let meta = splitter.finish()?;
        let (api_version, kind) = meta.api_version_and_kind();
        decoder.check_list(api_version, kind)?;
        for item in &mut items {
            decoder.set_type_meta(item, &meta)?;
        }
        let list = ObjectList {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            resource_version: ResourceVersion::new(meta.resource_version()),
            continue_token: meta.continue_token().map(str::to_owned),
            remaining_item_count: meta.remaining_item_count(),
            items,
        };
        match (&list.continue_token, list.remaining_item_count) {
            // The remaining objects cannot be requested without a continue token.
            (None, Some(remaining @ 1..)) => Err(Error::invalid(format!(
                "the list is incomplete: remainingItemCount is {remaining}, but there is no continue token"
            ))),
            _ => Ok(list),
        }
    }
}

/// Rejects an object without a name: it cannot be addressed.
fn require_name<T: Object>(object: T) -> Result<T, Unreadable> {
    if object.name().is_empty() {
        Err(Unreadable::nameless(&object))
    } else {
        Ok(object)
    }
}

/// An iterator over the pages of a list, created by [`Api::pages`]. It requests a page only when
/// you call `next`.
#[derive(Debug)]
#[must_use = "pages are fetched only when you iterate"]
#[doc(alias = "ListPager")]
pub struct Pages<T> {
    api: Api<T>,
    stop: Stop,
    /// The options for the next page.
    options: ListOptions,
    /// The number of pages read.
    page: u32,
    items: usize,
    check: PageCheck,
    done: bool,
}

impl<T: Object + DeserializeOwned> Iterator for Pages<T> {
    type Item = Result<ObjectList<T>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        self.done = true;
        let list = self.api.list(&self.options, &self.stop).and_then(|list| {
            self.items = self.items.saturating_add(list.items.len());
            if let Some(token) = &list.continue_token {
                let followed = self
                    .check
                    .record_page(token, self.items)
                    .map_err(|endless| Error::invalid(endless.to_string()));
                self.api.with_context("list", "", || followed)?;
            }
            Ok(list)
        });
        self.page += 1;
        Some(match list {
            Ok(list) => {
                if let Some(token) = &list.continue_token {
                    // The continue token implies the version. Servers reject a request that also
                    // sets the version.
                    self.options.resource_version = None;
                    self.options.resource_version_match = None;
                    self.options.continue_token = Some(token.clone());
                    self.done = false;
                }
                Ok(list)
            }
            Err(error) if self.page > 1 && error.is_gone() => {
                Err(error.context(format!("the list expired at page {}", self.page)))
            }
            Err(error) => Err(error.context(format!("page {}", self.page))),
        })
    }
}

impl<T: Object + DeserializeOwned> FusedIterator for Pages<T> {}
