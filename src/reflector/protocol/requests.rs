//! What is requested next, and the waits before it. A new list or stream always begins with one of
//! these requests.

use std::time::Duration;

use super::cycle::{Cycle, Relist};
use super::list::{Listed, PagedList};
use super::output::{Output, ReportKind};
use crate::error::Error;
use crate::wire::{ListOptions, ResourceVersionMatch};

/// The duration of a watch that must tell the version of the server. kube-apiserver sends a bookmark
/// two seconds before a watch ends, but not in shorter watches.
pub(super) const SHORT_WATCH: Duration = Duration::from_secs(3);

/// A list is requested after this number of watch-lists have ended early (WL9).
const WATCH_LIST_TRIES: u32 = 3;

/// What follows a list or a stream that cannot continue.
pub(super) enum Next {
    Request(Request),
    Wait(Waiting),
}

/// The next step is a request.
pub(super) enum Request {
    /// The next page of a list.
    List(PagedList),
    WatchList(WatchListRequest),
    Watch(WatchRequest),
}

/// A watch from the last version.
pub(super) enum WatchRequest {
    /// At once, unless a relist is due.
    AtOnce,
    /// A wait is over. The watch is opened even if a relist is due, which then follows.
    AfterWait,
}

/// A watch-list.
pub(super) struct WatchListRequest {
    /// The number of watch-lists in this cycle that ended before they were complete.
    unfinished: u32,
}

/// Nothing is requested until a wait is over: a back-off, or the rest of a second after a short
/// watch (W4).
pub(super) struct Waiting {
    pub(super) left: Duration,
    pub(super) next: AfterWait,
}

/// What follows a wait.
pub(super) enum AfterWait {
    /// A watch-list or a list.
    Relist,
    List,
    Watch,
    WatchList(WatchListRequest),
}

impl From<Request> for Next {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl Next {
    /// A wait of this time, and then a request.
    pub(super) fn wait(left: Duration, next: AfterWait) -> Self {
        Self::Wait(Waiting { left, next })
    }

    /// A list request failed, or its page cannot be used. The list is requested again at once if that
    /// avoids the error (L11, L13). Otherwise, a new cycle follows a back-off (L7). `reading` is what
    /// was being read, see [`Report::reading`](super::Report::reading).
    pub(super) fn after_failed_list(
        mut list: PagedList,
        error: Error,
        reading: Option<&'static str>,
        cycle: &mut Cycle,
    ) -> Self {
        if list.retry(&error) {
            cycle.version.is_unavailable |= list.retried;
            return Request::List(list).into();
        }
        let wait = cycle.fail(error, ReportKind::Request, reading);
        Self::wait(wait, AfterWait::Relist)
    }
}

impl Request {
    /// The first request of a cycle: a watch-list or a list for the objects (L6). A watch follows.
    pub(super) fn relist(cycle: &mut Cycle) -> Self {
        cycle.watches.short = 0;
        let paused_until = cycle.server.watch_list_paused_until;
        let may_watch_list = paused_until.is_none_or(|until| cycle.now >= until);
        if cycle.options.watch_list && may_watch_list {
            Self::WatchList(WatchListRequest { unfinished: 0 })
        } else {
            Self::list(cycle)
        }
    }

    /// The first page of a list.
    pub(super) fn list(cycle: &Cycle) -> Self {
        // The first list of a shard is consistent, because another process may have worked on its
        // objects before.
        let first = match cycle.options.shard {
            Some(_) => Listed::Consistent,
            None => Listed::AnyVersion,
        };
        let listed = cycle.version.of_list(first);
        let paginates = cycle.server.paginates_at_zero;
        Self::List(PagedList::new(listed, cycle.options.page_size, paginates))
    }

    /// The first request of a relist that is due.
    pub(super) fn due_relist(relist: Relist, cycle: &mut Cycle) -> Self {
        match relist {
            Relist::ForWaits => {
                cycle.waits.list_begins();
                cycle.version.is_unavailable = true;
            }
            Relist::Repair => {}
        }
        Self::relist(cycle)
    }

