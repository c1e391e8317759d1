use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decode::Unreadable;
use super::initial_objects::InitialObjects;
use super::listing::is_no_older;
use super::undecodable::Undecoded;
use crate::error::Error;
use crate::object::{Key, Object};
use crate::store::{Gaps, ReflectorStore, StagedList};
use crate::wire::FrameSplitter;

/// For how long the server is silent at most before the objects of a watch-list are complete, and how often
/// that is warned of before (WL10).
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const WARNING: Duration = Duration::from_secs(10);

/// API servers send a bookmark about once a minute. Where two came within this time, none for so long means
/// that something is wrong.
pub(super) const QUIET: Duration = Duration::from_secs(180);

/// How often an API server sends a bookmark, if it does.
pub(super) const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// A stream of events that is open.
pub(super) struct Watching<T> {
    pub(super) frames: FrameSplitter,
    /// When the request was made (W2), or the objects of a watch-list were complete.
    pub(super) started: Instant,
    /// When the last event came, or it was opened.
    pub(super) heard: Instant,
    /// When the server was asked to end it.
    pub(super) due: Instant,
    /// How many events there were since, and whether their versions count: not those of the unordered ADDED
    /// events at the beginning of a watch that did not start from a version (W10).
    pub(super) events: u64,
    pub(super) versions_count: bool,
    /// After how long a silence it is taken for dead.
    pub(super) idle_timeout: Duration,
    /// How long nothing has come.
    pub(super) silent: Duration,
    /// When the last bookmark came.
    pub(super) last_bookmark: Option<Instant>,
    /// Of a watch-list, as long as the objects are not complete.
    pub(super) initial: Option<Initial<T>>,
}

/// How much earlier than requested a server may end a watch, by its own clock.
const EARLY: Duration = Duration::from_secs(1);

impl<T> Watching<T> {
    /// Whether the time that the server was given is over. An earlier end can mean that it shuts down.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now + EARLY >= self.due
    }

    /// How long to wait for bytes, from a server that is known to send bookmarks or not.
    pub(super) fn patience(&self, bookmarks_come: bool) -> Duration {
        match self.initial {
            Some(_) => WARNING,
            None if bookmarks_come => self.idle_timeout.min(QUIET),
            None => self.idle_timeout,
        }
    }
}

/// The objects with which a watch-list begins, until the bookmark that ends them: apart from the store, which
/// keeps what it has until then (WL3, WL7).
pub(super) struct Initial<T> {
    objects: InitialObjects<Arc<T>>,
    /// How many of other shards have come.
    elsewhere: usize,
    gaps: Gaps,
    /// Those of the objects that have changed into something that can't be read.
    outdated: Gaps,
    /// What of them could not be read.
    pub(super) undecoded: Undecoded,
    /// The last version of an event that was not ADDED, and then of the bookmark (WL5).
    pub(super) version: String,
    /// Whether what the store has in the same version need not be decoded.
    pub(super) reuse: bool,
    /// Whether something of that is among the objects.
    reused: bool,
}

impl<T: Object> Initial<T> {
    pub(super) fn new(reuse: bool) -> Self {
        Self {
            objects: InitialObjects::new(),
            elsewhere: 0,
            gaps: Gaps::default(),
            outdated: Gaps::default(),
            undecoded: Undecoded::default(),
            version: String::new(),
            reuse,
            reused: false,
        }
    }

    /// How many objects have come.
    pub(super) fn received(&self) -> usize {
        self.objects.len() + self.elsewhere
    }

    /// One of another shard.
    pub(super) fn pass(&mut self) {
        self.elsewhere += 1;
    }

    pub(super) fn put(&mut self, key: Key, object: Arc<T>) {
        self.close(&key);
        self.objects.put(key, object);
    }

    /// One that the store has.
    pub(super) fn keep(&mut self, key: Key, object: Arc<T>) {
        self.reused = true;
        self.put(key, object);
    }

    /// Whether something of what the store has was kept, though what is there now may be older than that: a
    /// restored etcd gives the same versions to other states.
    pub(super) fn has_gone_back(&self, since: &str) -> bool {
        self.reused && !is_no_older(&self.version, since)
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.close(key);
        self.objects.remove(key);
    }

    /// What could not be read of it does not matter any more.
    fn close(&mut self, key: &str) {
        self.gaps.close(key);
        self.outdated.close(key);
    }

    /// One that can't be read: what came before of it is still the best there is.
    pub(super) fn leave_gap(&mut self, unreadable: &Unreadable, store: &dyn ReflectorStore<T>) {
        let key = unreadable.key(store);
        match &key {
            Some(known) if self.objects.contains(known) => self.outdated.add(key),
            _ => self.gaps.add(key),
        }
    }

    /// Whether each object is what was told of it last.
    pub(super) fn is_up_to_date(&self) -> bool {
        self.outdated.is_empty()
    }

    /// All of them.
    pub(super) fn into_list(self) -> StagedList<T> {
        let Self {
            objects,
            elsewhere: _,
            gaps,
            outdated: _,
            undecoded: _,
            version,
            reuse: _,
            reused: _,
        } = self;
        StagedList {
            objects: objects.into_vec(),
            resource_version: version,
            gaps,
        }
    }
}

/// Why a stream is given up.
pub(super) enum Broken {
    /// An ERROR event: what the server said.
    Event(Error),
    /// A frame that can't be decoded.
    Frame(Error),
    /// The store does not take the objects of a watch-list.
    Refused(Error),
}

impl From<crate::wire::SplitError> for Broken {
    fn from(error: crate::wire::SplitError) -> Self {
        Self::Frame(error.into())
    }
}

/// For how long a watch that ends with an internal error is opened again at once (W7). client-go's
/// `RetryWithDeadline`.
#[derive(Debug)]
pub(super) struct RetryWindow {
    length: Duration,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl RetryWindow {
    /// Errors that are further apart have nothing to do with each other.
    const APART: Duration = Duration::from_secs(60);

    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            first: None,
            last: None,
        }
    }

    /// There was another error: whether to try again.
    pub(super) fn retry(&mut self, now: Instant) -> bool {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) >= Self::APART)
        {
            self.first = None;
        }
        let first = *self.first.get_or_insert(now);
        self.last = Some(now);
        let retry = !self.length.is_zero() && now.duration_since(first) <= self.length;
        if !retry {
            self.forget();
        }
        retry
    }

    pub(super) fn forget(&mut self) {
        (self.first, self.last) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w7_retry_window() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut never = RetryWindow::new(Duration::ZERO);
        assert!(!never.retry(at(0)) && !never.retry(at(1)));

        let mut window = RetryWindow::new(Duration::from_secs(90));
        assert!(
            [0, 30, 60, 90]
                .into_iter()
                .all(|second| window.retry(at(second)))
        );
        assert!(!window.retry(at(91)), "the window is over");
        assert!(window.retry(at(92)), "and begins again");
        assert!(
            window.retry(at(153)) && window.retry(at(153 + 89)),
            "a minute apart: it begins again"
        );
    }
}
