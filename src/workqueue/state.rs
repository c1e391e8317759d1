use std::any::Any;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use super::Order;
use super::delayed::Delayed;
use crate::panic;
use crate::shrink::Shrink;
use crate::stop::Stop;
use crate::sync::catch_unwind;

/// What changes in a work queue. It knows no locks, threads and clocks; `now` is there if there is a clock to
/// be asked.
///
/// client-go has sets, of the items that are dirty and of those that are being processed. Here each item has
/// an entry that says both (Q1): an item without one is neither.
pub(super) struct State<T> {
    items: HashMap<T, Entry<T>>,
    /// Every item that is `Queued`.
    order: Box<dyn Order<T>>,
    queued: usize,
    /// How many are to be processed again after they have been.
    again: usize,
    /// When each processing began, by its ticket, where somebody wants to know. The tickets are in the order
    /// of time.
    running: BTreeMap<Ticket, Instant>,
    next_ticket: Ticket,
    pub(super) delayed: Delayed<T>,
    pub(super) shutting_down: bool,
    /// How often `shut_down` has sent home those who wait for a drain.
    pub(super) releases: u64,
    /// Ends the wait of the timer's thread, if it waits.
    pub(super) timer: Option<Stop>,
}

/// One processing of one item.
pub(super) type Ticket = u64;

enum Entry<T> {
    /// Since when.
    Queued(Option<Instant>),
    Processing {
        ticket: Ticket,
        /// It was added meanwhile: what, and when.
        again: Option<(T, Option<Instant>)>,
    },
}

/// What a change leaves to be done without the lock.
pub(super) struct After<T> {
    /// To be dropped: it is the user's.
    pub(super) dropped: Vec<T>,
    /// How many may be got now that could not before.
    pub(super) pushed: usize,
    /// How many were added that were not dirty.
    pub(super) added: usize,
    /// How long what was got has waited.
    pub(super) queued_for: Option<Duration>,
    /// How long what is done has taken.
    pub(super) worked_for: Option<Duration>,
    /// What a delayed item panicked with when it was to be queued.
    pub(super) panics: Vec<String>,
}

impl<T> Default for After<T> {
    fn default() -> Self {
        let (queued_for, worked_for) = (None, None);
        Self {
            dropped: Vec::new(),
            pushed: 0,
            added: 0,
            queued_for,
            worked_for,
            panics: Vec::new(),
        }
    }
}

impl<T> After<T> {
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            dropped,
            pushed,
            added,
            queued_for,
            worked_for,
            panics,
        } = self;
        let nothing_told = queued_for.is_none() && worked_for.is_none() && panics.is_empty();
        dropped.is_empty() && *pushed == 0 && *added == 0 && nothing_told
    }
}

/// What `done` came to.
pub(super) enum Ended {
    Done,
    /// It is not being processed, or not by this ticket.
    Unknown,
    /// It was to be queued again, and its order panicked: it is lost.
    Lost(Box<dyn Any + Send>),
}

/// How long work that is not done has been under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unfinished {
    pub(super) total: Duration,
    pub(super) longest: Duration,
}

