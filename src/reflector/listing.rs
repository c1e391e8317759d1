use std::cmp::Ordering;
use std::sync::Arc;

use super::decode::{Decoder, Item, Unreadable, prepared};
use super::initial_objects::InitialObjects;
use super::undecodable::Undecoded;
use crate::error::Error;
use crate::object::{Object, meta_namespace_key};
use crate::resource_version::compare_resource_versions;
use crate::store::{Gaps, ReflectorStore, StagedList};
use crate::wire::{
    DecodeLimits, ListMeta, ListOptions, ListSplitter, PageCheck, ResourceVersionMatch, SplitError,
};

/// The page size where nothing else is said (L9).
pub(super) const DEFAULT_PAGE_SIZE: u32 = 500;

/// One LIST of a reflector: one request, or several where the server hands the list out in pages (L8–L13).
pub(super) struct Listing<T> {
    /// The state asked for: `None` for the most recent one.
    resource_version: Option<String>,
    limit: Option<u32>,
    continue_token: Option<String>,
    /// The list that came after an expired continue token: whole, whatever its size (L13).
    whole: bool,
    /// The list has been asked for again at the most recent version (L11).
    retried: bool,
    pages: u32,
    page_check: PageCheck,
    /// The resourceVersion of the first page, which is that of the list.
    list_version: String,
    remaining: Option<u64>,
    splitter: ListSplitter,
    limits: DecodeLimits,
    /// The version of what the store has; what has not changed since is not decoded again, unless the list
    /// is older (I16). `None` to decode everything.
    since: Option<String>,
    /// Whether that is so, once the list's version is known.
    reuse: Option<bool>,
    objects: InitialObjects<Arc<T>>,
    /// Those of this page that are still to be told of what kind they are, and as which item each came.
    unnamed: InitialObjects<(usize, T)>,
    /// How many objects of other shards have come, and whether every page so far was one of this shard's
    /// only, as it says itself.
    elsewhere: usize,
    picked: bool,
    gaps: Gaps,
    /// What of the list could not be read.
    pub(super) undecoded: Undecoded,
    /// What could not be read, since the last look.
    unreadable: Vec<(usize, Unreadable)>,
    /// How many items have come, whatever became of them, and how many of them could not be read.
    items: usize,
    unread: usize,
}

/// What a list that has come whole consists of.
pub(super) struct Listed<T> {
    pub(super) list: StagedList<T>,
    /// How many objects of other shards were among what came.
    pub(super) elsewhere: usize,
    /// The server said of each page that it has only the objects of this shard.
    pub(super) picked: bool,
    /// More than one page came although the state asked for was "0": the server has no watch cache (L10).
    pub(super) paginated_at_zero: bool,
}

impl<T: Object> Listing<T> {
    /// A LIST at this version; `page_size` is what the user asked for, if anything (L9).
    pub(super) fn new(
        resource_version: Option<String>,
        page_size: Option<u32>,
        paginated: bool,
        since: Option<String>,
        limits: DecodeLimits,
    ) -> Self {
        let any_version = matches!(resource_version.as_deref(), None | Some("0"));
        let limit = page_size.or((paginated || any_version).then_some(DEFAULT_PAGE_SIZE));
        Self {
            resource_version,
            limit,
            continue_token: None,
            whole: false,
            retried: false,
            pages: 0,
            page_check: PageCheck::default(),
            list_version: String::new(),
            remaining: None,
            splitter: ListSplitter::new(limits.object_bytes),
            limits,
            since,
            reuse: None,
            objects: InitialObjects::new(),
            unnamed: InitialObjects::new(),
            elsewhere: 0,
            picked: true,
            gaps: Gaps::default(),
            undecoded: Undecoded::default(),
            unreadable: Vec::new(),
            items: 0,
            unread: 0,
        }
    }

    /// The options of the next request.
    pub(super) fn options(&self) -> ListOptions {
        let mut options = ListOptions::default();
        if !self.whole {
            options.limit = self.limit;
        }
        if self.continue_token.is_none() {
            options.resource_version.clone_from(&self.resource_version);
            // With a limit and without a match, a version means exactly that state. The server may still list
            // it when it refuses a watch from there.
            let is_at_a_version = !matches!(self.resource_version.as_deref(), None | Some("0"));
            if is_at_a_version && options.limit.is_some() {
                options.resource_version_match = Some(ResourceVersionMatch::NotOlderThan);
            }
        }
        // Also for the rest of what was asked for whole: a server may hand that out in pages, too.
        options.continue_token.clone_from(&self.continue_token);
        options
    }

