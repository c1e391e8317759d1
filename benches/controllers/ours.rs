//! The programs of this crate. `benches/peers` includes this file.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::Patch;
use k8s_informer::informer::Source;
use k8s_informer::object::ResourceVersion;
use k8s_informer::workqueue::ItemExponentialFailureRateLimiter;
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop, Stopper};
use k8s_informer_controller::{Controller, ControllerStatus, Next};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::bench::{Part, Program, Task};

const CPU: &[Part] = &[Part::Cpu, Part::Counts];
const WAITING: &[Part] = &[Part::Waiting];

/// The objects are of k8s-openapi, which both libraries can use.
pub(crate) const PROGRAMS: [Program; 10] = [
    Program {
        name: INFORMER,
        base: None,
        parts: &[Part::Cpu, Part::Counts, Part::Waiting],
        run: |task| informer(&task, false),
    },
    Program {
        name: "ours, informer with a handler",
        base: Some(INFORMER),
        parts: CPU,
        run: |task| informer(&task, true),
    },
    Program {
        name: "ours, controller with 1 worker",
        base: Some(INFORMER),
        parts: &[Part::Cpu, Part::Counts, Part::Idle],
        run: |task| controller(task, 1, Wait::None),
    },
    Program {
        name: "ours, controller with 4 workers",
        base: Some(INFORMER),
        parts: CPU,
        run: |task| controller(task, 4, Wait::None),
    },
    Program {
        name: "ours, no key waits any more",
        base: Some(INFORMER),
        parts: WAITING,
        run: |task| controller(task, 1, Wait::None),
    },
    Program {
        name: "ours, ready",
        base: Some(INFORMER),
        parts: WAITING,
        run: |task| controller(task, 1, Wait::Worker),
    },
    Program {
        name: "ours, `Next::After`",
        base: Some(INFORMER),
        parts: WAITING,
        run: |task| controller(task, 1, Wait::Delay),
    },
    Program {
        name: "ours, failed",
        base: Some(INFORMER),
        parts: WAITING,
        run: |task| controller(task, 1, Wait::BackOff),
    },
    Program {
        name: "ours, a write is recorded",
        base: Some(INFORMER),
        parts: WAITING,
        run: |task| controller(task, 1, Wait::Written),
    },
    Program {
        name: "ours, postponed until a write is in the cache",
        base: Some(INFORMER),
        parts: WAITING,
        run: |task| controller(task, 1, Wait::OwnWrite),
    },
];

const INFORMER: &str = "ours, informer";

/// What the keys wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    /// The only worker, which is blocked.
    Worker,
    Delay,
    BackOff,
    /// Nothing, but each has written an object that the cache does not have.
    Written,
    /// The same, and each is queued again.
    OwnWrite,
}

const HOUR: Duration = Duration::from_secs(3600);

fn informer(task: &Arc<Task>, has_handler: bool) -> Result<(), Box<dyn Error>> {
    let client = Client::new(Config::new(&*task.url))?;
    let factory = SharedInformerFactory::new(client);
    let informer = factory.informer_for(Source::of::<ConfigMap>());
    if has_handler {
        let (added, updated) = (Arc::clone(task), Arc::clone(task));
        informer.add_event_handler(|handler| {
            handler
                .on_add(move |map: &Arc<ConfigMap>, _| added.called(map.resource_version()))
                .on_update(move |_, map| updated.called(map.resource_version()))
        })?;
    }
    let stop = Stopper::new();
    factory.start(&stop)?;
    factory.wait_for_cache_sync(None, &stop)?;
    if !has_handler {
        task.listed();
        let last_version = ResourceVersion::new(&task.last_version).expect("a number is not empty");
        informer.wait_for_resource_version(&last_version, HOUR, &stop)?;
        task.reached();
    }
    block()
}

fn controller(task: Arc<Task>, workers: usize, wait: Wait) -> Result<(), Box<dyn Error>> {
    let client = Client::new(Config::new(&*task.url))?;
    let calling = Arc::clone(&task);
    let controller = Controller::builder(&client, Source::of::<ConfigMap>(), "maps")
        .workers(workers)
        .own_writes_timeout(HOUR)
        .rate_limiter(ItemExponentialFailureRateLimiter::new(
            match wait {
                // The default.
                Wait::None => Duration::from_millis(5),
                _ => HOUR,
            }..=HOUR,
        ))
        .by(move |cx, map| {
            calling.called(map.resource_version());
            match wait {
                Wait::None => {}
                Wait::Worker => cx.stop().wait(),
                Wait::Delay => return Ok(Next::After(HOUR)),
                Wait::BackOff => return Err(std::fmt::Error.into()),
                Wait::Written | Wait::OwnWrite => {
                    let maps = cx.api::<ConfigMap>(Some(cx.namespace()));
                    maps.patch(cx.name(), &Patch::merge(serde_json::json!({})), cx.stop())?;
                    if wait == Wait::OwnWrite {
                        return Ok(Next::After(Duration::ZERO));
                    }
                }
            }
            Ok(Next::Done)
        })?;
    let (watched, keys) = (controller.clone(), task.objects);
    if wait != Wait::None {
        let waiting = move |status: &ControllerStatus| match wait {
            Wait::None | Wait::Written => keys,
            // One more key is in the call.
            Wait::Worker => status.queued + 1,
            Wait::Delay => status.delayed,
            Wait::BackOff => status.delayed.min(status.failing),
            Wait::OwnWrite => status.postponed,
        };
        let calls = Arc::downgrade(&task);
        task.set_goal(move || {
            let needed = if wait == Wait::Worker { 1 } else { keys };
            let is_called = calls
                .upgrade()
                .is_some_and(|task| task.calls() >= needed as u64);
            is_called && waiting(&watched.status()) == keys
        });
    }
    controller.run(&Stop::never())?;
    Ok(())
}

fn block() -> ! {
    loop {
        thread::park();
    }
}
