//! Tests of the merge rules of
//! [`HandlerBuffer::Coalescing`](crate::handler::HandlerBuffer::Coalescing): each rule alone, and
//! properties of random sequences of events and reads. In these tests, an object is only a version
//! number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, mpsc};

use super::*;
use crate::informer::handler::{FilteringHandler, HandlerFuncs};
use crate::object::Deleted;

fn add(version: u32) -> Notification<u32> {
    Notification::Added {
        object: Arc::new(version),
        is_in_initial_list: false,
    }
}

fn initial(version: u32) -> Notification<u32> {
    Notification::Added {
        object: Arc::new(version),
        is_in_initial_list: true,
    }
}

fn update(old: u32, new: u32) -> Notification<u32> {
    Notification::Modified {
        old: Arc::new(old),
        new: Arc::new(new),
    }
}

fn delete(version: u32) -> Notification<u32> {
    Notification::deleted(Deleted::Final(Arc::new(version)), None)
}

fn gone(version: u32) -> Notification<u32> {
    Notification::deleted(
        Deleted::FinalStateUnknown {
            key: "a".into(),
            last_known: Some(Arc::new(version)),
        },
        None,
    )
}

fn of(key: &str, event: Notification<u32>) -> KeyedNotification<u32> {
    KeyedNotification {
        key: key.into(),
        event,
    }
}

/// Formats as `+3`, `initial +3`, `1>2`, `-3`, `gone 3`, or `-3 after 1` for a deletion with merged
/// updates.
fn text(event: &Notification<u32>) -> String {
    match event {
        Notification::Added {
            object,
            is_in_initial_list: false,
        } => format!("+{object}"),
        Notification::Added {
            object,
            is_in_initial_list: true,
        } => format!("initial +{object}"),
        Notification::Modified { old, new } => format!("{old}>{new}"),
        Notification::Deleted {
            gone,
            last_delivered,
        } => {
            let object = gone.object().unwrap();
            let gone = if gone.is_final_state_unknown() {
                "gone "
            } else {
                "-"
            };
            let after = last_delivered.as_ref().map(|last| format!(" after {last}"));
            format!("{gone}{object}{}", after.unwrap_or_default())
        }
    }
}

/// Writes the events of one object. Returns the events that remain, the number of removed events,
/// and the number of initial adds among the removed ones.
fn merge_all(events: impl IntoIterator<Item = Notification<u32>>) -> (String, usize, usize) {
    let mut coalescing = Coalescing::default();
    let (mut removed, mut initial, mut written) = (0, 0, 0);
    for event in events {
        let merged = coalescing.write(of("a", event));
        written += 1;
        if let Some(merged) = merged {
            removed += merged.events;
            initial += merged.initial;
        }
        assert_eq!(written, coalescing.len() + removed);
    }
    let read = std::iter::from_fn(|| coalescing.read())
        .map(|notification| text(&notification.event))
        .collect::<Vec<_>>();
    assert!(coalescing.slots.is_empty() && coalescing.waiting.is_empty());
    (read.join(" "), removed, initial)
}

#[test]
fn add_and_update_merge_to_add_of_new_state() {
    assert_eq!(
        merge_all([add(1), update(1, 2), update(2, 3)]),
        ("+3".into(), 2, 0)
    );
}

#[test]
fn add_and_delete_cancel_out() {
    assert_eq!(merge_all([add(1), delete(2)]), (String::new(), 2, 0));
    assert_eq!(
        merge_all([add(1), update(1, 2), gone(2)]),
        (String::new(), 3, 0)
    );
}

#[test]
fn two_updates_merge_into_one_from_oldest_to_newest() {
    assert_eq!(
        merge_all([update(1, 2), update(2, 3), update(3, 4)]),
        ("1>4".into(), 2, 0)
    );
    // A resync, which repeats a state, merges like any other update.
    assert_eq!(
        merge_all([update(1, 2), update(2, 2)]),
        ("1>2".into(), 1, 0)
    );
}

#[test]
fn update_and_delete_merge_to_delete() {
    assert_eq!(
        merge_all([update(1, 2), delete(3)]),
        ("-3 after 1".into(), 1, 0)
    );
    assert_eq!(
        merge_all([update(1, 2), gone(2)]),
        ("gone 2 after 1".into(), 1, 0)
    );
    assert_eq!(
        merge_all([update(1, 2), update(2, 3), delete(4)]),
        ("-4 after 1".into(), 2, 0)
    );
    let (deleted, ..) = merge_all([update(1, 2), gone(2), delete(3), add(4), delete(5)]);
    assert_eq!(deleted, "-3 after 1");
}

