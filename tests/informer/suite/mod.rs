//! Tests of an informer that hold for every queue. The suite is compiled once and runs on a
//! `DeltaFifo`. `suite_passes_with_each_non_default_queue` runs it on each other queue in a child
//! process. To run one test on another queue:
//! `TEST_QUEUE=RealFifo cargo test --test client some_test`.

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

use std::env;
use std::process::Command;
use std::sync::Arc;

use k8s_informer::SharedIndexInformer;
use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer_testing::FakeClock;

/// The environment variable that names the queue under test.
const VARIABLE: &str = "TEST_QUEUE";

/// The queue under test.
pub(crate) fn queue_kind() -> InformerQueue {
    let Ok(name) = env::var(VARIABLE) else {
        return InformerQueue::DeltaFifo;
    };
    let mut others = OTHERS.into_iter();
    others
        .find(|queue| format!("{queue:?}") == name)
        .unwrap_or_else(|| panic!("{VARIABLE}={name}: no such queue"))
}

/// The queues of the child processes.
const OTHERS: [InformerQueue; 1] = [InformerQueue::RealFifo];

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

/// Informer options with the queue under test.
pub(crate) fn informer_options<T>(reflector: ReflectorOptions) -> SharedIndexInformerOptions<T> {
    SharedIndexInformerOptions {
        reflector,
        queue: queue_kind(),
        ..SharedIndexInformerOptions::default()
    }
}

#[test]
fn suite_passes_with_each_non_default_queue() {
    if env::var_os(VARIABLE).is_some() {
        return;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    for queue in OTHERS {
        let mut command = Command::new(env::current_exe().unwrap());
        let suite = command.arg(format!("{module}::"));
        let output = suite.env(VARIABLE, format!("{queue:?}")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{queue:?}:{text}");
        let tests = text.matches(" ... ok\n").count();
        assert!(output.status.success(), "on {queue:?}");
        assert!(tests > 100, "only {tests} tests on {queue:?}");
    }
}
