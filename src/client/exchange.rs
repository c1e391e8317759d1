//! One request and its answer, with what is tried again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ureq::http::{self, HeaderValue, Method, Uri, header};
use ureq::{Agent, AsSendBody};

use super::auth::Identity;
use super::decoded::Decoded;
use super::manners::Account;
use super::material::config_error;
use super::request::Purpose;
use super::response::Incoming;
use super::transport::cancel::Running;
use super::transport::{BUFFER, deadline};
use super::{Inner, Request, Response, answer, failure};
use crate::error::Error;
use crate::stop::Stop;

/// The longest URL: a request line has to fit into the buffer that it is sent from.
const URL_LIMIT: usize = BUFFER - 64;

/// How many times the [`response_timeout`](crate::Config::response_timeout) the body of a list may take that is
/// decoded as it comes: it can be of any size.
const LIST_TIMES: u32 = 10;

enum Failure {
    Ureq(ureq::Error),
    Ours(Error),
}

impl Inner {
    /// See [`Client::request`](super::Client::request). `context` is for what goes wrong in the body.
    pub(super) fn request(
        &self,
        request: &Request,
        stop: &Stop,
        context: &Arc<str>,
    ) -> Result<Response, Error> {
        warn_of_logged_bytes();
        let account = Account::open(&self.manners, request);
        let mut retries = request.retries;
        loop {
            let error = match self.authenticated(request, stop, context, &account) {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let Some(wait) = self.wait_for(request, &error).filter(|_| retries > 0) else {
                return Err(error);
            };
            retries -= 1;
            log::debug!(
                "{} {}: {error}; once more in {wait:?}",
                request.method,
                request.path
            );
            self.manners.wait(wait, stop)?;
        }
    }

    /// How long to wait before a request is sent again that failed like this; `None` for one that is not.
    fn wait_for(&self, request: &Request, error: &Error) -> Option<Duration> {
        let most = self.response_timeout(request);
        let asks_for_it = matches!(error.status()?.code, 429 | 500..);
        error
            .retry_after()
            .filter(|wait| asks_for_it && most.is_none_or(|most| *wait <= most))
    }

    /// With the credentials of now; after a 401 once more, if there are others by then.
    fn authenticated(
        &self,
        request: &Request,
        stop: &Stop,
        context: &Arc<str>,
        account: &Arc<Account>,
    ) -> Result<Response, Error> {
        let identity = self.auth.identity(stop)?;
        let (agent, made) = self.agent(&identity)?;
        match self.send(&agent, &identity, request, stop, context, account) {
            // Whatever reason it gives.
            Err(error) if error.status().is_some_and(|status| status.code == 401) => {
                self.auth.reject(&identity);
                let newer = self.auth.identity(stop)?;
                let (agent, made_now) = self.agent(&newer)?;
                if newer.is_as_good_as(&identity) && made_now == made {
                    return Err(error);
                }
                self.send(&agent, &newer, request, stop, context, account)
            }
            done => done,
        }
    }

    fn agent(&self, identity: &Identity) -> Result<(Agent, u64), Error> {
        let certificate = identity.certificate().transpose();
        let agent =
            certificate.and_then(|certificate| self.connections.agent(certificate.as_ref()));
        // A certificate that can't be used is not used again.
        agent.inspect_err(|_| self.auth.reject(identity))
    }

    fn send(
        &self,
        agent: &Agent,
        identity: &Identity,
        request: &Request,
        stop: &Stop,
        context: &Arc<str>,
        account: &Arc<Account>,
    ) -> Result<Response, Error> {
        let mut fresh = false;
        let (answer, running) = loop {
            if stop.is_stopped() {
                return Err(Error::stopped());
            }
            account.wait_for_turn(context, stop)?;
            let running = Running::begin(stop, fresh);
            let answer = running.enter(|| self.run(agent, identity, request));
            account.sent(
                request,
                answer.as_ref().ok().map(|answer| answer.status().as_u16()),
            );
            match answer {
                Ok(answer) => break (answer, running),
                Err(_) if stop.is_stopped() => return Err(Error::stopped()),
                Err(Failure::Ureq(error)) => {
                    let again = !fresh && request.method == Method::GET && running.reused();
                    if !(again && failure::is_broken_connection(&error)) {
                        return Err(failure::from_ureq(error));
                    }
                    fresh = true;
                }
                Err(Failure::Ours(error)) => return Err(error),
            }
        };
        let (head, body) = answer.into_parts();
        answer::check_framing(&head.headers)?;
        self.manners.warn(&head.headers, context);
        let status = head.status.as_u16();
        let idle = request.idle_timeout.unwrap_or(self.response_timeout);
        let time_limit = self.response_timeout(request);
        let list_limit = time_limit.filter(|_| request.purpose == Purpose::List);
        let list_limit = list_limit.map(|limit| limit.saturating_mul(LIST_TIMES));
        let encoding = answer::encoding(&head.headers, self.asks_for_gzip(request));
        let body_limit = request.body_limit.unwrap_or(self.manners.body_limit);
        let incoming = |encoding| {
            let body = Decoded::new(body, encoding, body_limit);
            Incoming::new(
                body,
                running,
                stop.clone(),
                context.clone(),
                account.clone(),
                idle,
                list_limit,
            )
        };
        if head.status.is_success() {
            let body = incoming(encoding?);
            return Ok(Response {
                status,
                headers: head.headers,
                body,
                body_limit,
                time_limit,
            });
        }
        // All of it together: what comes of it is an answer to the request.
        let error = deadline::within(time_limit, || match encoding {
            Ok(encoding) => failure::from_answer(status, &head.headers, incoming(encoding)),
            // A failure all the same.
            Err(_) => failure::from_answer(status, &head.headers, io::empty()),
        });
        Err(if stop.is_stopped() {
            Error::stopped()
        } else {
            error
        })
    }

    fn run(
        &self,
        agent: &Agent,
        identity: &Identity,
        request: &Request,
    ) -> Result<http::Response<ureq::Body>, Failure> {
        let value = |text: &str, name: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                config_error(format!("{name} holds characters that a header can't have"))
            })
        };
        let separator = if request.query.is_empty() { "" } else { "?" };
        let url = format!(
            "{}{}{separator}{}",
            self.server, request.path, request.query
        );
        if url.len() > URL_LIMIT {
            let length = url.len();
            return Err(
                config_error(format!("its URL has {length} bytes, more than {URL_LIMIT}")).into(),
            );
        }
        let uri: Uri = url
            .parse()
            .map_err(|_| config_error("the path does not make a URL"))?;

        let head = http::Request::builder()
            .method(&request.method)
            .uri(uri)
            .header(header::ACCEPT, value(&request.accept, "accept")?)
            .header(header::USER_AGENT, &self.user_agent);
        let head = match self.asks_for_gzip(request) {
            true => head.header(header::ACCEPT_ENCODING, "gzip"),
            false => head,
        };
        let head = self.auth.sign(identity, head);
        let needs_body = [Method::POST, Method::PUT, Method::PATCH].contains(&request.method);
        let body = match &request.body {
            None if needs_body => Some(&[][..]),
            body => body.as_deref(),
        };
        match body {
            None => {
                let head = head.body(()).map_err(ureq::Error::from)?;
                Ok(agent.run(self.limited(agent, head, request))?)
            }
            Some(body) => {
                let head = head.header(
                    header::CONTENT_TYPE,
                    value(&request.content_type, "content type")?,
                );
                let head = head.body(body).map_err(ureq::Error::from)?;
                Ok(agent.run(self.limited(agent, head, request))?)
            }
        }
    }

    fn asks_for_gzip(&self, request: &Request) -> bool {
        self.gzip && request.purpose == Purpose::List
    }

    pub(super) fn response_timeout(&self, request: &Request) -> Option<Duration> {
        request.response_timeout.unwrap_or(self.response_timeout)
    }

    /// With the time limits up to the head of the answer. Those of the body are [`Incoming`]'s and
    /// [`Response`]'s.
    fn limited<B: AsSendBody>(
        &self,
        agent: &Agent,
        http: http::Request<B>,
        request: &Request,
    ) -> http::Request<B> {
        /// A limit beyond this is none; much more would overflow a point in time.
        const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        let below = |limit: Option<Duration>| limit.filter(|limit| *limit < LONG);
        let response = below(self.response_timeout(request));
        agent
            .configure_request(http)
            .timeout_connect(below(self.connect_timeout))
            .timeout_send_request(response)
            .timeout_send_body(response)
            .timeout_recv_response(response)
            .build()
    }
}

/// Warns once, before anything is sent, if ureq-proto would log every byte of it.
fn warn_of_logged_bytes() {
    const TARGET: &str = "ureq_proto::util";
    static WARNED: AtomicBool = AtomicBool::new(false);
    if log::log_enabled!(target: TARGET, log::Level::Trace) && !WARNED.swap(true, Ordering::Relaxed)
    {
        log::warn!(
            "the log target \"ureq_proto\" is at level trace, where it writes down requests and answers, with \
             tokens and the content of Secrets: set it to debug"
        );
    }
}

impl From<ureq::Error> for Failure {
    fn from(error: ureq::Error) -> Self {
        Self::Ureq(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}
