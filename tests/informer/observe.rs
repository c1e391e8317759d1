//! `observe`, which runs the informer for its caller.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::informer::{InformerError, InformerScope, Observation, Observe, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::Clock;
use k8s_informer::{
    Client, Config, Notification, Object, Selector, SharedInformerFactory, Stop, observe,
};
use k8s_informer_testing::{ApiServer, Fault};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::informer::support::SOON;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server_with(names: &[&str]) -> (ApiServer, Client) {
    let server = ApiServer::start().unwrap();
    for name in names {
        create(&server, name);
    }
    let client = Client::new(Config::new(server.url())).unwrap();
    (server, client)
}

fn create(server: &ApiServer, name: &str) {
    server
        .create(
            MAPS,
            json!({"metadata": {"name": name, "labels": {"app": name}}}),
        )
        .unwrap();
}

/// A notification as `+a`, `~a` or `-a`, and the name of the thread that delivers it.
type Received = (String, String);

fn send(sender: &Sender<Received>, what: char, name: &str) {
    let thread = thread::current().name().unwrap_or_default().to_owned();
    let _ = sender.send((format!("{what}{name}"), thread));
}

fn recording(observe: Observe<ConfigMap>) -> (Observe<ConfigMap>, Receiver<Received>) {
    let (sender, receiver) = mpsc::channel();
    let [added, modified, deleted] = [sender.clone(), sender.clone(), sender];
    let observe = observe
        .on_added(move |map| send(&added, '+', map.name()))
        .on_modified(move |old, new| {
            assert_ne!(old.resource_version(), new.resource_version());
            send(&modified, '~', new.name());
        })
        .on_deleted(move |gone| send(&deleted, '-', gone.name()));
    (observe, receiver)
}

fn next(received: &Receiver<Received>) -> String {
    received.recv_timeout(SOON).unwrap().0
}

#[test]
fn events_arrive_on_handler_thread_or_the_only_one() {
    for one_thread in [false, true] {
        let (server, client) = server_with(&["a"]);
        let (observe, received) = recording(observe::<ConfigMap>(client).name("watcher"));
        let observe = if one_thread {
            observe.one_thread()
        } else {
            observe
        };
        let maps = observe.start().unwrap();
        let (first, on) = received.recv_timeout(SOON).unwrap();
        assert_eq!(first, "+a");
        assert_eq!(
            on,
            if one_thread {
                "configmaps"
            } else {
                "watcher run"
            }
        );
        maps.wait_for_sync(SOON, &Stop::never()).unwrap();
        assert!(maps.synced().is_done());
        assert_eq!(maps.stats().delivered, 1);
        assert_eq!(maps.informer().name(), "configmaps");

        create(&server, "b");
        server
            .patch(&format!("{MAPS}/b"), json!({"data": {"k": "v"}}))
            .unwrap();
        server.delete(&format!("{MAPS}/b")).unwrap();
        assert_eq!(
            [next(&received), next(&received), next(&received)],
            ["+b", "~b", "-b"]
        );
        assert_eq!(maps.lister().list().len(), 1);
        assert!(maps.stop());
        assert!(received.recv().is_err(), "the closures were dropped");
        assert!(server.wait_for_watches(0, SOON));
    }
}

#[test]
fn on_event_receives_adds_updates_and_deletes() {
    let (server, client) = server_with(&["a"]);
    let (sender, events) = mpsc::channel();
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    let _maps = SharedInformerFactory::builder(client)
        .build()
        .observe(Source::dynamic(resource))
        .on_event(move |event| {
            let _ = sender.send(event.clone());
        })
        .start()
        .unwrap();
    let event = events.recv_timeout(SOON).unwrap();
    assert!(
        matches!(&event, Notification::Added { object, is_in_initial_list: true } if object.name() == "a")
    );
    server
        .patch(&format!("{MAPS}/a"), json!({"data": {"k": "v"}}))
        .unwrap();
    let Notification::Modified { old, new } = events.recv_timeout(SOON).unwrap() else {
        panic!("not an update")
    };
    assert_ne!(old.resource_version(), new.resource_version());
    server.delete(&format!("{MAPS}/a")).unwrap();
    assert!(
        matches!(events.recv_timeout(SOON).unwrap(), Notification::Deleted { gone, .. } if gone.name() == "a")
    );
}

