use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Decode;
use super::listing::{Listed, Listing, Retry};
use crate::error::Error;
use crate::object::{Deleted, Object};
use crate::status::Status;
use crate::store::{ReflectorStore, StoreError};
use crate::time::{Backoff, Random};
use crate::wire::{self, Bookmark, Event, EventKind, FrameSplitter, ListOptions, Taken};

/// A watch that ends within this time and without an event is no healthy one (W5).
const VERY_SHORT: Duration = Duration::from_secs(1);

/// The protocol of a reflector without threads, sockets and clocks: it says what to do next, is told what
/// came of it, and writes what it learns to the store.
///
/// Whoever drives it asks for the [`step`](Self::step), carries it out, and tells the outcome by the method
/// that fits: [`opened`](Self::opened) after a request, [`received`](Self::received) and
/// [`ended`](Self::ended) while the step is to read, and [`waited`](Self::waited) after a wait. When the step
/// is no longer to read, the body that was read is to be dropped.
pub(super) struct Machine<T> {
    page_size: Option<u32>,
    min_watch_timeout: Duration,
    decode: Decode<T>,
    phase: Phase<T>,
    /// The version of the last list, event or bookmark, empty before the first. client-go's
    /// `lastSyncResourceVersion`.
    version: String,
    synced: bool,
    /// The last version can't be listed any more: ask for the most recent one (L8, L11).
    version_unavailable: bool,
    /// A list at "0" came in pages: the server has no watch cache, so always ask for pages (L10).
    paginated: bool,
    /// The version at which a frame could not be decoded: if it happens there again, resuming does not help.
    broken_at: Option<String>,
    backoff: Backoff,
    random: Random,
    reports: Vec<Report>,
    /// What the bytes are of that are looked at right now, for the reports.
    reading: Option<&'static str>,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Open a LIST.
    List(ListOptions),
    /// Open a WATCH.
    Watch(ListOptions),
    /// Read from the body of what was opened.
    Read,
    /// Wait.
    Wait(Duration),
}

/// Something that went wrong.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) error: Error,
    /// Whether client-go would give it to the `WatchErrorHandler`: failed lists and failed watch calls only
    /// (W14).
    pub(super) to_handler: bool,
    /// What was being read, "list" or "watch", when it came up: unlike the error of a request, it does not
    /// say.
    pub(super) reading: Option<&'static str>,
}

enum Phase<T> {
    List(Listing<T>),
    ListBody(Listing<T>),
    Watch,
    WatchBody(Watching),
    Wait(Duration, Next),
}

impl<T> Phase<T> {
    fn reading(&self) -> Option<&'static str> {
        match self {
            Self::ListBody(_) => Some("list"),
            Self::WatchBody(_) => Some("watch"),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Next {
    List,
    Watch,
}

struct Watching {
    /// When the request was made (W2).
    started: Instant,
    frames: FrameSplitter,
    seen: Seen,
}

/// What a stream has brought so far.
struct Seen {
    events: u64,
    /// Whether the versions of events count: not those of the unordered ADDED events at the beginning of a
    /// watch that did not start from a version (W10).
    versions_count: bool,
}

/// What a frame holds.
enum Decoded<T> {
    Object(T),
    Bookmark(Bookmark),
    Error(Status),
}

/// Why a stream is given up.
enum Broken {
    /// An ERROR event: what the server said.
    Error(Error),
    /// A frame that can't be decoded.
    Frame(Error),
}

impl From<wire::SplitError> for Broken {
    fn from(error: wire::SplitError) -> Self {
        Self::Frame(error.into())
    }
}

impl<T: Object> Machine<T> {
    pub(super) fn new(
        decode: Decode<T>,
        page_size: Option<u32>,
        min_watch_timeout: Duration,
        backoff: Backoff,
    ) -> Self {
        let mut machine = Self {
            page_size,
            min_watch_timeout,
            decode,
            phase: Phase::Watch,
            version: String::new(),
            synced: false,
            version_unavailable: false,
            paginated: false,
            broken_at: None,
            backoff,
            random: Random::new(),
            reports: Vec::new(),
            reading: None,
        };
        machine.begin_list();
        machine
    }

    /// What to do next.
    pub(super) fn step(&mut self) -> Step {
        match &self.phase {
            Phase::List(listing) => Step::List(listing.options()),
            Phase::ListBody(_) | Phase::WatchBody(_) => Step::Read,
            Phase::Wait(duration, _) => Step::Wait(*duration),
            Phase::Watch => Step::Watch(ListOptions {
                resource_version: Some(self.version.clone()),
                allow_watch_bookmarks: true,
                timeout_seconds: Some(self.watch_timeout()),
                ..ListOptions::default()
            }),
        }
    }

    /// The version of the last list, event or bookmark.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Whether a list has reached the store.
    pub(super) fn has_listed(&self) -> bool {
        self.synced
    }

    /// Whether it watches, or is about to: the time in which resyncs happen (W13).
    pub(super) fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watch | Phase::WatchBody(_) | Phase::Wait(_, Next::Watch))
    }

