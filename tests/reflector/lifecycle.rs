//! The end of a reflector, its progress, and panics of user code.

use std::sync::Arc;
use std::time::Duration;

use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{
    Body, ListOptions, ListWatch, ListerWatcher, Reflector, ReflectorOptions, ReflectorState,
};
use k8s_informer::store::{ReflectorStore, StoreError};
use k8s_informer::time::Backoff;
use k8s_informer::{Deleted, DynamicObject, Error, Stop, Stopper};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use parking_lot::Mutex;

use crate::reflector::support::{
    Recorder, Running, Server, describe, list, object, refused, run_until_read,
};

/// A store that panics when it receives its first list.
#[derive(Default)]
struct PanickingStore(Mutex<bool>);

impl ReflectorStore<DynamicObject> for PanickingStore {
    fn add(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
        Ok(())
    }

    fn update(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
        Ok(())
    }

    fn delete(&self, _: Deleted<DynamicObject>) -> Result<(), StoreError> {
        Ok(())
    }

    fn replace(
        &self,
        _: Vec<Arc<DynamicObject>>,
        _: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        assert!(std::mem::replace(&mut *self.0.lock(), true), "full");
        Ok(())
    }

    fn resync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn store_panic_is_recorded_and_starts_a_new_cycle() {
    let script =
        ScriptedListerWatcher::new([list("10", &["a"]), list("20", &["a"]), Answer::open("")]);
    let status = run_until_read(&Arc::new(PanickingStore::default()), &script, 3);
    let requests: Vec<_> = script.requests().iter().map(describe).collect();
    assert_eq!(
        requests,
        ["list 0 limit 500", "list 0 limit 500", "watch 20"]
    );
    let error = status.last_error.unwrap().to_string();
    assert_eq!(
        error,
        "list scripted objects: a reflector step panicked: full"
    );
}

#[test]
fn error_after_a_panic_is_reported_without_the_panic() {
    let answers = [
        list("10", &["a"]),
        refused(500, "InternalError"),
        list("20", &["a"]),
        Answer::open(""),
    ];
    let script = ScriptedListerWatcher::new(answers);
    let status = run_until_read(&Arc::new(PanickingStore::default()), &script, 3);
    assert_eq!(
        status.last_error.unwrap().to_string(),
        "InternalError (500)"
    );
}

#[test]
fn stop_interrupts_requests_bodies_and_backoff() {
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
            "a stop was recorded as an error"
        );
    }
    let it = Running::new([refused(500, "InternalError")]);
    it.wait_for_waits(1);
    drop(it);
}

#[test]
fn lister_watcher_panic_is_recorded_and_retried() {
    let calls = Mutex::new(0);
    let stop = Stopper::new();
    let done = stop.clone();
    let panics = ListWatch::new(
        move |_: &ListOptions, _: &Stop| -> Result<Body, Error> {
            *calls.lock() += 1;
            if *calls.lock() == 1 {
                panic!("oh no");
            }
            done.stop();
            Err(Error::other("stop"))
        },
        |_: &ListOptions, _: &Stop| Err(Error::other("no watch")),
    );
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::ZERO);
    let reflector = Reflector::new(Arc::new(panics), Arc::new(Recorder::default()), options);
    reflector.run(&stop);
    assert_eq!(
        reflector.status().last_error.unwrap().to_string(),
        "the lister-watcher panicked: oh no"
    );
}

#[test]
fn panic_in_description_does_not_end_the_reflector() {
    struct Indescribable(Stopper);
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
    let stop = Stopper::new();
    let options = ReflectorOptions::default();
    let it = Indescribable(stop.clone());
    let reflector = Reflector::new(Arc::new(it), Arc::new(Recorder::default()), options);
    reflector.run(&stop);
    let error = reflector.status().last_error.unwrap().to_string();
    assert!(
        error.starts_with("list objects (the description panicked: oh no): "),
        "{error}"
    );
}

#[test]
fn huge_remaining_item_count_saturates() {
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
fn state_is_listing_before_the_first_object() {
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
fn status_shows_list_progress_from_remaining_item_count() {
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
    struct PanickingListerWatcher(Stopper);
    impl ListerWatcher for PanickingListerWatcher {
        fn list(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
            Ok(Body::from(
                r#"{"kind": "List", "metadata": {"resourceVersion": "10"}, "items": []}"#,
            ))
        }
        fn watch(&self, options: &ListOptions, _: &Stop) -> Result<Body, Error> {
            assert!(!options.send_initial_events);
            self.0.stop();
            Err(Error::other("stop"))
        }
        fn supports_watch_list(&self) -> bool {
            panic!("oh no")
        }
    }
    let stop = Stopper::new();
    let it = Arc::new(PanickingListerWatcher(stop.clone()));
    let reflector = Reflector::new(
        it,
        Arc::new(Recorder::default()),
        ReflectorOptions::default(),
    );
    reflector.run(&stop);
    assert_eq!(
        reflector.last_sync_resource_version(),
        ResourceVersion::new("10")
    );
}
