//! Sends one request, retries it, and receives its response.

mod content_encoding;
mod error_response;
mod response;
mod response_checks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ureq::http::request::Builder;
use ureq::http::{self, HeaderValue, Method, Uri, header};
use ureq::{Agent, AsSendBody};

pub(super) use self::response::READ_BUFFER;
pub use self::response::Response;

use self::content_encoding::DecodedBody;
use self::error_response::{BodyRead, from_response};
use self::response::Incoming;
use self::response_checks::{check_framing, check_purpose, is_framed, is_gzip};
use super::auth::Identity;
use super::client::{Client, Inner};
use super::credential_data::config_error;
use super::gate::Admission;
use super::policy::RequestMetrics;
use super::request::{Purpose, Request};
use super::transport::cancel::{BeforeOutput, Running};
use super::transport::error::{from_ureq, is_broken_connection};
use super::transport::{BUFFER, SMALL_OUTPUT};
use crate::error::{Error, MAX_RETRY_AFTER, Sent};
use crate::log;
use crate::reflector::Body;
use crate::stop::Stop;

/// The maximum length of a URL: a request line must fit into the output buffer.
const URL_LIMIT: usize = BUFFER - 64;

/// The time limit for the body of a list that is decoded as it arrives, as a multiple of the
/// [`response_timeout`](crate::Config::response_timeout). Such a list can have any size, and a long
/// one takes longer.
const LIST_TIMES: u32 = 10;

impl Client {
    /// Sends a request. Blocks until the head of the response has arrived.
    ///
    /// The client resends a request only if this is safe or if the server requests it:
    ///
    /// - A GET is resent on a new connection if the server has just closed the pooled one.
    /// - After a 401, the request is resent once, if different credentials are available: because a
    ///   file has changed, or because a plugin returned other credentials.
    /// - After a 429 or 5xx with a retry delay, the request is resent after that delay, up to the
    ///   number of times set by [`Request::retries`]. The delay is the `Retry-After` header or part
    ///   of the `Status`. If it is longer than the [`response_timeout`](Request::response_timeout)
    ///   of the request, or than ten minutes, the error is returned immediately.
    ///
    /// Each attempt waits for the [rate limit](crate::Config::rate_limit) first, if there is one. Warnings
    /// of the server are passed to the handler set by [`Config::on_warning`](crate::Config::on_warning), or logged.
    ///
    /// # Errors
    ///
    /// Returns the error of the server if the status is not 2xx, or the reason why there is no
    /// response. See [`Error`]. A request whose path has a segment `.` or `..`, also if
    /// percent-encoded, is not sent and returns an error, because proxies would change the path.
    pub fn request(&self, request: &Request, stop: &Stop) -> Result<Response, Error> {
        let context: Arc<str> =
            format!("{} {}{}", request.method, self.inner.server, request.path).into();
        let response = request
            .check_path()
            .and_then(|()| self.admitted(request, stop, &context));
        response.map_err(|error| error.context(context.to_string()))
    }
}

impl Client {
    /// Sends a request if the gate of the client lets it out.
    fn admitted(
        &self,
        request: &Request,
        stop: &Stop,
        context: &Arc<str>,
    ) -> Result<Response, Error> {
        let admission = Admission::of(self.gate.as_ref(), &request.method)?;
        let Some(admission) = &admission else {
            let mut sent = Sent::No;
            return self.inner.request(request, stop, context, None, &mut sent);
        };
        // The end of the term ends the request, too.
        let limited = admission.limited(stop);
        let mut sent = Sent::No;
        let response = self
            .inner
            .request(request, &limited, context, Some(admission), &mut sent);
        response.map_err(|error| admission.explain(error, sent))
    }
}

