//! How long a `get` and a write wait during a large operation on a store of a million objects. One
//! thread reads at full speed, one writes 20,000 times per second, and both time each call. A third
//! thread lists, replaces, and so on. Each run compares three cases: the store of this crate, a
//! plain `RwLock` around a map and its indexes, and a control. The control has three plain stores,
//! one for each thread, so the threads share nothing. Slow calls of the control come from the
//! machine and its time slices, not from a lock.
//!
//! ```text
//! cargo bench --bench stall                        # a million objects, a minute or two
//! cargo bench --bench stall -- 100000 list replace # 100,000 objects, only these operations
//! ```

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Cache, Jump, Named, Ours, Plain, all_equal, key_of, objects};

const WRITES_PER_MILLISECOND: usize = 20;

/// The operations of the third thread, with the number of rounds and the name.
const WORK: [(Work, usize, &str); 9] = [
    (Work::Nothing, 5, "nothing"),
    (Work::List, 20, "list"),
    (Work::ByIndex, 10, "by_index"),
    (Work::Values, 10, "values"),
    (Work::Replace, 10, "replace"),
    (Work::AddIndex, 3, "add_index"),
    (Work::Fill, 3, "fill"),
    (Work::FillIndexed, 3, "fill_indexed"),
    (Work::Empty, 3, "empty"),
];

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Nothing,
    List,
    /// Looks up a value that every object has.
    ByIndex,
    /// Lists the values of an index with one value per object.
    Values,
    Replace,
    /// Adds an index with one value per object.
    AddIndex,
    /// Adds all objects one by one to an empty store, at full speed.
    Fill,
    /// Like `Fill`, with an index that has one value per object.
    FillIndexed,
    /// Deletes all objects one by one.
    Empty,
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let count = arguments.iter().find_map(|argument| argument.parse().ok());
    let objects = objects(count.unwrap_or(if test { 5_000 } else { 1_000_000 }));
    let any = WORK
        .iter()
        .any(|(_, _, name)| arguments.iter().any(|argument| argument == name));

    println!(
        "{} objects. Times in milliseconds, p99.9 in microseconds. >2, >10: calls longer than 2 and 10 ms.",
        objects.len()
    );
    println!(
        "worst: the slowest call of a round, median of all rounds. worst*: the slowest call of all rounds."
    );
    let head = |calls| {
        format!(
            "{calls:>11} {:>8} {:>7} {:>7} {:>4} {:>4}",
            "p99.9", "worst", "worst*", ">2", ">10"
        )
    };
    println!(
        "{:12} {:8} {:>7} {:>7} | {} | {}",
        "",
        "",
        "worst",
        "worst*",
        head("gets"),
        head("puts")
    );
    for (work, rounds, name) in WORK {
        if any && !arguments.iter().any(|argument| argument == name) {
            continue;
        }
        let rounds = if test { 1 } else { rounds };
        println!(
            "{name:12} ours     {}",
            measure::<Ours>(work, rounds, &objects, true)
        );
        println!(
            "{name:12} RwLock   {}",
            measure::<Plain>(work, rounds, &objects, true)
        );
        println!(
            "{name:12} control  {}",
            measure::<Plain>(work, rounds, &objects, false)
        );
    }
}

