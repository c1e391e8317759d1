use crate::error::{Error, ErrorKind};
use crate::wire::{
    DecodeLimits, ListMeta, ListOptions, ListSplitter, PageCheck, Piece, ResourceVersionMatch,
    SplitError,
};

/// The page size if the user has not configured one.
pub(super) const DEFAULT_PAGE_SIZE: u32 = 500;

/// One LIST, which consists of one request for each page (L8–L13).
pub(super) struct ListRequest {
    /// `None` requests the most recent state.
    resource_version: Option<String>,
    limit: Option<u32>,
    continue_token: Option<String>,
    /// Whether the whole list is requested at once, whatever its size. Set after a continue token
    /// expired (L13).
    full_list: bool,
    /// Whether the list was requested again at the most recent version (L11).
    retried: bool,
    pages: u32,
    page_check: PageCheck,
    /// The version of the first page, which is the version of the list.
    version: String,
    pub(super) remaining: Option<u64>,
    /// Whether the server confirmed on each page so far that it selected the objects of the shard
    /// (SH3). It confirms nothing for custom resources and for metadata.
    pub(super) shard_confirmed: bool,
    shard_selector: String,
    limits: DecodeLimits,
    pub(super) splitter: ListSplitter,
    /// The metadata of a page whose body is complete, until [`page_end`](Self::page_end) takes it.
    pub(super) page: Option<ListMeta>,
}

impl ListRequest {
    /// `page_size` is the size that the user configured.
    pub(super) fn new(
        resource_version: Option<String>,
        page_size: Option<u32>,
        paginated: bool,
        limits: DecodeLimits,
        shard_selector: String,
    ) -> Self {
        let any_version = matches!(resource_version.as_deref(), None | Some("0"));
        let limit = page_size.or((paginated || any_version).then_some(DEFAULT_PAGE_SIZE));
        Self {
            resource_version,
            limit,
            continue_token: None,
            full_list: false,
            retried: false,
            pages: 0,
            page_check: PageCheck::default(),
            version: String::new(),
            remaining: None,
            shard_confirmed: true,
            shard_selector,
            limits,
            splitter: ListSplitter::new(limits.object_bytes),
            page: None,
        }
    }

    /// The options of the next request.
    pub(super) fn options(&self) -> ListOptions {
        let mut options = ListOptions::default();
        if !self.full_list {
            options.limit = self.limit;
        }
        if self.continue_token.is_none() {
            options.resource_version.clone_from(&self.resource_version);
            // Accept newer versions as well. With a limit but without `resourceVersionMatch`, the
            // server returns exactly this version, and may do so even after it rejected a watch
            // from this version.
            let is_at_a_version = !matches!(self.resource_version.as_deref(), None | Some("0"));
            if is_at_a_version && options.limit.is_some() {
                options.resource_version_match = Some(ResourceVersionMatch::NotOlderThan);
            }
        }
        // Set the token even if the whole list was requested, because the server may still return
        // pages.
        options.continue_token.clone_from(&self.continue_token);
        options
    }

    /// Whether at least one page has been received.
    pub(super) fn has_pages(&self) -> bool {
        self.pages > 0
    }

    pub(super) fn is_page_complete(&self) -> bool {
        self.page.is_some()
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn take_version(&mut self) -> String {
        std::mem::take(&mut self.version)
    }

    /// Whether a list at "0" had several pages. The server then has no watch cache (L10).
    pub(super) fn was_paginated_at_zero(&self) -> bool {
        self.pages > 1 && self.resource_version.as_deref() == Some("0")
    }

    /// Returns the number of consumed bytes, and the next item if it is complete.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        self.splitter.next(input)
    }

    /// Completes the page at the end of its body.
    pub(super) fn body_end(&mut self) -> Result<(), Error> {
        let next = ListSplitter::new(self.limits.object_bytes);
        self.page = Some(std::mem::replace(&mut self.splitter, next).finish()?);
        Ok(())
    }

    /// Returns whether another page follows. `received` is the number of different objects so far.
    pub(super) fn page_end(&mut self, received: usize) -> Result<bool, Error> {
        let page = self.page.take().unwrap_or_default();
        self.pages += 1;
        if self.pages == 1 {
            self.limits
                .check_resource_version(page.resource_version())?;
            page.resource_version().clone_into(&mut self.version);
        }
        self.shard_confirmed &= page.shard_selector() == Some(&self.shard_selector);
        let remaining = page.remaining_item_count();
        // Ignore the count if the server applied a shard, because it counts the objects of all
        // shards.
        self.remaining = remaining.filter(|_| page.shard_selector().is_none());
        if let Some(token) = page.continue_token() {
            // Fails if the pages never end: a token repeats, or too many pages in a row have no new
            // key.
            self.page_check
                .record_page(token, received)
                .map_err(Error::invalid)?;
            self.continue_token = Some(token.to_owned());
            return Ok(true);
        }
        // Without this check, objects that were not sent would be deleted.
        match remaining {
            Some(remaining @ 1..) => Err(Error::invalid(format!(
                "the list is incomplete: remainingItemCount is {remaining}, but there is no continue token"
            ))),
            _ => Ok(false),
        }
    }

    /// Returns whether to request the list again at once after a failed request, and how.
    pub(super) fn retry(&mut self, error: &Error) -> Retry {
        let was_first_page = self.continue_token.is_none();
        if self.continue_token.take().is_some() && !self.full_list && error.is_expired() {
            self.restart();
            self.full_list = true;
            return Retry::FullList;
        }
        // Drop a version that the server does not accept. It may come from a garbled event, and
        // would make every list fail.
        let is_at_a_version =
            was_first_page && !matches!(self.resource_version.as_deref(), None | Some("0"));
        let unacceptable = is_at_a_version && error.is_unacceptable_request();
        if !self.retried
            && (error.is_gone() || error.is_too_large_resource_version() || unacceptable)
        {
            self.restart();
            self.full_list = false;
            self.retried = true;
            self.resource_version = None;
            return Retry::MostRecent;
        }
        Retry::No
    }

    /// Begins with the first page again.
    fn restart(&mut self) {
        self.continue_token = None;
        self.pages = 0;
        self.page_check = PageCheck::default();
        self.version.clear();
        self.remaining = None;
        self.shard_confirmed = true;
        self.splitter = ListSplitter::new(self.limits.object_bytes);
        self.page = None;
    }
}

/// What follows a failed LIST request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// The LIST failed.
    No,
    /// A continue token expired. Request the whole list at once (L13).
    FullList,
    /// The version is unavailable. Request the most recent one at once (L11).
    MostRecent,
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
