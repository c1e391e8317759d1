//! Tracks the resource version up to which a queue has been processed.

use std::collections::BTreeMap;

use super::Watermark;
use crate::resource_version::ResourceVersion;

/// Publishes the newest resource version up to which all changes have been processed.
///
/// Each change has a sequence number: the number of versions that the queue received before it.
/// Changes between two versions share a number. `pending` has an entry for each sequence number
/// with unprocessed changes, so it never has more entries than there are unprocessed changes. The
/// first entry determines the published version.
pub(super) struct VersionTracker {
    pending: BTreeMap<u64, Pending>,
    /// The sequence number of the next change.
    next: u64,
    /// The version of the last list, or the newest one of the events since then.
    latest: Option<ResourceVersion>,
    /// Changes with a lower sequence number belong to the last list or are older.
    list_end: u64,
    /// A copy of the value of `watermark`, which can be compared without a lock.
    published: Option<ResourceVersion>,
    /// Whether `watermark` has an unprocessed list.
    is_published_unsettled: bool,
    watermark: Watermark,
}

/// The unprocessed changes that share a sequence number.
struct Pending {
    /// The last version that was received before these changes.
    before: Option<ResourceVersion>,
    changes: usize,
}

impl VersionTracker {
    /// Creates a tracker with an empty watermark.
    pub(super) fn new() -> Self {
        Self {
            pending: BTreeMap::new(),
            next: 0,
            latest: None,
            list_end: 0,
            published: None,
            is_published_unsettled: false,
            watermark: Watermark::new(),
        }
    }

    pub(super) fn watermark(&self) -> Watermark {
        self.watermark.clone()
    }

    /// Starts to track a change and returns its sequence number.
    pub(super) fn begin(&mut self) -> u64 {
        let pending = self.pending.entry(self.next).or_insert_with(|| Pending {
            before: self.latest.clone(),
            changes: 0,
        });
        pending.changes += 1;
        self.next
    }

    /// Ends the tracking of a change that was processed or dropped.
    pub(super) fn end(&mut self, sequence: u64) {
        if let Some(pending) = self.pending.get_mut(&sequence) {
            pending.changes -= 1;
            if pending.changes == 0 {
                self.pending.remove(&sequence);
            }
        }
    }

    /// Records the version of an object. If the object is queued, call [`begin`](Self::begin)
    /// first.
    ///
    /// A watch that starts without a version first sends all existing objects as added, in no
    /// order. Their versions are ignored.
    pub(super) fn record_object(&mut self, version: Option<ResourceVersion>, is_added: bool) {
        let is_known = |latest: &ResourceVersion| !latest.is_any();
        if !is_added || self.latest.as_ref().is_some_and(is_known) {
            self.record_event(version);
        }
    }

    /// Records the version of an event, for example of a deletion or a bookmark. An unknown or older
    /// version changes nothing (W10).
    pub(super) fn record_event(&mut self, version: Option<ResourceVersion>) {
        if let Some(version) = version
            && !version.is_before(self.latest.as_ref())
        {
            self.set_latest(Some(version));
        }
    }

    /// Records the version of a list. Call this after [`begin`](Self::begin) was called for the
    /// changes that the list causes. `None` is recorded as well.
    pub(super) fn record_list(&mut self, version: Option<ResourceVersion>) {
        self.set_latest(version);
        self.list_end = self.next;
    }

    fn set_latest(&mut self, version: Option<ResourceVersion>) {
        self.latest = version;
        self.next += 1;
    }

    /// Whether the last list and all earlier changes have been processed, even if some failed.
    pub(super) fn is_settled(&self) -> bool {
        let first = self.pending.first_key_value();
        first.is_none_or(|(sequence, _)| *sequence >= self.list_end)
    }

    /// Updates the watermark.
    pub(super) fn publish(&mut self) {
        let first = self.pending.first_key_value();
        let version = first.map_or(&self.latest, |(_, pending)| &pending.before);
        if *version != self.published {
            self.published = version.clone();
            self.watermark.set_reached(version.clone());
        }
        let is_settled = self.is_settled();
        if is_settled == self.is_published_unsettled {
            self.is_published_unsettled = !is_settled;
            self.watermark.set_settled(is_settled);
        }
    }

    /// Returns the number of entries in `pending`.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(version: u64) -> Option<ResourceVersion> {
        ResourceVersion::new(&version.to_string())
    }

    fn published(versions: &mut VersionTracker) -> String {
        versions.publish();
        let current = versions.watermark().current();
        ResourceVersion::text(current.as_ref())
    }

    #[test]
    fn watermark_is_the_version_before_the_oldest_change() {
        let mut versions = VersionTracker::new();
        let sequences = [5, 6, 7].map(|version| {
            let sequence = versions.begin();
            versions.record_event(number(version));
            sequence
        });
        assert_eq!(published(&mut versions), "");
        versions.end(sequences[1]);
        assert_eq!(published(&mut versions), "");
        versions.end(sequences[0]);
        assert_eq!(published(&mut versions), "6");
        versions.end(sequences[2]);
        assert_eq!(published(&mut versions), "7");
        versions.record_event(number(8));
        assert_eq!(published(&mut versions), "8");
    }

    #[test]
    fn w10_only_a_list_takes_the_watermark_back() {
        let mut versions = VersionTracker::new();
        let sequences = [20, 5].map(|version| {
            let sequence = versions.begin();
            versions.record_event(number(version));
            sequence
        });
        versions.end(sequences[0]);
        assert_eq!(published(&mut versions), "20");
        versions.end(sequences[1]);
        assert_eq!(published(&mut versions), "20");
        versions.record_list(number(7));
        assert_eq!(published(&mut versions), "7");
        versions.record_event(ResourceVersion::new("abc"));
        assert_eq!(published(&mut versions), "abc", "it cannot be compared");
    }

    #[test]
    fn changes_between_two_versions_share_an_entry() {
        let mut versions = VersionTracker::new();
        let sequences: Vec<u64> = (0..1000).map(|_| versions.begin()).collect();
        versions.record_list(number(10));
        assert_eq!((versions.len(), versions.is_settled()), (1, false));
        for sequence in sequences {
            assert_eq!(published(&mut versions), "");
            versions.end(sequence);
        }
        assert_eq!((versions.len(), versions.is_settled()), (0, true));
        assert_eq!(published(&mut versions), "10");
    }

    #[test]
    fn versions_without_changes_take_no_memory() {
        let mut versions = VersionTracker::new();
        let stuck = versions.begin();
        for version in 1..1000 {
            versions.record_event(number(version));
        }
        assert_eq!((versions.len(), published(&mut versions).as_str()), (1, ""));
        versions.end(stuck);
        assert_eq!(published(&mut versions), "999");
    }
}