impl<T: Clone + Eq + Hash + Send + 'static> State<T> {
    pub(super) fn new(order: Box<dyn Order<T>>) -> Self {
        Self {
            items: HashMap::new(),
            order,
            queued: 0,
            again: 0,
            running: BTreeMap::new(),
            next_ticket: 0,
            delayed: Delayed::new(),
            shutting_down: false,
            releases: 0,
            timer: None,
        }
    }

    /// Q2. `copy` spares a clone, if there is one.
    ///
    /// Whatever can panic comes before the first change.
    pub(super) fn add(
        &mut self,
        item: T,
        copy: Option<T>,
        now: Option<Instant>,
        after: &mut After<T>,
    ) {
        if self.shutting_down {
            after.dropped.extend(copy.into_iter().chain([item]));
            return;
        }
        match self.items.get_mut(&item) {
            Some(Entry::Queued(_)) => {
                self.order.touch(&item);
                after.dropped.push(item);
            }
            Some(Entry::Processing { again: Some(_), .. }) => after.dropped.push(item),
            Some(Entry::Processing { again, .. }) => {
                *again = Some((item, now));
                self.again += 1;
                after.added += 1;
            }
            None => {
                let copy = copy.unwrap_or_else(|| item.clone());
                // An empty map doesn't ask for the hash when it is looked into; this does, and only once.
                let hash_map::Entry::Vacant(vacant) = self.items.entry(item) else {
                    return;
                };
                self.order.push(copy);
                vacant.insert(Entry::Queued(now));
                self.queued += 1;
                after.added += 1;
                after.pushed += 1;
                return;
            }
        }
        after.dropped.extend(copy);
    }

    /// Queues the delayed items that are due by now (Q11).
    pub(super) fn promote(&mut self, now: Instant, after: &mut After<T>) {
        while let Some((item, copy)) = self.delayed.pop(now) {
            // This call may be about anything else.
            if let Err(panic) = panic::catch(|| self.add(item, copy, Some(now), after)) {
                after.panics.push(panic);
            }
        }
    }

    /// Q3.
    pub(super) fn next(
        &mut self,
        now: Option<Instant>,
        after: &mut After<T>,
    ) -> Option<(T, Ticket)> {
        if self.queued == 0 {
            return None;
        }
        while let Some(item) = self.order.pop() {
            let Some(entry @ &mut Entry::Queued(since)) = self.items.get_mut(&item) else {
                // An order of somebody else's: no item twice at once, whatever it does (Q5).
                after.dropped.push(item);
                continue;
            };
            let ticket = self.next_ticket;
            self.next_ticket += 1;
            *entry = Entry::Processing {
                ticket,
                again: None,
            };
            self.queued -= 1;
            if let Some(now) = now {
                self.running.insert(ticket, now);
                after.queued_for = since.map(|since| now.saturating_duration_since(since));
            }
            return Some((item, ticket));
        }
        None
    }

    /// Q4. Without a ticket it is about whatever processing of the item there is.
    pub(super) fn done(
        &mut self,
        item: &T,
        ticket: Option<Ticket>,
        now: Option<Instant>,
        after: &mut After<T>,
    ) -> Ended {
        let Some(entry) = self.items.get_mut(item) else {
            return Ended::Unknown;
        };
        let Entry::Processing {
            ticket: current,
            again,
        } = &mut *entry
        else {
            return Ended::Unknown;
        };
        if ticket.is_some_and(|ticket| ticket != *current) {
            return Ended::Unknown;
        }
        let since = self.running.remove(current);
        after.worked_for = now
            .zip(since)
            .map(|(now, since)| now.saturating_duration_since(since));
        let mut ended = Ended::Done;
        if let Some((item, since)) = again.take() {
            self.again -= 1;
            match catch_unwind(AssertUnwindSafe(|| self.order.push(item))) {
                Ok(()) => {
                    *entry = Entry::Queued(since);
                    self.queued += 1;
                    after.pushed += 1;
                    return ended;
                }
                Err(panic) => ended = Ended::Lost(panic),
            }
        }
        after
            .dropped
            .extend(self.items.remove_entry(item).map(|(item, _)| item));
        self.items.shrink_when_empty();
        ended
    }

    /// What is delayed comes no more (Q13).
    #[must_use]
    pub(super) fn shut_down(&mut self) -> Delayed<T> {
        self.shutting_down = true;
        std::mem::replace(&mut self.delayed, Delayed::new())
    }

    /// How many wait (Q8).
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// How many wait, or will when they have been processed (Q18).
    pub(super) fn depth(&self) -> usize {
        self.queued + self.again
    }

    pub(super) fn processing(&self) -> usize {
        self.items.len() - self.queued
    }

    /// Whether nothing waits and nothing is being processed.
    pub(super) fn is_drained(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn unfinished(&self, now: Instant) -> Unfinished {
        let ages = self
            .running
            .values()
            .map(|since| now.saturating_duration_since(*since));
        ages.fold(Unfinished::default(), |sum, age| Unfinished {
            total: sum.total.saturating_add(age),
            longest: sum.longest.max(age),
        })
    }
}