    pub(super) fn output(&self, cycle: &mut Cycle) -> Output<'static> {
        match self {
            Self::List(list) => Output::List(ListOptions {
                shard_selector: cycle.shard_selector(),
                ..list.options()
            }),
            Self::WatchList(_) => Output::Watch(ListOptions {
                resource_version: cycle.version.of_watch_list().resource_version(),
                resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
                send_initial_events: true,
                ..cycle.watch_options()
            }),
            Self::Watch(_) => {
                let mut options = cycle.watch_options();
                // Waits until the store is current need a bookmark soon.
                if !cycle.waits.is_empty() {
                    options.timeout_seconds = Some(SHORT_WATCH.as_secs() as u32);
                }
                options.resource_version = cycle.version.seen.clone();
                Output::Watch(options)
            }
        }
    }

    /// The request failed. Nothing is being read, and the error names the request.
    pub(super) fn failed(self, error: Error, cycle: &mut Cycle) -> Next {
        match self {
            Self::List(list) => Next::after_failed_list(list, error, None, cycle),
            Self::WatchList(request) => request.failed(error, None, cycle),
            Self::Watch(request) => request.failed(error, cycle),
        }
    }
}

impl WatchRequest {
    /// The request failed (W3). If the server is unavailable, the watch is requested again after a
    /// back-off. Any other error ends the cycle.
    fn failed(self, error: Error, cycle: &mut Cycle) -> Next {
        if is_server_unavailable(&error) {
            let wait = cycle.fail(error, ReportKind::Other, None);
            return Next::wait(wait, AfterWait::Watch);
        }
        cycle.version.suspect(&error);
        let wait = cycle.fail(error, ReportKind::Request, None);
        Next::wait(wait, AfterWait::Relist)
    }
}

impl WatchListRequest {
    /// The request failed, or the server ended the watch-list with an error (WL8). `reading` is what
    /// was being read, see [`Report::reading`](super::Report::reading).
    pub(super) fn failed(
        mut self,
        error: Error,
        reading: Option<&'static str>,
        cycle: &mut Cycle,
    ) -> Next {
        let retry_after = error.retry_after();
        if is_server_unavailable(&error) {
            // Try the watch-list again, because a list would fail as well. A list helps only if
            // just the watch-lists break the connection, so count these errors.
            self.unfinished += u32::from(error.is_connection() && !error.is_connection_refused());
            if self.unfinished < WATCH_LIST_TRIES {
                let wait = cycle.fail(error, ReportKind::Other, reading);
                return Next::wait(wait, AfterWait::WatchList(self));
            }
            cycle.report(error, ReportKind::Other, reading);
            return Request::list(cycle).into();
        }
        let is_refused = error.is_invalid() || error.is_bad_request();
        // A server usually rejects a request as bad or invalid because it does not support
        // watch-lists. If the version is the reason, the list fails as well.
        let is_unacceptable =
            !is_refused && cycle.version.is_specific() && error.is_unacceptable_request();
        let is_unavailable =
            error.is_gone() || error.is_too_large_resource_version() || is_unacceptable;
        let kind = match retry_after {
            Some(_) => ReportKind::Other,
            None => ReportKind::Preliminary,
        };
        cycle.report(error, kind, reading);
        // The version is the reason: request a consistent watch-list at once.
        if is_unavailable && !cycle.version.is_unavailable {
            cycle.version.is_unavailable = true;
            return Request::WatchList(self).into();
        }
        if is_refused {
            cycle.pause_watch_lists();
        }
        match retry_after {
            Some(_) => Next::wait(cycle.back_off(retry_after), AfterWait::List),
            None => Request::list(cycle).into(),
        }
    }

    /// The watch-list ended before it was complete (WL9). Returns the next request, or `None` after
    /// the last try.
    pub(super) fn next_try(&self) -> Option<Self> {
        let unfinished = self.unfinished + 1;
        (unfinished < WATCH_LIST_TRIES).then_some(Self { unfinished })
    }
}

impl Waiting {
    /// Part of the wait is over. The request follows when nothing is left.
    pub(super) fn waited(self, time: Duration, cycle: &mut Cycle) -> Next {
        let left = self.left.saturating_sub(time);
        if !left.is_zero() {
            return Next::wait(left, self.next);
        }
        let request = match self.next {
            AfterWait::Relist => Request::relist(cycle),
            AfterWait::List => Request::list(cycle),
            AfterWait::Watch => Request::Watch(WatchRequest::AfterWait),
            AfterWait::WatchList(request) => Request::WatchList(request),
        };
        request.into()
    }
}

/// Whether the server is down or overloaded. The reflector waits, because a list would add load
/// (W3).
fn is_server_unavailable(error: &Error) -> bool {
    error.is_connection() && !error.is_tls() || error.is_too_many_requests()
}
