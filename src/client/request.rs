use std::fmt;
use std::time::Duration;

use serde::Serialize;
use ureq::http::Method;

use crate::error::Error;
use crate::text::{UNRESERVED, percent_encoded};

/// Any request to the API server, for what the crate has no words for.
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

/// What a request is for, as far as that makes a difference to how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Any,
    /// A list, which may be long: it is asked for compressed, if this client does so.
    List,
    /// A stream that ends when it ends, and whose events must not wait for others to be compressed with.
    Watch,
}

impl Request {
    /// How often a request is sent again because the server asks for it: 10 times, as in client-go.
    pub const DEFAULT_RETRIES: u32 = 10;

    fn new(method: Method, path: impl Into<String>) -> Self {
        let path = path.into();
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        // Without it the path would go on where the server's name ends, and the token to another host.
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

    /// GET of a path, which may have a query.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// POST to a path: creates.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// PUT to a path: replaces.
    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    /// PATCH of a path; set the [`content_type`](Self::content_type) to say what kind of patch it is.
    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::PATCH, path)
    }

    /// DELETE of a path; may have a body.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Adds a parameter to the query; it is percent-encoded.
    pub fn query(self, name: &str, value: &str) -> Self {
        let parameter = format!(
            "{}={}",
            percent_encoded(name, UNRESERVED),
            percent_encoded(value, UNRESERVED)
        );
        self.raw_query(&parameter)
    }

    /// Adds to the query what is percent-encoded already, as
    /// [`ListOptions::to_query`](crate::reflector::ListOptions::to_query) gives it.
    pub fn raw_query(mut self, query: &str) -> Self {
        if !self.query.is_empty() && !query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(query);
        self
    }

    /// The body, as JSON.
    ///
    /// # Errors
    ///
    /// The value can't be written as JSON.
    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Result<Self, Error> {
        match serde_json::to_vec(body) {
            Ok(body) => Ok(self.body(body)),
            Err(_) => Err(Error::decode("the request's body can't be written as JSON")),
        }
    }

    /// The body, as it is.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The type of the body in place of `application/json`, such as `application/merge-patch+json`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// The type asked for in place of `application/json`.
    pub fn accept(mut self, accept: impl Into<String>) -> Self {
        self.accept = accept.into();
        self
    }

    /// How often it is sent again after 429, or 5xx with a `Retry-After`; [10](Self::DEFAULT_RETRIES) unless
    /// set, 0 for never. client-go's `MaxRetries`.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// How long the head of the answer may take, in place of the client's
    /// [`response_timeout`](crate::Config::response_timeout); `None` is forever.
    pub fn response_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.response_timeout = Some(timeout.into());
        self
    }

    /// How long a read of the answer's body may wait, in place of the client's
    /// [`response_timeout`](crate::Config::response_timeout); `None` is forever, as a
    /// watch needs that has no other sign of life. A read that waited for so long fails with
    /// [`TimedOut`](std::io::ErrorKind::TimedOut), and can be tried again.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = Some(timeout.into());
        self
    }

    /// How many bytes the body of the answer may have for [`Response::bytes`](crate::client::Response::bytes) and
    /// [`Response::json`](crate::client::Response::json), in place of the client's
    /// [`body_limit`](crate::Config::body_limit).
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer::client::Request;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let pods = Request::get("/api/v1/pods").body_limit(10);
    /// let error = client.request(&pods, &Stop::new())?.bytes().unwrap_err();
    /// assert!(error.is_decode() && error.to_string().ends_with("the body is larger than 10 bytes"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// Refuses a path that a proxy would normalize to another one.
    pub(super) fn check_path(&self) -> Result<(), Error> {
        let is_dots = |segment: &str| {
            matches!(
                segment.to_ascii_lowercase().replace("%2e", ".").as_str(),
                "." | ".."
            )
        };
        match self.path.split('/').any(is_dots) {
            true => Err(Error::other(
                "the path has a segment \".\" or \"..\", which leads to another path: leave it out",
            )),
            false => Ok(()),
        }
    }

    pub(super) fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }
}

/// Method and path: what may be secret stands in the query and the body.
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
    fn a_path_never_reaches_into_the_name_of_the_server() {
        for path in ["api", ".evil.example/", "@evil.example", ":1/"] {
            assert_eq!(Request::get(path).path, format!("/{path}"));
        }
        assert_eq!(Request::get("").path, "/");
    }
}
