use std::fmt;
use std::iter::FusedIterator;

use serde::de::DeserializeOwned;

use super::Api;
use crate::client::Response;
use crate::client::resource::{PARTIAL, ResourceListerWatcher};
use crate::error::Error;
use crate::object::Object;
use crate::stop::Stop;
use crate::wire::{
    Decode, DecodeOptions, Decoder, ListOptions, ListSplitter, PageCheck, Unreadable,
};

/// How many objects a page has where nothing else is said: that of client-go's pager.
const PAGE_SIZE: u32 = 500;

/// The objects of a LIST, or of one page of it, in the order of the server. client-go's `PodList` and the
/// like, `UnstructuredList`, `PartialObjectMetadataList`.
///
/// A server says apiVersion and kind of the items of built-in kinds only in the list;
/// [`DynamicObject`](crate::DynamicObject)s have them from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectList<T> {
    /// `apiVersion` of the list, which for built-in kinds is that of its items.
    pub api_version: String,
    /// `kind` of the list: `PodList`.
    pub kind: String,
    /// The state that it shows. A [watch](Api::watch) from here on tells what happens after it.
    pub resource_version: String,
    /// Where the next page begins, if there is one: [`ListOptions::continue_token`] of the request for it.
    pub continue_token: Option<String>,
    /// How many objects follow on further pages, where the server tells: not with selectors, and it may be
    /// a guess.
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
    /// What lists and watches; in all namespaces if none is given.
    pub(super) fn lister_watcher(&self) -> Result<ResourceListerWatcher, Error> {
        self.check_namespace()?;
        let client = self.client.clone();
        let lister_watcher = ResourceListerWatcher::new(client, &self.resource, self.namespace());
        Ok(if self.accept == PARTIAL {
            lister_watcher.metadata_only()
        } else {
            lister_watcher
        })
    }
}

impl<T: Object + DeserializeOwned> Api<T> {
    /// Lists objects: all that the options select, or one page of them if they have a
    /// [`limit`](ListOptions::limit). Without a resourceVersion it is the most recent state. client-go's
    /// `List`.
    ///
    /// The objects are decoded one by one while they arrive. An object that can't be decoded is an error that
    /// names it. A list that is larger than the client's [`body_limit`](crate::Config::body_limit), 256 MiB by
    /// default, is an error: read it by [pages](Self::pages).
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
    /// for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
    ///     maps.create(&json!({"metadata": {"name": name, "labels": {"app": app}}}), &stop)?;
    /// }
    /// let mut options = ListOptions::default();
    /// options.label_selector = "app=web".to_owned();
    /// let list = maps.list(&options, &stop)?;
    /// let names: Vec<_> = list.items.iter().map(|map| map.name()).collect();
    /// assert_eq!((names, list.continue_token), (vec!["a", "c"], None));
    ///
    /// // Without a namespace: those of all.
    /// assert_eq!(client.api::<ConfigMap>(None).list(&options, &stop)?.items.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_gone`](Error::is_gone) if the resourceVersion or the continue token is too old,
    /// [`is_decode`](Error::is_decode) if the answer is no list of such objects; and as [`get`](Self::get).
    pub fn list(&self, options: &ListOptions, stop: &Stop) -> Result<ObjectList<T>, Error> {
        let lister_watcher = self.about("list", "", || self.lister_watcher())?;
        let response = lister_watcher.list_response(options, stop)?;
        self.about("list", "", || {
            let list = self.read_list(response)?;
            if let Some(token) = &list.continue_token {
                let mut check = PageCheck::after(options.continue_token.as_deref());
                check
                    .follow(token, list.items.len())
                    .map_err(Error::decode)?;
            }
            Ok(list)
        })
    }

    /// Lists objects page by page, all of them as they were when the first page was asked for: the state that
    /// each page shows is that of the first. A page has [`limit`](ListOptions::limit) objects, 500 if that is
    /// not set. client-go's `pager`.
    ///
    /// Nothing is asked before the first page is; the next page is asked for when it is wanted. After an
    /// error it is over. Pages without an end are an error: a continue token that comes again, or a hundred
    /// pages in a row without an object. A state that the server has forgotten meanwhile, after some minutes, is
    /// [`is_gone`](Error::is_gone), says at which page, and is not started anew behind your back.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
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

    /// What decodes the objects, as a reflector does.
    pub(super) fn decoder(&self) -> Decoder<T> {
        // What a subresource is has versions of its own: a Scale may be an older one.
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
                let item = decoder.item(item).and_then(named);
                items.push(item.map_err(|unreadable| {
                    unreadable.error_at(|| format!("item {}", items.len() + 1))
                })?);
                Ok::<(), Error>(())
            })
        })?;
        let meta = splitter.finish()?;
        let (api_version, kind) = meta.api_version_and_kind();
        decoder.check_list(api_version, kind)?;
        items
            .iter_mut()
            .for_each(|item| decoder.set_type_meta(item, &meta));
        let list = ObjectList {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            resource_version: meta.resource_version().to_owned(),
            continue_token: meta.continue_token().map(str::to_owned),
            remaining_item_count: meta.remaining_item_count(),
            items,
        };
        match (&list.continue_token, list.remaining_item_count) {
            // Nobody could ask for them.
            (None, Some(remaining @ 1..)) => Err(Error::decode(format!(
                "the list ends, but says that {remaining} objects are to follow"
            ))),
            _ => Ok(list),
        }
    }
}

/// An object without a name is none that anybody could ask for.
fn named<T: Object>(object: T) -> Result<T, Unreadable> {
    if object.name().is_empty() {
        Err(Unreadable::nameless(&object))
    } else {
        Ok(object)
    }
}

/// The pages of a list, which are asked for one by one: made by [`Api::pages`].
#[must_use = "nothing is asked for unless the pages are wanted"]
#[doc(alias = "ListPager")]
pub struct Pages<T> {
    api: Api<T>,
    stop: Stop,
    /// Of the next page.
    options: ListOptions,
    /// How many have come, and how many objects with them.
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
                let followed = self.check.follow(token, self.items).map_err(Error::decode);
                self.api.about("list", "", || followed)?;
            }
            Ok(list)
        });
        self.page += 1;
        Some(match list {
            Ok(list) => {
                if let Some(token) = &list.continue_token {
                    // Which state it is, the token says; a server refuses to be told twice.
                    self.options.resource_version = None;
                    self.options.resource_version_match = None;
                    self.options.continue_token = Some(token.clone());
                    self.done = false;
                }
                Ok(list)
            }
            Err(error) if self.page > 1 && error.is_gone() => {
                Err(error.context(format!("the list has expired at page {}", self.page)))
            }
            Err(error) => Err(error.context(format!("page {}", self.page))),
        })
    }
}

impl<T: Object + DeserializeOwned> FusedIterator for Pages<T> {}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("api", &self.api)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}