    /// Whether a watch is open: the view is as fresh as it can be.
    pub(super) fn has_open_watch(&self) -> bool {
        matches!(self.phase, Phase::WatchBody(_))
    }

    /// How many objects of the list under way have come, and how many there are in all, where the server
    /// tells.
    pub(super) fn list_progress(&self) -> Option<(usize, Option<usize>)> {
        match &self.phase {
            Phase::List(listing) | Phase::ListBody(listing) => Some(listing.progress()),
            _ => None,
        }
    }

    /// What has gone wrong since the last call.
    pub(super) fn reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// The request has been answered, or not. `started` is when it was made.
    pub(super) fn opened(&mut self, result: Result<(), Error>, started: Instant) {
        match (std::mem::replace(&mut self.phase, Phase::Watch), result) {
            (Phase::List(listing), Ok(())) => self.phase = Phase::ListBody(listing),
            (Phase::List(listing), Err(error)) => self.list_failed(listing, error),
            (Phase::Watch, Ok(())) => {
                self.phase = Phase::WatchBody(Watching {
                    started,
                    frames: FrameSplitter::new(),
                    seen: Seen { events: 0, versions_count: !matches!(self.version.as_str(), "" | "0") },
                });
            }
            (Phase::Watch, Err(error)) => self.watch_refused(error),
            (phase, _) => self.phase = phase,
        }
    }

    /// Bytes of the body have come.
    pub(super) fn received(&mut self, bytes: &[u8], store: &dyn ReflectorStore<T>) {
        self.reading = self.phase.reading();
        match std::mem::replace(&mut self.phase, Phase::Watch) {
            Phase::ListBody(mut listing) => {
                let fed = listing.feed(bytes, self.decode);
                for error in listing.left_out() {
                    self.report(error, false);
                }
                match fed {
                    Ok(()) => self.phase = Phase::ListBody(listing),
                    Err(error) => self.list_failed(listing, error),
                }
            }
            Phase::WatchBody(mut watching) => {
                let Watching { frames, seen, .. } = &mut watching;
                match frames.feed(bytes, |frame| self.event(frame, seen, store)) {
                    Ok(()) => self.phase = Phase::WatchBody(watching),
                    Err(broken) => self.watch_broken(broken, seen),
                }
            }
            phase => self.phase = phase,
        }
        self.reading = None;
    }

