use crate::error::{Error, ErrorKind};
use crate::resource_version::ResourceVersion;
use crate::wire::{ListMeta, ListOptions, PageCheck, ResourceVersionMatch, SplitError};

/// The page size if the user has not configured one.
const DEFAULT_PAGE_SIZE: u32 = 500;

/// Which state a list returns.
pub(super) enum Listed {
    /// Any state that the server has in memory. The request has the version "0".
    AnyVersion,
    /// The state at this version or a later one.
    AtLeast(ResourceVersion),
    /// The most recent state: a consistent read. The request has no version.
    Consistent,
}

impl Listed {
    /// Returns the version of the request.
    pub(super) fn resource_version(&self) -> Option<ResourceVersion> {
        match self {
            Self::AnyVersion => Some(ResourceVersion::any()),
            Self::AtLeast(version) => Some(version.clone()),
            Self::Consistent => None,
        }
    }
}

/// One LIST, which consists of one request for each page (L8–L13).
pub(super) struct PagedList {
    listed: Listed,
    limit: Option<u32>,
    /// Whether the whole list is requested at once, whatever its size. Set after a continue token
    /// expired (L13).
    full_list: bool,
    /// Whether the list was requested again at the most recent version (L11).
    pub(super) retried: bool,
    pub(super) pages: Pages,
}

/// The pages that have been received.
#[derive(Default)]
pub(super) struct Pages {
    pub(super) count: u32,
    continue_token: Option<String>,
    check: PageCheck,
    /// The version of the first page, which is the version of the list. `None` if the server sends no
    /// versions.
    pub(super) version: Option<ResourceVersion>,
    /// The number of objects on further pages, if the server reported it.
    pub(super) remaining: Option<u64>,
    /// Whether there is a page for which the server did not confirm that it selected the objects of
    /// the shard (SH3). It confirms nothing for custom resources and for metadata.
    pub(super) has_unconfirmed: bool,
}

/// What follows a page.
pub(super) enum PageEnd {
    NextPage,
    ListEnd,
}

impl PagedList {
    /// `page_size` is the size that the user configured.
    pub(super) fn new(listed: Listed, page_size: Option<u32>, paginated: bool) -> Self {
        let is_paginated = paginated || !matches!(listed, Listed::AtLeast(_));
        let limit = page_size.or(is_paginated.then_some(DEFAULT_PAGE_SIZE));
        Self {
            listed,
            limit,
            full_list: false,
            retried: false,
            pages: Pages::default(),
        }
    }

    /// The options of the next request.
    pub(super) fn options(&self) -> ListOptions {
        let mut options = ListOptions::default();
        if !self.full_list {
            options.limit = self.limit;
        }
        // Set the token even if the whole list was requested, because the server may still return
        // pages.
        options
            .continue_token
            .clone_from(&self.pages.continue_token);
        if options.continue_token.is_none() {
            options.resource_version = self.listed.resource_version();
            // Accept newer versions as well. With a limit but without `resourceVersionMatch`, the
            // server returns exactly this version, and may do so even after it rejected a watch
            // from this version.
            if self.is_at_a_version() && options.limit.is_some() {
                options.resource_version_match = Some(ResourceVersionMatch::NotOlderThan);
            }
        }
        options
    }

    fn is_at_a_version(&self) -> bool {
        matches!(self.listed, Listed::AtLeast(_))
    }

    /// Whether a list at "0" had several pages. The server then has no watch cache (L10).
    pub(super) fn was_paginated_at_zero(&self) -> bool {
        self.pages.count > 1 && matches!(self.listed, Listed::AnyVersion)
    }

    /// Records a page that has been stored. `received` is the number of different objects so far.
    pub(super) fn page_end(
        &mut self,
        page: &ListMeta,
        received: usize,
        shard_selector: Option<&str>,
    ) -> Result<PageEnd, Error> {
        let pages = &mut self.pages;
        pages.count += 1;
        if pages.count == 1 {
            pages.version = ResourceVersion::new(page.resource_version());
        }
        let is_confirmed = shard_selector.is_some() && page.shard_selector() == shard_selector;
        pages.has_unconfirmed |= !is_confirmed;
        let remaining = page.remaining_item_count();
        // Ignore the count if the server applied a shard, because it counts the objects of all
        // shards.
        pages.remaining = remaining.filter(|_| page.shard_selector().is_none());
        if let Some(token) = page.continue_token() {
            // Fails if the pages never end: a token repeats, or too many pages in a row have no new
            // key.
            let check = pages.check.record_page(token, received);
            check.map_err(|endless| Error::invalid(endless.to_string()))?;
            pages.continue_token = Some(token.to_owned());
            return Ok(PageEnd::NextPage);
        }
        // Without this check, objects that were not sent would be deleted.
        match remaining {
            Some(remaining @ 1..) => Err(Error::invalid(format!(
                "the list is incomplete: remainingItemCount is {remaining}, but there is no continue token"
            ))),
            _ => Ok(PageEnd::ListEnd),
        }
    }

    /// Returns whether to request the list again at once after a failed request: the whole list if
    /// a continue token expired (L13), or the most recent version if the version is unavailable
    /// (L11).
    pub(super) fn retry(&mut self, error: &Error) -> bool {
        let is_first_page = self.pages.continue_token.is_none();
        if !is_first_page && !self.full_list && error.is_expired() {
            self.full_list = true;
        } else {
            // Drop a version that the server does not accept. It may come from a garbled event, and
            // would make every list fail.
            let unacceptable =
                is_first_page && self.is_at_a_version() && error.is_unacceptable_request();
            if self.retried
                || !(error.is_gone() || error.is_too_large_resource_version() || unacceptable)
            {
                return false;
            }
            (self.full_list, self.retried) = (false, true);
            self.listed = Listed::Consistent;
        }
        self.pages = Pages::default();
        true
    }
}

impl From<SplitError> for Error {
    fn from(error: SplitError) -> Self {
        let message = error.to_string();
        Self::new(match error {
            SplitError::TooLarge { .. } => ErrorKind::TooLarge(message),
            _ => ErrorKind::Decode(message),
        })
    }
}
