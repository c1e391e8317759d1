//! The cost of calls to a store: the store of this crate, and a plain map with indexes under one
//! `RwLock`, as in client-go. Calls are measured alone, and while one writer and four readers work.
//!
//! ```text
//! cargo bench --bench stores
//! cargo bench --bench stores -- replace
//! ```

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Cache, Function, Jump, Named, Ours, Plain, app, next_version, objects, version};
use divan::{Bencher, black_box};
use k8s_informer::object::{Accessor, PartialObjectMetadata, ResourceVersion};
use k8s_informer::store::Indexers;
use k8s_informer::{Indexer, Lister};

/// A debug build, as in CI, only checks that the benchmarks run.
const SCALE: usize = if cfg!(debug_assertions) { 100 } else { 1 };
const SIZES: [usize; 2] = [100_000 / SCALE, 1_000_000 / SCALE];
const READERS: usize = 4;
const INDICES: [(&str, Function); 2] = [("app", app), ("version", version)];

fn main() {
    divan::main();
}

fn filled<C: Cache>(objects: &[Arc<Named>], indices: &[(&str, Function)]) -> C {
    let store = C::default();
    for (name, function) in indices {
        store.add_index(name, *function);
    }
    store.replace(objects);
    store
}

/// Adds objects one by one to an empty store with this number of indexes.
#[divan::bench(types = [Ours, Plain], args = [0, 1, 2], sample_count = 10)]
fn add_100k<C: Cache>(bencher: Bencher, indices: usize) {
    let objects = objects(100_000 / SCALE);
    let empty = || filled::<C>(&[], &INDICES[..indices]);
    bencher.with_inputs(empty).bench_values(|store| {
        objects.iter().for_each(|object| store.add(object));
        store
    });
}

/// Deletes all objects one by one from a store with this number of indexes.
#[divan::bench(types = [Ours, Plain], args = [0, 1, 2], sample_count = 10)]
fn delete_100k<C: Cache>(bencher: Bencher, indices: usize) {
    let objects = objects(100_000 / SCALE);
    let full = || filled::<C>(&objects, &INDICES[..indices]);
    bencher.with_inputs(full).bench_values(|store| {
        objects.iter().for_each(|object| store.delete(&object.key));
        store
    });
}

/// Replaces all objects by new ones in a store with this number of indexes.
#[divan::bench(types = [Ours, Plain], args = [0, 1, 2], sample_count = 10)]
fn replace_100k<C: Cache>(bencher: Bencher, indices: usize) {
    let objects = objects(100_000 / SCALE);
    let newer: Vec<_> = objects.iter().map(|object| next_version(object)).collect();
    let full = || filled::<C>(&objects, &INDICES[..indices]);
    bencher
        .with_inputs(full)
        .bench_refs(|store| store.replace(&newer));
}

/// Ten thousand updates: without an index, and with an index whose value stays the same or changes.
#[divan::bench(types = [Ours, Plain], args = ["no index", "unchanged", "changed"], sample_count = 20)]
fn update_10k<C: Cache>(bencher: Bencher, case: &str) {
    let objects = objects(100_000 / SCALE);
    let newer: Vec<_> = objects
        .iter()
        .take(10_000 / SCALE)
        .map(|object| next_version(object))
        .collect();
    let indices: &[_] = match case {
        "no index" => &[],
        "unchanged" => &INDICES[..1],
        _ => &INDICES[1..],
    };
    let full = || filled::<C>(&objects, indices);
    bencher
        .with_inputs(full)
        .bench_refs(|store| newer.iter().for_each(|object| store.add(object)));
}

#[divan::bench(types = [Ours, Plain], args = SIZES)]
fn get_1k<C: Cache>(bencher: Bencher, size: usize) {
    alone(bencher, size, get_1000::<C>);
}

#[divan::bench(types = [Ours, Plain], args = SIZES)]
fn get_1k_busy<C: Cache>(bencher: Bencher, size: usize) {
    busy(bencher, size, get_1000::<C>);
}

