//! Informers of a server whose etcd is restored now and then, while objects change, processing is
//! slow and watches break. After the informer's next list, its cache equals the state of the
//! server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::informer::FactoryOptions;
use k8s_informer::informer::InformerQueue;
use k8s_informer::informer::Source;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{
    Client, Config, DynamicObject, Object, SharedIndexInformer, SharedInformerFactory, Stop,
};
use k8s_informer_testing::{ApiServer, Backup, FakeClock, Fault};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use crate::hostile::support::{DELIVERIES, Delivery, QUEUES, TIMEOUT, options, until};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Few objects, so that many states share a version.
const OBJECTS: u64 = 3;
const STEPS: usize = 40;
const ROUNDS: u64 = 36;

/// Xorshift: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    /// Whether the reflector waits, because it processes a change itself.
    holds_reflector: AtomicBool,
}

impl Gate {
    fn wait_until_open(&self) {
        let mut is_shut = self.is_shut.lock();
        let thread = thread::current();
        let is_reflector = thread
            .name()
            .is_some_and(|name| name.ends_with("reflector"));
        while *is_shut {
            self.holds_reflector.store(is_reflector, Ordering::Relaxed);
            assert!(
                !self.opened.wait_for(&mut is_shut, TIMEOUT).timed_out(),
                "the gate was not opened in time"
            );
        }
    }

    fn set(&self, is_shut: bool) {
        *self.is_shut.lock() = is_shut;
        self.holds_reflector.store(false, Ordering::Relaxed);
        self.opened.notify_all();
    }
}

/// The UID, version and content of each object, by name.
type States = BTreeMap<String, [String; 3]>;

struct Round {
    case: String,
    random: Random,
    server: ApiServer,
    gate: Arc<Gate>,
    informer: SharedIndexInformer<DynamicObject>,
}

impl Round {
    fn server_states(&self) -> States {
        let list = self.server.list(MAPS).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().unwrap().iter();
        let states = items.map(|item| {
            let meta = &item["metadata"];
            let state = [
                &meta["uid"],
                &meta["resourceVersion"],
                &item["data"]["step"],
            ];
            (text(&meta["name"]), state.map(text))
        });
        states.collect()
    }

    fn cached(&self) -> States {
        let objects = self.informer.lister().list();
        let states = objects.iter().map(|object| {
            let step: Option<String> = object.read("/data/step").unwrap();
            let step = step.unwrap_or_default();
            let state = [object.uid(), object.resource_version(), &step].map(str::to_owned);
            (object.name().to_owned(), state)
        });
        states.collect()
    }

    fn change(&mut self, step: usize) {
        let name = format!("m{}", self.random.below(OBJECTS));
        let path = format!("{MAPS}/{name}");
        // A change may be impossible, for example a delete of a missing object. The error is
        // ignored.
        match self.random.below(6) {
            0 => drop(self.server.delete(&path)),
            1 => drop(
                self.server
                    .create(MAPS, json!({ "metadata": { "name": name } })),
            ),
            _ => drop(
                self.server
                    .patch(&path, json!({ "data": { "step": step.to_string() } })),
            ),
        }
    }

    /// Restores the server like an etcd: no API server runs during the restore, so the informer
    /// sees a refused request.
    fn restore(&self, backup: &Backup) {
        let requests = || {
            let status = self.informer.status();
            status.lists + status.watches
        };
        self.server.pause();
        let before = requests();
        // One of the two requests may have started before the pause.
        until(|| {
            if self.gate.holds_reflector.load(Ordering::Relaxed) {
                self.gate.set(false);
            }
            requests() >= before + 2
        });
        self.server.restore(backup).unwrap();
        self.server.resume().unwrap();
    }

    /// Makes the informer list, and waits until the cache equals the state of the server.
    fn check(&mut self) {
        self.gate.set(false);
        let code = [403, 410][self.random.below(2) as usize];
        until(|| self.server.fail_watches(&Fault::status(code)) > 0);
        let (expected, began) = (self.server_states(), Instant::now());
        let mut attempts = 1;
        while self.cached() != expected {
            let waited = began.elapsed();
            let status = self.informer.status();
            assert!(
                waited < TIMEOUT,
                "{}: {status:?}\n{:?}\n{expected:?}",
                self.case,
                self.cached()
            );
            if waited > attempts * Duration::from_secs(1) {
                // The watch that failed with `code` had already ended, so fail the next one. Use
                // 403, because the informer must not take it for a sign of a restore.
                self.server.fail_watches(&Fault::status(403));
                attempts += 1;
            }
            thread::yield_now();
        }
    }
}

