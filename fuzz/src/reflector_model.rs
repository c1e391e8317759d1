//! The model of a reflector: its state, and its next step after each response of a scripted server
//! (L, W and WL rules).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::item::newest;
use super::scripted::{End, Failure, FailureKind, Frame, Garbage, Served, Settings, Spoil, Thing};

const WATCH_LIST_PAUSE: u64 = 600_000;
/// The longest silence in milliseconds if bookmarks arrive.
const QUIET: u64 = 180_000;
/// The longest silence in milliseconds, over several watches, if no bookmarks arrive.
const LONG_QUIET: u64 = 2 * 630_000;
/// The number of watches shorter than `SHORT` milliseconds that are reopened immediately.
const SHORT_WATCHES: u32 = 5;
const SHORT: u64 = 1000;
/// The backoff has no jitter, so that the model can predict when a relist is due.
pub const FIRST_BACKOFF: Duration = Duration::from_millis(800);
pub const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The number of relists for each missed object.
const RELISTS: u32 = 5;

/// The next step of the reflector.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    List(ListRequest),
    Watch,
    WatchList,
    /// Wait at least the first duration and at most the second, then continue.
    Wait(Duration, Duration, Then),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListRequest {
    pub version: Option<String>,
    pub token: Option<String>,
    pub limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    Cycle,
    List,
    Watch,
    WatchList,
}

/// The readable part of an object.
enum Read {
    Whole,
    /// Only its key.
    Key,
    /// Not even its key.
    Nothing,
    /// Its end cannot be found.
    Broken,
}

pub struct Model {
    settings: Settings,
    pub cache: BTreeMap<String, Thing>,
    pub version: String,
    pub synced: bool,
    pub complete: bool,
    pub unreadable: u64,
    pub next: Step,
    unavailable: bool,
    paginated: bool,
    unfinished: u32,
    short_watches: u32,
    watch_list_from: u64,
    broken_at: Option<String>,
    backoff: Duration,
    bookmarks_come: bool,
    quiet: u64,
    silent_lists: u32,
    repair: Repair,
    listing: Listing,
}

/// The relists while objects are missing.
struct Repair {
    missed: BTreeSet<String>,
    /// The keys missed since the last list began.
    recorded: BTreeSet<String>,
    left: u32,
    due: Option<u64>,
    wait: Duration,
}

impl Repair {
    fn new() -> Self {
        Self {
            missed: BTreeSet::new(),
            recorded: BTreeSet::new(),
            left: 0,
            due: None,
            wait: FIRST_BACKOFF,
        }
    }

    fn schedule(&mut self, now: u64) {
        if self.left > 0 {
            self.due
                .get_or_insert(now + self.wait.as_millis().max(1000) as u64);
        }
    }

    /// An empty key means an object with an unreadable key.
    fn missed(&mut self, key: &str, now: u64) {
        self.recorded.insert(key.to_owned());
        if self.missed.insert(key.to_owned()) {
            self.left = RELISTS;
            self.schedule(now);
        }
    }

    fn received(&mut self, key: &str, now: u64) {
        if self.missed.remove(key) {
            self.left = self.left.max(1);
            self.schedule(now);
        }
    }

    fn listed(&mut self, complete: bool, now: u64) {
        if complete {
            *self = Self::new();
        }
        self.missed.retain(|key| self.recorded.contains(key));
        self.due = None;
        self.schedule(now);
    }

    fn take_due(&mut self, now: u64) -> bool {
        let is_due = self.due.take_if(|due| *due <= now).is_some();
        if is_due {
            self.left -= 1;
            self.wait = (self.wait * 2).min(MAX_BACKOFF);
        }
        is_due
    }
}

/// A list in progress.
#[derive(Default)]
struct Listing {
    version: Option<String>,
    limit: Option<u32>,
    whole: bool,
    retried: bool,
    token: Option<String>,
    pages: u32,
    list_version: String,
    seen: Seen,
}

/// The objects that a list or a watch-list has delivered.
#[derive(Default)]
struct Seen {
    things: BTreeMap<String, Thing>,
    gaps: BTreeSet<String>,
    any: bool,
    /// The keys of objects whose newest state could not be read. `things` has an older state.
    outdated: BTreeSet<String>,
}