#[test]
fn delete_and_add_are_not_merged() {
    assert_eq!(merge_all([delete(1), add(2)]), ("-1 +2".into(), 0, 0));
    assert_eq!(
        merge_all([delete(1), add(2), update(2, 3)]),
        ("-1 +3".into(), 1, 0)
    );
    assert_eq!(
        merge_all([update(0, 1), delete(1), add(2), update(2, 3)]),
        ("-1 after 0 +3".into(), 2, 0)
    );
}

#[test]
fn delete_add_delete_merge_to_first_delete() {
    assert_eq!(
        merge_all([delete(1), add(2), delete(3)]),
        ("-1".into(), 2, 0)
    );
    assert_eq!(
        merge_all([gone(1), add(2), update(2, 3), delete(3), add(4)]),
        ("gone 1 +4".into(), 3, 0)
    );
}

#[test]
fn merged_initial_add_stays_initial_and_cancelled_one_counts() {
    assert_eq!(
        merge_all([initial(1), update(1, 2)]),
        ("initial +2".into(), 1, 0)
    );
    assert_eq!(merge_all([initial(1), delete(2)]), (String::new(), 2, 1));
    assert_eq!(
        merge_all([initial(1), update(1, 2), delete(2), initial(3)]),
        ("initial +3".into(), 3, 1)
    );
    assert_eq!(
        merge_all([delete(1), initial(2), delete(3)]),
        ("-1".into(), 2, 1)
    );
}

#[test]
fn contradictory_events_merge_to_the_last_state() {
    assert_eq!(
        merge_all([initial(1), initial(2)]),
        ("initial +2".into(), 1, 1)
    );
    assert_eq!(merge_all([add(1), initial(2)]), ("initial +2".into(), 1, 0));
    assert_eq!(merge_all([update(1, 2), initial(3)]), ("1>3".into(), 1, 1));
    assert_eq!(merge_all([delete(1), delete(2)]), ("-1".into(), 1, 0));
    // The deletion with a known final state wins (D4).
    assert_eq!(merge_all([gone(1), delete(2)]), ("-2 after 1".into(), 1, 0));
    assert_eq!(merge_all([delete(1), update(1, 2)]), ("-1 +2".into(), 0, 0));
    assert_eq!(
        merge_all([delete(1), update(1, 2), delete(2), delete(3), add(4)]),
        ("-1 +4".into(), 3, 0)
    );
}

#[test]
fn merged_event_keeps_the_position_of_the_first() {
    let mut coalescing = Coalescing::default();
    for (key, event) in [
        ("a", update(1, 2)),
        ("b", delete(1)),
        ("c", add(1)),
        ("a", update(2, 3)),
        ("b", add(2)),
        ("c", update(1, 2)),
        ("b", update(2, 3)),
        ("a", delete(4)),
        ("a", add(5)),
    ] {
        coalescing.write(of(key, event));
    }
    let read = std::iter::from_fn(|| coalescing.read())
        .map(|notification| text(&notification.event))
        .collect::<Vec<_>>();
    assert_eq!(read, ["-4 after 1", "-1", "+2", "+3", "+5"]);
}

#[test]
fn event_is_not_merged_with_one_already_read() {
    let mut coalescing = Coalescing::default();
    coalescing.write(of("a", add(1)));
    assert_eq!(
        coalescing
            .read()
            .map(|notification| text(&notification.event))
            .as_deref(),
        Some("+1")
    );
    coalescing.write(of("a", delete(2)));
    coalescing.write(of("a", add(3)));
    assert_eq!(
        coalescing
            .read()
            .map(|notification| text(&notification.event))
            .as_deref(),
        Some("-2")
    );
    // The add after the deletion is now the first event.
    let merged = coalescing.write(of("a", update(3, 4)));
    assert_eq!(merged.map(|merged| merged.events), Some(1));
    assert_eq!(
        coalescing
            .read()
            .map(|notification| text(&notification.event))
            .as_deref(),
        Some("+4")
    );
    assert!(coalescing.read().is_none());
}

