use std::ops::ControlFlow;

use super::cycle::Cycle;
use super::initial_events::{InitialEnd, InitialEvents};
use super::list::PagedList;
use super::listing::{self, ListBody, ListEnd, ListPage};
use super::requests::{AfterWait, Next, Request, Waiting, WatchRequest};
use super::stream::{self, Due, Stream, WatchEnd};
use super::watching::Watching;
use crate::error::Error;
use crate::wire::{Piece, SplitError};

/// The phases of the protocol. Each one owns its data, and its transitions consume it. They follow one
/// another like this:
///
/// ```text
/// Request::List       ListBody
/// ListBody            ListPage
/// ListPage            Request::List for the next page, ListEnd
/// ListEnd             Request::Watch
/// Request::WatchList  InitialEvents
/// InitialEvents       InitialEnd
/// InitialEnd          Watching, Request::Watch while there are waits
/// Request::Watch      Watching
/// Watching            Request::Watch
/// Waiting             one of the requests
/// ```
///
/// A failure, or a relist that is due, leads to one of the requests, at once or after `Waiting`: that
/// is [`Next`].
pub(super) enum Phase {
    Requesting(Request),
    ListBody(ListBody),
    ListPage(ListPage),
    ListEnd(ListEnd),
    InitialEvents(InitialEvents),
    InitialEnd(InitialEnd),
    Watching(Watching),
    Waiting(Waiting),
}

impl From<Next> for Phase {
    fn from(next: Next) -> Self {
        match next {
            Next::Request(request) => Self::Requesting(request),
            Next::Wait(waiting) => Self::Waiting(waiting),
        }
    }
}

