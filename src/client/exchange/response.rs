use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use ureq::http::HeaderMap;

use super::content_encoding::DecodedBody;
use crate::base::derive::debug_fields;
use crate::client::gate::Admission;
use crate::client::policy::RequestMetrics;
use crate::client::transport::cancel::Running;
use crate::client::transport::error::from_io;
use crate::decode_error::explain;
use crate::error::{Error, ErrorKind, Sent};
use crate::json::stack;
use crate::reflector::{Body, TimedRead};
use crate::stop::Stop;

/// The number of bytes to read from a body at once.
pub(in crate::client) const READ_BUFFER: usize = 32 << 10;

/// A response with status 2xx. Its head has arrived, its body has not been read yet.
///
/// If you read the body to its end, the connection is reused. If you drop the response earlier, the
/// connection is closed.
///
/// ```
/// use k8s_informer::client::Request;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_testing::ApiServer;
/// use std::io::Read;
///
/// let server = ApiServer::start()?;
/// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::never());
/// let response = client.request(&Request::get("/version"), &stop)?;
/// assert_eq!((response.status(), response.header("Content-Type")), (200, Some("application/json")));
/// let version: serde_json::Value = response.json()?;
/// assert!(version["gitVersion"].is_string());
///
/// // Stream a body that may be large.
/// let mut body = client.request(&Request::get("/api/v1/pods"), &stop)?.into_body();
/// let mut text = String::new();
/// body.read_to_string(&mut text)?;
/// assert!(text.contains("PodList"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Response {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(in crate::client) body: Incoming,
    /// The maximum size when the body is read as a whole.
    pub(super) body_limit: u64,
    /// The time limit when the body is read as a whole.
    pub(super) time_limit: Option<Duration>,
}

impl Response {
    /// The status code, such as 200 or 201.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the first header with this name, if its value is text. The name is not
    /// case-sensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the body as a stream.
    ///
    /// Reads block, and fail when the request is stopped. Neither the total time nor the total size
    /// is limited, only the time without new data.
    ///
    /// A read that waits longer than the [`idle_timeout`](crate::client::Request::idle_timeout), or
    /// than the timeout of [`Body::read_within`], fails with [`io::ErrorKind::TimedOut`]. No data
    /// is lost: you can retry the read.
    pub fn into_body(self) -> Body {
        Body::timed(self.body)
    }

