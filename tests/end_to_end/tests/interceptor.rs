//! A layer between an informer and the watches of a server. It records the requests and edits the
//! responses.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{Body, ListOptions, ListerWatcher, ListerWatcherSource, TimedRead};
use k8s_informer::{Client, Error, Stop};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    List,
    Watch,
    WatchList,
}

/// Edits a line of a watch. The arguments are the kind of the request (`Watch` or `WatchList`), the
/// number of the line, starting at 0, and the line.
type Edit = dyn Fn(RequestKind, usize, String) -> String + Send + Sync;

/// The last line of an expired watch.
pub(crate) const GONE: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"#,
    r#""reason":"Expired","message":"too old resource version"}}"#,
    "\n"
);

/// A source of lister-watchers in place of a client. Clones share their state.
#[derive(Clone)]
pub(crate) struct Interceptor {
    client: Client,
    edit: Arc<Edit>,
    idle_timeout: Option<Duration>,
    requests: Arc<Mutex<Vec<RequestKind>>>,
}

impl Interceptor {
    pub(crate) fn new(
        client: Client,
        edit: impl Fn(RequestKind, usize, String) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            client,
            edit: Arc::new(edit),
            idle_timeout: None,
            requests: Arc::default(),
        }
    }

    /// Creates an interceptor that replaces the first event of the object "trigger" by the expiry
    /// of the watch.
    pub(crate) fn expiring(client: Client) -> Self {
        Self::losing(client, "")
    }

    /// Like [`expiring`](Self::expiring). In addition, until the watch expires, the deletion of the
    /// object `name` and all later events of that object are lost.
    pub(crate) fn losing(client: Client, name: &str) -> Self {
        let (expired, lost) = (AtomicBool::new(false), AtomicBool::new(false));
        let name = format!(r#""name":"{name}""#);
        Self::new(client, move |_, _, line| {
            if expired.load(Ordering::Relaxed) {
                return line;
            }
            if line.contains(r#""name":"trigger""#) {
                expired.store(true, Ordering::Relaxed);
                return GONE.to_owned();
            }
            let is_named = line.contains(&name);
            if is_named && line.contains(r#""type":"DELETED""#) {
                lost.store(true, Ordering::Relaxed);
            }
            if is_named && lost.load(Ordering::Relaxed) {
                String::new()
            } else {
                line
            }
        })
    }

    /// Sets the idle timeout of watches. The reflector treats each idle timeout as the end of its
    /// own, longer read timeout.
    pub(crate) fn idle_timeout(self, idle_timeout: Duration) -> Self {
        Self {
            idle_timeout: Some(idle_timeout),
            ..self
        }
    }

    /// Returns all requests so far.
    pub(crate) fn requests(&self) -> Vec<RequestKind> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn record(&self, kind: RequestKind) {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(kind);
    }
}

impl ListerWatcherSource for Interceptor {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        Arc::new(Resource {
            interceptor: self.clone(),
            path: resource.path(namespace).unwrap(),
            inner: ListerWatcherSource::lister_watcher(&self.client, resource, namespace),
        })
    }
}

struct Resource {
    interceptor: Interceptor,
    path: String,
    inner: Arc<dyn ListerWatcher>,
}

impl ListerWatcher for Resource {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.interceptor.record(RequestKind::List);
        self.inner.list(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let Self {
            interceptor, path, ..
        } = self;
        let kind = if options.send_initial_events {
            RequestKind::WatchList
        } else {
            RequestKind::Watch
        };
        interceptor.record(kind);
        let request = Request::get(format!("{path}?{}", options.to_watch_query()));
        let request = request.idle_timeout(interceptor.idle_timeout);
        let body = interceptor.client.request(&request, stop)?.into_body();
        let edit = Arc::clone(&interceptor.edit);
        let lines = Lines {
            body: BufReader::new(body),
            line: Vec::new(),
            count: 0,
            edited: Vec::new(),
            edit: Box::new(move |count, line| edit(kind, count, line)),
        };
        Ok(if interceptor.idle_timeout.is_some() {
            Body::timed(lines)
        } else {
            Body::new(lines)
        })
    }

    fn supports_watch_list(&self) -> bool {
        self.inner.supports_watch_list()
    }

    fn description(&self) -> String {
        self.inner.description()
    }
}

struct Lines {
    body: BufReader<Body>,
    /// The received part of the next line. A retried read continues it.
    line: Vec<u8>,
    count: usize,
    /// Edited bytes that are not read yet.
    edited: Vec<u8>,
    edit: Box<dyn Fn(usize, String) -> String + Send>,
}

/// Ignores the timeout of a read, because the request has an idle timeout instead.
impl TimedRead for Lines {
    fn read_within(&mut self, buffer: &mut [u8], _: Option<Duration>) -> io::Result<usize> {
        self.read(buffer)
    }
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.edited.is_empty() {
            self.body.read_until(b'\n', &mut self.line)?;
            if self.line.is_empty() {
                return Ok(0);
            }
            let line = String::from_utf8(std::mem::take(&mut self.line)).unwrap();
            self.edited = (self.edit)(self.count, line).into_bytes();
            self.count += 1;
        }
        let length = self.edited.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.edited[..length]);
        self.edited.drain(..length);
        Ok(length)
    }
}
