//! The priority queue of controller-runtime. Waiting calls of `Get` are counted, and served after
//! each step and each millisecond; tests of the work queues have real ones.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::workqueue::{
    AddOptions, AnyWorkQueue, ItemExponentialFailureRateLimiter, PriorityQueue, RateLimiter,
    WorkQueue,
};
use k8s_informer_testing::FakeClock;
use serde_json::{Value, json};

use super::Replay;
use super::object::text;
use super::rate_limiter;

/// An item that shows whether another one can be taken.
const MARK: &str = "mark";

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let clock = FakeClock::new();
    let limiter: Box<dyn RateLimiter<String>> = match &config["limiter"] {
        Value::Null => Box::new(ItemExponentialFailureRateLimiter::new(
            Duration::from_millis(5)..=Duration::from_secs(1000),
        )),
        config => rate_limiter::limiter(config, &clock),
    };
    let builder = WorkQueue::builder().clock(Arc::new(clock.clone()));
    Box::new(Subject {
        queue: builder.build_priority(limiter).unwrap(),
        clock,
        processing: BTreeSet::new(),
        waiting: 0,
    })
}

struct Subject {
    queue: PriorityQueue<String>,
    clock: FakeClock,
    processing: BTreeSet<String>,
    /// The number of calls of `Get` that wait.
    waiting: usize,
}

impl Subject {
    /// Takes an item unless the call would wait.
    fn try_get(&mut self) -> Option<Value> {
        let mark = |priority| {
            let options = AddOptions::new().priority(priority);
            self.queue.add_with(MARK.to_owned(), options);
            self.queue.get_with_priority().unwrap()
        };
        let (item, priority) = mark(i32::MIN);
        if item != MARK {
            assert_eq!(mark(i32::MAX).0, MARK);
        }
        self.queue.done(&MARK.to_owned());
        (item != MARK).then(|| self.taken(item, priority))
    }

    fn taken(&mut self, item: String, priority: i32) -> Value {
        let value = json!({"item": item, "priority": priority});
        self.processing.insert(item);
        value
    }

    fn get(&mut self) -> Value {
        let blocked = json!({"would_block": true});
        if self.waiting > 0 {
            return blocked;
        }
        if !self.queue.is_stopped() {
            return self.try_get().unwrap_or(blocked);
        }
        match self.queue.get_with_priority() {
            Some((item, priority)) => self.taken(item, priority),
            None => json!({"shutdown": true}),
        }
    }

    /// Serves the waiting calls.
    fn serve(&mut self, handed: &mut Vec<Value>) {
        while self.waiting > 0 && !self.queue.is_stopped() {
            let Some(item) = self.try_get() else { return };
            handed.push(item);
            self.waiting -= 1;
        }
    }

    fn add(&self, step: &Value) {
        let mut options = AddOptions::new();
        if let Some(priority) = step["priority"].as_i64() {
            options = options.priority(priority.try_into().unwrap());
        }
        // A `Duration` cannot be negative. Zero has the same effect as a negative delay.
        if let Some(delay) = step["after_ms"].as_i64() {
            options = options.after(Duration::from_millis(delay.try_into().unwrap_or(0)));
        }
        if step["rate_limited"] == true {
            options = options.rate_limited(true);
        }
        for item in step["items"].as_array().unwrap() {
            self.queue.add_with(text(item).to_owned(), options);
        }
    }
}

impl Replay for Subject {
    fn deviates(&self, step: &Value) -> Option<&'static str> {
        let depends = match text(&step["op"]) {
            // Ready items are still returned.
            "get" | "get_waiting" => self.queue.is_stopped() && !self.queue.is_empty(),
            // The drain waits.
            "shutdown_with_drain" => !self.queue.is_empty() || !self.processing.is_empty(),
            _ => false,
        };
        depends.then_some("PQ8")
    }

    fn step(&mut self, op: &str, step: &Value) -> Value {
        let item = || text(&step["item"]).to_owned();
        let (mut result, mut handed) = (json!({}), Vec::new());
        let waited = self.waiting > 0;
        match op {
            "add" => self.add(step),
            "get" => result = self.get(),
            "get_waiting" if self.queue.is_stopped() => result = self.get(),
            "get_waiting" => self.waiting += 1,
            "done" => {
                self.processing.remove(&item());
                self.queue.done(&item());
            }
            "forget" => self.queue.forget(&item()),
            "num_requeues" => result = json!({"value": self.queue.requeues(&item())}),
            "len" => result = json!({"value": self.queue.len()}),
            "shutdown" => self.queue.stop(),
            "shutdown_with_drain" => self.queue.shut_down(None).unwrap(),
            "shutting_down" => result = json!({"value": self.queue.is_stopped()}),
            "advance_ms" => {
                let mut rest = step["ms"].as_u64().unwrap();
                while self.waiting > 0 && rest > 0 {
                    self.clock.advance(Duration::from_millis(1));
                    self.serve(&mut handed);
                    rest -= 1;
                }
                self.clock.advance(Duration::from_millis(rest));
            }
            other => panic!("op {other}"),
        }
        if waited || self.waiting > 0 {
            self.serve(&mut handed);
            handed.sort_by_key(Value::to_string);
            result["handed"] = handed.into();
            if self.waiting > 0 && self.queue.is_stopped() {
                let calls = 0..std::mem::take(&mut self.waiting);
                let released = calls.filter(|_| self.queue.get().is_none());
                result["shutdown"] = released.count().into();
            }
        }
        result
    }
}
