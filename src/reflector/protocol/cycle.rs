use std::sync::Arc;
use std::time::{Duration, Instant};

use super::list::Listed;
use super::output::{Report, ReportKind};
use super::repair::{Completeness, Repair};
use super::waits::Waits;
use crate::error::{Error, MAX_RETRY_AFTER};
use crate::reflector::{Missing, ReflectorOptions};
use crate::resource_version::ResourceVersion;
use crate::time::{Backoff, Random};
use crate::wire::{ListOptions, Shard};

/// The minimum duration of a watch (W1).
pub(super) const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// The time without watch-list requests to a server that does not support them.
const WATCH_LIST_PAUSE: Duration = Duration::from_secs(600);

/// What outlives a phase.
pub(super) struct Cycle {
    pub(super) options: ReflectorOptions,
    pub(super) version: LastVersion,
    pub(super) server: ServerBehavior,
    pub(super) watches: PastWatches,
    pub(super) repair: Repair,
    pub(super) waits: Waits,
    /// The delays between attempts (L2, L4).
    pub(super) backoff: Backoff,
    random: Random,
    /// The time that was passed to the last method call.
    pub(super) now: Instant,
    pub(super) reports: Vec<Report>,
}

/// The version from which the next request continues.
#[derive(Default)]
pub(super) struct LastVersion {
    /// The version of the last list, or the newest one of the events and bookmarks since then.
    /// `None` before the first list, and if the server sends no versions. client-go's
    /// `lastSyncResourceVersion`.
    pub(super) seen: Option<ResourceVersion>,
    /// Whether it cannot be listed. The next list then requests the most recent state (L8, L11).
    pub(super) is_unavailable: bool,
}

/// What the server has shown so far.
#[derive(Default)]
pub(super) struct ServerBehavior {
    /// Whether the server is known to send bookmarks regularly.
    pub(super) sends_bookmarks: bool,
    /// Whether a list at "0" had several pages. The server then has no watch cache, so all lists
    /// request pages (L10).
    pub(super) paginates_at_zero: bool,
    /// The time before which no watch-list is requested.
    pub(super) watch_list_paused_until: Option<Instant>,
}

/// What the watches since the last list, or at the last version, have shown.
#[derive(Default)]
pub(super) struct PastWatches {
    /// The number of consecutive watches in this cycle that ended within a second.
    pub(super) short: u32,
    /// The time without events since the last event or list, in watches that have ended.
    pub(super) silence: Duration,
    /// The number of lists since the last event that were caused by silence.
    pub(super) silent_lists: u32,
    /// The last frame that could not be decoded. If there is another one at the same version,
    /// resuming the watch does not help.
    pub(super) broken_frame: Option<BrokenFrame>,
}

/// A frame that could not be decoded.
pub(super) struct BrokenFrame {
    /// The last version before it.
    pub(super) after: Option<ResourceVersion>,
}

/// Why objects are listed again although the watch can continue.
pub(super) enum Relist {
    /// Waits require a consistent list.
    ForWaits,
    /// An object is missing, or the store may have deleted objects.
    Repair,
}

impl LastVersion {
    /// Whether there is a version other than "0", so that a server may reject it.
    pub(super) fn is_specific(&self) -> bool {
        self.seen.as_ref().is_some_and(|version| !version.is_any())
    }

    /// Makes the next list request the most recent state, if the server may have rejected the
    /// version.
    pub(super) fn suspect(&mut self, error: &Error) {
        self.is_unavailable |= self.is_specific() && error.is_unacceptable_request();
    }

    /// The state that a list requests. It must not be older than a version seen before, unless that
    /// version is unavailable (L8). `first` is the state of the first list.
    pub(super) fn of_list(&self, first: Listed) -> Listed {
        if self.is_unavailable {
            return Listed::Consistent;
        }
        match &self.seen {
            Some(version) if version.is_any() => Listed::AnyVersion,
            Some(version) => Listed::AtLeast(version.clone()),
            None => first,
        }
    }

