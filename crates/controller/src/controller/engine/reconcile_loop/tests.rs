//! The memory that own writes take, with a scripted cache.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::*;
use crate::controller::call::core::Events;
use crate::controller::sources::source::AnySource;
use crate::controller::writes::own_writes::KeyWrites;
use crate::controller::writes::record::tests::{Scripted, maps};
use k8s_informer::__private::Meter;
use k8s_informer::client::api::{WriteObserver, WriteOutcome};
use k8s_informer::client::{Client, Config};
use k8s_informer::object::{DynamicObject, ObjectName};
use k8s_informer::workqueue::default_controller_rate_limiter;
use k8s_informer_testing::FakeClock;

const KEYS: usize = 100_000;
const WORKERS: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(10);

type CallFn = dyn Fn(&KeyWrites) + Send + Sync;

struct Running {
    cache: Arc<Scripted>,
    clock: FakeClock,
    of: Arc<ReconcileLoop>,
    calls: Arc<AtomicUsize>,
    stop: Stopper,
    thread: thread::JoinHandle<()>,
}

struct Writer(Box<CallFn>, Arc<AtomicUsize>);

impl Reconcile for Writer {
    fn reconcile(&self, cx: Context, _: &VanishedObjects) -> Result<Called, Failure> {
        (self.0)(cx.writes());
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(Called::Yes(Next::Done))
    }
}

impl Running {
    /// Runs a loop whose calls make these writes.
    fn start(call: Box<CallFn>) -> Self {
        let clock = FakeClock::new();
        let settings = Settings {
            workers: WORKERS,
            time_limit: None,
            grace_period: Duration::ZERO,
            own_writes_timeout: TIMEOUT,
        };
        let client = Client::new(Config::new("http://127.0.0.1:1")).unwrap();
        let cache = Arc::new(Scripted::new());
        let sources = Arc::from([Arc::clone(&cache) as Arc<dyn AnySource>]);
        let core = Core {
            field_manager: String::new(),
            name: "memory".to_owned(),
            kind: None,
            client,
            sources,
            clock: Arc::new(clock.clone()),
            events: Events::default(),
            meter: Meter::new(None),
        };
        let calls = Arc::<AtomicUsize>::default();
        let queue = QueueSettings {
            name: core.name.clone(),
            clock: Arc::clone(&core.clock),
            starvation_limit: 10,
            limiter: Arc::new(default_controller_rate_limiter()),
            metrics: None,
            is_sorted: false,
        };
        let parts = LoopParts {
            settings,
            core: Arc::new(core),
            queue,
            reconciler: Arc::new(Writer(call, Arc::clone(&calls))),
            probe: None,
        };
        let of = Arc::new(ReconcileLoop::new(&parts).unwrap());
        let stop = Stopper::new();
        let run = (Arc::clone(&of), stop.clone());
        Self {
            cache,
            clock,
            of,
            calls,
            stop,
            thread: thread::spawn(move || run.0.run(&run.1, &Stopper::new()).unwrap()),
        }
    }

    /// Calls the function once for each key.
    fn call_all(&self) {
        let keys = (0..KEYS).map(|number| ObjectName::new("a", format!("team-{number}")).to_key());
        self.of.enqueue(keys, 0);
        wait_until(|| {
            self.calls.load(Ordering::Relaxed) == KEYS && self.of.status().running.is_empty()
        });
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap();
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

fn shared() -> DynamicObject {
    let metadata = json!({"namespace": "a", "name": "shared", "resourceVersion": "5"});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// No event follows a write that changes nothing, or one whose event comes before its response.
#[test]
fn writes_that_the_cache_has_are_forgotten_after_the_call() {
    let running = Running::start(Box::new(|writes| {
        let report = writes.before_write(&maps(), &ObjectName::of(&shared()));
        report(WriteOutcome::Written(&shared()));
        let own_writes = writes.own_writes().unwrap();
        assert!(own_writes.keys_with_writes() <= WORKERS);
    }));
    running.cache.store("a/shared", "u1", "5");
    running.call_all();
    assert!(!running.of.own_writes.awaits_writes());
    assert_eq!(running.of.status().failing, 0);
    running.end();
}

/// No event follows a failed write, and the key may never be called again.
#[test]
fn writes_with_unknown_outcomes_are_forgotten_in_time() {
    let running = Running::start(Box::new(|writes| {
        let target = ObjectName::new("a", "shared");
        writes.before_write(&maps(), &target)(WriteOutcome::Unknown);
    }));
    running.call_all();
    assert_eq!(running.of.own_writes.keys_with_writes(), KEYS);
    // The timer may begin its wait later.
    wait_until(|| {
        running.clock.advance(TIMEOUT);
        !running.of.own_writes.awaits_writes()
    });
    assert!(running.of.status().awaited.is_empty());
    running.end();
}