impl Inner {
    /// Implements [`Client::request`]. `context` is added to errors that
    /// occur while the body is read. Sets `sent` once the server may have executed the request.
    fn request(
        &self,
        request: &Request,
        stop: &Stop,
        context: &Arc<str>,
        admission: Option<&Arc<Admission>>,
        sent: &mut Sent,
    ) -> Result<Response, Error> {
        warn_of_logged_bytes();
        let metrics = RequestMetrics::open(&self.policy, request);
        let mut retries = request.retries;
        let goal = Goal {
            client: self,
            request,
            stop,
            context,
            metrics: &metrics,
            admission,
        };
        let mut attempt = Attempt::new(goal)?;
        loop {
            let error = match attempt.send() {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            // The response to an earlier attempt can leave the outcome open as well.
            if attempt.sent == Sent::Maybe && error.is_outcome_unknown() {
                *sent = Sent::Maybe;
            }
            // The server has just closed the pooled connection: retry on a new one.
            if attempt.found_closed_connection {
                attempt.new_connection = true;
                continue;
            }
            let code = error.status().map(|status| status.code);
            let error = match code {
                Some(401) => error.hint(format!("sent {}", self.auth.sent())),
                _ => error,
            };
            // After any 401, retry once if there are other credentials now.
            if code == Some(401) && !attempt.renewed {
                match attempt.renewed()? {
                    Some(renewed) => attempt = renewed,
                    None => return Err(error),
                }
                continue;
            }
            // Retry a 429 or 5xx only if the server sent a retry delay, and only if that delay does
            // not exceed the time limit of the request.
            let limit = attempt
                .response_timeout
                .unwrap_or(MAX_RETRY_AFTER)
                .min(MAX_RETRY_AFTER);
            let wait = error.retry_after().filter(|wait| *wait <= limit);
            let (Some(429 | 500..), Some(wait), 1..) = (code, wait, retries) else {
                return Err(error);
            };
            retries -= 1;
            let (method, path) = (&request.method, &request.path);
            log::debug!("{method} {path}: {error}; retrying in {wait:?}");
            self.policy.wait(wait, stop)?;
            attempt = Attempt::new(goal)?;
        }
    }
}

/// What all attempts of a request have in common.
#[derive(Clone, Copy)]
struct Goal<'a> {
    client: &'a Inner,
    request: &'a Request,
    /// Ends the request. It includes the end of the term of a gated request.
    stop: &'a Stop,
    context: &'a Arc<str>,
    metrics: &'a Arc<RequestMetrics>,
    /// `None` if no gate applies.
    admission: Option<&'a Arc<Admission>>,
}

/// One attempt to send a request, with the credentials and certificates that were current when it
/// was created.
struct Attempt<'a> {
    goal: Goal<'a>,
    response_timeout: Option<Duration>,
    identity: Identity,
    agent: Agent,
    /// The generation of the agent, which identifies its certificates.
    generation: u64,
    /// Whether this attempt follows a 401.
    renewed: bool,
    /// Whether this attempt must not use a pooled connection.
    new_connection: bool,
    /// Whether this attempt failed because the server had just closed the pooled connection.
    found_closed_connection: bool,
    /// Whether bytes of this attempt have left.
    sent: Sent,
}

impl<'a> Attempt<'a> {
    /// Creates an attempt with the current credentials. Blocks while a credential plugin runs.
    fn new(goal: Goal<'a>) -> Result<Self, Error> {
        let Goal {
            client, request, ..
        } = goal;
        let identity = client.auth.identity(goal.stop)?;
        let certificate = client.auth.certificate(&identity).transpose();
        let agent =
            certificate.and_then(|certificate| client.connections.agent(certificate.as_ref()));
        // Reject the credentials, so that an unusable certificate is not tried again.
        let (agent, generation) = agent.inspect_err(|_| client.auth.reject(&identity))?;
        Ok(Self {
            goal,
            response_timeout: request.response_timeout.unwrap_or(client.response_timeout),
            identity,
            agent,
            generation,
            renewed: false,
            new_connection: false,
            found_closed_connection: false,
            sent: Sent::No,
        })
    }