    /// The state that a watch-list requests. It must not be older than a version seen before.
    /// Before the first version, or if the last version is unavailable, the request is a consistent
    /// read (WL2).
    pub(super) fn of_watch_list(&self) -> Listed {
        match &self.seen {
            Some(version) if !self.is_unavailable => Listed::AtLeast(version.clone()),
            _ => Listed::Consistent,
        }
    }
}

impl Cycle {
    pub(super) fn new(options: ReflectorOptions, missing: Arc<Missing>, now: Instant) -> Self {
        Self {
            version: LastVersion::default(),
            server: ServerBehavior::default(),
            watches: PastWatches::default(),
            repair: Repair::new(missing, options.backoff.clone()),
            waits: Waits::default(),
            backoff: options.backoff.clone(),
            random: Random::new(),
            now,
            reports: Vec::new(),
            options,
        }
    }

    /// Returns whether objects must be listed again now instead of watching them, and why. If so, a
    /// relist for repair counts as done.
    pub(super) fn take_due_relist(&mut self) -> Option<Relist> {
        // The watch has not brought what waits require: only a consistent list will do.
        let list_at = self.waits.list_at(self.now);
        if list_at.is_some_and(|at| at <= self.now) {
            return Some(Relist::ForWaits);
        }
        self.repair.update(self.now);
        self.repair.take_due(self.now).then_some(Relist::Repair)
    }

    /// Records that the store has a list at this version.
    pub(super) fn listed(&mut self, version: Option<ResourceVersion>, completeness: Completeness) {
        self.version = LastVersion {
            seen: version,
            is_unavailable: false,
        };
        self.waits.listed();
        self.waits.reached(self.version.seen.as_ref());
        self.watches.silence = Duration::ZERO;
        self.watches.broken_frame = None;
        self.repair.listed(completeness, self.now);
    }

    /// Requests no watch-list for some time.
    pub(super) fn pause_watch_lists(&mut self) {
        self.server.watch_list_paused_until = self.now.checked_add(WATCH_LIST_PAUSE);
    }

    /// Returns the time to wait before the next attempt (L1): the next back-off, or `at_least` if that
    /// is longer. `at_least` counts only up to [`MAX_RETRY_AFTER`].
    pub(super) fn back_off(&mut self, at_least: Option<Duration>) -> Duration {
        let at_least = at_least.unwrap_or_default().min(MAX_RETRY_AFTER);
        self.backoff.step().max(at_least)
    }

    /// Reports a failure. Returns the time to wait after it.
    pub(super) fn fail(
        &mut self,
        error: Error,
        kind: ReportKind,
        reading: Option<&'static str>,
    ) -> Duration {
        let retry_after = error.retry_after();
        self.report(error, kind, reading);
        self.back_off(retry_after)
    }

    /// Adds a report. `reading` is what was being read, see [`Report::reading`].
    pub(super) fn report(&mut self, error: Error, kind: ReportKind, reading: Option<&'static str>) {
        self.reports.push(Report {
            error,
            kind,
            reading,
        });
    }

    /// Returns the options that watches and watch-lists share. The timeout is between one and two
    /// times the minimum, so that watches do not end at the same time.
    pub(super) fn watch_options(&mut self) -> ListOptions {
        let seconds = MIN_WATCH_TIMEOUT.as_secs_f64() * (1.0 + self.random.unit());
        ListOptions {
            allow_watch_bookmarks: true,
            timeout_seconds: Some(seconds as u32),
            shard_selector: self.shard_selector(),
            ..ListOptions::default()
        }
    }

    /// Returns the selector of the requests. `None` without a shard, and for a shard by controller,
    /// whose objects no server selects.
    pub(super) fn shard_selector(&self) -> Option<String> {
        self.options.shard.as_ref().and_then(Shard::selector)
    }

    /// The time until then. At least a millisecond, because zero is not a valid read timeout.
    pub(super) fn time_left(&self, until: Instant) -> Duration {
        let left = until.saturating_duration_since(self.now);
        left.max(Duration::from_millis(1))
    }
}