#[test]
fn million_updates_of_ten_objects_merge_into_ten_events() {
    let mut coalescing = Coalescing::default();
    let keys: Vec<Key> = (0..10).map(|key| format!("o{key}").into()).collect();
    let objects: Vec<_> = (0..=100_000).map(Arc::new).collect();
    let mut merged = 0;
    for (at, pair) in objects.windows(2).enumerate() {
        for key in &keys {
            let event = Notification::Modified {
                old: Arc::clone(&pair[0]),
                new: Arc::clone(&pair[1]),
            };
            merged += coalescing
                .write(KeyedNotification {
                    key: Key::clone(key),
                    event,
                })
                .map_or(0, |merged| merged.events);
        }
        assert!(coalescing.len() <= 10, "after {at}");
    }
    assert_eq!((coalescing.len(), merged), (10, 999_990));
    assert!(
        objects[1..100_000]
            .iter()
            .all(|object| Arc::strong_count(object) == 1)
    );
    let read = std::iter::from_fn(|| coalescing.read())
        .map(|notification| text(&notification.event))
        .collect::<Vec<_>>();
    assert_eq!(read, ["0>100000"; 10]);
}

#[test]
fn memory_of_many_keys_is_freed_before_last_is_read() {
    let mut coalescing = Coalescing::default();
    for key in 0..100_000 {
        coalescing.write(of(&key.to_string(), add(key)));
    }
    let most = coalescing.slots.capacity();
    for _ in 0..95_000 {
        coalescing.read();
    }
    let (few, len) = (coalescing.slots.capacity(), coalescing.len());
    assert!(len == 5000 && few <= most / 8, "{few} of {most} for {len}");
    while coalescing.read().is_some() {}
    assert!((KEEP..=2 * KEEP).contains(&coalescing.slots.capacity()));
}

/// A generator whose sequence depends only on the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// The state that a handler derives from its events. `apply` panics at an event that contradicts
/// the state.
#[derive(Clone, Default, Debug, PartialEq)]
struct View(BTreeMap<String, u32>);

impl View {
    fn apply(&mut self, key: &str, event: &Notification<u32>, why: &str) {
        let (before, after) = match event {
            Notification::Added { object, .. } => (None, Some(**object)),
            Notification::Modified { old, new } => (Some(**old), Some(**new)),
            Notification::Deleted { last_delivered, .. } => {
                let known = self.0.remove(key);
                assert!(
                    known.is_some(),
                    "{key}: deletion of an unknown object, {why}"
                );
                assert!(
                    last_delivered.is_none() || last_delivered.as_deref().copied() == known,
                    "{why}"
                );
                return;
            }
        };
        let known = after.and_then(|after| self.0.insert(key.to_owned(), after));
        assert_eq!(known, before, "{key}: {}, {why}", text(event));
    }
}

/// Returns the view of a handler that receives only odd versions.
fn filtered(events: &[(String, Notification<u32>)], why: &str) -> View {
    let is_odd = |object: &u32| object % 2 == 1;
    let (sender, passed) = mpsc::channel();
    let send = HandlerFuncs::new().on_event(move |event| sender.send(event.clone()).unwrap());
    // The filter is applied twice, to test nested filters.
    let mut handler = FilteringHandler::new(is_odd, FilteringHandler::new(is_odd, send));
    let mut view = View::default();
    for (key, event) in events {
        event.deliver(&mut handler);
        passed
            .try_iter()
            .for_each(|event| view.apply(key, &event, why));
    }
    view
}

/// A buffer whose invariants are checked after each operation.
#[derive(Default)]
struct Checked {
    coalescing: Coalescing<u32>,
    written: usize,
    read: usize,
    removed: usize,
    /// The number of initial adds that were neither read nor canceled.
    initial: usize,
    /// For each object, its waiting changes: when each one arrived, and whether it is a deletion.
    since: BTreeMap<String, VecDeque<(usize, bool)>>,
}

impl Checked {
    fn write(&mut self, key: &str, event: &Notification<u32>) {
        self.written += 1;
        self.initial += usize::from(event.is_in_initial_list());
        let deletes = matches!(event, Notification::Deleted { .. });
        let added = self
            .coalescing
            .waiting
            .values()
            .rfind(|waits| &*waits.key == key);
        let added = added.is_some_and(|waits| matches!(waits.event, Notification::Added { .. }));
        let since = self.since.entry(key.to_owned()).or_default();
        match since.back_mut() {
            // The add was never delivered and is canceled.
            Some(_) if deletes && added => drop(since.pop_back()),
            Some((_, last)) if deletes || !*last => *last = deletes,
            _ => since.push_back((self.written, deletes)),
        }
        let merged = self.coalescing.write(of(key, event.clone()));
        if let Some(merged) = merged {
            self.removed += merged.events;
            self.initial -= merged.initial;
        }
        self.check();
    }