    /// The body has come to its end, or the connection broke.
    pub(super) fn ended(&mut self, result: Result<(), Error>, store: &dyn ReflectorStore<T>, now: Instant) {
        self.reading = self.phase.reading();
        match (std::mem::replace(&mut self.phase, Phase::Watch), result) {
            (Phase::ListBody(mut listing), Ok(())) => match listing.page_end() {
                Ok(None) => self.phase = Phase::List(listing),
                Ok(Some(listed)) => self.listed(listed, store),
                Err(error) => self.list_failed(listing, error),
            },
            (Phase::ListBody(listing), Err(error)) => self.list_failed(listing, error),
            (Phase::WatchBody(mut watching), result) => {
                let Watching { frames, seen, started } = &mut watching;
                match frames.finish(|frame| self.event(frame, seen, store)) {
                    Ok(()) => self.watch_ended(seen, now.duration_since(*started), result),
                    Err(broken) => self.watch_broken(broken, seen),
                }
            }
            (phase, _) => self.phase = phase,
        }
        self.reading = None;
    }

    /// The wait is over.
    pub(super) fn waited(&mut self) {
        if let Phase::Wait(_, next) = self.phase {
            match next {
                Next::List => self.begin_list(),
                Next::Watch => self.phase = Phase::Watch,
            }
        }
    }

    /// A resync failed (W13), or a step was cut short by a panic: whatever was under way, a new cycle begins
    /// after a back-off.
    pub(super) fn given_up(&mut self, why: Error) {
        self.report(why, false);
        self.new_cycle(None);
    }

    fn begin_list(&mut self) {
        // L8: never older than what has been seen, unless that can't be had.
        let version = match self.version.as_str() {
            _ if self.version_unavailable => None,
            "" => Some("0".to_owned()),
            version => Some(version.to_owned()),
        };
        self.phase = Phase::List(Listing::new(version, self.page_size, self.paginated));
    }

    fn list_failed(&mut self, mut listing: Listing<T>, error: Error) {
        match listing.retry(&error) {
            Retry::No => {
                let retry_after = error.retry_after();
                self.report(error, true);
                self.new_cycle(retry_after);
            }
            retry => {
                self.version_unavailable |= retry == Retry::MostRecent;
                self.phase = Phase::List(listing);
            }
        }
    }

    fn listed(&mut self, listed: Listed<T>, store: &dyn ReflectorStore<T>) {
        let Listed { objects, resource_version, paginated_at_zero } = listed;
        self.version_unavailable = false;
        self.paginated |= paginated_at_zero;
        if let Err(error) = store.replace(objects, &resource_version) {
            self.report(Error::other(format!("unable to sync list result: {error}")), true);
            return self.new_cycle(None);
        }
        self.version = resource_version;
        self.synced = true;
        self.broken_at = None;
        self.phase = Phase::Watch;
    }

    fn watch_refused(&mut self, error: Error) {
        let retry_after = error.retry_after();
        // W3: the server is not there or overloaded; a list would only make it worse.
        if error.is_connection() && !error.is_tls() || error.is_too_many_requests() {
            self.report(error, false);
            return self.wait(retry_after, Next::Watch);
        }
        self.report(error, true);
        self.new_cycle(retry_after);
    }

    fn watch_broken(&mut self, broken: Broken, seen: &Seen) {
        if seen.events > 0 {
            self.backoff.reset();
        }
        match broken {
            Broken::Error(error) if error.is_too_many_requests() => {
                let retry_after = error.retry_after();
                self.report(error, false);
                self.wait(retry_after, Next::Watch);
            }
            Broken::Error(error) => {
                let retry_after = error.retry_after();
                self.report(error, false);
                self.new_cycle(retry_after);
            }
            Broken::Frame(error) => {
                self.report(error, false);
                if self.broken_at.as_ref() == Some(&self.version) {
                    self.broken_at = None;
                    return self.new_cycle(None);
                }
                self.broken_at = Some(self.version.clone());
                self.phase = Phase::Watch;
            }
        }
    }

