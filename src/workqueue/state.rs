use std::any::Any;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use super::delayed::{Delayed, Removed};
use super::item::Item;
use super::priority::{Rank, RankedOrder};
use crate::base::panic::{self, Panicked};
use crate::base::shrink::Shrink;
use crate::base::sync::catch_unwind;
use crate::stop::Stopper;

/// The state of a work queue, without locks, threads or clocks. The caller passes the time as
/// `now`, which is `None` if the queue has neither delays nor metrics.
///
/// It is the state of every queue. A queue with priorities differs in what an add does to an item
/// that is already there.
///
/// client-go keeps a set of dirty items and a set of items in processing. Here one entry per item
/// covers both: an item without an entry is in neither set (Q1).
pub(super) struct State<T> {
    items: HashMap<T, Entry<T>>,
    /// All items that are `Queued`.
    order: Box<dyn RankedOrder<T>>,
    /// Whether this is a queue with priorities: an item is never both delayed and waiting (PQ4). In
    /// client-go's queues it can be both (Q12), and all items have the priority 0.
    has_priorities: bool,
    /// The number of ranks so far.
    ranks: u64,
    queued: usize,
    /// The number of items that were added again while in processing.
    readded: usize,
    /// The start of each processing, if `now` was given. Tickets are in order of time.
    running: BTreeMap<Ticket, Instant>,
    next_ticket: Ticket,
    pub(super) delayed: Delayed<T>,
    pub(super) shutting_down: bool,
    /// How often `stop` has released blocked drains.
    pub(super) releases: u64,
    /// Wakes the timer thread if it waits.
    pub(super) timer: Option<Stopper>,
    /// Whether the timer thread has been started and may still be in user code.
    pub(super) timer_runs: bool,
}

/// Identifies one processing of one item.
pub(super) type Ticket = u64;

enum Entry<T> {
    Queued(Waiting),
    Processing {
        ticket: Ticket,
        /// The item, if it was added again meanwhile.
        readded: Option<(T, Waiting)>,
    },
}

#[derive(Clone, Copy)]
struct Waiting {
    /// The time when the item was added.
    since: Option<Instant>,
    rank: Rank,
}

/// An item whose processing begins.
pub(super) struct Taken<T> {
    pub(super) item: T,
    pub(super) ticket: Ticket,
    pub(super) priority: i32,
}

/// The work that remains after a change, to be done without the lock.
pub(super) struct Effects<T> {
    /// User values to drop.
    pub(super) dropped: Vec<T>,
    /// The number of items that became available.
    pub(super) pushed: usize,
    /// The number of accepted items that were not dirty before.
    pub(super) added: usize,
    /// The time that the taken item waited.
    pub(super) queued_for: Option<Duration>,
    /// The time that processing the finished item took.
    pub(super) worked_for: Option<Duration>,
    /// The panics from queueing delayed items.
    pub(super) panics: Vec<Panicked>,
}

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self {
            dropped: Vec::new(),
            pushed: 0,
            added: 0,
            queued_for: None,
            worked_for: None,
            panics: Vec::new(),
        }
    }
}

impl<T> Effects<T> {
    pub(super) fn is_empty(&self) -> bool {
        let nothing_to_report =
            self.queued_for.is_none() && self.worked_for.is_none() && self.panics.is_empty();
        self.dropped.is_empty() && self.pushed == 0 && self.added == 0 && nothing_to_report
    }
}

/// The result of `done`.
pub(super) enum DoneOutcome {
    Done,
    /// The item is not in processing, or not under this ticket.
    Unknown,
    /// The item had to be queued again and the order panicked. The item is lost.
    Lost(Box<dyn Any + Send>),
}

/// The age of items that are in processing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unfinished {
    pub(super) total: Duration,
    pub(super) longest: Duration,
}

impl<T: Item> State<T> {
    pub(super) fn new(order: Box<dyn RankedOrder<T>>, has_priorities: bool) -> Self {
        Self {
            items: HashMap::new(),
            order,
            has_priorities,
            ranks: 0,
            queued: 0,
            readded: 0,
            running: BTreeMap::new(),
            next_ticket: 0,
            delayed: Delayed::new(),
            shutting_down: false,
            releases: 0,
            timer: None,
            timer_runs: false,
        }
    }

