mod watch_ends;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decode::Decoder;
use super::listing::{Listed, Listing, Retry, is_no_older};
use super::repair::Repair;
use super::undecodable::{UndecodableList, Undecoded};
use super::watching::{Initial, RetryWindow, Watching};
use super::{Decode, Recycle, ReflectorOptions};
use crate::error::Error;
use crate::object::{Key, Object};
use crate::store::{ReflectorStore, StagedList};
use crate::time::{Backoff, Random};
use crate::wire::{FrameSplitter, ListOptions, ResourceVersionMatch, Shard};

/// A server ends a watch at its time; one that is silent for longer is dead.
pub(crate) const SLACK: Duration = Duration::from_secs(30);

/// After a longer wait an API server may have been restarted, with another etcd, and nothing else shows it.
const OUTAGE: Duration = Duration::from_secs(1);

/// The longest time that a server may ask to be left alone: a garbled one must not be the end of the view.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// The protocol of a reflector without threads, sockets and clocks: it says what to do next, is told what
/// came of it, and writes what it learns to the store.
///
/// Whoever drives it asks for the [`step`](Self::step), carries it out, and tells the outcome by the method
/// that fits: [`opened`](Self::opened) after a request, [`received`](Self::received),
/// [`silent`](Self::silent) and [`ended`](Self::ended) while the step is to read, and
/// [`waited`](Self::waited) after a wait. When the step is no longer to read, the body that was read is to be
/// dropped.
pub(super) struct Machine<'a, T> {
    settings: Settings,
    pub(super) decoder: Decoder<T>,
    /// Where the version of an object stands while the store takes the object. Kept for the next one.
    pub(super) room_for_a_version: String,
    phase: Phase<T>,
    /// The version of the last list, event or bookmark, empty before the first. client-go's
    /// `lastSyncResourceVersion`.
    pub(super) version: String,
    synced: bool,
    /// Set from the first list on, if none of its objects could be decoded, until a list has one that can.
    undecodable: Option<UndecodableList>,
    /// How many objects the last list or watch-list had that reached the store.
    received: usize,
    /// Lists that have reached the store.
    replaced: u64,
    /// Whether the server is known to pick the objects of the shard, if there is one, or not to.
    pub(super) shard_applied: Option<bool>,
    /// The last version can't be listed any more: ask for the most recent one (L8, L11).
    pub(super) version_unavailable: bool,
    /// Whether each version that the store was given still stands for the same state on the server: nothing
    /// since the last list that was decoded in full has hinted that etcd was restored. While it is false,
    /// every object is decoded.
    pub(super) history_is_known: bool,
    /// A list at "0" came in pages: the server has no watch cache, so always ask for pages (L10).
    paginated: bool,
    /// How many watch-lists of this cycle have ended before their time, and until when none is asked for.
    unfinished: u32,
    watch_list_from: Option<Instant>,
    /// How many watches of this cycle in a row have ended within a second.
    short_watches: u32,
    /// Whether the server is known to send bookmarks every now and then.
    pub(super) bookmarks_come: bool,
    /// For how long watches have been silent since the last event or list, and how many lists the silence has
    /// led to since the last event.
    pub(super) quiet: Duration,
    pub(super) silent_lists: u32,
    /// The version at which a frame could not be decoded: if it happens there again, resuming does not help.
    broken_at: Option<String>,
    internal_errors: RetryWindow,
    backoff: Backoff,
    random: Random,
    pub(super) view: View,
    /// Lists again while objects are missing.
    pub(super) repair: Repair,
    /// The time of the last call, for `repair`.
    pub(super) now: Instant,
    reports: Vec<Report>,
    /// What the bytes are of that are looked at right now, for the reports.
    reading: Option<&'static str>,
    /// Called just before a list reaches the store: what the store triggers may read the status.
    before_replace: Option<&'a BeforeReplace<'a, T>>,
}

/// Publishes the outcome of a list.
type BeforeReplace<'a, T> = dyn Fn(&Machine<'a, T>, &ListOutcome<'_>) + 'a;