    fn watch_ended(&mut self, seen: &Seen, lasted: Duration, result: Result<(), Error>) {
        // A connection that broke is an end like any other: the watch goes on from the last version.
        if let Err(error) = result {
            self.report(error, false);
        }
        if seen.events == 0 && lasted < VERY_SHORT {
            self.report(
                Error::connection("very short watch: it ended within a second and without an event"),
                false,
            );
            return self.new_cycle(None);
        }
        self.backoff.reset();
        self.phase = Phase::Watch;
    }

    /// One frame of a watch.
    fn event(
        &mut self,
        frame: &[u8],
        seen: &mut Seen,
        store: &dyn ReflectorStore<T>,
    ) -> Result<Taken, Broken> {
        let (kind, object) = match self.decode_event(frame) {
            Ok(event) => event,
            Err(_) if wire::has_several(frame) => return Ok(Taken::Several),
            Err(error) => return Err(self.bad_frame(&error, seen)),
        };
        let version = match object {
            Decoded::Error(status) => return Err(Broken::Error(Error::from_status(status))),
            Decoded::Bookmark(bookmark) => {
                self.stored(store.bookmark(bookmark.resource_version()));
                bookmark.resource_version().to_owned()
            }
            // As what is no object of the kind: told, not counted, and its version does not count either
            // (W9).
            Decoded::Object(object) if object.name().is_empty() => {
                self.report(Error::decode("an event whose object has no name"), false);
                return Ok(Taken::Whole);
            }
            Decoded::Object(object) => {
                let version = object.resource_version().to_owned();
                let object = Arc::new(object);
                self.stored(match kind {
                    EventKind::Added => store.add(object),
                    EventKind::Deleted => store.delete(Deleted::Final(object)),
                    _ => store.update(object),
                });
                version
            }
        };
        seen.events += 1;
        seen.versions_count |= kind != EventKind::Added;
        // An event without a version leaves the last one as it is: client-go would lose it (W10).
        if seen.versions_count && !version.is_empty() {
            self.version = version;
        }
        Ok(Taken::Whole)
    }

    fn decode_event(&self, frame: &[u8]) -> Result<(EventKind, Decoded<T>), serde_json::Error> {
        let Event { kind, object } = Event::parse(frame)?;
        Ok(match kind {
            EventKind::Error => (kind, Decoded::Error(wire::error_status(object))),
            EventKind::Bookmark => (kind, Decoded::Bookmark(serde_json::from_slice(object)?)),
            kind => match (self.decode)(object) {
                Ok(object) => (kind, Decoded::Object(object)),
                // Something may stand behind the object, and belong to the frame.
                Err(_) => {
                    let Event { kind, object } = Event::parse_slowly(frame)?;
                    (kind, Decoded::Object((self.decode)(object)?))
                }
            },
        })
    }

    fn bad_frame(&self, error: &serde_json::Error, seen: &Seen) -> Broken {
        let at = if self.version.is_empty() { "the beginning" } else { &self.version };
        Broken::Frame(Error::decode(format!(
            "watch event {} after version {at}: {}",
            seen.events + 1,
            wire::describe(error)
        )))
    }

    /// What the store says to an event is told, and the watch goes on (W8).
    fn stored(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.report(Error::other(format!("the store did not take an event: {error}")), false);
        }
    }

    /// The cycle is over: a wait, and then a list (L1).
    fn new_cycle(&mut self, at_least: Option<Duration>) {
        self.wait(at_least, Next::List);
    }

    fn wait(&mut self, at_least: Option<Duration>, next: Next) {
        let wait = self.backoff.step().max(at_least.unwrap_or_default());
        self.phase = Phase::Wait(wait, next);
    }

    fn report(&mut self, error: Error, to_handler: bool) {
        self.reports.push(Report { error, to_handler, reading: self.reading });
    }

    /// Between the shortest and twice that, so that the watches of many clients do not end together (W1).
    fn watch_timeout(&mut self) -> u32 {
        let seconds = self.min_watch_timeout.as_secs_f64() * (1.0 + self.random.unit());
        seconds as u32
    }
}
