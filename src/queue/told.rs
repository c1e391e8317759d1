//! What a queue has been told, and how much of it has been processed.

use std::collections::VecDeque;

use super::Watermark;
use crate::object::Accessor;
use crate::resource_version::ResourceVersion;

/// Room for this many versions is kept when nothing waits; more is given back.
const KEEP: usize = 1024;

/// The versions that a queue was told, each with the place in the queue that it stands behind: everything
/// that waited when it came is before it. Once that has been processed, the version is the [`Watermark`].
///
/// What is queued takes a place each, with a number that counts up. Of versions between two places only the
/// last one is kept, 24 bytes: so there are never more of them than places that wait, whatever is written to
/// those.
pub(super) struct Told {
    /// The number of the next place.
    next: u64,
    /// The places before this number are before the version. Both ascend, by number.
    waiting: VecDeque<(u64, ResourceVersion)>,
    /// The last version that no place is before any more.
    passed: ResourceVersion,
    /// The places before this number are those of the last list and what came before it.
    list_end: u64,
    /// Whether the processing of one of them has failed since.
    list_failed: bool,
    /// As `watermark` has it, to be looked at without its lock.
    published: ResourceVersion,
    watermark: Watermark,
}

impl Told {
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            waiting: VecDeque::new(),
            passed: ResourceVersion::default(),
            list_end: 0,
            list_failed: false,
            published: ResourceVersion::default(),
            watermark: Watermark::new(),
        }
    }

    pub(super) fn watermark(&self) -> Watermark {
        self.watermark.clone()
    }

    /// The version of an event, as it was before any transform.
    pub(super) fn version_of<T>(accessor: &Accessor<T>, object: &T) -> Option<ResourceVersion> {
        accessor.resource_version(object).and_then(Self::version)
    }

    /// `None` if it is empty, which an event must not be for its version to count (W10).
    pub(super) fn version(version: &str) -> Option<ResourceVersion> {
        (!version.is_empty()).then(|| version.into())
    }

    /// A place behind all others.
    pub(super) fn place(&mut self) -> u64 {
        self.places(1)
    }

    /// So many of them, the first one of which is answered.
    pub(super) fn places(&mut self, count: usize) -> u64 {
        let first = self.next;
        self.next += count as u64;
        first
    }

    /// The last version that was told.
    pub(super) fn latest(&self) -> &ResourceVersion {
        self.waiting
            .back()
            .map_or(&self.passed, |(_, version)| version)
    }

    /// An object appeared, or something else happened to it. A watch that begins at no version tells those
    /// that are there first, as added, in no order: their versions say nothing of what has been told.
    pub(super) fn object(&mut self, version: Option<ResourceVersion>, is_added: bool) {
        if !is_added || self.latest().is_known() {
            self.event(version);
        }
    }

    /// Another event, or a bookmark. Without a version it leaves the last one.
    pub(super) fn event(&mut self, version: Option<ResourceVersion>) {
        if let Some(version) = version {
            self.reaches(version);
        }
    }

    /// A list, whose version counts also if there is none.
    pub(super) fn list(&mut self, version: ResourceVersion) {
        (self.list_end, self.list_failed) = (self.next, false);
        self.reaches(version);
    }

    fn reaches(&mut self, version: ResourceVersion) {
        match self.waiting.back_mut() {
            Some((places, last)) if *places == self.next => *last = version,
            _ => self.waiting.push_back((self.next, version)),
        }
    }

    /// The first place that waits in order is this one, or there is none. Whether that changes
    /// [`passed`](Self::passed).
    pub(super) fn pass(&mut self, first: Option<u64>) -> bool {
        let (first, before) = (first.unwrap_or(self.next), self.waiting.len());
        while self
            .waiting
            .front()
            .is_some_and(|(places, _)| *places <= first)
        {
            self.passed = self
                .waiting
                .pop_front()
                .map(|(_, version)| version)
                .unwrap_or_default();
        }
        let passes = self.waiting.len() < before;
        if self.waiting.is_empty() && self.waiting.capacity() > KEEP {
            self.waiting = VecDeque::new();
        }
        passes
    }

    /// The processing of what was queued at this place has failed for good: the consumer may still have what
    /// the last list was to replace.
    pub(super) fn failed(&mut self, place: u64) {
        self.list_failed |= place < self.list_end;
    }

    /// Whether the last list and all before it have been processed, if this is the first place that has not
    /// been, and without a failure.
    pub(super) fn is_settled(&self, first: Option<u64>) -> bool {
        !self.list_failed && first.is_none_or(|first| first >= self.list_end)
    }

    /// The last version before the first place that waits in order.
    pub(super) fn passed(&self) -> &ResourceVersion {
        &self.passed
    }

    /// Only these places wait in order, ascending: of the versions between two of them the last one stays.
    pub(super) fn thin(&mut self, places: impl Iterator<Item = u64>) {
        let mut places = places.peekable();
        let mut kept: VecDeque<(u64, ResourceVersion)> = VecDeque::new();
        for (number, version) in std::mem::take(&mut self.waiting) {
            // Whether one of them waits between the version that was kept last and this one.
            let mut apart = false;
            while let Some(place) = places.next_if(|place| *place < number) {
                apart |= kept.back().is_some_and(|(last, _)| place >= *last);
            }
            if !apart {
                kept.pop_back();
            }
            kept.push_back((number, version));
        }
        self.waiting = kept;
    }

    /// How many versions are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.waiting.len()
    }

    /// This is before all that has not been processed; or else what has been [`passed`](Self::passed).
    pub(super) fn publish(&mut self, before: Option<&ResourceVersion>) {
        let version = before.unwrap_or(&self.passed);
        if *version != self.published {
            self.published = version.clone();
            self.watermark.reach(version.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_versions_between_two_places_the_last_one_is_kept() {
        let mut told = Told::new();
        for version in 1..1000_u64 {
            told.event(Some(ResourceVersion::Number(version)));
            if version % 100 == 0 {
                told.place();
            }
        }
        assert_eq!(told.waiting.len(), 10);
        told.pass(Some(4));
        assert_eq!(
            (told.waiting.len(), told.passed().to_string().as_str()),
            (5, "500")
        );
    }

    #[test]
    fn when_places_are_taken_out_no_more_versions_stay_than_are_apart() {
        let mut told = Told::new();
        for version in 1..1000_u64 {
            told.place();
            told.event(Some(ResourceVersion::Number(version)));
        }
        assert_eq!(told.waiting.len(), 999);
        told.thin([3, 4, 500].into_iter());
        let kept: Vec<_> = told
            .waiting
            .iter()
            .map(|(places, version)| (*places, version.to_string()))
            .collect();
        let expected = [(3, "3"), (4, "4"), (500, "500"), (999, "999")];
        assert_eq!(
            kept,
            expected.map(|(places, version)| (places, version.to_owned()))
        );
        told.thin(std::iter::empty());
        assert_eq!(told.waiting.len(), 1);
    }
}
