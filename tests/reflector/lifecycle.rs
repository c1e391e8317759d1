//! The end of a reflector, its progress, and panics of user code.

use std::sync::Arc;
use std::time::Duration;

use k8s_informer::reflector::{
    Body, ListOptions, ListWatch, ListerWatcher, Reflector, ReflectorOptions, ReflectorState,
};
use k8s_informer::store::{ReflectorStore, StoreError};
use k8s_informer::testing::{Answer, ScriptedListerWatcher};
use k8s_informer::time::Backoff;
use k8s_informer::{Deleted, DynamicObject, Error, Stop};
use parking_lot::Mutex;

use crate::reflector::support::{
    Recorder, Running, Server, describe, list, object, refused, run_until_read,
};

/// A store that panics on its first list.
#[derive(Default)]
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

#[test]
fn a_store_that_panics_is_an_error_and_a_new_cycle() {
    let script =
        ScriptedListerWatcher::new([list("10", &["a"]), list("20", &["a"]), Answer::open("")]);
    let status = run_until_read(&Arc::new(Panics::default()), &script, 3);
    let requests: Vec<_> = script.requests().iter().map(describe).collect();
    assert_eq!(
        requests,
        ["list 0 limit 500", "list 0 limit 500", "watch 20"]
    );
    let error = status.last_error.unwrap().to_string();
    assert_eq!(
        error,
        "list scripted objects: a step of the reflector panicked: full"
    );
}

#[test]
fn what_fails_after_a_panic_is_told_in_its_own_words() {
    let answers = [
        list("10", &["a"]),
        refused(500, "InternalError"),
        list("20", &["a"]),
        Answer::open(""),
    ];
    let script = ScriptedListerWatcher::new(answers);
    let status = run_until_read(&Arc::new(Panics::default()), &script, 3);
    assert_eq!(
        status.last_error.unwrap().to_string(),
        "InternalError (500)"
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
        assert!(
            reflector.status().last_error.is_none(),
            "a stop is no error"
        );
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
    assert_eq!(
        reflector.status().last_error.unwrap().to_string(),
        "the lister-watcher panicked: oh no"
    );
}

#[test]
fn a_description_that_panics_does_not_end_a_reflector() {
    struct Indescribable(Stop);
    impl ListerWatcher for Indescribable {
        fn list(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
            Ok(Body::from("garbage"))
        }
        fn watch(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
            Err(Error::other("no watch"))
        }
        fn description(&self) -> String {
            self.0.stop();
            panic!("oh no")
        }
    }
    let enough = Stop::new();
    let options = ReflectorOptions::default();
    let it = Indescribable(enough.clone());
    let reflector = Reflector::new(Arc::new(it), Arc::new(Recorder::default()), options);
    reflector.run(&enough);
    let error = reflector.status().last_error.unwrap().to_string();
    assert!(
        error.starts_with("list objects whose description panicked: oh no: "),
        "{error}"
    );
}

#[test]
fn a_number_of_remaining_items_that_can_not_be_is_no_panic() {
    let page = format!(
        r#"{{"kind":"List","metadata":{{"continue":"x","remainingItemCount":{}}},"items":[{}]}}"#,
        u64::MAX,
        object("a", "1")
    );
    let it = Running::new([Answer::body(page), Answer::open("")]);
    it.requests(2);
    assert_eq!(
        (it.status().received, it.status().expected),
        (1, Some(usize::MAX))
    );
}

#[test]
fn while_nothing_has_come_it_lists() {
    for watch_list in [false, true] {
        let server = Server::new([Answer::open("")]);
        let server = if watch_list {
            server.with_watch_list()
        } else {
            server
        };
        let it = Running::start(server, Recorder::default(), |_| {});
        it.requests(1);
        assert_eq!(
            it.status().state,
            ReflectorState::Listing,
            "watch-list: {watch_list}"
        );
    }
}

#[test]
fn progress_of_a_list_is_told_where_the_server_tells_it() {
    let body = r#"{"kind": "List", "metadata":{"resourceVersion":"1","continue":"x","remainingItemCount":3},"items":[{"metadata":{"name":"a"}}]}"#;
    let it = Running::new([Answer::body(body)]);
    it.requests(2);
    let status = it.status();
    assert_eq!(
        (status.state, status.received, status.expected),
        (ReflectorState::Listing, 1, Some(4))
    );
    assert!(!status.listed);
}

#[test]
fn panic_in_supports_watch_list_falls_back_to_lists() {
    struct Panics(Stop);
    impl ListerWatcher for Panics {
        fn list(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
            Ok(Body::from(
                r#"{"kind": "List", "metadata": {"resourceVersion": "10"}, "items": []}"#,
            ))
        }
        fn watch(&self, options: &ListOptions, _: &Stop) -> Result<Body, Error> {
            assert!(!options.send_initial_events);
            self.0.stop();
            Err(Error::other("enough"))
        }
        fn supports_watch_list(&self) -> bool {
            panic!("oh no")
        }
    }
    let enough = Stop::new();
    let it = Arc::new(Panics(enough.clone()));
    let reflector = Reflector::new(
        it,
        Arc::new(Recorder::default()),
        ReflectorOptions::default(),
    );
    reflector.run(&enough);
    assert_eq!(reflector.last_sync_resource_version(), "10");
}