/// The response to a list.
pub struct Page<'a> {
    pub items: &'a [Served],
    pub version: &'a str,
    pub token: Option<String>,
    /// Whether the connection breaks at the end.
    pub breaks: bool,
    /// The length of each item, and whether it arrives completely.
    pub received: Vec<bool>,
    /// Whether the body arrives completely.
    pub whole: bool,
    pub started: u64,
    pub ended: u64,
}

/// The response to a watch.
pub struct Stream<'a> {
    pub frames: &'a [Frame],
    /// The number of bytes of each frame that arrive, and its length.
    pub received: Vec<(usize, usize)>,
    pub end: End,
    pub started: u64,
    pub ended: u64,
    /// The longest silence of a watch in milliseconds.
    pub patience: u64,
}

impl Model {
    pub fn new(settings: Settings) -> Self {
        let mut model = Self {
            settings,
            cache: BTreeMap::new(),
            version: String::new(),
            synced: false,
            complete: false,
            unreadable: 0,
            next: Step::Watch,
            unavailable: false,
            paginated: false,
            unfinished: 0,
            short_watches: 0,
            watch_list_from: 0,
            broken_at: None,
            backoff: FIRST_BACKOFF,
            bookmarks_come: false,
            quiet: 0,
            silent_lists: 0,
            repair: Repair::new(),
            listing: Listing::default(),
        };
        model.new_cycle(0);
        model
    }

    /// Returns the minimum version that a watch-list requests.
    pub fn watch_list_version(&self) -> Option<String> {
        let version = (!self.unavailable).then(|| self.version.clone());
        version.filter(|version| !version.is_empty())
    }

    fn new_cycle(&mut self, now: u64) {
        (self.unfinished, self.short_watches) = (0, 0);
        let Settings {
            supports_watch_list,
            watch_list,
            ..
        } = self.settings;
        if supports_watch_list && watch_list && now >= self.watch_list_from {
            self.next = Step::WatchList;
        } else {
            self.begin_list();
        }
    }

    fn begin_list(&mut self) {
        let version = match self.version.as_str() {
            _ if self.unavailable => None,
            "" => Some("0".to_owned()),
            version => Some(version.to_owned()),
        };
        let any = matches!(version.as_deref(), None | Some("0"));
        let limit = match self.settings.page_size {
            0 => (self.paginated || any).then_some(500),
            size => Some(size),
        };
        self.listing = Listing {
            version,
            limit,
            ..Listing::default()
        };
        self.list();
    }

    /// Requests a list or its next page.
    fn list(&mut self) {
        if self.listing.token.is_none() {
            self.repair.recorded.clear();
        }
        let Listing {
            version,
            token,
            whole,
            limit,
            ..
        } = &self.listing;
        self.next = Step::List(ListRequest {
            version: if token.is_none() {
                version.clone()
            } else {
                None
            },
            token: token.clone(),
            limit: if *whole { None } else { *limit },
        });
    }

    fn wait(&mut self, at_least: u64, then: Then) {
        let at_least = Duration::from_secs(at_least);
        let backoff = self.backoff;
        self.backoff = (backoff * 2).min(MAX_BACKOFF);
        self.next = Step::Wait(backoff.max(at_least), backoff.max(at_least), then);
    }

    pub fn waited(&mut self, then: Then, now: u64) {
        match then {
            Then::Cycle => self.new_cycle(now),
            Then::List => self.begin_list(),
            Then::Watch => self.next = Step::Watch,
            Then::WatchList => self.next = Step::WatchList,
        }
    }

    fn miss(&mut self, key: &str, now: u64) {
        self.repair.missed(key, now);
        self.unreadable += 1;
        self.complete = false;
    }

    fn read(&self, served: &Served) -> Read {
        match served.spoil {
            Spoil::WrongType => Read::Key,
            Spoil::Deep if self.settings.shallow => Read::Key,
            Spoil::Large if self.settings.small => Read::Key,
            Spoil::WrongTypeAside if !self.settings.skip => Read::Key,
            Spoil::NoName | Spoil::NameOfNoText => Read::Nothing,
            Spoil::NoJson => Read::Broken,
            _ => Read::Whole,
        }
    }

