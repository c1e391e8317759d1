//! The order by priority.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::Order;

/// The position of an item: a higher priority first, then the order of arrival (PQ1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i32>,
    arrival: u64,
}

impl Rank {
    pub(super) fn new(priority: i32, arrival: u64) -> Self {
        Self {
            priority: Reverse(priority),
            arrival,
        }
    }

    pub(super) fn priority(self) -> i32 {
        self.priority.0
    }

    /// Returns the rank after another add. A higher priority moves the item behind the items of
    /// this priority; any other changes nothing (PQ2).
    pub(super) fn raised_by(self, other: Self) -> Self {
        if other.priority() > self.priority() {
            other
        } else {
            self
        }
    }
}

/// The order of the queued items.
pub(super) trait RankedOrder<T>: Send {
    /// Called when a queued item is added again.
    fn touch(&mut self, item: &T, from: Rank, to: Rank);

    fn push(&mut self, item: T, rank: Rank);

    fn pop(&mut self) -> Option<T>;
}

/// An order without regard to ranks.
pub(super) struct Unranked<O>(pub(super) O);

impl<T, O: Order<T>> RankedOrder<T> for Unranked<O> {
    fn touch(&mut self, item: &T, _: Rank, _: Rank) {
        self.0.touch(item);
    }

    fn push(&mut self, item: T, _: Rank) {
        self.0.push(item);
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }
}

/// The order by rank, with a limit for items that overtake others (PQ9).
pub(super) struct PriorityOrder<T> {
    items: BTreeMap<Rank, T>,
    starvation_limit: usize,
    /// The number of items in a row that were returned while one of a lower priority waited.
    overtakes: usize,
}

impl<T> PriorityOrder<T> {
    pub(super) fn new(starvation_limit: usize) -> Self {
        Self {
            items: BTreeMap::new(),
            starvation_limit,
            overtakes: 0,
        }
    }

    /// Returns the item that has waited longest of those with a lower priority. It visits one item
    /// of each priority.
    fn first_below(&self, highest: Rank) -> Option<Rank> {
        let mut first: Option<Rank> = None;
        let mut level = highest;
        loop {
            let end_of_level = Rank::new(level.priority(), u64::MAX);
            let below = (Excluded(end_of_level), Unbounded);
            let Some((&next, _)) = self.items.range(below).next() else {
                return first;
            };
            first = first
                .filter(|first| first.arrival < next.arrival)
                .or(Some(next));
            level = next;
        }
    }
}

impl<T: Send> RankedOrder<T> for PriorityOrder<T> {
    fn touch(&mut self, _: &T, from: Rank, to: Rank) {
        if from != to
            && let Some(item) = self.items.remove(&from)
        {
            self.items.insert(to, item);
        }
    }

    fn push(&mut self, item: T, rank: Rank) {
        self.items.insert(rank, item);
    }

    fn pop(&mut self) -> Option<T> {
        let (&highest, _) = self.items.first_key_value()?;
        let (&lowest, _) = self.items.last_key_value()?;
        if lowest.priority == highest.priority {
            self.overtakes = 0;
        } else if self.overtakes < self.starvation_limit {
            self.overtakes += 1;
        } else {
            self.overtakes = 0;
            let overtaken = self.first_below(highest)?;
            return self.items.remove(&overtaken);
        }
        self.items.remove(&highest)
    }
}