    /// Creates the attempt after a 401. Returns `None` if neither the credentials nor the
    /// certificates have changed.
    fn renewed(&self) -> Result<Option<Self>, Error> {
        self.goal.client.auth.reject(&self.identity);
        let next = Self::new(self.goal)?;
        let is_same = next.identity.is_equivalent_to(&self.identity);
        Ok(
            (!is_same || next.generation != self.generation).then_some(Self {
                renewed: true,
                ..next
            }),
        )
    }

    /// Sends the request and blocks until the head of the response arrives. Reads the body of an
    /// error response as well.
    fn send(&mut self) -> Result<Response, Error> {
        let Goal {
            request,
            stop,
            context,
            metrics,
            ..
        } = self.goal;
        self.found_closed_connection = false;
        self.sent = Sent::No;
        if stop.is_stopped() {
            return Err(Error::stopped());
        }
        metrics.wait_for_rate_limit(context, stop)?;
        let head = self.head();
        let short = head.as_ref().is_ok_and(|head| self.is_short(head));
        // The connection may have to be opened first, so the gate is asked after that.
        let admission = self.goal.admission.map(Arc::clone);
        let before_output = admission.map(|of| Box::new(move || of.check()) as BeforeOutput);
        let running = Running::begin(stop, self.new_connection, short, before_output);
        let exchanged = head.map(|head| running.enter(|| self.run(head)));
        self.sent = running.sent();
        let code = |response: &http::Response<_>| response.status().as_u16();
        let response = exchanged.as_ref().ok().and_then(|sent| sent.as_ref().ok());
        metrics.sent(request, response.map(code));
        match exchanged {
            Ok(Ok(response)) => self.receive(response, running),
            _ if stop.is_stopped() => Err(Error::stopped()),
            Ok(Err(error)) => {
                self.found_closed_connection = !self.new_connection
                    && request.method == Method::GET
                    && running.reused()
                    && is_broken_connection(&error);
                Err(from_ureq(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Builds the request without its body.
    fn head(&self) -> Result<Builder, Error> {
        let Goal {
            client, request, ..
        } = self.goal;
        let value = |text: &str, name: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                config_error(format!(
                    "{name} contains characters that are not allowed in a header"
                ))
            })
        };
        let separator = if request.query.is_empty() { "" } else { "?" };
        let url = format!(
            "{}{}{separator}{}",
            client.server, request.path, request.query
        );
        if url.len() > URL_LIMIT {
            let length = url.len();
            return Err(config_error(format!(
                "the URL has {length} bytes; the limit is {URL_LIMIT}"
            )));
        }
        let uri: Uri = url
            .parse()
            .map_err(|_| config_error("the path does not form a valid URL"))?;
        let mut head = http::Request::builder()
            .method(&request.method)
            .uri(uri)
            .header(header::ACCEPT, value(&request.accept, "accept")?)
            .header(header::USER_AGENT, &client.user_agent);
        if self.requests_gzip() {
            head = head.header(header::ACCEPT_ENCODING, "gzip");
        }
        head = client.auth.sign(&self.identity, head);
        if self.body().is_some() {
            let content_type = value(&request.content_type, "content type")?;
            head = head.header(header::CONTENT_TYPE, content_type);
        }
        Ok(head)
    }

    /// Whether the request has no body, and each line of its head is short.
    fn is_short(&self, head: &Builder) -> bool {
        let url = self.goal.request.path.len() + self.goal.request.query.len();
        let headers = head.headers_ref().into_iter().flatten();
        let mut lines = headers.map(|(_, value)| value.len()).chain([url]);
        self.body().is_none() && lines.all(|length| length < SMALL_OUTPUT / 2)
    }

    fn requests_gzip(&self) -> bool {
        self.goal.client.gzip && self.goal.request.purpose == Purpose::List
    }

    fn body(&self) -> Option<&[u8]> {
        let request = self.goal.request;
        let needs_body = [Method::POST, Method::PUT, Method::PATCH].contains(&request.method);
        match &request.body {
            None if needs_body => Some(&[]),
            body => body.as_deref(),
        }
    }

    fn run(&self, head: Builder) -> Result<http::Response<ureq::Body>, ureq::Error> {
        match self.body() {
            None => self.agent.run(self.limited(head.body(())?)),
            Some(body) => self.agent.run(self.limited(head.body(body)?)),
        }
    }

    /// Sets the time limits for connecting, for sending the request, and for receiving the head of
    /// the response. [`Incoming`] and [`Response`] enforce those for the body of the response.
    fn limited<B: AsSendBody>(&self, request: http::Request<B>) -> http::Request<B> {
        /// Limits of 10 years or more are ignored, because a very long limit would overflow an
        /// `Instant`.
        const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        let finite = |limit: Option<Duration>| limit.filter(|limit| *limit < LONG);
        let response = finite(self.response_timeout);
        self.agent
            .configure_request(request)
            .timeout_connect(finite(self.goal.client.connect_timeout))
            .timeout_send_request(response)
            .timeout_send_body(response)
            .timeout_recv_response(response)
            .build()
    }

    fn receive(
        &self,
        response: http::Response<ureq::Body>,
        running: Running,
    ) -> Result<Response, Error> {
        let Goal {
            client,
            request,
            stop,
            context,
            metrics,
            admission,
        } = self.goal;
        let (head, body) = response.into_parts();
        check_framing(&head.headers)?;
        client.policy.warn(&head.headers, context);
        let status = head.status.as_u16();
        let is_success = head.status.is_success();
        let gzip = match is_gzip(&head.headers, self.requests_gzip()) {
            Err(error) if is_success => return Err(error),
            gzip => gzip,
        };
        if is_success {
            check_purpose(request.purpose, status, &head.headers)?;
        }
        let body_limit = request.body_limit.unwrap_or(client.policy.body_limit);
        let time_limit = self.response_timeout;
        let body_time = match (is_success, request.purpose) {
            (true, Purpose::List) => time_limit.map(|limit| limit.saturating_mul(LIST_TIMES)),
            (true, _) => None,
            (false, _) => time_limit,
        };
        let body = gzip.map(|gzip| DecodedBody::new(body, gzip, body_limit));
        let body = Incoming {
            // If the body of an error response can't be decoded, it is ignored: the status is still
            // reported.
            open: body.ok().map(|body| (body, running)),
            stop: stop.clone(),
            admission: admission.map(Arc::clone),
            is_framed: is_framed(status, &head.headers),
            context: Arc::clone(context),
            idle_timeout: request.idle_timeout.unwrap_or(client.response_timeout),
            deadline: body_time.and_then(|limit| Instant::now().checked_add(limit)),
            metrics: Arc::clone(metrics),
            failed: None,
        };
        if is_success {
            return Ok(Response {
                status,
                headers: head.headers,
                body,
                body_limit,
                time_limit,
            });
        }
        let (error, read) = from_response(status, &head.headers, Body::timed(body));
        Err(match (stop.is_stopped(), admission) {
            (false, _) => error,
            (true, None) => Error::stopped(),
            // What the server says about a gated request counts, although the term has ended since.
            (true, Some(_)) if read == BodyRead::Whole => error,
            (true, Some(admission)) if error.is_outcome_unknown() => admission.ended(Sent::Maybe),
            // The server has refused it.
            (true, Some(admission)) => admission.ended(Sent::No),
        })
    }
}

/// Logs a warning once, before the first request, if ureq-proto would log all bytes.
fn warn_of_logged_bytes() {
    const TARGET: &str = "ureq_proto::util";
    static WARNED: AtomicBool = AtomicBool::new(false);
    if ::log::log_enabled!(target: TARGET, ::log::Level::Trace)
        && !WARNED.swap(true, Ordering::Relaxed)
    {
        log::warn!(
            "the log target \"ureq_proto\" is at level trace, where it logs requests and responses, including \
             tokens and the contents of Secrets: set it to debug"
        );
    }
}