fn round(seed: u64, queue: InformerQueue, delivery: Delivery) {
    let server = ApiServer::builder().seed(seed).start().unwrap();
    for n in 0..OBJECTS {
        server
            .create(MAPS, json!({ "metadata": { "name": format!("m{n}") } }))
            .unwrap();
    }
    let mut options = options();
    options.watch_list = delivery == Delivery::WatchList;
    options.page_size = (delivery == Delivery::Pages).then_some(2);
    let client = Client::new(Config::new(server.url())).unwrap();
    let factory = SharedInformerFactory::with_options(
        client,
        FactoryOptions::new().queue(queue).reflector(options),
    );
    let informer = factory.informer_for(Source::dynamic(GroupVersionResource::new(
        "",
        "v1",
        "configmaps",
    )));
    let gate = Arc::new(Gate::default());
    let slow = Arc::clone(&gate);
    informer
        .add_index("slow", move |_| {
            slow.wait_until_open();
            Vec::new()
        })
        .unwrap();
    factory.start(&Stop::never()).unwrap();
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();

    let case = format!("seed {seed}, {queue:?}, {delivery:?}");
    let random = Random(0x9E37_79B9_7F4A_7C15 ^ (seed + 1));
    let mut round = Round {
        case,
        random,
        server,
        gate,
        informer,
    };
    let mut backup = round.server.backup();
    for step in 0..STEPS {
        match round.random.below(16) {
            0 => backup = round.server.backup(),
            1 | 2 => round.restore(&backup),
            3 => round.server.compact(),
            4 => drop(round.server.close_watches()),
            5 => drop(round.server.cut_watches()),
            6 => drop(round.server.fail_watches(&Fault::status(403))),
            7 => drop(round.server.fail_watches(&Fault::status(410))),
            8 => round.gate.set(true),
            9 => round.gate.set(false),
            // Gives the informer time to receive events.
            10 => drop(round.server.wait_for_watches(1, Duration::from_millis(20))),
            11 => round.check(),
            _ => round.change(step),
        }
    }
    round.check();
    factory.shut_down(None).unwrap();
}

#[test]
fn cache_is_correct_after_random_restores_and_slow_processing() {
    for seed in 0..ROUNDS {
        let (queue, delivery) = (QUEUES[seed as usize % 2], DELIVERIES[seed as usize / 2 % 3]);
        round(seed, queue, delivery);
    }
}

#[test]
fn restored_server_is_detected_by_watch_silence() {
    for queue in QUEUES {
        let server = ApiServer::start().unwrap();
        let kept = server
            .create(MAPS, json!({ "metadata": { "name": "kept" } }))
            .unwrap();
        let backup = server.backup();
        let clock = FakeClock::new();
        let mut options = options();
        options.clock = Arc::new(clock.clone());
        options.watch_idle_timeout = Some(Duration::from_millis(50));
        let client = Client::new(Config::new(server.url())).unwrap();
        let factory = SharedInformerFactory::with_options(
            client,
            FactoryOptions::new().queue(queue).reflector(options),
        );
        let informer = factory.informer_for(Source::dynamic(GroupVersionResource::new(
            "",
            "v1",
            "configmaps",
        )));
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        let lost = server
            .create(MAPS, json!({ "metadata": { "name": "lost" } }))
            .unwrap();
        until(|| informer.lister().len() == 2);

        server.restore(&backup).unwrap();
        // The patch gives "kept" the resourceVersion that "lost" had. A watch from this version,
        // the last one that the informer saw, therefore gets neither an error nor an event.
        let path = format!("{MAPS}/kept");
        let changed = server
            .patch(&path, json!({ "data": { "step": "1" } }))
            .unwrap();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        assert_eq!(version(&changed), version(&lost));
        assert_ne!(version(&changed), version(&kept));
        until(|| {
            clock.advance(Duration::from_secs(1));
            let cached = informer.lister().list();
            cached.len() == 1 && cached[0].read::<String>("/data/step").unwrap().is_some()
        });
        factory.shut_down(None).unwrap();
    }
}
