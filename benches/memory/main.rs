//! The memory of the cache without the objects: resident bytes per object, in an indexer with no,
//! one and two indexes, compared with a plain map. It runs only on Linux, because it reads `/proc`.
//!
//! With the argument `relists`, an informer of 10,000 Pods as a custom struct lives through 100
//! relists in a process with 16 MiB.
//!
//! ```text
//! cargo bench --bench memory
//! cargo bench --bench memory -- relists
//! ```

#[path = "../common/mod.rs"]
mod common;
mod relists;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use k8s_informer::Indexer;
use k8s_informer::object::{Accessor, Key, KeyError, ResourceVersion};
use k8s_informer::store::{IndexFunc, Indexers};

const OBJECTS: usize = 500_000;

/// An object that consists of a key like `team-7/app-0042-5d8f9c7b6d-00042`.
struct Named(String);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if common::replay::serve_if_child() || relists::run_if_requested(&arguments) {
        return;
    }
    let objects: Vec<_> = (0..OBJECTS)
        .map(|n| {
            Arc::new(Named(format!(
                "team-7/app-{:04}-5d8f9c7b6d-{n:05}",
                n % 1000
            )))
        })
        .collect();
    println!("bytes per object, without the object itself, for {OBJECTS} objects:");

    let plain = measure(|| {
        let map: HashMap<Key, _> = objects
            .iter()
            .map(|object| (key(object), Arc::clone(object)))
            .collect();
        map
    });
    println!("  HashMap<Arc<str>, Arc<T>>   {plain}");
    for indices in 0..3 {
        let mut indexers = Indexers::new();
        for index in 0..indices {
            let app = |object: &Named| vec![object.0[7..15].to_owned()];
            indexers = indexers.with(format!("index-{index}"), IndexFunc::new(app));
        }
        let bytes = measure(|| {
            let indexer = Indexer::new(
                Accessor::new(|object| Ok::<_, KeyError>(key(object))),
                indexers,
            );
            indexer
                .replace(objects.clone(), ResourceVersion::new("1"))
                .expect("every object has a key");
            indexer
        });
        println!("  Indexer, {indices} indices          {bytes}");
    }
}

fn key(object: &Named) -> Key {
    object.0.as_str().into()
}

/// Returns the growth of resident memory during `build`, per object. The result is leaked, so that
/// the next measurement does not reuse its memory.
fn measure<T>(build: impl FnOnce() -> T) -> usize {
    let before = resident();
    std::mem::forget(black_box(build()));
    (resident() - before) / OBJECTS
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the second field is the number of resident pages") * 4096
}
