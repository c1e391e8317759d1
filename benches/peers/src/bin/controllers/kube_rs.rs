//! The programs of kube-rs, as its users write them.

use std::error::Error;
use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::{Action, Config as ControllerConfig};
use kube::runtime::watcher::Config;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use tokio::runtime;

use crate::bench::{Part, Program, Task};

const CPU: &[Part] = &[Part::Cpu, Part::Counts];
const WAITING: &[Part] = &[Part::Waiting];

pub(crate) const PROGRAMS: [Program; 8] = [
    Program {
        name: WATCHER,
        base: None,
        parts: &[Part::Cpu, Part::Counts, Part::Waiting],
        run: store,
    },
    Program {
        name: "kube-rs, Controller with concurrency 1",
        base: Some(WATCHER),
        parts: CPU,
        run: |task| controller(task, Threads::One, 1, Wait::None),
    },
    Program {
        name: "kube-rs, Controller with its defaults",
        base: Some(WATCHER),
        parts: &[Part::Cpu, Part::Counts, Part::Idle],
        run: |task| controller(task, Threads::One, 0, Wait::None),
    },
    Program {
        name: "kube-rs, Controller with its defaults, multi-threaded",
        base: Some(WATCHER),
        parts: &[Part::Cpu, Part::Counts, Part::Idle],
        run: |task| controller(task, Threads::Several, 0, Wait::None),
    },
    Program {
        name: "kube-rs, no key waits any more",
        base: Some(WATCHER),
        parts: WAITING,
        run: |task| controller(task, Threads::One, 1, Wait::None),
    },
    Program {
        name: "kube-rs, ready",
        base: Some(WATCHER),
        parts: WAITING,
        run: |task| controller(task, Threads::One, 1, Wait::Call),
    },
    Program {
        name: "kube-rs, `Action::requeue`",
        base: Some(WATCHER),
        parts: WAITING,
        run: |task| controller(task, Threads::One, 1, Wait::Delay),
    },
    Program {
        name: "kube-rs, failed",
        base: Some(WATCHER),
        parts: WAITING,
        run: |task| controller(task, Threads::One, 1, Wait::BackOff),
    },
];

const WATCHER: &str = "kube-rs, watcher and store";

/// The threads of the runtime.
#[derive(Clone, Copy)]
enum Threads {
    One,
    /// One for each processor, as `#[tokio::main]` has.
    Several,
}

/// What the keys wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    /// The only call at a time, which does not end.
    Call,
    Delay,
    BackOff,
}

const HOUR: Duration = Duration::from_secs(3600);

/// The watcher of a `Controller`, which does the same with its own.
fn store(task: Arc<Task>) -> Result<(), Box<dyn Error>> {
    runtime(Threads::One)?.block_on(async {
        let writer = reflector::store::Writer::new(());
        watcher(maps(&task)?, Config::default().streaming_lists())
            .default_backoff()
            .reflect(writer)
            .applied_objects()
            .try_for_each(|map| {
                task.called(map.metadata.resource_version.as_deref().unwrap_or_default());
                ready(Ok(()))
            })
            .await?;
        Ok(())
    })
}

fn controller(
    task: Arc<Task>,
    threads: Threads,
    concurrency: u16,
    wait: Wait,
) -> Result<(), Box<dyn Error>> {
    if wait == Wait::Call {
        let calls = Arc::downgrade(&task);
        task.set_goal(move || calls.upgrade().is_some_and(|task| task.calls() > 0));
    }
    runtime(threads)?.block_on(async {
        Controller::new(maps(&task)?, Config::default().streaming_lists())
            .with_config(ControllerConfig::default().concurrency(concurrency))
            .run(reconcile, error_policy, Arc::new((task, wait)))
            .for_each(|_| ready(()))
            .await;
        Ok(())
    })
}

async fn reconcile(
    map: Arc<ConfigMap>,
    context: Arc<(Arc<Task>, Wait)>,
) -> Result<Action, fmt::Error> {
    let (task, wait) = &*context;
    task.called(map.metadata.resource_version.as_deref().unwrap_or_default());
    match wait {
        Wait::None => Ok(Action::await_change()),
        Wait::Call => pending().await,
        Wait::Delay => Ok(Action::requeue(HOUR)),
        Wait::BackOff => Err(fmt::Error),
    }
}

fn error_policy(_: Arc<ConfigMap>, _: &fmt::Error, _: Arc<(Arc<Task>, Wait)>) -> Action {
    Action::requeue(HOUR)
}

fn runtime(threads: Threads) -> std::io::Result<runtime::Runtime> {
    let mut builder = match threads {
        Threads::One => runtime::Builder::new_current_thread(),
        Threads::Several => runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}

fn maps(task: &Task) -> Result<Api<ConfigMap>, Box<dyn Error>> {
    let client = Client::try_from(kube::Config::new(task.url.parse()?))?;
    Ok(Api::all(client))
}
