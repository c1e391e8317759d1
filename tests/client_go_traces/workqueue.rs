use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::error::ShutdownError;
use k8s_informer::workqueue::{AnyWorkQueue, DelayingQueue, Order, RateLimitingQueue, WorkQueue};
use k8s_informer_testing::FakeClock;
use serde_json::{Value, json};

use super::Replay;
use super::object::text;
use super::rate_limiter;

/// How long to wait for a drain that must return, and for one that must not.
const PATIENCE: [Duration; 2] = [Duration::from_secs(20), Duration::from_millis(5)];

/// The maximum delay until a thread begins its drain.
const LATE: Duration = Duration::from_secs(1);

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let clock = FakeClock::new();
    let touches = Arc::<Mutex<Vec<String>>>::default();
    let recording = |to_front| Recording {
        waiting: VecDeque::new(),
        touches: Arc::clone(&touches),
        to_front,
    };
    let mut builder = WorkQueue::builder().clock(Arc::new(clock.clone()));
    match text(&config["queue"]) {
        "default" => {}
        "recording" => builder = builder.order(recording(false)),
        "touch_to_front" => builder = builder.order(recording(true)),
        other => panic!("queue {other}"),
    }
    let queue = match text(&config["kind"]) {
        "plain" => Kind::Plain(builder.build().unwrap()),
        "delaying" => Kind::Delaying(builder.build_delaying().unwrap()),
        "rate_limiting" => {
            let limiter = rate_limiter::limiter(&config["limiter"], &clock);
            Kind::RateLimiting(builder.build_rate_limiting(limiter).unwrap())
        }
        other => panic!("kind {other}"),
    };
    Box::new(Subject {
        queue: Arc::new(queue),
        clock,
        touches,
        drains: Vec::new(),
        is_released: false,
    })
}

enum Kind {
    Plain(WorkQueue<String>),
    Delaying(DelayingQueue<String>),
    RateLimiting(RateLimitingQueue<String>),
}

impl Kind {
    fn any(&self) -> &dyn AnyWorkQueue<String> {
        match self {
            Self::Plain(queue) => queue,
            Self::Delaying(queue) => queue,
            Self::RateLimiting(queue) => queue,
        }
    }

    fn add_after(&self, item: String, delay: Duration) {
        match self {
            Self::Plain(_) => panic!("this queue has no delayed adds"),
            Self::Delaying(queue) => queue.add_after(item, delay),
            Self::RateLimiting(queue) => queue.add_after(item, delay),
        }
    }

    fn shut_down(&self) -> Result<(), ShutdownError> {
        match self {
            Self::Plain(queue) => queue.shut_down(None),
            Self::Delaying(queue) => queue.shut_down(None),
            Self::RateLimiting(queue) => queue.shut_down(None),
        }
    }

    fn rate_limiting(&self) -> &RateLimitingQueue<String> {
        match self {
            Self::RateLimiting(queue) => queue,
            _ => panic!("this queue has no rate limiter"),
        }
    }
}

/// A FIFO order that records touched items.
struct Recording {
    waiting: VecDeque<String>,
    touches: Arc<Mutex<Vec<String>>>,
    /// Whether a touched item moves to the front.
    to_front: bool,
}

impl Order<String> for Recording {
    fn touch(&mut self, item: &String) {
        self.touches.lock().unwrap().push(item.clone());
        if let (true, Some(at)) = (
            self.to_front,
            self.waiting.iter().position(|waiting| waiting == item),
        ) {
            let item = self.waiting.remove(at).unwrap();
            self.waiting.push_front(item);
        }
    }

    fn push(&mut self, item: String) {
        self.waiting.push_back(item);
    }

    fn pop(&mut self) -> Option<String> {
        self.waiting.pop_front()
    }
}

struct Subject {
    queue: Arc<Kind>,
    clock: FakeClock,
    touches: Arc<Mutex<Vec<String>>>,
    /// The drains that have not returned. Each receiver reports the end of its drain.
    drains: Vec<(thread::JoinHandle<()>, mpsc::Receiver<()>)>,
    /// Whether the queue was shut down after the drains began, which must release them (Q7).
    is_released: bool,
}

impl Subject {
    /// Whether all drains have returned.
    fn drained(&mut self, wanted: &Value) -> bool {
        let patience = PATIENCE[usize::from(wanted == &json!(false))];
        let (queue, is_released) = (
            Arc::clone(&self.queue),
            self.is_released && wanted == &json!(true),
        );
        let waits = |end: &mpsc::Receiver<()>, time| {
            end.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout)
        };
        self.drains.retain(|(_, end)| {
            // A shutdown does not release a thread that begins its drain later, so shut down again.
            if is_released && waits(end, LATE) {
                queue.any().stop();
            }
            waits(end, patience)
        });
        self.drains.is_empty()
    }
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let item = || text(&step["item"]).to_owned();
        let queue = self.queue.any();
        match op {
            "add" => queue.add(item()),
            "done" => queue.done(&item()),
            "get" if queue.is_empty() && !queue.is_stopped() => {
                return json!({"would_block": true});
            }
            "get" => {
                return match queue.get() {
                    Some(item) => json!({"item": item, "shutdown": false}),
                    None => json!({"shutdown": true}),
                };
            }
            "len" => return json!({"value": queue.len()}),
            "add_after" => {
                // `Duration` cannot be negative, so a negative delay becomes zero, which has the
                // same effect.
                let delay = step["ms"].as_i64().unwrap().try_into().unwrap_or(0);
                self.queue.add_after(item(), Duration::from_millis(delay));
            }
            "add_rate_limited" => self.queue.rate_limiting().add_rate_limited(item()),
            "forget" => self.queue.rate_limiting().forget(&item()),
            "num_requeues" => {
                return json!({"value": self.queue.rate_limiting().requeues(&item())});
            }
            "advance_ms" => self
                .clock
                .advance(Duration::from_millis(step["ms"].as_u64().unwrap())),
            "shutdown" => {
                queue.stop();
                self.is_released = !self.drains.is_empty();
            }
            "shutdown_with_drain" => {
                let (queue, (ended, end)) = (Arc::clone(&self.queue), mpsc::channel());
                let drain = thread::spawn(move || {
                    let _ = queue.shut_down();
                    let _ = ended.send(());
                });
                self.drains.push((drain, end));
                while !self.queue.any().is_stopped() {
                    thread::yield_now();
                }
                return json!({"returned": self.drained(&step["want"]["returned"])});
            }
            "drain_returned" => return json!({"value": self.drained(&step["want"]["value"])}),
            "shutting_down" => return json!({"value": queue.is_stopped()}),
            "touches" => {
                // `len` moves due items into the queue.
                let _ = queue.len();
                return json!({"items": *self.touches.lock().unwrap()});
            }
            other => panic!("op {other}"),
        }
        json!({})
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.queue.any().stop();
        for (drain, _) in self.drains.drain(..) {
            // See `drained`.
            while !drain.is_finished() {
                self.queue.any().stop();
                thread::yield_now();
            }
            let _ = drain.join();
        }
    }
}