#[divan::bench(types = [Ours, Plain], args = SIZES, sample_count = 10)]
fn list<C: Cache>(bencher: Bencher, size: usize) {
    alone(bencher, size, |store: &C, _, _| store.list().len());
}

#[divan::bench(types = [Ours, Plain], args = SIZES, sample_count = 10)]
fn list_busy<C: Cache>(bencher: Bencher, size: usize) {
    busy(bencher, size, |store: &C, _, _| store.list().len());
}

/// Looks up a value that one object in a thousand has.
#[divan::bench(types = [Ours, Plain], args = SIZES)]
fn by_index<C: Cache>(bencher: Bencher, size: usize) {
    alone(bencher, size, by_index_one::<C>);
}

#[divan::bench(types = [Ours, Plain], args = SIZES)]
fn by_index_busy<C: Cache>(bencher: Bencher, size: usize) {
    busy(bencher, size, by_index_one::<C>);
}

/// Selects the objects with a label value that one object in a thousand, or each, has.
#[divan::bench(args = ["scan", "index", "scan, all match", "index, all match"])]
fn select_in_100k(bencher: Bencher, case: &str) {
    let pods = Indexer::<PartialObjectMetadata>::new(Accessor::object(), Indexers::new());
    let pod = |number: usize| {
        let mut pod = PartialObjectMetadata::default();
        pod.metadata.name = number.to_string();
        let app = (number % 1000).to_string();
        pod.metadata.labels = [("app", app), ("all", "x".to_owned())]
            .into_iter()
            .collect();
        Arc::new(pod)
    };
    let all = (0..100_000 / SCALE).map(pod).collect();
    pods.replace(all, ResourceVersion::new("1"))
        .expect("valid objects");
    if case.starts_with("index") {
        let labels = Indexers::new().with_label("app");
        let labels = labels.and_then(|labels| labels.with_label("all"));
        pods.add_indexers(labels.expect("two labels"))
            .expect("new indexes");
    }
    let selector = if case.ends_with("match") {
        "all=x"
    } else {
        "app=7"
    };
    let (lister, selector) = (
        Lister::new(Arc::new(pods)),
        selector.parse().expect("a selector"),
    );
    bencher.bench_local(|| lister.select(&selector).len());
}

fn get_one<C: Cache>(store: &C, objects: &[Arc<Named>], jump: &mut Jump) -> usize {
    store
        .get(&objects[jump.below(objects.len())].key)
        .map_or(0, |object| object.version)
}

fn get_1000<C: Cache>(store: &C, objects: &[Arc<Named>], jump: &mut Jump) -> usize {
    (0..1000).map(|_| get_one(store, objects, jump)).sum()
}

fn by_index_one<C: Cache>(store: &C, objects: &[Arc<Named>], jump: &mut Jump) -> usize {
    store
        .by_index("app", &app(&objects[jump.below(objects.len())]))
        .len()
}

fn alone<C: Cache>(bencher: Bencher, size: usize, call: fn(&C, &[Arc<Named>], &mut Jump) -> usize) {
    let objects = objects(size);
    let store = filled::<C>(&objects, &INDICES[..1]);
    let mut jump = Jump::new();
    bencher.bench_local(|| call(&store, &objects, &mut jump));
}

/// Measures `call` while readers get at full speed and a writer updates 20,000 times per second.
fn busy<C: Cache>(bencher: Bencher, size: usize, call: fn(&C, &[Arc<Named>], &mut Jump) -> usize) {
    let objects = objects(size);
    let store = filled::<C>(&objects, &INDICES[..1]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut jump = Jump::new();
                while !done.load(Ordering::Relaxed) {
                    black_box(get_one(&store, &objects, &mut jump));
                }
            });
        }
        scope.spawn(|| {
            let mut jump = Jump::new();
            while !done.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    store.add(&next_version(&objects[jump.below(objects.len())]));
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut jump = Jump::new();
        bencher.bench_local(|| call(&store, &objects, &mut jump));
        done.store(true, Ordering::Relaxed);
    });
}
