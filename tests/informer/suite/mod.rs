//! Tests of an informer that hold for every queue, and on one thread. The suite is compiled once
//! and runs on a `DeltaFifo` with threads. `suite_passes_in_each_variant` runs it in each other
//! variant in a child process. To run one test in another variant:
//! `TEST_VARIANT=RealFifo cargo test --test core some_test`.

mod buffers;
mod cache_readers;
mod callbacks;
mod controller;
mod ends;
mod factory;
mod fake_source;
mod handlers;
mod namespaces;
mod passing_on;
mod rejections;
mod relists;
mod resync;
mod shared;
mod stress;
mod unindexed;
mod unshared;
mod user_code;

use std::env;
use std::process::Command;
use std::sync::Arc;

use k8s_informer::SharedIndexInformer;
use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer_testing::FakeClock;

/// The environment variable that names the variant under test.
const VARIABLE: &str = "TEST_VARIANT";

/// The variants of the child processes: the queue, and whether informers run on one thread.
const OTHERS: [(&str, InformerQueue, bool); 2] = [
    ("RealFifo", InformerQueue::RealFifo, false),
    ("OneThread", InformerQueue::DeltaFifo, true),
];

/// Returns the queue under test, and whether informers run on one thread.
fn variant() -> (InformerQueue, bool) {
    let Ok(name) = env::var(VARIABLE) else {
        return (InformerQueue::DeltaFifo, false);
    };
    let found = OTHERS.into_iter().find(|(other, ..)| *other == name);
    let (_, queue, one_thread) = found.unwrap_or_else(|| panic!("no variant {name}"));
    (queue, one_thread)
}

pub(crate) fn queue_kind() -> InformerQueue {
    variant().0
}

/// Whether informers run on one thread. A callback that blocks then blocks the informer, so tests
/// with such callbacks do not apply.
pub(crate) fn one_thread() -> bool {
    variant().1
}

/// Whether each change is a separate item. Otherwise the changes of an object form one item.
pub(crate) fn one_item_per_change() -> bool {
    !matches!(queue_kind(), InformerQueue::DeltaFifo)
}

use crate::informer::support::{Feed, Informer, options};

pub(crate) fn informer(feed: &Feed) -> Informer {
    informer_with(feed, options(&FakeClock::new()))
}

pub(crate) fn informer_with(feed: &Feed, reflector: ReflectorOptions) -> Informer {
    SharedIndexInformer::new(Arc::new(feed.clone()), informer_options(reflector))
}

/// Informer options of the variant under test.
pub(crate) fn informer_options<T>(reflector: ReflectorOptions) -> SharedIndexInformerOptions<T> {
    SharedIndexInformerOptions::new()
        .reflector(reflector)
        .queue(queue_kind())
        .one_thread(one_thread())
}

#[test]
fn suite_passes_in_each_variant() {
    if env::var_os(VARIABLE).is_some() {
        return;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    for (variant, ..) in OTHERS {
        let mut command = Command::new(env::current_exe().unwrap());
        let suite = command.arg(format!("{module}::"));
        let output = suite.env(VARIABLE, variant).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{variant}:{text}");
        let tests = text.matches(" ... ok\n").count();
        assert!(output.status.success(), "{variant}");
        assert!(tests > 100, "only {tests} tests: {variant}");
    }
}
