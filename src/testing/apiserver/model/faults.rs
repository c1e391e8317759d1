//! Faults that a test plants: what goes wrong, where, and for whom.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::http::Response;
use super::log::{RequestRecord, Verb};
use super::status::StatusError;

/// Something that goes wrong for the next requests that match, planted by
/// [`ApiServer::fail_next`](crate::testing::ApiServer::fail_next), or for watches that are open, by
/// [`ApiServer::fail_watches`](crate::testing::ApiServer::fail_watches).
///
/// A fault is what goes wrong, where, and for whom.
///
/// *What* is said by how it is made. [`status`](Self::status),
/// [`status_with_message`](Self::status_with_message) and [`response`](Self::response) are answers of its
/// own, given instead of the server's. All others disturb the server's answer: [`close`](Self::close),
/// [`reset`](Self::reset) and [`stall`](Self::stall) break it off, [`delay`](Self::delay),
/// [`drip`](Self::drip) and [`garbage`](Self::garbage) do not, [`end_watch`](Self::end_watch) and
/// [`no_bookmarks`](Self::no_bookmarks) are for watches.
///
/// *Where* is before the answer unless [`after_events`](Self::after_events) or
/// [`after_bytes`](Self::after_bytes) say otherwise, both to be counted in that order;
/// [`after`](Self::after) then lets some time pass. What breaks off before the answer keeps the server from
/// doing what it was asked; what strikes within does not. So a POST that is reset has created nothing, and
/// one that is reset `.after_bytes(0)` has, though its client can't know.
///
/// *For whom*: any request, unless narrowed down by [`on`](Self::on), [`resource`](Self::resource) and
/// [`when`](Self::when); once, unless [`times`](Self::times) or [`always`](Self::always) say otherwise. One
/// fault strikes a request, the first planted that matches. Several in a row are a script, one request each;
/// [`skip`](Self::skip) lets some pass.
///
/// ```
/// use k8s_informer::testing::{ApiServer, Fault, Verb};
/// use std::io::{Write, read_to_string};
/// use std::net::TcpStream;
/// use std::time::Duration;
///
/// let server = ApiServer::start()?;
/// // The first list of pods is throttled, the second is cut in the middle, the third is late.
/// let pods = |fault: Fault| fault.on(Verb::List).resource("pods");
/// server.fail_next(pods(Fault::status(429).retry_after(1)));
/// server.fail_next(pods(Fault::close().after_bytes(10)));
/// server.fail_next(pods(Fault::delay(Duration::from_millis(1))));
/// // And every watch stalls in the middle of its second event.
/// server.fail_next(Fault::stall().after_events(1).after_bytes(20).always());
/// assert_eq!(server.pending_faults(), 4);
///
/// let list = || {
///     let mut stream = TcpStream::connect(server.address())?;
///     stream.write_all(b"GET /api/v1/pods HTTP/1.1\r\nConnection: close\r\n\r\n")?;
///     read_to_string(stream)
/// };
/// let throttled = list()?;
/// assert!(throttled.starts_with("HTTP/1.1 429 ") && throttled.contains("\r\nRetry-After: 1\r\n"));
/// assert!(list()?.ends_with("\r\n\r\n{\"kind\":\"P"));
/// assert!(list()?.ends_with("\"items\":[]}\n"));
/// assert_eq!(server.pending_faults(), 1);
/// server.clear_faults();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Fault {
    strike: Strike,
    verb: Option<Verb>,
    resource: Option<String>,
    condition: Option<Arc<Condition>>,
    skip: usize,
    /// `None` for ever.
    times: Option<usize>,
}

type Condition = dyn Fn(&RequestRecord) -> bool + Send + Sync;

/// What goes wrong, and where.
#[derive(Clone, Debug)]
pub(crate) struct Strike {
    pub(crate) action: Action,
    pub(crate) events: Option<usize>,
    pub(crate) bytes: Option<usize>,
    pub(crate) delay: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Nothing more than the delay.
    Pass,
    /// A status with headers: an answer, or an event of a watch.
    Status(StatusError, Vec<(String, String)>),
    Respond(Response),
    Close,
    Reset,
    Stall,
    Garbage(Arc<[u8]>),
    /// So many bytes at a time, with a pause after each.
    Drip(usize, Duration),
    EndWatch,
    NoBookmarks,
}

