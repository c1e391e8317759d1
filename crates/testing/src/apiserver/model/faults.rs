//! Faults that a test injects into requests and watches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::http::Response;
use super::log::{RequestRecord, Verb};
use super::status::StatusError;

/// A failure to inject into future requests with
/// [`ApiServer::fail_next`](crate::ApiServer::fail_next), or into open watches with
/// [`ApiServer::fail_watches`](crate::ApiServer::fail_watches).
///
/// A fault consists of a kind, a position and a condition.
///
/// # Kind
///
/// The constructor selects the kind of failure. [`status`](Self::status),
/// [`status_with_message`](Self::status_with_message) and [`response`](Self::response) replace the
/// server's response. All other kinds modify it:
///
/// - [`close`](Self::close), [`reset`](Self::reset) and [`stall`](Self::stall) interrupt the
///   response.
/// - [`delay`](Self::delay), [`drip`](Self::drip) and [`garbage`](Self::garbage) do not interrupt
///   it.
/// - [`end_watch`](Self::end_watch) and [`no_bookmarks`](Self::no_bookmarks) apply to watches only.
///
/// # Position
///
/// A fault strikes before the response by default. [`after_events`](Self::after_events) and
/// [`after_bytes`](Self::after_bytes) move it into the response; events are counted first, then
/// bytes. [`after`](Self::after) adds a delay at this position.
///
/// A fault that interrupts before the response also prevents the server from processing the
/// request. A fault within the response does not. A POST that is reset has created nothing. A POST
/// that is reset `.after_bytes(0)` has created the object, although its client does not learn this.
///
/// # Condition
///
/// A fault strikes any request, unless [`on`](Self::on), [`resource`](Self::resource) and
/// [`when`](Self::when) restrict it. It strikes once, unless [`times`](Self::times) or
/// [`always`](Self::always) change that. At most one fault strikes a request: the oldest one that
/// matches. Several faults in a row form a script, one for each request. [`skip`](Self::skip) lets
/// some requests pass.
///
/// ```
/// use k8s_informer_testing::{ApiServer, Fault, Verb};
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
/// // Every watch stalls in the middle of its second event.
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
    effect: FaultEffect,
    verb: Option<Verb>,
    resource: Option<String>,
    condition: Option<Arc<Condition>>,
    skip: usize,
    /// `None` means forever.
    times: Option<usize>,
}

type Condition = dyn Fn(&RequestRecord) -> bool + Send + Sync;

/// The kind and the position of a fault.
#[derive(Clone, Debug)]
pub(crate) struct FaultEffect {
    pub(crate) action: Action,
    pub(crate) events: Option<usize>,
    pub(crate) bytes: Option<usize>,
    pub(crate) delay: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// No action besides the delay.
    Pass,
    /// A status with headers, as a response or as an event of a watch.
    Status(StatusError, Vec<(String, String)>),
    Respond(Response),
    Close,
    Reset,
    Stall,
    Garbage(Arc<[u8]>),
    /// The number of bytes to write at a time, and the pause after each write.
    Drip(usize, Duration),
    EndWatch,
    NoBookmarks,
}

impl Action {
    /// Whether nothing more is sent on the connection after the action.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Close | Self::Reset | Self::Stall)
    }
}

impl FaultEffect {
    /// Whether the fault strikes within the server's own response, not before or instead of it.
    pub(crate) fn within_response(&self) -> bool {
        match self.action {
            Action::Respond(_) | Action::NoBookmarks => false,
            Action::Status(..) => self.events.is_some(),
            _ => self.events.is_some() || self.bytes.is_some(),
        }
    }

    /// Whether the fault applies to watches only.
    pub(crate) fn for_watches(&self) -> bool {
        self.events.is_some() || matches!(self.action, Action::EndWatch | Action::NoBookmarks)
    }
}

impl Fault {
    /// Responds with a `Status` object that has the reason of kube-apiserver for this HTTP status.
    ///
    /// With [`after_events`](Self::after_events), the server sends the `Status` as an `ERROR` event
    /// that ends the watch. kube-apiserver does the same if a watch fails after its response head
    /// was sent.
    pub fn status(code: u16) -> Self {
        Self::new(Action::Status(StatusError::plain(code, None), Vec::new()))
    }

    /// Like [`Fault::status`], with a custom message.
    pub fn status_with_message(code: u16, message: impl Into<String>) -> Self {
        Self::new(Action::Status(
            StatusError::plain(code, Some(message.into())),
            Vec::new(),
        ))
    }

    /// Responds with this body, such as plain text, half a list, or nothing. The body replaces the
    /// server's response, so [`after`](Self::after) is the only option that changes its position.
    pub fn response(code: u16, content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let content_type = content_type.into();
        Self::new(Action::Respond(Response {
            content_type,
            ..Response::json(code, body.into())
        }))
    }

    /// Closes the connection cleanly (FIN). Before the response, the client gets no response to its
    /// request. Within the response, the body is truncated: it ends before its Content-Length or
    /// its last chunk.
    pub fn close() -> Self {
        Self::new(Action::Close)
    }

    /// Resets the connection (RST), which the client's system reports as an error. The client may
    /// or may not receive data that was written before; on Linux it does.
    pub fn reset() -> Self {
        Self::new(Action::Reset)
    }

    /// Sends nothing more and keeps the connection open until the client closes it or the server
    /// stops. For the client, the server hangs or the network drops its packets.
    pub fn stall() -> Self {
        Self::new(Action::Stall)
    }

