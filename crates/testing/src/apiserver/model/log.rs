//! The log of requests, which tests read and wait for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::http::Head;

/// The number of requests to keep. The limit exists because a server may run for a whole benchmark.
const CAPACITY: usize = 65_536;

/// The kind of a request, with the verbs of Kubernetes authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection with `watch`, including streaming lists.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// A request that does not concern objects, such as `/version`.
    Other,
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "other",
        }
    }

    /// Whether requests with this verb can change objects.
    pub(crate) fn is_write(self) -> bool {
        use Verb::{Create, Delete, DeleteCollection, Patch, Update};
        matches!(self, Create | Update | Patch | Delete | DeleteCollection)
    }
}

/// A request that the server received. Requests that failed are recorded as well. Cheap to clone.
#[derive(Clone)]
pub struct RequestRecord(Arc<Record>);

struct Record {
    head: Head,
    verb: Verb,
    resource: Option<String>,
}

impl RequestRecord {
    pub(crate) fn new(head: Head, verb: Verb, resource: Option<String>) -> Self {
        Self(Arc::new(Record {
            head,
            verb,
            resource,
        }))
    }

    /// Returns the HTTP method as sent.
    pub fn method(&self) -> &str {
        &self.0.head.method
    }

    /// Returns the path as sent, without the query.
    pub fn path(&self) -> &str {
        &self.0.head.path
    }

    /// The decoded query parameters in the order sent.
    pub(crate) fn query(&self) -> &[(String, String)] {
        &self.0.head.query
    }

    /// Returns the first query parameter with this name.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.0.head.param(name)
    }

    /// Returns the first header with this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.head.header(name)
    }

    /// Returns the kind of the request.
    pub fn verb(&self) -> Verb {
        self.0.verb
    }

    /// Returns the plural name of the resource if the server serves it.
    pub fn resource(&self) -> Option<&str> {
        self.0.resource.as_deref()
    }

    pub(crate) fn head(&self) -> &Head {
        &self.0.head
    }
}

/// Omits headers, because they contain tokens.
impl fmt::Debug for RequestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method(), self.path())?;
        for (index, (name, value)) in self.query().iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Log {
    /// A leaf lock: no other lock is taken, and no user code runs, while it is held.
    requests: Mutex<Requests>,
    /// Notified at every request. Waiters use it with `requests`.
    received: Condvar,
}

#[derive(Default)]
struct Requests {
    kept: VecDeque<RequestRecord>,
    /// The number of all requests ever, so that a new one is noticed even if an old one was
    /// dropped.
    total: u64,
}

impl Requests {
    fn all(&self) -> Vec<RequestRecord> {
        self.kept.iter().cloned().collect()
    }
}

impl Log {
    pub(crate) fn push(&self, request: RequestRecord) {
        let mut requests = self.requests.lock();
        if requests.kept.len() == CAPACITY {
            requests.kept.pop_front();
        }
        requests.kept.push_back(request);
        requests.total += 1;
        self.received.notify_all();
    }

    pub(crate) fn all(&self) -> Vec<RequestRecord> {
        self.requests.lock().all()
    }

    pub(crate) fn clear(&self) {
        self.requests.lock().kept.clear();
    }

    /// Blocks until `enough` returns `true` for all requests so far. Returns `false` after
    /// `timeout`.
    pub(crate) fn wait(
        &self,
        mut enough: impl FnMut(&[RequestRecord]) -> bool,
        timeout: Duration,
    ) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let (seen, total) = {
                let requests = self.requests.lock();
                (requests.all(), requests.total)
            };
            // User code runs without the lock. Requests that arrive meanwhile are checked before
            // the wait.
            if enough(&seen) {
                return true;
            }
            let mut requests = self.requests.lock();
            while requests.total == total {
                match deadline {
                    None => self.received.wait(&mut requests),
                    Some(deadline) if Instant::now() >= deadline => return false,
                    Some(deadline) => {
                        self.received.wait_until(&mut requests, deadline);
                    }
                }
            }
        }
    }
}