impl Action {
    /// Whether nothing follows on the connection.
    pub(crate) fn breaks_off(&self) -> bool {
        matches!(self, Self::Close | Self::Reset | Self::Stall)
    }
}

impl Strike {
    /// Whether it strikes within the server's own answer, not before or instead of it.
    pub(crate) fn within_answer(&self) -> bool {
        match self.action {
            Action::Respond(_) | Action::NoBookmarks => false,
            Action::Status(..) => self.events.is_some(),
            _ => self.events.is_some() || self.bytes.is_some(),
        }
    }

    /// Whether there is a place for it in watches only.
    pub(crate) fn for_watches(&self) -> bool {
        self.events.is_some() || matches!(self.action, Action::EndWatch | Action::NoBookmarks)
    }
}

impl Fault {
    /// Answers with a `Status` object as kube-apiserver would with this HTTP status.
    ///
    /// With [`after_events`](Self::after_events), the answer is a watch that ends with it, as an `ERROR`
    /// event: what kube-apiserver does where a watch fails after its head has gone out.
    pub fn status(code: u16) -> Self {
        Self::new(Action::Status(StatusError::plain(code, None), Vec::new()))
    }

    /// Like [`Fault::status`] with a message of its own.
    pub fn status_with_message(code: u16, message: impl Into<String>) -> Self {
        Self::new(Action::Status(
            StatusError::plain(code, Some(message.into())),
            Vec::new(),
        ))
    }

    /// Answers with this body, whatever it is: plain text, half a list, nothing. Only
    /// [`after`](Self::after) tells it where; it is an answer of its own.
    pub fn response(code: u16, content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let content_type = content_type.into();
        Self::new(Action::Respond(Response {
            content_type,
            ..Response::json(code, body.into())
        }))
    }

    /// Closes the connection in order (FIN). Before the answer, once the request has been read, it is one
    /// that was never given; within, it truncates the answer: its Content-Length or its last chunk is not
    /// reached.
    pub fn close() -> Self {
        Self::new(Action::Close)
    }

    /// Resets the connection (RST), which the client's system reports as an error. What was written before
    /// may or may not be read; on Linux it is.
    pub fn reset() -> Self {
        Self::new(Action::Reset)
    }

    /// Says nothing more and keeps the connection open until the client closes it or the server stops: what a
    /// client sees of a server that hangs, or of a network that swallows its packets.
    pub fn stall() -> Self {
        Self::new(Action::Stall)
    }

    /// Waits so long, then does as asked. The server acts after the delay, on the state of then; with
    /// [`after_bytes(0)`](Self::after_bytes) it acts before, and what comes late is the body.
    pub fn delay(delay: Duration) -> Self {
        Self::new(Action::Pass).after(delay)
    }

