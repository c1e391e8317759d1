use std::collections::{BTreeMap, HashMap};

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

/// The events that a write made superfluous.
pub(super) struct Merged<T> {
    /// The number of events that were removed from the buffer, or not added to it.
    pub(super) events: usize,
    /// The number of adds of the initial list among them.
    pub(super) initial: usize,
    /// The events that will not be delivered. The caller drops them, because they can hold the last
    /// reference to an object.
    pub(super) dropped: Vec<Notification<T>>,
}

impl<T> Default for Merged<T> {
    fn default() -> Self {
        Self {
            events: 0,
            initial: 0,
            dropped: Vec::new(),
        }
    }
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

    pub(super) fn write(
        &mut self,
        KeyedNotification { key, event }: KeyedNotification<T>,
    ) -> Merged<T> {
        let last = self
            .slots
            .get(&key)
            .map(|slots| slots.second.unwrap_or(slots.first));
        let Some((slot, older)) =
            last.and_then(|slot| Some((slot, self.waiting.remove(&slot)?.event)))
        else {
            let first = self.append(Key::clone(&key), event);
            self.slots.insert(
                key,
                Slots {
                    first,
                    second: None,
                },
            );
            return Merged::default();
        };
        let initial = |event: &Notification<T>| usize::from(event.is_in_initial_list());
        let before = initial(&older) + initial(&event);
        let mut merged = Merged {
            events: 1,
            ..Merged::default()
        };
        match merge(older, event, &mut merged.dropped) {
            MergeResult::One(event) => {
                merged.initial = before - initial(&event);
                self.waiting.insert(slot, KeyedNotification { key, event });
            }
            MergeResult::Nothing => {
                merged.events = 2;
                merged.initial = before;
                self.forget(&key, slot);
            }
            MergeResult::Both(older, event) => {
                self.waiting.insert(
                    slot,
                    KeyedNotification {
                        key: Key::clone(&key),
                        event: older,
                    },
                );
                let second = self.append(Key::clone(&key), event);
                self.slots.insert(
                    key,
                    Slots {
                        first: slot,
                        second: Some(second),
                    },
                );
                merged.events = 0;
            }
        }
        merged
    }

    pub(super) fn read(&mut self) -> Option<KeyedNotification<T>> {
        let (slot, notification) = self.waiting.pop_first()?;
        self.forget(&notification.key, slot);
        Some(notification)
    }

    fn append(&mut self, key: Key, event: Notification<T>) -> u64 {
        let slot = self.next;
        self.next += 1;
        self.waiting.insert(slot, KeyedNotification { key, event });
        slot
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
    Both(Notification<T>, Notification<T>),
}

/// Merges two undelivered events of one object. Superfluous objects go to `dropped`.
fn merge<T>(
    older: Notification<T>,
    newer: Notification<T>,
    dropped: &mut Vec<Notification<T>>,
) -> MergeResult<T> {
    use Notification::{Added, Deleted, Modified};
    let (merged, superfluous) = match (older, newer) {
        (
            Added {
                object,
                is_in_initial_list,
            },
            Modified { old, new },
        ) => (
            Added {
                object: new,
                is_in_initial_list,
            },
            // Neither `old` nor `object` is delivered. One event holds both, so that the caller can
            // drop them.
            Modified { old, new: object },
        ),
        (
            Added {
                object,
                is_in_initial_list: before,
            },
            Added {
                object: newer,
                is_in_initial_list,
            },
        ) => {
            let is_in_initial_list = before | is_in_initial_list;
            (
                Added {
                    object: newer,
                    is_in_initial_list,
                },
                Added {
                    object,
                    is_in_initial_list: false,
                },
            )
        }
        (older @ Added { .. }, newer @ Deleted { .. }) => {
            dropped.extend([older, newer]);
            return MergeResult::Nothing;
        }
        (Modified { old, new: between }, Modified { old: same, new }) => (
            Modified { old, new },
            Modified {
                old: between,
                new: same,
            },
        ),
        // The handler already has the object, so the second add becomes an update.
        (Modified { old, new: between }, Added { object: new, .. }) => (
            Modified { old, new },
            Added {
                object: between,
                is_in_initial_list: false,
            },
        ),
        // The deletion keeps the state that the handler received last, because a filtering handler
        // decides by this state.
        (
            Modified { old, new: between },
            Deleted {
                gone,
                last_delivered: unused,
            },
        ) => (
            Deleted {
                gone,
                last_delivered: Some(old),
            },
            Deleted {
                gone: object::Deleted::Final(between),
                last_delivered: unused,
            },
        ),
        // Of two deletions, the older one stays, unless its final state is unknown (D4).
        (
            Deleted {
                gone: unknown,
                last_delivered,
            },
            Deleted {
                gone,
                last_delivered: unused,
            },
        ) if unknown.is_final_state_unknown() => {
            let last_delivered = last_delivered.or_else(|| unknown.object().cloned());
            (
                Deleted {
                    gone,
                    last_delivered,
                },
                Deleted {
                    gone: unknown,
                    last_delivered: unused,
                },
            )
        }
        (older @ Deleted { .. }, newer @ Deleted { .. }) => (older, newer),
        (older @ Deleted { .. }, newer @ Added { .. }) => return MergeResult::Both(older, newer),
        // After the deletion, the object is new to the handler, so the update becomes an add. Only
        // an add is ever placed after a deletion, and every later event merges with this add, so an
        // object never has three events.
        (older @ Deleted { .. }, Modified { old, new }) => {
            dropped.push(Added {
                object: old,
                is_in_initial_list: false,
            });
            return MergeResult::Both(
                older,
                Added {
                    object: new,
                    is_in_initial_list: false,
                },
            );
        }
    };
    dropped.push(superfluous);
    MergeResult::One(merged)
}

#[cfg(test)]
mod tests;
