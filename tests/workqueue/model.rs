//! Random operations, against a model as client-go tells it: sets and lists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::support::*;

/// client-go's `Typed` and `delayingType`, without threads and without Q4 and Q7.
#[derive(Default)]
struct Model {
    queue: VecDeque<u32>,
    dirty: BTreeSet<u32>,
    processing: BTreeSet<u32>,
    /// When, and the how manieth.
    delayed: BTreeMap<u32, (u64, u64)>,
    now: u64,
    serial: u64,
    shutting_down: bool,
}

impl Model {
    fn add(&mut self, item: u32) {
        if self.shutting_down || !self.dirty.insert(item) || self.processing.contains(&item) {
            return;
        }
        self.queue.push_back(item);
    }

    fn get(&mut self) -> Option<u32> {
        let item = self.queue.pop_front()?;
        self.processing.insert(item);
        self.dirty.remove(&item);
        Some(item)
    }

    fn done(&mut self, item: u32) {
        if self.processing.remove(&item) && self.dirty.contains(&item) {
            self.queue.push_back(item);
        }
    }

    fn add_after(&mut self, item: u32, delay: u64) {
        if delay == 0 {
            return self.add(item);
        }
        if self.shutting_down {
            return;
        }
        self.serial += 1;
        let due = (self.now + delay, self.serial);
        let known = self.delayed.entry(item).or_insert(due);
        if due.0 < known.0 {
            *known = due;
        }
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let mut due: Vec<_> = self
            .delayed
            .iter()
            .filter(|(_, due)| due.0 <= self.now)
            .collect();
        due.sort_by_key(|(_, due)| **due);
        let due: Vec<u32> = due.into_iter().map(|(item, _)| *item).collect();
        for item in due {
            self.delayed.remove(&item);
            self.add(item);
        }
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[test]
fn q1_to_q14_as_sets_and_lists_would_do_it() {
    for seed in 0..300 {
        let (queue, clock) = delaying();
        let (mut model, mut random) = (Model::default(), Random(seed));
        let mut taken = Vec::new();
        for step in 0..200 {
            let at = format!("seed {seed}, step {step}");
            let item = random.below(6) as u32;
            match random.below(12) {
                0..=2 => {
                    queue.add(item);
                    model.add(item);
                }
                3 | 4 if !model.queue.is_empty() => {
                    let guard = random.below(2) == 0;
                    if guard {
                        let item = queue.take().unwrap();
                        assert_eq!(Some(*item), model.get(), "{at}");
                        taken.push(item);
                    } else {
                        assert_eq!(queue.get(), model.get(), "{at}");
                    }
                }
                3 | 4 if model.shutting_down => assert!(queue.get().is_none(), "{at}"),
                5 | 6 => {
                    queue.done(&item);
                    model.done(item);
                    // What is done by its name is not done again by its guard, even if it has been taken
                    // since.
                    taken.retain(|guard| **guard != item);
                }
                7 if !taken.is_empty() => {
                    let guard = taken.swap_remove(random.below(taken.len() as u64) as usize);
                    model.done(*guard);
                    drop(guard);
                }
                8 | 9 => {
                    let delay = random.below(5) * 10;
                    queue.add_after(item, millis(delay));
                    model.add_after(item, delay);
                }
                10 => {
                    let by = random.below(30);
                    clock.advance(millis(by));
                    model.advance(by);
                }
                11 if random.below(40) == 0 => {
                    queue.shut_down();
                    model.shutting_down = true;
                    model.delayed.clear();
                }
                _ => {}
            }
            assert_eq!(queue.len(), model.queue.len(), "{at}");
            assert_eq!(queue.shutting_down(), model.shutting_down, "{at}");
        }
        drop(taken);
    }
}
