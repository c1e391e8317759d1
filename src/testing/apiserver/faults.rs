//! Faults that a test plants: what the server answers instead of doing as asked.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::http::Response;
use super::log::{RequestRecord, Verb};
use super::status::StatusError;

/// An answer that the server gives instead of its own to the next requests that match.
///
/// Made by [`Fault::status`], [`Fault::response`] or [`Fault::close`], narrowed down by the other methods,
/// planted by [`ApiServer::fail_next`](super::ApiServer::fail_next). Without further words it strikes the
/// very next request, once.
///
/// ```
/// use k8s_informer::testing::{ApiServer, Fault, Verb};
///
/// let server = ApiServer::start()?;
/// server.fail_next(Fault::status(429).header("Retry-After", "1").on(Verb::List).resource("pods").times(3));
/// server.fail_next(Fault::close().on(Verb::Watch).always());
/// assert_eq!(server.pending_faults(), 2);
/// server.clear_faults();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Fault {
    action: Action,
    verb: Option<Verb>,
    resource: Option<String>,
    condition: Option<Arc<Condition>>,
    /// `None` for ever.
    times: Option<usize>,
}

type Condition = dyn Fn(&RequestRecord) -> bool + Send + Sync;

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Respond(Response),
    /// Close the connection without a word.
    Close,
}

impl Fault {
    /// Answers with a `Status` object as kube-apiserver would with this HTTP status.
    pub fn status(code: u16) -> Self {
        Self::new(Action::Respond(Response::json(code, StatusError::plain(code, None).body())))
    }

    /// Like [`Fault::status`] with a message of its own.
    pub fn status_with_message(code: u16, message: impl Into<String>) -> Self {
        let status = StatusError::plain(code, Some(message.into()));
        Self::new(Action::Respond(Response::json(code, status.body())))
    }

    /// Answers with this body, whatever it is: plain text, half a list, nothing.
    pub fn response(code: u16, content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let content_type = content_type.into();
        Self::new(Action::Respond(Response { content_type, ..Response::json(code, body.into()) }))
    }

    /// Closes the connection without an answer, once the request has been read.
    pub fn close() -> Self {
        Self::new(Action::Close)
    }

    fn new(action: Action) -> Self {
        Self { action, verb: None, resource: None, condition: None, times: Some(1) }
    }

    /// Adds a header to the answer. It is sent as given; a fault that closes the connection sends none.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Action::Respond(response) = &mut self.action {
            response.headers.push((name.into(), value.into()));
        }
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
    pub fn when(mut self, condition: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(Arc::new(condition));
        self
    }

    /// Strikes this often; 1 unless said otherwise.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Strikes until [`ApiServer::clear_faults`](super::ApiServer::clear_faults).
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    fn matches(&self, request: &RequestRecord) -> bool {
        self.verb.is_none_or(|verb| verb == request.verb())
            && self.resource.as_deref().is_none_or(|plural| request.resource() == Some(plural))
            && self.condition.as_ref().is_none_or(|condition| condition(request))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, verb, resource, condition: _, times } = self;
        f.debug_struct("Fault")
            .field("action", action)
            .field("verb", verb)
            .field("resource", resource)
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
    pub(crate) fn strike(&self, request: &RequestRecord) -> Option<Action> {
        let mut planted = self.planted.lock();
        let index = planted.iter().position(|fault| fault.matches(request))?;
        let fault = planted.get_mut(index)?;
        let action = fault.action.clone();
        if let Some(times) = &mut fault.times {
            *times -= 1;
            if *times == 0 {
                planted.remove(index);
            }
        }
        Some(action)
    }
}