    /// Adds an item, now or at a later time (Q2, Q10).
    ///
    /// In a queue with priorities, the highest priority and the earliest time count (PQ2, PQ4).
    pub(super) fn add(
        &mut self,
        item: T,
        priority: i32,
        mut due: Option<Instant>,
        now: Option<Instant>,
        effects: &mut Effects<T>,
    ) {
        if self.shutting_down {
            effects.dropped.push(item);
            return;
        }
        let mut rank = self.next_rank(priority);
        if self.has_priorities && self.is_waiting(&item) {
            due = None;
        }
        let Some(due) = due else {
            let delayed = match self.has_priorities {
                true => self.delayed.remove(&item),
                false => None,
            };
            let copy = delayed.map(|delayed| {
                rank = delayed.rank.raised_by(rank);
                effects.dropped.extend(delayed.copy);
                delayed.item
            });
            self.queue(item, copy, rank, now, effects);
            return;
        };
        let has_priorities = self.has_priorities;
        let unused = self.delayed.insert(item, |known| match known {
            Some((at, known)) if has_priorities => (at.min(due), known.raised_by(rank)),
            Some(known) if known.0 <= due => known,
            _ => (due, rank),
        });
        effects.dropped.extend(unused);
    }

    fn next_rank(&mut self, priority: i32) -> Rank {
        self.ranks += 1;
        Rank::new(priority, self.ranks)
    }

    /// Whether an item is queued, or will be after its current processing.
    fn is_waiting(&self, item: &T) -> bool {
        match self.items.get(item) {
            Some(Entry::Queued(_)) => true,
            Some(Entry::Processing { readded, .. }) => readded.is_some(),
            None => false,
        }
    }

    /// Queues an item. `copy` is an equal item, if the caller has one; it saves a clone.
    ///
    /// Everything that can panic runs before the first change.
    fn queue(
        &mut self,
        item: T,
        copy: Option<T>,
        rank: Rank,
        now: Option<Instant>,
        effects: &mut Effects<T>,
    ) {
        let waiting = Waiting { since: now, rank };
        match self.items.get_mut(&item) {
            Some(Entry::Queued(known)) => {
                let raised = known.rank.raised_by(rank);
                self.order.touch(&item, known.rank, raised);
                known.rank = raised;
                effects.dropped.push(item);
            }
            Some(Entry::Processing {
                readded: Some((_, known)),
                ..
            }) => {
                known.rank = known.rank.raised_by(rank);
                effects.dropped.push(item);
            }
            Some(Entry::Processing { readded, .. }) => {
                *readded = Some((item, waiting));
                self.readded += 1;
                effects.added += 1;
            }
            None => {
                let copy = copy.unwrap_or_else(|| item.clone());
                // `entry` calls `hash`, which may panic, before `push` changes the order. The
                // lookup above does not call it if the map is empty. `insert` does not call it
                // again.
                let hash_map::Entry::Vacant(vacant) = self.items.entry(item) else {
                    return;
                };
                self.order.push(copy, rank);
                vacant.insert(Entry::Queued(waiting));
                self.queued += 1;
                effects.added += 1;
                effects.pushed += 1;
                return;
            }
        }
        effects.dropped.extend(copy);
    }

    /// Queues the delayed items that are due (Q11).
    pub(super) fn promote(&mut self, now: Instant, effects: &mut Effects<T>) {
        while let Some(Removed { rank, item, copy }) = self.delayed.pop(now) {
            let rank = self.next_rank(rank.priority());
            // Catch a panic of this item, because the current call may concern another item.
            if let Err(panic) = panic::catch(|| self.queue(item, copy, rank, Some(now), effects)) {
                effects.panics.push(panic);
            }
        }
    }