impl Phase {
    /// Returns how many bytes of the body were consumed, and the next item or frame.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        match self {
            Self::ListBody(body) => body.next(input),
            Self::InitialEvents(initial) => initial.stream.next(input),
            Self::Watching(watch) => watch.stream.next(input),
            Self::Requesting(_)
            | Self::ListPage(_)
            | Self::ListEnd(_)
            | Self::InitialEnd(_)
            | Self::Waiting(_) => Ok((0, None)),
        }
    }

    /// Returns what ends the phase now, although the driver reported nothing.
    pub(super) fn take_due(&mut self, cycle: &mut Cycle) -> Option<Due> {
        match self {
            Self::Requesting(Request::Watch(WatchRequest::AtOnce)) => {
                cycle.take_due_relist().map(Due::Relist)
            }
            Self::InitialEvents(initial) => initial.take_due(cycle),
            Self::Watching(watch) => watch.take_due(cycle),
            // Another request and a list are finished first, and a wait ends on its own.
            Self::Requesting(_)
            | Self::ListBody(_)
            | Self::ListPage(_)
            | Self::ListEnd(_)
            | Self::InitialEnd(_)
            | Self::Waiting(_) => None,
        }
    }

    /// Ends the phase because of what [`take_due`](Self::take_due) has returned.
    pub(super) fn end(self, due: Due, cycle: &mut Cycle) -> Self {
        let next = match (self, due) {
            (phase, Due::BodyEnd(result)) => {
                return phase.watch_ended(WatchEnd::Body(result), cycle);
            }
            (Self::InitialEvents(initial), Due::Late(what)) => {
                initial.abandon(Error::timeout(what), cycle)
            }
            (Self::Watching(watch), Due::Relist(relist)) => watch.relist(relist, cycle),
            (Self::Requesting(_), Due::Relist(relist)) => Request::due_relist(relist, cycle).into(),
            (Self::Watching(watch), Due::ShortWatch) => watch.reopen(cycle),
            _ => unreachable!("another phase has taken what is due"),
        };
        next.into()
    }

    /// An open watch or watch-list cannot continue.
    pub(super) fn watch_ended(self, end: WatchEnd, cycle: &mut Cycle) -> Self {
        match self {
            Self::InitialEvents(initial) => {
                Self::follow(initial.ended(end, cycle), Self::InitialEvents)
            }
            Self::Watching(watch) => watch.ended(end, cycle).into(),
            _ => unreachable!("frames, silence and the end of a watch are those of an open stream"),
        }
    }

    /// The body cannot be split into items or frames.
    pub(super) fn split_failed(self, error: SplitError, cycle: &mut Cycle) -> Self {
        match self {
            Self::ListBody(body) => body.failed(error.into(), cycle).into(),
            phase => phase.watch_ended(WatchEnd::Malformed(error.into()), cycle),
        }
    }

    /// Returns the phase of the state that continues the list or the stream, or what follows its end.
    pub(super) fn follow<S>(flow: ControlFlow<Next, S>, phase: fn(S) -> Self) -> Self {
        match flow {
            ControlFlow::Continue(state) => phase(state),
            ControlFlow::Break(next) => next.into(),
        }
    }

    /// The list that is requested or received, unless it is a watch-list.
    pub(super) fn list(&self) -> Option<&PagedList> {
        match self {
            Self::Requesting(Request::List(list))
            | Self::ListBody(ListBody { list, .. })
            | Self::ListPage(ListPage { list, .. })
            | Self::ListEnd(ListEnd { list }) => Some(list),
            Self::Requesting(Request::WatchList(_) | Request::Watch(_))
            | Self::InitialEvents(_)
            | Self::InitialEnd(_)
            | Self::Watching(_)
            | Self::Waiting(_) => None,
        }
    }

    /// The open stream whose events are handled.
    pub(super) fn stream(&self) -> Option<&Stream> {
        match self {
            Self::InitialEvents(initial) => Some(&initial.stream),
            Self::Watching(watch) => Some(&watch.stream),
            _ => None,
        }
    }

    /// The open stream whose events are handled.
    pub(super) fn stream_mut(&mut self) -> Option<&mut Stream> {
        match self {
            Self::InitialEvents(initial) => Some(&mut initial.stream),
            Self::Watching(watch) => Some(&mut watch.stream),
            _ => None,
        }
    }

    /// What is being read, for reports: "list" or "watch".
    pub(super) fn reading(&self) -> Option<&'static str> {
        match self {
            Self::ListBody(_) | Self::ListPage(_) | Self::ListEnd(_) => listing::READING,
            Self::InitialEvents(_) | Self::InitialEnd(_) | Self::Watching(_) => stream::READING,
            Self::Requesting(_) | Self::Waiting(_) => None,
        }
    }

    /// "list" or "watch-list" while one is requested or received.
    pub(super) fn listing(&self) -> Option<&'static str> {
        match self {
            Self::Requesting(Request::WatchList(_))
            | Self::InitialEvents(_)
            | Self::InitialEnd(_) => Some("watch-list"),
            phase => phase.list().map(|_| "list"),
        }
    }

    /// Whether objects of the current list or watch-list may have been received.
    pub(super) fn is_receiving_list(&self) -> bool {
        match self {
            Self::Requesting(Request::List(list)) => list.pages.count > 0,
            Self::InitialEvents(_) | Self::InitialEnd(_) => true,
            phase => phase.list().is_some(),
        }
    }

    /// Whether a watch is open or is the next request, if only after a wait: when resyncs can be due.
    pub(super) fn is_watching(&self) -> bool {
        match self {
            Self::Requesting(request) => matches!(request, Request::Watch(_)),
            Self::Waiting(waiting) => matches!(waiting.next, AfterWait::Watch),
            Self::Watching(_) => true,
            _ => false,
        }
    }

    /// Whether the current or next request is a watch, or a watch-list that can become one.
    pub(super) fn is_streaming(&self) -> bool {
        match self {
            Self::Requesting(Request::WatchList(_))
            | Self::InitialEvents(_)
            | Self::InitialEnd(_) => true,
            phase => phase.is_watching(),
        }
    }
}