    /// Processes the failure of a list.
    pub fn list_failed(&mut self, failure: Failure) {
        use FailureKind::{Expired, Gone, TooLargeVersion};
        let had_token = self.listing.token.take().is_some();
        if had_token && !self.listing.whole && failure.kind == Expired {
            let Listing {
                version,
                limit,
                retried,
                ..
            } = std::mem::take(&mut self.listing);
            self.listing = Listing {
                version,
                limit,
                retried,
                whole: true,
                ..Listing::default()
            };
            self.list();
        } else if !self.listing.retried
            && (matches!(failure.kind, Expired | Gone | TooLargeVersion)
                || !had_token && failure.is_unacceptable_at(self.listing.version.as_deref()))
        {
            self.unavailable = true;
            let limit = self.listing.limit;
            self.listing = Listing {
                limit,
                retried: true,
                ..Listing::default()
            };
            self.list();
        } else {
            self.wait(failure.retry_after(), Then::Cycle);
        }
    }

    pub fn listed(&mut self, page: Page<'_>) {
        for (item, received) in page.items.iter().zip(&page.received) {
            if !received {
                break;
            }
            let key = item.thing.key.clone();
            match self.read(item) {
                Read::Whole => drop(self.listing.seen.things.insert(key, item.thing.clone())),
                Read::Key => {
                    self.miss(&key, page.started);
                    self.listing.seen.gaps.insert(key);
                }
                Read::Nothing | Read::Broken => {
                    self.listing.seen.any = true;
                    self.miss("", page.started);
                }
            }
        }
        if !page.whole || page.breaks {
            return self.list_failed(Failure::of(FailureKind::Connection));
        }
        self.listing.pages += 1;
        if self.listing.pages == 1 {
            page.version.clone_into(&mut self.listing.list_version);
        }
        if page.token.is_some() {
            self.listing.token = page.token;
            return self.list();
        }
        let Listing {
            pages,
            version,
            list_version,
            seen,
            ..
        } = std::mem::take(&mut self.listing);
        self.paginated |= pages > 1 && version.as_deref() == Some("0");
        self.replace(seen, list_version, page.ended);
        self.next = Step::Watch;
    }

    fn replace(&mut self, seen: Seen, version: String, now: u64) {
        let Seen {
            mut things,
            gaps,
            any,
            outdated,
        } = seen;
        self.complete = gaps.is_empty() && !any && outdated.is_empty();
        self.repair.listed(self.complete, now);
        for (key, thing) in std::mem::take(&mut self.cache) {
            if any || gaps.contains(&key) {
                things.entry(key).or_insert(thing);
            }
        }
        self.cache = things;
        self.version = version;
        self.quiet = 0;
        self.synced = true;
        self.unavailable = false;
        self.broken_at = None;
    }

    pub fn watch_failed(&mut self, failure: Failure) {
        self.unavailable |= failure.is_unacceptable_at(Some(&self.version));
        let waits = matches!(
            failure.kind,
            FailureKind::Connection | FailureKind::TooManyRequests
        );
        self.wait(
            failure.retry_after(),
            if waits { Then::Watch } else { Then::Cycle },
        );
    }

    pub fn watch_list_failed(&mut self, failure: Failure, now: u64) {
        use FailureKind::*;
        match failure.kind {
            Connection | TooManyRequests => {
                self.unfinished += u32::from(failure.kind == Connection);
                return match self.unfinished < 3 {
                    true => self.wait(failure.retry_after(), Then::WatchList),
                    false => self.begin_list(),
                };
            }
            Expired | Gone | TooLargeVersion if !self.unavailable => {
                self.unavailable = true;
                self.next = Step::WatchList;
                return;
            }
            Invalid | BadRequest => self.pause_watch_list(now),
            _ => {}
        }
        match failure.retry_after() {
            0 => self.begin_list(),
            seconds => self.wait(seconds, Then::List),
        }
    }

    fn pause_watch_list(&mut self, now: u64) {
        self.watch_list_from = now + WATCH_LIST_PAUSE;
    }

    /// Processes the response to a watch, or to a watch-list if `initial`.
    pub fn watched(&mut self, stream: Stream<'_>, initial: bool) {
        if !initial && self.repair.take_due(stream.started) {
            return self.new_cycle(stream.started);
        }
        if initial {
            self.repair.recorded.clear();
        }
        let ended = self.stream(&stream, initial);
        if self.next == Step::Watch && self.repair.take_due(ended) {
            self.new_cycle(ended);
        }
    }