    /// How many objects have come, and how many there are in all, where the server tells.
    pub(super) fn progress(&self) -> (usize, Option<usize>) {
        let remaining = self
            .remaining
            .and_then(|remaining| usize::try_from(remaining).ok());
        let received = self.objects.len() + self.unnamed.len() + self.elsewhere;
        (
            received,
            remaining.map(|remaining| received.saturating_add(remaining)),
        )
    }

    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        decoder: &mut Decoder<T>,
        store: &dyn ReflectorStore<T>,
    ) -> Result<(), Error> {
        let Self {
            splitter,
            objects,
            unnamed,
            elsewhere,
            gaps,
            unreadable,
            items,
            unread,
            reuse,
            since,
            ..
        } = self;
        splitter.feed(bytes, |item, list| {
            // Of the first page, whose version is the list's.
            let reuse = *reuse.get_or_insert_with(|| {
                since
                    .as_ref()
                    .is_some_and(|since| is_no_older(list.resource_version(), since))
            });
            match decoder.listed(item, list, store, reuse) {
                Ok(Item::Object(key, object)) => {
                    if unnamed.len() > 0 {
                        unnamed.remove(&meta_namespace_key(&*object));
                    }
                    objects.put(key, object);
                }
                Ok(Item::Elsewhere) => *elsewhere += 1,
                Ok(Item::Unnamed(object)) => {
                    unnamed.put(meta_namespace_key(&object), (*items, object))
                }
                Err(error) => {
                    gaps.add(error.key(store));
                    unreadable.push((*items, error));
                    *unread += 1;
                }
            }
            *items += 1;
            Ok(())
        })
    }

    /// The page has said by now of what kind its objects are: those that waited for it follow the others.
    fn name(&mut self, page: &ListMeta, decoder: &Decoder<T>, store: &dyn ReflectorStore<T>) {
        let unnamed = std::mem::replace(&mut self.unnamed, InitialObjects::new());
        for (_, (place, mut object)) in unnamed.into_vec() {
            decoder.set_type_meta(&mut object, page);
            match prepared(object, store) {
                Ok((key, object)) => self.objects.put(key, object),
                Err(error) => {
                    self.gaps.add(error.key(store));
                    self.unreadable.push((place, error));
                    self.unread += 1;
                }
            }
        }
    }

    /// What could not be read, since the last call, and as which item it came.
    pub(super) fn unreadable(&mut self) -> Vec<(usize, Unreadable)> {
        std::mem::take(&mut self.unreadable)
    }

    /// The body of a page has come whole: the list, or `None` if a further page has to be asked for.
    pub(super) fn page_end(
        &mut self,
        decoder: &Decoder<T>,
        store: &dyn ReflectorStore<T>,
    ) -> Result<Option<Listed<T>>, Error> {
        let splitter = std::mem::replace(
            &mut self.splitter,
            ListSplitter::new(self.limits.object_bytes),
        );
        let meta = splitter.finish().map_err(Error::from)?;
        let (api_version, kind) = meta.api_version_and_kind();
        decoder.check_list(api_version, kind)?;
        self.name(&meta, decoder, store);
        self.pages += 1;
        if self.pages == 1 {
            self.limits
                .check_resource_version(meta.resource_version())?;
            meta.resource_version().clone_into(&mut self.list_version);
        }
        self.picked &= decoder.is_picked(meta.shard_selector());
        let remaining = meta.remaining_item_count();
        // Of a shard that the server has picked, it counts the objects of all.
        self.remaining = remaining.filter(|_| meta.shard_selector().is_none());
        if let Some(token) = meta.continue_token() {
            // Of equal keys only one is kept: pages that repeat them bring nothing new.
            let amount = self.objects.len() + self.elsewhere + self.unread;
            self.page_check
                .follow(token, amount)
                .map_err(Error::decode)?;
            self.continue_token = Some(token.to_owned());
            return Ok(None);
        }
        // Objects that were not sent must not be taken for deleted.
        if let Some(remaining @ 1..) = remaining {
            return Err(Error::decode(format!(
                "the list ends, but says that {remaining} objects are to follow"
            )));
        }
        let list = StagedList {
            objects: std::mem::replace(&mut self.objects, InitialObjects::new()).into_vec(),
            resource_version: std::mem::take(&mut self.list_version),
            gaps: std::mem::take(&mut self.gaps),
        };
        let at_zero = self.resource_version.as_deref() == Some("0");
        let Self {
            elsewhere, picked, ..
        } = *self;
        Ok(Some(Listed {
            list,
            elsewhere,
            picked,
            paginated_at_zero: self.pages > 1 && at_zero,
        }))
    }

    /// A request failed: whether there is another one to make at once, and whether the version asked for
    /// can't be had.
    pub(super) fn retry(&mut self, error: &Error) -> Retry {
        let was_first_page = self.continue_token.is_none();
        if self.continue_token.take().is_some() && !self.whole && error.is_expired() {
            self.restart();
            self.whole = true;
            return Retry::Whole;
        }
        // An event that was garbled must not keep it from listing forever.
        let is_at_a_version =
            was_first_page && !matches!(self.resource_version.as_deref(), None | Some("0"));
        let unacceptable = is_at_a_version && error.is_unacceptable_request();
        if !self.retried
            && (error.is_gone() || error.is_too_large_resource_version() || unacceptable)
        {
            self.restart();
            self.whole = false;
            self.retried = true;
            self.resource_version = None;
            return Retry::MostRecent;
        }
        Retry::No
    }

    /// Begins with the first page again. Everything is decoded: the server may be another one now.
    fn restart(&mut self) {
        self.since = None;
        self.continue_token = None;
        self.pages = 0;
        self.page_check = PageCheck::default();
        self.list_version.clear();
        self.remaining = None;
        self.splitter = ListSplitter::new(self.limits.object_bytes);
        self.reuse = None;
        (self.objects, self.unnamed) = (InitialObjects::new(), InitialObjects::new());
        (self.elsewhere, self.picked) = (0, true);
        (self.items, self.unread) = (0, 0);
        self.gaps = Gaps::default();
        self.undecoded = Undecoded::default();
    }
}

/// Whether a state of the cluster is the same as another one or newer. What can't be compared is not.
pub(super) fn is_no_older(version: &str, than: &str) -> bool {
    compare_resource_versions(version, than).is_some_and(Ordering::is_ge)
}

/// What follows from a failed request of a LIST.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// The LIST has failed.
    No,
    /// A continue token expired: the whole list at once (L13).
    Whole,
    /// The version can't be had: the most recent one, at once (L11).
    MostRecent,
}

impl From<SplitError> for Error {
    fn from(error: SplitError) -> Self {
        Self::decode(error.to_string())
    }
}
