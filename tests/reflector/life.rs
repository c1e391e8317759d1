//! The end of a reflector, panics around it, and what it tells of itself.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::testing::{Answer, ScriptedListerWatcher};
use k8s_informer::{
    Backoff, Body, Deleted, DynamicObject, Error, ListOptions, ListWatch, Reflector, ReflectorOptions,
    ReflectorState, ReflectorStore, Stop, StoreError,
};
use parking_lot::Mutex;

use crate::support::{Recorder, Running, SOON, describe, list, refused};

#[test]
fn a_store_that_panics_is_an_error_and_a_new_cycle() {
    struct Panics(Mutex<bool>);
    impl ReflectorStore<DynamicObject> for Panics {
        fn add(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
            Ok(())
        }
        fn update(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
            Ok(())
        }
        fn delete(&self, _: Deleted<DynamicObject>) -> Result<(), StoreError> {
            Ok(())
        }
        fn replace(&self, _: Vec<Arc<DynamicObject>>, _: &str) -> Result<(), StoreError> {
            assert!(std::mem::replace(&mut *self.0.lock(), true), "full");
            Ok(())
        }
        fn resync(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }
    let script = ScriptedListerWatcher::new([list("10", &["a"]), list("20", &["a"])]);
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::ZERO, 1.0, Duration::ZERO, 0.0);
    let store = Arc::new(Panics(Mutex::new(false)));
    let reflector = Reflector::new(Arc::new(script.clone()), store, options);
    let stop = Stop::new();
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        assert!(script.until_requests(3, SOON));
        stop.stop();
    });
    let requests: Vec<_> = script.requests().iter().map(describe).collect();
    assert_eq!(requests, ["list 0 limit 500", "list 0 limit 500", "watch 20"]);
    assert_eq!(
        reflector.status().last_error.unwrap().to_string(),
        "list scripted objects: a step of the reflector panicked: full"
    );
}

#[test]
fn stop_ends_whatever_it_is_blocked_in() {
    let silent: [fn() -> Vec<Answer>; 4] = [
        Vec::new,
        || vec![Answer::open("{")],
        || vec![list("10", &[])],
        || vec![list("10", &[]), Answer::open("")],
    ];
    for answers in silent {
        let answers = answers();
        let bodies = answers.len();
        let it = Running::new(answers);
        it.calls(bodies);
        it.stop.stop();
        let reflector = Arc::clone(&it.reflector);
        drop(it);
        assert_eq!(reflector.status().state, ReflectorState::Stopped);
        assert!(reflector.status().last_error.is_none(), "a stop is no error");
    }
    let it = Running::new([refused(500, "InternalError")]);
    it.waits(1);
    drop(it);
}

#[test]
fn a_lister_watcher_that_panics_is_an_error_like_any_other() {
    let calls = Mutex::new(0);
    let enough = Stop::new();
    let done = enough.clone();
    let panics = ListWatch::new(
        move |_: &ListOptions, _: &Stop| -> Result<Body, Error> {
            *calls.lock() += 1;
            if *calls.lock() == 1 {
                panic!("oh no");
            }
            done.stop();
            Err(Error::other("enough"))
        },
        |_: &ListOptions, _: &Stop| Err(Error::other("no watch")),
    );
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::ZERO, 1.0, Duration::ZERO, 0.0);
    let reflector = Reflector::new(Arc::new(panics), Arc::new(Recorder::default()), options);
    reflector.run(&enough);
    assert_eq!(reflector.status().last_error.unwrap().to_string(), "the lister-watcher panicked: oh no");
}

#[test]
fn progress_of_a_list_is_told_where_the_server_tells_it() {
    let body = r#"{"kind": "List", "metadata":{"resourceVersion":"1","continue":"x","remainingItemCount":3},"items":[{"metadata":{"name":"a"}}]}"#;
    let it = Running::new([Answer::body(body)]);
    it.requests(2);
    let status = it.status();
    assert_eq!((status.state, status.received, status.expected), (ReflectorState::Listing, 1, Some(4)));
    assert!(!status.listed);
}
