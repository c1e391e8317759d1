//! The phases of a LIST after a request. Its pages are read and stored one after another, and then the
//! list replaces the objects of the store (L8–L15).

use std::ops::ControlFlow;

use super::cycle::Cycle;
use super::list::{PageEnd, PagedList};
use super::output::{Output, ReportKind};
use super::repair::Completeness;
use super::requests::{AfterWait, Next, Request, WatchRequest};
use crate::error::Error;
use crate::resource_version::ResourceVersion;
use crate::wire::{ListMeta, ListSplitter, Piece, SplitError};

/// What is being read, for reports.
pub(super) const READING: Option<&str> = Some("list");

/// A page is being read. Its items are stored as they arrive.
pub(super) struct ListBody {
    pub(super) list: PagedList,
    splitter: ListSplitter,
}

impl ListBody {
    /// The server answers the request.
    pub(super) fn opened(list: PagedList, cycle: &Cycle) -> Self {
        Self {
            list,
            splitter: ListSplitter::new(cycle.options.limits.object_bytes),
        }
    }

    /// Returns how many bytes were consumed, and the next item.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        self.splitter.next(input)
    }

    /// Returns the item that [`next`](Self::next) found in this input.
    pub(super) fn item<'a>(&'a self, input: &'a [u8], piece: Piece) -> Output<'a> {
        let bytes = self.splitter.piece(input, piece);
        match piece {
            Piece::Head => Output::LargeItem(bytes),
            _ => Output::Item {
                bytes,
                head: self.splitter.head(),
            },
        }
    }

    /// The body has ended, or the connection broke. At the end, the page must be complete.
    pub(super) fn ended(
        self,
        result: Result<(), Error>,
        cycle: &mut Cycle,
    ) -> ControlFlow<Next, ListPage> {
        let page = result.and_then(|()| self.splitter.finish().map_err(Error::from));
        match page {
            Ok(page) => ControlFlow::Continue(ListPage {
                list: self.list,
                page,
            }),
            Err(error) => ControlFlow::Break(self.failed(error, cycle)),
        }
    }

    pub(super) fn failed(self, error: Error, cycle: &mut Cycle) -> Next {
        Next::after_failed_list(self.list, error, READING, cycle)
    }
}

/// A page is complete. The driver checks it and finishes it.
pub(super) struct ListPage {
    pub(super) list: PagedList,
    pub(super) page: ListMeta,
}

impl ListPage {
    /// The page has been stored. `received` is the number of different objects of the list so far.
    pub(super) fn stored(
        mut self,
        received: usize,
        cycle: &mut Cycle,
    ) -> ControlFlow<Next, ListEnd> {
        let selector = cycle.shard_selector();
        match self
            .list
            .page_end(&self.page, received, selector.as_deref())
        {
            Ok(PageEnd::NextPage) => ControlFlow::Break(Request::List(self.list).into()),
            Ok(PageEnd::ListEnd) => ControlFlow::Continue(ListEnd { list: self.list }),
            Err(error) => ControlFlow::Break(self.failed(error, cycle)),
        }
    }

    pub(super) fn failed(self, error: Error, cycle: &mut Cycle) -> Next {
        Next::after_failed_list(self.list, error, READING, cycle)
    }
}

/// All pages are complete. The next step is to replace the objects of the store.
pub(super) struct ListEnd {
    pub(super) list: PagedList,
}

impl ListEnd {
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.list.pages.version.as_ref()
    }

    /// The store has the list. The watch continues from its version.
    pub(super) fn replaced(self, completeness: Completeness, cycle: &mut Cycle) -> Next {
        cycle.server.paginates_at_zero |= self.list.was_paginated_at_zero();
        cycle.listed(self.list.pages.version, completeness);
        Request::Watch(WatchRequest::AtOnce).into()
    }

    /// The store rejected the list. The server has a list at the version, so the mark of L11 ends
    /// (L15).
    pub(super) fn not_replaced(self, error: Error, cycle: &mut Cycle) -> Next {
        cycle.server.paginates_at_zero |= self.list.was_paginated_at_zero();
        cycle.version.is_unavailable = false;
        let wait = cycle.fail(error, ReportKind::Request, READING);
        Next::wait(wait, AfterWait::Relist)
    }
}
