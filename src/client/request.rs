use std::fmt;
use std::time::Duration;

use serde::Serialize;
use ureq::http::Method;

use crate::base::text::{UNRESERVED, percent_encoded};
use crate::error::Error;

pub(super) const NOT_SERIALIZABLE: &str = "the body can't be serialized as JSON: its Serialize implementation failed, or a map key is not a string";

/// An HTTP request to the API server, for endpoints that [`Api`](crate::client::api::Api) does not
/// cover.
///
/// ```
/// use k8s_informer::client::Request;
///
/// let request = Request::get("/api/v1/pods").query("labelSelector", "app in (web)");
/// assert_eq!(format!("{request:?}"), "GET /api/v1/pods");
/// let patch = Request::patch("/api/v1/namespaces/a/configmaps/b")
///     .json(&serde_json::json!({"data": {"key": "value"}}))?
///     .content_type("application/merge-patch+json");
/// # Ok::<(), k8s_informer::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) accept: String,
    pub(super) content_type: String,
    pub(super) body: Option<Vec<u8>>,
    pub(super) response_timeout: Option<Option<Duration>>,
    pub(super) idle_timeout: Option<Option<Duration>>,
    pub(super) retries: u32,
    pub(super) body_limit: Option<u64>,
    pub(super) purpose: Purpose,
}

/// The purpose of a request. It affects compression, time limits, metrics and the checks of the
/// response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Any,
    /// The body of the response is JSON.
    Json,
    /// A list. Requested with compression if the client uses it, because lists can be long.
    List,
    /// A stream of events with no known end. It is never compressed, because a compressing server
    /// delays events.
    Watch,
}

impl Request {
    /// The default of [`retries`](Self::retries): 10, as in client-go.
    pub const DEFAULT_RETRIES: u32 = 10;

    fn new(method: Method, path: impl Into<String>) -> Self {
        let path = path.into();
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        // Without the slash, the path could extend the host name and send the token to another
        // host.
        let slash = if path.starts_with('/') { "" } else { "/" };
        Self {
            method,
            path: format!("{slash}{}", percent_encoded(path, b"/-._~!$&'()*+,;=:@%")),
            query: percent_encoded(query, b"/-._~!$&'()*+,;=:@%?"),
            accept: "application/json".to_owned(),
            content_type: "application/json".to_owned(),
            body: None,
            response_timeout: None,
            idle_timeout: None,
            retries: Self::DEFAULT_RETRIES,
            body_limit: None,
            purpose: Purpose::Any,
        }
    }

    /// Creates a GET request. The path may include a query.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Creates a POST request, which creates an object.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// Creates a PUT request, which replaces an object.
    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    /// Creates a PATCH request. Set the [`content_type`](Self::content_type) to the type of the
    /// patch.
    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::PATCH, path)
    }

    /// Creates a DELETE request, with an optional body.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Adds a query parameter. The name and the value are percent-encoded.
    pub fn query(self, name: &str, value: &str) -> Self {
        let parameter = format!(
            "{}={}",
            percent_encoded(name, UNRESERVED),
            percent_encoded(value, UNRESERVED)
        );
        self.raw_query(&parameter)
    }

    /// Appends a query that is already percent-encoded, such as the result of
    /// [`ListOptions::to_query`](crate::reflector::ListOptions::to_query).
    pub fn raw_query(mut self, query: &str) -> Self {
        if !self.query.is_empty() && !query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(query);
        self
    }

    /// Sets the body to a value, serialized as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the value cannot be serialized.
    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Result<Self, Error> {
        match serde_json::to_vec(body) {
            Ok(body) => Ok(self.body(body)),
            Err(_) => Err(Error::other(NOT_SERIALIZABLE)),
        }
    }

    /// Sets the body to raw bytes.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets the `Content-Type`. Default: `application/json`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Sets the `Accept` header. Default: `application/json`.
    pub fn accept(mut self, accept: impl Into<String>) -> Self {
        self.accept = accept.into();
        self
    }

    /// Sets how many times the request is resent after a 429 or 5xx response with a retry delay.
    /// The delay is the `Retry-After` header or part of the `Status`. The default is
    /// [10](Self::DEFAULT_RETRIES); 0 disables retries. The client-go counterpart is `MaxRetries`.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the time limit for each of three phases: sending the request, waiting for the head of
    /// the response, and reading the body as a whole. `None` means no limit. The default is the
    /// client's [`response_timeout`](crate::Config::response_timeout).
    pub fn response_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.response_timeout = Some(timeout.into());
        self
    }

    /// Sets how long one read of the response body may block; `None` for no limit. The default is
    /// the client's [`response_timeout`](crate::Config::response_timeout).
    ///
    /// Use `None` for watches, which can be silent for any length of time. A read that times out
    /// fails with [`TimedOut`](std::io::ErrorKind::TimedOut) and can be repeated.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = Some(timeout.into());
        self
    }

    /// Sets the maximum size of the response body in bytes for
    /// [`Response::bytes`](crate::client::Response::bytes) and
    /// [`Response::json`](crate::client::Response::json). The default is the client's
    /// [`body_limit`](crate::Config::body_limit).
    ///
    /// ```
    /// use k8s_informer::client::Request;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let pods = Request::get("/api/v1/pods").body_limit(10);
    /// let error = client.request(&pods, &Stop::never())?.bytes().unwrap_err();
    /// assert!(error.is_decode() && error.to_string().ends_with("the body is larger than 10 bytes"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// Rejects a path that a proxy would normalize to another one.
    pub(super) fn check_path(&self) -> Result<(), Error> {
        let is_dots = |segment: &str| {
            matches!(
                segment.to_ascii_lowercase().replace("%2e", ".").as_str(),
                "." | ".."
            )
        };
        match self.path.split('/').any(is_dots) {
            true => Err(Error::other(
                "the path has a segment \".\" or \"..\", which would change the path: remove it",
            )),
            false => Ok(()),
        }
    }

    pub(super) fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }
}

/// Shows only the method and the path: the query and the body can contain secrets.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_encoded_once() {
        let request = Request::get("/api/ü b#?watch=1&x=%20")
            .query("a b", "c&d")
            .raw_query("e=%2F")
            .raw_query("");
        assert_eq!(request.path, "/api/%C3%BC%20b%23");
        assert_eq!(request.query, "watch=1&x=%20&a%20b=c%26d&e=%2F");
    }

    #[test]
    fn path_cannot_extend_host_name() {
        for path in ["api", ".evil.example/", "@evil.example", ":1/"] {
            assert_eq!(Request::get(path).path, format!("/{path}"));
        }
        assert_eq!(Request::get("").path, "/");
    }
}