/// What a list or a watch-list has brought.
pub(super) struct ListOutcome<'a> {
    pub(super) version: &'a str,
    pub(super) received: usize,
    pub(super) complete: bool,
    pub(super) undecodable: Option<&'a UndecodableList>,
}

struct Settings {
    page_size: Option<u32>,
    min_watch_timeout: Duration,
    watch_idle_timeout: Option<Duration>,
    watch_list: bool,
    reuse_unchanged: bool,
    /// Of the shard; empty for everything.
    shard_selector: String,
}

/// How much of what the server told could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// All of it since the last list.
    pub(super) complete: bool,
    /// How many objects could not, ever.
    pub(super) unreadable: u64,
}

impl View {
    /// Another one could not.
    pub(super) fn miss(&mut self) {
        self.complete = false;
        self.unreadable += 1;
    }
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Open a LIST.
    List(ListOptions),
    /// Open a WATCH.
    Watch(ListOptions),
    /// Read from the body of what was opened, and wait for bytes no longer than this.
    Read(Option<Duration>),
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
    /// Whether nothing failed but the reading of an object.
    pub(super) unreadable: bool,
}

enum Phase<T> {
    List(Listing<T>),
    ListBody(Listing<T>),
    Watch,
    WatchList,
    WatchBody(Watching<T>),
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

/// What follows a wait.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    /// A new cycle: a watch-list, or a list.
    Cycle,
    List,
    Watch,
    WatchList,
}

impl<'a, T: Object> Machine<'a, T> {
    /// Calls this with the outcome of each list, before the list reaches the store.
    pub(super) fn before_replace(&mut self, call: &'a BeforeReplace<'a, T>) {
        self.before_replace = Some(call);
    }

    /// Where objects come back from, to be dropped.
    pub(super) fn recycle(&mut self, recycle: Option<Arc<dyn Recycle>>) {
        self.decoder.recycle(recycle);
    }

    /// `watch_list`: whether whoever drives it can ask for one.
    pub(super) fn new(
        decode: Decode<T>,
        options: &ReflectorOptions,
        watch_list: bool,
        now: Instant,
    ) -> Self {
        let mut machine = Self {
            settings: Settings {
                page_size: options.page_size,
                min_watch_timeout: options
                    .min_watch_timeout
                    .max(ReflectorOptions::MIN_WATCH_TIMEOUT),
                // Zero would ask for watches without a pause.
                watch_idle_timeout: options
                    .watch_idle_timeout
                    .filter(|timeout| !timeout.is_zero()),
                watch_list: watch_list && options.watch_list,
                reuse_unchanged: options.reuse_unchanged,
                shard_selector: options
                    .shard
                    .as_ref()
                    .map(Shard::selector)
                    .unwrap_or_default(),
            },
            decoder: Decoder::new(decode, options),
            room_for_a_version: String::new(),
            phase: Phase::Watch,
            version: String::new(),
            synced: false,
            undecodable: None,
            received: 0,
            replaced: 0,
            shard_applied: None,
            version_unavailable: false,
            history_is_known: false,
            paginated: false,
            unfinished: 0,
            watch_list_from: None,
            short_watches: 0,
            bookmarks_come: false,
            quiet: Duration::ZERO,
            silent_lists: 0,
            broken_at: None,
            internal_errors: RetryWindow::new(options.internal_error_retry),
            backoff: options.backoff.clone(),
            random: Random::new(),
            view: View::default(),
            repair: Repair::new(options.backoff.clone()),
            now,
            reports: Vec::new(),
            reading: None,
            before_replace: None,
        };
        match options.start_jitter {
            Duration::ZERO => machine.new_cycle(now),
            most => machine.phase = Phase::Wait(most.mul_f64(machine.random.unit()), Next::Cycle),
        }
        machine
    }