    /// Writes these bytes. Before the answer they are all that is written, head included, and the connection
    /// is closed; within, they become a part of the body, and the answer goes on behind them.
    pub fn garbage(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Action::Garbage(bytes.into().into()))
    }

    /// Answers slowly: `count` bytes at a time, head and framing included, and a pause of `every` after each.
    /// A `count` of 0 is 1.
    pub fn drip(count: usize, every: Duration) -> Self {
        Self::new(Action::Drip(count, every))
    }

    /// Ends a watch in order, as when its time is up but without a bookmark: at once, or after some events.
    pub fn end_watch() -> Self {
        Self::new(Action::EndWatch).after_events(0)
    }

    /// Keeps all bookmarks from a watch, so that a streaming list never comes to its end. Where in the watch
    /// can't be said.
    pub fn no_bookmarks() -> Self {
        Self::new(Action::NoBookmarks)
    }

    fn new(action: Action) -> Self {
        let strike = Strike {
            action,
            events: None,
            bytes: None,
            delay: None,
        };
        Self {
            strike,
            verb: None,
            resource: None,
            condition: None,
            skip: 0,
            times: Some(1),
        }
    }

    /// Adds a header to an answer of the fault's own. It is sent as given; faults of other kinds send none.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        match &mut self.strike.action {
            Action::Status(_, headers) | Action::Respond(Response { headers, .. }) => {
                headers.push((name.into(), value.into()));
            }
            _ => {}
        }
        self
    }

    /// Tells the client when to come again, in seconds: by the header `Retry-After`, and in a `Status` also
    /// by `details.retryAfterSeconds`, as kube-apiserver does.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let Action::Status(status, _) = &mut self.strike.action {
            status.set_retry_after(seconds);
            return self;
        }
        self.header("Retry-After", seconds.to_string())
    }

    /// Strikes in watches only, when so many events have gone out: initial ones and bookmarks count. 0 is
    /// after the head of the answer.
    #[must_use]
    pub fn after_events(mut self, count: usize) -> Self {
        self.strike.events = Some(count);
        self
    }

    /// Strikes within the answer, when so many bytes of its body have gone out; those of a watch count from
    /// [`after_events`](Self::after_events) on. Head and framing don't count: 0 is after the head. An
    /// answer that is shorter is left alone, and so is one of the fault's own.
    #[must_use]
    pub fn after_bytes(mut self, count: usize) -> Self {
        self.strike.bytes = Some(count);
        self
    }

    /// Waits so long at the place where it strikes, and then strikes. The wait ends with the client or the
    /// server, if one of them leaves.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.strike.delay = Some(delay);
        self
    }

    /// Strikes only requests of this kind.
    #[must_use]
    pub fn on(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Strikes only requests for this resource, by its plural name.
    #[must_use]
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Strikes only requests of which `condition` says so. It runs on the threads of the server, with a lock
    /// held: it must not call the server.
    #[must_use]
    pub fn when(
        mut self,
        condition: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.condition = Some(Arc::new(condition));
        self
    }

    /// Lets the first `count` requests that match pass, and strikes from then on.
    #[must_use]
    pub fn skip(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    /// Strikes this often; 1 unless said otherwise.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Strikes until [`ApiServer::clear_faults`](crate::testing::ApiServer::clear_faults).
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    pub(crate) fn strike(&self) -> &Strike {
        &self.strike
    }

    pub(crate) fn matches(&self, request: &RequestRecord) -> bool {
        (request.verb() == Verb::Watch || !self.strike.for_watches())
            && self.verb.is_none_or(|verb| verb == request.verb())
            && self
                .resource
                .as_deref()
                .is_none_or(|plural| request.resource() == Some(plural))
            && self
                .condition
                .as_ref()
                .is_none_or(|condition| condition(request))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            strike,
            verb,
            resource,
            condition: _,
            skip,
            times,
        } = self;
        f.debug_struct("Fault")
            .field("strike", strike)
            .field("verb", verb)
            .field("resource", resource)
            .field("skip", skip)
            .field("times", times)
            .finish_non_exhaustive()
    }
}

/// The faults that have not struck out yet, in the order in which they were planted.
#[derive(Default)]
pub(crate) struct Faults {
    /// A leaf: nothing else is locked while it is held, but conditions of the user run under it, so that two
    /// requests at once can't both use up a fault that strikes once.
    planted: Mutex<Vec<Fault>>,
}

impl Faults {
    pub(crate) fn plant(&self, fault: Fault) {
        if fault.times != Some(0) {
            self.planted.lock().push(fault);
        }
    }

    pub(crate) fn clear(&self) {
        self.planted.lock().clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.planted.lock().len()
    }

    /// The fault that strikes this request, if any.
    pub(crate) fn strike(&self, request: &RequestRecord) -> Option<Strike> {
        let mut planted = self.planted.lock();
        let index = planted.iter_mut().position(|fault| {
            let matches = fault.matches(request);
            let skipped = matches && fault.skip > 0;
            fault.skip -= usize::from(skipped);
            matches && !skipped
        })?;
        let fault = planted.get_mut(index)?;
        let strike = fault.strike.clone();
        if let Some(times) = &mut fault.times {
            *times -= 1;
            if *times == 0 {
                planted.remove(index);
            }
        }
        Some(strike)
    }
}