    /// Processes the frames. Returns the time at which the watch ends.
    fn stream(&mut self, stream: &Stream<'_>, initial: bool) -> u64 {
        let mut watching = Watching {
            initial: initial.then(Seen::default),
            initial_version: String::new(),
            counts: !initial && !matches!(self.version.as_str(), "" | "0"),
            has_bookmark: false,
            events: 0,
        };
        for (frame, &(received, length)) in stream.frames.iter().zip(&stream.received) {
            // A change that is too large is skipped.
            let is_change = matches!(
                frame,
                Frame::Added(_) | Frame::Modified(_) | Frame::Deleted(_)
            );
            let too_large = self.settings.small && length > Settings::BYTES && !is_change;
            // Text without a newline ends at the end of the stream, so even a part of it is an
            // error then. Any other frame that is cut off is ignored.
            let is_text = matches!(frame, Frame::Garbage(Garbage::Text));
            let is_cut =
                received < length && !(is_text && received > 0 && stream.end != End::Silent);
            let result = match () {
                () if is_cut => break,
                () if too_large => Err(Broken::Frame),
                () => self.event(frame, &mut watching, stream.started),
            };
            if let Err(broken) = result {
                let now = match received < length {
                    true => stream.ended,
                    false => stream.started,
                };
                self.broken(broken, &watching, stream.started, now);
                return now;
            }
        }
        let is_silent = stream.end == End::Silent && watching.initial.is_none();
        if let Some(due) = self.repair.due.filter(|_| is_silent) {
            // The watch ends when the relist is due.
            self.note_health(&watching);
            self.next = Step::Watch;
            return due;
        }
        self.ended(stream, &watching);
        stream.ended
    }

    fn event(&mut self, frame: &Frame, watching: &mut Watching, now: u64) -> Result<(), Broken> {
        let served = match frame {
            Frame::Error(failure) => return Err(Broken::Error(*failure)),
            Frame::Garbage(_) => return Err(Broken::Frame),
            Frame::Bookmark { version, mark } => {
                if watching.initial.is_none() {
                    self.bookmarks_come |= std::mem::replace(&mut watching.has_bookmark, true);
                }
                watching.counts = true;
                if *mark && !version.is_empty() {
                    watching.initial_version.clear();
                }
                self.count(version, true, watching);
                if *mark && let Some(seen) = watching.initial.take() {
                    if watching.initial_version.is_empty() {
                        watching.initial = Some(seen);
                        return Err(Broken::Frame);
                    }
                    self.replace(seen, watching.initial_version.clone(), now);
                    watching.events = 0;
                }
                return Ok(());
            }
            Frame::Added(served) | Frame::Modified(served) | Frame::Deleted(served) => served,
        };
        let (added, deleted) = (
            matches!(frame, Frame::Added(_)),
            matches!(frame, Frame::Deleted(_)),
        );
        let is_other = self.settings.expected_kind && served.spoil == Spoil::OtherKind;
        if is_other {
            // In initial objects, an object of another kind may hide an expected object, so its key
            // counts as missed.
            let key = &served.thing.key;
            if let Some(seen) = &mut watching.initial {
                seen.miss(key);
                self.miss(key, now);
            }
            return Ok(());
        }
        let Served { thing, .. } = served;
        let read = self.read(served);
        match (&mut watching.initial, &read) {
            (_, Read::Broken) => return Err(Broken::Frame),
            (Some(seen), Read::Whole) if !deleted => seen.put(thing.clone()),
            (Some(seen), Read::Whole | Read::Key) if deleted => seen.remove(&thing.key),
            (Some(seen), Read::Key) => seen.miss(&thing.key),
            (Some(seen), _) => seen.any = true,
            (None, Read::Whole | Read::Key) if deleted => drop(self.cache.remove(&thing.key)),
            (None, Read::Whole) => drop(self.cache.insert(thing.key.clone(), thing.clone())),
            (None, _) => {}
        }
        let is_live = watching.initial.is_none();
        match read {
            Read::Whole if is_live => self.repair.received(&thing.key, now),
            Read::Whole => {}
            Read::Key => {
                self.miss(&thing.key, now);
                if deleted && is_live {
                    self.repair.received(&thing.key, now);
                }
            }
            Read::Nothing | Read::Broken => self.miss("", now),
        }
        // An object without a name does not count as an event.
        if served.spoil != Spoil::NoName {
            watching.counts |= !added;
            self.count(&thing.version, !added, watching);
        }
        Ok(())
    }

    fn count(&mut self, version: &str, not_added: bool, watching: &mut Watching) {
        watching.events += 1;
        self.quiet = 0;
        if watching.initial.is_none() {
            self.silent_lists = 0;
        }
        if version.is_empty() {
            return;
        }
        if watching.initial.is_some() {
            if not_added {
                watching.initial_version = newest(&watching.initial_version, version).to_owned();
            }
        } else if watching.counts {
            self.version = newest(&self.version, version).to_owned();
        }
    }

