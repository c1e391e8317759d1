//! The status, the log and the callbacks of a reflector.

use std::time::Instant;

use super::Feed;
use crate::log;
use crate::object::Object;
use crate::reflector::protocol::{Report, ReportKind};
use crate::reflector::run::{LONG_LIST, Outlook};
use crate::reflector::{ReflectorState, ReflectorStatus};
use crate::resource_version::ResourceVersion;

/// What the steps of a feed leave to publish and to report.
#[derive(Default)]
pub(super) struct Outcome {
    /// What [`publish`](Feed::publish) copies.
    pub(super) status: ReflectorStatus,
    unreported: Vec<(Report, Outlook)>,
    /// The list or watch-list of the last step, and when it began; for the log.
    listing: Option<(&'static str, Instant)>,
}

impl<T: Object> Feed<T> {
    /// Publishes the status, and ends the waits for what the queue has received.
    pub(crate) fn publish(&mut self) {
        self.update_status();
        self.copy_status();
        let catch_up = &self.reflector.core.catch_up;
        catch_up.release(self.protocol.version());
    }

    /// Passes failures to the log and to the callbacks, which are user code: call it when nothing waits
    /// for this thread.
    pub(crate) fn report(&mut self) {
        let core = &self.reflector.core;
        let is_healthy = self.protocol.is_healthy();
        let recovered = {
            let mut logged = core.logged.lock();
            if self.protocol.is_complete() && core.missing.is_empty() {
                logged.forget_unreadable();
            }
            is_healthy.then(|| logged.take_summary()).flatten()
        };
        if let Some(failures) = recovered {
            log::info!("{}: recovered after {failures}", self.reflector.name());
        }
        for (report, outlook) in std::mem::take(&mut self.outcome.unreported) {
            self.reflector.notify_failure(&report, outlook);
        }
    }

    /// Brings the status up to date with the protocol.
    fn update_status(&mut self) {
        let (protocol, status) = (&mut self.protocol, &mut self.outcome.status);
        let is_first = protocol.lists == 0;
        let reports = protocol.take_reports();
        if status.resource_version.as_ref() != protocol.version() {
            status.resource_version = protocol.version().cloned();
        }
        if protocol.listing().is_some() {
            // A server that applies the shard counts the objects of all shards, and it may not
            // confirm the shard.
            let has_no_shard = self.reflector.core.options.shard.is_none();
            let is_of_list = has_no_shard || self.initial.other_shard > 0;
            let left = protocol.remaining().filter(|_| is_of_list);
            let left = left.and_then(|count| usize::try_from(count).ok());
            status.state = ReflectorState::Listing;
            status.received = self.initial.received();
            status.expected = left.map(|left| status.received.saturating_add(left));
        } else if protocol.has_open_watch() {
            status.state = ReflectorState::Watching;
        }
        status.listed = protocol.lists > 0;
        status.relists = protocol.lists.saturating_sub(1);
        status.complete = protocol.is_complete();
        status.unreadable = protocol.unreadable();
        if protocol.is_healthy() {
            status.failures = 0;
        }
        for mut report in reports {
            report.error = self.reflector.in_context(&report);
            status.failures += u64::from(report.kind != ReportKind::Object);
            status.last_error = Some(report.error.clone());
            let outlook = match is_first && report.is_permanent() {
                true => Outlook::Refused,
                false => Outlook::Open,
            };
            self.outcome.unreported.push((report, outlook));
        }
    }

    /// Updates the status at the end of a list, before the store receives it: a program that waits
    /// for the sync may read the status immediately after the sync. If the store rejects the list,
    /// [`publish`](Self::publish) reverts the status.
    pub(super) fn announce(&mut self, version: Option<&ResourceVersion>) {
        self.update_status();
        let (protocol, list, status) = (&self.protocol, &self.initial, &mut self.outcome.status);
        let is_first = protocol.lists == 0 || status.undecodable.is_some();
        status.undecodable = list.undecodable().filter(|_| is_first);
        status.resource_version = version.cloned();
        status.listed = true;
        status.complete = list.is_complete();
        status.received = list.received();
        status.relists = protocol.lists;
        if let Some(shard_confirmed) = protocol.list_shard_confirmed() {
            status.shard_applied = match list.other_shard {
                0 => shard_confirmed.then_some(true),
                _ => Some(false),
            };
        }
        self.copy_status();
    }

    /// Copies the status to where others read it.
    fn copy_status(&mut self) {
        // The consumer of the queue has errors as well, so only a new one replaces the last one.
        let error = self.outcome.status.last_error.take();
        let error = error.map(|error| (error, self.reflector.now()));
        let mut published = self.reflector.core.status.lock();
        let before = std::mem::replace(&mut *published, self.outcome.status.clone());
        (published.last_error, published.last_error_at) = match error {
            Some((error, at)) => (Some(error), at),
            None => (before.last_error, before.last_error_at),
        };
    }

    /// Logs the duration of a list or watch-list that has ended, if it took longer than
    /// [`LONG_LIST`].
    pub(super) fn log_if_long(&mut self) {
        let what = self.protocol.listing();
        if self.outcome.listing.map(|(what, _)| what) == what {
            return;
        }
        let now = self.reflector.core.options.clock.now();
        if let Some((what, began)) = self.outcome.listing.take() {
            let took = now.duration_since(began);
            if took > LONG_LIST {
                let name = self.reflector.name();
                log::info!("{name}: the {what} took {} s", took.as_secs());
            }
        }
        self.outcome.listing = what.map(|what| (what, now));
    }
}
