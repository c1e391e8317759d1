use std::sync::Arc;

use super::Decode;
use crate::error::Error;
use crate::object::Object;
use crate::wire::{self, ListOptions, ListSplitter, SplitError};

/// The page size where nothing else is said (L9).
pub(super) const DEFAULT_PAGE_SIZE: u32 = 500;

/// One LIST of a reflector: one request, or several where the server hands the list out in pages (L8–L13).
#[derive(Debug)]
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
    /// The resourceVersion of the first page, which is that of the list.
    list_version: String,
    remaining: Option<u64>,
    splitter: ListSplitter,
    objects: Vec<Arc<T>>,
    /// What has come and can't be kept, since the last look.
    left_out: Vec<Error>,
}

/// What a list that has come whole consists of.
pub(super) struct Listed<T> {
    pub(super) objects: Vec<Arc<T>>,
    pub(super) resource_version: String,
    /// More than one page came although the state asked for was "0": the server has no watch cache (L10).
    pub(super) paginated_at_zero: bool,
}

impl<T: Object> Listing<T> {
    /// A LIST at this version; `page_size` is what the user asked for, if anything (L9).
    pub(super) fn new(resource_version: Option<String>, page_size: Option<u32>, paginated: bool) -> Self {
        let any_version = matches!(resource_version.as_deref(), None | Some("0"));
        let limit = page_size.or((paginated || any_version).then_some(DEFAULT_PAGE_SIZE));
        Self {
            resource_version,
            limit,
            continue_token: None,
            whole: false,
            retried: false,
            pages: 0,
            list_version: String::new(),
            remaining: None,
            splitter: ListSplitter::new(),
            objects: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// The options of the next request.
    pub(super) fn options(&self) -> ListOptions {
        let mut options = ListOptions::default();
        if self.continue_token.is_none() {
            options.resource_version.clone_from(&self.resource_version);
        }
        // Also for the rest of what was asked for whole: a server may hand that out in pages, too.
        options.continue_token.clone_from(&self.continue_token);
        if !self.whole {
            options.limit = self.limit;
        }
        options
    }

    /// How many objects have come, and how many there are in all, where the server tells.
    pub(super) fn progress(&self) -> (usize, Option<usize>) {
        let remaining = self.remaining.and_then(|remaining| usize::try_from(remaining).ok());
        (self.objects.len(), remaining.map(|remaining| self.objects.len() + remaining))
    }

    pub(super) fn feed(&mut self, bytes: &[u8], decode: Decode<T>) -> Result<(), Error> {
        let Self { splitter, objects, left_out, .. } = self;
        splitter.feed(bytes, |item| {
            let object = decode(item).map_err(|error| {
                Error::decode(format!("item {} of the list: {}", objects.len(), wire::describe(&error)))
            })?;
            if object.name().is_empty() {
                left_out.push(Error::decode(format!(
                    "item {} of the list has no name: it is left out",
                    objects.len()
                )));
            } else {
                objects.push(Arc::new(object));
            }
            Ok(())
        })
    }

    /// What has come and can't be kept, since the last call.
    pub(super) fn left_out(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.left_out)
    }

    /// The body of a page has come whole: the list, or `None` if a further page has to be asked for.
    pub(super) fn page_end(&mut self) -> Result<Option<Listed<T>>, Error> {
        let meta =
            std::mem::replace(&mut self.splitter, ListSplitter::new()).finish().map_err(Error::from)?;
        self.pages += 1;
        if self.pages == 1 {
            meta.resource_version().clone_into(&mut self.list_version);
        }
        self.remaining = meta.remaining_item_count();
        if let Some(token) = meta.continue_token() {
            self.continue_token = Some(token.to_owned());
            return Ok(None);
        }
        Ok(Some(Listed {
            objects: std::mem::take(&mut self.objects),
            resource_version: std::mem::take(&mut self.list_version),
            paginated_at_zero: self.pages > 1 && self.resource_version.as_deref() == Some("0"),
        }))
    }

    /// A request failed: whether there is another one to make at once, and whether the version asked for
    /// can't be had.
    pub(super) fn retry(&mut self, error: &Error) -> Retry {
        if self.continue_token.take().is_some() && !self.whole && error.is_expired() {
            self.restart();
            self.whole = true;
            return Retry::Whole;
        }
        if !self.retried && (error.is_gone() || error.is_too_large_resource_version()) {
            self.restart();
            self.whole = false;
            self.retried = true;
            self.resource_version = None;
            return Retry::MostRecent;
        }
        Retry::No
    }

    fn restart(&mut self) {
        self.continue_token = None;
        self.pages = 0;
        self.list_version.clear();
        self.remaining = None;
        self.splitter = ListSplitter::new();
        self.objects.clear();
    }
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