fn measure<C: Cache>(work: Work, rounds: usize, objects: &[Arc<Named>], shared: bool) -> String {
    let stores: [C; 3] = Default::default();
    let [read, written, worked] = if shared {
        [&stores[0]; 3]
    } else {
        stores.each_ref()
    };
    let filling = matches!(work, Work::Fill | Work::FillIndexed);
    for store in stores.iter().take(if shared { 1 } else { 3 }) {
        match work {
            Work::ByIndex => store.add_index("all", all_equal),
            Work::Values | Work::FillIndexed => store.add_index("key", key_of),
            _ => {}
        }
        if !filling {
            store.replace(objects);
        }
    }
    // glibc reorganizes freed memory at the next larger allocation. After millions of objects this
    // takes seconds. Trigger it now, outside the measurement.
    drop(black_box(Vec::<u8>::with_capacity(64 << 10)));

    let done = AtomicBool::new(false);
    let round = AtomicUsize::new(0);
    // The number of objects that can be read and written.
    let present = AtomicUsize::new(if filling { 1 } else { objects.len() });
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut times, mut jump) = (Times::new(rounds), Jump::new());
            while !done.load(Ordering::Relaxed) {
                let at = jump.below(present.load(Ordering::Relaxed));
                times.time(&round, || read.get(&objects[at].key));
            }
            times
        });
        let writer = scope.spawn(|| {
            let (mut times, mut jump) = (Times::new(rounds), Jump::new());
            let began = Instant::now();
            while !done.load(Ordering::Relaxed) && work != Work::Empty {
                let due = began.elapsed().as_micros() as usize * WRITES_PER_MILLISECOND / 1000;
                // After a stall, catch up in bursts of at most one millisecond's writes.
                for _ in times.all.len()..due.min(times.all.len() + WRITES_PER_MILLISECOND) {
                    let at = jump.below(present.load(Ordering::Relaxed));
                    times.time(&round, || written.add(&objects[at]));
                }
                thread::sleep(Duration::from_micros(200));
            }
            times
        });
        let mut works = Times::new(rounds);
        for now in 0..rounds {
            round.store(now, Ordering::Relaxed);
            match work {
                Work::Nothing => thread::sleep(Duration::from_millis(200)),
                Work::List => drop(works.time(&round, || worked.list())),
                Work::ByIndex => drop(works.time(&round, || worked.by_index("all", "all"))),
                Work::Values => drop(works.time(&round, || worked.values("key"))),
                Work::Replace => works.time(&round, || worked.replace(objects)),
                Work::AddIndex => works.time(&round, || {
                    worked.add_index(&format!("key {now}"), key_of);
                }),
                Work::Fill | Work::FillIndexed => {
                    present.store(1, Ordering::Relaxed);
                    worked.replace(&[]);
                    for (at, object) in objects.iter().enumerate() {
                        works.time(&round, || worked.add(object));
                        present.store(at + 1, Ordering::Relaxed);
                    }
                }
                Work::Empty => {
                    worked.replace(objects);
                    objects
                        .iter()
                        .for_each(|object| works.time(&round, || worked.delete(&object.key)));
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        done.store(true, Ordering::Relaxed);
        let gets = reader.join().expect("no thread panics").report();
        let puts = writer.join().expect("no thread panics").report();
        format!("{} | {gets} | {puts}", works.worst())
    })
}

/// The durations of calls in nanoseconds.
struct Times {
    all: Vec<f32>,
    /// The longest call of each round.
    worst: Vec<f32>,
}

impl Times {
    fn new(rounds: usize) -> Self {
        Self {
            all: Vec::new(),
            worst: vec![0.0; rounds],
        }
    }

    fn time<R>(&mut self, round: &AtomicUsize, call: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let result = call();
        let time = began.elapsed().as_nanos() as f32;
        self.all.push(time);
        let worst = &mut self.worst[round.load(Ordering::Relaxed)];
        *worst = worst.max(time);
        result
    }

    fn worst(&mut self) -> String {
        self.worst.sort_unstable_by(f32::total_cmp);
        let (median, worst) = (
            self.worst[self.worst.len() / 2],
            self.worst[self.worst.len() - 1],
        );
        format!("{:7.2} {:7.2}", median / 1e6, worst / 1e6)
    }

    fn report(mut self) -> String {
        let over = |limit: f32| self.all.iter().filter(|time| **time > limit).count();
        let (calls, two, ten) = (self.all.len(), over(2e6), over(1e7));
        self.all.push(0.0);
        let (_, high, _) = self
            .all
            .select_nth_unstable_by(calls * 999 / 1000, f32::total_cmp);
        format!(
            "{calls:11} {:8.1} {} {two:4} {ten:4}",
            *high / 1e3,
            self.worst()
        )
    }
}