    fn read(&mut self) -> Option<(String, Notification<u32>)> {
        let key = self
            .coalescing
            .waiting
            .values()
            .next()
            .map(|waits| waits.key.to_string());
        let event = self
            .coalescing
            .read()
            .map(|notification| notification.event);
        assert_eq!(key.is_some(), event.is_some());
        let (key, event) = key.zip(event)?;
        self.read += 1;
        self.initial -= usize::from(event.is_in_initial_list());
        let oldest = self
            .since
            .iter()
            .filter_map(|(key, since)| Some((since.front()?.0, key)))
            .min();
        assert_eq!(
            oldest.map(|(_, key)| key),
            Some(&key),
            "the oldest change is read first"
        );
        self.since.get_mut(&key).unwrap().pop_front();
        self.check();
        Some((key, event))
    }

    fn check(&self) {
        let Coalescing { waiting, slots, .. } = &self.coalescing;
        assert_eq!(self.written, self.read + self.removed + waiting.len());
        let mut counts = BTreeMap::<&str, usize>::new();
        waiting
            .values()
            .for_each(|waits| *counts.entry(&waits.key).or_default() += 1);
        assert!(counts.values().all(|count| *count <= 2), "{counts:?}");
        assert_eq!(counts.len(), slots.len());
        let initial = waiting
            .values()
            .filter(|waits| waits.event.is_in_initial_list())
            .count();
        assert_eq!(
            self.initial, initial,
            "number of initial adds in the buffer"
        );
    }
}

/// Runs random operations for many seeds. `next` returns the next event of a key.
fn for_any_sequence(
    next: impl Fn(&mut Random, Option<u32>, u32) -> Notification<u32>,
    views: bool,
) {
    for seed in 0..400 {
        let (random, mut checked) = (&mut Random(seed), Checked::default());
        let (mut server, mut all, mut coalesced) =
            (BTreeMap::new(), View::default(), View::default());
        let (keys, reads) = (1 + random.below(6), random.below(4));
        let mut delivered = Vec::new();
        for version in 1..300 {
            if random.below(4) < reads {
                delivered.extend(checked.read());
                continue;
            }
            let key = format!("o{}", random.below(keys));
            let event = next(random, server.get(&key).copied(), version);
            match event.object() {
                Some(object) if !matches!(event, Notification::Deleted { .. }) => {
                    server.insert(key.clone(), **object)
                }
                _ => server.remove(&key),
            };
            if views {
                all.apply(&key, &event, "unbounded");
            }
            checked.write(&key, &event);
        }
        delivered.extend(std::iter::from_fn(|| checked.read()));
        let why = format!("seed {seed}");
        if views {
            delivered
                .iter()
                .for_each(|(key, event)| coalesced.apply(key, event, &why));
            let truth = View(
                server
                    .into_iter()
                    .filter(|(_, version)| version % 2 == 1)
                    .collect(),
            );
            assert_eq!(filtered(&delivered, &why), truth, "{why}");
        }
        assert_eq!((coalesced, checked.initial), (all, 0), "{why}");
    }
}

#[test]
fn random_merged_events_are_consistent_and_reach_final_state() {
    let valid = |random: &mut Random, known: Option<u32>, version: u32| match known {
        None if random.below(3) == 0 => initial(version),
        None => add(version),
        Some(known) => match random.below(6) {
            // The deletion does not change whether filters accept the object.
            0 | 1 => delete(if (version - known).is_multiple_of(2) {
                version
            } else {
                known
            }),
            2 => gone(known),
            3 => update(known, known),
            _ => update(known, version),
        },
    };
    for_any_sequence(valid, true);
}

#[test]
fn random_contradictory_events_keep_bounds_and_counts() {
    let any = |random: &mut Random, _: Option<u32>, version: u32| match random.below(5) {
        0 => initial(version),
        1 => add(version),
        2 => update(version - 1, version),
        3 => gone(version),
        _ => delete(version),
    };
    for_any_sequence(any, false);
}