#[test]
fn observations_of_equal_type_and_scope_share_informer() {
    let (server, client) = server_with(&["a", "b"]);
    let factory = SharedInformerFactory::builder(client).build();
    let web = || InformerScope::all().label_selector("app=a".parse().unwrap());
    let start = |observe| {
        let (observe, received) = recording(observe);
        (observe.start().unwrap(), received)
    };
    let all = [(); 2].map(|()| start(factory.observe(Source::of::<ConfigMap>())));
    let some = [(); 2].map(|()| start(factory.observe(Source::of::<ConfigMap>()).scope(web())));
    let own = start(factory.observe(Source::of::<ConfigMap>()).one_thread());
    for (observation, received) in all.iter().chain([&own]) {
        observation.wait_for_sync(SOON, &Stop::never()).unwrap();
        let mut first = [next(received), next(received)];
        first.sort();
        assert_eq!(first, ["+a", "+b"], "a late observation gets all objects");
    }
    for (observation, received) in &some {
        assert_eq!(next(received), "+a");
        assert_eq!(observation.lister().list().len(), 1);
    }
    assert!(server.wait_for_watches(3, SOON));
    assert_eq!(server.open_watches(), 3);

    let [(first, _), (second, received)] = all;
    assert!(first.stop());
    create(&server, "c");
    assert_eq!(next(&received), "+c", "the other observation continues");
    drop(second);
    assert!(
        server.wait_for_watches(2, SOON),
        "the informer ends with its last observation"
    );
    let (again, received) = start(factory.observe(Source::of::<ConfigMap>()));
    let mut names = [next(&received), next(&received), next(&received)];
    names.sort();
    assert_eq!(names, ["+a", "+b", "+c"]);
    drop(again);
    factory.shutdown();
    assert!(server.wait_for_watches(0, SOON));
    assert!(
        some[0].0.lister().list().len() == 1,
        "the cache can still be read"
    );
    assert!(matches!(
        factory.observe(Source::of::<ConfigMap>()).start(),
        Err(InformerError::Stopped { .. })
    ));
}

#[test]
fn informer_also_requested_from_factory_outlives_observation() {
    let (server, client) = server_with(&["a"]);
    let factory = SharedInformerFactory::builder(client).build();
    let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
    let observation = observe.start().unwrap();
    assert_eq!(next(&received), "+a");
    let maps = factory.informer::<ConfigMap>();
    assert!(observation.stop());
    assert!(!maps.is_stopped());
    create(&server, "b");
    let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
    let _observation = observe.start().unwrap();
    let mut names = [next(&received), next(&received)];
    names.sort();
    assert_eq!(names, ["+a", "+b"]);
    factory.shutdown();
    assert!(maps.is_stopped());
}

#[test]
fn observation_continues_after_panic_and_closure_may_stop_it() {
    for one_thread in [false, true] {
        let (server, client) = server_with(&["a"]);
        let slot: Arc<Mutex<Option<Observation<ConfigMap>>>> = Arc::default();
        let (sender, receiver) = mpsc::channel();
        let (own, mut calls) = (Arc::clone(&slot), 0);
        let observe = observe::<ConfigMap>(client).on_added(move |_| {
            calls += 1;
            if calls == 1 {
                panic!("panic in the first call");
            }
            let stopped = own.lock().unwrap().take().map(Observation::stop);
            let _ = sender.send(stopped);
        });
        let observe = if one_thread {
            observe.one_thread()
        } else {
            observe
        };
        let mut held = slot.lock().unwrap();
        *held = Some(observe.start().unwrap());
        drop(held);
        create(&server, "b");
        assert_eq!(
            receiver.recv_timeout(SOON).unwrap(),
            Some(false),
            "a stop from its own closure does not wait"
        );
        assert!(
            server.wait_for_watches(0, SOON) && receiver.recv_timeout(SOON).is_err(),
            "the observation has ended"
        );
    }
}

