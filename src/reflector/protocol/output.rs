use std::time::Duration;

use crate::error::Error;
use crate::wire::{ListMeta, ListOptions};

/// What to do next.
#[derive(Debug)]
pub(in crate::reflector) enum Output<'a> {
    /// Open a LIST.
    List(ListOptions),
    /// Open a WATCH.
    Watch(ListOptions),
    /// Read from the body, and wait at most this long for bytes.
    Read(Option<Duration>),
    /// Wait.
    Wait(Duration),
    /// An item of the list, which said `head` of itself before its items.
    Item {
        bytes: &'a [u8],
        head: &'a ListMeta,
        /// Whether a cached object in the same version is the same object.
        may_reuse: bool,
    },
    /// The page is complete.
    Page(&'a ListMeta),
    /// A frame of the watch.
    Frame {
        bytes: &'a [u8],
        /// As for an item.
        may_reuse: bool,
    },
    /// The list, or the initial events of the watch-list, are complete: they are the state at this version.
    Replace { version: &'a str },
}

/// Something that went wrong.
#[derive(Debug)]
pub(in crate::reflector) struct Report {
    pub(in crate::reflector) error: Error,
    pub(in crate::reflector) kind: ReportKind,
    /// What was being read, "list" or "watch". `None` for the error of a request, which says it itself.
    pub(in crate::reflector) reading: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum ReportKind {
    /// A failed list or watch call: client-go calls its `WatchErrorHandler` for these only (W14).
    Request,
    /// Anything else that ends or delays a cycle.
    Other,
    /// A watch-list was rejected, and a list follows at once.
    Preliminary,
    /// An object could not be decoded or stored.
    Object,
}

impl Report {
    /// Whether the request will fail again in the same way until something else changes.
    pub(in crate::reflector) fn is_refusal(&self) -> bool {
        let is_request = matches!(self.kind, ReportKind::Request | ReportKind::Other);
        is_request && self.reading.is_none() && self.error.is_permanent()
    }
}