    /// Reads the whole body. Blocks for at most the
    /// [`response_timeout`](crate::client::Request::response_timeout).
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks, if the time limit is reached, if the request is
    /// stopped, or if the body is larger than the
    /// [`body_limit`](crate::client::Request::body_limit).
    pub fn bytes(self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_whole(|read| {
            bytes.extend_from_slice(read);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Reads the body to its end without a size limit, and discards the data.
    pub(in crate::client) fn discard(self) -> Result<(), Error> {
        Self {
            body_limit: u64::MAX,
            ..self
        }
        .read_whole(|_| Ok(()))
    }

    /// Passes the body to `each` in pieces. Returns an error as soon as the body is too large or
    /// takes too long as a whole. A limit for the time without new data is not enough, because a
    /// body that arrives byte by byte never exceeds it.
    pub(in crate::client) fn read_whole(
        mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // A body with a `Content-Length` above the limit is not read at all.
        let known = self
            .header("content-length")
            .and_then(|length| length.parse::<u64>().ok());
        if known.is_some_and(|length| length > self.body_limit) {
            return Err(self.too_large());
        }
        let deadline = self
            .time_limit
            .and_then(|limit| Instant::now().checked_add(limit));
        let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut buffer = vec![0; READ_BUFFER];
        let mut total = 0_u64;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let length = match self
                .body
                .read_within(&mut buffer, shorter(left, self.body.idle_timeout))
            {
                Ok(0) => return Ok(()),
                Ok(_) if is_late() => return Err(self.too_late()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::TimedOut && is_late() => {
                    return Err(self.too_late());
                }
                Err(error) => return Err(error.into()),
            };
            total += length as u64;
            if total > self.body_limit {
                return Err(self.too_large());
            }
            each(&buffer[..length])?;
        }
    }

    fn too_late(&self) -> Error {
        let limit = self.time_limit.unwrap_or_default();
        Error::timeout(format!("the body was not complete after {limit:?}"))
            .context(self.body.context.to_string())
    }

    fn too_large(&self) -> Error {
        let (amount, unit) = match self.body_limit {
            limit if limit > 0 && limit.is_multiple_of(1 << 20) => (limit >> 20, "MiB"),
            limit => (limit, "bytes"),
        };
        let message = format!("the body is larger than {amount} {unit}");
        Error::new(ErrorKind::TooLarge(message)).context(self.body.context.to_string())
    }

    /// Reads the whole body, as [`bytes`](Self::bytes) does, and deserializes it. JSON with more
    /// than 32 levels of nesting is deserialized on a thread with a larger stack.
    ///
    /// # Errors
    ///
    /// The same as for [`bytes`](Self::bytes). Also returns an error if the JSON does not match
    /// `T`. The message contains the path of the field but no values. The keys of maps are shown as
    /// `[…]`.
    pub fn json<T: DeserializeOwned + Send>(self) -> Result<T, Error> {
        let context = self.body.context.clone();
        let bytes = self.bytes()?;
        stack::decoded(&bytes, || serde_json::from_slice(&bytes)).map_err(|error| {
            let error = explain::<T>(&bytes, &error);
            Error::invalid(error.to_string()).context(context.to_string())
        })
    }
}

debug_fields!(Response: status);

/// A response body on its connection. Its IO errors wrap an [`Error`].
pub(in crate::client) struct Incoming {
    /// The reader, and the call that lets the stop shut down the connection. `None` after the end
    /// of the body (the connection is back in the pool) and after an error (the connection is
    /// closed).
    pub(super) open: Option<(DecodedBody, Running)>,
    pub(super) stop: Stop,
    /// `None` if no gate applies.
    pub(super) admission: Option<Arc<Admission>>,
    /// Whether the body states where it ends. Otherwise it ends with the connection.
    pub(super) is_framed: bool,
    /// The request, for messages.
    pub(in crate::client) context: Arc<str>,
    /// The default time limit for one read. `None` means no limit.
    pub(super) idle_timeout: Option<Duration>,
    /// The deadline for the whole body.
    pub(super) deadline: Option<Instant>,
    pub(super) metrics: Arc<RequestMetrics>,
    pub(super) failed: Option<Error>,
}

impl Incoming {
    fn fail(&mut self, error: Error) -> io::Error {
        let error = error.context(self.context.to_string());
        self.open = None;
        self.failed = Some(error.clone());
        io::Error::other(error)
    }
}

impl TimedRead for Incoming {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(error) = &self.failed {
            return Err(io::Error::other(error.clone()));
        }
        let Some((reader, running)) = &mut self.open else {
            return Ok(0);
        };
        // A gated request has changed something, so its result is read as far as it has arrived. A
        // socket that was shut down blocks no read.
        if self.stop.is_stopped() && self.admission.is_none() {
            return Err(self.fail(Error::stopped()));
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(self.fail(Error::timeout("the body was not complete in time")));
        }
        // A point in time that can't be represented means no limit.
        let silence = timeout.or(self.idle_timeout);
        let silence = silence.and_then(|timeout| now.checked_add(timeout));
        running.deadline().set(shorter(silence, self.deadline));
        match reader.read(buffer).map_err(from_io) {
            Ok(0) if self.is_framed && self.admission.is_some() => {
                self.metrics.received(0);
                self.open = None;
                Ok(0)
            }
            // After a stop, `Ok(0)` is an error as well: the stop shuts down the connection, and a
            // body without a length then looks complete.
            Ok(0) | Err(_) if self.stop.is_stopped() => {
                let stopped = match &self.admission {
                    Some(admission) => admission.ended(Sent::Maybe),
                    None => Error::stopped(),
                };
                Err(self.fail(stopped))
            }
            Ok(length) => {
                self.metrics.received(length);
                if length == 0 {
                    self.open = None;
                }
                Ok(length)
            }
            Err(error) if error.is_timeout() => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                error.context(self.context.to_string()),
            )),
            Err(error) => Err(self.fail(error)),
        }
    }
}

/// The smaller of two limits. `None` means no limit.
fn shorter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
