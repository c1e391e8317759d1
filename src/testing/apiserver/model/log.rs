//! The log of requests, which tests read and wait on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::http::Head;

/// So many requests are remembered; older ones are forgotten, as a server may live through a benchmark.
const CAPACITY: usize = 65_536;

/// What a request asks for, in the words of Kubernetes' own authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection with `watch`, streaming lists included.
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
    /// Anything that is not about objects, such as `/version`.
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
}

/// A request that the server has received, faults and failures included. Cheap to clone.
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

    /// The HTTP method, as sent.
    pub fn method(&self) -> &str {
        &self.0.head.method
    }

    /// The path without the query, as sent.
    pub fn path(&self) -> &str {
        &self.0.head.path
    }

    /// The query parameters, decoded, in the order sent.
    pub(crate) fn query(&self) -> &[(String, String)] {
        &self.0.head.query
    }

    /// The first query parameter of that name.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.0.head.param(name)
    }

    /// The first header of that name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.head.header(name)
    }

    /// What is asked for.
    pub fn verb(&self) -> Verb {
        self.0.verb
    }

    /// The plural name of the resource, if the server serves it.
    pub fn resource(&self) -> Option<&str> {
        self.0.resource.as_deref()
    }

    pub(crate) fn head(&self) -> &Head {
        &self.0.head
    }
}

/// Headers are left out: they carry tokens.
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
    /// A leaf: nothing else is locked, and nothing of the user runs, while it is held.
    requests: Mutex<Requests>,
    /// Signalled at every new request; those who wait for one wait here, with `requests`.
    received: Condvar,
}

#[derive(Default)]
struct Requests {
    kept: VecDeque<RequestRecord>,
    /// All there ever were, so that a new one is noticed even if an old one had to go.
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

    /// Waits until `enough` says so of all requests so far; false if that takes longer than `timeout`.
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
            // The user's own code, so without the lock; what arrives meanwhile is looked at before waiting.
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
