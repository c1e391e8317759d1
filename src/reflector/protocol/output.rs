use std::time::Duration;

use crate::error::Error;
use crate::resource_version::ResourceVersion;
use crate::wire::{ListMeta, ListOptions};

/// What to do next.
#[derive(Debug)]
pub(crate) enum Output<'a> {
    /// Open a LIST.
    List(ListOptions),
    /// Open a WATCH.
    Watch(ListOptions),
    /// Read from the body. Wait at most this long for bytes.
    Read(Option<Duration>),
    /// Wait.
    Wait(Duration),
    /// Store an item of the list. `head` contains the list metadata that came before the items.
    Item { bytes: &'a [u8], head: &'a ListMeta },
    /// Handle an item of the list that is larger than allowed. This is its beginning.
    LargeItem(&'a [u8]),
    /// Finish the page.
    Page(&'a ListMeta),
    /// Decode a frame of the watch.
    Frame(&'a [u8]),
    /// Handle a frame that is larger than allowed. This is its beginning.
    LargeFrame(&'a [u8]),
    /// Replace the objects of the store. The list, or the initial events of the watch-list, are
    /// complete at this version. `None` if the server sends no versions.
    Replace {
        version: Option<&'a ResourceVersion>,
    },
}

/// A failure.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) error: Error,
    pub(crate) kind: ReportKind,
    /// What was being read: "list" or "watch". `None` for a failed request, whose error already
    /// names the request.
    pub(crate) reading: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportKind {
    /// A list or watch call failed. client-go calls its `WatchErrorHandler` only for these (W14).
    Request,
    /// Any other failure that ends or delays a cycle.
    Other,
    /// A watch-list was rejected, and a list follows at once.
    Preliminary,
    /// An object could not be decoded or stored, or is unindexed.
    Object,
}

impl Report {
    /// Whether the request will fail in the same way until something else changes.
    pub(crate) fn is_permanent(&self) -> bool {
        let is_request = matches!(self.kind, ReportKind::Request | ReportKind::Other);
        is_request && self.reading.is_none() && self.error.is_permanent()
    }
}