    /// What to do next.
    pub(super) fn step(&mut self) -> Step {
        let watch_options = ListOptions {
            allow_watch_bookmarks: true,
            timeout_seconds: Some(self.watch_timeout()),
            ..ListOptions::default()
        };
        let shard_selector = || self.settings.shard_selector.clone();
        match &self.phase {
            Phase::List(listing) => Step::List(ListOptions {
                shard_selector: shard_selector(),
                ..listing.options()
            }),
            Phase::ListBody(_) => Step::Read(None),
            Phase::WatchBody(watching) => Step::Read(Some(self.patience(watching))),
            Phase::Wait(duration, _) => Step::Wait(*duration),
            Phase::Watch => Step::Watch(ListOptions {
                resource_version: Some(self.version.clone()),
                shard_selector: shard_selector(),
                ..watch_options
            }),
            // WL2: never older than what has been seen; that is a consistent read if nothing has been.
            Phase::WatchList => Step::Watch(ListOptions {
                resource_version: (!self.version_unavailable).then(|| self.version.clone()),
                resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
                send_initial_events: true,
                shard_selector: shard_selector(),
                ..watch_options
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

    /// How many lists have reached the store.
    pub(super) fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Whether it works: a watch is open and has brought something.
    pub(super) fn is_well(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watching) if watching.initial.is_none() && watching.events > 0)
    }

    /// The first list, if none of its objects could be decoded.
    pub(super) fn undecodable(&self) -> Option<&UndecodableList> {
        self.undecodable.as_ref()
    }

    /// How much of what the server told could be read.
    pub(super) fn view(&self) -> View {
        self.view
    }

    /// Whether it watches, or is about to: the time in which resyncs happen (W13).
    pub(super) fn is_watching(&self) -> bool {
        match &self.phase {
            Phase::Watch | Phase::Wait(_, Next::Watch) => true,
            Phase::WatchBody(watching) => watching.initial.is_none(),
            _ => false,
        }
    }

    /// Whether what is open, or will be next, can become the watch of this cycle.
    pub(super) fn is_streaming(&self) -> bool {
        self.is_watching() || matches!(self.phase, Phase::WatchList | Phase::WatchBody(_))
    }

    /// How it asks for what there is, as long as it does.
    pub(super) fn listing(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::List(_) | Phase::ListBody(_) => Some("list"),
            Phase::WatchList => Some("watch-list"),
            Phase::WatchBody(watching) => watching.initial.as_ref().map(|_| "watch-list"),
            Phase::Watch | Phase::Wait(..) => None,
        }
    }

    /// Whether a watch is open: the view is as fresh as it can be.
    pub(super) fn has_open_watch(&self) -> bool {
        matches!(&self.phase, Phase::WatchBody(watching) if watching.initial.is_none())
    }

    /// How many objects of the list under way have come, and how many there are in all, where the server
    /// tells.
    pub(super) fn list_progress(&self) -> Option<(usize, Option<usize>)> {
        match &self.phase {
            Phase::List(listing) | Phase::ListBody(listing) => Some(listing.progress()),
            Phase::WatchList => Some((0, None)),
            Phase::WatchBody(Watching {
                initial: Some(initial),
                ..
            }) => Some((initial.received(), None)),
            _ => None,
        }
    }

    /// Whether the server is known to pick the objects of the shard.
    pub(super) fn shard_applied(&self) -> Option<bool> {
        self.shard_applied
    }

    /// How many objects the last list had that reached the store.
    pub(super) fn received_objects(&self) -> usize {
        self.received
    }

    /// The last thing that went wrong and has not been taken by [`reports`](Self::reports).
    pub(super) fn last_report(&self) -> Option<&Report> {
        self.reports.last()
    }

    /// What has gone wrong since the last call.
    pub(super) fn reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// The request has been answered, or not. `started` is when it was made, `timeout` what the server was
    /// told about the end of a watch.
    pub(super) fn opened(
        &mut self,
        result: Result<(), Error>,
        timeout: Option<u32>,
        started: Instant,
        now: Instant,
    ) {
        self.now = now;
        match (std::mem::replace(&mut self.phase, Phase::Watch), result) {
            (Phase::List(listing), Ok(())) => self.phase = Phase::ListBody(listing),
            (Phase::List(listing), Err(error)) => self.list_failed(listing, error),
            (Phase::Watch, Ok(())) => {
                let counts = !matches!(self.version.as_str(), "" | "0");
                self.watch_opened(timeout, started, counts, None);
            }
            (Phase::Watch, Err(error)) => self.watch_refused(error),
            (Phase::WatchList, Ok(())) => {
                // As of a list, if it can be told in the end that the versions did not go back.
                let reuse = self
                    .since()
                    .is_some_and(|since| is_no_older(&since, &since));
                self.watch_opened(timeout, started, false, Some(Initial::new(reuse)));
            }
            (Phase::WatchList, Err(error)) => self.watch_list_failed(error, now),
            (phase, _) => self.phase = phase,
        }
        self.relist_if_due();
    }

    /// Bytes of the body have come.
    pub(super) fn received(&mut self, bytes: &[u8], store: &dyn ReflectorStore<T>, now: Instant) {
        self.now = now;
        self.reading = self.phase.reading();
        match std::mem::replace(&mut self.phase, Phase::Watch) {
            Phase::ListBody(mut listing) => {
                let fed = listing.feed(bytes, &mut self.decoder, store);
                self.report_unreadable_of(&mut listing);
                match fed {
                    Ok(()) => self.phase = Phase::ListBody(listing),
                    Err(error) => self.list_failed(listing, error),
                }
            }
            Phase::WatchBody(mut watching) => {
                watching.silent = Duration::ZERO;
                let read = self.read_frames(&mut watching, store, now, |frames, event| {
                    frames.feed(bytes, event)
                });
                match read {
                    Ok(()) => self.phase = Phase::WatchBody(watching),
                    Err(broken) => self.watch_broken(broken, &watching, now),
                }
            }
            phase => self.phase = phase,
        }
        self.reading = None;
        self.relist_if_due();
    }

    /// Nothing has come for as long as the step said.
    pub(super) fn silent(&mut self, now: Instant) {
        self.reading = self.phase.reading();
        match std::mem::replace(&mut self.phase, Phase::Watch) {
            Phase::WatchBody(mut watching) => {
                let patience = self.patience(&watching);
                watching.silent += patience;
                if patience < watching.patience(self.expects_bookmarks()) {
                    // It was cut short for a relist.
                    self.phase = Phase::WatchBody(watching);
                } else {
                    self.watch_silent(watching, now);
                }
                self.now = now;
            }
            phase => self.phase = phase,
        }
        self.reading = None;
        self.relist_if_due();
    }

    /// The body has come to its end, or the connection broke.
    pub(super) fn ended(
        &mut self,
        result: Result<(), Error>,
        store: &dyn ReflectorStore<T>,
        now: Instant,
    ) {
        self.now = now;
        self.reading = self.phase.reading();
        match (std::mem::replace(&mut self.phase, Phase::Watch), result) {
            (Phase::ListBody(mut listing), Ok(())) => {
                let page = listing.page_end(&self.decoder, store);
                self.report_unreadable_of(&mut listing);
                match page {
                    Ok(None) => self.phase = Phase::List(listing),
                    Ok(Some(listed)) => self.listed(listed, listing.undecoded, store),
                    Err(error) => self.list_failed(listing, error),
                }
            }
            (Phase::ListBody(listing), Err(error)) => self.list_failed(listing, error),
            (Phase::WatchBody(mut watching), result) => {
                let read = self.read_frames(&mut watching, store, now, |frames, event| {
                    frames.finish(event)
                });
                match read {
                    Ok(()) => self.watch_ended(&watching, result, now),
                    Err(broken) => self.watch_broken(broken, &watching, now),
                }
            }
            (phase, _) => self.phase = phase,
        }
        self.reading = None;
        self.relist_if_due();
    }

    /// The wait is over.
    pub(super) fn waited(&mut self, now: Instant) {
        if let Phase::Wait(waited, next) = self.phase {
            self.history_is_known &= waited <= OUTAGE;
            match next {
                Next::Cycle => self.new_cycle(now),
                Next::List => self.begin_list(),
                Next::Watch => self.phase = Phase::Watch,
                Next::WatchList => self.phase = Phase::WatchList,
            }
        }
    }

    /// A resync failed (W13), or a step was cut short by a panic: whatever was under way, a new cycle begins
    /// after a back-off.
    pub(super) fn given_up(&mut self, why: Error) {
        self.report(why, false);
        self.reading = None;
        self.end_cycle(None);
    }

    /// A new cycle: what there is, by a watch-list or a list, and then its changes (L6).
    fn new_cycle(&mut self, now: Instant) {
        self.internal_errors.forget();
        (self.unfinished, self.short_watches) = (0, 0);
        if self.settings.watch_list && self.watch_list_from.is_none_or(|from| now >= from) {
            self.phase = Phase::WatchList;
        } else {
            self.begin_list();
        }
    }

    fn begin_list(&mut self) {
        // L8: never older than what has been seen, unless that can't be had.
        let version = match self.version.as_str() {
            _ if self.version_unavailable => None,
            "" => Some("0".to_owned()),
            version => Some(version.to_owned()),
        };
        let Settings { page_size, .. } = self.settings;
        let limits = self.decoder.limits();
        self.phase = Phase::List(Listing::new(
            version,
            page_size,
            self.paginated,
            self.since(),
            limits,
        ));
    }

    /// The version of what the store has, if that may be kept where it has not changed.
    fn since(&self) -> Option<String> {
        (self.history_is_known && self.settings.reuse_unchanged).then(|| self.version.clone())
    }

    /// A request or a stream has failed. Unless the server has answered the request itself, another one may be
    /// in its place now: etcd is restored while its API servers are down, so a lost connection can be the only
    /// sign of it.
    pub(super) fn doubt_history(&mut self, error: &Error) {
        self.history_is_known &=
            error.status().is_some() && !error.is_gone() && !error.is_retryable();
    }

    fn list_failed(&mut self, mut listing: Listing<T>, error: Error) {
        self.doubt_history(&error);
        match listing.retry(&error) {
            Retry::No => {
                let retry_after = error.retry_after();
                self.report(error, true);
                self.end_cycle(retry_after);
            }
            retry => {
                self.version_unavailable |= retry == Retry::MostRecent;
                self.phase = Phase::List(listing);
            }
        }
    }

    fn listed(&mut self, listed: Listed<T>, undecoded: Undecoded, store: &dyn ReflectorStore<T>) {
        let Listed {
            list,
            elsewhere,
            picked,
            paginated_at_zero,
        } = listed;
        self.version_unavailable = false;
        self.paginated |= paginated_at_zero;
        if !self.settings.shard_selector.is_empty() {
            self.shard_applied = Some(picked && elsewhere == 0);
        }
        let received = list.objects.len() + elsewhere;
        match self.replace(list, received, true, undecoded, store) {
            Ok(()) => self.phase = Phase::Watch,
            Err(error) => {
                self.report(error, true);
                self.end_cycle(None);
            }
        }
    }

    pub(super) fn replace(
        &mut self,
        list: StagedList<T>,
        received: usize,
        up_to_date: bool,
        undecoded: Undecoded,
        store: &dyn ReflectorStore<T>,
    ) -> Result<(), Error> {
        let (version, no_gaps) = (list.resource_version.clone(), list.gaps.is_empty());
        let complete = no_gaps && up_to_date;
        let never_decoded = (!self.synced || self.undecodable.is_some()) && list.objects.is_empty();
        let undecodable = if never_decoded {
            undecoded.into_list(std::any::type_name::<T>())
        } else {
            None
        };
        self.history_is_known &= is_no_older(&version, &self.version);
        // An object that stays in a gap may be of another history.
        let keeps_none = no_gaps
            || store
                .staging()
                .is_some_and(|staging| list.gaps.are_empty_in(staging));
        if let Some(before_replace) = self.before_replace {
            let undecodable = undecodable.as_ref();
            before_replace(
                self,
                &ListOutcome {
                    version: &version,
                    received,
                    complete,
                    undecodable,
                },
            );
        }
        let replaced = match store.staging() {
            Some(staging) => staging.replace_staged(list),
            None if no_gaps => store.replace(
                list.objects.into_iter().map(|(_, object)| object).collect(),
                &version,
            ),
            None => {
                return Err(Error::decode(
                    "objects of the list can't be read, and the store has no staging",
                ));
            }
        };
        replaced.map_err(|error| Error::other(format!("unable to sync list result: {error}")))?;
        self.version = version;
        self.history_is_known |= keeps_none;
        self.quiet = Duration::ZERO;
        self.synced = true;
        self.undecodable = undecodable;
        self.replaced += 1;
        self.received = received;
        self.broken_at = None;
        self.view.complete = complete;
        self.repair.listed(complete, self.now);
        Ok(())
    }

    fn watch_opened(
        &mut self,
        timeout: Option<u32>,
        started: Instant,
        versions_count: bool,
        initial: Option<Initial<T>>,
    ) {
        let timeout = Duration::from_secs(timeout.unwrap_or_default().into());
        self.phase = Phase::WatchBody(Watching {
            frames: FrameSplitter::new(self.decoder.limits().object_bytes),
            started,
            heard: started,
            due: started + timeout,
            events: 0,
            versions_count,
            idle_timeout: self.settings.watch_idle_timeout.unwrap_or(timeout + SLACK),
            silent: Duration::ZERO,
            last_bookmark: None,
            initial,
        });
    }

    /// How long to wait for bytes.
    fn patience(&self, watching: &Watching<T>) -> Duration {
        let patience = watching.patience(self.expects_bookmarks());
        let relist = self
            .repair
            .time_left(self.now)
            .filter(|_| watching.initial.is_none());
        relist.map_or(patience, |relist| relist.min(patience))
    }

    /// Lists again, instead of watching, if an object is missing and it is time to try again.
    fn relist_if_due(&mut self) {
        let events = match &self.phase {
            Phase::Watch => 0,
            Phase::WatchBody(watching) if watching.initial.is_none() => watching.events,
            _ => return,
        };
        if !self.repair.take_due(self.now) {
            return;
        }
        if events > 0 {
            self.backoff.reset();
        }
        self.new_cycle(self.now);
    }

    /// Whether a silence without bookmarks says something; not where the user says how long it may be.
    fn expects_bookmarks(&self) -> bool {
        self.bookmarks_come && self.settings.watch_idle_timeout.is_none()
    }

    /// The cycle is over: a wait, and then the next one (L1).
    fn end_cycle(&mut self, at_least: Option<Duration>) {
        self.wait(at_least, Next::Cycle);
    }

    fn wait(&mut self, at_least: Option<Duration>, next: Next) {
        let wait = self
            .backoff
            .step()
            .max(at_least.unwrap_or_default().min(RETRY_AFTER));
        self.phase = Phase::Wait(wait, next);
    }

    pub(super) fn report(&mut self, error: Error, to_handler: bool) {
        self.reports.push(Report {
            error,
            to_handler,
            reading: self.reading,
            unreadable: false,
        });
    }

    /// An object, or a change of one, could not be read or stored.
    pub(super) fn report_missed(&mut self, key: Option<Key>, error: Error) {
        self.view.miss();
        self.repair.missed(key, self.now);
        self.reports.push(Report {
            error,
            to_handler: false,
            reading: self.reading,
            unreadable: true,
        });
    }

    /// Between the shortest and twice that, so that the watches of many clients do not end together (W1).
    fn watch_timeout(&mut self) -> u32 {
        let seconds = self.settings.min_watch_timeout.as_secs_f64() * (1.0 + self.random.unit());
        seconds as u32
    }
}
