use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::shrink::{KEEP, Shrink};
use crate::informer::handler::{KeyedNotification, Notification};
use crate::object::{self, Key};

/// A buffer that keeps at most two events for each object, by the rules of
/// [`HandlerBuffer::Coalescing`](super::HandlerBuffer::Coalescing).
pub(super) struct Coalescing<T> {
    /// The events in order of arrival.
    waiting: BTreeMap<u64, KeyedNotification<T>>,
    /// The positions of the events of each key. Every position exists in `waiting`.
    slots: HashMap<Key, Slots>,
    next: u64,
}

struct Slots {
    first: u64,
    /// The position of an add that follows a deletion.
    second: Option<u64>,
}

/// The events that a write merged.
pub(super) struct Merged<T> {
    /// The number of events that were removed from the buffer, or not added to it.
    pub(super) events: usize,
    /// The number of adds of the initial list among them.
    pub(super) initial: usize,
    /// The two events that were merged. The caller drops them, because they can hold the last
    /// reference to an object.
    pub(super) replaced: [KeyedNotification<T>; 2],
}

impl<T> Default for Coalescing<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            slots: HashMap::new(),
            next: 0,
        }
    }
}

impl<T> Coalescing<T> {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds an event, or merges it with the one of the same object that waits.
    pub(super) fn write(&mut self, newer: KeyedNotification<T>) -> Option<Merged<T>> {
        let key = &newer.key;
        let slots = self.slots.get(key);
        let last = slots.map(|slots| slots.second.unwrap_or(slots.first));
        let Some((slot, older)) = last.and_then(|slot| Some((slot, self.waiting.remove(&slot)?)))
        else {
            let slots = Slots {
                first: self.next,
                second: None,
            };
            self.slots.insert(Key::clone(key), slots);
            self.append(newer);
            return None;
        };
        let initial = |event: &Notification<T>| usize::from(event.is_in_initial_list());
        let before = initial(&older.event) + initial(&newer.event);
        let (events, left) = match merge(&older.event, &newer.event) {
            MergeResult::One(event) => {
                let (key, initial) = (Key::clone(key), initial(&event));
                self.waiting.insert(slot, KeyedNotification { key, event });
                (1, initial)
            }
            MergeResult::Nothing => {
                self.forget(key, slot);
                (2, 0)
            }
            MergeResult::Both(event) => {
                let slots = Slots {
                    first: slot,
                    second: Some(self.next),
                };
                self.slots.insert(Key::clone(key), slots);
                self.waiting.insert(slot, older.clone());
                let key = Key::clone(key);
                self.append(KeyedNotification { key, event });
                (0, before)
            }
        };
        Some(Merged {
            events,
            initial: before - left,
            replaced: [older, newer],
        })
    }

    pub(super) fn read(&mut self) -> Option<KeyedNotification<T>> {
        let (slot, notification) = self.waiting.pop_first()?;
        self.forget(&notification.key, slot);
        Some(notification)
    }

    fn append(&mut self, notification: KeyedNotification<T>) {
        self.waiting.insert(self.next, notification);
        self.next += 1;
    }

    /// Removes a position from the index.
    fn forget(&mut self, key: &Key, slot: u64) {
        if let Some(slots) = self.slots.get_mut(key) {
            match slots.second.take() {
                Some(second) if slots.first == slot => slots.first = second,
                Some(_) => {}
                None => {
                    self.slots.remove(key);
                }
            }
        }
        self.slots.shrink_when_sparse(KEEP);
    }
}

/// The result of merging two events of one object.
enum MergeResult<T> {
    One(Notification<T>),
    Nothing,
    /// The older event, followed by this one.
    Both(Notification<T>),
}

/// Merges two undelivered events of one object.
fn merge<T>(older: &Notification<T>, newer: &Notification<T>) -> MergeResult<T> {
    use Notification::{Added, Deleted, Modified};
    let added = |object: &Arc<T>, is_in_initial_list| Added {
        object: Arc::clone(object),
        is_in_initial_list,
    };
    let deleted = |gone: &object::Deleted<T>, last_delivered: Option<&Arc<T>>| Deleted {
        gone: gone.clone(),
        last_delivered: last_delivered.cloned(),
    };
    MergeResult::One(match (older, newer) {
        (Added { .. }, Deleted { .. }) => return MergeResult::Nothing,
        (Added { .. }, Added { object, .. } | Modified { new: object, .. }) => {
            let is_initial = older.is_in_initial_list() || newer.is_in_initial_list();
            added(object, is_initial)
        }
        // The handler already has the object, so a second add becomes an update.
        (Modified { old, .. }, Modified { new, .. } | Added { object: new, .. }) => Modified {
            old: Arc::clone(old),
            new: Arc::clone(new),
        },
        // The deletion keeps the state that the handler received last, because a filtering handler
        // decides by this state.
        (Modified { old, .. }, Deleted { gone, .. }) => deleted(gone, Some(old)),
        // Of two deletions, the older one stays, unless its final state is unknown (D4).
        (
            Deleted {
                gone: unknown,
                last_delivered,
            },
            Deleted { gone, .. },
        ) if unknown.is_final_state_unknown() => {
            deleted(gone, last_delivered.as_ref().or(unknown.object()))
        }
        (Deleted { .. }, Deleted { .. }) => older.clone(),
        (Deleted { .. }, Added { .. }) => return MergeResult::Both(newer.clone()),
        // After the deletion, the object is new to the handler, so the update becomes an add. Only
        // an add is ever placed after a deletion, and every later event merges with this add, so an
        // object never has three events.
        (Deleted { .. }, Modified { new, .. }) => return MergeResult::Both(added(new, false)),
    })
}

#[cfg(test)]
mod tests;