    /// Waits for `delay`, then processes the request normally, on the state at that time. With
    /// [`after_bytes(0)`](Self::after_bytes), the server processes the request first and delays
    /// only the body.
    pub fn delay(delay: Duration) -> Self {
        Self::new(Action::Pass).after(delay)
    }

    /// Writes these bytes. Before the response, they replace the whole response including its head,
    /// and the connection is closed. Within the response, they become part of the body, and the
    /// response continues after them.
    pub fn garbage(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Action::Garbage(bytes.into().into()))
    }

    /// Responds slowly: `count` bytes at a time, head and framing included, with a pause of `every`
    /// after each write. A `count` of 0 is treated as 1.
    pub fn drip(count: usize, every: Duration) -> Self {
        Self::new(Action::Drip(count, every))
    }

    /// Ends a watch cleanly, as at its timeout but without a bookmark. It ends immediately, or
    /// after a number of events.
    pub fn end_watch() -> Self {
        Self::new(Action::EndWatch).after_events(0)
    }

    /// Suppresses all bookmarks of a watch, so that a streaming list never completes. The position
    /// has no effect.
    pub fn no_bookmarks() -> Self {
        Self::new(Action::NoBookmarks)
    }

    fn new(action: Action) -> Self {
        let effect = FaultEffect {
            action,
            events: None,
            bytes: None,
            delay: None,
        };
        Self {
            effect,
            verb: None,
            resource: None,
            condition: None,
            skip: 0,
            times: Some(1),
        }
    }

    /// Adds a header to the fault's own response. The header is sent unchanged. Faults without
    /// their own response ignore it.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        match &mut self.effect.action {
            Action::Status(_, headers) | Action::Respond(Response { headers, .. }) => {
                headers.push((name.into(), value.into()));
            }
            _ => {}
        }
        self
    }

    /// Requests a retry after this number of seconds, with the header `Retry-After`. A `Status`
    /// also gets `details.retryAfterSeconds`, as in kube-apiserver.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let Action::Status(status, _) = &mut self.effect.action {
            status.set_retry_after(seconds);
            return self;
        }
        self.header("Retry-After", seconds.to_string())
    }

    /// Strikes only in watches, after `count` events. Initial events and bookmarks count. 0 is
    /// after the head of the response.
    #[must_use]
    pub fn after_events(mut self, count: usize) -> Self {
        self.effect.events = Some(count);
        self
    }

    /// Strikes within the response, after `count` bytes of its body. In a watch, bytes count from
    /// the position of [`after_events`](Self::after_events). Head and framing do not count: 0 is
    /// after the head. A shorter response is not changed, and neither is a fault's own response.
    #[must_use]
    pub fn after_bytes(mut self, count: usize) -> Self {
        self.effect.bytes = Some(count);
        self
    }

    /// Waits for `delay` at the position of the fault before it strikes. The wait ends early if the
    /// client disconnects or the server stops.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.effect.delay = Some(delay);
        self
    }

    /// Strikes only requests of this kind.
    #[must_use]
    pub fn on(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Strikes only requests for this resource, given by its plural name.
    #[must_use]
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Strikes only requests for which `condition` returns `true`. The condition runs on the
    /// threads of the server, under a lock, so it must not call the server.
    #[must_use]
    pub fn when(
        mut self,
        condition: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.condition = Some(Arc::new(condition));
        self
    }

    /// Lets the first `count` matching requests pass.
    #[must_use]
    pub fn skip(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    /// Sets the number of requests that the fault strikes. The default is 1.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Strikes until [`ApiServer::clear_faults`](crate::ApiServer::clear_faults).
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    pub(crate) fn effect(&self) -> &FaultEffect {
        &self.effect
    }

    pub(crate) fn matches(&self, request: &RequestRecord) -> bool {
        (request.verb() == Verb::Watch || !self.effect.for_watches())
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
            effect,
            verb,
            resource,
            condition: _,
            skip,
            times,
        } = self;
        f.debug_struct("Fault")
            .field("effect", effect)
            .field("verb", verb)
            .field("resource", resource)
            .field("skip", skip)
            .field("times", times)
            .finish_non_exhaustive()
    }
}

/// The pending faults, oldest first.
#[derive(Default)]
pub(crate) struct Faults {
    /// A leaf lock: no other lock is taken while it is held. Conditions of the user run under it,
    /// so that two concurrent requests cannot both use a fault that strikes once.
    pending: Mutex<Vec<Fault>>,
}

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        if fault.times != Some(0) {
            self.pending.lock().push(fault);
        }
    }

    pub(crate) fn clear(&self) {
        self.pending.lock().clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.lock().len()
    }

    /// Returns the fault that strikes this request, if any.
    pub(crate) fn take_matching(&self, request: &RequestRecord) -> Option<FaultEffect> {
        let mut pending = self.pending.lock();
        let index = pending.iter_mut().position(|fault| {
            let matches = fault.matches(request);
            let skipped = matches && fault.skip > 0;
            fault.skip -= usize::from(skipped);
            matches && !skipped
        })?;
        let fault = pending.get_mut(index)?;
        let effect = fault.effect.clone();
        if let Some(times) = &mut fault.times {
            *times -= 1;
            if *times == 0 {
                pending.remove(index);
            }
        }
        Some(effect)
    }
}