    /// Takes the next item (Q3).
    pub(super) fn next(
        &mut self,
        now: Option<Instant>,
        effects: &mut Effects<T>,
    ) -> Option<Taken<T>> {
        if self.queued == 0 {
            return None;
        }
        while let Some(item) = self.order.pop() {
            let Some(entry @ &mut Entry::Queued(waiting)) = self.items.get_mut(&item) else {
                // A faulty custom order may return any item. Never process one twice at a time
                // (Q5).
                effects.dropped.push(item);
                continue;
            };
            let ticket = self.next_ticket;
            self.next_ticket += 1;
            *entry = Entry::Processing {
                ticket,
                readded: None,
            };
            self.queued -= 1;
            if let Some(now) = now {
                self.running.insert(ticket, now);
                let since = waiting.since;
                effects.queued_for = since.map(|since| now.saturating_duration_since(since));
            }
            return Some(Taken {
                item,
                ticket,
                priority: waiting.rank.priority(),
            });
        }
        None
    }

    /// Finishes an item (Q4). Without a ticket, any processing of the item matches.
    pub(super) fn done(
        &mut self,
        item: &T,
        ticket: Option<Ticket>,
        now: Option<Instant>,
        effects: &mut Effects<T>,
    ) -> DoneOutcome {
        let Some(entry) = self.items.get_mut(item) else {
            return DoneOutcome::Unknown;
        };
        let Entry::Processing {
            ticket: current,
            readded,
        } = &mut *entry
        else {
            return DoneOutcome::Unknown;
        };
        if ticket.is_some_and(|ticket| ticket != *current) {
            return DoneOutcome::Unknown;
        }
        let since = self.running.remove(current);
        effects.worked_for = now
            .zip(since)
            .map(|(now, since)| now.saturating_duration_since(since));
        let mut ended = DoneOutcome::Done;
        if let Some((item, waiting)) = readded.take() {
            self.readded -= 1;
            match catch_unwind(AssertUnwindSafe(|| self.order.push(item, waiting.rank))) {
                Ok(()) => {
                    *entry = Entry::Queued(waiting);
                    self.queued += 1;
                    effects.pushed += 1;
                    return ended;
                }
                Err(panic) => ended = DoneOutcome::Lost(panic),
            }
        }
        effects
            .dropped
            .extend(self.items.remove_entry(item).map(|(item, _)| item));
        self.items.shrink_after_peak();
        ended
    }

    /// Shuts the state down. Returns the delayed items, which the caller drops without the lock
    /// (Q13).
    #[must_use]
    pub(super) fn shut_down(&mut self) -> Delayed<T> {
        self.shutting_down = true;
        std::mem::replace(&mut self.delayed, Delayed::new())
    }

    /// The length of the queue (Q8). With priorities, it is the [depth](Self::depth).
    pub(super) fn len(&self) -> usize {
        match self.has_priorities {
            true => self.depth(),
            false => self.queued,
        }
    }

    /// The number of items that wait, including those that were added again while in processing
    /// (Q18).
    pub(super) fn depth(&self) -> usize {
        self.queued + self.readded
    }

    pub(super) fn processing(&self) -> usize {
        self.items.len() - self.queued
    }

    /// Whether no item waits or is in processing.
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::workqueue::order::ArrivalOrder;
    use crate::workqueue::priority::Unranked;

    #[test]
    fn queue_with_few_items_left_frees_its_memory() {
        let mut state = State::new(Box::new(Unranked(ArrivalOrder::new())), false);
        let (now, mut effects) = (Instant::now(), Effects::default());
        for item in 0..100_000 {
            state.add(item, 0, None, None, &mut effects);
            let due = now + Duration::from_nanos(item);
            state.add(item, 0, Some(due), None, &mut effects);
        }
        for _ in 10..100_000 {
            let taken = state.next(None, &mut effects).unwrap();
            state.done(&taken.item, None, None, &mut effects);
        }
        assert!(
            state.items.capacity() < 10_000,
            "{}",
            state.items.capacity()
        );
        assert_eq!((state.items.len(), state.delayed.len()), (10, 100_000));
        state.promote(now + Duration::from_nanos(99_989), &mut effects);
        assert_eq!((state.delayed.len(), state.queued), (10, 100_000));
        assert!(state.delayed.capacity() < 10_000);
        for item in 99_990..100_000 {
            state.delayed.remove(&item);
        }
        assert_eq!(state.delayed.capacity(), 0);
    }
}