#[test]
fn observation_syncs_after_initial_callbacks_return() {
    let (_server, client) = server_with(&["a"]);
    let (finish, finished) = mpsc::channel::<()>();
    let maps = observe::<ConfigMap>(client)
        .on_added(move |_| finished.recv().unwrap())
        .start()
        .unwrap();
    maps.informer().wait_for_sync(SOON, &Stop::never()).unwrap();
    let error = maps
        .wait_for_sync(Duration::from_millis(10), &Stop::never())
        .unwrap_err();
    assert!(error.timed_out());
    finish.send(()).unwrap();
    maps.wait_for_sync(SOON, &Stop::never()).unwrap();
    assert_eq!(maps.stats().delivered, 1);
}

#[test]
fn timed_out_wait_reports_the_last_error() {
    let (server, client) = server_with(&[]);
    server.fail_next(Fault::status(403).always());
    let maps = observe::<ConfigMap>(client).start().unwrap();
    assert!(server.wait_for_requests(|requests| requests.len() > 1, SOON));
    let error = maps
        .wait_for_sync(Duration::from_millis(50), &Stop::never())
        .unwrap_err();
    assert!(
        error.timed_out() && error.to_string().contains("403"),
        "{error}"
    );
}

#[test]
fn stopped_observation_drops_its_closures() {
    for one_thread in [false, true] {
        let (_server, client) = server_with(&["a"]);
        let factory = SharedInformerFactory::builder(client).build();
        let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
        let observation = if one_thread {
            observe.one_thread()
        } else {
            observe
        }
        .start()
        .unwrap();
        assert_eq!(next(&received), "+a");
        assert!(observation.stop());
        assert_eq!(
            received.try_recv().unwrap_err(),
            mpsc::TryRecvError::Disconnected,
            "the closures were dropped"
        );
        factory.shutdown();
    }
}

/// A clock whose next `now` runs a closure.
#[derive(Default)]
struct ClockWithHook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Clock for ClockWithHook {
    fn now(&self) -> Instant {
        let hook = self.0.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        Instant::now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        !stop.wait_timeout(duration)
    }
}

#[test]
fn observing_concurrently_stopped_informer_fails() {
    let (_server, client) = server_with(&["a"]);
    let clock = Arc::new(ClockWithHook::default());
    let mut options = ReflectorOptions::default();
    options.clock = clock.clone();
    let factory = SharedInformerFactory::builder(client)
        .reflector_options(options)
        .build();
    let (inner, maps) = (factory.clone(), factory.informer::<ConfigMap>());
    *clock.0.lock().unwrap() = Some(Box::new(move || assert!(inner.stop_informer(&maps))));
    let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
    assert!(
        matches!(observe.start(), Err(InformerError::Stopped { .. })),
        "a stopped informer delivers no events"
    );
    assert!(received.recv_timeout(SOON).is_err());
}

#[test]
fn empty_selector_matches_no_objects() {
    let (_server, client) = server_with(&["a"]);
    let nothing = InformerScope::all().label_selector(Selector::nothing());
    assert_ne!(nothing, InformerScope::all());
    let (observe, received) = recording(observe::<ConfigMap>(client).scope(nothing));
    let maps = observe.start().unwrap();
    maps.wait_for_sync(SOON, &Stop::never()).unwrap();
    assert!(maps.lister().list().is_empty());
    assert!(maps.stop() && received.recv().is_err());
}