    fn broken(&mut self, broken: Broken, watching: &Watching, started: u64, now: u64) {
        self.note_health(watching);
        match broken {
            Broken::Error(failure) if watching.initial.is_some() => {
                self.watch_list_failed(failure, now);
            }
            Broken::Frame if watching.initial.is_some() => self.begin_list(),
            Broken::Error(failure) => match failure.kind {
                FailureKind::BadRequest | FailureKind::Invalid => {
                    self.unavailable |= failure.is_unacceptable_at(Some(&self.version));
                    self.wait(failure.retry_after(), Then::Cycle);
                }
                FailureKind::TooManyRequests => self.wait(failure.retry_after(), Then::Watch),
                _ => self.wait(failure.retry_after(), Then::Cycle),
            },
            Broken::Frame if self.broken_at.as_ref() == Some(&self.version) => {
                self.broken_at = None;
                self.wait(0, Then::Cycle);
            }
            Broken::Frame => {
                self.broken_at = Some(self.version.clone());
                self.reopen_watch(now - started);
            }
        }
    }

    /// A watch with an event is healthy, so the backoff is reset.
    fn note_health(&mut self, watching: &Watching) {
        if watching.initial.is_none() && watching.events > 0 {
            self.backoff = FIRST_BACKOFF;
        }
    }

    /// Opens the next watch. Nothing arrived in the last `silent` milliseconds of this one.
    fn watch_again(&mut self, silent: u64) {
        self.reopen_watch(silent);
        self.quiet += silent;
        let limit = if self.bookmarks_come {
            2 * QUIET
        } else {
            LONG_QUIET
        };
        if self.quiet >= limit << self.silent_lists {
            (self.quiet, self.bookmarks_come) = (0, false);
            self.silent_lists += 1;
            self.wait(0, Then::Cycle);
        }
    }

    fn ended(&mut self, stream: &Stream<'_>, watching: &Watching) {
        let is_initial = watching.initial.is_some();
        if stream.end == End::Silent {
            match is_initial {
                true => {
                    self.pause_watch_list(stream.ended);
                    self.begin_list();
                }
                false => {
                    self.note_health(watching);
                    let patience = stream.patience;
                    let silent = if self.bookmarks_come {
                        patience.min(QUIET)
                    } else {
                        patience
                    };
                    self.watch_again(silent);
                }
            }
            return;
        }
        let very_short = watching.events == 0 && stream.ended - stream.started < 1000;
        match (is_initial, very_short) {
            (true, true) => self.begin_list(),
            (true, false) => {
                self.unfinished += 1;
                if self.unfinished < 3 {
                    return self.wait(0, Then::WatchList);
                }
                self.pause_watch_list(stream.ended);
                self.begin_list();
            }
            (false, true) => self.wait(0, Then::Cycle),
            (false, false) => {
                self.backoff = FIRST_BACKOFF;
                self.watch_again(stream.ended - stream.started);
            }
        }
    }

    /// Schedules the next watch after one that was open for `was_open` milliseconds. After too many
    /// short watches, a wait comes first.
    fn reopen_watch(&mut self, was_open: u64) {
        self.short_watches = if was_open < SHORT {
            self.short_watches + 1
        } else {
            0
        };
        self.next = match self.short_watches > SHORT_WATCHES {
            true => {
                let left = Duration::from_millis(SHORT - was_open);
                Step::Wait(left, left, Then::Watch)
            }
            false => Step::Watch,
        };
    }
}

struct Watching {
    initial: Option<Seen>,
    initial_version: String,
    counts: bool,
    has_bookmark: bool,
    events: u64,
}

enum Broken {
    Error(Failure),
    Frame,
}

impl Seen {
    fn put(&mut self, thing: Thing) {
        self.remove(&thing.key);
        self.things.insert(thing.key.clone(), thing);
    }

    fn remove(&mut self, key: &str) {
        self.gaps.remove(key);
        self.outdated.remove(key);
        self.things.remove(key);
    }

    /// Records that the newest state of a key could not be read. An older state in `things` stays,
    /// because it is the newest readable one.
    fn miss(&mut self, key: &str) {
        let gaps = if self.things.contains_key(key) {
            &mut self.outdated
        } else {
            &mut self.gaps
        };
        gaps.insert(key.to_owned());
    }
}
